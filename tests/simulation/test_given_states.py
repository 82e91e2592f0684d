"""Operators that are added to a running dataflow begin with given states, once, whatever dies and is undone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from shapes_played import Played, is_over, judge, rows_of
from soak import SHOWN_BY, SOAK, caught, first_tried

from fries_nb.controller.known_changes import KnownChanges
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.reshaping_cluster import ReshapingCluster, drawn_program

BASE = 1_000
"""What the first change gives as the count of a key; the next one twice that, and so on."""


@dataclass
class Given(Played):
    """A run in which operators were added with states.

    Attributes:
        states: each change that adds operators, and rolls none back, to what it has given them.
    """

    states: dict[str, dict[str, dict[int, dict[str, int]]]]

    def begun(self, operator: str, key: int) -> list[int]:
        """The counts with which an operator has begun a key, each time that it was added."""
        found = [0] if operator in self.first.by_name else []
        made = [one.change for one in self.cluster.journal if one.shape]
        for before, change in zip(self.programs, made, strict=False):
            is_added = operator in self.asked[change].by_name and operator not in before.by_name
            if is_added and change in self.states:
                found.append(self.states[change].get(operator, {}).get(key, {"n": 0})["n"])
        return found


def play(seed: int, kills: int = 0, drivers: int = 0) -> tuple[Given, dict[str, list[dict[str, Any]]]]:
    """Operators are added, removed, brought back, and added again, with other states each time."""
    chance = random.Random(f"given {seed}")
    while True:
        before = drawn_program(chance)
        after = before.edited(chance)
        keyed = [one.name for one in after.statements if one.kind == "keyed" and one.name not in before.by_name]
        if keyed and before.graph().sources == after.graph().sources:  # one that is added again reads its rows again
            break
    rows = rows_of([before, after], chance.choice((30, 60, 100)))
    settings: dict[str, Any] = {"hosts": chance.choice((1, 2)), "window": chance.choice((200, 1000, 5000))}
    if kills or drivers:
        faults = Faults(chance.choice((0.0002, 0.0005, 0.001)), host_kills=kills, driver_kills=drivers)
        settings |= {"checkpoints": True, "commit_interval_ns": chance.choice((300_000, 3_000_000)), "faults": faults}
    cluster = ReshapingCluster(before.graph(), rows, seed=seed, **settings)
    graph = cluster.graph
    cluster.hold(WorkerId(name, index) for name in graph.sources for index in range(graph.operator(name).workers))
    played = Given(cluster, before, {}, {})
    for number in range(1, chance.choice((2, 4, 6))):
        cluster.steps(chance.choice((50, 200, 500)))
        if cluster.state != "running":
            break
        program = before if played.programs[-1] is after else after
        last = next(reversed(played.asked), "")
        is_known = last in cluster.controller.changes  # by the driver of now
        returns = is_known and cluster.outcomes[last].outcome == "done" and chance.random() < 0.5
        states = {name: drawn_states(chance, number * BASE) for name in keyed} if program is after else {}
        change = cluster.reshape(program.graph(), returns=returns, given={} if returns else states)
        played.asked[change] = program
        played.states |= {} if returns else {change: states}
        cluster.until(partial(is_over, cluster, change))
    cluster.release()
    cluster.run()
    return played, rows


def drawn_states(chance: random.Random, base: int) -> dict[int, dict[str, int]]:
    """Counts of some of the four keys."""
    return {key: {"n": base} for key in range(4) if chance.random() < 0.7}


def judge_given(played: Given, rows: dict[str, list[dict[str, Any]]]) -> int:
    """Each row was counted from a given count on, no two alike, and none was left out; returns how many were."""
    judge(played, rows)
    cluster = played.cluster
    for before, one in zip(played.programs, (one for one in cluster.journal if one.shape), strict=False):
        if one.change in played.states:  # what begins empty is decided as well
            assert one.given.keys() == played.asked[one.change].graph().by_name.keys() - before.graph().by_name.keys()
    sinks = {one.name for program in played.programs for one in program.statements if one.kind == "sink"}
    ends = {of_source[-1]["value"] for of_source in rows.values()}  # which were held until all changes had ended
    holders: dict[tuple[str, int], dict[int, set[tuple[int, str]]]] = {}
    for row in (row for sink in sinks for row in cluster.rows(sink)):
        for entry in filter(None, row["numbers"].split(",")):
            operator, number = entry.split(":")
            held = holders.setdefault((operator, row["key"]), {}).setdefault(int(number), set())
            held.add((row["value"], row["way"].partition(operator)[0]))
            last = played.begun(operator, row["key"])[-1]
            assert row["value"] not in ends or last < int(number) < last + BASE, (row, last)
    given = 0
    for (operator, key), held in holders.items():
        begun = played.begun(operator, key)
        from_base = {base: sorted(one - base for one in held if base < one < base + BASE) for base in begun}
        assert sum(map(len, from_base.values())) == len(held), (operator, key, begun, sorted(held))
        for base, counts in from_base.items():
            assert all(len(held[base + one]) <= begun.count(base) for one in counts), (operator, key, base, held)
            if is_lossless(played, operator):
                assert counts == [*range(1, len(counts) + 1)], (operator, key, base, counts)
        given += sum(len(counts) for base, counts in from_base.items() if base)
    return given


def is_lossless(played: Given, operator: str) -> bool:
    """Whether all rows behind an operator come to a sink, in each of the programs."""
    for program in (one for one in played.programs if operator in one.by_name):
        below = {operator}
        for one in program.statements:
            below |= {one.name} if below & {*one.inputs} else set()
        if any(program.by_name[name].kind in ("filter", "flat_map") for name in below):
            return False
    return True


def test_added_operators_begin_with_given_states() -> None:
    """Also where hosts and drivers die before the next checkpoint; they are gone after a rollback, and come again."""
    assert sum(judge_given(*play(seed)) > 0 for seed in range(5 * SOAK)) > 2 * SOAK
    assert sum(judge_given(*play(seed, kills=3)) > 0 for seed in range(6 * SOAK)) > SOAK
    assert sum(judge_given(*play(seed, kills=1, drivers=2)) > 0 for seed in range(6 * SOAK)) > SOAK


def forget_them_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """What begins again begins empty."""
    patch.setattr(Restoration, "given_to", lambda self, operator: None)


def give_them_twice(patch: pytest.MonkeyPatch) -> None:
    """What a driver reads of decisions is given again, although the checkpoint has what has become of it."""
    given_to = Restoration.given_to

    def again(self: Restoration, operator: str) -> bytes | None:
        return given_to(Restoration(None, self.decided), operator)

    patch.setattr(Restoration, "given_to", again)


def give_them_late(patch: pytest.MonkeyPatch) -> None:
    """They come behind the first row."""
    touch, late = KeyedState.touch, dict[int, dict[Any, Any]]()

    def loaded(self: KeyedState, states: dict[Any, Any], *_: Any) -> None:
        late[id(self)] = states

    def touched(self: KeyedState, key: Any) -> Any:
        found = touch(self, key)
        self.add({other: state for other, state in late.pop(id(self), {}).items() if other != key})
        return found

    patch.setattr(KeyedState, "load", loaded)
    patch.setattr(KeyedState, "touch", touched)


def give_the_first_ones(patch: pytest.MonkeyPatch) -> None:
    """An operator that was added twice begins again with what it was given first."""
    given_to = Restoration.given_to

    def first(self: Restoration, operator: str) -> bytes | None:
        return given_to(Restoration(self.checkpoint, self.decided[::-1]), operator)

    patch.setattr(Restoration, "given_to", first)


def note_no_empty_ones(patch: pytest.MonkeyPatch) -> None:
    """That an operator begins empty is not decided."""
    given = KnownChanges._given

    def some(self: KnownChanges, change: Any) -> dict[str, bytes]:
        return {name: states for name, states in given(self, change).items() if states}

    patch.setattr(KnownChanges, "_given", some)


@pytest.mark.parametrize(
    ("break_it", "kills", "drivers", "known"),
    [
        (forget_them_at_a_restart, 3, 0, 0), (give_them_twice, 1, 2, 18), (give_them_late, 0, 0, 0),
        (give_the_first_ones, 3, 0, 63), (note_no_empty_ones, 0, 0, 1),
    ],
)  # fmt: skip
def test_a_broken_rule_shows(
    break_it: Callable[[pytest.MonkeyPatch], None], kills: int, drivers: int, known: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A state that is missing, given again, or of another history, shows in the counts of some seed."""
    break_it(monkeypatch)
    assert caught(first_tried(known, 300), lambda seed: judge_given(*play(seed, kills, drivers)), SHOWN_BY) is not None
