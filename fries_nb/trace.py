"""What happened, as records, in the order in which it happened at each worker.

A record is a data operation (Fries, definition 4.3) or a function update (definition 4.5). Operations conflict only on
one operator (definition 4.6), hence at one worker; so a trace that keeps each worker's own order says all that
conflict-serializability needs, in whatever way the workers' records are interleaved.

>>> print(to_line(Ran("t1", "FM")))
{"kind":"data","transaction":"t1","operator":"FM","worker":0}
>>> from_line('{"kind":"update","id":"u1","operator":"FM"}')
Updated(id='u1', operator='FM', worker=0, before='')
"""

from __future__ import annotations

import msgspec

from fries_nb.errors import TraceError


class Ran(msgspec.Struct, frozen=True, tag_field="kind", tag="data"):
    """A data operation: ``operator`` processed a tuple that derives from source tuple ``transaction``."""

    transaction: str | int
    operator: str
    worker: int = 0


class Updated(msgspec.Struct, frozen=True, tag_field="kind", tag="update"):
    """A function update: at this worker, ``operator`` switched to the configuration of change ``id``.

    ``before`` names a change that is ordered behind this one at every worker, and replaces the same function: a worker
    that has applied that one skips this one.
    """

    id: str | int
    operator: str
    worker: int = 0
    before: str = ""


class RanMany(msgspec.Struct, frozen=True, tag_field="kind", tag="data_many"):
    """Data operations of one worker in a row, kept together because there are many."""

    transactions: tuple[int, ...]
    operator: str
    worker: int = 0


Record = Ran | Updated | RanMany

_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def to_line(record: Record) -> str:
    """The record as one JSON line."""
    return msgspec.json.encode(record).decode()


def from_line(line: str | bytes) -> Record:
    """The record in a JSON line.

    Raises:
        TraceError: it is not one; shows the line.
    """
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        shown = line if isinstance(line, str) else line.decode(errors="replace")
        raise TraceError(
            f"not a trace record: {shown.strip()[:120]!r} ({error}); "
            'expected {"kind":"data","transaction":...,"operator":...} or {"kind":"update","id":...,"operator":...}'
        ) from None
