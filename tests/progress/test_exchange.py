"""Hosts that open, join, leave and listen later; frames that come twice or not; and what a step costs."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from fries_nb.errors import ProtocolError
from fries_nb.progress.exchange import HostProgress, ProgressFrame, first_counts
from fries_nb.progress.progress_graph import CountChange, FlowEdge, GraphLocation, ProgressGraph
from fries_nb.progress.times import Antichain, CountedAntichain, PathSummary, start_time
from fries_nb.progress.tracker import Tracker
from fries_nb.simulation.cluster import ManualClock
from fries_nb.simulation.network import Draws, LaneKind, SeededNetwork
from fries_nb.simulation.seeded_progress import ProgressLinks
from fries_nb.simulation.virtual_threads import VirtualEnvironment, VirtualThreads

FLOW = ProgressGraph({"S": (), "A": (), "O": ()}, (FlowEdge("S", "A"), FlowEdge("A", "O")))
SOURCE, TOKEN, TO_A, TO_O = GraphLocation("S"), GraphLocation("A"), GraphLocation("S", "A"), GraphLocation("A", "O")
START = (start_time(),)


def members(number, listeners=("O",)):
    """Hosts that have not begun."""
    return [HostProgress(host, FLOW, listeners, range(number)) for host in range(number)]


def opened(number, firsts=(), listeners=("O",)):
    """Hosts that are open; the first one has these first counts."""
    hosts = members(number, listeners)
    tell(hosts, *[host.begin(firsts if host.host == 0 else ()) for host in hosts])
    return hosts


def tell(hosts, *frames):
    """Deliver frames to all others, and what they broadcast in consequence."""
    waiting = [frame for frame in frames if frame is not None]
    while waiting:
        frame = waiting.pop(0)
        answers = [host.receive(frame) for host in hosts if host.host != frame.sender]
        waiting += [answer for answer in answers if answer is not None]


def change(location, moment, delta):
    """A change of the count of a time outside of loops."""
    return CountChange(location, (0, moment), delta)


# ---- opening


def test_a_host_is_open_when_all_first_counts_have_come():
    """Until then it announces nothing and its frontiers are the least times; then it announces all."""
    one, other = members(2)
    assert (one.missing, one.is_open, one.frontier("O").elements) == ({0, 1}, False, START)
    frame = one.begin([change(SOURCE, 5, 1)])
    assert (frame.number, one.missing, one.frontier("O").elements, one.advanced()) == (1, {1}, START, {})
    assert one.receive(other.begin(())) is None
    assert (one.missing, one.is_open, one.advanced()) == (frozenset(), True, {"O": Antichain(((0, 5),))})
    assert one.advanced() == {}


def test_steps_wait_for_the_opening():
    """What workers do before it is broadcast when it is due at last: with frame 1, or when the last one comes."""
    one, other, third = members(3)
    assert one.record([change(SOURCE, 5, -1), change(SOURCE, 7, 1)]) is None
    frame = one.begin([change(SOURCE, 5, 1)])
    assert frame.changes == (change(SOURCE, 7, 1),)
    assert one.record([change(SOURCE, 7, -1)]) is None
    assert one.receive(other.begin(())) is None
    due = one.receive(third.begin(()))
    assert (due.number, due.changes, one.frontier("O").elements) == (2, (change(SOURCE, 7, -1),), ())


def test_second_frames_may_come_before_another_host_begins():
    """A host that is open broadcasts; one that is not takes it in, and announces nothing."""
    one, other, third = members(3)
    first, second, last = one.begin([change(SOURCE, 5, 1)]), other.begin(()), third.begin([change(SOURCE, 6, 1)])
    one.receive(second)
    one.receive(last)
    end = one.record([change(SOURCE, 5, -1)])
    other.receive(first)
    assert other.receive(end) is None
    assert (other.is_open, other.advanced(), other.frontier("O").elements) == (False, {}, START)
    other.receive(last)
    assert other.advanced()["O"].elements == ((0, 6),)


@pytest.mark.parametrize("seed", range(20))
def test_hosts_open_in_any_order(seed):
    """They begin and hear of each other in any order, and all know the same in the end."""
    draws, clock = Draws(random.Random(seed)), ManualClock()
    environment = VirtualEnvironment(VirtualThreads(draws, clock), clock, random.Random(seed))
    lanes = ProgressLinks(SeededNetwork(draws), environment)
    for host in members(4):
        lanes.add(host, range(4))
        draws.add(host.host)
    while draws:
        drawn = draws.draw()
        if isinstance(drawn, int):
            draws.discard(drawn)
            lanes.links[drawn].begin([change(SOURCE, 5 + drawn, 1)])
        else:
            assert drawn[0] is LaneKind.PROGRESS
            lanes.deliver(drawn)
        known = [host.frontier("O").elements for host in lanes.views.values()]
        assert known == [((0, 5),) if host.is_open else START for host in lanes.views.values()]
    assert all(host.is_open for host in lanes.views.values())


def test_a_host_begins_once():
    """A second time, a host that has joined, and one that leaves or is dismissed without having begun are errors."""
    one, other = members(2)
    one.begin(())
    with pytest.raises(ProtocolError, match="host 0 began a second time"):
        one.begin(())
    with pytest.raises(ProtocolError, match="host 1 leaves before it has begun"):
        other.leave()
    with pytest.raises(ProtocolError, match=r"hosts \(2,\) were admitted by host 1, which has not begun"):
        other.admit([2])
    with pytest.raises(ProtocolError, match="host 7 began a second time"):
        HostProgress.joining(7, FLOW, ["O"]).begin(())


def test_a_view_is_given_when_all_members_have_admitted_the_newcomer():
    """In any order; until the view comes, the newcomer keeps frames, and nothing that it does is heard of."""
    one, other, third = opened(3, [change(SOURCE, 5, 1)])
    of_other = other.admit([3])
    one.receive(of_other)
    of_one = one.admit([3])
    joined = HostProgress.joining(3, FLOW, ["O"])
    assert (one.welcomed(), joined.is_open, joined.frontier("O").elements) == ((), False, START)
    of_third, end = third.admit([3]), third.record([change(SOURCE, 5, -1)])
    for frame in (end, of_third):
        assert joined.receive(frame) is None
    joined._early.reverse()
    one.receive(of_third)
    assert (one.welcomed(), one.welcomed(), of_one.number) == ((3,), (), 2)
    assert joined.record([change(TO_A, 9, -1)]) is None
    assert joined.take_view(one.state()) is None
    assert joined.advanced() == {"O": Antichain()}
    with pytest.raises(ProtocolError, match="a view came to host 3, which has one"):
        joined.take_view(one.state())


def test_what_a_newcomer_did_before_it_had_a_view_is_broadcast_with_it():
    """If it is due then, and not before."""
    (one,) = opened(1, [change(TO_A, 5, 1)])
    greeting = one.admit([1])
    assert (greeting.admits, one.welcomed()) == ((1,), (1,))
    joined = HostProgress.joining(1, FLOW, ["O"])
    assert joined.record([change(TO_A, 5, -1)]) is None
    frame = joined.take_view(one.state())
    assert (frame.number, frame.changes) == (1, (change(TO_A, 5, -1),))


def test_a_newcomer_that_does_not_take_part_is_forgotten():
    """Its view is not given any more; a second newcomer, admitted meanwhile, gets its own."""
    one, other = opened(2)
    one.admit([2])
    one.admit([3])
    one.dismiss(2)
    one.dismiss(2)
    for host in (2, 3):
        one.receive(other.admit([host]))
    assert one.welcomed() == (3,)


def test_a_host_that_leaves_is_not_waited_for():
    """Neither does its last frame lack anything, nor does a newcomer wait until it is admitted by that host."""
    one, other = opened(2, [change(SOURCE, 5, 1)])
    assert other.record([change(SOURCE, 8, 1)]) is None
    one.admit([2])
    assert one.welcomed() == ()
    last = other.leave()
    assert (last.is_last, last.changes) == (True, (change(SOURCE, 8, 1),))
    one.receive(last)
    assert (one.welcomed(), one.state().numbers) == ((2,), {0: 2, 2: 0})
    with pytest.raises(ProtocolError, match="came from host 1"):
        one.receive(last)


# ---- frames


def test_each_frame_counts_once():
    """One that comes again has no effect; after a gap, or from a stranger, it is an error; no two may be divided."""
    one, other = opened(2, [change(SOURCE, 5, 1), change(SOURCE, 6, 1)])
    frames = [one.record([change(SOURCE, 5, -1)]), one.record([change(SOURCE, 6, -1)])]
    with pytest.raises(ProtocolError, match="frame 3 of host 0 came after frame 1; expected 2"):
        other.receive(frames[1])
    for frame in (frames[0], frames[0], frames[1], frames[0], frames[1]):
        other.receive(frame)
    assert (other.frontier("O").elements, other.state().counts) == ((), ())
    with pytest.raises(ProtocolError, match=r"a progress frame came from host 9; members are \[0, 1\]"):
        other.receive(ProgressFrame(9, 1, ()))


def test_a_newcomer_knows_which_frames_its_view_includes():
    """Those that are on their way to it have no effect, later ones do."""
    one, other = opened(2, first_counts(FLOW, {"S": 2}))
    greetings = [one.admit([2]), other.admit([2])]
    included = one.record([CountChange(SOURCE, START[0], -1)])
    for frame in (greetings[0], included):
        other.receive(frame)
    joined = HostProgress.joining(2, FLOW, ["O"])
    later = one.record([CountChange(SOURCE, START[0], -1)])
    for frame in (*greetings, included):
        assert joined.receive(frame) is None
    assert other.welcomed() == (2,)
    joined.take_view(other.state())
    assert joined.advanced()["O"].elements == START
    assert joined.receive(later) is None
    assert (joined.frontier("O").elements, joined.state().counts) == ((), ())
    other.receive(later)
    frame = joined.record([change(TOKEN, 1, 1)]) or joined.leave()
    assert frame.number == 1
    tell([one, other], frame)


# ---- listeners


def test_a_listener_may_come_later():
    """It is announced at once, and what waited for lack of it is broadcast."""
    one, other = opened(2, [change(SOURCE, 3, 1), change(TO_O, 3, 1), change(TO_A, 4, 1)])
    assert one.record([change(TO_A, 4, -1)]) is None
    tell([one, other], one.record([change(SOURCE, 3, -1)]))
    assert [host.advanced() for host in (one, other)] == [{"O": Antichain(((0, 3),))}] * 2
    assert one.listen("A") is None
    tell([one, other], other.listen("A"))
    assert (one.listen("A"), one.listeners) == (None, ("O", "A"))
    assert [host.advanced()["A"].elements for host in (one, other)] == [(), ()]


def test_what_waits_is_released_by_a_new_listener():
    """A token of time 9 is behind what O waits for, but the only one that B waits for."""
    edges = (FlowEdge("S", "O"), FlowEdge("T", "B"), FlowEdge("B", "O"))
    flow = ProgressGraph(dict.fromkeys("STBO", ()), edges)
    host = HostProgress(0, flow, ["O"], [0])
    host.begin([change(GraphLocation("S"), 3, 1), change(GraphLocation("T"), 9, 1)])
    assert host.record([change(GraphLocation("T"), 9, -1)]) is None
    assert host.waiting == 1
    assert host.listen("B").changes == (change(GraphLocation("T"), 9, -1),)
    assert host.advanced() == {"O": Antichain(((0, 3),)), "B": Antichain()}


def test_holders_are_what_a_frontier_waits_for():
    """Tokens and messages, with how many there are; not those that are behind others, nor negative counts."""
    one, _ = opened(2, [change(SOURCE, 5, 2), change(TO_A, 5, 3), change(TOKEN, 6, 1)])
    one._tracker.update([change(TO_O, 4, -1)])
    assert [tuple(holder) for holder in one.holders("O")] == [("S", (0, 5), 2, ""), ("S", (0, 5), 3, "A")]


def stuck_at(differing):
    """What the first host knows of A when T has ended at another host; perhaps that one does not listen there."""
    edges = (FlowEdge("S", "O"), FlowEdge("T", "A"), FlowEdge("A", "O"))
    flow = ProgressGraph(dict.fromkeys("STAO", ()), edges)
    hosts = [HostProgress(host, flow, ["O"] if host and differing else ["O", "A"], range(2)) for host in range(2)]
    tell(hosts, hosts[0].begin([change(GraphLocation("S"), 3, 1)]), hosts[1].begin([change(GraphLocation("T"), 9, 1)]))
    tell(hosts, hosts[1].record([change(GraphLocation("T"), 9, -1)]))
    return hosts[0].frontier("A").elements


def test_hosts_have_equal_listeners():
    """Otherwise one keeps to itself what another waits for."""
    assert stuck_at(differing=False) == ()
    assert stuck_at(differing=True) == ((0, 9),)


# ---- the order of what different hosts do


def passed_after_a_move(first):
    """What a third host knows when a token was used at one host, then moved to another and dropped there."""
    hosts = opened(3, [change(SOURCE, 3, 1)])
    assert hosts[0].record([change(TO_A, 3, 1)]) is None  # a message is sent with the token, which advances nothing
    if first == "all hear of it":
        tell(hosts, hosts[0]._broadcast())
    elif first == "the next holder hears of it":
        hosts[1].receive(hosts[0]._broadcast())
    hosts[2].receive(hosts[1].record([change(SOURCE, 3, -1)]))
    return hosts[2].frontier("O").elements


def test_a_token_moves_to_another_host_when_all_have_heard_what_was_done_with_it():
    """Otherwise its end overtakes the message, and a frontier passes it. Telling the next holder is not enough.

    So a token that moves between workers is counted as on its way (see ``moving``).
    """
    assert passed_after_a_move("all hear of it") == ((0, 3),)
    assert passed_after_a_move("the next holder hears of it") == ()
    assert passed_after_a_move("nothing") == ()


def used_up_unheard_of():
    """What a third host knows when two messages were used up of which it has not heard, but their token is held."""
    hosts = opened(3, [change(SOURCE, 3, 1)])
    sent = [hosts[0].record([change(TO_A, 3, 2)]) or hosts[0]._broadcast()]
    hosts[1].receive(sent[0])
    used = hosts[1].record([change(TO_A, 3, -2)])
    hosts[2].receive(used)
    return hosts[2].frontier("O").elements


def _summed(tracker, changes, update=Tracker.update):
    """A negative count cancels another pointstamp that can result in the same."""
    update(tracker, changes)
    sums: Counter = Counter()
    for location, time, count in tracker.counts:
        for listener, image in tracker.images(location, time):
            sums[listener, image] += count
    for listener, antichain in tracker._antichains.items():
        positive = (time for (name, time), count in sums.items() if name == listener and count > 0)
        antichain.frontier = Antichain.of(positive)
    return {listener: tracker.frontier(listener) for listener in tracker.listeners}


def test_only_positive_counts_matter(monkeypatch):
    """What is owed says nothing about what is held elsewhere; a sum over locations would."""
    assert used_up_unheard_of() == ((0, 3),)
    monkeypatch.setattr(Tracker, "update", _summed)
    assert used_up_unheard_of() == ()


# ---- what a step costs


AHEAD = GraphLocation("S", "O", 1)


def idle_flow(idle):
    """A line of operators at which nothing happens, with a way past each of them."""
    names = ["S", *(f"i{n}" for n in range(idle)), "O"]
    line = [FlowEdge(*pair) for pair in pairwise(names)]
    return ProgressGraph(dict.fromkeys(names, ()), (*line, *(FlowEdge("S", name, 1) for name in names[2:])))


def counting(calls, owner, name):
    """The function, which counts its calls."""
    function = getattr(owner, name)

    def counted(*of):
        calls[name] += 1
        return function(*of)

    return counted


def calls_of_steps(monkeypatch, idle, held):
    """The numbers of calls that steps need, and of frames, with idle operators and times that are held meanwhile."""
    host = HostProgress(0, idle_flow(idle), ["O"], [0, 1])
    host.begin([change(SOURCE, 0, 1)])
    host.receive(ProgressFrame(1, 1, tuple(change(SOURCE, 10_000 + moment, 1) for moment in range(held))))
    calls: Counter = Counter()
    for owner, name in ((CountedAntichain, "update"), (PathSummary, "apply"), (Tracker, "images")):
        monkeypatch.setattr(owner, name, counting(calls, owner, name))
    for moment in range(50):
        calls["frames"] += host.record([change(AHEAD, 20_000 + moment, 1)]) is not None
        calls["frames"] += host.record([change(SOURCE, moment + 1, 1), change(SOURCE, moment, -1)]) is not None
    monkeypatch.undo()
    return calls


def test_a_step_costs_what_it_changes(monkeypatch):
    """Neither idle operators nor what is held meanwhile cost anything."""
    few = calls_of_steps(monkeypatch, idle=1, held=100)
    many = calls_of_steps(monkeypatch, idle=256, held=10_000)
    assert few == many
    assert many["frames"] == 50
    assert many["apply"] == 0
