"""Snapshots of workers as files, written by a separate thread of the host, so that no tuple waits for storage.

Spilling of record batches to a host's disk, as memory-mapped files that the system loads and evicts as needed.

Each call writes one file, maps it and unlinks it, so that no file remains, however the process ends.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa

from fries_nb.errors import CheckpointError, RunError, exception_text
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import Answer, WorkerId
from fries_nb.storage.durable import NO_KEY, encoded, join, locate, read_file, sealed, unsealed, write_file

STATES = "states"


class SnapshotStore(NamedTuple):
    """The location of a run's snapshots."""

    place: str  # the checkpoint directory
    run: str  # id of the run; snapshots of other runs are refused
    key: bytes = NO_KEY  # signs the files; ``NO_KEY`` for none


def seal_name(run: str, name: str) -> str:
    """The name under which a file is sealed, unique over the files of all runs, so that files cannot be exchanged."""
    return f"{run}/{name}" if run else name


class Storing(Protocol):
    """An order to store snapshots as one file: ``worker.events.Save``, or ``Park``."""

    @property
    def place(self) -> str:
        """The name of the directory, within an incarnation."""

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """What is to be stored."""

    def written(self, snapshot: Snapshot, name: str, size: int) -> Answer:
        """The answer for one of them."""

    def failed(self, worker: WorkerId, error: str) -> Answer:
        """The answer if the file could not be written."""


def write_snapshots(
    store: SnapshotStore, place: str, incarnation: int, snapshots: Sequence[Snapshot]
) -> tuple[str, int]:
    """Write snapshots durably, as one file of the checkpoint directory; returns its name, and its size in bytes."""
    worker = WorkerId(snapshots[0].operator, snapshots[0].index)
    name = f"{place}-{incarnation}/{encoded(worker.operator)}-{worker.index}.msgpack"
    try:
        content = sealed(msgspec.msgpack.encode(snapshots), seal_name(store.run, f"{STATES}/{name}"), store.key)
        filesystem, path = locate(join(store.place, STATES, name))
        write_file(filesystem, path, content)
    except (OSError, ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        words = f"the state of {worker} cannot be written to {store.place}: {_first_line(error)}"
        raise CheckpointError(words) from error
    return name, len(content)


def read_file_of_snapshots(store: SnapshotStore, name: str) -> tuple[Snapshot, ...]:
    """Read the snapshots in one file of a checkpoint."""
    try:
        filesystem, path = locate(join(store.place, STATES, name))
        content = unsealed(read_file(filesystem, path), seal_name(store.run, f"{STATES}/{name}"), store.key)
        return msgspec.msgpack.decode(content, type=tuple[Snapshot, ...])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise CheckpointError(
            f"the checkpoint at {store.place} is damaged: {STATES}/{name}: {_first_line(error)}"
        ) from error


def read_snapshots(
    store: SnapshotStore, checkpoint: Checkpoint | None, workers: Iterable[WorkerId]
) -> dict[WorkerId, Snapshot]:
    """Read the snapshots of these workers that the checkpoint has; each file is read once."""
    known = checkpoint.snapshots if checkpoint is not None else {}
    files = {worker: known[str(worker)] for worker in workers if str(worker) in known}
    found = (snapshot for name in dict.fromkeys(files.values()) for snapshot in read_file_of_snapshots(store, name))
    held = {WorkerId(snapshot.operator, snapshot.index): snapshot for snapshot in found}
    return {worker: held[worker] for worker in files if worker in held}


class Saver(threading.Thread):
    """Writes the snapshots of a host's workers, one after the other, and reports each."""

    def __init__(self, store: SnapshotStore, incarnation: int, say: Callable[[Answer], None]) -> None:
        super().__init__(name="fries-save", daemon=True)
        self._store = store
        self._incarnation = incarnation
        self._say = say  # called from this thread with the result of each write
        self._orders: queue.SimpleQueue[Storing | None] = queue.SimpleQueue()

    def save(self, order: Storing) -> None:
        """Submit snapshots for one file; may be called from any thread."""
        self._orders.put(order)

    def leave(self) -> None:
        """End when all submitted snapshots are written; may be called from any thread."""
        self._orders.put(None)

    def run(self) -> None:
        """The thread's body: writes snapshots in the order in which they were submitted."""
        while (order := self._orders.get()) is not None:
            first = order.snapshots[0]
            try:
                name, size = write_snapshots(self._store, order.place, self._incarnation, order.snapshots)
            except Exception as error:  # noqa: BLE001 - an answer is owed, or the checkpoint never ends
                words = str(error) if isinstance(error, CheckpointError) else exception_text(error)
                self._say(order.failed(WorkerId(first.operator, first.index), words))
            else:
                for one in order.snapshots:
                    self._say(order.written(one, name, size if one is first else 0))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def spilled(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same batches, mapped from a file in the host's scratch space (Spark's, if configured)."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    try:
        return [batch for schema, some in groupby(batches, _schema) for batch in _mapped(schema, list(some), directory)]
    except OSError as error:
        raise RunError(f"tuples that wait cannot be spilled to {directory}: {error}") from error


def _schema(batch: pa.RecordBatch) -> pa.Schema:
    return batch.schema


def _mapped(schema: pa.Schema, batches: Sequence[pa.RecordBatch], directory: str) -> list[pa.RecordBatch]:
    with tempfile.NamedTemporaryFile(prefix="fries-spill-", dir=directory) as file:
        with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        file.flush()
        with pa.memory_map(file.name) as mapped:
            return list(pa.ipc.open_stream(mapped))
