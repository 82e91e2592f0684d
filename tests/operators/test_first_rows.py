"""A dedup within a time: which rows pass, which are late, what is remembered, and what is refused."""

from __future__ import annotations

import random
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from soak import caught
from window_setting import TimedRun, shown

import fries_nb as fn
from fries_nb.dataflow import Kind, Operator
from fries_nb.errors import DataflowError, OperatorError, PlanError
from fries_nb.operators.first_rows import PassedTimes
from fries_nb.operators.instance import Instance
from fries_nb.progress.agenda import Agenda
from fries_nb.protocol.messages import WorkerId
from fries_nb.running.state_table import is_windows, rows_of_key, state_table

Row = dict[str, Any]
WITHIN = 5


def first(branches: int = 1, within: float = WITHIN, **more: Any) -> TimedRun:
    """A dedup of rows by ``k``."""
    operator = Operator("D", kind=Kind.DEDUP_WITHIN, function=within, key=("k",), branches=branches, **more)
    return TimedRun(Instance(WorkerId("D", 0), operator, within, False), branches=branches)


def numbered(*rows: tuple[Any, int]) -> list[Row]:
    """Rows of these keys and numbers."""
    return [{"k": key, "n": number} for key, number in rows]


def test_the_time_counts_from_the_row_that_has_passed() -> None:
    """Not from its duplicates; null and NaN are keys like any other."""
    run = first()
    rows = numbered((1.0, 0), (None, 1), (1.0, 2), (nan, 3), (None, 4), (nan, 5), (1.0, 6), (1.0, 7))
    assert [row["n"] for row in shown(run.frame(rows, [0, 0, 5, 5, 6, 6, 6, 11]))] == [0, 1, 3, 4, 6]
    assert [row["n"] for row in shown(run.frame(numbered((1.0, 8)), [12]))] == [8]


def test_no_memory_is_left_of_a_silent_key() -> None:
    """And of a busy one only as long as it counts."""
    run = first()
    run.frame(numbered((1, 0), (2, 0)), [0, 0])
    assert run.fire((0, 5)) == []
    assert set(run.instance.state.live) == {1, 2}
    run.frame(numbered((1, 1)), [6])
    assert run.fire((0, 6)) == []
    assert dict(run.instance.state.live) == {1: {6: 11}}
    assert run.fire() == []
    assert (dict(run.instance.state.live), len(run.agenda), len(run.counts)) == ({}, 0, 0)


def test_a_late_row_is_not_guessed_at() -> None:
    """What is remembered may say that it is a duplicate; otherwise it is late, and an error without a place for it."""
    run = first(branches=2)
    run.frame(numbered((1, 0), (2, 1)), [0, 4])
    run.fire((0, 8))
    found = run.frame(numbered((1, 2), (2, 3), (1, 4)), [3, 3, 9], stamp=(0, 8))
    assert ([row["n"] for row in shown(found)], [row["n"] for row in shown(found, 1)]) == ([4], [2])
    run = first()
    run.frame(numbered((1, 0)), [0])
    run.fire((0, 8))
    with pytest.raises(OperatorError, match="its time is earlier than all rows that can still be counted; declare whe"):
        run.frame(numbered((1, 2)), [3], stamp=(0, 8))


def play_late(seed: int) -> None:
    """Rows that pass are apart, others are near one of them, or late and undecided, in whichever frames they come."""
    chance, run, passed_by, number = random.Random(seed), first(branches=2), 0, 0
    given, passed, late = dict[int, tuple[int, int]](), list[int](), list[int]()
    for _ in range(40):
        times = [passed_by + chance.randrange(-8, 12) for _ in range(chance.choice((1, 1, 3)))]
        rows = numbered(*((chance.randrange(2), number + place) for place in range(len(times))))
        given |= {row["n"]: (row["k"], time) for row, time in zip(rows, times, strict=True)}
        found = run.frame(rows, times, stamp=(0, max(passed_by, min(times))))
        passed += [row["n"] for row in shown(found)]
        late += [row["n"] for row in shown(found, 1)]
        assert all(given[one][1] < passed_by for one in shown_numbers(found, 1))
        number += len(rows)
        passed_by += chance.choice((0, 0, 1, 4))
        run.fire((0, passed_by))

    def near(one: int) -> list[int]:
        key, time = given[one]
        return [other for other in passed if given[other][0] == key and abs(given[other][1] - time) <= WITHIN]

    assert all(near(one) == [one] for one in passed)
    assert all(near(one) for one in given.keys() - {*passed, *late})
    assert late


def test_rows_that_pass_are_apart_and_others_near_one_or_late() -> None:
    """Whatever comes late."""
    for seed in range(40):
        play_late(seed)


def test_a_late_row_that_is_guessed_at_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed breaks a promise without the rule."""
    monkeypatch.setattr(Agenda, "may_call", lambda agenda, t, key: agenda.stamp[1] <= t + WITHIN)
    assert caught(range(10), play_late) is not None


def shown_numbers(found: Any, branch: int) -> list[int]:
    """The numbers of the rows of a branch."""
    return [row["n"] for row in shown(found, branch)]


def test_timestamps_are_compared_in_seconds() -> None:
    """Exactly, to the nanosecond."""
    run = first(within=2)
    times = [0, 2_000_000_000, 2_000_000_001]
    found = run.frame(numbered((1, 0), (1, 1), (1, 2)), times, kind=pa.timestamp("ns"))
    assert [row["n"] for row in shown(found)] == [0, 2]


def test_its_state_is_shown_as_spans() -> None:
    """For each row that has passed the time, and the last one for which it counts."""
    value = PassedTimes({3: 8, 20: 25})
    assert is_windows(value)
    table = state_table(rows_of_key(7, value, 1, 0, lambda state: 10, str), ["k"])
    assert table[["k", "_start", "_end"]].values.tolist() == [[7, "3", "8"], [7, "20", "25"]]


@pytest.mark.parametrize("within", [0, -1, nan, inf, True, "3600"])
def test_within_is_a_duration(within: Any) -> None:
    """Not none, negative, endless, a truth value or text."""
    source = fn.Dataflow("firsts").source("S", fn.rate(1), time="at")
    with pytest.raises(DataflowError, match=r"dedup 'D' has within=.*; expected a number above 0, in seconds or, if"):
        source.dedup("D", "k", within=within)


def test_where_a_dedup_has_no_times_or_no_place_for_late_rows_it_is_refused() -> None:
    """In a sentence, by the call that declares it."""
    flow = fn.Dataflow("firsts")
    source, late = flow.source("S", fn.rate(1), time="at"), flow.source("L", fn.rate(1), time="at", late=3)
    with pytest.raises(DataflowError, match=r"'D' has the source 'U' above it, whose rows have no time; expected sou"):
        flow.source("U", fn.rate(1)).dedup("D", "k", within=1)
    with pytest.raises(DataflowError, match=r"'D' has no place for rows that come late, and source 'L' has late=3"):
        late.dedup("D", "k", within=1)
    with pytest.raises(DataflowError, match=r"dedup 'D' has late=.* whatever their times; expected within= with it"):
        source.dedup("D", "k", late=fn.memory())
    with pytest.raises(DataflowError, match=r"has late=.*3"):
        late.dedup("D", "k", within=1, late=3)
    with pytest.raises(DataflowError, match=r"dedup 'D' of .* has within=1, and rows of a loop come back at their"):
        source.iterate("I", lambda inside: (inside.dedup("D", "k", within=1),) * 2)
    late.dedup("D", "k", within=1, late=fn.memory()).sink("out", fn.memory())
    graph = flow.graph()
    assert (graph.operator("D").branches, "D.late" in graph) == (2, True)
    with pytest.raises(PlanError, match=r"'D' .dedup_within. runs no function"):
        fn.dataflow.check_updates(graph, {"D": fn.Update(dict)})
