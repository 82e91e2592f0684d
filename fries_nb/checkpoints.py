"""What of a run is at rest: snapshots of workers, the record that makes them a checkpoint, decided changes.

A checkpoint is taken like any other action: a marker goes through the whole dataflow, aligned at every worker
(Carbone et al.; Fries, section 7.3), and each worker hands over its ``Snapshot`` when it applies the marker. When all
are on disk, one ``Checkpoint`` names them. It decides: without it the snapshots count for nothing; with it the rows
that sinks had written in front of the marker are output, whatever happens next.

A change that was decided counts even if no checkpoint has come since: what is ``Decided`` is on disk before the first
fast control message leaves, so a worker restored from an older checkpoint switches before its first tuple.

>>> import msgspec
>>> record = Checkpoint(run="a1", epoch=3, incarnation=1, snapshots={"FM[0]": "3/FM-0"}, ended=("payments[0]",),
...                     sinks={"scored": ("part-1",)}, decided=("u1",))
>>> msgspec.json.decode(msgspec.json.encode(record), type=Checkpoint) == record
True
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace


class Position(msgspec.Struct, frozen=True):
    """Where the reading of a source's split goes on.

    Attributes:
        row: how many rows of the split come before; it numbers the next one.
        at: what the source itself needs to find that row, if the number is not enough: an offset, the name of a file;
            anything that msgpack can hold.
    """

    row: int = 0
    at: Any = None


class InstanceSnapshot(msgspec.Struct, frozen=True):
    """One operator at one worker, between two tuples.

    Attributes:
        operator: its name.
        processed: tuples that it has taken in since the beginning of the run.
        applied: the changes that it has switched to, in order.
        bins: bin number to the pickled dict from key to state, in the form of the last change applied.
        traced: under audit, the numbers of records written so far (``fries_nb.trace.Counts``).
        positions: of a source, split number to where its reading goes on, ``None`` for a split that was read to its
            end; a split that is not named has not been begun.
    """

    operator: str
    processed: int
    applied: tuple[str, ...] = ()
    bins: dict[int, bytes] = {}
    traced: tuple[int, int, int] = (0, 0, 0)
    positions: dict[int, Position | None] = {}


class Snapshot(msgspec.Struct, frozen=True):
    """One worker (a chain at one index) at a checkpoint's marker.

    Attributes:
        operator, index: the worker's id: its first operator, and which parallel instance.
        instances: its operators, in the chain's order.
        round_robin_positions: for each rebalancing out-edge, by receiver, the index of the worker that is next.
        version: number of tagged changes behind it (see ``messages.Data``).
    """

    operator: str
    index: int
    instances: tuple[InstanceSnapshot, ...]
    round_robin_positions: dict[str, int] = {}
    version: int = 0


class CommittedChange(msgspec.Struct, frozen=True):
    """A change that will be carried out, whatever fails.

    A second entry of a change, without payloads, takes it back: all its workers ended before it reached them, so that
    it is nowhere, and shall be nowhere if they start again.

    Attributes:
        change: its id.
        scheduler: that planned it.
        components: operators of each component of its covering.
        payloads: target operator to the cloudpickled ``fries_nb.Update``.
        incarnation: in which it was decided.
        undoes: a change decided earlier that this one rolls back: its targets run again what they ran before that, and
            nothing is shipped.
        before: a change decided earlier that is ordered behind this one; empty if this one is the last so far.
    """

    change: str
    scheduler: str
    components: tuple[tuple[str, ...], ...]
    payloads: dict[str, bytes]
    incarnation: int = 1
    before: str = ""
    undoes: str = ""


def in_effect(decided: Iterable[CommittedChange]) -> tuple[CommittedChange, ...]:
    """The changes that were decided and not taken back, in the order in which they take effect.

    >>> first = CommittedChange("u1", "fries", (), {"FM": b"code"})
    >>> second = CommittedChange("u2", "fries", (), {"FC": b"code"})
    >>> [change.change for change in in_effect((first, second, CommittedChange("u1", "fries", (), {})))]
    ['u2']
    >>> fix = CommittedChange("u3", "fries", (), {"FC": b"code"}, before="u2")
    >>> [change.change for change in in_effect((first, second, fix))]
    ['u1', 'u3', 'u2']
    """
    entries = tuple(decided)
    taken_back = {entry.change for entry in entries if not (entry.payloads or entry.undoes)}
    ordered: list[CommittedChange] = []
    for entry in entries:
        if entry.change not in taken_back:
            insert_decided(ordered, entry)
    return tuple(ordered)


def insert_decided(ordered: list[CommittedChange], entry: CommittedChange) -> None:
    """Put a decision at its place: ahead of the change that it names, or last."""
    behind = [place for place, other in enumerate(ordered) if other.change == entry.before]
    ordered.insert(behind[0] if behind else len(ordered), entry)


def without_superseded(ordered: Sequence[CommittedChange], applied: Collection[str]) -> list[CommittedChange]:
    """The decisions without the payloads that nobody who starts from a checkpoint will load.

    A worker that starts there runs the last function of its operator, puts the changes that the checkpoint has not
    ``applied`` on top of its state, and a guard may bring back what ran before the last change. So of each operator the
    last two changes in effect are kept whole, and all that are not applied.

    >>> changes = [CommittedChange(f"u{number}", "fries", (), {"FM": b"code"}) for number in range(4)]
    >>> [(change.change, len(change.payloads)) for change in without_superseded(changes, {"u0", "u1", "u2", "u3"})]
    [('u0', 0), ('u1', 0), ('u2', 1), ('u3', 1)]
    """
    stacks: defaultdict[str, list[str]] = defaultdict(list)
    needed: set[str] = set()
    for entry in ordered:
        if entry.change not in applied:
            needed |= {entry.change, entry.undoes}
        for operator in entry.payloads:
            stacks[operator].append(entry.change)
        for stack in stacks.values():
            if entry.undoes in stack:  # with the fixes that came in between: what ran before it runs again
                del stack[stack.index(entry.undoes) :]
    kept: list[CommittedChange] = []
    for entry in ordered:
        payloads = {
            operator: payload
            for operator, payload in entry.payloads.items()
            if entry.change in needed or entry.change in stacks[operator][-2:]
        }
        kept.append(entry if len(payloads) == len(entry.payloads) else replace(entry, payloads=payloads))
    return kept


class Checkpoint(msgspec.Struct, frozen=True):
    """A complete checkpoint: a consistent cut of the whole run.

    Attributes:
        run: the run's id, which stays the same when it is resumed.
        epoch: its number; sinks commit the same epoch with it.
        incarnation: that took it.
        snapshots: worker (``FM[0]``, by the first operator of its chain) to the name of its snapshot.
        ended: workers that had ended in front of the marker, and need no state.
        sinks: sink (or operator with dead letters) to the files that this epoch makes output.
        decided: the changes applied by then, in order.
    """

    run: str
    epoch: int
    incarnation: int
    snapshots: dict[str, str]
    ended: tuple[str, ...] = ()
    sinks: dict[str, tuple[str, ...]] = {}
    decided: tuple[str, ...] = ()


class Restoration(msgspec.Struct, frozen=True):
    """What a new incarnation starts from: a checkpoint, or ``None`` for the beginning, and all decided changes.

    A worker loads its snapshot, puts the changes that the snapshot has not ``applied`` on top of it, in order, and
    only then takes its first tuple.

    Attributes:
        checkpoint, decided: see above.
        last_epoch: number of the last epoch that a record was kept of, be it damaged; it is not used again.
        columns: operator to the types, as a serialized Arrow schema, in which its workers have to write these columns.
    """

    checkpoint: Checkpoint | None
    decided: tuple[CommittedChange, ...] = ()
    columns: dict[str, bytes] = {}
    last_epoch: int = 0
