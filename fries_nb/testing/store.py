"""What survives a kill in the seeded cluster: snapshots, records, decisions, closed parts, and what is output.

It is what a real run keeps at its checkpoint place and in its sinks' directories, and it keeps the promises that a
disk keeps and no others: what was written stays, whole. The trace lies here too, as if somebody had watched.

>>> store = Store({"FM": "FM"})
>>> store.restoration().checkpoint is None
True
>>> name = store.save(3, 1, Snapshot("FM", 0, ()))
>>> store.snapshot(name).index
0
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from fries_nb.checkpoints import Checkpoint, CommittedChange, Restoration, Snapshot, in_effect
from fries_nb.messages import WorkerId
from fries_nb.testing.ports import ListPort
from fries_nb.trace import WorkerRecord

Place = tuple[str, int]


class Store:
    """All that is on disk.

    Args:
        head_of: operator to the first operator of its chain, by which a checkpoint names workers.

    Attributes:
        records: complete checkpoints, in order.
        decided: what was journaled, in order.
        committed: (epoch, parts by sink), in order.
        ports: every port that was ever opened, with its operator.
    """

    def __init__(self, head_of: Mapping[str, str]) -> None:
        self.records: list[Checkpoint] = []
        self.decided: list[CommittedChange] = []
        self.committed: list[tuple[int, dict[str, tuple[str, ...]]]] = []
        self.ports: list[tuple[WorkerId, ListPort]] = []
        self._head_of = head_of
        self._files: dict[str, bytes] = {}
        self._trace: defaultdict[Place, list[WorkerRecord]] = defaultdict(list)
        self._noted: defaultdict[int, dict[Place, int]] = defaultdict(dict)
        self._resumed: dict[Place, int] = {}

    # ---- checkpoints

    def save(self, epoch: int, incarnation: int, snapshot: Snapshot) -> str:
        """Write a worker's snapshot; its name."""
        name = f"{epoch}-{incarnation}/{snapshot.operator}-{snapshot.index}"
        self._files[name] = msgspec.msgpack.encode(snapshot)
        return name

    def snapshot(self, name: str) -> Snapshot:
        """Read a snapshot."""
        return msgspec.msgpack.decode(self._files[name], type=Snapshot)

    def keep(self, record: Checkpoint) -> None:
        """The record is on disk. Of workers that had ended, the trace is complete."""
        self.records.append(record)
        for place, records in self._trace.items():
            if self._had_ended(place, record):
                self._noted[record.epoch][place] = len(records)

    def restoration(self) -> Restoration:
        """What a new incarnation starts from."""
        return Restoration(self.records[-1] if self.records else None, in_effect(self.decided))

    # ---- sinks

    def open_port(self, worker: WorkerId, incarnation: int) -> ListPort:
        """A port of a new incarnation's worker: its parts have names of their own."""
        port = ListPort(f"{worker}.{incarnation}")
        self.ports.append((worker, port))
        return port

    def commit(self, epoch: int, files: dict[str, tuple[str, ...]]) -> None:
        """These parts are output."""
        self.committed.append((epoch, files))

    def complete(self) -> None:
        """Make output what the last record names, where the driver died before it came to it."""
        if self.records and (record := self.records[-1]).sinks and record.epoch not in dict(self.committed):
            self.commit(record.epoch, record.sinks)

    def rows_of(self, sink: str, parts: Iterable[str]) -> list[dict[str, Any]]:
        """The rows of some closed parts."""
        closed = {name: rows for worker, port in self.ports if worker.operator == sink
                  for name, rows in port.parts.items()}  # fmt: skip
        return [row for part in parts for row in closed[part]]

    # ---- the trace

    def trace(self, records: Iterable[WorkerRecord]) -> None:
        """The next records of some workers."""
        for record in records:
            self._trace[record.operator, record.worker].append(record)

    def note(self, epoch: int, workers: Iterable[WorkerId]) -> None:
        """What is traced of these workers by now lies in front of the marker of this checkpoint."""
        for worker in workers:
            self._noted[epoch][worker] = len(self._trace[worker])

    def cut(self) -> None:
        """Forget what was traced behind the last record: it will happen anew."""
        noted = self._noted[self.records[-1].epoch] if self.records else {}
        for place, records in self._trace.items():
            del records[noted.get(place, 0) :]

    def traced(self) -> list[WorkerRecord]:
        """The trace, each worker's records in its order."""
        return [record for records in self._trace.values() for record in records]

    def resume(self) -> None:
        """Another driver goes on from here; the trace that the dead one kept in memory is not its own."""
        self._resumed = {place: len(records) for place, records in self._trace.items()}

    def resumed(self) -> list[WorkerRecord]:
        """What the present driver has of the trace."""
        return [record for place, records in self._trace.items() for record in records[self._resumed.get(place, 0) :]]

    def _had_ended(self, place: Place, record: Checkpoint) -> bool:
        operator, index = place
        return str(WorkerId(self._head_of[operator], index)) in record.ended
