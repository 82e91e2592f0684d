"""Every order in which two hosts may open, do a few steps, and hear of each other."""

from __future__ import annotations

import pickle

import pytest
from progress_mutants import MUTANTS

from fries_nb.progress.exchange import HostProgress
from fries_nb.progress.progress_graph import CountChange, FlowEdge, GraphLocation, ProgressGraph

FLOW = ProgressGraph({"S": (), "O": ()}, (FlowEdge("S", "O"),))
SOURCE, EDGE = GraphLocation("S"), GraphLocation("S", "O")

SENT = ("step", 0)
STEPS = {
    0: [{(SOURCE, (0, 3)): -1, (SOURCE, (0, 5)): 1, (EDGE, (0, 3)): 1}, {(SOURCE, (0, 5)): -1}],
    1: [{(EDGE, (0, 3)): -1}, {(SOURCE, (0, 4)): -1}],
}
"""What each host's worker does; the second one uses up what the first one has sent."""
FIRST = {0: {(SOURCE, (0, 3)): 1}, 1: {(SOURCE, (0, 4)): 1}}


def changes(counts):
    """A whole step."""
    return [CountChange(*stamp, delta) for stamp, delta in counts.items()]


class Moment:
    """What hosts know and what is on its way between them, after some events."""

    def __init__(self) -> None:
        self.hosts = {host: HostProgress(host, FLOW, ["O"], FIRST) for host in FIRST}
        self.lanes: dict = {}
        self.past: dict = dict.fromkeys(FIRST, ())

    def events(self):
        """What can happen next: a host begins, its worker hands over a step, or it hears of another."""
        for host, past in self.past.items():
            steps = sum(kind == "step" for kind, _ in past)
            if ("begin", host) not in past:
                yield host, ("begin", host)
            if steps < len(STEPS[host]) and (host != 1 or SENT in self.past[0]):
                yield host, ("step", steps)
            yield from ((host, ("hear", sender)) for (sender, to), queue in self.lanes.items() if to == host and queue)

    def after(self, host, event) -> Moment:
        """The moment after an event; this one stays as it is."""
        moment = pickle.loads(pickle.dumps(self))
        progress, (kind, number) = moment.hosts[host], event
        if kind == "begin":
            frame = progress.begin(changes(FIRST[host]))
        elif kind == "step":
            frame = progress.record(changes(STEPS[host][number]))
        else:
            frame = progress.receive(moment.lanes[number, host].pop(0))
        for other in set(moment.hosts) - {host} if frame else ():
            moment.lanes.setdefault((host, other), []).append(frame)
        moment.past[host] += (event,)
        return moment

    def outstanding(self):
        """All times that can still result in something, by what has really happened."""
        counts: dict = {}
        for host, past in self.past.items():
            done = STEPS[host][: sum(kind == "step" for kind, _ in past)]
            for step in (FIRST[host], *done):
                for stamp, delta in step.items():
                    counts[stamp] = counts.get(stamp, 0) + delta
        return [time for (_, time), count in counts.items() if count]

    def is_sound(self) -> bool:
        """No host is past what is outstanding; when nothing can happen, all are at the end."""
        known = [host.frontier("O") for host in self.hosts.values()]
        at_end = any(self.events()) or not any(known)
        return at_end and all(frontier.less_equal(time) for frontier in known for time in self.outstanding())


def moments():
    """All that some order of events leads to."""
    new, seen = [Moment()], set()
    while new:
        moment = new.pop()
        for host, event in list(moment.events()):
            past = tuple((*own, event) if at == host else own for at, own in moment.past.items())
            if past not in seen:
                seen.add(past)
                new.append(moment.after(host, event))
                yield new[-1]


def test_every_order_is_sound():
    """Each host is right at each moment, and there are many."""
    judged = [moment.is_sound() for moment in moments()]
    assert all(judged)
    assert len(judged) > 500


@pytest.mark.parametrize("name", ["open when begun", "open from the start", "a waiting batch is not examined again"])
def test_some_order_shows_a_mutant(name, monkeypatch):
    """A host that opens early is past a first count in some order, and one that forgets what waits never ends."""
    for owner, attribute, instead in MUTANTS[name]:
        monkeypatch.setattr(owner, attribute, instead)
    assert not all(moment.is_sound() for moment in moments())
