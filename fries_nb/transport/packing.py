"""Compact encoding of trace records on their way to the driver: the operations of a run are one block of memory.

Sources at full speed cause tens of millions of operations per second. Decoding each to a Python integer would occupy
the driver for seconds, and take five times the memory.

>>> run = RanMany((7, 8, 9), "FM", 1)
>>> packed = pack(run)
>>> len(packed.transactions), unpack(packed) == run
(24, True)
"""

from __future__ import annotations

import msgspec
import numpy as np

from fries_nb.trace import Began, Emitted, Matched, Ran, RanMany, Updated, WorkerRecord, Wrote


class PackedRun(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed"):
    """A ``RanMany`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    operator: str
    worker: int
    function: str | None = None


class PackedEmitted(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed_emitted"):
    """An ``Emitted`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    extra: int
    operator: str
    worker: int
    branch: int = 0


class PackedBegan(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed_began"):
    """A ``Began`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    operator: str
    worker: int
    function: str | None = None


Packed = Ran | Updated | Wrote | Matched | PackedRun | PackedEmitted | PackedBegan


def pack(record: WorkerRecord) -> Packed:
    """The record in its compact encoding, in which it is also kept."""
    match record:
        case RanMany(transactions, operator, worker, function):
            return PackedRun(_packed(transactions), operator, worker, function)
        case Emitted(transactions, extra, operator, worker, branch):
            return PackedEmitted(_packed(transactions), extra, operator, worker, branch)
        case Began(transactions, operator, worker, function):
            return PackedBegan(_packed(transactions), operator, worker, function)
    return record


def unpack(packed: Packed) -> WorkerRecord:
    """The original record."""
    match packed:
        case PackedRun(transactions, operator, worker, function):
            return RanMany(_unpacked(transactions), operator, worker, function)
        case PackedEmitted(transactions, extra, operator, worker, branch):
            return Emitted(_unpacked(transactions), extra, operator, worker, branch)
        case PackedBegan(transactions, operator, worker, function):
            return Began(_unpacked(transactions), operator, worker, function)
    return packed


def _packed(transactions: tuple[str | int, ...]) -> bytes:
    return np.array(transactions, "<i8").tobytes()


def _unpacked(transactions: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(transactions, "<i8").tolist())
