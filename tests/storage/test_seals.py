"""Nobody else's checkpoint is read: modes of files, keys, and whatever can be done to a file."""

from __future__ import annotations

import os
import pickle
import posixpath
import random
import stat
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from place_setting import decided, graph, kept, silence, snapshot, store

from fries_nb.dataflow.endpoints import Replay
from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark.staging import stage_replay
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.durable import encoded, join, locate, sealed, secret, unsealed
from fries_nb.storage.snapshot_files import read_file_of_snapshots, read_snapshots


@given(st.binary(max_size=200), st.data())
def test_a_seal_tells_every_changed_byte(content: bytes, data: st.DataObject) -> None:
    """Whichever byte of a file is another one, or its end is missing."""
    key = data.draw(st.sampled_from([b"", b"key"]))
    file = bytearray(sealed(content, "name", key))
    assert unsealed(bytes(file), "name", key) == content
    at = data.draw(st.integers(0, len(file) - 1))
    for name, damaged in (("name", file[:at]), ("another", file)):
        with pytest.raises(ValueError, match=r"^it is"):
            unsealed(bytes(damaged), name, key)
    file[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match=r"^it is"):
        unsealed(bytes(file), "name", key)


def test_only_the_owner_reads_what_is_kept(tmp_path: Path) -> None:
    """All files 0600, all directories 0700, under the usual umask."""
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1")
    place.decide(decided("u1"))
    place.keep_source("numbers", [1])
    kept(place, 1)
    for path in [tmp_path / "c", *(tmp_path / "c").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_key_signs_all_that_is_decoded(tmp_path: Path) -> None:
    """With another key, or none, nothing is read; nor what has another key; nor a file at another one's place."""
    key, other = secret("a phrase"), secret(b"another")
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1", key)
    place.decide(decided("u1"))
    record = kept(place, 1)
    place.release()
    assert CheckpointStore.load(place.path, key)[1] == Restoration(record, (decided("u1"),))
    assert read_file_of_snapshots(store(place), record.snapshots["FM[0]"]) == (snapshot(),)
    with pytest.raises(CheckpointError, match="it is signed; give the signing_key= that it was written with"):
        CheckpointStore.load(place.path)
    with pytest.raises(CheckpointError, match="it is not signed with the given key, or it has been changed since"):
        CheckpointStore.resume(place.path, graph(), other)
    with pytest.raises(CheckpointError, match="it is not signed with the given key"):
        read_file_of_snapshots(store(place)._replace(run="r2"), record.snapshots["FM[0]"])
    plain = CheckpointStore.claim(str(tmp_path / "d"), graph(), "r1")
    with pytest.raises(CheckpointError, match="it is not signed, and signing_key= was given"):
        CheckpointStore.load(plain.path, key)
    for bad, said in ((b"", "is empty"), ("", "is empty"), (7, "is a int; expected bytes or text")):
        with pytest.raises(CheckpointError, match=said):
            secret(bad)  # type: ignore[arg-type]


class _Bomb:
    """Its unpickling would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


def _fuzzed(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """One thing that can become of a file."""
    at = chance.randrange(len(content))
    return chance.choice(
        [
            b"",
            content[:at],
            content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :],
            other,
            content + other,
            b'{"format": 2, "flow": ' + b"[" * 100_000,
            pickle.dumps(_Bomb()),
            bytes(chance.randrange(256) for _ in range(chance.randrange(200))),
        ]
    )


@pytest.mark.parametrize("key", [None, "a phrase"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_to_a_file_is_one_sentence(tmp_path: Path, seed: int, key: str | None) -> None:
    """Cut, flipped, exchanged, garbage, empty: refused, or the checkpoint before it is taken; and no other error."""
    chance, signing = random.Random(seed), secret(key)
    place = CheckpointStore.claim(str(tmp_path / "c"), graph(), "r1", signing)
    place.decide(decided("u1"))
    place.keep_source("numbers", [1])
    records = [kept(place, epoch) for epoch in (1, 2)]
    place.release()
    files = sorted(path for path in (tmp_path / "c").rglob("*") if path.is_file())
    contents = {path: path.read_bytes() for path in files}
    for _ in range(40):
        path, other = chance.sample(files, 2)
        path.write_bytes(fuzzed := _fuzzed(contents[path], contents[other], chance))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                again = CheckpointStore.resume(place.path, graph(), signing)
                assert again.restoration.decided == (decided("u1"),)
                assert again.restoration.checkpoint in records
                assert again.source("numbers", list[int]) == [1]
                read_snapshots(store(again), again.restoration.checkpoint, [WorkerId("FM", 0)])
                said = path.name
            except CheckpointError as error:
                said = str(error)
        assert "\n" not in said
        assert path.name in said or fuzzed == contents[path], said
        for left in (tmp_path / "c").rglob("*"):
            if left.is_file() and left not in contents:
                left.unlink()
        silence()
        path.write_bytes(contents[path])
    assert not Path("exploded").exists()


# ---- names


@given(st.lists(st.one_of(st.text(max_size=12), st.text("./\\~_-a%", max_size=9), st.text(min_size=150)), unique=True))
def test_a_name_is_one_component_of_a_path_and_no_other_name_has_it(names: list[str]) -> None:
    """As a path and as a URI, which Arrow decodes: what is below the place stays there, and Spark sees it."""
    components = [encoded(name) for name in names]
    assert len(set(components)) == len(names)
    for component in components:
        assert component.isascii()
        assert 0 < len(component) <= 100
        assert component[0] not in "._"
        for place in ("/data/place", "file:///data/place", "s3://bucket/place?region=x"):
            path = locate(join(place.partition("?")[0], component) + place[len(place.partition("?")[0]) :])[1]
            assert posixpath.normpath(path) == path
            assert posixpath.split(path) == (locate(place)[1], component)


def test_a_staged_source_stays_below_its_place(tmp_path: Path) -> None:
    """A path among names is a name."""
    rows = pa.table({"n": [1]})
    place = tmp_path / "1" / "2" / "3"
    for name in ("../../../escaped", "..", "/tmp/escaped", "a/b"):
        stage_replay(Replay(rows), None, str(place), name)  # type: ignore[arg-type]
    assert [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(place)] == []
    assert len(list(place.iterdir())) == 4
