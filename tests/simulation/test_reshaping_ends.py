"""Changes of the shape while workers end, and changes that are refused: nothing waits for what does not come.

Of the mutants of the design's model of shapes, those of the plan are in ``planning/test_shape.py``; those of the
switch, the order, sources, states and checkpoints in ``test_reshaping.py``, with the one that stands for five rules by
which the model lets changes overlap (here the next change waits: the mutant is that it does not); those of ends,
refusals, parts of sinks and of what is in flight are here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from shapes_played import Played, is_over, judge, play, rows_of
from soak import SHOWN_BY, SOAK, caught, first_tried

from fries_nb.controller import commits, reshaping
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.reshaping_cluster import Program, ReshapingCluster, Statement, drawn_program
from fries_nb.worker import outbox

S, M, OUT = "source", "map", "sink"
MIDDLE = [Statement("S", S), Statement("A", M, ("S",)), Statement("B", M, ("A",))]
END = [Statement("D", M, ("B",)), Statement("out", OUT, ("D",))]
Plays = tuple[Played, dict[str, list[dict[str, Any]]]]


def play_ended_head(seed: int) -> Plays:
    """A branch behind A is cut when A and B have ended, and D, which has rows of T to come, gets another function."""
    branch = [Statement("Y", M, ("A",)), Statement("outY", OUT, ("Y",))]  # two are left, so that copies go on
    first = [*MIDDLE, Statement("T", S), Statement("U", "union", ("B", "T")), replace(END[0], inputs=("U",)), END[1]]
    before = Program([*first, *branch, Statement("X", M, ("A",)), Statement("outX", OUT, ("X",))])
    after = Program([*first[:-2], replace(first[-2], version=1), END[1], *branch], before.functions)
    rows = rows_of([before], 20)
    cluster = ReshapingCluster(before.graph(), rows, hosts=2, seed=seed, chaining=False, window=5_000)
    workers = {name: range(cluster.graph.operator(name).workers) for name in ("T", "B")}
    cluster.hold(WorkerId("T", index) for index in workers["T"])
    cluster.until(lambda: all(cluster.worker("B", index).ended for index in workers["B"]))
    change = cluster.reshape(after.graph())
    cluster.until(partial(is_over, cluster, change))
    cluster.release()
    cluster.run()
    return Played(cluster, before, {change: after}), rows


def play_ending(seed: int) -> Plays:
    """An operator is inserted behind A, whose workers end meanwhile."""
    chance = random.Random(f"ending {seed}")
    before = Program([*MIDDLE, *END])
    new = Statement("N", chance.choice((M, "keyed")), ("A",))
    after = Program([*MIDDLE[:2], new, replace(MIDDLE[2], inputs=("N",)), *END], before.functions)
    rows = rows_of([before], chance.choice((6, 12, 20)))
    window = chance.choice((200, 900))
    cluster = ReshapingCluster(before.graph(), rows, hosts=2, seed=seed, chaining=False, window=window)
    cluster.steps(chance.randrange(0, 400))
    played = Played(cluster, before, {cluster.reshape(after.graph()): after})
    cluster.run()
    return played, rows


class CannotOpen:
    """The function of a map that cannot be opened."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def open(self) -> None:
        """It needs a file that is not there."""
        raise FileNotFoundError("model.bin")

    def __call__(self, row: dict[str, Any]) -> Any:
        """The result of the other function."""
        return self.inner(row)


def play_refused(seed: int) -> Plays:
    """A change is refused, since a new function cannot be opened; then it is made with one that can."""
    chance = random.Random(f"refused {seed}")
    while True:
        before = drawn_program(chance)
        after = before.edited(chance)
        known = {(one.name, one.version) for one in before.statements}
        fresh = [one for one in after.statements if one.kind == M and (one.name, one.version) not in known]
        if fresh:
            break
    after.graph()  # makes the functions
    bad = chance.choice(fresh)
    refused = Program(after.statements, dict(after.functions))
    refused.functions[bad.name, bad.version] = CannotOpen(after.functions[bad.name, bad.version])
    rows = rows_of([before, after], chance.choice((20, 60)))
    cluster = ReshapingCluster(before.graph(), rows, seed=seed, hosts=chance.choice((1, 2)), window=1_000)
    sources = cluster.graph.sources
    cluster.hold(WorkerId(name, n) for name in sources for n in range(cluster.graph.operator(name).workers))
    cluster.steps(chance.choice((20, 200)))
    played = Played(cluster, before, {})
    for program in (refused, after):
        if cluster.state == "running":
            change = cluster.reshape(program.graph())
            played.asked[change] = program
            cluster.until(partial(is_over, cluster, change))
    cluster.release()
    cluster.run()
    assert all(outcome.outcome == "aborted" for change, outcome in cluster.outcomes.items() if change == "s1")
    return played, rows


def play_cut_sink(seed: int) -> Plays:
    """One of three sinks is removed, and comes back by a rollback; all that any of them has written is committed."""
    chance = random.Random(f"cut {seed}")
    before = Program([*MIDDLE[:2], *(Statement(f"out{number}", OUT, ("A",)) for number in range(3))])
    after = Program(before.statements[:-1], before.functions)
    rows = rows_of([before], chance.choice((40, 90)))
    settings = {"window": chance.choice((200, 1_000)), "commit_interval_ns": chance.choice((200_000, 5_000_000))}
    cluster = ReshapingCluster(before.graph(), rows, hosts=2, seed=seed, **settings)
    cluster.hold(WorkerId("S", index) for index in range(cluster.graph.operator("S").workers))
    played = Played(cluster, before, {})
    for program in (after, before):
        cluster.steps(chance.choice((20, 100, 300)))
        change = cluster.reshape(program.graph(), returns=program is before)
        played.asked[change] = program
        cluster.until(partial(is_over, cluster, change))
    cluster.release()
    cluster.run()
    for name, sink in cluster.store.sinks.items():
        closed = {part for port in sink.ports for part, written in port.parts.items() if written}
        assert closed <= {part for parts in sink.commits.values() for part in parts}, name
    return played, rows


@pytest.mark.parametrize("play", [play_ended_head, play_ending, play_refused, play_cut_sink])
def test_a_run_goes_on_to_its_end(play: Callable[[int], Plays]) -> None:
    """Each row went through one of the programs."""
    made = 0
    for seed in range(4 * SOAK):
        played, rows = play(seed)
        judge(played, rows)
        made += len(played.programs) > 1
    assert made


def end_nothing_new(patch: pytest.MonkeyPatch) -> None:
    """A worker that has ended does not end the channels that it gets."""
    rewire = outbox.Outbox.rewire
    patch.setattr(outbox.Outbox, "rewire", lambda self, edges, ended=False: rewire(self, edges))


def withdraw_nothing(patch: pytest.MonkeyPatch) -> None:
    """A refusal leaves the channels and workers of the change where they are."""
    patch.setattr(reshaping.Reshaping, "_withdraw_wired", lambda self: self._move(reshaping.ReshapingPhase.IDLE))


def lose_parts_of_removed_sinks(patch: pytest.MonkeyPatch) -> None:
    """What the workers of a sink report after the decision that it goes is not committed."""
    removed, decide, hand_in = set[str](), reshaping.Reshaping.decide, commits.CommitNumbers.hand_in

    def noted(self: reshaping.Reshaping) -> Any:
        removed.clear()
        removed.update(name for name in self._before or () if name not in (self._after or ()))
        return decide(self)

    def lossy(self: commits.CommitNumbers, sink: str, files: Any, behind_cut: bool = False) -> None:
        if sink not in removed:
            hand_in(self, sink, files, behind_cut)

    patch.setattr(reshaping.Reshaping, "decide", noted)
    patch.setattr(commits.CommitNumbers, "hand_in", lossy)


def lose_parts_of_returning_sinks(patch: pytest.MonkeyPatch) -> None:
    """What a sink is owed that was removed is forgotten when it comes back."""
    owing, begin, hand_in = list[commits.CommitNumbers](), reshaping.Reshaping.begin, commits.CommitNumbers.hand_in

    def noted(self: commits.CommitNumbers, sink: str, files: Any, behind_cut: bool = False) -> None:
        owing[:] = [self]
        hand_in(self, sink, files, behind_cut)

    def forgetful(self: reshaping.Reshaping, change: str, new: Any, *more: Any) -> Any:
        back = set(new.after.by_name) - set(self._joining.topology.graph.by_name) if new.returns else set()
        for one in owing:
            one._waiting = [part for part in one._waiting if part[0] not in back]
        return begin(self, change, new, *more)

    patch.setattr(commits.CommitNumbers, "hand_in", noted)
    patch.setattr(reshaping.Reshaping, "begin", forgetful)


def leave_a_commit_in_flight(patch: pytest.MonkeyPatch) -> None:
    """A commit whose marker is on its way is not cancelled for a change."""
    patch.setattr(commits.Checkpoints, "cancel", lambda self, now_ns: [])


@pytest.mark.parametrize(
    ("break_it", "play", "known"),
    [
        (end_nothing_new, play_ending, 2), (withdraw_nothing, play_refused, 0),
        (lose_parts_of_removed_sinks, play_cut_sink, 0), (lose_parts_of_returning_sinks, play_cut_sink, 0),
        (leave_a_commit_in_flight, partial(play, kills=2), 13),
    ],
)  # fmt: skip
def test_a_broken_rule_shows(
    break_it: Callable[[pytest.MonkeyPatch], None], play: Callable[[int], Plays], known: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each rule is needed: without it some seed fails, the one that is known to first."""
    break_it(monkeypatch)
    assert caught(first_tried(known, 200), lambda seed: judge(*play(seed)), SHOWN_BY) is not None
