"""Trace records: the operations of a run, in the order in which each worker performed them.

A record is a data operation (Fries, definition 4.3) or a function update (definition 4.5). Operations conflict only on
the same operator (definition 4.6), hence at one worker. So a trace that keeps the order of each worker's records
determines conflict-serializability, however the records of different workers are interleaved.

>>> print(to_line(Ran("t1", "FM")))
{"kind":"data","transaction":"t1","operator":"FM"}
>>> from_line('{"kind":"update","id":"u1","operator":"FM"}')
Updated(id='u1', operator='FM', worker=0, before='', edges=False, steps=())
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from fries_nb.dataflow.graph import Edge, Emits, Graph, Operator, Partitioning, without_shadows
from fries_nb.errors import TraceError

ROW_BITS = 40
"""Number of bits of a source tuple's identity that hold its row in its split; higher bits hold the split."""

SPLIT_BITS = 10
"""Number of bits of a source tuple's identity that hold its split; higher bits hold its source."""

_COLUMNS = 3
"""Number of columns of a source tuple that are shown."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 24


@dataclass(frozen=True, slots=True)
class SourceRow:
    """The row of a source that a source tuple's identity stands for.

    Attributes:
        source: the name of the source.
        number: the number of the row in the source, from 0.
        values: its columns; empty if the source cannot read a row again by its number.
        unread: why it could not be read again, if its source should have been able to.
    """

    source: str
    number: int
    values: Mapping[str, Any] = field(default_factory=dict)
    unread: str = ""

    @property
    def shown(self) -> str:
        """Its first columns on one line, or why there are none; empty if its source has no way to read it.

        >>> SourceRow("payments", 7, {"id": 7, "shop": "a", "amount": 1.5, "more": 0}).shown
        "id 7, shop 'a', amount 1.5, ..."
        """
        if self.unread:
            return f"cannot be read again: {self.unread}"
        first = [f"{name} {_SHORT.repr(value)}" for name, value in islice(self.values.items(), _COLUMNS)]
        return ", ".join([*first, "..."] if len(self.values) > _COLUMNS else first)


def place_of(identity: int) -> tuple[int, int, int]:
    """The source, the split and the row in the split of a source tuple.

    >>> place_of((((2 << SPLIT_BITS) + 5) << ROW_BITS) + 7)
    (2, 5, 7)
    """
    number, row = divmod(identity, 1 << ROW_BITS)
    return *divmod(number, 1 << SPLIT_BITS), row


def identity_of(source: int, split: int, row: int) -> int:
    """The identity of a source tuple, of which ``place_of`` is the inverse.

    >>> place_of(identity_of(2, 5, 7))
    (2, 5, 7)
    """
    return (((source << SPLIT_BITS) + split) << ROW_BITS) + row


class Ran(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="data"):
    """A data operation: ``operator`` processed a tuple that derives from source tuple ``transaction``.

    ``function`` is the change that installed the function that ran (empty: the initial one), if known.
    """

    transaction: str | int
    operator: str
    worker: int = 0
    function: str | None = None


class Updated(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="update"):
    """A function update: at this worker, ``operator`` switched to the configuration of change ``id``.

    ``before`` names a change that is ordered after this one at every worker and replaces the same function: a worker
    that has applied that one skips this one. With ``edges``, a change of the shape has added the operator, or replaced
    the edges on which it sends, and its function runs on. With ``steps``, each a cut (origin to position) and a share,
    the function that processes a row follows from its identity (see ``rollout``).
    """

    id: str | int
    operator: str
    worker: int = 0
    before: str = ""
    edges: bool = False
    steps: tuple[tuple[dict[int, int], float], ...] = ()


class Choices(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="choices"):
    """The functions among which the rows of a worker choose from now on: it was restored, or has dropped one.

    Each choice is a change that is decided row by row, its steps as in ``Updated``, and the change that has installed
    the function of the rows that are old for it. ``last`` has installed that of all others.
    """

    choices: tuple[tuple[str | int, tuple[tuple[dict[int, int], float], ...], str], ...]
    operator: str
    worker: int = 0
    last: str = ""


class RanMany(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="data_many"):
    """Consecutive data operations of one worker with one function, in compact form."""

    transactions: tuple[str | int, ...]
    operator: str
    worker: int = 0
    function: str | None = None


class Emitted(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="emitted"):
    """For each of these transactions the function emitted ``extra`` tuples more than expected (-1: one less).

    Expected are one tuple on branch 0 and none on other branches; ``branch`` is an output of a split.
    """

    transactions: tuple[str | int, ...]
    extra: int
    operator: str
    worker: int = 0
    branch: int = 0


class Began(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="began"):
    """Transactions that begin at this operator, each with one row on branch 0 that time has brought out of it.

    ``function`` is the change that installed the function that made the rows (empty: the initial one), if known.
    """

    transactions: tuple[str | int, ...]
    operator: str
    worker: int = 0
    function: str | None = None


class Requeued(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="requeued"):
    """Transactions that begin at this operator, each with a row of a dead letter that has been given back to it."""

    transactions: tuple[str | int, ...]
    operator: str
    worker: int = 0


class Matched(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="matched"):
    """The keys of these transactions' tuples at an operator that compares them: a dedup, or one side of a self-join.

    Attributes:
        transactions: the transactions, one for each tuple.
        keys: the key of each tuple, as text; equal keys have equal texts.
        operator: the operator.
        worker: index of the worker.
        side: the input, ``left`` or ``right``; empty for a dedup.
        emitted: whether a tuple left for each of these: the first one with its key, or the second half of a pair.
    """

    transactions: tuple[str | int, ...]
    keys: tuple[str, ...]
    operator: str
    worker: int = 0
    side: str = ""
    emitted: bool = False


class Wrote(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="wrote"):
    """Record counts: the number of records that this worker has written to the trace before this one.

    Attributes:
        operator: the operator.
        worker: index of the worker.
        ran: number of data operations, in ``Ran`` and ``RanMany`` together.
        updated: number of function updates.
        emitted: number of transactions in ``Emitted``, ``Began`` and ``Matched`` together.
        function: the change that installed the operator's current function; empty for the initial one.
        ended: whether the worker has ended and writes no further records.
        spent: whether it had ended before the hosts were started or restarted, so that it writes no other records.
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
    """An edge: tuples that ``source`` emits on ``branch`` arrive at ``to``, ``copies`` times each."""

    source: str
    to: str
    branch: int = 0
    copies: int = 1


class OneToOne(msgspec.Struct, frozen=True):
    """A loop that is declared to let one tuple out for each that enters, and the edges of both."""

    loop: str
    entries: tuple[Link, ...]
    exits: tuple[Link, ...]


class TraceFlow(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="flow"):
    """The description of the run at the beginning of a trace; with it, the trace must be complete.

    Attributes:
        workers: operator to the number of its workers.
        links: the edges.
        resumed: whether the run was resumed from a checkpoint of an earlier one, whose trace is not included.
        finished: whether every worker has ended.
        one_to_one: the loops that are declared so.
        before: the changes that this checkpoint includes. All tuples of the trace come after them; only workers that
            the earlier run did not have record them.
        shape: the change of the shape that has made this dataflow of the one before; empty for the first one. Tuples
            go along the links of the last one that the operator, at its worker, has switched to.
        cohorts: whether rows have the cohorts of a column, which the trace does not have.
    """

    workers: dict[str, int]
    links: tuple[Link, ...]
    resumed: bool = False
    finished: bool = False
    one_to_one: tuple[OneToOne, ...] = ()
    before: tuple[str | int, ...] = ()
    shape: str = ""
    cohorts: bool = False


class EarlierRecords(msgspec.Struct, frozen=True):
    """What the trace holds of earlier workers of a worker's index, whose records those of the worker continue.

    Attributes:
        counts: their number, as in ``Wrote``: data operations, function updates, and transactions emitted, begun or
            matched.
        updated: the changes whose function updates are among them, in order.
    """

    counts: tuple[int, int, int]
    updated: tuple[str | int, ...] = ()


WorkerRecord = Ran | Updated | Choices | RanMany | Emitted | Began | Requeued | Matched | Wrote
Record = WorkerRecord | TraceFlow


class Counts(NamedTuple):
    """Record counts of one worker, as in ``Wrote``."""

    ran: int = 0
    updated: int = 0
    emitted: int = 0

    @property
    def as_tuple(self) -> tuple[int, int, int]:
        """The counts in the form of ``Snapshot.traced``."""
        return self.ran, self.updated, self.emitted

    def with_record(self, record: Record) -> Counts:
        """The counts including one more record."""
        match record:
            case Ran():
                return self._replace(ran=self.ran + 1)
            case RanMany():
                return self._replace(ran=self.ran + len(record.transactions))
            case Updated():
                return self._replace(updated=self.updated + 1)
            case Emitted() | Began() | Requeued() | Matched():
                return self._replace(emitted=self.emitted + len(record.transactions))
        return self


def earlier_records(records: Iterable[WorkerRecord]) -> EarlierRecords:
    """Summarise the records of one worker.

    >>> earlier_records([Ran("t1", "FM"), Updated("u1", "FM"), Ran("t2", "FM")])
    EarlierRecords(counts=(2, 1, 0), updated=('u1',))
    """
    counts, updated = Counts(), []
    for record in records:
        counts = counts.with_record(record)
        if isinstance(record, Updated):
            updated.append(record.id)
    return EarlierRecords(counts.as_tuple, tuple(updated))


def last_word(operator: str, worker: int, records: Iterable[WorkerRecord]) -> Wrote:
    """What a worker that has left says behind these records of it, if a recovery has undone all others.

    >>> last_word("FM", 2, [Wrote("FM", 2), Ran("t1", "FM", 2)])
    Wrote(operator='FM', worker=2, ran=1, updated=0, emitted=0, function='', ended=True, spent=False)
    """
    counts, function = Counts(), ""
    for record in records:
        counts = counts.with_record(record)
        if isinstance(record, Wrote):
            function = record.function
        elif isinstance(record, Updated) and not record.edges:
            function = str(record.id)
    return Wrote(operator, worker, *counts, function=function, ended=True)


def flow_of(
    graph: Graph, resumed: bool = False, finished: bool = False, before: tuple[str | int, ...] = (), shape: str = ""
) -> TraceFlow:
    """The description of a graph for its traces; shadows are in none."""
    graph = without_shadows(graph)
    links = tuple(
        Link(edge.source, edge.to, edge.branch, graph.operator(edge.to).workers if _broadcasts(edge) else 1)
        for edge in graph.edges
    )
    loops = tuple(_one_to_one(graph, graph.operator(head)) for head in graph.heads)
    declared = tuple(loop for loop in loops if graph.operator(loop.loop).emits is Emits.ONE_TO_ONE)
    workers = {one.name: one.workers for one in graph.operators}
    cohorts = any(one.cohort is not None for one in graph.operators)
    return TraceFlow(workers, links, resumed, finished, declared, before, shape, cohorts)


def traced_of(flow: TraceFlow, workers: Mapping[str, int]) -> dict[str, int]:
    """The operators of a dataflow that are in a trace, and the number of workers of each."""
    return {name: workers[name] for name in flow.workers if name in workers}


def _one_to_one(graph: Graph, head: Operator) -> OneToOne:
    inside = {one.name for one in graph.operators if one.within == head.within or one.within.is_inner_of(head.within)}
    # A row that several operators outside get has left once: at what copies it.
    copies = {name for name in inside if graph.operator(name).traits.copies}
    inside -= {name for name in copies if inside.isdisjoint(graph.successors(name))}
    entries = [edge for edge in graph.in_edges(head.name) if not edge.feedback]
    exits = [edge for edge in graph.edges if edge.source in inside and edge.to not in inside]
    came, left = ([Link(edge.source, edge.to, edge.branch) for edge in edges] for edges in (entries, exits))
    return OneToOne(head.name, tuple(came), tuple(left))


def _broadcasts(edge: Edge) -> bool:
    return edge.partitioning is Partitioning.BROADCAST


_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def to_line(record: Record) -> str:
    """The record as one JSON line."""
    return msgspec.json.encode(record).decode()


def from_line(line: str | bytes) -> Record:
    """Parse a JSON line."""
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        shown = line if isinstance(line, str) else line.decode(errors="replace")
        raise TraceError(
            f"not a trace record: {shown.strip()[:120]!r} ({error}); "
            'expected {"kind":"data","transaction":...,"operator":...} or {"kind":"update","id":...,"operator":...}'
        ) from None
