"""A checkpoint place to try things on: a small flow, a snapshot, a checkpoint of one worker."""

from __future__ import annotations

from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.operators.pickled_states import part_of
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Snapshot, number_of
from fries_nb.storage import claims
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.snapshot_files import SnapshotStore, write_snapshots


def graph(name: str = "w1", workers: int = 2, key: tuple[str, ...] = ("customer",)) -> Graph:
    """A source, a stateful operator, a sink."""
    operators = (
        Operator("numbers", kind=Kind.SOURCE),
        Operator("FM", workers=workers, key=key),
        Operator("out", kind=Kind.SINK),
    )
    return Graph(name, operators, (Edge("numbers", "FM", Partitioning.HASH, key), Edge("FM", "out")))


def snapshot(index: int = 0, processed: int = 7) -> Snapshot:
    """A chain of two operators at one index."""
    bins = {3: (part_of([(b"key", b"state")]),)}
    return Snapshot("FM", index, processed, ("u1",), bins, round_robin_positions={"out": 1}, version=2)


def store(place: CheckpointStore) -> SnapshotStore:
    """Where the place's snapshots lie."""
    return SnapshotStore(place.path, place.flow.run, place.key)


def silence() -> None:
    """Nobody knows any more whether the runs of this process go on, as if they were on another machine."""
    claims._HELD.clear()


def kept(place: CheckpointStore, epoch: int) -> Checkpoint:
    """A checkpoint of one worker, complete."""
    name, _ = write_snapshots(store(place), epoch, place.incarnation, [snapshot()])
    record = Checkpoint(place.flow.run, epoch, place.incarnation, {"FM[0]": name}, ("numbers[0]",), {"out": ("p",)})
    place.keep(record)
    place.tidy()
    return record


def decided(change: str) -> CommittedChange:
    """A change of one operator, decided in the order of the numbers of their ids."""
    return CommittedChange(change, "fries", (("FM",),), {"FM": b"update"}, number=number_of(change))
