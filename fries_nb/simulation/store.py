"""The storage of the seeded cluster, which survives kills: snapshots, records, decisions, closed parts, and output.

It holds what a real run keeps in its checkpoint directory and its sinks' directories, with the guarantees of a disk:
writes are atomic and durable. Files of snapshots have the content that they have on a disk, and are deleted as there.
It also holds the trace, as an external observer would.

>>> from fries_nb.protocol.checkpoints import Snapshot
>>> from fries_nb.storage.snapshot_files import read_file_of_snapshots, write_snapshots
>>> store = Store()
>>> store.restoration().checkpoint is None
True
>>> name, _ = write_snapshots(store, "3", 1, [Snapshot("FM", 0, processed=7)])
>>> read_file_of_snapshots(store, name)[0].processed
7

A sink that keeps its rows in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fries_nb.connectors.sink import RuntimeSink
from fries_nb.dataflow.columns import united
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import CheckpointError, SinkError
from fries_nb.protocol.checkpoints import (
    Checkpoint,
    CommittedChange,
    Restoration,
    in_effect,
    without_superseded,
)
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.rollout import Reach
from fries_nb.protocol.trace import EarlierRecords, WorkerRecord, earlier_records, last_word
from fries_nb.storage.checkpoint_store import KEPT
from fries_nb.storage.durable import NO_KEY
from fries_nb.storage.stored_parts import forgotten_files


class ListPort:
    """Keeps rows in parts; a closed part has a name, and its rows become output when it is committed.

    >>> port = ListPort("out[0]")
    >>> port.write(pa.RecordBatch.from_pydict({"x": [1]}))
    >>> port.close_part(), port.close_part(), port.parts
    (('out[0]-0',), (), {'out[0]-0': [{'x': 1}]})
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: dict[str, list[dict[str, Any]]] = {}
        self.columns = pa.schema([])
        self._open: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows, hidden columns included."""
        self._open.extend(batch.to_pylist())
        if batch.schema != self.columns:
            self.columns = _holding_both(self.columns, batch.schema)

    def close_part(self) -> tuple[str, ...]:
        """Close the part of the rows since the last call."""
        if not self._open:
            return ()
        part = f"{self.name}-{len(self.parts)}"
        self.parts[part], self._open = self._open, []
        return (part,)


class ListSink(RuntimeSink):
    """A sink in memory that survives simulated failures: all closed parts, and the commits.

    >>> sink = ListSink()
    >>> port = sink.open(WorkerId("out", 0), incarnation=1)
    >>> port.write(pa.RecordBatch.from_pydict({"x": [1]}))
    >>> parts = port.close_part()
    >>> sink.commit(1, parts)
    >>> parts, sink.rows_of(parts), sink.commits
    (('out[0].1-0',), [{'x': 1}], {1: ('out[0].1-0',)})
    """

    def __init__(self) -> None:
        self.ports: list[ListPort] = []  # all ports that were opened
        self.commits: dict[int, tuple[str, ...]] = {}  # commit number to the parts that are output

    def claim(self, flow: str, run: str) -> None:
        """Nothing to claim: it belongs to one run; see ``Sink``."""

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> ListPort:
        """Open a port for a worker in an incarnation; see ``Sink``."""
        port = ListPort(f"{worker}{f'@{epoch}' if epoch > 1 else ''}.{incarnation}")
        self.ports.append(port)
        return port

    def prepare(self, parts: Sequence[str]) -> None:
        """Check that the parts are closed; see ``Sink``."""
        if gone := [part for part in parts if not any(part in port.parts for port in self.ports)]:
            raise SinkError(f"the parts {gone} have gone")

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Record the commit; see ``Sink``."""
        names = tuple(sorted(parts))
        if not names:
            return
        if self.commits.get(number, names) != names:
            raise SinkError(f"{number} is committed in memory with other files")
        granted = max(map(_incarnation, (*names, *(part for noted in self.commits.values() for part in noted))))
        if old := [part for part in names if _incarnation(part) < granted and number not in self.commits]:
            raise SinkError(f"{old[0]} is of incarnation {_incarnation(old[0])}, and the memory is at {granted}")
        self.prepare(names)
        self.commits[number] = names

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Remove later commits, and record this one; see ``Sink``."""
        for later in [other for other in self.commits if other > number]:
            del self.commits[later]
        self.commit(number, parts)

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """Remove parts that are not committed; see ``Sink``."""
        kept = {*spared, *(part for parts in self.commits.values() for part in parts)}
        for port in self.ports:
            for part in [part for part in port.parts if part not in kept and _incarnation(part) <= incarnation]:
                del port.parts[part]

    def rows_of(self, parts: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of closed parts."""
        closed = {name: rows for port in self.ports for name, rows in port.parts.items()}
        return [row for part in parts for row in closed[part]]


def _incarnation(part: str) -> int:
    return int(part.rpartition(".")[2].partition("-")[0])


def _holding_both(columns: pa.Schema, new: pa.Schema) -> pa.Schema:
    """A schema for rows of both; the new one if there is none, since a list of dicts holds any value."""
    try:
        return united(columns, new)
    except pa.ArrowException:
        return new


class StoredSink(ListSink):
    """A sink of a store, which notes every commit; a commit may fail."""

    def __init__(self, name: str, fails: Callable[[], bool], note: Callable[[int, str, tuple[str, ...]], None]) -> None:
        super().__init__()
        # ``note``: called with the number and the parts of each commit
        # ``name``: name of the sink
        self._name, self._fails, self._note = name, fails, note

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Record the commit; see ``Sink``."""
        if parts and self._fails():
            raise SinkError("no space left on device")
        super().commit(number, parts)
        self._note(number, self._name, tuple(parts))

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Remove later commits, and record this one; see ``Sink``. It does not fail, since no driver would resume."""
        fails, self._fails = self._fails, lambda: False
        if parts:
            super().recover(number, parts)
        self._fails = fails  # whether the current commit fails


class StoredSinks(dict[str, StoredSink]):
    """The sinks of a store by name, made when they are first asked for."""

    def __init__(self, make: Callable[[str], StoredSink]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> StoredSink:
        self[name] = self._make(name)
        return self[name]


Place = tuple[str, int]


class Store:
    """The durable state; for drivers it is a ``driver.committer.DurablePlace``."""

    def __init__(
        self, is_full: Callable[[], bool] = lambda: False, sink_fails: Callable[[], bool] = lambda: False
    ) -> None:
        self.records: list[Checkpoint] = []  # complete checkpoints, in order
        self.decided: list[CommittedChange] = []  # decisions, in order
        self.committed: list[tuple[int, dict[str, tuple[str, ...]]]] = []  # (commit number, parts by sink), in order
        # the numbers of decisions and of records at each commit of a sink that has failed
        self.lost: list[tuple[int, int]] = []
        # sinks, and dead letters, by operator
        self.sinks = StoredSinks(lambda name: StoredSink(name, self._fails, self._note_commit))
        # ``sink_fails``: whether the commit of a sink that is under way fails
        # ``is_full``: whether the record that is being written does not fit on the disk
        self._is_full, self._sink_fails = is_full, sink_fails
        self._begun: dict[str, int] = {}
        self._has_no_room = False
        self._begun_last = 1  # the current incarnation
        self.files: dict[str, bytes] = {}  # files of snapshots
        self._trace: defaultdict[Place, list[WorkerRecord]] = defaultdict(list)
        self._noted: defaultdict[int, dict[Place, int]] = defaultdict(dict)
        # the changes that the checkpoint includes from which the last driver has resumed the run
        self.before: tuple[str, ...] = ()
        self._resumed: dict[Place, int] = {}
        self._left: set[WorkerId] = set()

    # ---- checkpoints

    place, run, key = "the store", "r", NO_KEY

    @contextmanager
    def opened(self, name: str) -> Iterator[pa.NativeFile]:
        """See ``SnapshotDirectory``."""
        if name not in self.files:
            raise FileNotFoundError(f"there is no file {name}")
        yield pa.BufferReader(self.files[name])

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """See ``SnapshotDirectory``."""
        if self._has_no_room:
            raise OSError("no space left on device")
        self.files[name] = b"".join(content)

    @contextmanager
    def full(self, is_full: bool) -> Iterator[None]:
        """A block in which the disk may be full."""
        self._has_no_room = is_full
        try:
            yield
        finally:
            self._has_no_room = False

    def keep(self, record: Checkpoint) -> None:
        """Write the record of a checkpoint. The trace of workers that had ended is complete then.

        Raises:
            CheckpointError: the disk is full.
        """
        if self._is_full():
            raise CheckpointError("no space left on device")
        self.records.append(record)
        is_last = not record.snapshots  # no marker leads to it
        for place, records in self._trace.items():
            if self._had_ended(place, record) or (is_last and WorkerId(*place) in self._left):
                self._noted[record.epoch][place] = len(records)

    def decide(self, decided: CommittedChange) -> None:
        """Write a decision."""
        self.decided.append(decided)

    def begin(self, incarnation: int) -> None:
        """Begin another incarnation, whose files have other names."""
        self._begun_last = incarnation

    def tidy(self) -> None:
        """Delete the files of snapshots that the last records do not need; the records stay, for laws compare all."""
        for name in forgotten_files(self.files, self.records[-KEPT:], self._begun_last):
            del self.files[name]

    def release(self) -> None:
        """No other attempt waits for it."""

    is_own, incarnation, doubtful = True, 0, frozenset[str]()

    def restoration(self) -> Restoration:
        """The state from which a new incarnation starts."""
        last = self.records[-1] if self.records else None
        return Restoration(last, in_effect(self.decided, last)).begun_anew()

    def kept(self) -> list[CommittedChange]:
        """The changes in effect, with the payloads that a driver keeps."""
        last = self.records[-1] if self.records else None
        applied, reach = (last.decided, last.reach) if last is not None else ((), Reach())
        return without_superseded(in_effect(self.decided, last), applied, reach)

    def cut_by(self, graph: Graph) -> Mapping[str, int]:
        """Source to its number of workers at the beginning of the run, which determined its splits."""
        for name in graph.sources:
            self._begun.setdefault(name, graph.operator(name).workers)
        return self._begun

    # ---- sinks

    def open_port(self, worker: WorkerId, incarnation: int, epoch: int) -> ListPort:
        """Open a port for a worker that was added in this epoch of an incarnation; its parts have unique names."""
        return self.sinks[worker.operator].open(worker, incarnation, epoch)

    def _fails(self) -> bool:
        """Whether the current commit of a sink fails, which is noted."""
        if fails := self._sink_fails():
            self.lost.append((len(self.decided), len(self.records)))
        return fails

    def _note_commit(self, number: int, sink: str, parts: tuple[str, ...]) -> None:
        """Note what a sink has committed, which several sinks of one commit do one after the other."""
        if not self.committed or self.committed[-1][0] != number:
            self.committed.append((number, {}))
        self.committed[-1][1].setdefault(sink, parts)

    def rows_of(self, sink: str, parts: Iterable[str]) -> list[dict[str, Any]]:
        """The rows of closed parts."""
        return self.sinks[sink].rows_of(tuple(parts))

    # ---- the trace

    def trace(self, records: Iterable[WorkerRecord]) -> None:
        """Append records of workers to the trace."""
        for record in records:
            self._trace[record.operator, record.worker].append(record)

    def note(self, epoch: int, workers: Iterable[WorkerId]) -> None:
        """Mark the current length of these workers' traces as the position of this checkpoint's marker."""
        if epoch not in self._noted:
            self._noted[epoch] = {worker: len(self._trace[worker]) for worker in self._left}
        for worker in workers:
            self._noted[epoch][worker] = len(self._trace[worker])

    def leave(self, workers: Iterable[WorkerId]) -> None:
        """Record that workers were removed, so that checkpoints from now on include all they did."""
        self._left.update(workers)

    def leave_all_but(self, operators: Container[str]) -> None:
        """Record that all workers of other operators were removed, whether hosts have adopted that or not."""
        self.leave(WorkerId(*place) for place in self._trace if place[0] not in operators)

    def earlier(self, workers: Iterable[WorkerId]) -> dict[WorkerId, EarlierRecords]:
        """For those of these workers that were removed before: what the trace holds of them."""
        return {worker: earlier_records(self._trace[worker]) for worker in workers if worker in self._left}

    def cut(self) -> None:
        """Remove the trace after the last record, since a recovery processes these tuples again."""
        # What an earlier driver left stays: its run may have had workers that this one does not have.
        noted = self._noted[self.records[-1].epoch] if self.records else {}
        for place, records in self._trace.items():
            del records[max(noted.get(place, 0), self._resumed.get(place, 0)) :]
            if records and WorkerId(*place) in self._left:
                records.append(last_word(*place, records))

    def traced(self) -> list[WorkerRecord]:
        """The trace, with each worker's records in order."""
        return [record for records in self._trace.values() for record in records]

    def resume(self) -> None:
        """Continue with another driver, which does not have the trace that the killed one kept in memory."""
        self._resumed = {place: len(records) for place, records in self._trace.items()}
        checkpoint = self.restoration().checkpoint
        self.before = () if checkpoint is None else checkpoint.decided

    def resumed(self) -> list[WorkerRecord]:
        """The trace that the current driver has."""
        return [record for place, records in self._trace.items() for record in records[self._resumed.get(place, 0) :]]

    def _had_ended(self, place: Place, record: Checkpoint) -> bool:
        return str(WorkerId(*place)) in record.ended
