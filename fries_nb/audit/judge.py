"""The verdict on a trace: conflict-serializable, or the transactions that mixed versions, and a cycle as proof.

Operations conflict only on the same operator and worker, so the verdict does not depend on how the records of workers
are interleaved, provided each worker's own order is kept. The records are read once, or twice if tuples went astray.

The trace of a run contains more than a schedule: the workers, their record counts, the function that processed each
tuple, and operators that emitted more or fewer tuples than they took. For a run the audit therefore also checks that
the trace is complete (else it is refused), that each switch took effect, and that no tuple was lost or duplicated.

The example is the bad schedule of the paper (Fries, section 4.2, S3): FM processed t with the old configuration, MC
with the new one.

>>> from fries_nb.protocol.trace import Ran, Updated
>>> verdict = judge([Ran("t", "FC"), Ran("t", "FM"), Updated("u", "FM"), Updated("u", "MC"), Ran("t", "MC")])
>>> verdict.serializable
False
>>> verdict.mixed
(Mixed(transaction='t', update='u', old=('FM',), new=('MC',)),)
>>> verdict.cycle, verdict.cycle_at
(('t', 'u'), ('FM', 'MC'))
>>> [(met.operator, met.before, met.after) for met in verdict.cycle_met[0]]
[('FC', (), ()), ('FM', ('u',), ()), ('MC', (), ('u',))]

The precedence graph: the order of transactions and updates that every equivalent serial schedule must keep.

A schedule is conflict-serializable if and only if this graph has no cycle (Bernstein, Hadzilacos and Goodman, 1987; the
conflicts are those of Fries, definitions 4.6 to 4.9). Transactions do not conflict with each other, so one node
represents all transactions that are before the same updates and after the same updates. Every cycle contains an update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import networkx as nx

from fries_nb.audit.completeness import Completeness, Executed, Matching, Stale, StatedCounts
from fries_nb.audit.conservation import Astray, Balance, Id, Sightings, Version
from fries_nb.protocol.trace import Record, SourceRow

Updates = Mapping[str, Set[Id]]
NONE_WITHDRAWN: Set[Id] = frozenset()


class UpdateStep(NamedTuple):
    """The node of an update."""

    id: Id


class Alike(NamedTuple):
    """The node of all transactions that must precede, and follow, these updates."""

    before: frozenset[Id]
    after: frozenset[Id]


Node = UpdateStep | Alike


def alike(versions: Iterable[Version], updates: Updates, withdrawn: Set[Id] = NONE_WITHDRAWN) -> Alike:
    """The node of a transaction that met these versions.

    If a canary was rolled back, a tuple that is old for it came before it, or after its end.

    >>> alike([Version("FM", frozenset({"u1"}))], {"FM": {"u1", "u2"}})
    Alike(before=frozenset({'u2'}), after=frozenset({'u1'}))
    >>> alike([Version("FM", frozenset({"u1"}))], {"FM": {"u1", "u2"}}, {"u2"}).before
    frozenset()
    """
    before: set[Id] = set()
    after: set[Id] = set()
    for operator, applied in versions:
        before |= updates.get(operator, frozenset()) - applied
        after |= applied
    return Alike(frozenset(before - (withdrawn - after)), frozenset(after))


def old_and_new(versions: Iterable[Version], update: Id, updates: Updates) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The operators whose version is from before the update, and those whose version is from after it.

    >>> met = (Version("FM", frozenset()), Version("MC", frozenset({"u1"})), Version("FC", frozenset()))
    >>> old_and_new(met, "u1", {"FM": {"u1"}, "MC": {"u1"}})
    (('FM',), ('MC',))
    """
    old: set[str] = set()
    new: set[str] = set()
    for operator, applied in versions:
        if update in applied:
            new.add(operator)
        elif update in updates.get(operator, ()):
            old.add(operator)
    return tuple(sorted(old)), tuple(sorted(new))


def precedence_graph(
    transactions: Iterable[Alike], updates: Updates, orders: Iterable[tuple[Id, Id]]
) -> nx.DiGraph[Node]:
    """The graph of these transactions and updates; ``orders`` holds pairs of updates that follow each other."""
    graph: nx.DiGraph[Node] = nx.DiGraph()
    # Sorted, so that a trace always gives the same cycle: the order of a set of strings differs between processes.
    graph.add_nodes_from(UpdateStep(update) for update in sorted(set().union(*updates.values()), key=str))
    for node in transactions:
        graph.add_edges_from((node, UpdateStep(update)) for update in sorted(node.before, key=str))
        graph.add_edges_from((UpdateStep(update), node) for update in sorted(node.after, key=str))
    graph.add_edges_from((UpdateStep(earlier), UpdateStep(later)) for earlier, later in orders)
    return graph


def shortest_cycle(graph: nx.DiGraph[Node]) -> list[Node]:
    """A shortest cycle, starting at a transaction if it contains one; empty if there is no cycle."""
    best: list[Node] = []
    for update in (node for node in graph if isinstance(node, UpdateStep)):
        paths = nx.single_source_shortest_path(graph, update)
        loops = [paths[last] for last in graph.predecessors(update) if last in paths]
        best = min([*loops, *([best] if best else [])], key=len, default=[])
    first = next((place for place, node in enumerate(best) if isinstance(node, Alike)), 0)
    return best[first:] + best[:first]


@dataclass(frozen=True, slots=True)
class Mixed:
    """A transaction that was processed by an update's old configuration at some operators and by its new one at others.

    ``old`` and ``new`` list these operators alphabetically. An operator is in both if it processed one tuple of the
    transaction before the update and another one after it.
    """

    transaction: str | int
    update: str | int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Met:
    """An operator that processed a tuple of a transaction, at a worker of a certain version."""

    operator: str
    before: tuple[str, ...]  # the updates of the operator that this worker had not applied yet
    after: tuple[str, ...]  # the updates that it had applied


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an audit.

    Attributes:
        serializable: whether the schedule is equivalent to a serial one of whole transactions and updates; then nothing
            is mixed, every switch took effect, and no tuple went astray.
        mixed: one entry for each transaction and update that it mixes; transactions that met the same versions are
            adjacent. If it is empty and the schedule is not serializable, several updates are in conflicting orders.
        cycle: a shortest cycle of transactions and updates each of which must precede the next; empty if serializable.
        cycle_at: for each element of the cycle, an operator at which it precedes the next.
        cycle_met: for each element of the cycle, the versions that the transaction met, one entry for each version of
            an operator, ordered by name; empty for an update.
        transactions: number of transactions in the trace.
        updates: number of updates in the trace.
        stale: workers that recorded a switch and continued with another function.
        lost: transactions of which tuples were emitted and not processed, and pairs of a self-join that did not leave;
            checked for finished runs only.
        doubled: transactions of which more tuples were processed than emitted, and keys of which a dedup emitted
            several; checked for finished runs only.
        claim: the extent of the trace: ``complete``, ``so far``, or ``not claimed``.
        rows: the rows of the source tuples that are named in its texts, as far as a run has read them again.
    """

    serializable: bool
    mixed: tuple[Mixed, ...]
    cycle: tuple[str, ...]
    cycle_at: tuple[str, ...]
    transactions: int
    updates: int
    stale: tuple[Stale, ...] = ()
    lost: tuple[Astray, ...] = ()
    doubled: tuple[Astray, ...] = ()
    claim: StatedCounts = StatedCounts.NONE
    cycle_met: tuple[tuple[Met, ...], ...] = ()
    rows: Mapping[int, SourceRow] = field(default_factory=dict, repr=False, compare=False)


def judge(records: Iterable[Record], targets: Iterable[tuple[str | int, str]] = ()) -> Verdict:
    """Judge a trace by its precedence graph (Fries, section 4.2)."""
    # A worker without a record of an update that other workers of its operator have is taken to apply it after all of
    # its records: it had ended, or the trace was taken before (see ``fries_nb.audit.conservation``).
    again = records if iter(records) is not records else list(records)
    sightings, completeness, balance, executed = Sightings(), Completeness(), Balance(), Executed()
    matching = Matching()
    for record in again:
        completeness.add(record)
        sightings.add(record)
        balance.add(record)
        executed.add(record)
        matching.add(record)
    claim, stale = completeness.claim(), tuple(executed.stale)
    updates, groups = sightings.updates, sightings.groups()
    for update, operator in targets:
        updates[operator].add(update)
    node_of = {versions: alike(versions, updates, sightings.withdrawn) for versions in groups}
    cycle = shortest_cycle(precedence_graph(dict.fromkeys(node_of.values()), updates, sightings.orders))
    # The first of equivalent transactions is the example.
    example = {node: versions for versions, node in reversed(node_of.items())}
    transactions = sum(map(len, groups.values()))
    over = [flow for flow in completeness.flows if flow.finished]
    astray = balance.astray(over, again, transactions if claim is StatedCounts.COMPLETE else None)
    astray += matching.astray(over)
    return Verdict(
        serializable=not (cycle or stale or astray),
        mixed=tuple(_mixed(groups, node_of, updates)),
        cycle=tuple(str(groups[example[node]][0] if isinstance(node, Alike) else node.id) for node in cycle),
        cycle_at=_conflicts(cycle, example, sightings),
        transactions=transactions,
        updates=len(set().union(*updates.values())),
        stale=stale,
        lost=tuple(sighting for sighting in astray if sighting.received < sighting.sent),
        doubled=tuple(sighting for sighting in astray if sighting.received > sighting.sent),
        claim=claim,
        cycle_met=tuple(tuple(_met(example[node], updates) if isinstance(node, Alike) else ()) for node in cycle),
    )


def _met(versions: Iterable[Version], updates: Updates) -> Iterator[Met]:
    for operator, applied in sorted(versions, key=lambda version: (version.operator, len(version.applied))):
        yield Met(operator, _ids(updates.get(operator, frozenset()) - applied), _ids(applied))


def _ids(updates: Iterable[Id]) -> tuple[str, ...]:
    return tuple(sorted(map(str, updates)))


def _mixed(
    groups: Mapping[frozenset[Version], list[Id]], node_of: Mapping[frozenset[Version], Alike], updates: Updates
) -> Iterator[Mixed]:
    for versions, transactions in groups.items():
        node = node_of[versions]
        for update in sorted(node.before & node.after, key=str):
            old, new = old_and_new(versions, update, updates)
            for transaction in transactions:
                yield Mixed(transaction, update, old, new)


def _conflicts(cycle: list[Node], example: Mapping[Alike, frozenset[Version]], sightings: Sightings) -> tuple[str, ...]:
    """For each step of the cycle, an operator at which the conflict occurs."""
    found: list[str] = []
    for step in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        match step:
            case (Alike() as node, UpdateStep(update)):
                found.append(old_and_new(example[node], update, sightings.updates)[0][0])
            case (UpdateStep(update), Alike() as node):
                found.append(old_and_new(example[node], update, sightings.updates)[1][0])
            case (UpdateStep(earlier), UpdateStep(later)):
                found.append(sightings.orders[earlier, later])
    return tuple(found)
