"""What a checkpoint gives to a dataflow of another shape, and what it refuses it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import fries_nb as fn
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.errors import CheckpointError
from fries_nb.operators.pickled_states import part_of
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage import checkpoint_store
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.flow_shape import check_drop, flow_of, next_flow, refused, shape_of
from fries_nb.storage.snapshot_files import SnapshotStore, write_snapshots
from fries_nb.worker.snapshot import Redistribution


def chain(*names: str) -> Graph:
    """A source, operators, a sink."""
    kinds = [Kind.SOURCE, *[Kind.MAP] * (len(names) - 2), Kind.SINK]
    operators = tuple(Operator(name, kind=kind) for name, kind in zip(names, kinds, strict=True))
    return Graph("w1", operators, tuple(map(Edge, names, names[1:])))

STATES = (part_of([(b"x", b"1")]),)
Bins = dict[str, dict[int, tuple[bytes, ...]]]


def kept(place: CheckpointStore, names: Sequence[str], bins: Bins, **more: object) -> Checkpoint:
    """A checkpoint of one worker of each operator, with these states."""
    store = SnapshotStore(place.path, "r1")
    files = {
        f"{name}[0]": write_snapshots(store, "1", place.incarnation, [Snapshot(name, 0, 5, bins=bins.get(name, {}))])[0]
        for name in names
    }
    record = replace(Checkpoint("r1", 1, 1, files, workers=dict.fromkeys(names, 1)), **more)
    place.keep(record)
    return record


EARLIER = ("S", "Old", "FM", "out")


def earlier(path: Path, bins: Bins, **more: object) -> str:
    """A directory with a checkpoint of the earlier shape, whose run has ended."""
    place = CheckpointStore.claim(str(path / "c"), chain(*EARLIER), "r1")
    for number, name in enumerate(("Old", "FM"), start=1):
        place.decide(CommittedChange(f"u{number}", "fries", (), {name: b"code"}))
    kept(place, EARLIER, bins, **({"decided": ("u1", "u2"), "decisions": 2} | more))
    place.release()
    return place.path


def test_another_shape_goes_on_by_name(tmp_path: Path) -> None:
    """Kept operators have their snapshots, an added one begins; decisions on a removed one count no more."""
    path, later = earlier(tmp_path, {"FM": {5: STATES}}), chain("S", "New", "FM", "out")
    place = CheckpointStore.resume(path, later)
    restoration = place.restoration
    assert [change.change for change in restoration.decided] == ["u2"]
    dealt = Redistribution(restoration.checkpoint, later)
    assert dealt.is_added("New")
    assert dealt.read_from(WorkerId("FM", 0)) == [WorkerId("FM", 0)]
    snapshot = dealt.snapshot(WorkerId("New", 0), {})
    assert snapshot == Snapshot("New", 0, 0)
    assert CheckpointStore.load(path)[0].since == {"New": 2}


def test_state_is_lost_only_if_it_is_named(tmp_path: Path) -> None:
    """The sentence has what to write; a second attempt, before the next checkpoint, has to name it again."""
    path, later = earlier(tmp_path, {"Old": {5: STATES}}), chain("S", "FM", "out")
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"its operator Old, .* has a state that would be lost; .*\['Old'\]"):
            CheckpointStore.resume(path, later)
        CheckpointStore.resume(path, later, drop=["Old"]).release()


def test_an_operator_comes_back_with_its_state_until_the_next_checkpoint(tmp_path: Path) -> None:
    """Then one of its name is another one, of which no earlier decision is true."""
    path, without, again = earlier(tmp_path, {"Old": {5: STATES}}), chain("S", "FM", "out"), chain(*EARLIER)
    CheckpointStore.resume(path, without, drop=["Old"]).release()
    back = CheckpointStore.resume(path, again)
    assert [change.change for change in back.restoration.decided] == ["u1", "u2"]
    assert not Redistribution(back.restoration.checkpoint, again).is_added("Old")
    back.release()
    place = CheckpointStore.resume(path, without, drop=["Old"])
    kept(place, ["S", "FM", "out"], {}, epoch=2, decided=("u2",), decisions=2)
    place.release()
    anew = CheckpointStore.resume(path, again)
    assert [change.change for change in anew.restoration.decided] == ["u2"]
    assert Redistribution(anew.restoration.checkpoint, again).is_added("Old")
    assert anew.flow.since == {"Old": 2}


def test_given_states_are_those_of_the_operator_that_was_given_them(tmp_path: Path) -> None:
    """As long as no checkpoint has them, and not of another one of its name that a later dataflow has."""
    path, later = earlier(tmp_path, {}), chain("S", "New", "FM", "out")
    place = CheckpointStore.resume(path, chain(*EARLIER))
    shape = msgspec.msgpack.encode(flow_of(later, place.flow.run))
    place.decide(CommittedChange("u3", "fries", (), {}, number=3, shape=shape, given={"New": b"states"}))
    place.release()
    again = CheckpointStore.resume(path, later)
    assert again.restoration.given_to("New") == b"states"
    again.release()
    CheckpointStore.resume(path, chain("S", "FM", "out")).release()
    assert CheckpointStore.resume(path, later).restoration.given_to("New") is None


def test_an_ended_operator_gets_no_new_input(tmp_path: Path) -> None:
    """Its state was not kept; from an operator that has ended as well, nothing comes."""
    path = earlier(tmp_path, {}, ended=("S[0]", "Old[0]"))
    fed = Graph("w1", (*chain(*EARLIER).operators, Operator("T", kind=Kind.SOURCE)), (*chain(*EARLIER).edges,))
    with pytest.raises(CheckpointError, match="Old has ended in it, so it can get no new input from T; expected anoth"):
        CheckpointStore.resume(path, Graph("w1", fed.operators, (*fed.edges, Edge("T", "Old"))))
    edges = *fed.edges, Edge("T", "FM"), Edge("S", "N"), Edge("N", "Old")
    beside = Graph("w1", (*fed.operators, Operator("N")), edges)
    with pytest.raises(CheckpointError, match="no new input from N"):
        CheckpointStore.resume(path, beside)
    CheckpointStore.resume(path, Graph("w1", fed.operators, (*fed.edges, Edge("T", "FM")))).release()


def looped(*body: str, before: str = "A") -> Graph:
    """A loop whose body has these operators."""

    def around(stream: fn.Stream) -> tuple[fn.Stream, fn.Stream]:
        for name in body:
            stream = stream.map(name, dict)
        return stream.split("back", bool)

    flow = fn.Dataflow("w1")
    flow.source("S", fn.rate(1)).map(before, dict).iterate("L", around).sink("out", fn.memory())
    return flow.graph()


def test_a_loop_in_which_rows_were_keeps_its_edges() -> None:
    """They are logged as frames of its feedback edge; edges elsewhere may change."""
    flow = flow_of(looped("B"), "r1")
    [head] = [one.name for one in looped("B").operators if one.traits.heads_loop]
    record = Checkpoint("r1", 1, 1, {}, logged=(head,))
    told = refused(flow, looped("B", "N"), record, [], [])
    assert told == f"rows were going round its loop {head}; expected the same edges at B, N, back"
    assert refused(flow, looped("B", "N"), None, [], []) is None
    again = looped("B")
    elsewhere = Graph("w1", (*again.operators, Operator("N")), (*again.edges, Edge("S", "N")))
    assert refused(flow, elsewhere, record, [], []) is None


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        ("Old", r"drop='Old'; expected the names of operators in a list, as in drop=\['Old'\]"),
        (7, r"drop=7; expected the names of operators in a list"),
        (["FM"], r"drop=\['FM'\] names FM, which this dataflow has, so it keeps its state"),
    ],
)
def test_what_drop_names(drop: object, message: str) -> None:
    """A list of names, of operators that are not there any more."""
    with pytest.raises(CheckpointError, match=message):
        check_drop(drop, chain("S", "FM", "out"))


def test_sources_and_targets_of_removed_operators_are_forgotten_when_nothing_is_owed(tmp_path: Path) -> None:
    """A sink's target is kept as long as the checkpoint has parts of it."""
    place = CheckpointStore.claim(str(tmp_path / "c"), chain(*EARLIER), "r1")
    place.keep_source("S", (1, 2))
    place.keep_target("out", b"the sink")
    kept(place, EARLIER, {}, sinks={"out": ("part-1",)})
    place.release()
    place = CheckpointStore.resume(place.path, chain("T", "Old", "FM", "other"))
    assert place.source("S", tuple[int, ...]) is None
    assert place.target("out") == b"the sink"
    kept(place, ["T", "Old", "FM", "other"], {}, epoch=2, sinks={"other": ()})
    place.release()
    assert CheckpointStore.resume(place.path, chain("T", "Old", "FM", "other")).target("out") is None


def test_names_may_hold_arrows() -> None:
    """Edges are found again from their text."""
    graph = chain("a -> b", "c (forward)", "d")
    flow = flow_of(graph, "r1")
    assert shape_of(flow, chain("a -> b", "d")).edges_removed == (("a -> b", "c (forward)"), ("c (forward)", "d"))
    assert next_flow(flow, graph, None, 3) == flow


def test_a_decided_shape_is_that_of_the_checkpoint_whatever_follows(tmp_path: Path) -> None:
    """The decision is on disk first; then the attempt knows the dataflow, also when the decision is forgotten."""
    place = CheckpointStore.claim(str(tmp_path / "c"), chain(*EARLIER), "r1")
    later = chain("S", "New", "FM", "out")
    place.decide(CommittedChange("u1", "fries", (), {"Old": b"code"}))
    place.decide(CommittedChange("u2", "fries", (), {}, shape=msgspec.msgpack.encode(flow_of(later, "r1"))))
    kept(place, ["S", "New", "FM", "out"], {"New": {3: STATES}}, decided=(), decisions=2)
    place.release()
    assert CheckpointStore.load(place.path)[0].since == {"New": 1}
    with pytest.raises(CheckpointError, match="its operator New, which this one has not, has a state"):
        CheckpointStore.resume(place.path, chain("S", "FM", "out"))
    again = CheckpointStore.resume(place.path, later)
    assert [change.change for change in again.restoration.decided] == []
    assert not Redistribution(again.restoration.checkpoint, later).is_added("New")


def test_a_decided_shape_is_one_file_as_long_as_it_is_kept(tmp_path: Path) -> None:
    """The members of a change wait for the disk, so the attempt is written anew only where the decision is deleted."""
    place = CheckpointStore.claim(str(tmp_path / "c"), chain(*EARLIER), "r1")
    later = chain("S", "New", "FM", "out")
    begun = (tmp_path / "c" / "attempts" / "0001.json").read_bytes()
    place.decide(CommittedChange("u1", "fries", (), {"FM": b"code"}))
    place.decide(CommittedChange("u2", "fries", (), {}, shape=msgspec.msgpack.encode(flow_of(later, "r1"))))
    assert (tmp_path / "c" / "attempts" / "0001.json").read_bytes() == begun
    known = CheckpointStore.load(place.path)[0]
    assert known == place.flow
    assert known.since == {"New": 1}
    for epoch in (1, 2):
        kept(place, ["S", "New", "FM", "out"], {}, epoch=epoch, decided=(), decisions=2)
    place.tidy()
    assert list((tmp_path / "c" / "decisions").iterdir()) == []
    assert CheckpointStore.load(place.path)[0] == known


def test_what_lasts_only_as_long_as_its_driver_waits_for_no_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is flushed for a decision of a run that cannot be resumed; for one that can, file and directory are."""
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    for lasts in (False, True):
        place = CheckpointStore.claim(str(tmp_path / f"c{lasts}"), chain(*EARLIER), "r1", lasts=lasts)
        place.decide(CommittedChange("u1", "fries", (), {"FM": b"code"}))
        flushed.clear()
        place.decide(CommittedChange("u2", "fries", (), {"FM": b"code"}))
        assert len(flushed) == (2 if lasts else 0)


def test_a_stored_sink_is_on_disk_before_the_first_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the shape does not wait for the disk; what is owed to the sink begins with a record."""
    place = CheckpointStore.claim(str(tmp_path), chain("S", "A", "out"), "r1")
    written: list[str] = []
    write = checkpoint_store.write_file

    def noting(filesystem: Any, name: str, content: bytes, lasts: bool) -> None:
        written.append(Path(name).parts[-2])
        write(filesystem, name, content, lasts=lasts)

    monkeypatch.setattr(checkpoint_store, "write_file", noting)
    place.keep_target("more", b"the sink")
    assert not written
    assert place.target("more") == b"the sink"
    for epoch in (1, 2):
        place.keep(Checkpoint("r1", epoch, place.incarnation, {}))
    assert written == ["targets", "complete", "complete"], "once, before the record"
    assert place.target("more") == b"the sink"
    place.release()
