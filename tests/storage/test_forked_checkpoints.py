"""A fork begins from a checkpoint of another run: a copy that is whole, and an origin of which no byte changes."""

from __future__ import annotations

import itertools
import pickle
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
from looked_at import declared, held
from msgspec.structs import replace
from place_setting import silence
from stopping_files import watch

import fries_nb as fn
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update
from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Restoration
from fries_nb.storage import stored_checkpoint
from fries_nb.storage.checkpoint_store import CheckpointStore, Contents, Location
from fries_nb.storage.claims import Claims
from fries_nb.storage.durable import NO_KEY
from fries_nb.storage.flow_shape import flow_of
from fries_nb.storage.stored_checkpoint import ForkOrigin, fork_checkpoint

FM = {f"c{number}": {"count": number} for number in range(40)}


def files(path: Path) -> dict[str, bytes | None]:
    """All files and directories below a path, with their contents."""
    return {str(one): one.read_bytes() if one.is_file() else None for one in path.rglob("*")}


def forked(
    path: Path, to: Path, graph: Graph | None = None, drop: tuple[str, ...] = (), origin: ForkOrigin | None = None,
    key: bytes = NO_KEY,
) -> CheckpointStore:  # fmt: skip
    """A fork of a directory, in another one."""
    graph, origin = graph or declared(), origin or ForkOrigin(str(path), NO_KEY)
    return fork_checkpoint(origin, graph, Location.of(str(to), key), graph, "fork", drop)


def decided(number: int, operator: str = "FM", shape: bytes = b"") -> CommittedChange:
    """A change of one operator."""
    payloads = {} if shape else {operator: b"code"}
    return CommittedChange(f"u{number}", "fries", ((operator,),), payloads, shape=shape, number=number)


def fork_beside(path: Path) -> tuple[CheckpointStore, CheckpointStore]:
    """A directory that a run holds, and a fork of it, by which no byte of it has changed."""
    place = held(str(path / "origin"), {"FM": FM})
    before = files(path / "origin")
    silence()  # else a claim on the directory would be refused, and what the fork does itself not be seen
    fork = forked(path / "origin", path / "fork")
    assert files(path / "origin") == before
    return place, fork


def test_a_fork_that_claims_the_place_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant, which takes the origin's directory over to keep the checkpoint from being deleted."""
    copied = stored_checkpoint._copied

    def claiming(origin: ForkOrigin, to: Location, run: str) -> Any:
        at = Location.of(origin.path, origin.key)
        claims = Claims(at.filesystem, at.root, at.path)
        claims.acquire()
        try:
            return copied(origin, to, run)
        finally:
            claims.release()

    monkeypatch.setattr(stored_checkpoint, "_copied", claiming)
    with pytest.raises(AssertionError, match="claims"):
        fork_beside(tmp_path)


def test_a_fork_is_another_run_that_begins_where_the_origin_was(tmp_path: Path) -> None:
    """States are the same, under a name of its own; nothing is output yet; the origin holds its place and goes on."""
    place, fork = fork_beside(tmp_path)
    record = fork.restoration.checkpoint
    assert record is not None
    assert (record.run, record.epoch, record.sinks) == ("fork", 0, {})
    assert (fork.flow.run, fork.incarnation, place.is_own, fork.is_own) == ("fork", 2, True, True)
    origin, other = fn.checkpoint(tmp_path / "origin"), fn.checkpoint(tmp_path / "fork")
    assert other.epochs == (0,)
    assert origin.compare(other)[["added", "removed", "changed"]].to_numpy().sum() == 0
    assert origin.positions().equals(other.positions())
    held(place.path, {"FM": FM}, epoch=2, place=place)
    fork.release()
    again = CheckpointStore.resume(str(tmp_path / "fork"), declared())
    assert again.restoration.checkpoint == record
    assert forked(tmp_path / "fork", tmp_path / "third").flow.run == "fork"


def test_a_fork_has_the_changes_of_the_checkpoint_and_no_later_ones(tmp_path: Path) -> None:
    """Also none of the shape; a change that was revoked since had no effect, so it has none in the fork."""
    place = held(str(tmp_path / "origin"), {"FM": FM})
    before = place.flow
    for change in (decided(1), decided(2)):
        place.decide(change)
    [record] = place._records.values()
    place.keep(replace(record, epoch=2, decided=("u1", "u2"), decisions=2))
    longer = Graph("w1", (*declared().operators, Operator("Rule")), (*declared().edges, Edge("FM", "Rule")))
    place.decide(CommittedChange("u2", "fries", (), {}))
    place.decide(decided(4))
    place.decide(decided(5, shape=msgspec.msgpack.encode(flow_of(longer, "r1"))))
    fork = forked(tmp_path / "origin", tmp_path / "fork")
    assert [one.change for one in fork.restoration.decided] == ["u1"]
    assert fork.flow == replace(before, run="fork")
    fork.decide(CommittedChange("u9", "fries", (), {"FM": b"code"}))
    fork.release()
    assert [one.number for one in CheckpointStore.load(fork.path)[1].decided] == [1, 4]


def test_numbers_of_decisions_go_on(tmp_path: Path) -> None:
    """A decision of the fork is none that the record has forgotten."""
    place = held(str(tmp_path / "origin"), {"FM": FM})
    [record] = place._records.values()
    place.keep(replace(record, epoch=2, decisions=7))
    fork = forked(tmp_path / "origin", tmp_path / "fork")
    fork.decide(CommittedChange("u1", "fries", (), {"FM": b"code"}))
    assert [one.change for one in CheckpointStore.load(fork.path)[1].decided] == ["u1"]


def test_the_origin_may_go_on_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In front of each operation on a file it completes two checkpoints: the copy is of one of them, and whole."""
    place, epochs, left, seen = held(str(tmp_path / "o"), {"FM": FM}), itertools.count(2), 0, set[str]()

    def goes_on(operation: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            for epoch in itertools.islice(epochs, 2):
                held(place.path, {"FM": {key: {"epoch": epoch} for key in FM}}, epoch, place=place)
            seen.add(operation)

    watch(monkeypatch, goes_on)
    warnings.simplefilter("error")
    for number in itertools.count(1):
        left = number
        fork = forked(tmp_path / "o", tmp_path / f"fork{number}")
        left, is_over = 0, left > 0
        states = fn.checkpoint(fork.path).state("FM")
        assert len(states) == len(FM)
        assert "epoch" not in states or states["epoch"].nunique() == 1
        if is_over:
            break
    assert number > 50
    assert {"read", "list", "write", "move"} <= seen


def test_an_origin_that_is_always_ahead_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fork begins from a mixture, and the place stays usable; a checkpoint that was meant is not replaced."""
    place, epochs, is_at_it = held(str(tmp_path / "o"), {"FM": FM}), itertools.count(2), False
    view = ForkOrigin(place.path, NO_KEY, next(iter(place._records)))

    def goes_on(operation: str) -> None:
        nonlocal is_at_it
        if operation == "read" and not is_at_it:
            is_at_it = True
            for epoch in itertools.islice(epochs, 2):
                held(place.path, {"FM": FM}, epoch, place=place)
            is_at_it = False

    with monkeypatch.context() as patch:
        watch(patch, goes_on)
        with pytest.raises(CheckpointError, match=r"^checkpoints [\d, ]+ at .* were replaced by newer ones, each"):
            forked(tmp_path / "o", tmp_path / "fork")
    assert files(tmp_path / "fork") == {}
    with pytest.raises(CheckpointError, match=r"^checkpoint 1 at .* is not there any more, .*; expected fn\."):
        forked(tmp_path / "o", tmp_path / "fork", origin=view)
    forked(tmp_path / "o", tmp_path / "fork")


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path: Path) -> None:
    """With a warning, as for a run that is resumed."""
    place = held(str(tmp_path / "o"), {"FM": FM})
    held(place.path, {"FM": FM}, epoch=2, place=place)
    damaged = sorted((tmp_path / "o" / "states" / "2-1").iterdir())[0]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    with pytest.warns(RuntimeWarning, match="is damaged: .*; the fork begins from the checkpoint before it"):
        fork = forked(tmp_path / "o", tmp_path / "fork")
    assert fork.restoration.checkpoint is not None
    assert {name.partition("/")[0] for name in fork.restoration.checkpoint.snapshots.values()} == {"1-1"}


def test_staged_rows_go_along(tmp_path: Path) -> None:
    """So the fork goes on when the directory of the origin is deleted; other files are read where they are."""
    place = held(str(tmp_path / "o"), {"FM": FM})
    staged = Path(place.staging) / "S"
    staged.mkdir(parents=True)
    (staged / "rows.parquet").write_bytes(b"rows")
    place.keep_source("S", [{"file": f"{staged}/rows.parquet", "rows": 3}, {"file": "/elsewhere/S/rows.parquet"}])
    fork = forked(tmp_path / "o", tmp_path / "fork")
    [own, other] = fork.source("S", list[dict[str, Any]]) or []
    assert own["file"].startswith(f"{tmp_path}/fork/")
    assert Path(own["file"]).read_bytes() == b"rows"
    assert (own["rows"], other) == (3, {"file": "/elsewhere/S/rows.parquet"})


def test_tables_of_changes_go_along(tmp_path: Path) -> None:
    """The tables that changes of joins have staged; a path that the user gave is read where it is."""
    graph = declared("w1", *declared().operators[:-1], Operator("J", kind=Kind.JOIN), declared().operators[-1])
    place = held(str(tmp_path / "o"), {"FM": FM}, graph=graph)
    staged = Path(place.staging) / "tables" / "J-12"
    staged.mkdir(parents=True)
    (staged / "rows.parquet").write_bytes(b"rows")
    for number, data in enumerate((str(staged), "/user/tables/J-12"), start=1):
        update = pickle.dumps(Update(JoinTable("J", data, {"key": "key"})))
        place.decide(CommittedChange(f"u{number}", "fries", (("J",),), {"J": update, "FM": b"code"}))
    [record] = place._records.values()
    place.keep(replace(record, epoch=2, decided=("u1", "u2"), decisions=2))
    fork = forked(tmp_path / "o", tmp_path / "fork", graph)
    for known in (fork.restoration.decided, CheckpointStore.load(fork.path)[1].decided):
        first, second = (pickle.loads(one.payloads["J"]).function.data for one in known)
        assert first == f"{tmp_path}/fork/staged/0001/tables/J-12"
        assert (Path(first) / "rows.parquet").read_bytes() == b"rows"
        assert second == "/user/tables/J-12"


def test_what_cannot_be_forked_is_named(tmp_path: Path) -> None:
    """Before anything is written, or so that nothing is left."""
    with pytest.raises(CheckpointError, match="holds no checkpoint; expected what"):
        forked(tmp_path / "none", tmp_path / "fork")
    place = CheckpointStore.claim(str(tmp_path / "o"), declared(), "r1")
    with pytest.raises(CheckpointError, match="has not completed a checkpoint yet; expected one that has"):
        forked(tmp_path / "o", tmp_path / "fork")
    held(place.path, {"FM": FM}, place=place)
    with pytest.raises(CheckpointError, match="of flow 'w1'; expected 'other'"):
        forked(tmp_path / "o", tmp_path / "fork", declared("other"))
    without = declared("w1", *(one for one in declared().operators if one.name != "FM"))
    with pytest.raises(CheckpointError, match=r"o holds a checkpoint .* has a state that would be lost; .*\['FM'\]"):
        forked(tmp_path / "o", tmp_path / "fork", without)
    assert files(tmp_path / "fork") == {}
    forked(tmp_path / "o", tmp_path / "fork", without, drop=["FM"])
    with pytest.raises(CheckpointError, match="holds a run of flow 'w1' already"):
        forked(tmp_path / "o", tmp_path / "fork")


@pytest.mark.parametrize("write", range(3, 23, 4))
def test_a_full_disk_is_no_damage_of_the_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    """Whatever cannot be written: the directory of the fork is named, and is empty again."""
    held(str(tmp_path / "o"), {"FM": FM})
    left = write

    def full(operation: str) -> None:
        nonlocal left
        left -= operation == "write"
        if left == 0 and operation == "write":
            raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        watch(patch, full)
        with pytest.raises(CheckpointError, match=r"fork cannot .*: no space left on device"):
            forked(tmp_path / "o", tmp_path / "fork")
    assert left <= 0
    assert files(tmp_path / "fork") == {}
    assert forked(tmp_path / "o", tmp_path / "fork").is_own


@pytest.mark.parametrize("step", ["acquire", "begin"])
def test_a_directory_that_another_run_has_taken_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before the claim of the fork, or on another machine, after it."""
    held(str(tmp_path / "o"), {"FM": FM})
    of: Any = Claims if step == "acquire" else CheckpointStore
    original, taken = getattr(of, step), list[dict[str, bytes | None]]()

    def late(self: Any, *arguments: Any) -> Any:
        if not taken:
            taken.append({})
            silence()
            if step == "begin":
                other = Claims(self._at.filesystem, self._at.root, self.path)
                other.acquire()
                empty = Contents(other.number, flow_of(declared(), "other"), (), (), {}, {})
                CheckpointStore(self._at, other, empty, {}, Restoration(None))._begin()
            else:
                CheckpointStore.claim(str(tmp_path / "fork"), declared(), "other").release()
            taken[0] = files(tmp_path / "fork")
        return original(self, *arguments)

    monkeypatch.setattr(of, step, late)
    with pytest.raises(CheckpointError):
        forked(tmp_path / "o", tmp_path / "fork")
    left = files(tmp_path / "fork")
    theirs = {name: content for name, content in taken[0].items() if "claims/000001" not in name or step == "acquire"}
    assert theirs.items() <= left.items()


def test_keys_of_origin_and_fork_are_two(tmp_path: Path) -> None:
    """The copy is signed with that of the fork."""
    held(str(tmp_path / "o"), {"FM": FM}, key=b"theirs")
    with pytest.raises(CheckpointError, match="it is signed; give the signing_key="):
        forked(tmp_path / "o", tmp_path / "fork")
    theirs = ForkOrigin(str(tmp_path / "o"), b"theirs")
    forked(tmp_path / "o", tmp_path / "fork", origin=theirs, key=b"mine").release()
    silence()
    assert len(fn.checkpoint(tmp_path / "fork", signing_key=b"mine").state("FM")) == len(FM)
    record = CheckpointStore.resume(str(tmp_path / "fork"), declared(), b"mine").restoration.checkpoint
    assert isinstance(record, Checkpoint)
