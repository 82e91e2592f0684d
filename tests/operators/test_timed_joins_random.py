"""Joins of two streams of random rows in random order against their definition, and mutants, each of which it sees.

Each side has a frontier of its own, with rows that are late for it, and time has passed where both have come. Bounds
change in between; which row came under which is known here, so all that leaves is known exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from timed_joins import spans
from window_setting import TimedRun, join_of, shown

from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.join_bounds import Bounds, Latest, StreamJoin, Within
from fries_nb.dataflow.windowing import Windowing
from fries_nb.operators import timed_joins
from fries_nb.operators.instance import Instance
from fries_nb.operators.timed_joins import OpenSide, PairedColumns
from fries_nb.progress.agenda import Agenda
from fries_nb.progress.times import LATEST, Antichain

SEEDS = range(120)
Found = tuple[int | None, int | None, int | None, int]
"""Key, number of the left row and of the right one, time."""


@dataclass
class Came:
    """A row that was on time, with the spans of the bounds under which it came."""

    is_left: bool
    k: int | None
    t: int
    n: int
    spans: list[tuple[int, int]]
    met: set[tuple[int, int]] = field(default_factory=set)


class Definition:
    """A join by its definition: all rows are kept, and all are looked at."""

    def __init__(self, is_latest: bool, how: str) -> None:
        self.is_latest, self.how = is_latest, how
        self.rows: list[Came] = []
        self.late: Counter[tuple[bool, int]] = Counter()

    def add(self, row: Came, stamp: int) -> None:
        """A row comes in a frame of this time."""
        if row.t < stamp:
            self.late[row.is_left, row.n] += 1
        else:
            self.rows.append(row)

    def results(self) -> Iterator[Found]:
        """All that leaves, when time has passed."""
        yield from self._latest() if self.is_latest else self._pairs()
        for row in self.rows:
            if self.how in ("full", "left" if row.is_left else "right"):
                for span in row.spans:
                    if span not in row.met:
                        yield row.k, row.n if row.is_left else None, None if row.is_left else row.n, span[1]

    def _pairs(self) -> Iterator[Found]:
        for number, second in enumerate(self.rows):
            for first in self.rows[:number]:
                if first.is_left is second.is_left or first.k != second.k or first.k is None:
                    continue
                for span in first.spans:
                    if span[0] <= second.t <= span[1]:
                        first.met.add(span)
                        inside = [own for own in second.spans if own[0] <= first.t <= own[1]]
                        second.met.update(inside or second.spans)
                        left, right = (first, second) if first.is_left else (second, first)
                        yield first.k, left.n, right.n, max(first.t, second.t)

    def _latest(self) -> Iterator[Found]:
        for left in (row for row in self.rows if row.is_left and row.k is not None):
            found = self._newest(left.k, left.t)
            if found is not None and left.spans[0][0] <= found.t and left.t <= found.spans[0][1]:
                left.met.update(left.spans)
                yield left.k, left.n, found.n, left.t

    def _newest(self, k: int | None, t: int) -> Came | None:
        rights = [row for row in self.rows if not row.is_left and row.k == k and row.t <= t]
        return max(rights, key=lambda row: (row.t, row.n), default=None)

    def open(self, passed: int) -> int:
        """The number of rows that have to be kept when no row before ``passed`` can come, once for each span."""
        sides = {"full": (True, False), "left": (True,), "right": (False,)}.get(self.how, ())
        kept = [row for row in self.rows if row.k is not None or row.is_left in sides]
        if not self.is_latest:
            return sum(span[1] >= passed for row in kept for span in row.spans)
        count = sum(row.is_left and row.t >= passed for row in kept)
        rights = [row for row in kept if not row.is_left]
        count += len({(row.k, row.t) for row in rights if row.t >= passed})
        newest = [self._newest(k, passed - 1) for k in {row.k for row in rights}]
        return count + sum(one is not None and one.spans[0][1] >= passed for one in newest)


def play(seed: int, run_of: Callable[[Instance], TimedRun] = TimedRun) -> int:
    """Rows in random order, some of them late, with frontiers that go on; returns the number of rows that left."""
    random = Random(seed)
    bounds = _bounds(random, random.choice((Within, Within, Latest, Windowing)))
    is_latest = isinstance(bounds, Latest)
    how = random.choice(("inner", "left") if is_latest else ("inner", "left", "right", "full"))
    model, run = Definition(is_latest, how), run_of(join_of(bounds, how))
    found, late = Counter[Found](), Counter[tuple[bool, int]]()
    passed = {True: -30, False: -30}
    for number in range(40):
        if random.random() < 0.1:
            bounds = _bounds(random, type(bounds))
            run.instance.run_function(replace(run.instance.function, windowing=bounds), f"u{number}")
            run.executor.rebuild()
        is_left = random.random() < 0.5
        stamp = passed[is_left]
        times = [stamp + random.choice((0, 3, 11, 40)) - random.choice((0, 0, 0, 0, 5, 60))
                 for _ in range(random.randint(1, 5))]  # fmt: skip
        rows = [{"k": random.choice((0, 1, 1, 2, None)), "l" if is_left else "r": (10 * number + place) * 700 % 1009}
                for place in range(len(times))]  # fmt: skip
        for row, t in zip(rows, times, strict=True):
            n = row["l" if is_left else "r"]
            model.add(Came(is_left, row["k"], t, n, list(spans(bounds, t, is_left))), stamp)
        emitted = run.frame(rows, times, stamp=(0, stamp), sender="L" if is_left else "R")
        late.update((is_left, row["l" if is_left else "r"]) for row in shown(emitted, 1))
        found.update(_results(emitted, stamp))
        passed[is_left] += random.choice((0, 0, 1, 9, 30))
        before = min(passed.values())
        found.update(_results(run.fire((0, before), limit=random.randint(1, 3)), -(10**9)))
        held = run.instance.state.live.values()
        kept = sum(len(one.left.rows) + len(one.right.rows) for one in held)
        assert kept == model.open(before), f"{kept} rows are kept, expected {model.open(before)}"
    found.update(_results(run.fire(), -(10**9)))
    assert found == Counter(model.results())
    assert late == model.late
    assert (len(run.counts), len(run.agenda)) == (0, 0)
    return found.total()


def _bounds(random: Random, kind: type[Any]) -> Bounds:
    if kind is Within:
        return Within(random.choice((0, 5, 40)), random.choice((0, 5, 40)))
    if kind is Latest:
        return Latest(random.choice((None, 0, 10, 60)))
    every = random.choice((1, 5, 20))
    return Windowing(random.choice((every, every, 3 * every, 2 * every + 1)), every)


def _results(emitted: list[Any], stamp: int) -> Iterator[Found]:
    for branch, row in emitted:
        if branch == 0:
            assert row[TIME] >= stamp, "what leaves is late"
            yield row["k"], row.get("l"), row.get("r"), row[TIME]


@pytest.mark.parametrize("seed", SEEDS)
def test_joins_are_as_defined(seed: int) -> None:
    """Each pair leaves once, rows without partner at their last moment, and no row is kept for longer."""
    assert play(seed) >= 0


def test_the_seeds_have_results() -> None:
    """So that they show something."""
    assert sum(map(play, range(10))) > 500


def _partners(is_partner: Callable[[Any, int], bool]) -> Any:
    return lambda side, t, rounds: [row for row in side.rows if is_partner(row, t)]



def _dropped_early(side: OpenSide, moment: int, rounds: tuple[int, ...]) -> None:
    side.rows = [row for row in side.rows if row.last > moment + 2]


def _unsorted(side: OpenSide, row: Any, add: Any = OpenSide.add) -> None:
    add(side, row)
    side.rows.remove(row)
    side.rows.append(row)


def _first_reach(side: OpenSide, row: Any, add: Any = OpenSide.add) -> None:
    """How far rows reach is that of the first one, although later ones came under other bounds."""
    reach = side.back, side.ahead, side.least
    is_first = not side.rows
    add(side, row)
    if not is_first:
        side.back, side.ahead, side.least = reach


def _earlier_than(side: OpenSide, t: int, rounds: tuple[int, ...]) -> Any:
    return next((row for row in reversed(side.rows) if row.t < t), None)


def _own_time(columns: PairedColumns, index: int, t: int, add: Any = PairedColumns.add) -> int:
    return add(columns, index, columns._origin.times()[index])


class _Early(Agenda):
    """Fires when the frontier has reached the last moment of a row."""

    def advance(self, frontier: Antichain | None) -> None:
        elements = () if frontier is None else frontier.elements
        super().advance(Antichain.of([(time[0], time[1] + 1) for time in elements]))


def _run_early(instance: Instance) -> TimedRun:
    assert instance.agenda is not None
    instance.agenda = _Early("J", instance.agenda.changes)
    return TimedRun(instance)


def _run_never_late(instance: Instance) -> TimedRun:
    run = TimedRun(instance)
    frame = run.frame
    run.frame = lambda rows, times, stamp, **more: frame(rows, times, stamp=(0, -(10**6)), **more)  # type: ignore[method-assign,misc]
    return run


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "the first moment is left out": (OpenSide, "partners", _partners(lambda row, t: row.first < t <= row.last)),
    "the last moment is left out": (OpenSide, "partners", _partners(lambda row, t: row.first <= t < row.last)),
    "bounds are not looked at": (OpenSide, "partners", _partners(lambda row, t: True)),
    "rows stay": (OpenSide, "drop", lambda *of: None),
    "rows go too early": (OpenSide, "drop", _dropped_early),
    "rows are in order of arrival": (OpenSide, "add", _unsorted),
    "all rows reach as far as the first": (OpenSide, "add", _first_reach),
    "a row of the same time is not the latest": (OpenSide, "newest", _earlier_than),
    "older ones are not replaced": (OpenSide, "drop_before", lambda *of: None),
    "any row of one time is the latest": (timed_joins, "_is_greater", lambda *of: False),
    "the tolerance is not looked at": (timed_joins, "_latest", lambda right, row: right.newest(row.t, row.rounds)),
    "pairs have the time of the second row": (PairedColumns, "add", _own_time),
    "nothing leaves alone": (StreamJoin, "keeps", lambda join, is_left: False),
    "all leave alone": (StreamJoin, "keeps", lambda join, is_left: True),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_definition_sees(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A mutant fails on some seed."""
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(Exception):  # noqa: B017 (wrong rows, or a step that cannot go on)
        sum(play(seed) for seed in SEEDS)


@pytest.mark.parametrize("run_of", [_run_early, _run_never_late])
def test_the_definition_sees_wrong_times(run_of: Callable[[Instance], TimedRun]) -> None:
    """An agenda that fires too early, and rows that are never late."""
    with pytest.raises(Exception):  # noqa: B017
        sum(play(seed, run_of) for seed in SEEDS)


def test_nulls_equal_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with a null in the key that met each other would be seen."""
    monkeypatch.setattr(timed_joins, "_has_null", lambda key, single: False)
    with pytest.raises(AssertionError):
        sum(play(seed) for seed in SEEDS)


def test_a_span_ends_with_time_itself() -> None:
    """Bounds that reach beyond the last time there is are cut there."""
    run = TimedRun(join_of(Within(2**62, 2**62), "left"))
    run.frame([{"k": 1, "l": 1}], [2**62 + 5], sender="L")
    ((_, row),) = run.fire()
    assert (row["l"], row[TIME]) == (1, LATEST)
