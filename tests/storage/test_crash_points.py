"""Killed in front of any operation on a file, and resumed: a whole checkpoint is found, and each row is there once."""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from place_setting import decided, graph, silence
from stopping_files import Killed, watch

from fries_nb.connectors.parquet_sink import ParquetSink, PartWriter
from fries_nb.controller import events
from fries_nb.driver.committer import Committer, complete
from fries_nb.errors import CheckpointError, SinkError
from fries_nb.operators.pickled_states import loaded_states, part_of_states
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import Saved, WorkerId
from fries_nb.storage import manifest
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.restored_states import read_states
from fries_nb.storage.saver import SnapshotWriter
from fries_nb.storage.snapshot_files import SnapshotStore
from fries_nb.worker.events import Save
from fries_nb.worker.snapshot import Redistribution

EPOCHS = 3
LARGE = "x" * 1000
WORKERS = (0, 1)


class Attempt:
    """What a driver and two sinks' workers do with files, one epoch after another: each writes a row a worker."""

    def __init__(self, path: Path, resumed: bool) -> None:
        self.out = str(path / "out")
        place = str(path / "place")
        self.place = CheckpointStore.resume(place, graph()) if resumed else CheckpointStore.claim(place, graph(), "r1")
        self.sink = ParquetSink(self.out)
        self.sink.claim("w1", "r1")
        if resumed:
            complete(self.place.restoration.checkpoint, {"out": self.sink})
        self.store = SnapshotStore(place, self.place.flow.run)
        self.epoch = self._restored()
        self.sinks = [PartWriter(self.out, WorkerId("out", n), self.place.incarnation, "r1") for n in WORKERS]

    def _restored(self) -> int:
        """The epoch of the checkpoint, whose states have to be there and to be of it, in whichever files they are."""
        checkpoint = self.place.restoration.checkpoint
        workers = [WorkerId("FM", index) for index in WORKERS]
        restored = read_states(self.store, Redistribution(checkpoint, graph()), workers)
        self.writer = SnapshotWriter(self.store, self.place.incarnation, restored.stored)
        self.since = {worker.index: found.number for worker, found in restored.stored.items()}
        epoch = checkpoint.epoch if checkpoint is not None else 0
        for worker in workers if epoch else ():
            snapshot = restored.snapshots[worker]
            assert snapshot is not None
            assert loaded_states(chain(*snapshot.bins.values()), {}) == {0: LARGE, **{n: n for n in range(1, epoch + 1)}}
            assert snapshot.agenda == {5: b"as ever", 9: b"%d" % epoch}
        return epoch

    def _snapshot(self, index: int, epoch: int) -> Snapshot:
        """What has come since the last one: a key; and at the beginning a large state, which nothing touches."""
        since, new = self.since.get(index, 0), range(1, epoch + 1)
        bins = {5: (part_of_states({n: n for n in new if n > since})[0],)} | (
            {} if since else {9: (part_of_states({0: LARGE})[0],)}
        )
        self.since[index] = epoch
        agenda = {5: b"as ever", 9: b"%d" % epoch}
        return Snapshot("FM", index, epoch, bins=bins, agenda=agenda, since=since)

    def step(self) -> None:
        """One epoch: rows, a decision, snapshots, the record, the commit, and what is not needed any more."""
        epoch = self.epoch + 1
        files: list[str] = []
        for index, sink in enumerate(self.sinks):
            sink.write(pa.record_batch({"n": [10 * epoch + index]}))
            files += sink.close_part()
        if epoch == 2 and not self.place.restoration.decided:
            self.place.decide(decided("u1"))
        saved: list[Saved] = []
        for index in WORKERS:
            saved += self.writer.write(Save(epoch, (self._snapshot(index, epoch),)))
        assert not any(one.earlier for one in saved if epoch == 1)
        manifest.prepare(self.out, files)
        self.place.keep(Checkpoint(
            "r1", epoch, self.place.incarnation, {str(one.worker): one.name for one in saved}, (), {"out": tuple(files)},
            workers={"FM": len(WORKERS)}, earlier={one.name: one.earlier for one in saved if one.earlier},
        ))  # fmt: skip
        manifest.commit(self.out, epoch, files)
        self.epoch = epoch
        self.place.tidy()

    def go_on(self) -> None:
        """To the end."""
        while self.epoch < EPOCHS:
            self.step()
        manifest.sweep(self.out, "r1", self.place.incarnation, self.place.doubtful)
        self.place.release()


def check_output(path: Path) -> None:
    """Each row once, and nothing else where it is read."""
    files = manifest.committed(str(path / "out"))
    rows = sorted(itertools.chain(*(pq.read_table(file)["n"].to_pylist() for file in files)))
    assert rows == [10 * epoch + index for epoch in range(1, EPOCHS + 1) for index in WORKERS]
    assert sorted(map(str, (path / "out").glob("*.parquet"))) == sorted(files)
    assert list((path / "out" / "_fries" / "pending").iterdir()) == []


def killed_at(number: int) -> Callable[[str], None]:
    """Kills in front of this operation, and in front of all that who is killed tries afterwards."""
    counted = itertools.count(1)

    def seen(operation: str) -> None:
        if next(counted) >= number:
            raise Killed(operation)

    return seen


def run_till_killed(path: Path, patch: pytest.MonkeyPatch, number: int, resumed: bool) -> bool:
    """Whether it was killed; it ended by itself otherwise."""
    with patch.context() as patched:
        watch(patched, killed_at(number))
        try:
            Attempt(path, resumed).go_on()
        except Killed:
            return True
    return False


def run_to_the_end(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Go on, or begin if nothing had begun, and see that each row is there."""
    with patch.context() as patched:
        watch(patched, lambda operation: None)
        Attempt(path, CheckpointStore.is_there(str(path / "place"))).go_on()
    check_output(path)


def test_killed_anywhere_and_resumed_each_row_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In front of each operation of the whole run, one after another."""
    number = 0
    for number in itertools.count(1):
        path = tmp_path / str(number)
        path.mkdir()
        killed = run_till_killed(path, monkeypatch, number, resumed=False)
        silence()
        if not killed:
            break
        run_to_the_end(path, monkeypatch)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert [one.change for one in CheckpointStore.load(str(path / "place"))[1].decided] == ["u1"]
    assert number > 150


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_each_row_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also while it resumes, and while it resumes that."""
    chance = random.Random(seed)
    for number in range(10):
        path = tmp_path / str(number)
        path.mkdir()
        for _ in range(chance.randrange(2, 5)):
            begun = CheckpointStore.is_there(str(path / "place"))
            run_till_killed(path, monkeypatch, chance.randrange(1, 90), begun)
            silence()
        run_to_the_end(path, monkeypatch)


class Interruption:
    """Lets something happen in front of one operation, once it is armed; the operations of that are not counted."""

    def __init__(self) -> None:
        self._left = 0
        self._happens: Callable[[], object] = lambda: None

    def __call__(self, operation: str) -> None:
        self._left -= 1
        if self._left == 0:
            self._happens()

    def during(self, one: Callable[[], object], number: int, other: Callable[[], object]) -> bool:
        """Do one thing, and another in front of its operation of this number; whether there was such an operation."""
        happened = []

        def others_turn() -> None:
            happened.append(number)
            other()

        self._left, self._happens = number, others_turn
        one()
        self._left = 0
        return bool(happened)


@pytest.fixture
def interruption(monkeypatch: pytest.MonkeyPatch) -> Interruption:
    """Of the operations on all files."""
    made = Interruption()
    watch(monkeypatch, made)
    return made


class Drivers:
    """An old driver, which has kept one checkpoint, and a new one that can take its place over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.old = Attempt(path, resumed=False)
        self.old.step()
        silence()
        self.new = self.old
        self.believes = False

    def work(self) -> None:
        """The old one's next epoch; it may be told that it does not hold the place, or the target, any more."""
        with contextlib.suppress(CheckpointError, SinkError):
            self.old.step()
            self.believes = True

    def take_over(self) -> None:
        """The new one begins where the old one has got to."""
        self.new = Attempt(self.path, resumed=True)

    def take_over_and_go_on(self) -> None:
        """And makes a checkpoint of its own."""
        self.take_over()
        self.new.step()


@pytest.mark.parametrize("other", [Drivers.take_over, Drivers.take_over_and_go_on])
def test_an_old_driver_that_pauses_anywhere_destroys_nothing(
    tmp_path: Path, interruption: Interruption, other: Callable[[Drivers], None]
) -> None:
    """In the middle of an epoch; the new one takes over meanwhile, and the old one goes on with its own."""
    believed = set()
    for number in itertools.count(1):
        drivers = Drivers(tmp_path / str(number))
        if not interruption.during(drivers.work, number, partial(other, drivers)):
            break
        believed.add((drivers.believes, drivers.new.epoch))
        assert not drivers.old.place.is_own
        drivers.new.go_on()
        check_output(drivers.path)
    behind = other is Drivers.take_over_and_go_on
    assert believed == {(False, 1 + behind), (False, 2 + behind), (True, 2 + behind)}
    assert number > 50


def test_an_old_driver_that_works_on_while_a_new_one_takes_over_is_heard_or_told(
    tmp_path: Path, interruption: Interruption
) -> None:
    """In front of any operation of the new one the old one keeps a checkpoint and commits: it counts, or is refused."""
    believed = set()
    for number in itertools.count(1):
        drivers = Drivers(tmp_path / str(number))
        if not interruption.during(drivers.take_over, number, drivers.work):
            break
        believed.add((drivers.believes, drivers.new.epoch))
        drivers.new.go_on()
        check_output(drivers.path)
    assert {(True, 2), (False, 1)} <= believed
    assert (True, 1) not in believed
    assert number > 15


@pytest.mark.parametrize("damaged", ["place/complete/000002-0001.json", "place/states/2-1/FM-1.msgpack"])
def test_behind_a_damaged_checkpoint_each_row_is_there_once(tmp_path: Path, damaged: str) -> None:
    """What the damaged one had made output is taken out, and comes again."""
    old = Attempt(tmp_path, resumed=False)
    old.step()
    old.step()
    silence()
    (tmp_path / damaged).write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="goes on from the checkpoint before it"):
        new = Attempt(tmp_path, resumed=True)
    assert (new.epoch, new.place.restoration.last_epoch) == (1, 2)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == len(WORKERS)
    new.go_on()
    check_output(tmp_path)


def test_what_a_record_names_is_on_disk_and_fits_before_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part and the directory that names it are synced; a column in another type leaves no record."""
    driver, out, happened = Attempt(tmp_path, resumed=False), tmp_path / "out", []
    committer = Committer(driver.place, {"out": driver.sink}, happened.append)
    monkeypatch.setattr(manifest, "see_durable", lambda files, path: happened.append(Path(path).name))
    monkeypatch.setattr(CheckpointStore, "_write", lambda place, name, content: happened.append(name))

    def keep(epoch: int, **columns: list[object]) -> list[events.Event]:
        sink = PartWriter(str(out), WorkerId("out", epoch), 1, "r1")
        sink.write(pa.record_batch(columns))
        (part,) = sink.close_part()
        happened.clear()
        answered = committer.keep(Checkpoint("r1", epoch, 1, {}, (), {"out": (part,)}))
        assert set(happened) <= {Path(part).name, "pending", f"complete/{epoch:06d}-0001.json"}
        return answered

    assert keep(1, x=[1]) == [events.CheckpointKept(1)]
    assert len(happened) == 3
    assert happened[2] == "complete/000001-0001.json"
    assert keep(2, x=[0.5]) == [events.CheckpointKept(2)]
    column, refused = keep(3, x=["text"])
    assert happened == []
    assert isinstance(refused, events.CheckpointKept)
    assert refused.reason.startswith("sink out could not commit epoch 3: column 'x' was double and is now string")
    assert isinstance(column, events.ColumnRefused)
    driver.place.release()


def test_sinks_commit_in_the_order_of_their_declaration(tmp_path: Path) -> None:
    """Whichever has handed in its files first, so that a driver that dies in between always leaves the same."""
    committed: list[str] = []

    class Noted(ParquetSink):
        """Notes its commits."""

        def prepare(self, parts: Sequence[str]) -> None:
            """All are there."""

        def commit(self, number: int, parts: Sequence[str]) -> None:
            """Note it."""
            committed.append(self.path)

    driver = Attempt(tmp_path, resumed=False)
    committer = Committer(driver.place, {name: Noted(name) for name in ("z", "a", "m")}, committed.append)
    committer.add({"b": Noted("b")})
    assert committer.commit(1, {"m": ("p",), "b": ("p",), "z": ("p",)}) == []
    assert committed == ["z", "m", "b"]
    driver.place.release()
