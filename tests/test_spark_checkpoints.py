"""Checkpoints at rest: what was kept is found again; what was not, or is another's, is refused in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.checkpoints import Checkpoint, Decided, InstanceSnapshot, Restoration, Snapshot
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.errors import CheckpointError
from fries_nb.messages import Saved, WorkerId
from fries_nb.spark.checkpoints import Place
from fries_nb.spark.durable import sealed, unsealed
from fries_nb.spark.snapshots import Saver, part_of, read_snapshot, read_snapshots, write_snapshot
from fries_nb.spark.tracing import Trace
from fries_nb.trace import Ran


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
    inside = InstanceSnapshot("FM", processed, ("u1",), {3: b"state"})
    return Snapshot("FM", index, (inside, InstanceSnapshot("MC", processed)), {"out": 1}, version=2)


def kept(place: Place, epoch: int) -> Checkpoint:
    """A checkpoint of one worker, complete."""
    name, _ = write_snapshot(place.path, epoch, place.incarnation, snapshot())
    record = Checkpoint(place.flow.run, epoch, place.incarnation, {"FM[0]": name}, ("numbers[0]",), {"out": ("p",)})
    place.keep(record)
    place.tidy()
    return record


def decided(change: str) -> Decided:
    """A change of one operator."""
    return Decided(change, "fries", (("FM",),), {"FM": b"update"})


def test_what_was_kept_is_what_is_loaded(tmp_path: Path) -> None:
    """Record, decisions in their order, the note; and the snapshot behind the record."""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    assert Place.load(place.path) == (place.flow, Restoration(None))
    for number in range(1, 12):
        place.decide(decided(f"u{number}"))
    record = kept(place, 3)
    flow, restoration = Place.load(place.path)
    assert (flow.run, flow.workers) == ("r1", {"numbers": 1, "FM": 2, "out": 1})
    assert restoration == Restoration(record, tuple(decided(f"u{number}") for number in range(1, 12)))
    assert read_snapshot(place.path, record.snapshots["FM[0]"]) == snapshot()


def test_a_resumed_place_numbers_on_and_the_old_attempt_writes_no_more(tmp_path: Path) -> None:
    """Two drivers at one place: the later one has it; what the earlier one decides would be lost, so it is told."""
    old = Place.claim(str(tmp_path / "c"), graph(), "r1")
    old.decide(decided("u1"))
    new = Place.resume(old.path, graph())
    assert (old.incarnation, new.incarnation) == (1, 2)
    with pytest.raises(CheckpointError, match="is held by attempt 2 of run r1 now, and this is attempt 1; likely"):
        old.decide(decided("u2"))
    with pytest.raises(CheckpointError, match="is held by attempt 2"):
        old.keep(Checkpoint("r1", 1, 1, {}))
    new.decide(decided("u2"))
    assert [one.change for one in Place.load(old.path)[1].decided] == ["u1", "u2"]


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    """Older records go, and all snapshots that no record names, those of checkpoints that came to nothing too."""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    for epoch in (1, 2, 4):
        kept(place, epoch)
    write_snapshot(place.path, 5, 1, snapshot())  # of a checkpoint that was given up
    write_snapshot(place.path, 7, 1, snapshot())  # of one that is on its way
    kept(place, 6)
    assert sorted(path.name for path in (tmp_path / "c" / "complete").iterdir()) == ["000004.json", "000006.json"]
    assert sorted(path.name for path in (tmp_path / "c" / "states").iterdir()) == ["4-1", "6-1", "7-1"]


def test_a_draft_that_a_kill_left_behind_counts_for_nothing(tmp_path: Path) -> None:
    """A file is written beside its place first; half of it is no record and no decision."""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    record = kept(place, 1)
    (tmp_path / "c" / "complete" / "000002.json.draft").write_text("{")
    (tmp_path / "c" / "decisions").mkdir()
    (tmp_path / "c" / "decisions" / "000001.msgpack.draft").write_text("")
    assert Place.load(place.path)[1] == Restoration(record)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (graph("fraud"), "holds a checkpoint of flow 'w1'; expected 'fraud'"),
        (graph(workers=3), r"operator FM: map by customer, 2 workers; this one has FM: map by customer, 3 workers"),
        (graph(key=("terminal",)), "this one has FM: map by terminal, 2 workers"),
        (Graph("w1", graph().operators[:2], graph().edges[:1]), "operator out: sink, 1 workers; this one has out: not"),
        (Graph("w1", graph().operators, graph().edges[:1]), r"but for the edge FM -> out \(forward\), which this one"),
    ],
)
def test_a_checkpoint_of_another_flow_is_refused(tmp_path: Path, other: Graph, message: str) -> None:
    """By name, or by what state depends on."""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    with pytest.raises(CheckpointError, match=message):
        Place.resume(place.path, other)
    with pytest.raises(CheckpointError, match="use another path"):
        Place.claim(place.path, other, "r2")


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    """A run of this flow, files of others, a file, a directory that cannot be made."""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    with pytest.raises(CheckpointError, match=r"holds a run of flow 'w1' already; go on with it by flow.resume\("):
        Place.claim(place.path, graph(), "r2")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="holds files that are no checkpoint"):
        Place.claim(str(tmp_path / "d"), graph(), "r1")
    with pytest.raises(CheckpointError, match="is a file; expected a directory"):
        Place.claim(str(tmp_path / "d" / "thesis.txt"), graph(), "r1")
    with pytest.raises(CheckpointError, match="cannot hold checkpoints"):
        Place.claim(str(tmp_path / "d" / "thesis.txt" / "c"), graph(), "r1")
    with pytest.raises(CheckpointError, match="cannot hold checkpoints"):
        Place.claim("nosuch://place", graph(), "r1")


def test_a_place_without_a_checkpoint_or_of_another_version_is_refused(tmp_path: Path) -> None:
    """What is none, and what a later fries_nb wrote."""
    with pytest.raises(CheckpointError, match=r"holds no checkpoint; expected what flow.run\(checkpoint=...\) wrote"):
        Place.load(str(tmp_path))
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    note = tmp_path / "c" / "flow.json"
    note.write_text(json.dumps({"format": 2, "flow": "w1"}))
    with pytest.raises(CheckpointError, match="in format 2; this fries_nb reads format 1: likely another version"):
        Place.load(place.path)


@pytest.mark.parametrize("damage", ["cut", "overwritten", "gone"])
@pytest.mark.parametrize("name", ["flow.json", "complete/000001.json", "decisions/000001.msgpack", "states/1-1/FM-0"])
def test_a_damaged_checkpoint_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    """Whatever file of it; the error names it. (A decision or a record that has gone was never there.)"""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    place.decide(decided("u1"))
    kept(place, 1)
    file = tmp_path / "c" / (name if "." in name else f"{name}.msgpack")
    content = file.read_bytes()
    if damage == "gone":
        if name.startswith(("complete", "decisions")):
            return
        file.unlink()
    else:
        file.write_bytes(content[:-1] if damage == "cut" else b"x" + content[1:])
    expected = "holds no checkpoint" if name == "flow.json" and damage == "gone" else f"is damaged: {name}"
    with pytest.raises(CheckpointError, match=expected):
        read_snapshots(place.path, Place.load(place.path)[1].checkpoint, [0])


@given(st.binary(max_size=200), st.data())
def test_a_seal_tells_every_changed_byte(content: bytes, data: st.DataObject) -> None:
    """Whichever byte of a file is another one, or its end is missing."""
    file = bytearray(sealed(content))
    assert unsealed(bytes(file)) == content
    at = data.draw(st.integers(0, len(file) - 1))
    with pytest.raises(ValueError, match="cut off"):
        unsealed(bytes(file[:at]))
    file[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match="cut off"):
        unsealed(bytes(file))


def test_a_host_reads_the_snapshots_of_its_own_workers(tmp_path: Path) -> None:
    """By operator, since chains may have changed; of the indices that it runs."""
    snapshots = {f"FM[{index}]": write_snapshot(str(tmp_path), 1, 1, snapshot(index, index))[0] for index in range(4)}
    record = Checkpoint("r", 1, 1, snapshots)
    found = read_snapshots(str(tmp_path), record, [1, 3])
    assert set(found) == {WorkerId(operator, index) for operator in ("FM", "MC") for index in (1, 3)}
    part = part_of(found[WorkerId("MC", 3)], "MC")
    assert part is not None
    assert part.processed == 3
    assert part_of(None, "MC") is None
    assert read_snapshots(str(tmp_path), None, [1]) == {}


def test_the_saver_says_how_it_went(tmp_path: Path) -> None:
    """Written; or not, and why: a file where the directory should be stands for a disk that is full."""
    said: list[Saved] = []
    saver = Saver(str(tmp_path), 1, said.append)
    saver.start()
    saver.save(1, snapshot())
    saver.leave()
    saver.join()
    assert (said[0].epoch, said[0].worker, said[0].error) == (1, WorkerId("FM", 0), "")
    assert read_snapshot(str(tmp_path), said[0].name) == snapshot()
    assert said[0].size == (tmp_path / "states" / said[0].name).stat().st_size
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "states").write_text("")
    saver = Saver(str(tmp_path / "full"), 1, said.append)
    saver.start()
    saver.save(1, snapshot())
    saver.leave()
    saver.join()
    assert said[1].name == ""
    assert "the state of FM[0] cannot be written to" in said[1].error


def test_a_record_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The checkpoint comes to nothing; the one before it counts."""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
    record = kept(place, 1)
    (tmp_path / "c" / "complete" / "000002.json.draft").mkdir()
    with pytest.raises(CheckpointError, match="cannot be written"):
        kept(place, 2)
    assert Place.load(place.path)[1].checkpoint == record


def test_what_a_source_reads_is_kept(tmp_path: Path) -> None:
    """So that a resumed run deals rows as before, whatever files have come since."""
    place = Place.claim(str(tmp_path / "c"), graph(), "r1")
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
        assert trace.records() == [Ran(1, "A"), Ran(2, "A"), Ran(1, "S")]
        trace.add(a, [Ran(5, "A")])
    trace.cut(0, lambda worker: False)
    assert trace.records() == []
