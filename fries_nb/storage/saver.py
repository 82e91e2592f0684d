"""Storing the snapshots of a host's workers, by a thread of its own, so that no tuple waits for storage.

A worker's snapshot has what has come since the one before (see ``stored_parts``). So it counts only behind that: if
that could not be written, or is not the last one that was, the snapshot is refused, and so are later ones, until one
with all of the worker's states comes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec.structs import replace

from fries_nb.errors import CheckpointError, exception_text
from fries_nb.protocol.checkpoints import Snapshot
from fries_nb.protocol.messages import Answer, WorkerId
from fries_nb.storage.snapshot_files import SnapshotDirectory, write_behind
from fries_nb.storage.stored_parts import StoredParts


class Storing(Protocol):
    """An order to store snapshots as one file: ``worker.events.Save``, or ``Park``."""

    @property
    def place(self) -> str:
        """The name of the directory, within an incarnation."""

    @property
    def number(self) -> int:
        """The number by which later snapshots name these; 0 if none will follow, so that these have all states."""

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """What is to be stored."""

    def written(self, snapshot: Snapshot, name: str, size: int, earlier: tuple[str, ...]) -> Answer:
        """The answer for one of them."""

    def failed(self, worker: WorkerId, error: str) -> Answer:
        """The answer if the file could not be written."""


class SnapshotWriter:
    """Writes the snapshots of a host's workers, each behind what is stored of its worker.

    Args:
        store: where the files are.
        incarnation: the incarnation that writes them.
        stored: what is stored of workers that begin with a checkpoint's states.

    Attributes:
        stored: what is stored of each worker.
    """

    def __init__(
        self, store: SnapshotDirectory, incarnation: int, stored: Mapping[WorkerId, StoredParts] | None = None
    ) -> None:
        self.stored = dict(stored or {})
        self._store = store
        self._incarnation = incarnation

    def write(self, order: Storing) -> list[Answer]:
        """Store the snapshots of an order, as one file; returns the answers.

        Raises:
            CheckpointError: they could not be written, or would not count.
        """
        workers = [WorkerId(one.operator, one.index) for one in order.snapshots]
        for worker, snapshot in zip(workers, order.snapshots, strict=True):
            self._check(worker, snapshot, order.number)
        directory = f"{order.place}-{self._incarnation}"
        written = write_behind(self._store, directory, order.number, order.snapshots, self.stored)
        if order.number:
            self.stored.update(written.stored)
        first, answers = order.snapshots[0], []
        for worker, one in zip(workers, order.snapshots, strict=True):
            needs = tuple(sorted(written.stored[worker].needs))
            size = written.size if one is first else 0
            answers.append(order.written(replace(one, needs=needs), written.name, size, written.earlier))
        return answers

    def _check(self, worker: WorkerId, snapshot: Snapshot, number: int) -> None:
        """Refuse a snapshot that counts only behind one that is not stored."""
        stored = self.stored.get(worker)
        if snapshot.since and (not number or stored is None or stored.number != snapshot.since):
            raise CheckpointError(
                f"the snapshot of {worker} has only what has come since number {snapshot.since}, which was not written "
                f"by this host{'' if stored is None else f', but {stored.number} was'}; all of its states are written "
                "next"
            )


class Saver(threading.Thread):
    """Writes the snapshots of a host's workers, one after the other, and reports each.

    Args:
        writer: writes them.
        say: called from this thread with the result of each write.
        lost: called from this thread, before the answer, with each worker whose next snapshot has to have all states,
            since the last one could not be written.
    """

    def __init__(
        self, writer: SnapshotWriter, say: Callable[[Answer], None], lost: Callable[[WorkerId], object]
    ) -> None:
        super().__init__(name="fries-save", daemon=True)
        self._writer = writer
        self._say = say
        self._lost = lost
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
            workers = [WorkerId(one.operator, one.index) for one in order.snapshots]
            try:
                answers = self._writer.write(order)
            except Exception as error:  # noqa: BLE001 - an answer is owed, or the checkpoint never ends
                words = str(error) if isinstance(error, CheckpointError) else exception_text(error)
                for worker in workers if order.number else ():
                    self._lost(worker)
                answers = [order.failed(workers[0], words)]
            for answer in answers:
                self._say(answer)
