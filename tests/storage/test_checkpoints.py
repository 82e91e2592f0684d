"""Checkpoints at rest: what was kept is found again; what was not, or is another's, is refused in words."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace as replace_struct
from place_setting import decided, graph, kept, silence, snapshot, store
from pyarrow import fs
from stopping_files import watch

from fries_nb.dataflow.endpoints import parquet
from fries_nb.dataflow.graph import Graph
from fries_nb.driver.tracing import Trace
from fries_nb.errors import CheckpointError, SourceError
from fries_nb.protocol.checkpoints import Checkpoint, Position, Restoration, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import Ran
from fries_nb.running.run_checkpoints import CheckpointLayout
from fries_nb.spark.staging import write_table
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.durable import NO_KEY, sealed
from fries_nb.storage.saver import Saver, SnapshotWriter
from fries_nb.storage.snapshot_files import SnapshotStore, read_file_of_snapshots, read_snapshots, write_snapshots
from fries_nb.worker.events import Save


def test_what_was_kept_is_what_is_loaded(tmp_path: Path) -> None:
    """Record, decisions in their order, the note; and the snapshot behind the record."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    assert CheckpointStore.load(place.path) == (place.flow, Restoration(None))
    for number in range(1, 12):
        place.decide(decided(f"u{number}"))
    record = kept(place, 3)
    flow, restoration = CheckpointStore.load(place.path)
    assert (flow.run, flow.workers) == ("r1", {"numbers": 1, "FM": 2, "out": 1})
    assert restoration == Restoration(record, tuple(decided(f"u{number}") for number in range(1, 12)))
    assert read_file_of_snapshots(store(place), record.snapshots["FM[0]"]) == (snapshot(),)


def test_checkpoint_one_million_is_newer_than_the_one_before(tmp_path: Path) -> None:
    """As text it is not."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    for epoch in (999_998, 999_999, 1_000_000):
        record = kept(place, epoch)
    assert CheckpointStore.load(place.path)[1].checkpoint == record
    names = {path.name for path in (tmp_path / "c" / "complete").iterdir()}
    assert names == {"999999-0001.json", "1000000-0001.json"}
    place.release()
    assert CheckpointStore.resume(place.path, graph()).restoration.checkpoint == record


@pytest.mark.parametrize("broken", ["complete/000002-0001.json", "states/2-1/FM-0.msgpack"])
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(tmp_path: Path, broken: str) -> None:
    """With a warning, and for good: the damaged one does not come back. Of two damaged ones the newer is told."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    before = kept(place, 1)
    kept(place, 2)
    place.release()
    file = tmp_path / "c" / broken
    content = file.read_bytes()
    file.write_bytes(content[:-3] + b"xxx")
    with pytest.warns(RuntimeWarning, match=f"{broken}: it is cut off .* goes on from the checkpoint before it"):
        place = CheckpointStore.resume(place.path, graph())
    assert place.restoration.checkpoint == before
    place.release()
    file.write_bytes(content)
    place = CheckpointStore.resume(place.path, graph())
    assert place.restoration.checkpoint == before
    after = kept(place, 3)
    assert CheckpointStore.load(place.path)[1].checkpoint == after
    place.release()
    for name in ("000001-0001", "000003-0003"):
        (tmp_path / "c" / "complete" / f"{name}.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is damaged: complete/000003-0003.json: it is cut off"):
        CheckpointStore.resume(place.path, graph())


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    """Older records go, and all snapshots that no record names, those of checkpoints that came to nothing too."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    for epoch in (1, 2, 4):
        kept(place, epoch)
    write_snapshots(store(place), "5", 1, [snapshot()])  # of a checkpoint that was given up
    write_snapshots(store(place), "7", 1, [snapshot()])  # of one that is on its way
    kept(place, 6)
    assert sorted(path.name for path in (tmp_path / "c" / "complete").iterdir()) == [
        "000004-0001.json", "000006-0001.json"
    ]  # fmt: skip
    assert sorted(path.name for path in (tmp_path / "c" / "states").iterdir()) == ["4-1", "6-1", "7-1"]


def test_a_host_that_still_writes_an_old_snapshot_spoils_no_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a checkpoint given up for a change: what it adds goes with the next ones. Another failure is told."""
    begun: list[str] = []

    def meanwhile(operation: str) -> None:
        if operation == "rmdir" and not begun:
            begun.append(write_snapshots(store(place), "1", 1, [snapshot(index=1)])[0])
        elif operation == "rmdir" and len(begun) == 2:
            raise PermissionError(errno.EACCES, "not yours")

    watch(monkeypatch, meanwhile)
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    write_snapshots(store(place), "1", 1, [snapshot()])
    left = tmp_path / "c" / "states" / "1-1"
    kept(place, 2)
    kept(place, 3)
    assert not left.exists()
    begun.append("and no more")
    with pytest.raises(CheckpointError, match=r"old checkpoints at .* cannot be deleted: .*not yours"):
        kept(place, 4)


def test_a_draft_that_a_kill_left_behind_counts_for_nothing(tmp_path: Path) -> None:
    """A file is written beside its place first; half of it is no record and no decision."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    record = kept(place, 1)
    (tmp_path / "c" / "complete" / "000002-0001.json.draft").write_text("{")
    (tmp_path / "c" / "decisions" / "000001-0001.msgpack.draft").write_text("")
    assert CheckpointStore.load(place.path)[1] == Restoration(record)


def writing(sink: object) -> Graph:
    """The graph, whose sink writes there."""
    return Graph("w1", (*graph().operators[:2], replace(graph().operator("out"), function=sink)), graph().edges)


def resized(name: str, workers: int, base: Graph | None = None) -> Graph:
    """The graph with another number of workers for an operator."""
    base = base or graph()
    operators = (replace(one, workers=workers) if one.name == name else one for one in base.operators)
    return Graph(base.name, tuple(operators), base.edges)


def test_a_checkpoint_is_resumed_with_other_numbers_of_workers_but_of_undivided_state(tmp_path: Path) -> None:
    """Keyed state is redistributed; a state without a key is one worker's."""
    keyed = CheckpointStore.claim(str(tmp_path / "keyed"), graph(), "r1")
    silence()
    CheckpointStore.resume(keyed.path, resized("out", 3, resized("FM", 5, resized("numbers", 4))))
    assert CheckpointStore.load(keyed.path)[0].workers == {"numbers": 4, "FM": 5, "out": 3}
    counting = Graph("w1", tuple(replace(one, function=Counting(), key=()) for one in graph().operators), ())
    undivided = CheckpointStore.claim(str(tmp_path / "undivided"), counting, "r1")
    with pytest.raises(CheckpointError, match="with 2 workers of FM, which keeps a state without a key, one a worker"):
        CheckpointStore.resume(undivided.path, resized("FM", 3, counting))


class Counting:
    """A function with state."""

    def process(self, row: dict[str, object], state: dict[str, int]) -> dict[str, object]:
        return row


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (graph("fraud"), "holds a checkpoint of flow 'w1'; expected 'fraud'"),
        (graph(key=("terminal",)), "this one has FM: map by terminal"),
        (writing(parquet("/b")), "operator out: sink; this one has out: sink into /b"),
    ],
)
def test_a_checkpoint_of_another_flow_is_refused(tmp_path: Path, other: Graph, message: str) -> None:
    """By name, or by what state depends on."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    with pytest.raises(CheckpointError, match=message):
        CheckpointStore.resume(place.path, other)
    with pytest.raises(CheckpointError, match="use another path"):
        CheckpointStore.claim(place.path, other, "r2")


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    """A run of this flow, files of others, a file, a directory that cannot be made."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    with pytest.raises(CheckpointError, match=r"holds a run of flow 'w1' already; go on with it by flow.resume\("):
        CheckpointStore.claim(place.path, graph(), "r2")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="holds files that are no checkpoint"):
        CheckpointStore.claim(str(tmp_path / "d"), graph(), "r1")
    with pytest.raises(CheckpointError, match="is a file; expected a directory"):
        CheckpointStore.claim(str(tmp_path / "d" / "thesis.txt"), graph(), "r1")
    with pytest.raises(CheckpointError, match="cannot hold checkpoints"):
        CheckpointStore.claim(str(tmp_path / "d" / "thesis.txt" / "c"), graph(), "r1")
    with pytest.raises(CheckpointError, match="cannot hold checkpoints"):
        CheckpointStore.claim("nosuch://place", graph(), "r1")


def test_a_place_without_a_checkpoint_or_of_another_version_is_refused(tmp_path: Path) -> None:
    """What is none, and what an earlier or a later fries_nb wrote."""
    with pytest.raises(CheckpointError, match=r"holds no checkpoint; expected what flow.run\(checkpoint=...\) wrote"):
        CheckpointStore.load(str(tmp_path))
    for number, (name, content) in enumerate(
        [
            ("flow.json", b'{"format": 1, "flow": "w1"}'),
            ("attempts/0001.json", sealed(b'{"format": 2, "flow": "w1"}', "attempts/0001.json")),
        ]
    ):
        file = tmp_path / str(number) / name
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"in format [12]; this fries_nb reads format 6: likely another"):
            CheckpointStore.load(str(tmp_path / str(number)))


@pytest.mark.parametrize("damage", ["cut", "overwritten", "gone"])
@pytest.mark.parametrize(
    "name",
    ["attempts/0001.json", "complete/000001-0001.json", "decisions/000001-0001.msgpack", "states/1-1/FM-0.msgpack"],
)
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    """Whatever file of it; the error names it. (A decision or a record that has gone was never there.)"""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    place.decide(decided("u1"))
    kept(place, 1)
    file = tmp_path / "c" / name
    content = file.read_bytes()
    if damage == "gone":
        if name.startswith(("complete", "decisions")):
            return
        file.unlink()
    else:
        file.write_bytes(content[:-1] if damage == "cut" else b"x" + content[1:])
    none = name.startswith("attempts") and damage == "gone"
    expected = "holds no checkpoint" if none else f"is damaged: {name}"
    with pytest.raises(CheckpointError, match=expected):
        read_snapshots(store(place), CheckpointStore.load(place.path)[1].checkpoint, [WorkerId("FM", 0)])


def test_a_host_reads_the_snapshots_of_its_own_workers(tmp_path: Path) -> None:
    """By operator, whatever chain wrote the file; a worker that the checkpoint does not have is left out."""
    at = SnapshotStore(str(tmp_path), "r")
    snapshots = {}
    for index in range(4):
        chain = [snapshot(index, index), Snapshot("MC", index, 10 * index)]
        name, _ = write_snapshots(at, "1", 1, chain)
        snapshots |= {f"{one.operator}[{index}]": name for one in chain}
    record = Checkpoint("r", 1, 1, snapshots)
    wanted = [WorkerId("FM", 1), WorkerId("MC", 3), WorkerId("MC", 1)]
    found = read_snapshots(at, record, [*wanted, WorkerId("MC", 4)])
    assert [(worker, found[worker].processed) for worker in found] == list(zip(wanted, (1, 30, 10), strict=True))
    assert read_snapshots(at, None, wanted) == {}


def test_the_saver_says_how_it_went(tmp_path: Path) -> None:
    """Written; or not, and why: a file where the directory should be stands for a disk that is full."""
    said: list[Any] = []
    lost: list[WorkerId] = []
    at = SnapshotStore(str(tmp_path), "r")
    saver = Saver(SnapshotWriter(at, 1), said.append, lost.append)
    saver.start()
    chain = (snapshot(), Snapshot("MC", 0, 3))
    saver.save(Save(1, chain))
    saver.leave()
    saver.join()
    workers = [WorkerId("FM", 0), WorkerId("MC", 0)]
    assert [(one.epoch, one.worker, one.error) for one in said] == [(1, worker, "") for worker in workers]
    assert read_file_of_snapshots(at, said[1].name) == chain
    assert said[1].size == 0
    assert said[0].size == (tmp_path / "states" / said[0].name).stat().st_size
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "states").write_text("")
    assert lost == []
    saver = Saver(SnapshotWriter(SnapshotStore(str(tmp_path / "full"), "r"), 1), said.append, lost.append)
    saver.start()
    saver.save(Save(1, (snapshot(),)))
    saver.leave()
    saver.join()
    assert said[2].name == ""
    assert "the state of FM[0] cannot be written to" in said[2].error
    assert lost == [WorkerId("FM", 0)]


@pytest.mark.parametrize("place", [object(), 1 << 70, "\ud800"])
def test_a_position_that_cannot_be_encoded_fails_the_checkpoint_and_not_the_saver(tmp_path: Path, place: Any) -> None:
    """Of a source of one's own; the next snapshot is written."""
    said: list[Any] = []
    lost: list[WorkerId] = []
    saver = Saver(SnapshotWriter(SnapshotStore(str(tmp_path), "r"), 1), said.append, lost.append)
    saver.start()
    saver.save(Save(1, (replace_struct(snapshot(), positions={0: Position(3, place)}),)))
    saver.save(Save(2, (snapshot(),)))
    saver.leave()
    saver.join()
    assert said[0].error.startswith(f"the state of FM[0] cannot be written to {tmp_path}: ")
    assert (said[1].epoch, said[1].error) == (2, "")


def test_a_record_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The checkpoint comes to nothing; the one before it counts."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    record = kept(place, 1)
    (tmp_path / "c" / "complete" / "000002-0001.json.draft").mkdir()
    with pytest.raises(CheckpointError, match="cannot be written"):
        kept(place, 2)
    assert CheckpointStore.load(place.path)[1].checkpoint == record
    assert place.doubtful == {"p"}


def test_what_a_source_reads_is_kept(tmp_path: Path) -> None:
    """So that a resumed run assigns rows as before, whatever files have come since."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    assert place.source("a/b", list[int]) is None
    place.keep_source("a/b", [1, 2])
    assert place.source("a/b", list[int]) == [1, 2]


def test_a_trace_is_cut_back_to_the_checkpoint() -> None:
    """Per worker: to its marker; wholly where it came to no marker; not at all where it had ended."""
    trace = Trace()
    a, b, ended = WorkerId("A", 0), WorkerId("B", 0), WorkerId("S", 0)
    for worker in (a, ended):
        trace.add(worker, [Ran(1, worker.operator)])
    trace.note(a, 1)
    trace.add(a, [Ran(2, "A")])
    trace.note(a, 2)
    trace.add(a, [Ran(3, "A")])
    trace.add(b, [Ran(4, "B")])
    trace.forget(2)
    for _ in range(2):  # a second failure before the next checkpoint
        trace.cut(2, ended.__eq__)
        assert list(trace.records()) == [Ran(1, "A"), Ran(2, "A"), Ran(1, "S")]
        trace.add(a, [Ran(5, "A")])
    trace.cut(0, lambda worker: False)
    assert list(trace.records()) == []


def test_the_places_of_all_regions_are_where_the_run_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later region begins when the notebook may have gone to another directory."""
    monkeypatch.chdir(tmp_path)
    places = CheckpointLayout("kept", graph(), 2, False, NO_KEY)
    monkeypatch.chdir("/")
    assert [places.of(number) for number in (0, 1)] == [f"{tmp_path}/kept/region-1", f"{tmp_path}/kept/region-2"]


def test_a_column_that_parquet_does_not_hold_is_said(tmp_path: Path) -> None:
    """Of what a user gave to be replayed."""
    table = pa.table({"tags": pa.array([{}], pa.struct([]))})
    with pytest.raises(SourceError, match=r"the data of 's' has a column that Parquet does not hold, 'tags'"):
        write_table(table, str(tmp_path / "rows.parquet"), fs.LocalFileSystem(), "the data of 's'")
