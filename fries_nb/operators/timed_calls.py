"""Timed functions: firing, by which time brings out rows, and the calls of the functions.

A firing is the keys of an agenda whose time has passed, as a batch, and the rows that an operator makes of them. It
passes through a chain like any other batch, so errors, retries, pauses and slices are those of rows. It has a row for
each key, with the columns of the key. For the first operator of the chain the *due* step takes the place of the step
that processes rows; all operators behind it process what it makes.

Every row that time brings out is a transaction of its own, which begins at the operator. Its identity is an origin of
the operator and the bin of the key, and a position that is counted there (see ``rollout.BroughtOut``); if a run is
repeated after a failure, keys of a bin may come in another order. Where rows have cohorts of their own, its cohort is
that of the key: that of the key's rows, if the source's cohorts are those of the same column.

Times as users see them, and as numbers: a ``datetime`` for timestamps, otherwise an integer.

In batches a time is an int64 or a ``timestamp[ns]`` (see ``dataflow.columns``), in frames and agendas always an
integer. A ``datetime`` is exact to the microsecond; nanoseconds are cut off when a time is shown, and only then.

>>> values = TimeValues(pa.timestamp("ns", "UTC"))
>>> str(values.shown(60_000_000_000))
'1970-01-01 00:01:00+00:00'
>>> values.ticks_of(values.shown(60_000_000_000))
60000000000
>>> TimeValues(pa.int64()).ticks_of("noon")
Traceback (most recent call last):
fries_nb.errors.TokenError: got the time 'noon' (str); expected an integer, as in the source's column of times

Calls of timed functions: ``process(row, state, at)`` for a row, ``due(key, time, state)`` when a time has passed.

``at`` is borrowed: there is one for an operator, which stands for the row whose function runs, and for none afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from operator import index
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fries_nb.dataflow.columns import COHORT, DUE, TIME, TRANSACTION
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.operators import is_generator
from fries_nb.errors import DeclarationError, OperatorError, ProtocolError, TokenError
from fries_nb.operators.conversion import NOT_ARROW, to_arrow
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.rows import Columns, Reads, Row, derived
from fries_nb.operators.state import key_reader
from fries_nb.progress.agenda import Agenda, Firing
from fries_nb.progress.tokens import Token
from fries_nb.protocol.partitioning import bins_of_keys, cohorts_of

if TYPE_CHECKING:
    from fries_nb.operators.steps import Behind


_EPOCH = datetime(1970, 1, 1)
_NS_PER_US = 1_000
_TIMESTAMP = re.compile(r"timestamp\[\w+(?:, tz=([^]]+))?]|date(?:32|64)\[")


class TimeValues:
    """Conversion of the times of one type of column."""

    def __init__(self, kind: pa.DataType) -> None:
        # ``kind``: the type of the hidden column of times
        self.is_timestamp = bool(pa.types.is_timestamp(kind))  # whether times are timestamps, in nanoseconds
        self._shown = pa.timestamp("us", kind.tz) if self.is_timestamp else kind
        self._zone = kind.tz if self.is_timestamp else None
        self._last: tuple[int, Any] = (0, None)

    @property
    def is_zoned(self) -> bool:
        """Whether times are timestamps with a time zone."""
        return self._zone is not None

    def shown(self, ticks: int) -> Any:
        """A time as functions get it; the last one is remembered, since many windows have the same end."""
        if not self.is_timestamp:
            return ticks
        known, value = self._last
        if known != ticks or value is None:
            value = pa.scalar(ticks // _NS_PER_US, self._shown).as_py()
            self._last = ticks, value
        return value

    def ticks_of(self, value: Any) -> int:
        """The number of a time that a function gives."""
        if not self.is_timestamp:
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise self._refused(value, "an integer")
            return index(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if not isinstance(value, datetime) or (value.tzinfo is None) is not (self._zone is None):
            raise self._refused(value, "a datetime with a time zone" if self._zone else "a datetime without time zone")
        since = value.replace(tzinfo=None) - (value.utcoffset() or timedelta()) - _EPOCH
        return (since // timedelta(microseconds=1)) * _NS_PER_US + int(getattr(value, "nanosecond", 0))

    def ticks_from(self, value: Any, earliest: int) -> int:
        """The number of a time that a function gives; if it is shown like ``earliest``, it is not before that.

        >>> TimeValues(pa.timestamp("ns")).ticks_from(datetime(1970, 1, 1), earliest=123)
        123
        """
        ticks = self.ticks_of(value)
        is_same = self.is_timestamp and ticks // _NS_PER_US == earliest // _NS_PER_US
        return max(ticks, earliest) if is_same else ticks

    def _refused(self, value: Any, expected: str) -> TokenError:
        return TokenError(
            f"got the time {value!r} ({type(value).__name__}); expected {expected}, as in the source's column of times"
        )


@lru_cache(maxsize=16)
def time_values(kind: pa.DataType) -> TimeValues:
    """The conversion for this type of column."""
    return TimeValues(kind)


def values_named(column: str) -> TimeValues:
    """The conversion for a source's column of times, by the name of its Arrow type.

    >>> values_named("timestamp[us, tz=UTC]").shown(0).tzinfo is None, values_named("date32[day]").is_timestamp
    (False, True)
    >>> str(values_named("dictionary<values=timestamp[s], indices=int32, ordered=0>").shown(0))
    '1970-01-01 00:00:00'
    >>> values_named("int8").shown(7)
    7
    """
    found = _TIMESTAMP.search(column)
    return time_values(pa.timestamp("ns", found[1]) if found else pa.int64())


FIRED = "<due>"
"""In place of the sending operator, for a batch that the operator's own agenda has made."""
_MARK, _REACHED = {b"fries_nb": b"firing"}, {b"fries_nb": b"reached"}


def note_columns(instance: Instance, sender: str, schema: pa.Schema) -> None:
    """Note the columns of a batch at a timed operator; its firings follow them, and its tokens their times."""
    kind, came = schema.field(TIME).type, instance.came
    before = kind if came is None else came.field(TIME).type
    if before != kind and _described(before) != _described(kind):
        name = instance.worker.operator
        raise OperatorError(
            f"{name} gets rows whose times are {_described(kind)}, from {sender}, after others whose times are "
            f"{_described(before)}; expected one kind of time at all sources above it",
            name,
        )
    if sender != FIRED:
        instance.came = schema
    if instance.tokens is not None and (before != kind or instance.tokens.units is None):
        instance.tokens.units = time_values(kind)


def _described(kind: pa.DataType) -> str:
    if not pa.types.is_timestamp(kind):
        return "integers"
    return "timestamps without time zone" if kind.tz is None else "timestamps with a time zone"


def firing_batch(instance: Instance, firing: Firing, due_ns: int) -> pa.RecordBatch:
    """The batch of a firing: a row for each key."""
    came, names = instance.came, instance.operator.key
    if came is None:
        raise ProtocolError(f"{instance.worker} was to fire, and nothing has come to it yet")
    keys, moments = firing.keys, firing.moments
    columns = {}
    for place, name in enumerate(names):
        values = list(keys) if len(names) == 1 else [key[place] for key in keys]
        try:
            columns[name] = to_arrow(values, came.field(name).type)
        except NOT_ARROW as error:
            operator = instance.worker.operator
            raise OperatorError(
                f"{operator} is by {name!r}, of which it has keys of several types ({error}); expected those of one "
                "column: convert them in front of it, or say schema= at the source",
                operator,
            ) from error
    columns[DUE] = pa.repeat(pa.scalar(due_ns, pa.int64()), len(keys))
    if instance.identities:
        assert instance.brought_out is not None, "the operator is timed"
        columns[TRANSACTION] = pa.array(instance.brought_out.identities(bins_of_keys(keys)), pa.int64())
        if COHORT in came.names and names:
            columns[COHORT] = pa.array(cohorts_of([columns[name] for name in names]))
    columns[TIME] = pa.array(moments, pa.int64()).cast(came.field(TIME).type)
    schema = pa.schema([(name, column.type) for name, column in columns.items()], _REACHED if firing.reached else _MARK)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def is_firing(batch: pa.RecordBatch) -> bool:
    """Whether a batch is that of a firing, or a part of one."""
    return batch.schema.metadata in (_MARK, _REACHED)


def is_reached(batch: pa.RecordBatch) -> bool:
    """Whether it is that of a key that holds tokens, since the frontier has advanced."""
    return bool(batch.schema.metadata == _REACHED)


def shown_firing(row: Row) -> dict[str, Any]:
    """Key and time of a row of a firing, as a message or a dead letter has them."""
    columns = row.columns
    return {**dict(row), "time": time_values(columns.batch.schema.field(TIME).type).shown(columns.times()[row.index])}


def due_emitter(
    instance: Instance, emit: Callable[[Row], None]
) -> Callable[[Row, Iterable[tuple[int, dict[str, Any]]]], None]:
    """A function that emits what an operator makes for a row of a firing; under audit each is logged as begun."""
    identities, counters = instance.identities, instance.brought_out
    begun = instance.log.begun_by(instance.identity) if instance.audit else None
    assert counters is not None, "the operator is timed"

    def emit_all(row: Row, outs: Iterable[tuple[int, dict[str, Any]]]) -> None:
        own = row.columns.times()[row.index]
        for number, (t, out) in enumerate(outs):
            origin = row
            if t != own or (identities and number):
                given = row.columns.transactions()[row.index] if identities else None
                origin = _of_another(row, t, None if given is None else counters.another(given))
            if begun is not None:
                instance.log.begin(begun, origin.columns.transactions()[origin.index])
            emit(derived(dict(out), origin))

    return emit_all


def _of_another(row: Row, t: int, transaction: int | None) -> Row:
    """The row of a firing, at another time or in another transaction."""
    batch = row.columns.batch.slice(row.index, 1)
    arrays = list(batch.columns)
    place = batch.schema.get_field_index(TIME)
    arrays[place] = pa.array([t], pa.int64()).cast(arrays[place].type)
    if transaction is not None:
        arrays[batch.schema.get_field_index(TRANSACTION)] = pa.array([transaction], pa.int64())
    return next(Columns(pa.RecordBatch.from_arrays(arrays, schema=batch.schema), Reads()).rows())


def rows_of(instance: Instance, result: Any) -> Iterator[dict[str, Any]]:
    """The rows of what a function has returned: one (a dict), an iterable of them, or ``None``."""
    if result is None:
        return
    if isinstance(result, dict):
        yield result
        return
    name = instance.worker.operator
    try:
        if not isinstance(result, Iterable):
            kind = type(result).__name__
            raise DeclarationError(f"{name} made {result!r} ({kind}); expected a row (a dict), rows, or None", name)
        for row in instance.draw(result):
            if not isinstance(row, dict):
                raise DeclarationError(f"{name} made a {type(row).__name__}; expected rows (dicts)", name)
            yield row
    except DeclarationError:
        raise
    except FAILURES as error:
        raise failure(instance, error) from error


class At:
    """The time of the row that a function processes, and what it can do by it. Of use while the function runs."""

    __slots__ = ("_columns", "_index", "_instance", "_key")

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._columns: Columns | None = None
        self._index, self._key = 0, None

    def begin(self, row: Row, key: Any) -> None:
        """Stand for a row; for the runtime, as is ``end``."""
        self._columns, self._index, self._key = row.columns, row.index, key

    def end(self) -> None:
        """Stand for no row."""
        self._columns = None

    @property
    def _ticks(self) -> int:
        return self._row().times()[self._index]

    @property
    def _values(self) -> TimeValues:
        return time_values(self._row().batch.schema.field(TIME).type)

    def _row(self) -> Columns:
        if self._columns is None:
            raise TokenError(
                f"{self._instance.worker.operator}: at was used outside of the function that got it; take what is "
                "needed from it while the function runs, or a token with at.keep()"
            )
        return self._columns

    @property
    def time(self) -> Any:
        """The time of the row: a ``datetime`` if the source's times are timestamps, otherwise an integer."""
        return self._values.shown(self._ticks)

    @property
    def round(self) -> int:
        """The row's round in the innermost loop."""
        self._row()
        rounds = self._instance.agenda.stamp[2:] if self._instance.agenda is not None else ()
        if not rounds:
            raise TokenError(f"{self._instance.worker.operator}: a row outside of loops has no round")
        return rounds[-1]

    def call(self, time: Any) -> None:
        """Have ``due(key, time, state)`` called for the row's key, when no row of this time can still arrive.

        Calls for one time and key count once. If that time has passed, since the row came late, ``due`` is called as
        soon as it can be, with the time of then.
        """
        ticks, name = self._values.ticks_from(time, self._ticks), self._instance.worker.operator
        book = self._instance.tokens
        assert book is not None, "the operator is timed"
        book.check_bound("at")
        if not callable(getattr(self._instance.function, "due", None)):
            raise TokenError(f"{name}: at.call() needs a function with due(key, time, state), and there is none")
        if ticks < self._ticks:
            raise TokenError(f"{name}: at.call({time!r}) is for a time before that of the row, {self.time!r}")
        agenda = self._instance.agenda
        assert agenda is not None, "the operator is timed"
        agenda.call(max(ticks, agenda.stamp[1]), canonical_key(self._key))

    def keep(self) -> Token:
        """A token of the row's time: the right to produce output at that time, or later, until it is dropped.

        That of a row that came late has the least time at which rows can still be produced.
        """
        book, agenda = self._instance.tokens, self._instance.agenda
        assert book is not None, "the operator is timed"
        assert agenda is not None, "the operator is timed"
        version, right, *rounds = agenda.stamp
        return book.keep(int(bins_of_keys([canonical_key(self._key)])[0]), (version, max(self._ticks, right), *rounds))


def timed_call(instance: Instance) -> Callable[[Row], Any]:
    """The current function, a timed one, as a function of a row."""
    process, at, begin = instance.function.process, At(instance), state_of_row(instance)

    def call(row: Row) -> Any:
        key, state = begin(row)
        at.begin(row, key)
        try:
            return process(row, state, at)
        finally:
            at.end()

    @contextmanager
    def begun(row: Row) -> Iterator[Any]:
        """The state of the row's key, while ``at`` stands for the row, and its tokens are those of the key."""
        key, state = begin(row)
        at.begin(row, key)
        try:
            with _keeping(instance, key):
                yield state
        finally:
            at.end()

    def kept(row: Row) -> Any:
        with begun(row) as state:
            return process(row, state, at)

    def drawn(row: Row) -> Iterator[Any]:
        with begun(row) as state:
            yield from process(row, state, at)

    if is_generator(instance.function):
        return drawn
    # Only ``reached`` asks for the tokens of a key; the two blocks around a call take as long as a short function.
    return kept if hasattr(instance.function, "reached") else call


def state_of_row(instance: Instance) -> Callable[[Row], tuple[Any, Any]]:
    """What finds the key of a row and its state, which begins with the key."""
    read, find, touch = key_reader(instance.operator.key), instance.state.find, instance.state.touch

    def found(row: Row) -> tuple[Any, Any]:
        key = read(row)
        try:
            state = find(key)
        except TypeError:  # not hashable; ``touch`` says what it is
            state = None
        return key, touch(key) if state is None else state

    return found


@contextmanager
def _keeping(instance: Instance, key: Any) -> Iterator[None]:
    """Records that the key holds the tokens that are made within the block, if they matter to its function."""
    book, agenda = instance.tokens, instance.agenda
    assert book is not None, "the operator is timed"
    assert agenda is not None, "the operator is timed"
    mark = book.mark()
    yield
    if agenda.keepers is not None and hasattr(instance.function, "reached"):
        agenda.keepers.add(canonical_key(key), mark)


class TokenOutput:
    """What ``reached`` sends rows with: ``out.give(token, rows)``. Of use while the function runs."""

    def __init__(self, instance: Instance, values: TimeValues) -> None:
        self._instance, self._values = instance, values
        self.given: list[tuple[int, dict[str, Any]]] = []

    @property
    def round(self) -> int:
        """The round in the innermost loop for which ``reached`` runs; it is called once for each."""
        rounds = self._agenda.stamp[2:]
        if not rounds:
            raise TokenError(f"{self._instance.worker.operator}: reached has no round outside of loops")
        return rounds[-1]

    @property
    def _agenda(self) -> Agenda:
        assert self._instance.agenda is not None, "the operator is timed"
        return self._instance.agenda

    def give(self, token: Token, rows: Any) -> None:
        """Send rows at the time of a token, in transactions of their own."""
        book, stamp, name = self._instance.tokens, self._agenda.stamp, self._instance.worker.operator
        assert book is not None, "the operator is timed"
        if not isinstance(token, Token):
            raise TokenError(f"{name}: out.give() got {token!r}; expected a token of at.keep(), and the rows after it")
        time = book.time_of(token)
        if time[2:] != stamp[2:]:
            raise TokenError(
                f"{name}: a token of round {time[-1]} was given rows while reached runs for round {stamp[-1]}; give "
                "rows with the tokens whose round is out.round, since reached is called once for each"
            )
        if time[1] < stamp[1]:
            shown = self._values.shown(time[1])
            raise TokenError(
                f"{name}: a token of time {shown!r} is not one of the key for which reached runs; give rows with those"
            )
        self.given += [(time[1], row) for row in rows_of(self._instance, rows)]


def _reached(instance: Instance, row: Row) -> list[tuple[int, dict[str, Any]]]:
    """What ``reached`` sends for a key, each row with its time."""
    agenda, key, columns = instance.agenda, key_reader(instance.operator.key)(row), row.columns
    assert agenda is not None, "the operator is timed"
    values = time_values(columns.batch.schema.field(TIME).type)
    out, elements = TokenOutput(instance, values), agenda.frontier.elements if agenda.frontier is not None else ()
    least = min((time[1] for time in elements), default=None)
    try:
        with _keeping(instance, key):
            shown = None if least is None else values.shown(least)
            result = instance.function.reached(shown, instance.state.touch(key), out)
    except FAILURES as error:
        raise failure(instance, error) from error
    if result is not None:
        name = instance.worker.operator
        raise DeclarationError(
            f"{name} returned {type(result).__name__} from reached; rows are sent with out.give(token, rows), by a "
            "function that is no generator",
            name,
        )
    return out.given


def due_step(instance: Instance, behind: Behind) -> Callable[[Row], None]:
    """Emits what ``due`` makes for a key whose time has passed."""
    emit_all = due_emitter(instance, behind.valued(instance)[0])
    due = getattr(instance.function, "due", None)
    read, touch = key_reader(instance.operator.key), instance.state.touch

    def step(row: Row) -> None:
        if is_reached(row.columns.batch):
            emit_all(row, _reached(instance, row))
            return
        key, columns = read(row), row.columns
        if due is None:
            raise TokenError(f"{instance.worker.operator} has entries that are due, and its function has no due()")
        t, state = columns.times()[row.index], touch(key)
        shown = time_values(columns.batch.schema.field(TIME).type).shown(t)
        try:
            result = due(key, shown, state)
        except FAILURES as error:
            raise failure(instance, error) from error
        emit_all(row, ((t, out) for out in rows_of(instance, result)))

    return step
