"""Windows of random rows in random order against their definition, and what is wrong with windows is seen by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from window_setting import TimedRun, shown, window

from fries_nb.dataflow import windowing as windowing_module
from fries_nb.dataflow.windowing import Windowing
from fries_nb.operators import window_steps
from fries_nb.progress.agenda import Agenda
from fries_nb.progress.times import Antichain

SEEDS = range(60)
Result = tuple[str, int, int, int]
"""``first`` or ``late``, key, end and sum."""


class Definition:
    """Windows by their definition: all rows are kept, and each window looks at all of them."""

    def __init__(self, size: int, every: int, lateness: int) -> None:
        self.size, self.every, self.lateness = size, every, lateness
        self.rows: list[tuple[int, int, int, int]] = []  # key, time, n, and the frontier when it came
        self.late: list[int] = []

    def ends(self, t: int) -> list[int]:
        """The ends of the windows that a time is in."""
        return [end for end in range(t + 1, t + self.size + 1) if (end - self.size) % self.every == 0]

    def add(self, key: int, t: int, n: int, passed: int) -> None:
        """A row comes when no row before ``passed`` can be on time any more."""
        if all(end - 1 + self.lateness < passed for end in self.ends(t)):
            self.late.append(n)
        else:
            self.rows.append((key, t, n, passed))

    def results(self) -> Iterator[Result]:
        """All results, when time has passed: the first ones and the corrections."""
        open_ends = {(key, end) for key, t, _, _ in self.rows for end in self.ends(t)}
        for key, end in sorted(open_ends):
            counted = [(n, at) for one, t, n, at in self.rows if one == key and end - self.size <= t < end]
            on_time = [n for n, at in counted if end - 1 >= at]
            afterwards = [n for n, at in counted if at > end - 1 >= at - self.lateness]
            if on_time:
                yield "first", key, end, sum(on_time)
            if afterwards:
                yield "correction", key, end, sum(on_time) + sum(afterwards)


def play(seed: int, run_of: Callable[..., TimedRun] = TimedRun) -> int:
    """Rows in random order, some of them late, with a frontier that goes on; returns the number of results."""
    random = Random(seed)
    every = random.choice([1, 5, 20])
    size = random.choice([every, every, 3 * every, 2 * every + 1])  # the last: ends are no multiples
    lateness = random.choice([0, 0, 7, 20])
    model, run = Definition(size, every, lateness), run_of(window(Windowing(size, every), lateness=lateness))
    found: list[Result] = []
    late: list[int] = []
    passed = -30
    for number in range(40):
        ahead, back = [0, 3, 11, 40], [0, 0, 0, 15, 60]
        times = [passed + random.choice(ahead) - random.choice(back) for _ in range(random.randint(1, 5))]
        rows = [{"k": random.randint(0, 2), "n": 10 * number + place} for place in range(len(times))]
        for row, t in zip(rows, times, strict=True):
            model.add(row["k"], t, row["n"], passed)
        late += [row["n"] for row in shown(run.frame(rows, times, stamp=(0, passed)), 1)]
        passed += random.choice([0, 0, 1, 9, 30])
        found += _results(run, run.fire((0, passed), limit=random.randint(1, 3)), lateness, passed)
    found += _results(run, run.fire(), lateness, None)
    assert sorted(found) == sorted(model.results())
    assert late == model.late
    assert (run.instance.state.live, len(run.counts), len(run.agenda)) == ({}, 0, 0)
    return len(found)


def _results(run: TimedRun, emitted: list[Any], lateness: int, passed: int | None) -> list[Result]:
    results: list[Result] = []
    for _, row in emitted:
        stamp, end = row["_fries_time"], row["end"]
        assert stamp in (end - 1, end - 1 + lateness)
        assert passed is None or stamp < passed
        results.append(("first" if stamp == end - 1 else "correction", row["k"], end, row["total"]))
    return results


@pytest.mark.parametrize("seed", SEEDS)
def test_windows_are_as_defined(seed: int) -> None:
    """Each row is in the windows that its time is in; each result comes once, and corrections if late rows came."""
    assert play(seed) > 10


def _off_by_one(t: int, size: int, every: int) -> range:
    return windowing_module.ends_of(t - 1, size, every)


def _one_window_only(t: int, size: int, every: int) -> range:
    return windowing_module.ends_of(t, size, every)[:1]


class _Early(Agenda):
    """Fires when the frontier has reached the last moment of a window."""

    def advance(self, frontier: Antichain) -> None:
        super().advance(Antichain.of([(time[0], time[1] + 1) for time in frontier]))


class _OpensAgain(Agenda):
    """Makes entries for what was fired."""

    def may_call(self, t: int, key: Any) -> bool:
        return True

    def call(self, t: int, key: Any) -> None:
        super().call(max(t, self.stamp[1]), key)


def _with_agenda(agenda: type[Agenda]) -> Callable[..., TimedRun]:
    def run_of(instance: Any) -> TimedRun:
        instance.agenda = agenda("W", instance.agenda.changes)
        return TimedRun(instance)

    return run_of


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("ends_of", _off_by_one),
        ("ends_of", _one_window_only),
        ("retire_step", lambda instance: lambda row: None),
        ("agenda", _Early),
        ("agenda", _OpensAgain),
    ],
)
def test_the_definition_sees(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    """A mutant of the windows fails on some seed."""
    run_of: Callable[..., TimedRun] = TimedRun
    if name == "agenda":
        run_of = _with_agenda(change)
    elif name == "retire_step":
        from dataclasses import replace

        from fries_nb.dataflow import Kind
        from fries_nb.operators import kinds

        monkeypatch.setitem(kinds.CALLS, Kind.WINDOW, replace(kinds.CALLS[Kind.WINDOW], retire=change))
    else:
        monkeypatch.setattr(window_steps, name, change)
    with pytest.raises(Exception):  # noqa: B017 (wrong rows, or a step that cannot go on)
        sum(play(seed, run_of) for seed in SEEDS)
