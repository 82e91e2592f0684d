"""Firing: the keys of an agenda whose time has passed, as a batch, and the rows that an operator makes of them.

A firing passes through a chain like any other batch, so errors, retries, pauses and slices are those of rows. It has a
row for each key, with the columns of the key. For the first operator of the chain the *due* step takes the place of the
step that processes rows; all operators behind it process what it makes.

Every row that time brings out is a transaction of its own, which begins at the operator. Its identity depends on
operator, key and time only, so it is the same when a run is repeated after a failure.

Times as users see them, and as numbers: a ``datetime`` for timestamps, otherwise an integer.

In batches a time is an int64 or a ``timestamp[ns]`` (see ``dataflow.hidden_columns``), in frames and agendas always an
integer. A ``datetime`` is exact to the microsecond; nanoseconds are cut off when a time is shown, and only then.

>>> values = TimeValues(pa.timestamp("ns", "UTC"))
>>> str(values.shown(60_000_000_000))
'1970-01-01 00:01:00+00:00'
>>> values.ticks_of(values.shown(60_000_000_000))
60000000000
>>> TimeValues(pa.int64()).ticks_of("noon")
Traceback (most recent call last):
fries_nb.errors.TokenError: got the time 'noon' (str); expected an integer, as in the source's column of times
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from hashlib import blake2b
from operator import index
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import DUE, TIME, TRANSACTION
from fries_nb.errors import DeclarationError, OperatorError, ProtocolError, TokenError
from fries_nb.operators.conversion import to_arrow
from fries_nb.operators.failures import FAILURES, failure
from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import Columns, Reads, Row, derived
from fries_nb.operators.state import key_reader
from fries_nb.progress.agenda import Firing

_EPOCH = datetime(1970, 1, 1)
_NS_PER_US = 1_000
_TIMESTAMP = re.compile(r"timestamp\[\w+(?:, tz=([^]]+))?]|date(?:32|64)\[")


class TimeValues:
    """Conversion of the times of one type of column.

    Args:
        kind: the type of the hidden column of times.

    Attributes:
        is_timestamp: whether times are timestamps, in nanoseconds.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.is_timestamp = bool(pa.types.is_timestamp(kind))
        self._shown = pa.timestamp("us", kind.tz) if self.is_timestamp else kind
        self._zone = kind.tz if self.is_timestamp else None
        self._last: tuple[int, Any] = (0, None)

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
        columns[name] = to_arrow(values, came.field(name).type)
    columns[DUE] = pa.repeat(pa.scalar(due_ns, pa.int64()), len(keys))
    if instance.audit:
        identities = [_identity(instance, key, t, 0) for key, t in zip(keys, moments, strict=True)]
        columns[TRANSACTION] = pa.array(identities, pa.int64())
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


def _identity(instance: Instance, key: Any, t: int, number: int) -> int:
    """The identity of a transaction that begins here: a negative number, since those of sources are not."""
    agenda = instance.agenda
    assert agenda is not None, "the operator is timed"
    passed = None if not instance.tokens or not instance.tokens.times else agenda.frontier
    text = repr((instance.operator.name, key, t, agenda.stamp[1:], number, passed)).encode()
    return -1 - (int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 1)


def due_emitter(
    instance: Instance, emit: Callable[[Row], None]
) -> Callable[[Row, Iterable[tuple[int, dict[str, Any]]]], None]:
    """A function that emits what an operator makes for a row of a firing; under audit each is logged as begun."""
    audit, read = instance.audit, key_reader(instance.operator.key)
    begun = instance.log.begun_by(instance.identity) if audit else None

    def emit_all(row: Row, outs: Iterable[tuple[int, dict[str, Any]]]) -> None:
        own = row.columns.times()[row.index]
        for number, (t, out) in enumerate(outs):
            origin = row
            if t != own or (begun is not None and number):
                origin = _of_another(row, t, _identity(instance, read(row), t, number) if audit else None)
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
