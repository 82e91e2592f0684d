"""Partitioning of tuples: a stable hash of the key determines a bin, and bins are assigned to workers.

The hash must be equal in every process and for every batch, and for keys that are equal (see ``dataflow.keys``), so it
depends on the values of the key only: 1, 1.0 and True are in one bin, as are all times of one instant. All functions
work on whole columns.

>>> import pyarrow as pa
>>> bins = bins_of_values([pa.array([4963, 4963, 7])])
>>> bool(bins[0] == bins[1]), bool((bins < BINS).all())
(True, True)
>>> same = bins_of_values([pa.array([4963.0, 7.0])])
>>> bool(same[0] == bins[0]), bool(same[1] == bins[2])
(True, True)

Routing tables as values: which worker of a keyed operator owns each bin of the key space.

An operator whose bins have never moved needs no table: its bins are dealt in contiguous ranges
(``partitioning.routing_table``).

>>> two = RoutingTable.even(2)
>>> moves = two.moves_to(RoutingTable.even(3))
>>> moves[400], moves[1023], len(moves)
((0, 1), (1, 2), 511)
>>> two.moved(moves) == RoutingTable.even(3), two.width, RoutingTable.even(3).width
(True, 2, 3)

Identities and cohorts: rows are divided into 65,536 cohorts, by a hash of a column that their source names, otherwise
of their identity. It is the same hash as of keys, but other bits of it, so each bin has rows of all cohorts.

>>> batch = pa.RecordBatch.from_pydict({TRANSACTION: pa.array([7, 8, 7])})
>>> found = cohorts(batch)
>>> identities(batch).tolist(), bool(found[0] == found[2] != found[1])
([7, 8, 7], True)
>>> of_customers = [cohorts_of([pa.array([5, None], kind)]).tolist() for kind in (pa.int32(), pa.float64())]
>>> of_customers[0] == of_customers[1]
True
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fries_nb.dataflow.columns import COHORT, TRANSACTION
from fries_nb.dataflow.keys import canonical_key, is_uuid, refuse_as_key
from fries_nb.errors import DataflowError

Moves = dict[int, tuple[int, int]]
"""Bin to the index of its owner before and after."""
_PACKED = np.dtype("<u2")


@dataclass(frozen=True)
class RoutingTable:
    """The owner of each bin.

    Attributes:
        packed: for each bin the index of the worker that owns it, as an unsigned 16-bit number, little-endian.
    """

    packed: bytes

    def __post_init__(self) -> None:
        if len(self.packed) != BINS * _PACKED.itemsize:
            raise DataflowError(f"a routing table has {len(self.packed) // 2} bins; expected {BINS}")

    @classmethod
    def of(cls, owners: Iterable[int]) -> RoutingTable:
        """The table with these owners, bin by bin."""
        return cls(np.fromiter(owners, dtype=_PACKED).tobytes())

    @classmethod
    def even(cls, workers: int) -> RoutingTable:
        """The table of an operator whose bins have never moved."""
        return cls(routing_table(workers).astype(_PACKED).tobytes())

    @cached_property
    def owners(self) -> Bins:
        """The owner of each bin, as an array; not to be changed."""
        owners = np.frombuffer(self.packed, dtype=_PACKED).astype(np.int64)
        owners.flags.writeable = False
        return owners

    @property
    def width(self) -> int:
        """The number of workers that it needs: one more than the highest index of an owner."""
        return int(self.owners.max()) + 1

    def owns(self, worker: int) -> bool:
        """Whether the worker with this index owns any bin."""
        return bool((self.owners == worker).any())

    def moves_to(self, target: RoutingTable) -> Moves:
        """The bins whose owner is another one in this table, in order."""
        differ = np.flatnonzero(self.owners != target.owners).tolist()
        return {bin_: (int(self.owners[bin_]), int(target.owners[bin_])) for bin_ in differ}

    def moved(self, moves: Mapping[int, tuple[int, int]]) -> RoutingTable:
        """The table after these moves."""
        owners = self.owners.copy()
        owners[list(moves)] = [after for _, after in moves.values()]
        return RoutingTable.of(owners.tolist())


BINS = 1024
"""Number of bins of the key space; larger than any number of workers."""

MOST_KNOWN = 100_000
"""Number of single keys that are cached before the cache is cleared."""

Bins = npt.NDArray[np.int64]
_EXACT = Context(prec=80)
_NAN = np.uint64(0x7FF8000000000000)
"""The canonical bits of NaN; NaNs of all bit patterns are one key."""
_NULL = np.uint64(0x9E3779B97F4A7C15)
_COHORT_OF_0 = np.uint16(0xA5C3)
"""The cohort of a key 0, which may stand for all that are unknown, and is its own hash."""
_EPOCH, _EPOCH_UTC = datetime(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)
_US_IN = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY_MS = 86_400_000
_64_BITS = 2**64 - 1
_BEYOND = 54
"""By how many bits nanoseconds are shifted in the hash input, so that they do not overlap microseconds."""


def bins_of_values(columns: Sequence[pa.Array]) -> Bins:
    """The bin, 0 to ``BINS`` - 1, of each row of these key columns of equal length, of types that keys can have."""
    return _bins([_hash(column) for column in columns])


def _bins(hashed: Sequence[npt.NDArray[np.uint64]]) -> Bins:
    return (_combined(hashed) % np.uint64(BINS)).astype(np.int64)


def _combined(hashed: Sequence[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    mixed = hashed[0]
    for column in hashed[1:]:
        mixed = _mix(mixed * np.uint64(31) + column)
    return mixed


def identities(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The identity of the source tuple from which each row derives, not copied; a ``KeyError`` if it has none."""
    found: npt.NDArray[np.int64] = batch.column(TRANSACTION).to_numpy(zero_copy_only=True)
    return found


def cohorts(batch: pa.RecordBatch) -> npt.NDArray[np.uint16]:
    """The cohort of each row, stable as its identity is; a ``KeyError`` if it has neither cohort nor identity."""
    if batch.schema.get_field_index(COHORT) < 0:
        return _cohorts(_mix(identities(batch).view(np.uint64)))
    found: npt.NDArray[np.uint16] = batch.column(COHORT).to_numpy(zero_copy_only=True)
    return found


def sample_order(batch: pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """A hash of the identity of each row that says nothing of its cohort, nor of its bin."""
    return _mix(_mix(identities(batch).view(np.uint64)) ^ _SAMPLING)


_SAMPLING = np.uint64(0xD1B54A32D192ED03)


def cohorts_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint16]:
    """The cohort of each row of these columns, of types that keys can have; a null is a value of its own."""
    return _cohorts(_combined([_hash(column) for column in columns]))


COHORTS = 1 << 16
"""The number of cohorts."""


def _cohorts(hashed: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
    """The highest bits of a hash, since bins, and so workers, depend on its lowest ones; that of 0 is not the first."""
    return (hashed >> np.uint64(48)).astype(np.uint16) ^ _COHORT_OF_0


def bins_of_keys(keys: Sequence[Any]) -> Bins:
    """The bin of each canonical key, a value or a tuple of values; equal to that of the rows with this key.

    Equal values of several types are one key, so keys of one column may have several types.

    >>> bins_of_keys([7, 7.5, "a"]).tolist() == [
    ...     int(bins_of_values([pa.array([key])])[0]) for key in (7, 7.5, "a")]
    True
    """
    columns = zip(*keys, strict=True) if keys and isinstance(keys[0], tuple) else [keys]
    return _bins([_hash_of_values(column) for column in columns])


class Binning:
    """The bins of batches by some key columns.

    At low rates every tuple is a batch of its own, so the bins of single rows are cached: a lookup costs a tenth of the
    computation over columns.

    >>> binning = Binning(("c",))
    >>> lone = pa.RecordBatch.from_pydict({"c": [4963]})
    >>> binning.of(lone).tolist() == binning.of(lone).tolist() == bins_of_values(lone.columns).tolist()
    True
    """

    def __init__(self, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self._known: dict[tuple[object, ...], Bins] = {}

    def of(self, batch: pa.RecordBatch) -> Bins:
        """The bin of each row."""
        columns = [batch.column(name) for name in self._key]
        refuse_as_key(zip(self._key, columns, strict=True))
        if batch.num_rows != 1:
            return bins_of_values(columns)
        lone = canonical_key(tuple([column[0].as_py() for column in columns]))
        found = self._known.get(lone)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[lone] = bins_of_values(columns)
        return found


def routing_table(workers: int) -> Bins:
    """Bin to worker index: contiguous ranges of bins, of equal size to within one."""
    return (np.arange(BINS, dtype=np.int64) * workers) // BINS


def owners_by(packed: bytes | None, workers: int) -> Bins:
    """The owner of each bin: by a packed table, or dealt evenly."""
    return routing_table(workers) if packed is None else RoutingTable(packed).owners


def partition(batch: pa.RecordBatch, targets: Bins, workers: int) -> list[tuple[int, pa.RecordBatch]]:
    """Split a batch by target worker; keeps the order of rows, and omits workers without rows."""
    first = int(targets[0])
    if targets.size == 1 or bool((targets == first).all()):
        return [(first, batch)]
    counts = np.bincount(targets, minlength=workers).tolist()
    # Numbers of 16 bits are sorted by radix, in a quarter of the time of those of 64.
    order = targets.astype(_PACKED).argsort(kind="stable")
    sorted_batch = pc.take(batch, pa.array(order), boundscheck=False)
    parts = []
    start = 0
    for worker, count in enumerate(counts):
        if count:
            parts.append((worker, sorted_batch.slice(start, count)))
            start += count
    return parts


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: every input bit affects every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hash(column: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    elif is_uuid(column.type):
        column = column.storage
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    bits = _column_bits(column) if nulls is None or not nulls.all() else np.zeros(len(column), dtype=np.uint64)
    return _mix(bits) if nulls is None else np.where(nulls, _NULL, _mix(bits))


def _column_bits(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Hash input of a column; nulls have any."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        filled = column.fill_null(False if pa.types.is_boolean(kind) else 0) if column.null_count else column
        return _bits(filled.to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(kind):
        return _ticks_bits(column)
    coded = column.dictionary_encode()
    bits = [_bits_of_value(value) for value in coded.dictionary.to_pylist()]
    indices = coded.indices.fill_null(0) if coded.indices.null_count else coded.indices
    found: npt.NDArray[np.uint64] = np.array(bits, dtype=np.uint64)[indices.to_numpy(zero_copy_only=False)]
    return found


def _ticks_bits(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Hash input of dates, as days, and of times and durations, as microseconds, with the nanoseconds beyond."""
    kind, width = column.type, pa.int32() if column.type.bit_width == 32 else pa.int64()
    view = column.view(width)
    ticks = (view.fill_null(0) if view.null_count else view).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_date(kind):
        ticks = ticks // _DAY_MS if kind.bit_width == 64 else ticks
    elif kind.unit != "ns":
        ticks = ticks * _US_IN[kind.unit]
    else:
        whole, beyond = np.divmod(ticks, 1_000)
        ticks = whole if pa.types.is_time(kind) else whole ^ (beyond << _BEYOND)  # Python's times of day have none
    bits: npt.NDArray[np.uint64] = ticks.view(np.uint64)
    return bits


def _bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """Hash input of numbers: integral values of any type as 64-bit integers, all others as the bits of a float."""
    if values.dtype.kind != "f":
        return values.astype(np.int64).view(np.uint64) if values.dtype != np.uint64 else values.astype(np.uint64)
    floats = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = floats.astype(np.int64)
        large = floats.astype(np.uint64)
    exact = (whole == floats) & (floats >= -(2.0**63)) & (floats < 2.0**63)
    bits: npt.NDArray[np.uint64] = np.where(exact, whole.view(np.uint64), floats.view(np.uint64))
    bits = np.where((floats >= 2.0**63) & (floats < 2.0**64), large, bits)
    return np.where(np.isnan(floats), _NAN, bits)


def _hash_of_values(values: Sequence[Any]) -> npt.NDArray[np.uint64]:
    """The ``_hash`` of a column with these values; faster if they have one common type."""
    kinds = set(map(type, values))
    if kinds == {int} or kinds == {float}:
        with suppress(OverflowError):  # integers that only fit without a sign
            return _mix(_bits(np.array(values, dtype=np.float64 if kinds == {float} else np.int64)))
    hashed = _mix(np.array([_bits_of_value(value) for value in values], dtype=np.uint64))
    return np.where([value is None for value in values], _NULL, hashed) if type(None) in kinds else hashed


def _bits_of_value(value: Any) -> int:
    """Hash input of one canonical key; of none if it is ``None``."""
    if isinstance(value, str):
        return zlib.crc32(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (int, float, Decimal)):
        return _bits_of_number(value)
    if isinstance(value, datetime):
        since = value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)
        return _bits_of_duration(since, getattr(value, "nanosecond", 0))
    if isinstance(value, date):
        return (value.toordinal() - _EPOCH.toordinal()) & _64_BITS
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, timedelta):
        return _bits_of_duration(value, getattr(value, "nanoseconds", 0))
    return 0 if value is None else zlib.crc32(getattr(value, "bytes", value))  # a UUID has them


def _bits_of_duration(value: timedelta, beyond: int) -> int:
    whole = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return (whole ^ (beyond << _BEYOND)) & _64_BITS


def _bits_of_number(value: int | float | Decimal) -> int:
    """Hash input of a number, whatever its type and its scale: Decimal(1), 1, 1.0 and True are one key."""
    if value != value:
        return int(_NAN)
    if -(2**63) <= value < 2**64 and value == int(value):
        return int(value) & _64_BITS
    with suppress(OverflowError):
        if value == (near := float(value)):
            return int.from_bytes(struct.pack("<d", near), "little")
    return zlib.crc32(str(_EXACT.normalize(Decimal(value))).encode())
