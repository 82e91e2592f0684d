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

from fries_nb.trace import Ran, RanMany, Record, Updated


class PackedRun(msgspec.Struct, frozen=True, tag_field="kind", tag="packed"):
    """A ``RanMany`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    operator: str
    worker: int


Packed = Ran | Updated | PackedRun


def pack(record: Record) -> Packed:
    """The record as it travels and is kept."""
    if isinstance(record, RanMany):
        return PackedRun(np.array(record.transactions, "<i8").tobytes(), record.operator, record.worker)
    return record


def unpack(packed: Packed) -> Record:
    """The record as it was."""
    if isinstance(packed, PackedRun):
        return RanMany(tuple(np.frombuffer(packed.transactions, "<i8").tolist()), packed.operator, packed.worker)
    return packed
