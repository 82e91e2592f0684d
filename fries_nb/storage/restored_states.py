"""The states with which workers begin, read from a checkpoint, and where they are stored.

A worker that begins with states of a checkpoint stores its next snapshot behind them, in whichever files they are: also
if its bins come from several workers, since there are more or fewer than then.

The states themselves are read later, bin by bin, so that a worker goes on at once however many it has: those of a bin
when its first row comes, the others in between (see ``KeyedState.load_later``). Only what has to be stored anew is read
at once, and what a rescale has divided, of which the number of keys is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage.snapshot_files import (
    SnapshotDirectory,
    SnapshotReader,
    StoredSnapshot,
    read_bin,
    stored_snapshots,
)
from fries_nb.storage.stored_parts import StoredBlob, StoredParts
from fries_nb.worker.snapshot import Redistribution


class RestoredStates(NamedTuple):
    """What workers begin with."""

    # worker to its snapshot, with the number behind which the next one may be stored; ``None`` without one
    snapshots: dict[WorkerId, Snapshot | None]
    stored: dict[WorkerId, StoredParts]  # worker to what is stored of it; none whose first snapshot has to be whole
    # worker to what reads the parts of each of its bins, for those whose snapshots come without
    unread: dict[WorkerId, Mapping[int, Callable[[], Sequence[bytes]]]]


NOTHING_RESTORED = RestoredStates({}, {}, {})


def read_states(
    store: SnapshotDirectory, redistribution: Redistribution, workers: Sequence[WorkerId]
) -> RestoredStates:
    """Read the snapshots with which these workers begin.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """
    reader, checkpoint = SnapshotReader(store), redistribution.checkpoint
    needed = dict.fromkeys(each for worker in workers for each in redistribution.read_from(worker))
    located = stored_snapshots(reader, checkpoint, needed)
    held = {worker: reader.without_states(one) for worker, one in located.items()}
    restored = RestoredStates({worker: redistribution.snapshot(worker, held) for worker in workers}, {}, {})
    for worker, snapshot in [*restored.snapshots.items()]:
        sources = [located[each] for each in redistribution.read_from(worker)]
        stored = begun_with(worker, snapshot, checkpoint, sources)
        if snapshot is None:
            continue
        if stored is not None:
            restored.stored[worker] = stored
            snapshot = replace(snapshot, since=stored.number)
        if stored is not None and len(sources) == 1 and snapshot.keys:
            restored.unread[worker] = {
                bin: partial(read_bin, store, worker, bin, parts) for bin, parts in stored.bins.items()
            }
            snapshot = replace(snapshot, bins={})
        else:
            parts = {bin: some for one in sources for bin, some in reader.parts(one, snapshot.bins)}
            snapshot = replace(snapshot, bins={bin: parts[bin] for bin in snapshot.bins})
        restored.snapshots[worker] = snapshot
    return restored


def begun_with(
    worker: WorkerId, snapshot: Snapshot | None, checkpoint: Checkpoint | None, sources: Sequence[StoredSnapshot]
) -> StoredParts | None:
    """What is stored of a worker that begins with states of a checkpoint.

    It is ``None`` if its first snapshot has to be whole, since its states come from elsewhere: of a fork, whose first
    record has the number 0, from the origin; or from the time when a change has removed its operator.

    Args:
        worker: the worker.
        snapshot: what it begins with, if with anything, of the bins of these sources.
        checkpoint: the checkpoint, if there is one.
        sources: where the checkpoint has these bins.
    """
    if snapshot is None or checkpoint is None or not checkpoint.epoch or not sources:
        return None
    bins, agenda = dict[int, tuple[StoredBlob, ...]](), dict[int, StoredBlob]()
    for one in sources:
        if one.worker.operator != worker.operator or not one.rest.file.name.startswith(f"{checkpoint.epoch}-"):
            return None
        bins.update({bin: parts for bin, parts in one.bins.items() if bin in snapshot.bins})
        agenda.update({bin: held for bin, held in one.agenda.items() if bin in snapshot.agenda})
    # Its own needs, if it was divided, may be those of one source.
    needs = frozenset(need for names in (snapshot.needs, checkpoint.needs.get(worker.operator, ())) for need in names)
    return StoredParts(checkpoint.epoch, bins, agenda, needs) if bins.keys() == snapshot.bins.keys() else None
