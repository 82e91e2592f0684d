"""A dataflow with loops changes its shape around them: each row is processed by one shape, in all of its rounds."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from shapes_played import Played, around_loops, is_over, judge, play, rows_of
from soak import SHOWN_BY, SOAK, caught, first_tried

from fries_nb.controller.change_steps import Changes
from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.states import LoopPhase
from fries_nb.planning import shape
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.reshaping_cluster import LOOPING, Program, ReshapingCluster, Statement
from fries_nb.worker.worker import Worker

Plays = tuple[Played, dict[str, list[dict[str, Any]]]]

KINDS = {"S": "source", "T": "source", "L": "loop", "O": "once", "U": "union", "F": "filter", "k": "sink", "C": "keyed"}


def program(text: str, of: Program | None = None) -> Program:
    """The program of ``A-S B1-A U-A-B``: names, with the versions of their functions and what they are made of."""
    statements = []
    for word in text.split():
        name, *inputs = word.split("-")
        kind, version = KINDS.get(name[0], "map"), int(name[2:] or 0)
        statements.append(Statement(name[:2], kind, tuple(inputs), version))
    return Program(statements, of.functions if of else None)


CASES = {
    "behind": ("S1 A1-S1 L1-A1 B1-L1 k1-B1", "S1 A1-S1 L1-A1 F1-L1 B1-F1 k1-B1"),
    "beside": ("S1 A1-S1 L1-A1 B1-L1 k1-B1", "S1 A1-S1 L1-A1 B1-L1 k1-B1 N1-L1 k2-N1"),
    "in front": ("S1 A1-S1 L1-A1 C1-L1 k1-C1", "S1 A1-S1 F1-A1 L1-F1 C1-L1 k1-C1"),
    "out": ("S1 A1-S1 N1-A1 L1-N1 M1-L1 k1-M1", "S1 A1-S1 L1-A1 k1-L1"),
    "around": ("S1 A1-S1 L1-A1 B1-L1 k1-B1", "S1 B1-S1 L1-B1 A1-L1 k1-A1"),
    "functions": ("S1 A1-S1 L1-A1 B1-L1 k1-B1", "S1 A11-S1 L11-A1 N1-L1 B11-N1 k1-B1"),
    "two loops": ("S1 L1-S1 A1-L1 L2-A1 k1-L2 B1-A1 k2-B1", "S1 L1-S1 A1-L1 N1-A1 L2-N1 k1-L2 B1-A1 k2-B1"),
    "once": ("S1 A1-S1 O1-A1 B1-O1 k1-B1 M1-A1 k2-M1", "S1 A1-S1 O1-A1 N1-O1 B1-N1 k1-B1 M11-A1 k2-M1"),
}


def play_case(case: str, seed: int, kills: bool) -> Plays:
    """Play a change of the shape in a run with rows inside its loops; hosts are killed when it has been decided."""
    chance = random.Random(f"{case} {seed}")
    texts = CASES[case] if case == "functions" or chance.random() < 0.6 else CASES[case][::-1]
    before = program(texts[0])
    after = program(texts[1], before)
    rows = rows_of([before, after], chance.choice((20, 40, 60)))
    settings: dict[str, Any] = {"checkpoints": True, "commit_interval_ns": 50_000_000} if kills else {}
    cluster = ReshapingCluster(
        before.graph(), rows, seed=seed, hosts=2, window=chance.choice((200, 400, 1000)),
        chaining=chance.random() < 0.5, **settings,
    )  # fmt: skip
    held = [WorkerId(name, n) for name in cluster.graph.sources for n in range(cluster.graph.operator(name).workers)]
    cluster.hold(held)
    cluster.steps(chance.choice((100, 200, 400)))
    for _ in range(8 if kills else 0):
        request = cluster.checkpoint()
        cluster.until(lambda request=request: cluster.asked[request] is not None)  # type: ignore[misc]
        if any(one.logged for one in cluster.store.records[-1:]):
            break
    played = Played(cluster, before, {})
    if cluster.state == "running":
        change = cluster.reshape(after.graph(), order=chance.random() < 0.8)
        played.asked[change] = after
        cluster.until(lambda: is_over(cluster, change) or any(one.change == change for one in cluster.journal))
        if kills and cluster.state == "running" and chance.random() < 0.9:
            cluster.steps(chance.choice((0, 5, 30, 200)))
            if chance.random() < 0.3:
                cluster.kill_driver()
            else:
                cluster.kill(chance.randrange(2))
    cluster.release()
    cluster.run()
    return played, rows


def play_later(seed: int) -> Plays:
    """Behind a change of the shape two functions change, of which one was behind rows that are in a loop."""
    chance = random.Random(f"later {seed}")
    first = program("S1 O1-S1 M1-O1 k1-M1 X1-S1 T1 Y1-T1 T2 Z1-T2 U1-X1-Y1-Z1 M2-U1 k2-M2 k3-X1")
    second = program("S1 O1-S1 M1-O1 k1-M1 X1-S1 T1 Y1-T1 T2 Z1-T2 U1-Y1-Z1 M2-U1 k2-M2 k3-X1", first)
    third = program("S1 O1-S1 M11-O1 k1-M1 X1-S1 T1 Y1-T1 T2 Z1-T2 U1-Y1-Z1 M21-U1 k2-M2 k3-X1", first)
    rows = {source: some[: 60 if source == "S1" else 4] for source, some in rows_of([first], 60).items()}
    cluster = ReshapingCluster(first.graph(), rows, seed=seed, hosts=2, window=400, chaining=False)
    cluster.hold(WorkerId(name, n) for name in ("S1", "T1", "T2") for n in range(cluster.graph.operator(name).workers))
    cluster.steps(chance.choice((50, 100, 200)))
    played = Played(cluster, first, {})
    for later in (second, third):
        change = cluster.reshape(later.graph())
        played.asked[change] = later
        cluster.until(partial(is_over, cluster, change))
    cluster.release()
    cluster.run()
    return played, rows


def drained(played: Played) -> int:
    """The number of changes that were made when a loop was empty."""
    heads = set(played.first.graph().heads)
    done = (one for one in played.cluster.outcomes.values() if one.outcome == "done")
    return sum(not heads.isdisjoint(*one.components[:1]) for one in done)


@pytest.mark.parametrize("kills", [0, 2])
def test_each_row_is_processed_by_one_shape_in_all_its_rounds(kills: int) -> None:
    """Drawn programs with loops, and drawn edits around them."""
    made = 0
    for seed in range(6 * SOAK):
        played, rows = play(seed, kills, around_loops, LOOPING)
        judge(played, rows)
        made += len(played.programs) > 1 if kills else drained(played)
    assert made > 0


@pytest.mark.parametrize("case", CASES)
def test_edits_around_a_loop(case: str) -> None:
    """Each row goes through one of the programs; hosts or the driver die behind the decision, with rows in the loop."""
    made = recovered = 0
    for seed in range(4 * SOAK):
        played, rows = play_case(case, seed, kills=seed % 2 > 0)
        judge(played, rows)
        made += drained(played)
        recovered += bool(played.cluster.recoveries)
    assert made
    assert recovered


def test_what_a_loop_keeps_meets_no_later_change_by_half() -> None:
    """A loop of which one row comes for each, so that a plan may leave it out, is emptied by a change of the shape."""
    for seed in (19, *range(SOAK)):
        played, rows = play_later(seed)
        judge(played, rows)
        assert drained(played)


# ---- mutants


def decide_without_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """A restart goes back to a checkpoint in which rows are inside the loop."""
    patch.setattr(Changes, "_keep_empty", Changes._decide)


def find_every_loop_empty(patch: pytest.MonkeyPatch) -> None:
    """The first attempt is enough, whatever came back."""
    patch.setattr(Loop, "verdict", lambda self: LoopPhase.ENDING)


def let_sources_read(patch: pytest.MonkeyPatch) -> None:
    """Sources read on while the loop is emptied."""
    close = Worker.close

    def close_others(self: Worker, operators: Any) -> None:
        if not self.instances[0].operator.traits.is_source:
            close(self, operators)

    patch.setattr(Worker, "close", close_others)


def block_the_component_only(patch: pytest.MonkeyPatch) -> None:
    """No checkpoint passes what is blocked in front of the loop."""
    whole = shape._from_the_sources

    def alone(before: Any, contraction: Any, scope: Any, causes: Any) -> Any:
        wider, added = whole(before, contraction, scope, causes)
        return wider & scope, added

    patch.setattr(shape, "_from_the_sources", alone)


def leave_single_loops_out(patch: pytest.MonkeyPatch) -> None:
    """A loop that a plan may leave out keeps rows of before the change."""
    patch.setattr(shape, "_staying", lambda contraction: frozenset())


@pytest.mark.parametrize(
    ("break_it", "play", "known"),
    [
        (decide_without_a_checkpoint, partial(play_case, "behind", kills=True), 0),
        (find_every_loop_empty, partial(play_case, "behind", kills=False), 0),
        (let_sources_read, partial(play_case, "functions", kills=False), 3),
        (block_the_component_only, partial(play_case, "behind", kills=True), 0),
        (leave_single_loops_out, play_later, 19),
    ],
)
def test_a_broken_rule_shows(
    break_it: Callable[[pytest.MonkeyPatch], None], play: Callable[..., Plays], known: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each rule is needed: without it some seed fails, the one that is known to first."""
    break_it(monkeypatch)
    assert caught(first_tried(known, 100), lambda seed: judge(*play(seed=seed)), SHOWN_BY) is not None
