"""Sessions at work: random rows in random order against their definition, and what is wrong with them is seen by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from window_setting import Row, TimedRun, shown, window

from fries_nb.dataflow import Kind, memory
from fries_nb.dataflow.windowing import SessionWindowing, session, sliding, tumbling
from fries_nb.errors import OperatorError
from fries_nb.operators import kinds, window_steps
from fries_nb.operators.instance import Instance, Ready

SEEDS = range(150)


class Rows:
    """Keeps what came, in the order of the parts that were merged."""

    def __init__(self, version: int = 0) -> None:
        self.version = version

    def initial_state(self) -> list[Any]:
        return []

    def process(self, row: Row, state: list[Any]) -> None:
        state.append((row["n"], self.version))

    def merge(self, state: list[Any], other: list[Any]) -> None:
        state += other

    def close(self, key: Any, time: Any, state: list[Any]) -> Row:
        return {"k": key, "end": time, "rows": state}


class Parts(Rows):
    """Returns what it has merged."""

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:  # type: ignore[override]
        return [*state, *other]


def run_of(windowing: Any, function: Any = None, **more: Any) -> TimedRun:
    """A window that is not running yet."""
    return TimedRun(window(windowing, function or Rows(), **more))


def change(run: TimedRun, windowing: Any, version: int, function: Any = None) -> None:
    """Switch to another function and windows, as a hot replacement does."""
    name = f"u{len(run.instance.applied)}"
    new = replace(run.instance.function, function=function or Rows(version), windowing=windowing)
    run.instance.prepared[name] = Ready(new, None)
    assert run.instance.switch(name)
    run.executor = run.compiled()


def found(results: list[Any]) -> list[tuple[Any, ...]]:
    """Key, end and the rows' numbers of each result, and those in order."""
    return [(row["k"], row["end"], sorted(n for n, _ in row["rows"])) for row in shown(results)]


def frame(run: TimedRun, times: list[int], first: int = 0, key: int = 1, stamp: Any = None) -> list[Any]:
    """Rows of one key at these times; each has the next number."""
    return run.frame([{"k": key, "n": first + n} for n in range(len(times))], times, stamp)


def test_a_session_ends_a_gap_after_its_last_row() -> None:
    """A row at exactly a gap is in it; it is closed when none can come, at its end, and nothing is left."""
    run = run_of(session(10))
    assert frame(run, [0, 10, 21]) == []
    assert run.fire((0, 20)) == []
    results = run.fire((0, 21))
    assert found(results) == [(1, 20, [0, 1])]
    assert [row["_fries_time"] for _, row in results] == [20]
    assert found(run.fire()) == [(1, 31, [2])]
    assert (len(run.counts), run.instance.state.live, len(run.agenda)) == (0, {}, 0)


@pytest.mark.parametrize("function", [Rows(), Parts()])
def test_a_row_between_two_sessions_makes_them_one(function: Any) -> None:
    """Their states are merged, the earlier one first, whether ``merge`` returns the state or changes it."""
    run = run_of(session(10), function)
    frame(run, [30, 10, -5, 20])
    (row,) = [row for row in shown(run.fire()) if row["end"] == 40]
    assert row["rows"] == [[1, 0], [0, 0], [3, 0]]
    assert run.instance.state.live == {}


def test_sessions_of_the_longest_end_at_its_multiples() -> None:
    """So none is longer, in whatever order rows come."""
    for times in ([25, 29, 30, 35, 58, 61], [61, 35, 30, 58, 25, 29]):
        run = run_of(session(10, longest=30))
        frame(run, times)
        ends = {tuple(times[n] for n in numbers): end for _, end, numbers in found(run.fire())}
        assert {tuple(sorted(some)): end for some, end in ends.items()} == {
            (25, 29): 29, (30, 35): 45, (58,): 59, (61,): 71,
        }  # fmt: skip


def test_a_late_row_extends_an_open_session_or_is_late() -> None:
    """It is late if the session that it would make, or be in, has been closed."""
    run = run_of(session(10))
    frame(run, [30])
    run.fire((0, 35))
    assert frame(run, [22], first=1, stamp=(0, 35)) == []  # it is in the open one
    assert shown(frame(run, [19], first=2, stamp=(0, 35)), 1) == []  # so is this one now
    assert shown(frame(run, [5], first=3, stamp=(0, 35)), 1) == [{"k": 1, "n": 3}]
    assert found(run.fire()) == [(1, 40, [0, 1, 2])]


def test_a_closed_session_is_corrected_and_may_end_later() -> None:
    """With a lateness: once, unless rows extend it to a time that has not passed, when it is closed as one."""
    run = run_of(session(10), lateness=30)
    frame(run, [0])
    assert found(run.fire((0, 15))) == [(1, 10, [0])]
    frame(run, [2], first=1, stamp=(0, 15))  # ends at 12, which has passed
    assert run.fire((0, 20)) == []
    frame(run, [11], first=2, stamp=(0, 20))  # ends at 21, which has not
    assert found(run.fire((0, 22))) == [(1, 21, [0, 1, 2])]
    frame(run, [9], first=3, stamp=(0, 22))
    corrected = run.fire((0, 52))
    assert found(corrected) == [(1, 21, [0, 1, 2, 3])]
    assert [row["_fries_time"] for _, row in corrected] == [51]
    assert shown(frame(run, [9], first=4, stamp=(0, 52)), 1) == [{"k": 1, "n": 4}]
    assert (run.fire(), len(run.counts), run.instance.state.live, len(run.agenda)) == ([], 0, {}, 0)


def test_rows_bring_the_gap_under_which_they_come() -> None:
    """A change to another gap leaves the end of what is open; later rows add their own."""
    run = run_of(session(20))
    frame(run, [0])  # to 20
    change(run, session(5), 1)
    frame(run, [4], first=1)  # in it, and ends before it
    assert found(run.fire((0, 20))) == []
    frame(run, [19], first=2, stamp=(0, 19))  # in it, and extends it to 24
    assert found(run.fire((0, 25))) == [(1, 24, [0, 1, 2])]
    frame(run, [30, 36], first=3)
    assert found(run.fire()) == [(1, 35, [3]), (1, 41, [4])]


def test_windows_that_are_open_take_rows_before_sessions_do_and_the_other_way_round() -> None:
    """So each row is counted once."""
    run = run_of(tumbling(10))
    frame(run, [5])
    change(run, session(10), 1)
    frame(run, [9, 10, 18], first=1)
    assert found(run.fire((0, 15))) == [(1, 10, [0, 1])]
    change(run, tumbling(10), 2)
    frame(run, [27, 28, 29, 33], first=4)  # the session ends at 28, as its rows have said
    assert sorted(found(run.fire())) == [(1, 28, [2, 3, 4, 5]), (1, 30, [6]), (1, 40, [7])]
    assert run.instance.state.live == {}


def test_a_merge_that_fails_or_returns_no_state_fails_on_the_tuple() -> None:
    """In a sentence that names the operator."""
    for merge, words in (
        (lambda self, state, other: 1 // 0, "W failed on a tuple: ZeroDivisionError"),
        (lambda self, state, other: 7, r"W: its merge\(\) returned 7 \(int\), which cannot change in place"),
    ):
        run = run_of(session(10), type("Wrong", (Rows,), {"merge": merge})())
        with pytest.raises(OperatorError, match=words):
            frame(run, [0, 20, 10])


def test_a_row_whose_merge_fails_leaves_the_sessions_as_they_were() -> None:
    """It is a dead letter; the states, of which one was changed already, are those of before."""

    def fails(self: Any, state: list[Any], other: list[Any]) -> None:
        state.append("half")
        raise ValueError("no")

    made = window(session(10), type("Wrong", (Rows,), {"merge": fails})(), on_error=memory())
    made.has_dead_letters = True
    run = TimedRun(made)
    frame(run, [0, 20, 10])
    assert [letter.column("error").to_pylist() for letter in made.take_letters()] == [
        ["W failed on a tuple: ValueError: no"]
    ]
    assert found(run.fire()) == [(1, 10, [0]), (1, 30, [1])]
    assert (len(run.counts), made.state.live) == (0, {})


def test_rows_leave_a_session_early_with_the_state_so_far() -> None:
    """That of both sessions behind a row that has joined them."""
    process = lambda self, row, state: Rows.process(self, row, state) or {"n": row["n"], "so_far": len(state)}  # noqa: E731
    run = run_of(session(10), type("Early", (Rows,), {"process": process})(), early=True)
    assert [row["so_far"] for row in shown(frame(run, [0, 20, 10, 11]))] == [1, 1, 3, 4]
    assert found(run.fire()) == [(1, 30, [0, 1, 2, 3])]


def test_sessions_of_different_rounds_are_apart() -> None:
    """In a loop: a round is closed when no row of it can come."""
    run = run_of(session(10))
    frame(run, [0, 5], stamp=(0, 0, 1))
    frame(run, [3, 12], first=2, stamp=(0, 3, 2))
    assert found(run.fire((0, 16, 1), (0, 3, 2))) == [(1, 15, [0, 1])]
    assert found(run.fire()) == [(1, 22, [2, 3])]


# ---- against the definition


def defined(rows: list[tuple[int, int, int]], gap: int, longest: int) -> list[tuple[int, int, list[int]]]:
    """Key, end and rows of each session, if no row is late: rows by time, cut where a silence is too long."""
    results = []
    for key in sorted({key for key, _, _ in rows}):
        ordered = sorted((t, n) for one, t, n in rows if one == key)
        cuts = [
            place for place, ((a, _), (b, _)) in enumerate(pairwise(ordered), 1)
            if b - a > gap or (longest and a // longest != b // longest)
        ]  # fmt: skip
        for start, stop in pairwise([0, *cuts, len(ordered)]):
            last = ordered[stop - 1][0]
            end = min(last + gap, (last // longest + 1) * longest - 1) if longest else last + gap
            results.append((key, end, sorted(n for _, n in ordered[start:stop])))
    return sorted(results)


def play(seed: int, changes: bool = False) -> int:
    """Rows of a source that is out of order, none of them late, with a frontier that goes on; returns what came out."""
    random = Random(seed)
    gap, longest = random.choice([1, 5, 12]), random.choice([0, 0, 12, 40])
    run = run_of(session(gap, longest or None), audit=random.random() < 0.3)
    rows: list[tuple[int, int, int]] = []
    results: list[Any] = []
    passed = random.choice([-60, 0])
    for _ in range(40):
        times = [passed + random.choice([0, 1, 3, 11, 25, 60]) for _ in range(random.randint(1, 5))]
        keys = [random.randint(0, 2) for _ in times]
        numbers = range(len(rows), len(rows) + len(times))
        rows += zip(keys, times, numbers, strict=True)
        run.frame([{"k": k, "n": n} for k, n in zip(keys, numbers, strict=True)], times, stamp=(0, passed))
        passed += random.choice([0, 0, 1, 9, 30])
        fired = run.fire((0, passed), limit=random.randint(1, 3))
        assert all(row["_fries_time"] == row["end"] < passed for _, row in fired)
        results += found(fired)
    results += found(run.fire())
    assert sorted(results) == defined(rows, gap, longest)
    assert (run.instance.state.live, len(run.counts), len(run.agenda)) == ({}, 0, 0)
    return len(results)


def play_late(seed: int) -> int:
    """The same with late rows, a lateness, other windows: each row is in a session that was closed, or is late."""
    random = Random(seed)
    lateness = random.choice([0, 0, 7, 40])
    run = run_of(session(random.choice([1, 5, 12])), lateness=lateness)
    passed, number, late = 0, 0, list[int]()
    last: dict[int, tuple[int, int]] = {}  # row to the last result that has it
    count = 0
    sizes: dict[int, set[int]] = {}
    for turn in range(41):
        if turn < 40:
            times = [passed + random.choice([0, 3, 11, 40]) - random.choice([0, 0, 0, 9, 60]) for _ in range(3)]
            rows = [{"k": random.randint(0, 1), "n": number + place} for place in range(len(times))]
            late += [row["n"] for row in shown(run.frame(rows, times, stamp=(0, passed)), 1)]
            number += len(times)
            passed += random.choice([0, 0, 1, 9, 30])
        if turn in (10, 25) and seed % 2:
            new = random.choice([session(random.choice([2, 20])), tumbling(9), sliding(8, 4)])
            change(run, new, turn)
        for _, row in run.fire(*([(0, passed)] if turn < 40 else []), limit=random.randint(1, 3)):
            count += 1
            for n, _ in row["rows"]:
                last[n] = (row["k"], row["end"])
                sizes.setdefault(n, set()).add(row["end"])
            assert len({n for n, _ in row["rows"]}) == len(row["rows"]), "a row is in a session twice"
    assert sorted({*last, *late}) == list(range(number))
    assert not {*last} & {*late}
    if not lateness and not isinstance(run.instance.function.windowing, type(sliding(8, 4))):
        assert all(len(ends) == 1 for ends in sizes.values()) or seed % 2, "a row is in two sessions"
    assert (run.instance.state.live, len(run.counts), len(run.agenda)) == ({}, 0, 0)
    return count


@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_are_as_defined(seed: int) -> None:
    """Each session has the rows between two silences, and comes once; rows that are late are in one, or leave."""
    assert play(seed) > 10
    assert play_late(seed) > 5


def _as_strict(self: SessionWindowing, t: int, gap: int, longest: int) -> tuple[int, int]:
    return t, t + gap


def _uncut(self: SessionWindowing, t: int, gap: int, longest: int) -> tuple[int, int]:
    return t, t + gap + 1


def _forgets_other(instance: Instance) -> Any:
    merged = MERGER(instance)
    return lambda key, windows, met, alone, lateness: merged(key, windows, met[:1], alone, lateness)


def _merges_twice(instance: Instance) -> Any:
    merged = MERGER(instance)

    def twice(key: Any, windows: Any, met: Any, alone: Any, lateness: int) -> Any:
        kept = dict(windows)
        window = merged(key, windows, met, alone, lateness)
        windows.update({span: one for span, one in kept.items() if span in met[1:] and span not in windows})
        return window

    return twice


def _no_new_entry(instance: Instance) -> Any:
    return RETIRE(replace_windowing(instance))


def replace_windowing(instance: Instance) -> Instance:
    """The same, as one that has no sessions."""
    other = Instance(instance.worker, instance.operator, replace(instance.function, windowing=tumbling(5)), False)
    other.state, other.agenda = instance.state, instance.agenda
    return other


MERGER, RETIRE = window_steps._merger, window_steps.retire_step


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("extent", _as_strict),
        ("extent", _uncut),
        ("_merger", _forgets_other),
        ("_merger", _merges_twice),
        ("_start_of", lambda span: span[0]),
        ("retire", _no_new_entry),
    ],
)
def test_the_definition_sees(monkeypatch: pytest.MonkeyPatch, name: str, mutant: Callable[..., Any]) -> None:
    """A mutant of the sessions fails on some seed."""
    if name == "extent":
        monkeypatch.setattr(SessionWindowing, name, mutant)
    elif name == "retire":
        monkeypatch.setitem(kinds.CALLS, Kind.WINDOW, replace(kinds.CALLS[Kind.WINDOW], retire=mutant))
    else:
        monkeypatch.setattr(window_steps, name, mutant)
    with pytest.raises(Exception):  # noqa: B017 (wrong rows, or a step that cannot go on)
        sum(play(seed) for seed in SEEDS)
