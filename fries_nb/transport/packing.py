"""A trace on its way to the driver: a run of data operations is one block of memory, not a million objects.

Sources that run flat out make tens of millions of operations a second. Decoding each to a Python integer would keep
the driver from its other work for seconds, and would hold five times the memory.

>>> run = RanMany((7, 8, 9), "FM", 1)
>>> packed = pack(run)
>>> len(packed.transactions), unpack(packed) == run
(24, True)
"""

from __future__ import annotations

import msgspec
import numpy as np

from fries_nb.trace import Emitted, Ran, RanMany, Updated, WorkerRecord, Wrote


class PackedRun(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed"):
    """A ``RanMany`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    operator: str
    worker: int
    function: str | None = None


class PackedEmitted(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed_emitted"):
    """An ``Emitted``, likewise."""

    transactions: bytes
    extra: int
    operator: str
    worker: int
    branch: int = 0


Packed = Ran | Updated | Wrote | PackedRun | PackedEmitted


def pack(record: WorkerRecord) -> Packed:
    """The record as it travels and is kept."""
    match record:
        case RanMany(transactions, operator, worker, function):
            return PackedRun(_packed(transactions), operator, worker, function)
        case Emitted(transactions, extra, operator, worker, branch):
            return PackedEmitted(_packed(transactions), extra, operator, worker, branch)
    return record


def unpack(packed: Packed) -> WorkerRecord:
    """The record as it was."""
    match packed:
        case PackedRun(transactions, operator, worker, function):
            return RanMany(_unpacked(transactions), operator, worker, function)
        case PackedEmitted(transactions, extra, operator, worker, branch):
            return Emitted(_unpacked(transactions), extra, operator, worker, branch)
    return packed


def _packed(transactions: tuple[str | int, ...]) -> bytes:
    return np.array(transactions, "<i8").tobytes()


def _unpacked(transactions: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(transactions, "<i8").tolist())
