"""What happened, as records, in the order in which it happened at each worker.

A record is a data operation (Fries, definition 4.3) or a function update (definition 4.5). Operations conflict only on
one operator (definition 4.6), hence at one worker; so a trace that keeps each worker's own order says all that
conflict-serializability needs, in whatever way the workers' records are interleaved.

>>> print(to_line(Ran("t1", "FM")))
{"kind":"data","transaction":"t1","operator":"FM"}
>>> from_line('{"kind":"update","id":"u1","operator":"FM"}')
Updated(id='u1', operator='FM', worker=0, before='')
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from fries_nb.dataflow.graph import Edge, Graph, Partitioning
from fries_nb.errors import TraceError

ROW_BITS = 40
"""Of a source tuple's identity as a number: its row at its source's worker; above them is the number of that worker."""


class Ran(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="data"):
    """A data operation: ``operator`` processed a tuple that derives from source tuple ``transaction``.

    ``function`` is the change that brought the function which really ran (empty: the first one), where that is known.
    """

    transaction: str | int
    operator: str
    worker: int = 0
    function: str | None = None


class Updated(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="update"):
    """A function update: at this worker, ``operator`` switched to the configuration of change ``id``.

    ``before`` names a change that is ordered behind this one at every worker, and replaces the same function: a worker
    that has applied that one skips this one.
    """

    id: str | int
    operator: str
    worker: int = 0
    before: str = ""


class RanMany(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="data_many"):
    """Data operations of one worker in a row, by one function, kept together because there are many."""

    transactions: tuple[str | int, ...]
    operator: str
    worker: int = 0
    function: str | None = None


class Emitted(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="emitted"):
    """The function emitted not one tuple for each of these that it took, but ``extra`` more (-1: it dropped them).

    ``branch`` is a split's output; on branch 0 one tuple is expected, on the others none.
    """

    transactions: tuple[str | int, ...]
    extra: int
    operator: str
    worker: int = 0
    branch: int = 0


class Wrote(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="wrote"):
    """So much this worker has written into the trace, in all and in front of this record.

    Attributes:
        ran: data operations, of ``Ran`` and ``RanMany`` together.
        updated: function updates.
        emitted: transactions of ``Emitted``.
        function: the change that brought the function which the operator is to run; empty for its first one.
        ended: the worker has ended, and writes nothing more.
        spent: it had ended before the hosts were started (again), and does nothing here.
    """

    operator: str
    worker: int = 0
    ran: int = 0
    updated: int = 0
    emitted: int = 0
    function: str = ""
    ended: bool = False
    spent: bool = False


class Link(msgspec.Struct, frozen=True):
    """What ``source`` emits on ``branch`` comes to ``to``, so many ``copies`` of each tuple."""

    source: str
    to: str
    branch: int = 0
    copies: int = 1


class TraceFlow(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="flow"):
    """What ran: a trace that begins with it claims to be complete.

    Attributes:
        workers: operator to the number of its workers.
        links: the edges.
        resumed: the run began at a checkpoint of an earlier one, whose trace is not here.
        finished: the run has finished: every worker has ended.
    """

    workers: dict[str, int]
    links: tuple[Link, ...]
    resumed: bool = False
    finished: bool = False


WorkerRecord = Ran | Updated | RanMany | Emitted | Wrote
Record = WorkerRecord | TraceFlow


class Counts(NamedTuple):
    """Numbers of records of one worker, as in ``Wrote``."""

    ran: int = 0
    updated: int = 0
    emitted: int = 0

    @property
    def as_tuple(self) -> tuple[int, int, int]:
        """As it is kept in a snapshot."""
        return self.ran, self.updated, self.emitted

    def with_record(self, record: Record) -> Counts:
        """The numbers with one more record."""
        match record:
            case Ran():
                return self._replace(ran=self.ran + 1)
            case RanMany():
                return self._replace(ran=self.ran + len(record.transactions))
            case Updated():
                return self._replace(updated=self.updated + 1)
            case Emitted():
                return self._replace(emitted=self.emitted + len(record.transactions))
        return self


def flow_of(graph: Graph, resumed: bool = False, finished: bool = False) -> TraceFlow:
    """What a graph says about its traces."""
    links = tuple(
        Link(edge.source, edge.to, edge.branch, graph.operator(edge.to).workers if _broadcasts(edge) else 1)
        for edge in graph.edges
    )
    return TraceFlow({one.name: one.workers for one in graph.operators}, links, resumed, finished)


def _broadcasts(edge: Edge) -> bool:
    return edge.partitioning is Partitioning.BROADCAST


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
