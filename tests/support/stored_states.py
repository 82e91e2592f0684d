"""Workers whose states change, are stored, move and begin again, beside a plain dict of what they have to be.

They keep to what ``Snapshot.since`` and ``Snapshot.gone`` say, as workers do, and may be made to break it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.errors import CheckpointError
from fries_nb.operators.pickled_states import loaded_states, part_of
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import Saved, WorkerId
from fries_nb.protocol.partitioning import RoutingTable, owners_by
from fries_nb.simulation.store import Store
from fries_nb.storage import stored_parts
from fries_nb.storage.restored_states import read_states
from fries_nb.storage.saver import SnapshotWriter
from fries_nb.worker.events import Save
from fries_nb.worker.snapshot import Redistribution

BINS = 6
KEYS = 40
OPERATOR = "FM"


def bin_of(key: int) -> int:
    """The bin of a key; another one than routing has, so that each has several."""
    return 170 * (int(key) % BINS)


@dataclass
class SavingWorker:
    """The states of one worker, and what of them is stored."""

    states: dict[int, int] = field(default_factory=dict)
    touched: dict[int, None] = field(default_factory=dict)  # in the order in which they were
    gone: set[int] = field(default_factory=set)
    agenda: dict[int, bytes] = field(default_factory=dict)
    since: int = 0
    is_late: bool = False  # whether it does not know yet that the last one could not be stored

    def set(self, key: int, state: int | None) -> None:
        """Set, or drop, the state of a key."""
        self.touched.pop(key, None)
        self.touched[key] = None
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def snapshot(self, index: int, number: int) -> Snapshot:
        """What is to be stored."""
        keys = self.touched if self.since else self.states
        bins: dict[int, list[tuple[bytes, bytes | None]]] = {}
        for key in keys:
            like = float(key) if number % 2 else key  # which is the same key, and pickled otherwise
            state = self.states.get(key)
            bins.setdefault(bin_of(key), []).append((pickle.dumps(like), None if state is None else pickle.dumps(state)))
        parts = {bin: (part_of(entries),) for bin, entries in bins.items()}
        gone = tuple(sorted(self.gone)) if self.since else ()
        taken = Snapshot(OPERATOR, index, number, bins=parts, agenda=dict(self.agenda), since=self.since, gone=gone)
        self.touched.clear()
        self.gone.clear()
        self.since = number
        return taken


class StoredRun:
    """Workers of one operator, which take checkpoints; ``step`` does something by chance.

    Attributes:
        store: what is stored.
        failed: number of snapshots that could not be stored.
        deltas: number of snapshots that were stored behind others.
    """

    def __init__(self, seed: int) -> None:
        self.store = Store()
        self.failed = self.deltas = 0
        self._chance = Random(seed)
        self._epoch, self._incarnation = 0, 0
        self._then: dict[int, tuple[dict[int, int], dict[int, bytes]]] = {}  # epoch to states and agendas
        self._begin(self._chance.randint(1, 3))

    def _begin(self, count: int) -> None:
        """Another incarnation, with so many workers, from the last record."""
        self._incarnation += 1
        self.store.begin(self._incarnation)
        self._owners = owners_by(None, count).tolist()
        self._workers = [SavingWorker() for _ in range(count)]
        graph = Graph("w1", (Operator(OPERATOR, key=("k",), workers=count),), ())
        record = self.store.records[-1] if self.store.records else None
        ids = [WorkerId(OPERATOR, index) for index in range(count)]
        restored = read_states(self.store, Redistribution(record, graph), ids)
        for worker, own in zip(ids, self._workers, strict=True):
            snapshot = restored.snapshots[worker]
            if snapshot is not None:
                for parts in snapshot.bins.values():
                    own.states.update(loaded_states(parts, {}))
                own.agenda, own.since = dict(snapshot.agenda), snapshot.since
        self._writer = SnapshotWriter(self.store, self._incarnation, restored.stored)
        if record is not None:
            assert self.all_states() == self._then[record.epoch]

    def all_states(self) -> tuple[dict[int, int], dict[int, bytes]]:
        """What all workers have."""
        states = {key: state for own in self._workers for key, state in own.states.items()}
        return states, {bin: content for own in self._workers for bin, content in own.agenda.items()}

    def step(self) -> None:
        """Rows, and then a checkpoint, a move of a bin, or another incarnation."""
        for _ in range(self._chance.choice([0, 1, 3, 30])):
            key = self._chance.randrange(KEYS)
            state = None if self._chance.random() < 0.25 else self._chance.randrange(10**6)
            own = self._workers[self._owners[bin_of(key)]]
            own.set(key, state)
            if self._chance.random() < 0.3:
                own.agenda[bin_of(key)] = b"%d" % self._chance.randrange(3)
        what = self._chance.random()
        if what < 0.8:
            self.checkpoint()
        elif what < 0.92:
            self._move(170 * self._chance.randrange(BINS), self._chance.randrange(len(self._workers)))
        else:
            self.restart()

    def restart(self) -> None:
        """Begin again, maybe with more or fewer workers, from what the last record names."""
        self._begin(self._chance.randint(1, 3))

    def _move(self, bin: int, to: int) -> None:
        source, target = self._workers[self._owners[bin]], self._workers[to]
        if source is target:
            return
        self._owners[bin] = to
        source.gone.add(bin)
        for key in [key for key in source.states if bin_of(key) == bin]:
            target.set(key, source.states.pop(key))
        for key in [key for key in source.touched if bin_of(key) == bin]:
            del source.touched[key]
        if (agenda := source.agenda.pop(bin, None)) is not None:
            target.agenda[bin] = agenda

    def checkpoint(self) -> None:
        """Store a snapshot of each worker; keep a record if all are; delete what is not needed any more."""
        self._epoch += 1
        saved: list[Saved] = []
        for index, own in enumerate(self._workers):
            if self._chance.random() < 0.3:  # while hosts write, the driver may delete
                self.store.tidy()
            order = Save(self._epoch, (own.snapshot(index, self._epoch),))
            with self.store.full(self._chance.random() < 0.05):
                try:
                    saved += self._writer.write(order)
                except CheckpointError as error:
                    assert "no space left" in str(error) or (own.is_late and "was not written" in str(error))
                    self.failed += 1
                    own.is_late = not own.is_late and self._chance.random() < 0.5
                    own.since = self._epoch if own.is_late else 0
                else:
                    assert not own.is_late
                    self.deltas += bool(order.snapshots[0].since)
        if len(saved) == len(self._workers) and self._chance.random() < 0.8:
            self._keep(saved)

    def _keep(self, saved: list[Saved]) -> None:
        self._then[self._epoch] = self.all_states()
        count = len(self._workers)
        table = {OPERATOR: RoutingTable.of(self._owners).packed}
        self.store.keep(Checkpoint(
            "r", self._epoch, self._incarnation, {str(one.worker): one.name for one in saved},
            workers={OPERATOR: count}, tables=table, earlier={one.name: one.earlier for one in saved},
        ))  # fmt: skip


@contextmanager
def few_parts(parts: int = 4, files: int = 4) -> Iterator[None]:
    """A block in which fewer parts and files are too many."""
    before = stored_parts.PARTS, stored_parts.FILES
    stored_parts.PARTS, stored_parts.FILES = parts, files
    try:
        yield
    finally:
        stored_parts.PARTS, stored_parts.FILES = before


def try_stored(seed: int) -> StoredRun:
    """A run of some steps, which begins again at its end."""
    with few_parts():
        run = StoredRun(seed)
        for _ in range(40):
            run.step()
        run.restart()
    return run
