"""What a change makes of recent rows, beside what is made of them without it.

Each rehearsal tells of some tuples (``worker.side_by_side``), whether the change is made then or not. ``HeardExamples``
keeps what the hosts tell, ``Examples`` is what users get: a table with a row for each row that an operator gives on one
side or the other.

>>> from fries_nb.worker.side_by_side import ComparedTuple, Made
>>> tuples = [ComparedTuple("FM", 0, {"n": 1}, Made(({"n": 1, "p": 0.5},)), Made(({"n": 1, "p": 0.25},)))]
>>> tuples += [ComparedTuple("FM", 1, {"n": 2}, Made(({"n": 2, "p": 0.75},)), Made())]
>>> found = Examples("u1", tuple(example for one in tuples for example in examples_of(one)))
>>> print(found.table.to_string(index=False))
 n  p (before)  p (after)  _result _differs _error _operator  _worker
 1        0.50       0.25  differs     (p,)               FM        0
 2        0.75        NaN  dropped       ()               FM        1
>>> found.words
'FM: 1 row differs, 1 row is dropped'
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from statistics import median
from typing import Any

from fries_nb.controller.events import Outcome
from fries_nb.dataflow.masking import masked, masked_text
from fries_nb.displays import Displayed
from fries_nb.errors import PlanError, RunError, exception_text
from fries_nb.protocol.messages import EXAMPLES, MOST_EXAMPLES, Compared
from fries_nb.telemetry.metrics import MISSING, series
from fries_nb.worker.side_by_side import ComparedTuple

CHANGES_HEARD = 64
"""Number of changes, the newest ones, whose examples are kept: of each at most ``side_by_side.LARGEST`` bytes."""
_LOOK_S = 0.25
RESULTS: Mapping[str, tuple[str, str]] = {
    "same": ("row is the same", "rows are the same"),
    "differs": ("row differs", "rows differ"),
    "dropped": ("row is dropped", "rows are dropped"),
    "added": ("row is added", "rows are added"),
    "failed": ("row fails", "rows fail"),
    "mended": ("row fails no longer", "rows fail no longer"),
    "fails as before": ("row fails as before", "rows fail as before"),
    "dropped as before": ("row is dropped as before", "rows are dropped as before"),
}
"""What may become of a row, and how that is said of one and of several."""


@dataclass(frozen=True)
class Example:
    """A row before and after a change.

    Attributes:
        operator: the operator that gives it.
        worker: index of the worker that has taken the tuple from which it comes.
        came: that tuple, as it came to the first operator that changes; empty for a row that the end of time brings.
        before: the row that the operator gives without the change; ``None`` if it gives none.
        after: the one that it gives with it.
        result: one of ``RESULTS``.
        differs: the columns in which they differ.
        error: why the operator fails, with the change or else without it, in a sentence; empty if it does not.
        lines: file and line of each of the user's calls that led to this failure, the innermost last.
    """

    operator: str
    worker: int
    came: Mapping[str, Any]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    result: str
    differs: tuple[str, ...] = ()
    error: str = ""
    lines: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Examples(Displayed):
    """Recent rows before and after a change; a notebook shows them as a table in which marks say what differs.

    Attributes:
        change: id of the change; empty if it was only tried.
        rows: a row for each pair of rows, in the order of the dataflow, the newest tuples first.
        refusal: why the change would not be made, or was not, in one sentence; empty if there is no reason.
        left_out: what is missing of what was asked for, in words; empty if nothing is.
        hide: the columns that are masked in what is shown; ``rows`` and ``table`` have their values.
        took_ms: operator to the milliseconds that it takes for a row without and with the change, as the median of
            those on which it fails on neither side; without those that have none.
    """

    change: str
    rows: tuple[Example, ...]
    refusal: str = ""
    left_out: str = ""
    hide: frozenset[str] = frozenset()
    took_ms: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def shown(self) -> Examples:
        """The same as it is shown, with masks in place of what is hidden."""
        return replace(self, rows=tuple(_masked(one, self.hide) for one in self.rows)) if self.hide else self

    @property
    def words(self) -> str:
        """How many rows are the same, differ, are dropped, added or fail, at each operator; and what is missing."""
        counts = {name: Counter[str]() for name in dict.fromkeys(one.operator for one in self.rows)}
        for one in self.rows:
            counts[one.operator][one.result] += 1
        told = [f"{name}: {_counted(count)}" for name, count in counts.items()]
        return "; ".join([*told, *filter(None, (self.left_out,))]) or "no row"

    @property
    def table(self) -> Any:
        """A pandas DataFrame: the columns of the row that came, ``p (before)`` and ``p (after)`` of what is given.

        Columns that come and go unchanged in all rows are there once. ``_result`` is what becomes of the row,
        ``_differs`` the names of the columns that differ, ``_error`` why it fails.
        """
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        came = list(dict.fromkeys(name for one in self.rows for name in one.came))
        columns = {name: series([one.came.get(name, MISSING) for one in self.rows]) for name in came}
        for name in self.changed:
            for side in ("before", "after"):
                given = [getattr(one, side) or {} for one in self.rows]
                columns[_free(f"{name} ({side})", columns)] = series([row.get(name, MISSING) for row in given])
        for about in ("result", "differs", "error", "operator", "worker"):
            columns[f"_{about}"] = series([getattr(one, about) for one in self.rows])
        return DataFrame(columns)

    @property
    def changed(self) -> tuple[str, ...]:
        """The columns that are given and not merely passed on, in order."""
        names = dict.fromkeys(name for one in self.rows for side in (one.before, one.after) for name in side or ())
        return tuple(name for name in names if not all(_passes_on(one, name) for one in self.rows))

    def __repr__(self) -> str:
        refused = f"\n\nRefused: {self.refusal}" if self.refusal else ""
        shown = self.shown.table
        return f"{shown.to_string(index=False)}\n\n{self.words}{refused}" if self.rows else self.words + refused


def _masked(one: Example, hide: Collection[str]) -> Example:
    """A row as it is shown; what differs is known before."""
    error = one.error
    for row in (one.came, one.before, one.after):
        error = masked_text(error, row, hide) if row is not None else error
    came, before, after = (masked(row, hide) for row in (one.came, one.before, one.after))
    return replace(one, came=came, before=before, after=after, error=error)


def _counted(count: Counter[str]) -> str:
    """Numbers of rows by what becomes of them, in words."""
    found = [(number, words) for result, words in RESULTS.items() if (number := count[result])]
    return ", ".join(f"{number:,} {words[number > 1]}" for number, words in found)


def _passes_on(example: Example, name: str) -> bool:
    """Whether a column is as it came, on each side that gives a row."""
    sides = [side for side in (example.before, example.after) if side is not None]
    return all(is_same(side.get(name, MISSING), example.came.get(name, MISSING)) for side in sides)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    """A name that no column has."""
    while name in taken:
        name = f"{name}'"
    return name


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same: NaN is, a number of another type if it is equal, and nested values as well.

    >>> is_same([1, {"x": float("nan")}], [1.0, {"x": float("nan")}]), is_same(True, 1), is_same(None, MISSING)
    (True, False, False)
    """
    if one is other:
        return True
    if one is MISSING or other is MISSING or isinstance(one, bool) is not isinstance(other, bool):
        return False
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    try:
        return bool(one == other) or bool(one != one and other != other)  # so it is of NaN
    except Exception:  # noqa: BLE001 - a user's comparison may raise anything, as that of arrays does
        return pickle.dumps(one) == pickle.dumps(other)


def examples_of(compared: ComparedTuple) -> Iterator[Example]:
    """The rows that an operator makes of a tuple before and after a change, side by side."""
    before, after = compared.before, compared.after
    pairs = list(_paired(before.rows, after.rows))
    about = (compared.operator, compared.worker, compared.came)
    error = after.error or before.error
    if error:
        result = "mended" if not after.error else "fails as before" if before.error else "failed"
        for mine, other in pairs or [(None, None)]:
            yield Example(*about, mine, other, result, _differing(mine, other), error, after.lines or before.lines)
    elif not pairs:
        yield Example(*about, None, None, "dropped as before")
    for mine, other in () if error else pairs:
        differs = _differing(mine, other)
        both = "differs" if differs else "same"
        yield Example(*about, mine, other, "dropped" if other is None else "added" if mine is None else both, differs)


Given = Mapping[str, Any] | None


def _paired(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Given, Given]]:
    """Rows side by side: what is the same in front and behind, and in between in their order."""
    fewer = min(len(before), len(after))
    front = next((at for at in range(fewer) if _differing(before[at], after[at])), fewer)
    back = next((at for at in range(fewer - front) if _differing(before[-1 - at], after[-1 - at])), fewer - front)
    end, other_end = len(before) - back, len(after) - back
    yield from zip(before[:front], after[:front], strict=True)
    yield from zip_longest(before[front:end], after[front:other_end])
    yield from zip(before[end:], after[other_end:], strict=True)


def _differing(before: Given, after: Given) -> tuple[str, ...]:
    """The columns in which two rows differ; none if there is only one row."""
    if before is None or after is None:
        return ()
    names = dict.fromkeys((*before, *after))
    return tuple(name for name in names if not is_same(before.get(name, MISSING), after.get(name, MISSING)))


def checked_number(count: Any) -> int:
    """The number of examples that is asked for; raises a PlanError if it is none."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MOST_EXAMPLES:
        raise PlanError(f"n={count!r}; expected a whole number from 1 to {MOST_EXAMPLES}")
    return count


class HeardExamples:
    """What hosts tell of rehearsals, for threads that wait for it; may be called by any thread."""

    def __init__(self) -> None:
        self._told = threading.Condition()
        self._parts: dict[str, list[Compared]] = {}
        self._forgotten: set[str] = set()
        self._trials: dict[str, Outcome | None] = {}  # those under way, with their ends

    def hear(self, part: Compared) -> None:
        """A host has rehearsed a change, or a trial, and tells of some tuples."""
        with self._told:
            self._parts.setdefault(part.change, []).append(part)
            while len(self._parts) > CHANGES_HEARD:
                self._forgotten.add(oldest := next(iter(self._parts)))
                del self._parts[oldest]
            self._told.notify_all()

    def expect(self, trial: str) -> None:
        """A trial begins."""
        with self._told:
            self._trials[trial] = None

    def kept(self, change: str) -> list[Compared]:
        """What was told of a change and is kept."""
        with self._told:
            return list(self._parts.get(change, ()))

    def ended(self, outcome: Outcome) -> None:
        """A trial has ended, if it is one that is awaited."""
        with self._told:
            if outcome.change in self._trials:
                self._trials[outcome.change] = outcome
                self._told.notify_all()

    def wait(self, change: str, outcome: Callable[[], Outcome | None], timeout: float) -> list[Compared]:
        """Wait for what is told of a change; empty if nothing is, since it has ended without a rehearsal.

        Args:
            change: its id.
            outcome: how it has ended; ``None`` if it has not. May raise if nothing is to be waited for any more.
            timeout: seconds to wait.

        Raises:
            PlanError: what was told is forgotten.
            TimeoutError: it has not been rehearsed in time.
        """
        over_s = time.monotonic() + timeout
        last = f"examples are kept of the last {CHANGES_HEARD} changes"
        with self._told:
            while not (found := self._parts.get(change)):
                if change in self._forgotten:
                    raise PlanError(f"{last}; {change} is an earlier one")
                ended = outcome()
                if ended is not None and not ended.has_examples:
                    return []
                if (left_s := over_s - time.monotonic()) <= 0:
                    raise TimeoutError(f"change {change} has not been rehearsed within {timeout:g} s")
                self._told.wait(min(left_s, _LOOK_S))
            return list(found)

    def wait_for_trial(
        self, trial: str, check: Callable[[], None], timeout: float
    ) -> tuple[Outcome, list[Compared]]:  # fmt: skip
        """Wait for the end of a trial, and what is told of it, and forget both.

        Args:
            trial: its id.
            check: raises if the run is over.
            timeout: seconds to wait.

        Raises:
            RunError: the run is over.
            TimeoutError: it has not ended in time.
        """

        def outcome() -> Outcome | None:
            if (ended := self._trials[trial]) is None:
                check()
            return ended

        try:
            parts = self.wait(trial, outcome, timeout)  # told behind the answer that ends it
            with self._told:
                while (ended := outcome()) is None:
                    self._told.wait(_LOOK_S)
            return ended, parts
        finally:
            with self._told:
                self._parts.pop(trial, None)
                self._trials.pop(trial, None)


def told_examples(
    change: str, parts: Iterable[Compared], most: int, refusal: str, hide: frozenset[str] = frozenset()
) -> Examples:  # fmt: skip
    """What hosts have told of a rehearsal, as users see it.

    Raises:
        RunError: there is nothing, for the reason that is given, or a value cannot be unpickled here.
    """
    held = list(parts)
    if why := next((part.error for part in held if part.error), ""):
        raise RunError(f"there are no examples of {change or 'the change'}: {why}")
    try:
        tuples: list[ComparedTuple] = [pickle.loads(one) for part in held for one in part.pickled]
    except Exception as error:
        raise RunError(f"examples cannot be shown here: {exception_text(error)}") from error
    seen, rows = Counter[str](), list[Example]()
    for one in tuples:
        if seen[one.operator] < most:
            seen[one.operator] += 1
            rows += examples_of(one)
    cut, uncopied = sum(part.cut for part in held), sum(part.uncopied for part in held)
    words = [f"{cut:,} more are left out, since all are larger than 256 KiB"] if cut else []
    words += [f"{uncopied:,} cannot be pickled"] if uncopied else []
    return Examples(change, tuple(rows), refusal, "; ".join(words), hide, _took_ms(tuples))


def _took_ms(tuples: Iterable[ComparedTuple]) -> dict[str, tuple[float, float]]:
    """See ``Examples.took_ms``."""
    took: dict[str, list[tuple[int, int]]] = {}
    for one in tuples:
        if one.before.ns and one.after.ns and not (one.before.error or one.after.error):
            took.setdefault(one.operator, []).append((one.before.ns, one.after.ns))
    return {
        name: (median(before for before, _ in both) / 1e6, median(after for _, after in both) / 1e6)
        for name, both in took.items()
    }


def shown_examples(change: str, parts: Sequence[Compared], hide: frozenset[str]) -> Examples:
    """The same for a page, in which the reason why there is nothing stands in its place."""
    try:
        return told_examples(change, parts, EXAMPLES, "", hide)
    except RunError as error:
        return Examples(change, (), left_out=str(error))
