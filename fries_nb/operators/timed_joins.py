"""The steps of joins of two streams in time: rows of a key wait for partners, and leave when none can come any more.

The state of a key has the open rows of both sides, in order of time. A row is opened with the spans of the function
that runs when it comes (see ``dataflow.join_bounds``), and keeps them: whether a later row is its partner is decided by
these. So a pair is judged by the bounds under which its first row came, and each row is open for just as long as its
own bounds say. With overlapping windows a row is open once for each window.

The agenda has an entry for the last moment of each span. When no row of it can come any more, the open row is gone:
unmatched, if the join keeps such rows, with that moment as its time. A pair leaves at once, in the transaction of its
second row, with the later one of both times. So what leaves is never late: a row that is older than its frame is late,
whatever waits for it, and leaves on the branch of late rows. A row with a null in its key has no partner.

A join with the latest row finds it when the time of the left row has passed. Of each key it keeps one row of the right
side that is not newer than what can still come, and of those of one time the greatest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN, TIME, TRANSACTION
from fries_nb.dataflow.join_bounds import Latest, Spans, StreamJoin, check_sides, names_of_both, spans_by
from fries_nb.dataflow.keys import canonical_key
from fries_nb.errors import DataflowError, OperatorError
from fries_nb.operators.audit_log import made_of
from fries_nb.operators.conversion import copied
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.rows import Columns, Reads, Row, WholeRow
from fries_nb.operators.state import key_reader
from fries_nb.operators.steps import Behind, Step
from fries_nb.operators.timed_calls import due_emitter, rows_of, time_values
from fries_nb.operators.window_steps import late_emitter
from fries_nb.progress.agenda import Agenda
from fries_nb.progress.times import EARLIEST, LATEST

_TOGETHER = 512
"""Maximum number of pairs with common hidden columns."""
_time = attrgetter("t")


@dataclass(slots=True, eq=False)
class OpenRow:
    """A row that may still find partners: of the other side, with times from ``first`` to ``last``."""

    t: int
    first: int
    last: int
    rounds: tuple[int, ...]
    names: tuple[str, ...]  # of its columns
    nested: tuple[bool, ...]  # whether their values can change in place; empty if none can
    values: tuple[Any, ...]
    matched: bool = False  # whether it has found a partner

    def as_dict(self) -> dict[str, Any]:
        """The row; what can change in place is copied."""
        row = dict(zip(self.names, self.values, strict=True))
        if self.nested:
            for name in compress(self.names, self.nested):
                row[name] = copied(row[name])
        return row


@dataclass(slots=True)
class OpenSide:
    """The open rows of one side, in order of time.

    Attributes:
        back: how far a span reaches back from its row's time at most.
        ahead: how far one reaches ahead at most.
        least: how far one reaches ahead at least.
    """

    rows: list[OpenRow] = field(default_factory=list)
    back: int = 0
    ahead: int = 0
    least: int = 0

    def add(self, row: OpenRow) -> None:
        """Add a row."""
        rows, ahead = self.rows, row.last - row.t
        if not rows:
            self.back, self.ahead, self.least = row.t - row.first, ahead, ahead
        else:
            self.back, self.ahead = max(self.back, row.t - row.first), max(self.ahead, ahead)
            self.least = min(self.least, ahead)
        if not rows or rows[-1].t <= row.t:
            rows.append(row)
        else:
            insort(rows, row, key=_time)

    def partners(self, t: int, rounds: tuple[int, ...]) -> list[OpenRow]:
        """The rows that are open for one of this time."""
        rows = self.rows
        start = bisect_left(rows, t - self.ahead, key=_time)
        end = bisect_right(rows, t + self.back, lo=start, key=_time)
        return [one for one in rows[start:end] if one.first <= t <= one.last and one.rounds == rounds]

    def leaving(self, moment: int, rounds: tuple[int, ...]) -> list[OpenRow]:
        """The rows whose last moment is this one."""
        start, end = self._ending(moment)
        return [one for one in self.rows[start:end] if one.last == moment and one.rounds == rounds]

    def drop(self, moment: int, rounds: tuple[int, ...]) -> None:
        """Drop them."""
        start, end = self._ending(moment)
        self.rows[start:end] = [one for one in self.rows[start:end] if one.last != moment or one.rounds != rounds]

    def _ending(self, moment: int) -> tuple[int, int]:
        """Where the rows are that may end at this moment."""
        start = bisect_left(self.rows, moment - self.ahead, key=_time)
        return start, bisect_right(self.rows, moment - self.least, lo=start, key=_time)

    def newest(self, t: int, rounds: tuple[int, ...]) -> OpenRow | None:
        """The newest row that is not later than this time."""
        rows = self.rows
        for place in range(bisect_right(rows, t, key=_time) - 1, -1, -1):
            if rows[place].rounds == rounds:
                return rows[place]
        return None

    def drop_before(self, newest: OpenRow) -> None:
        """Drop all rows that are older than this one, which has taken their place."""
        self.rows = [one for one in self.rows if one.t >= newest.t or one.rounds != newest.rounds]


@dataclass(slots=True)
class OpenRows:
    """The state of a key: its open rows of both sides."""

    left: OpenSide = field(default_factory=OpenSide)
    right: OpenSide = field(default_factory=OpenSide)

    def side(self, is_left: bool) -> OpenSide:
        """Those of a side."""
        return self.left if is_left else self.right

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not (self.left.rows or self.right.rows)


def note_side(instance: Instance, is_left: bool, schema: pa.Schema) -> None:
    """Note the columns of a batch of one side; refuse those that do not go together with the other side's.

    Raises:
        OperatorError: the types of a key differ, or the columns of both sides cannot be named.
    """
    mine, schema = "left" if is_left else "right", pa.schema([one for one in schema if one.name not in HIDDEN])
    if instance.sides.get(mine) == schema:
        return
    if (before := _side_of(instance, is_left)) is not None:  # rows of another split may have more columns
        newer = {one.name: one for one in schema if not pa.types.is_null(one.type)}
        kept, known = [newer.get(one.name, one) for one in before], frozenset(before.names)
        schema = pa.schema([*kept, *(one for one in schema if one.name not in known)])
        if instance.sides.get(mine) == schema:
            return
    instance.sides[mine] = schema
    instance.names.note(mine, schema.names)
    other = _side_of(instance, not is_left)
    if other is None:
        return
    sides = (schema, other) if is_left else (other, schema)
    name, join, key = instance.worker.operator, instance.function, instance.operator.key
    try:
        check_sides(name, join, *sides, key)
    except DataflowError as error:
        raise OperatorError(str(error), name) from None
    if join.function is None:
        left, right = (tuple(side.names) for side in sides)
        called = names_of_both(name, left, right, key, join.suffixes)
        instance.names.settle(dict(zip(left, called[0], strict=True)), dict(zip(right, called[1], strict=True)))


def _side_of(instance: Instance, is_left: bool) -> pa.Schema | None:
    """The columns of a side as far as they are known: that have come, were told, or came in front of a checkpoint."""
    side = "left" if is_left else "right"
    known = instance.sides.get(side) or instance.function.told(is_left)
    came = [column for column in instance.names.columns(side) if known is None or column not in known.names]
    return pa.schema([*(known or ()), *((column, pa.null()) for column in came)]) if came else known


def side_types(instance: Instance) -> dict[str, pa.DataType]:
    """The types of output columns, as far as known: those in which rows without partner have nulls."""
    join: StreamJoin = instance.function
    if join.function is not None or join.how == "inner":
        return {}
    sides = [one for one in (_side_of(instance, True), _side_of(instance, False)) if one is not None]
    if len(sides) < 2:
        return {}
    left, right = (tuple(one.names) for one in sides)
    names = names_of_both(instance.worker.operator, left, right, instance.operator.key, join.suffixes)
    types = [dict(zip(some, side.types, strict=True)) for some, side in zip(names, sides, strict=True)]
    return {name: kind for name, kind in (types[1] | types[0]).items() if not pa.types.is_null(kind)}


class PairedColumns(Columns):
    """The hidden columns of pairs: those of the row that came second, with the later time of both.

    They are made of what was added when they are needed.
    """

    __slots__ = ("_indices", "_made", "_origin")

    def __init__(self, origin: Columns) -> None:
        self._origin = origin
        self._indices: list[int] = []
        self._made = origin.batch.select(list(origin.hidden)).slice(0, 0)
        super().__init__(self._made, Reads())
        self.unsettle()
        self.zone = origin.zone

    @property
    def batch(self) -> pa.RecordBatch:
        """The columns so far."""
        if self._made.num_rows < len(self._indices):
            hidden, schema = self._origin.batch.select(list(self._origin.hidden)), self._made.schema
            arrays = hidden.take(pa.array(self._indices, pa.int64())).columns
            place = schema.get_field_index(TIME)
            arrays[place] = pa.array(self._times, pa.int64()).cast(arrays[place].type)
            self._made = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return self._made

    @batch.setter
    def batch(self, given: pa.RecordBatch) -> None:
        self._made = given

    def add(self, index: int, t: int) -> int:
        """Add a pair with the time ``t``, of which a row of the batch is the second one; returns its index."""
        if TRANSACTION in self.hidden:
            self._transactions.append(self._origin.transactions()[index])
        self._indices.append(index)
        self._times.append(t)
        return len(self._indices) - 1

    def transactions(self) -> list[int]:
        """Those of the second rows."""
        return self._transactions

    def times(self) -> list[int]:
        """The later times."""
        return self._times

    @property
    def is_full(self) -> bool:
        """Whether there are so many that further pairs should have others."""
        return len(self._indices) >= _TOGETHER


class _Batch:
    """What the rows of a batch have in common: their side, their spans, and the hidden columns of their pairs."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._columns: Columns | None = None
        self._known: dict[bool, tuple[Spans, Spans]] = {}
        self._spans: Spans
        self._paired: PairedColumns
        self._names: tuple[str, ...] = ()
        self._nested: tuple[bool, ...] = ()
        self._values: list[tuple[Any, ...]] = []

    def of(self, columns: Columns, is_left: bool) -> _Batch:
        """That of these columns."""
        if columns is not self._columns:
            self._columns = columns
            self._paired = PairedColumns(columns)
            self._come(columns)
            is_timestamp = time_values(columns.batch.schema.field(TIME).type).is_timestamp
            if is_timestamp not in self._known:
                self._known[is_timestamp] = spans_by(self._instance.function.windowing, is_timestamp)
            self._spans = self._known[is_timestamp][not is_left]
        return self

    def _come(self, columns: Columns) -> None:
        """Convert the rows of a batch, which are all kept for a while."""
        self._names = columns.names
        nested = tuple(name in columns.nested for name in columns.names)
        self._nested = nested if any(nested) else ()
        self._values = list(zip(*(columns[name] for name in columns.names), strict=True))

    def opened(self, row: Row, t: int, rounds: tuple[int, ...]) -> list[OpenRow]:
        """A row of the batch, once for each of its spans."""
        names, nested, values = self._names, self._nested, self._values[row.index]
        if type(row) is WholeRow or dict.__len__(row) > 1:  # in a rehearsal something was written to it
            names, values = tuple(row), tuple(row.values())
            nested = (True,) * len(names)
        return [OpenRow(t, first, last, rounds, names, nested, values) for first, last in self._spans(t)]

    def paired(self, made: dict[str, Any], index: int, t: int) -> WholeRow:
        """An output row of a pair, whose second row has this index in the batch."""
        if self._paired.is_full:
            assert self._columns is not None, "a row is of a batch"
            self._paired = PairedColumns(self._columns)
        row = WholeRow(made)
        row.columns = self._paired
        row.index = self._paired.add(index, t)
        return row


class _Combining:
    """Makes the rows of a pair, or of a row without partner."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._join: StreamJoin = instance.function

    def __call__(self, left: OpenRow | None, right: OpenRow | None) -> Iterable[dict[str, Any]]:
        """The rows; ``None`` in place of a partner that was not found."""
        if self._join.function is None:
            return (self._merged(left, right),)
        try:
            made = self._join(*(None if one is None else one.as_dict() for one in (left, right)))
        except FAILURES as error:
            raise failure(self._instance, error) from error
        return (made,) if type(made) is dict else rows_of(self._instance, made)

    def _merged(self, left: OpenRow | None, right: OpenRow | None) -> dict[str, Any]:
        of = self._instance.names.of
        named = of("left", self._names(left, is_left=True)), of("right", self._names(right, is_left=False))
        row = dict.fromkeys(named[0]) | dict.fromkeys(named[1])
        for one, names in ((right, named[1]), (left, named[0])):
            if one is not None:
                row.update(zip(names, one.as_dict().values(), strict=True))
        return row

    def _names(self, row: OpenRow | None, is_left: bool) -> tuple[str, ...]:
        """The columns of a row, or of rows of its side as far as they are known."""
        if row is not None:
            return row.names
        return self._instance.names.columns("left" if is_left else "right")


def pair_step(instance: Instance, behind: Behind) -> Step:
    """Emits the pairs of a row with rows that came before it, and opens it for those to come; late rows separately."""
    emits = behind.valued(instance)
    emit, late, made = emits[0], late_emitter(instance, emits), made_of(instance)
    batch, combine, agenda, side = _Batch(instance), _Combining(instance), _agenda_of(instance), behind.side
    state, read, single = instance.state, key_reader(instance.operator.key), len(instance.operator.key) == 1
    meets, opens = _meeting(instance), _opening(instance)

    def step(row: Row) -> None:
        is_left, t, rounds = side() == "left", row.columns.times()[row.index], agenda.stamp[2:]
        if t < agenda.stamp[1]:
            late(row)
            return
        count = 0
        try:
            mine = batch.of(row.columns, is_left)
            key = canonical_key(read(row))
            held = state.get(key)
            held = OpenRows() if held is None else held
            came = mine.opened(row, t, rounds)
        except FAILURES as error:
            raise failure(instance, error) from error
        has_null = _has_null(key, single)
        for partner in () if has_null else meets(held, came, is_left):
            for out in combine(came[0], partner) if is_left else combine(partner, came[0]):
                emit(mine.paired(dict(out), row.index, max(t, partner.t)))
                count += 1
        if not has_null or instance.function.keeps(is_left):
            opens(held, came, is_left, key)
            state.put(key, held)
        if made is not None:
            made(row, count)

    return step


def _has_null(key: Any, is_single: bool) -> bool:
    """Whether a key, of a single column or of several, equals no other one."""
    return key is None if is_single else any(value is None for value in key)


def _agenda_of(instance: Instance) -> Agenda:
    assert instance.agenda is not None, "the join is timed"
    return instance.agenda


Meets = Callable[[OpenRows, list[OpenRow], bool], Iterable[OpenRow]]
Opens = Callable[[OpenRows, list[OpenRow], bool, Any], None]


def _meeting(instance: Instance) -> Meets:
    """A function that returns the partners that a row finds among those that came before it, and marks both."""
    if isinstance(instance.function.windowing, Latest):
        return lambda held, came, is_left: ()

    def meets(held: OpenRows, came: list[OpenRow], is_left: bool) -> list[OpenRow]:
        partners = held.side(not is_left).partners(came[0].t, came[0].rounds)
        for partner in partners:
            partner.matched = True
            inside = [one for one in came if one.first <= partner.t <= one.last]
            for one in inside or came:  # its own bounds may be others by now
                one.matched = True
        return partners

    return meets


def _opening(instance: Instance) -> Opens:
    """A function that adds a row that has come to those of its key, with entries for when it is gone."""
    agenda, is_latest, name = _agenda_of(instance), isinstance(instance.function.windowing, Latest), instance.worker

    def opens(held: OpenRows, came: list[OpenRow], is_left: bool, key: Any) -> None:
        side = held.side(is_left)
        if is_latest and not is_left:
            (one,) = came
            agenda.call(one.t, key)  # when it takes the place of older ones
            same = side.newest(one.t, one.rounds)
            if same is not None and same.t == one.t:
                if _is_greater(name.operator, same, one):
                    return
                side.rows.remove(same)
        for one in came:
            side.add(one)
            if not is_latest or one.last < LATEST:
                agenda.call(one.last, key)

    return opens


def _is_greater(operator: str, one: OpenRow, other: OpenRow) -> bool:
    """Whether a row is greater than another, by its columns in the order of their names."""
    mine, theirs = (dict(zip(row.names, row.values, strict=True)) for row in (one, other))
    for name in sorted({*mine, *theirs}):
        try:
            a, b = _ordered(mine.get(name)), _ordered(theirs.get(name))
            if a != b:
                return bool(a > b)
        except TypeError:
            raise OperatorError(
                f"{operator} got two rows of the right side with one key and time, which differ in {name!r}, and its "
                "values have no order by which one is the latest; expected one row of each key and time",
                operator,
            ) from None
    return False


def _ordered(value: Any) -> Any:
    """A value in a form in which values of one column have an order: null, then others, NaN last."""
    if value is None:
        return (0,)
    if value != value:
        return (2,)
    if isinstance(value, dict):
        return (1, [(name, _ordered(inner)) for name, inner in sorted(value.items())])
    return (1, [_ordered(inner) for inner in value] if isinstance(value, list | tuple) else value)


def leave_step(instance: Instance, behind: Behind) -> Step:
    """Emits what leaves when the moment of a key's entry has passed: rows that have found no partner, or the latest."""
    emit_all, combine = due_emitter(instance, behind.valued(instance)[0]), _Combining(instance)
    read, agenda, state = key_reader(instance.operator.key), _agenda_of(instance), instance.state
    join: StreamJoin = instance.function
    is_latest = isinstance(join.windowing, Latest)
    if join.how == "inner" and not is_latest:
        return lambda row: None

    def results(row: Row) -> Iterator[tuple[int, dict[str, Any]]]:
        t, rounds = row.columns.times()[row.index], agenda.stamp[2:]
        held: OpenRows | None = state.get(canonical_key(read(row)))
        if held is None:
            return
        for one in held.left.leaving(t, rounds):
            partner = _latest(held.right, one) if is_latest else None
            if partner is not None or (not one.matched and join.keeps(True)):
                for out in combine(one, partner):
                    yield t, out
        if join.keeps(False):
            for one in held.right.leaving(t, rounds):
                if not one.matched:
                    for out in combine(None, one):
                        yield t, out

    return lambda row: emit_all(row, results(row))


def _latest(right: OpenSide, row: OpenRow) -> OpenRow | None:
    """The newest row of the right side that is not later than a left row, if it is recent enough for both."""
    found = right.newest(row.t, row.rounds)
    return found if found is not None and found.t >= row.first and found.last >= row.t else None


def drop_step(instance: Instance) -> Step:
    """Drops the rows for which no partner can come any more."""
    state, read, agenda = instance.state, key_reader(instance.operator.key), _agenda_of(instance)
    is_latest = isinstance(instance.function.windowing, Latest)

    def step(row: Row) -> None:
        t, key, rounds = row.columns.times()[row.index], canonical_key(read(row)), agenda.stamp[2:]
        held: OpenRows | None = state.get(key)
        if held is None:
            return
        newest = held.right.newest(t, rounds) if is_latest else None
        if newest is not None:
            held.right.drop_before(newest)
        held.left.drop(t, rounds)
        held.right.drop(t, rounds)
        if held.is_empty:
            state.drop(key)

    return step


def call_for_open(instance: Instance) -> None:
    """In a trial, make entries for all open rows, since copies of states come without any."""
    agenda, is_latest = _agenda_of(instance), isinstance(instance.function.windowing, Latest)
    for key, held in instance.state.live.items():
        for is_left in (True, False):
            for row in held.side(is_left).rows:
                agenda.begin((0, EARLIEST, *row.rounds))
                if not is_latest or row.last < LATEST:
                    agenda.call(row.last, key)
