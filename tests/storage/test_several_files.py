"""A checkpoint in several files: each is needed, deleted in time, copied, verified, and named where it is damaged."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from typing import Any

import pytest
from looked_at import declared
from place_setting import graph, silence
from stopping_files import watch

import fries_nb as fn
from fries_nb.errors import CheckpointError
from fries_nb.operators.pickled_states import loaded_states, part_of_states
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import Answer, Saved, WorkerId
from fries_nb.protocol.partitioning import bins_of_keys
from fries_nb.storage.checkpoint_store import CheckpointStore, Location
from fries_nb.storage.durable import NO_KEY
from fries_nb.storage.restored_states import read_states
from fries_nb.storage.saver import Saver, SnapshotWriter
from fries_nb.storage.snapshot_files import SnapshotStore, read_file_of_snapshots
from fries_nb.storage.stored_checkpoint import ForkOrigin, fork_checkpoint
from fries_nb.worker.events import Park, Save
from fries_nb.worker.snapshot import Redistribution

FM = WorkerId("FM", 0)
STATES = {f"c{number}": {"count": number} for number in range(30)}


def taken(states: dict[Any, Any], since: int) -> Snapshot:
    """A snapshot with these states by key."""
    bins: dict[int, dict[Any, Any]] = {}
    for key, bin in zip(states, bins_of_keys([*states]).tolist(), strict=True):
        bins.setdefault(bin, {})[key] = states[key]
    parts = {bin: (part_of_states(some)[0],) for bin, some in bins.items()}
    return Snapshot("FM", 0, 7, bins=parts, keys=len(STATES), since=since)


def kept(place: CheckpointStore, saved: list[Answer], epoch: int) -> Checkpoint:
    """The record of a checkpoint, complete."""
    [one] = saved
    assert isinstance(one, Saved)
    record = Checkpoint(
        place.flow.run, epoch, place.incarnation, {"FM[0]": one.name}, ("S[0]", "out[0]"), workers={"FM": 1},
        earlier={one.name: one.earlier} if one.earlier else {},
    )  # fmt: skip
    place.keep(record)
    place.tidy()
    return record


class Growing:
    """A directory with a checkpoint after the other, each with another key touched."""

    def __init__(self, path: Path, key: bytes = NO_KEY) -> None:
        self.path = path / "c"
        self.place = CheckpointStore.claim(str(self.path), graph(workers=1), "r1", key)
        self.store = SnapshotStore(str(self.path), "r1", key)
        self.writer = SnapshotWriter(self.store, 1)
        self.states, self.epoch = dict(STATES), 0

    def step(self) -> Checkpoint:
        """One more."""
        since, self.epoch = self.epoch, self.epoch + 1
        touched = {f"c{self.epoch}": {"count": 100 + self.epoch}}
        self.states |= touched
        order = Save(self.epoch, (taken(touched if since else self.states, since),))
        return kept(self.place, self.writer.write(order), self.epoch)

    def grown(self, count: int) -> Growing:
        """So many more."""
        for _ in range(count):
            self.step()
        return self

    def files(self) -> list[str]:
        """The files of snapshots that are there."""
        return sorted(str(file.relative_to(self.path / "states")) for file in (self.path / "states").rglob("*.msgpack"))


def states_of(place: CheckpointStore) -> dict[Any, Any]:
    """The states in the checkpoint with which a place goes on."""
    record = place.restoration.checkpoint
    assert record is not None
    store = SnapshotStore(place.path, place.flow.run, place.key)
    [snapshot] = read_file_of_snapshots(store, record.snapshots["FM[0]"])
    return loaded_states(itertools.chain.from_iterable(snapshot.bins.values()), {})


def test_a_file_stays_as_long_as_a_record_names_it(tmp_path: Path) -> None:
    """The oldest, which has most of the states; those whose parts were written again go, one by one."""
    run = Growing(tmp_path).grown(5)
    record = CheckpointStore.load(run.place.path)[1].checkpoint
    assert record is not None
    assert "1-1/FM-0.msgpack" in record.files
    assert {file.partition("/")[0] for file in run.files()} >= {"1-1", "4-1", "5-1"}
    assert set(record.files) <= set(run.files())
    run.place.release()
    again = CheckpointStore.resume(run.place.path, graph(workers=1))
    assert states_of(again) == run.states


@pytest.mark.parametrize("key", [NO_KEY, b"a phrase"])
@pytest.mark.parametrize("damage", ["gone", "cut", "altered", "exchanged"])
def test_a_damaged_earlier_file_is_found_and_named(tmp_path: Path, damage: str, key: bytes) -> None:
    """By a resume, which has no other checkpoint then, as both need it."""
    run = Growing(tmp_path, key).grown(4)
    run.place.release()
    file = run.path / "states" / "1-1" / "FM-0.msgpack"
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage == "exchanged":  # with one that was sealed as well, under the same name
        SnapshotWriter(run.store, 1).write(Save(1, (taken({"c1": {"count": 0}}, 0),)))
    else:
        file.write_bytes(content[:-1] if damage == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"is damaged: states/1-1/FM-0.msgpack: "):
        CheckpointStore.resume(run.place.path, graph(workers=1), key)
    silence()
    record = CheckpointStore.load(run.place.path, key)[1].checkpoint if damage != "gone" else None
    if record is not None:
        with pytest.raises(CheckpointError, match=r"states/1-1/FM-0.msgpack: it .*FM\[0\].*; expected the file"):
            read_file_of_snapshots(run.store, record.snapshots["FM[0]"])
    file.write_bytes(content)
    assert states_of(CheckpointStore.resume(run.place.path, graph(workers=1), key)) == run.states


def test_a_damaged_part_says_which_bin_it_is(tmp_path: Path) -> None:
    """And what to do."""
    run = Growing(tmp_path).grown(3)
    record = CheckpointStore.load(run.place.path)[1].checkpoint
    assert record is not None
    file = run.path / "states" / "1-1" / "FM-0.msgpack"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"\(states of FM\[0\], in bin \d+\); expected the file as it was"):
        read_file_of_snapshots(run.store, record.snapshots["FM[0]"])


def test_a_checkpoint_before_it_is_taken_if_only_the_newest_file_is_damaged(tmp_path: Path) -> None:
    """Which the earlier one does not name."""
    run = Growing(tmp_path).grown(3)
    before = dict(run.states)
    run.step()
    run.place.release()
    (run.path / "states" / "4-1" / "FM-0.msgpack").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match=r"states/4-1/FM-0.msgpack.* goes on from the checkpoint before it"):
        again = CheckpointStore.resume(run.place.path, graph(workers=1))
    assert states_of(again) == before


def test_a_fork_has_all_files_of_its_own(tmp_path: Path) -> None:
    """Sealed anew; its first snapshot is whole."""
    run = Growing(tmp_path).grown(4)
    to = Location.of(str(tmp_path / "fork"), b"a key")
    fork = fork_checkpoint(ForkOrigin(str(run.path), NO_KEY), graph(workers=1), to, graph(workers=1), "fork")
    assert states_of(fork) == run.states
    store = SnapshotStore(fork.path, "fork", b"a key")
    restored = read_states(store, Redistribution(fork.restoration.checkpoint, graph(workers=1)), [FM])
    assert restored.stored == {}
    fork.release()


def test_a_view_reads_parts_of_several_files(tmp_path: Path) -> None:
    """The last state of each key."""
    run = Growing(tmp_path)
    run.place.release()
    run.place = CheckpointStore.claim(str(tmp_path / "d"), declared(), "r1")
    run.store = SnapshotStore(run.place.path, "r1")
    run.writer = SnapshotWriter(run.store, 1)
    run.grown(3)
    view = fn.checkpoint(tmp_path / "d")
    assert view.state("FM").set_index(view.state("FM").columns[0])["count"].to_dict() == {
        key: state["count"] for key, state in run.states.items()
    }


def test_a_parked_state_is_whole(tmp_path: Path) -> None:
    """And changes nothing for the worker's next snapshots."""
    run = Growing(tmp_path).grown(2)
    [parked] = run.writer.write(Park(3, (taken(run.states, 0),)))
    assert run.writer.stored[FM].number == 2
    with pytest.raises(CheckpointError, match="has only what has come since number 2"):
        run.writer.write(Park(4, (taken({}, 2),)))
    run.step()
    assert read_file_of_snapshots(run.store, getattr(parked, "name", ""))[0].since == 0


def test_a_disk_that_is_full_at_any_step_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In front of each operation: it is told, the next snapshot has everything, and the record before it is whole."""
    failing = 0

    def seen(operation: str) -> None:
        nonlocal failing
        failing -= 1
        if not failing:
            raise OSError(errno.ENOSPC if operation == "write" else errno.EROFS, f"no {operation}")

    watch(monkeypatch, seen)
    for number in itertools.count(1):
        run = Growing(tmp_path / str(number)).grown(2)
        said, lost = list[Any](), list[WorkerId]()
        saver = Saver(run.writer, said.append, lost.append)
        saver.save(Save(3, (taken({"c1": {"count": 8}}, 2),)))
        saver.save(Save(4, (taken({"c2": {"count": 8}}, 3),)))
        saver.save(Save(5, (taken(STATES, 0),)))
        saver.leave()
        failing = number
        saver.run()
        is_over, failing = failing > 0, 0
        if is_over:
            break
        if said[0].error:  # it could not read what it writes again, or not write
            assert "no read" in said[0].error or "the state of FM[0] cannot be written to" in said[0].error
            assert "the snapshot of FM[0] has only what has come since number 3, which was not written" in said[1].error
        assert lost == [FM for one in said if one.error]
        assert not said[2].error or not said[0].error
        for name in {one.name for one in said if one.name}:
            read_file_of_snapshots(run.store, name)
        run.place.release()
        assert states_of(CheckpointStore.resume(run.place.path, graph(workers=1))) == run.states
        silence()
    assert number > 10
