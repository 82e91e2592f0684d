"""The verdict on a trace: conflict-serializable, or which transactions mixed versions, where, and a cycle as proof.

Operations conflict only on one operator at one worker, so the verdict is the same however the workers' records are
interleaved, as long as each worker's own order is kept. The records are read once, and may come from a generator.

The bad schedule of the paper (Fries, section 4.2, S3): FM processed t by the old configuration, MC by the new one.

>>> from fries_nb.trace import Ran, Updated
>>> verdict = judge([Ran("t", "FC"), Ran("t", "FM"), Updated("u", "FM"), Updated("u", "MC"), Ran("t", "MC")])
>>> verdict.serializable
False
>>> verdict.mixed
(Mixed(transaction='t', update='u', old=('FM',), new=('MC',)),)
>>> verdict.cycle, verdict.cycle_at
(('t', 'u'), ('FM', 'MC'))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from fries_nb.audit.precedence import Group, Node, old_and_new, precedence_graph, shortest_cycle
from fries_nb.audit.versions import Id, Sightings, Version
from fries_nb.trace import Record


@dataclass(frozen=True, slots=True)
class Mixed:
    """A transaction that met an update's old configuration at some operators and its new one at others.

    ``old`` and ``new`` are names in alphabetical order. An operator is in both if it processed one of the
    transaction's tuples before the update and another after it.
    """

    transaction: str | int
    update: str | int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge says.

    Attributes:
        serializable: the schedule is equivalent to one that runs whole transactions and updates one after the other.
        mixed: one entry for each transaction and update that it mixes; transactions that met the same versions stand
            together. Nothing mixed, yet not serializable: several updates are ordered both ways between them.
        cycle: transactions and updates each of which must precede the next, and the last the first; a shortest
            one, empty if serializable.
        cycle_at: for each of them, an operator at which it precedes the next.
        transactions: number of transactions in the trace.
        updates: number of updates in the trace.
    """

    serializable: bool
    mixed: tuple[Mixed, ...]
    cycle: tuple[str, ...]
    cycle_at: tuple[str, ...]
    transactions: int
    updates: int


def judge(records: Iterable[Record], targets: Iterable[tuple[str | int, str]] = ()) -> Verdict:
    """Judges a trace by its precedence graph (Fries, section 4.2).

    A worker without a record of an update that its operator has elsewhere is taken to apply it after all that the
    trace holds of that worker: it had ended, or the trace was taken before (see ``fries_nb.audit.versions``).

    Args:
        records: what happened, in any interleaving that keeps the order of each worker.
        targets: (update, operator that it changes). Needed only for operators of which *every* worker ended before
            the update came, since then no record tells that they are targets.

    Raises:
        TraceError: one worker applies one update twice.
    """
    sightings = Sightings()
    for record in records:
        sightings.add(record)
    for update, operator in targets:
        sightings.updates[operator].add(update)
    groups = sightings.groups()
    graph = precedence_graph(groups, sightings.updates, sightings.orders)
    cycle = shortest_cycle(graph)
    return Verdict(
        serializable=not cycle,
        mixed=_mixed(groups, sightings.updates),
        cycle=tuple(str(groups[node.versions][0] if isinstance(node, Group) else node.id) for node in cycle),
        cycle_at=_conflicts(graph, cycle),
        transactions=sum(map(len, groups.values())),
        updates=len(set().union(*sightings.updates.values())),
    )


def _conflicts(graph: nx.DiGraph[Node], cycle: list[Node]) -> tuple[str, ...]:
    following = cycle[1:] + cycle[:1]
    return tuple(graph.edges[edge]["at"] for edge in zip(cycle, following, strict=True))


def _mixed(groups: Mapping[frozenset[Version], list[Id]], updates: Mapping[str, set[Id]]) -> tuple[Mixed, ...]:
    everything = sorted(set().union(*updates.values()), key=str)
    found: list[Mixed] = []
    for versions, transactions in groups.items():
        for update in everything:
            old, new = old_and_new(versions, update, updates)
            if old and new:
                found += [Mixed(transaction, update, old, new) for transaction in transactions]
    return tuple(found)
