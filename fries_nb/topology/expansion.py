"""Expansion of operators to workers, channels and chains; computed for single operators and edges on demand.

Workers of one operator are equivalent, so plans are made on operators and expanded here (Fries, section 7.2).

>>> from fries_nb.dataflow.graph import Operator
>>> graph = Graph("pair", (Operator("A", workers=2), Operator("B", workers=2)), (Edge("A", "B"),))
>>> [str(worker) for worker in workers_of(graph, "A")]
['A[0]', 'A[1]']
>>> [str(channel) for channel in channels_of(graph, graph.edges[0])], channel_count(graph, graph.edges)
(['A[0]->B[0]', 'A[1]->B[1]'], 2)
>>> chains(graph)
(('A', 'B'),)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
from fries_nb.dataflow.operators import Shape, is_timed, shape_of
from fries_nb.messages import ChannelId, WorkerId


class _Family(StrEnum):
    """How a chain is executed: row by row, or batch by batch."""

    ROWS = "rows"
    BATCHES = "batches"


def workers_of(graph: Graph, name: str) -> tuple[WorkerId, ...]:
    """The workers of an operator.

    Raises:
        DataflowError: no such operator.
    """
    return tuple(WorkerId(name, index) for index in range(graph.operator(name).workers))


def channels_of(graph: Graph, edge: Edge) -> Iterator[ChannelId]:
    """The channels of an edge: worker i to worker i for forward between equal numbers, else all to all."""
    receivers = workers_of(graph, edge.to)
    is_forward = _is_one_to_one(graph, edge)
    for sender in workers_of(graph, edge.source):
        for receiver in (receivers[sender.index],) if is_forward else receivers:
            yield ChannelId(sender, receiver)


def channel_count(graph: Graph, edges: Iterable[Edge]) -> int:
    """The number of channels of these edges, computed without listing them (Fries, table 7)."""
    operators = graph.by_name
    total = 0
    for edge in edges:
        senders, receivers = operators[edge.source].workers, operators[edge.to].workers
        total += senders if _is_one_to_one(graph, edge) else senders * receivers
    return total


def chains(graph: Graph, chaining: bool = True) -> tuple[tuple[str, ...], ...]:
    """The operators grouped into chains, each executed by one worker; every operator is in exactly one chain.

    A chain follows forward edges between equally parallel operators that are executed alike, if the edge is the only
    one out of its tail and into its head. It may end in a split. Operators of a kind that is not ``chained`` (see
    ``dataflow.traits``) form a chain of one, and so does one that pauses on errors, since it blocks its chain, or that
    is declared with ``chain=False``. A timed operator is the first of its chain. With ``chaining=False`` all chains
    have one operator.
    """
    grouped: list[tuple[str, ...]] = []
    seen: set[str] = set()
    for first in graph.order:
        if first in seen:
            continue
        chain = [first]
        while chaining and (following := _chained_after(graph, chain[-1])) is not None:
            chain.append(following)
        seen.update(chain)
        grouped.append(tuple(chain))
    return tuple(grouped)


def _is_one_to_one(graph: Graph, edge: Edge) -> bool:
    workers = graph.by_name[edge.source].workers
    return edge.partitioning is Partitioning.FORWARD and workers == graph.by_name[edge.to].workers


def _chained_after(graph: Graph, name: str) -> str | None:
    """The operator that continues a chain after ``name``, if there is one."""
    out = graph.out_edges(name)
    if len(out) != 1 or len(graph.in_edges(out[0].to)) != 1 or not _is_one_to_one(graph, out[0]):
        return None
    head = graph.operator(out[0].to)
    return head.name if may_chain(graph.operator(name), head) else None


def may_chain(tail: Operator, head: Operator) -> bool:
    """Whether one operator may follow another in a chain, if they are connected by a one-to-one edge alone.

    A chain does not cross the boundary of a loop.
    """
    if tail.within != head.within:
        return False
    family = _family(tail)
    return family is not None and family is _family(head) and not tail.traits.routes and not is_timed(head)


def _family(operator: Operator) -> _Family | None:
    """How an operator is executed in a chain; ``None`` if it is not chained. Graphs read from JSON count as rows."""
    if not (operator.traits.chained and operator.chain) or operator.on_error == "pause":
        return None
    if not operator.traits.runs_user_code or operator.function is None:
        return _Family.ROWS
    return _Family.BATCHES if shape_of(operator.function) is Shape.BATCH else _Family.ROWS
