"""The verdict on a trace: conflict-serializable, or which transactions mixed versions, where, and a cycle as proof.

Operations conflict only on one operator at one worker, so the verdict is the same however the workers' records are
interleaved, as long as each worker's own order is kept. The records are read once, or, where tuples went astray, twice.

What a run wrote says more than a schedule on paper: which workers there were, how much each wrote, by which function it
ran a tuple, and where it emitted not one for each. So of a run it is judged, too, whether the trace holds all of it
(else it is refused), whether each switch took effect, and whether a tuple was lost or doubled on its way.

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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fries_nb.audit.completeness import Completeness, StatedCounts
from fries_nb.audit.conservation import Astray, Balance
from fries_nb.audit.executed import Executed, Stale
from fries_nb.audit.precedence import (
    Alike,
    Node,
    Updates,
    UpdateStep,
    alike,
    old_and_new,
    precedence_graph,
    shortest_cycle,
)
from fries_nb.audit.version_check import Id, Sightings, Version
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
        serializable: the schedule is equivalent to one that runs whole transactions and updates one after the other;
            so nothing is mixed, no switch was without effect, and no tuple went astray.
        mixed: one entry for each transaction and update that it mixes; transactions that met the same versions stand
            together. Nothing mixed, yet not serializable: several updates are ordered both ways between them.
        cycle: transactions and updates each of which must precede the next, and the last the first; a shortest
            one, empty if serializable.
        cycle_at: for each of them, an operator at which it precedes the next.
        transactions: number of transactions in the trace.
        updates: number of updates in the trace.
        stale: workers that recorded a switch and went on with another function.
        lost: transactions of which tuples were emitted and never processed behind; judged of what has finished.
        doubled: transactions of which more tuples were processed than were emitted; likewise.
        claim: how much of what happened the trace holds: ``complete``, ``so far``, or ``not claimed``.
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


def judge(records: Iterable[Record], targets: Iterable[tuple[str | int, str]] = ()) -> Verdict:
    """Judges a trace by its precedence graph (Fries, section 4.2).

    A worker without a record of an update that its operator has elsewhere is taken to apply it after all that the
    trace holds of that worker: it had ended, or the trace was taken before (see ``fries_nb.audit.version_check``).

    Args:
        records: what happened, in any interleaving that keeps the order of each worker.
        targets: (update, operator that it changes). Needed only for operators of which *every* worker ended before
            the update came, since then no record tells that they are targets.

    Raises:
        TraceError: the trace is empty, or misses records, or one worker applies one update twice.
    """
    again = records if iter(records) is not records else list(records)
    sightings, completeness, balance, executed = Sightings(), Completeness(), Balance(), Executed()
    for record in again:
        completeness.add(record)
        sightings.add(record)
        balance.add(record)
        executed.add(record)
    claim, stale = completeness.claim(), tuple(executed.stale)
    updates, groups = sightings.updates, sightings.groups()
    for update, operator in targets:
        updates[operator].add(update)
    node_of = {versions: alike(versions, updates) for versions in groups}
    cycle = shortest_cycle(precedence_graph(dict.fromkeys(node_of.values()), updates, sightings.orders))
    # Of transactions that are alike, the first is the example.
    example = {node: versions for versions, node in reversed(node_of.items())}
    transactions = sum(map(len, groups.values()))
    over = [flow for flow in completeness.flows if flow.finished]
    astray = balance.astray(over, again, transactions if claim is StatedCounts.COMPLETE else None)
    return Verdict(
        serializable=not (cycle or stale or astray),
        mixed=tuple(_mixed(groups, node_of, updates)),
        cycle=tuple(str(groups[example[node]][0] if isinstance(node, Alike) else node.id) for node in cycle),
        cycle_at=_conflicts(cycle, example, sightings),
        transactions=transactions,
        updates=len(set().union(*updates.values())),
        stale=stale,
        lost=tuple(one for one in astray if one.received < one.sent),
        doubled=tuple(one for one in astray if one.received > one.sent),
        claim=claim,
    )


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
    """For each step of the cycle, an operator where it is a conflict."""
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
