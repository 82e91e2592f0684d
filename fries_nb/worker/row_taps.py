"""Taps: the next rows at an operator's worker that satisfy a condition of the user.

The condition is tried on rows that the worker keeps, then on those that pass, by the thread that runs the worker and
between two slices, in pieces of a millisecond at most. All taps of a worker have ``SHARE`` of its time; rows that pass
while that is used up are not tried, and are counted as dropped. Some of each side are tried all the same, so that a
wrong column is told. Between the functions of a chain rows are no batches: there the condition is tried on the few that
are kept of each slice, and all others are dropped.

A tap ends by itself: with the rows that it was asked for, its time, an error of the condition, or the worker's input.

>>> budget = TapBudget(clock=iter([0, 0, 500_000, 800_000, 9_000_000, 10_000_000, 10_000_000, 10_000_000]).__next__)
>>> with budget.piece():
...     budget.is_over(), budget.is_over()    # it may last 0.8 ms, but no call is interrupted
(False, True)
>>> budget.has_some
False
>>> with budget.piece():
...     budget.is_over()
True
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN
from fries_nb.errors import exception_text
from fries_nb.operators.instance import FAILURES
from fries_nb.operators.pickled_states import gathered
from fries_nb.protocol.messages import LookAtRows, RowsSeen, TapCounts, WorkerId
from fries_nb.worker.looks import PIECE_NS, Kept, kept_rows
from fries_nb.worker.reports import PassedSlice
from fries_nb.worker.worker import Worker

SHARE = 0.02
"""The share of a worker's time that its taps have."""
SAVED_NS = 10 * PIECE_NS
"""Most of the time that is saved up, and what there is at first, for the rows that the worker keeps."""
LOOKED_THROUGH = 1_000
"""Number of rows that a worker keeps, of each side, that are tried first."""
BETWEEN_LOOKS = 8
"""Number of rows that are converted, and tried between two looks at the clock."""
TOLD_NS = 1_000_000_000
"""Nanoseconds after which a tap tells how many rows it has seen, though it has found none."""
SIDES = ("in", "out")


class TapBudget:
    """The time of a worker's taps.

    Args:
        clock: returns nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._saved_ns: float = SAVED_NS
        self._began_ns = self._ended_ns = clock()

    @property
    def has_some(self) -> bool:
        """Whether there is time left as of the last piece."""
        return self._saved_ns > 0

    @property
    def has_piece(self) -> bool:
        """Whether there was time for a whole piece when the last one began."""
        return self._saved_ns >= PIECE_NS

    @contextmanager
    def piece(self) -> Iterator[None]:
        """A block whose time counts."""
        began_ns = self._began_ns = self._clock()
        self._saved_ns = min(SAVED_NS, self._saved_ns + SHARE * (began_ns - self._ended_ns))
        try:
            yield
        finally:
            self._ended_ns = self._clock()
            self._saved_ns -= self._ended_ns - began_ns

    def is_over(self) -> bool:
        """Whether the piece has to end, or should not begin."""
        return self._clock() - self._began_ns >= min(PIECE_NS, self._saved_ns)


class Condition:
    """A condition of a user on a row, and what has come of trying it.

    A row that lacks a column that the condition reads does not satisfy it, since an operator may take rows without a
    column that it adds; if no row has had the column, ``lacked`` says so. The condition is over once it has raised
    anything else.

    Args:
        where: the condition.

    Attributes:
        judged: side to the number of rows that it has accepted or not.
        lacked: side to a sentence on the first row that lacked a column.
        error: what it has raised, on which side; empty if nothing.
        row: the row for which it has.

    >>> condition = Condition(lambda row: 1 / row["score"] > 2)
    >>> [condition.holds(row, "in") for row in ({"score": 0.25}, {"score": 4}, {"amount": 7}, {"score": 0})]
    [True, False, False, False]
    >>> condition.judged["in"], condition.error, condition.row
    (2, 'where raised ZeroDivisionError: division by zero on a row that is in', {'score': 0})
    >>> condition.lacked
    {'in': "where raised KeyError: 'score' on a row that is in; it has the columns amount"}
    """

    def __init__(self, where: Callable[[dict[str, Any]], Any]) -> None:
        self._where = where
        self.judged = dict.fromkeys(SIDES, 0)
        self.lacked: dict[str, str] = {}
        self.error = ""
        self.row: dict[str, Any] = {}

    def holds(self, row: dict[str, Any], side: str) -> bool:
        """Whether a row satisfies it; never raises."""
        if self.error:
            return False
        try:
            holds = bool(self._where(dict(row)))
        except FAILURES as error:
            words = f"where raised {exception_text(error)} on a row that is {side}"
            if isinstance(error, KeyError) and error.args and error.args[0] not in row:
                self.lacked.setdefault(side, f"{words}; it has the columns {', '.join(row)}")
            else:
                self.error, self.row = words, row
            return False
        self.judged[side] += 1
        return holds

    @property
    def lacked_by_all(self) -> str:
        """The sentence on a column that no row has had, if it is so; else empty."""
        return "" if any(self.judged.values()) else next(iter(self.lacked.values()), "")


class RowTap:
    """A question for the next rows at an operator's worker, until it has ended.

    Args:
        order: the question.
        member: the operator's worker.
        worker: the worker that runs it now.
        budget: the time of all taps of that worker.
        clock: returns nanoseconds.

    Attributes:
        member: see above.
        number: that of the question.
        has_ended: whether the last answer is given.
    """

    def __init__(
        self, order: LookAtRows, member: WorkerId, worker: Worker, budget: TapBudget, clock: Callable[[], int]
    ) -> None:
        self.member, self.number = member, order.number
        self.has_ended = False
        self._budget, self._clock = budget, clock
        self._branch = order.branch
        self._over_ns = clock() + order.lasts_ns
        self._told_ns = clock()
        self._left = dict.fromkeys(SIDES, order.most)
        self._found: dict[str, Kept] = {side: [] for side in SIDES}
        self._seen = self._dropped = self._told = 0
        self._hand = deque[tuple[str, pa.RecordBatch | dict[str, Any]]]()
        self._counted: dict[str, int] = {}  # side to the number of rows that a chain had processed by then
        self._noted: dict[str, list[tuple[Any, int]]] = {}  # side to the rows that a chain kept by then
        self._columns: dict[str, None] = {}  # of rows that were tried
        self._tried: set[str] = set()  # the sides of which rows were
        self._error = ""
        with budget.piece():
            self._condition = self._unpickled(order.where)
            self._take_kept(worker)

    def _unpickled(self, where: bytes) -> Condition:
        try:
            with gathered():
                return Condition(pickle.loads(where))
        except FAILURES as error:
            self._error = f"where cannot be unpickled at {self.member}: {exception_text(error)}"
            return Condition(bool)

    @property
    def is_trying(self) -> bool:
        """Whether it has rows in hand that it can try at once, though none pass."""
        return bool(self._hand) and not self.has_ended

    def advance(self, worker: Worker, slices: Sequence[PassedSlice]) -> RowsSeen | None:
        """Try rows for a piece; returns an answer if rows were found, or it has ended.

        Args:
            worker: the worker that runs its operator now.
            slices: what that has processed since the last call.
        """
        if self.has_ended:
            return None
        try:
            self._try_piece(worker, slices)
        except FAILURES as error:  # of a value that cannot be converted
            self._error = f"the rows of {self.member.operator} cannot be read: {exception_text(error)}"
        if self._is_over(worker):
            return self.end(worker)
        is_due = self._seen and self._clock() - self._told_ns >= TOLD_NS
        return self._answer(worker) if is_due or any(self._found.values()) else None

    def end(self, worker: Worker) -> RowsSeen | None:
        """End it; returns the last answer, ``None`` if that was given."""
        if self.has_ended:
            return None
        self.has_ended = True
        self._drop_hand()
        return self._answer(worker)

    def _is_over(self, worker: Worker) -> bool:
        condition, traits = self._condition, worker.instances[self._position(worker)].operator.traits
        sides = 1 if self._branch is not None else 2 - traits.is_source - traits.is_sink
        if len(condition.lacked) == sides:
            self._error = self._error or condition.lacked_by_all
        self._error = self._error or condition.error
        has_all = not all(self._left.values()) or self._clock() >= self._over_ns
        return bool(self._error) or has_all or (worker.ended and not self._hand)

    def _position(self, worker: Worker) -> int:
        return next(place for place, one in enumerate(worker.instances) if one.worker == self.member)

    # ---- rows

    def _take_kept(self, worker: Worker) -> None:
        """Take the rows in hand that the worker keeps, which are tried first."""
        position = self._position(worker)
        came, went = kept_rows(worker, position, LookAtRows(self.number, LOOKED_THROUGH, branch=self._branch))
        for part in came:
            self._put("in", part)
        for _, part in went:
            self._put("out", part)
        for side, place in zip(SIDES, (position, position + 1), strict=True):
            if 0 < place < len(worker.instances):
                self._take_noted(worker, side, place)  # what is there now is among the rows that are kept

    def _take_passed(self, worker: Worker, slices: Sequence[PassedSlice]) -> None:
        """Take the rows in hand that have passed since the last call."""
        position = self._position(worker)
        traits = worker.instances[position].operator.traits
        if self._branch is None and position:
            self._put_noted(worker, "in", position)
        elif self._branch is None and not traits.is_source:
            for one in slices:
                self._put("in", one.came)
        if position + 1 < len(worker.instances):
            self._put_noted(worker, "out", position + 1)
        elif not traits.is_sink:
            for one in slices:
                for branch, batch in one.went:
                    if self._branch in (None, branch):
                        self._put("out", batch)

    def _put(self, side: str, part: pa.RecordBatch | dict[str, Any] | None) -> None:
        if part is not None and (count := _count(part)):
            self._seen += count
            self._hand.append((side, part))

    def _put_noted(self, worker: Worker, side: str, position: int) -> None:
        """Take rows in hand that a chain has kept between two functions, and count those that it has not."""
        before = self._counted.get(side)
        passed = worker.instances[position].processed - (before or 0)
        if before is not None and passed > 0:
            rows = self._take_noted(worker, side, position)[:passed]
            for row in rows:
                self._put(side, row)
            self._seen += passed - len(rows)
            self._dropped += passed - len(rows)
        self._counted[side] = worker.instances[position].processed

    def _take_noted(self, worker: Worker, side: str, position: int) -> list[dict[str, Any]]:
        """The rows that a chain has kept between two functions since the last call, if there is time to copy them."""
        self._counted[side] = worker.instances[position].processed
        if not self._budget.has_piece:  # copies take long, and there must be time to try them
            return []
        known = {(id(origin), place) for origin, place in self._noted.get(side, ())}
        samples = worker.executor.samples(position)
        self._noted[side] = [one.origin for one in samples]
        return [one.with_hidden() for one in samples if (id(one.origin[0]), one.origin[1]) not in known]

    def _try_piece(self, worker: Worker, slices: Sequence[PassedSlice]) -> None:
        """Take what has passed in hand, and try rows in hand; those for which no time is left are dropped."""
        budget = self._budget
        with budget.piece():
            self._take_passed(worker, slices)
            while (place := self._next(budget)) is not None:
                side, part = self._hand[place]
                del self._hand[place]
                if isinstance(part, pa.RecordBatch) and part.num_rows > BETWEEN_LOOKS:
                    self._put_back(side, part.slice(BETWEEN_LOOKS))
                    part = part.slice(0, BETWEEN_LOOKS)
                self._try(side, part)
        if not budget.has_some:
            self._drop_hand()

    def _next(self, budget: TapBudget) -> int | None:
        """The place in hand of what to try next: of a side of which no row was tried, also if there is no time left."""
        untried = (place for place, (side, _) in enumerate(self._hand) if side not in self._tried)
        return next(untried, None if not self._hand or budget.is_over() else 0)

    def _try(self, side: str, part: pa.RecordBatch | dict[str, Any]) -> None:
        self._tried.add(side)
        holds, left = self._condition.holds, self._left[side]
        if not isinstance(part, pa.RecordBatch):
            values = {name: value for name, value in part.items() if name not in HIDDEN}
            self._columns |= dict.fromkeys(values)
            found = [part] if holds(values, side) else []
        else:
            shown = part.select([name for name in part.schema.names if name not in HIDDEN])
            self._columns |= dict.fromkeys(shown.schema.names)
            chosen = [index for index, row in enumerate(shown.to_pylist()) if holds(row, side)][:left]
            found = [part.take(pa.array(chosen))] if chosen else []
        if left and found:
            self._found[side] += found
            self._left[side] = left - sum(map(_count, found))

    def _put_back(self, side: str, rest: pa.RecordBatch) -> None:
        """Try the rest of a batch next; if the side has lacked a column in all of its rows, others have the time."""
        if side in self._condition.lacked and not self._condition.judged[side]:
            self._dropped += rest.num_rows
        else:
            self._hand.appendleft((side, rest))

    def _drop_hand(self) -> None:
        self._dropped += sum(_count(part) for _, part in self._hand)
        self._hand.clear()

    # ---- answers

    def _answer(self, worker: Worker) -> RowsSeen:
        instance, condition = worker.instances[self._position(worker)], self._condition
        came, went = self._found["in"], self._found["out"]
        found, judged = (sum(map(_count, came)), sum(map(_count, went))), sum(condition.judged.values()) - self._told
        counts = TapCounts(found[0], found[1], self._seen, self._dropped, judged)
        lacked, columns = (condition.lacked_by_all, tuple(self._columns)) if self.has_ended else ("", ())
        try:
            with self._budget.piece():
                sides = pickle.dumps(came), pickle.dumps(went)
                row = pickle.dumps(condition.row) if condition.error else b""
        except Exception as error:  # noqa: BLE001 - pickling a user's value may raise anything
            self.has_ended, sides, row = True, (b"", b""), b""
            self._error = f"the rows of {self.member.operator} cannot be copied: {exception_text(error)}"
        self._found, self._told = {side: [] for side in SIDES}, self._told + judged
        self._seen = self._dropped = 0
        self._told_ns = self._clock()
        version, ended = (instance.applied[-1] if instance.applied else ""), self.has_ended
        return RowsSeen(self.number, self.member, *sides, version, self._error, ended, counts, lacked, row, columns)


def _count(part: pa.RecordBatch | dict[str, Any]) -> int:
    return part.num_rows if isinstance(part, pa.RecordBatch) else 1
