"""Partitioning of tuples: a stable hash of the key determines a bin, and bins are assigned to workers.

The hash must be equal in every process and for every batch, so it depends on the values of the key only: 1, 1.0 and
True are in one bin, since they are one key of a dict. All functions work on whole columns.

>>> import pyarrow as pa
>>> bins = bins_of_values([pa.array([4963, 4963, 7])])
>>> bool(bins[0] == bins[1]), bool((bins < BINS).all())
(True, True)
>>> same = bins_of_values([pa.array([4963.0, 7.0])])
>>> bool(same[0] == bins[0]), bool(same[1] == bins[2])
(True, True)
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from contextlib import suppress
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BINS = 1024
"""Number of bins of the key space; larger than any number of workers."""

MOST_KNOWN = 100_000
"""Number of single keys that are cached before the cache is cleared."""

Bins = npt.NDArray[np.int64]
_EXACT = Context(prec=80)
_NAN = np.uint64(0x7FF8000000000000)
"""The canonical bits of NaN; NaNs of all bit patterns are one key."""
_NULL = np.uint64(0x9E3779B97F4A7C15)


def bins_of_values(columns: Sequence[pa.Array]) -> Bins:
    """The bin, 0 to ``BINS`` - 1, of each row of these key columns of equal length.

    Raises:
        pyarrow.ArrowNotImplementedError: a column of lists or structs, which cannot be a key.
    """
    return _bins([_hash(column) for column in columns])


def _bins(hashed: Sequence[npt.NDArray[np.uint64]]) -> Bins:
    mixed = hashed[0]
    for column in hashed[1:]:
        mixed = _mix(mixed * np.uint64(31) + column)
    return (mixed % np.uint64(BINS)).astype(np.int64)


def bins_of_keys(keys: Sequence[Any]) -> Bins:
    """The bin of each key, a value or a tuple of values; equal to that of the rows with this key.

    Equal values of several types are one key of a dict, so keys of one column may have several types.

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
        """The bin of each row.

        Raises:
            KeyError: a key column is missing.
            pyarrow.ArrowNotImplementedError: a column of lists or structs, which cannot be a key.
        """
        columns = [batch.column(name) for name in self._key]
        if batch.num_rows != 1 or any(pa.types.is_nested(column.type) for column in columns):
            return bins_of_values(columns)
        values = [column[0].as_py() for column in columns]
        lone = (*values, *map(type, values))  # with types, since 1 and Decimal(1) are equal but hashed differently
        found = self._known.get(lone)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[lone] = bins_of_values(columns)
        return found


def routing_table(workers: int) -> Bins:
    """Bin to worker index: contiguous ranges of bins, of equal size to within one."""
    return (np.arange(BINS, dtype=np.int64) * workers) // BINS


def partition(batch: pa.RecordBatch, targets: Bins, workers: int) -> list[tuple[int, pa.RecordBatch]]:
    """Split a batch by target worker; keeps the order of rows, and omits workers without rows.

    Args:
        batch: the rows.
        targets: worker index of each row.
        workers: number of workers.
    """
    first = int(targets[0])
    if targets.size == 1 or bool((targets == first).all()):
        return [(first, batch)]
    counts = np.bincount(targets, minlength=workers).tolist()
    sorted_batch = batch.take(pa.array(targets.argsort(kind="stable")))
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
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
        filled = column.fill_null(False if pa.types.is_boolean(kind) else 0) if nulls is not None else column
        hashed = _mix(_bits(filled.to_numpy(zero_copy_only=False)))
        return hashed if nulls is None else np.where(nulls, _NULL, hashed)
    coded = column.dictionary_encode()
    digests = [_NULL if value is None else _digest(value) for value in coded.dictionary.to_pylist()]
    table = np.array([*digests, _NULL], dtype=np.uint64)
    indices = coded.indices.fill_null(len(digests)) if coded.indices.null_count else coded.indices
    codes = indices.to_numpy(zero_copy_only=False)
    hashes: npt.NDArray[np.uint64] = table[codes]
    return hashes


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
    """The ``_hash_of_value`` of each value; of all at once if they have one common type, fifty times faster."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return _mix(np.array([zlib.crc32(value.encode()) for value in values], dtype=np.uint64))
    if kinds == {int} or kinds == {float}:
        with suppress(OverflowError):  # integers that only fit without a sign
            return _mix(_bits(np.array(values, dtype=np.float64 if kinds == {float} else np.int64)))
    return np.array([_hash_of_value(value) for value in values], dtype=np.uint64)


def _hash_of_value(value: object) -> int:
    """The ``_hash`` of a column with this one value."""
    if value is None:
        return int(_NULL)
    if isinstance(value, (bool, int, float)):
        kind = np.float64 if isinstance(value, float) else np.int64 if value < 2**63 else np.uint64
        return int(_mix(_bits(np.array([value], dtype=kind)))[0])
    return _digest(value)


def _digest(value: object) -> int:
    if isinstance(value, Decimal):
        return _digest_of_decimal(value)
    text = value if isinstance(value, bytes) else str(value).encode()
    return int(_mix(np.array([zlib.crc32(text)], dtype=np.uint64))[0])


def _digest_of_decimal(value: Decimal) -> int:
    """Digest of the value, whatever its scale: 1.5 and 1.50 are one key of a dict, as are Decimal(1), 1 and 1.0."""
    if value.is_nan():
        return int(_mix(np.array([_NAN]))[0])
    if value == int(value) and -(2**63) <= value < 2**64:
        kind = np.int64 if value < 2**63 else np.uint64
        return int(_mix(np.array([int(value)], dtype=kind).view(np.uint64))[0])
    if value == float(value):
        return int(_mix(np.array([float(value)]).view(np.uint64))[0])
    return int(_mix(np.array([zlib.crc32(str(_EXACT.normalize(value)).encode())], dtype=np.uint64))[0])
