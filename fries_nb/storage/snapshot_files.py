"""Snapshots of workers as files, written by a separate thread of the host, so that no tuple waits for storage."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from fries_nb.checkpoints import Checkpoint, InstanceSnapshot, Snapshot
from fries_nb.errors import CheckpointError
from fries_nb.messages import Saved, WorkerId
from fries_nb.storage.durable import read_file, write_file
from fries_nb.storage.locations import encoded, join, locate
from fries_nb.storage.seals import NO_KEY, sealed, unsealed

STATES = "states"


class SnapshotStore(NamedTuple):
    """The location of a run's snapshots.

    Attributes:
        place: the checkpoint directory.
        run: id of the run; snapshots of other runs are refused.
        key: signs the files; ``NO_KEY`` for none.
    """

    place: str
    run: str
    key: bytes = NO_KEY


def seal_name(run: str, name: str) -> str:
    """The name under which a file is sealed, unique over the files of all runs, so that files cannot be exchanged."""
    return f"{run}/{name}" if run else name


def write_snapshot(store: SnapshotStore, epoch: int, incarnation: int, snapshot: Snapshot) -> tuple[str, int]:
    """Write a snapshot durably into the checkpoint directory.

    Returns:
        Its name there, and its size in bytes.

    Raises:
        CheckpointError: it cannot be written, or its state cannot be encoded.
    """
    name = f"{epoch}-{incarnation}/{encoded(snapshot.operator)}-{snapshot.index}.msgpack"
    place = store.place
    try:
        content = sealed(msgspec.msgpack.encode(snapshot), seal_name(store.run, f"{STATES}/{name}"), store.key)
        filesystem, path = locate(join(place, STATES, name))
        write_file(filesystem, path, content)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        worker = WorkerId(snapshot.operator, snapshot.index)
        raise CheckpointError(f"the state of {worker} cannot be written to {place}: {_first_line(error)}") from error
    return name, len(content)


def read_snapshot(store: SnapshotStore, name: str) -> Snapshot:
    """Read a snapshot of a checkpoint.

    Raises:
        CheckpointError: it is missing or damaged, or is not signed with the key.
    """
    try:
        filesystem, path = locate(join(store.place, STATES, name))
        content = unsealed(read_file(filesystem, path), seal_name(store.run, f"{STATES}/{name}"), store.key)
        return msgspec.msgpack.decode(content, type=Snapshot)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise CheckpointError(
            f"the checkpoint at {store.place} is damaged: {STATES}/{name}: {_first_line(error)}"
        ) from error


def read_snapshots(
    store: SnapshotStore, checkpoint: Checkpoint | None, indices: Iterable[int]
) -> dict[WorkerId, Snapshot]:
    """By each operator's worker the snapshot that holds it, for workers of these indices.

    Chains need not be as they were: what chain a worker was in is of no account.

    Raises:
        CheckpointError: one has gone, is damaged, or is not signed with the key.
    """
    wanted, found = set(indices), {}
    for worker, name in checkpoint.snapshots.items() if checkpoint is not None else ():
        if int(worker.rpartition("[")[2].rstrip("]")) in wanted:
            snapshot = read_snapshot(store, name)
            found.update({WorkerId(one.operator, snapshot.index): snapshot for one in snapshot.instances})
    return found


def part_of(snapshot: Snapshot | None, operator: str) -> InstanceSnapshot | None:
    """The part of a snapshot that belongs to one operator."""
    return next((one for one in snapshot.instances if one.operator == operator), None) if snapshot else None


class Saver(threading.Thread):
    """Writes the snapshots of a host's workers, one after the other, and reports each.

    Args:
        store: the location of the snapshots.
        incarnation: incarnation of the run.
        say: called from this thread with the result of each write.
    """

    def __init__(self, store: SnapshotStore, incarnation: int, say: Callable[[Saved], None]) -> None:
        super().__init__(name="fries-save", daemon=True)
        self._store = store
        self._incarnation = incarnation
        self._say = say
        self._orders: queue.SimpleQueue[tuple[int, Snapshot] | None] = queue.SimpleQueue()

    def save(self, epoch: int, snapshot: Snapshot) -> None:
        """Submit a snapshot; may be called from any thread."""
        self._orders.put((epoch, snapshot))

    def leave(self) -> None:
        """End when all submitted snapshots are written; may be called from any thread."""
        self._orders.put(None)

    def run(self) -> None:
        """The thread's body: writes snapshots in the order in which they were submitted."""
        while (order := self._orders.get()) is not None:
            epoch, snapshot = order
            worker = WorkerId(snapshot.operator, snapshot.index)
            try:
                name, size = write_snapshot(self._store, epoch, self._incarnation, snapshot)
            except CheckpointError as error:
                self._say(Saved(epoch, worker, error=str(error)))
            else:
                self._say(Saved(epoch, worker, name, size))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
