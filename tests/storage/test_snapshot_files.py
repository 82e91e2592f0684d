"""Files of snapshots: each bin is read alone, and no byte of one can be another without being seen."""

from __future__ import annotations

import itertools
import pickle
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from counted_reads import count_reads
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.errors import CheckpointError
from fries_nb.operators.pickled_states import part_of
from fries_nb.progress.tokens import SavedTokens
from fries_nb.protocol.checkpoints import LoggedFrame, Position, Snapshot
from fries_nb.storage import blob_files
from fries_nb.storage.blob_files import Blob, read_blob, read_index, verify_blobs, with_blobs
from fries_nb.storage.checkpoint_store import Location
from fries_nb.storage.durable import NO_KEY, sealed
from fries_nb.storage.snapshot_files import (
    STATES,
    SnapshotReader,
    SnapshotStore,
    read_file_of_snapshots,
    write_snapshots,
)


def part(**states: bytes | None) -> bytes:
    """A part with these states by key."""
    return part_of([(pickle.dumps(key), state) for key, state in states.items()])


CHAIN = (
    Snapshot(
        "S", 0, 9, ("u1",), positions={0: Position(3, ["a", 4]), 1: None}, feedback=(LoggedFrame("M", b"rows"),)
    ),
    Snapshot(
        "W", 0, 7, (), {9: (part(nine=b"9"),), 3: (part(three=b"3"),), 700: (part(x=b"x" * 100),)},
        agenda={9: b"later", 4: b"then"}, tokens={9: SavedTokens({0: (0, 5)}, 1)},
    ),
    Snapshot("M", 0, 7, bins={9: (part(other=b"9"),)}),
)  # fmt: skip
KEYS = pytest.mark.parametrize("key", [NO_KEY, b"a phrase"])


def written(path: Path, key: bytes = NO_KEY) -> tuple[SnapshotStore, str, Path]:
    """The chain as a file: where it is, its name, its path."""
    store = SnapshotStore(str(path), "r1", key)
    name, _ = write_snapshots(store, "1", 1, CHAIN)
    return store, name, path / STATES / name


def verified(store: SnapshotStore, name: str) -> None:
    """Check the whole file, as a resume does."""
    Location.of(store.place, store.key).verify(name, store.run)


@KEYS
def test_what_was_written_is_read_whole_or_in_parts(tmp_path: Path, key: bytes) -> None:
    """All snapshots of a chain as they were; each bin and each agenda of each alone."""
    store, name, _ = written(tmp_path, key)
    verified(store, name)
    assert read_file_of_snapshots(store, name) == CHAIN
    reader = SnapshotReader(store)
    for snapshot, stored in zip(CHAIN, reader.snapshots(name), strict=True):
        assert (stored.worker.operator, stored.worker.index) == (snapshot.operator, snapshot.index)
        assert reader.rest(stored) == msgspec.structs.replace(snapshot, bins={}, agenda={})
        assert {bin: dict(reader.parts(stored, [bin]))[bin] for bin in stored.bins} == snapshot.bins
        assert reader.agenda(stored) == snapshot.agenda


def read_part_by_part(store: SnapshotStore, name: str) -> None:
    """Read all that is in the file, each part alone."""
    reader = SnapshotReader(store)
    for one in reader.snapshots(name):
        reader.rest(one)
        for bin in one.bins:
            dict(reader.parts(one, [bin]))
        reader.agenda(one)


def damages(content: bytes) -> list[bytes]:
    """The file with each of its bytes changed, cut off at each place, and with a byte more."""
    flipped = [content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :] for at in range(len(content))]
    return [*flipped, *(content[:at] for at in range(len(content))), content + b"x"]


@KEYS
@pytest.mark.parametrize("read", [read_file_of_snapshots, verified, read_part_by_part])
def test_each_byte_counts(tmp_path: Path, read: Callable[[SnapshotStore, str], object], key: bytes) -> None:
    """On restoring, and when a resume verifies the file: in seal, length, index, snapshots, bins and agendas."""
    store, name, path = written(tmp_path, key)
    for damaged in damages(path.read_bytes()):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"the checkpoint at .* is damaged: {STATES}/{name}: it is "):
            read(store, name)


@KEYS
def test_blobs_cannot_change_places(key: bytes) -> None:
    """Two blobs of one length, each as it was signed, at the place of the other."""
    listed = [Blob.of(b"mine"), Blob.of(b"your")]
    right, wrong = (
        pa.py_buffer(with_blobs(b"index", blobs, "name", key)) for blobs in ([b"mine", b"your"], [b"your", b"mine"])
    )
    verify_blobs(pa.BufferReader(right), "name", key, lambda index: listed)
    with pytest.raises(ValueError, match=r"^it is"):
        verify_blobs(pa.BufferReader(wrong), "name", key, lambda index: listed)
    with pytest.raises(ValueError, match=r"^it is"):
        read_blob(pa.BufferReader(wrong), wrong.size - 8, listed[0], key)


def test_only_the_key_of_a_file_opens_it_at_its_place(tmp_path: Path) -> None:
    """Not signed, signed with another key, of another run, under another name: each is refused before it is decoded."""
    store, name, path = written(tmp_path, b"a phrase")
    for other, said in (
        (store._replace(key=NO_KEY), "it is signed; give the signing_key="),
        (store._replace(key=b"another"), "it is not signed with the given key"),
        (store._replace(run="r2"), "it is not signed with the given key"),
    ):
        for read in (read_part_by_part, read_file_of_snapshots, verified):
            with pytest.raises(CheckpointError, match=said):
                read(other, name)
    (path.parent / "W-0.msgpack").write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match="it is not signed with the given key"):
        SnapshotReader(store).snapshots("1-1/W-0.msgpack")


@given(st.dictionaries(st.integers(0, 1023), st.binary(max_size=50), max_size=20), st.binary(max_size=30), st.data())
def test_whatever_an_index_says_is_checked(bins: dict[int, bytes], index: bytes, data: st.DataObject) -> None:
    """Any blobs with any index: each is read alone, and none of them where another one is."""
    key, blobs = data.draw(st.sampled_from([NO_KEY, b"key"])), [*bins.values()]
    content = with_blobs(index, blobs, "name", key)
    found, start = read_index(pa.BufferReader(content), "name", key)
    assert (found, content[start:]) == (index, b"".join(blobs))
    offsets = [start + length for length in itertools.accumulate(map(len, blobs), initial=0)]
    for offset, blob in zip(offsets, blobs, strict=False):
        assert read_blob(pa.BufferReader(content), offset, Blob.of(blob), key) == blob
        if (at := data.draw(st.sampled_from(offsets))) != offset and content[at : at + len(blob)] != blob:
            with pytest.raises(ValueError, match=r"^it is"):
                read_blob(pa.BufferReader(content), at, Blob.of(blob), key)


@pytest.mark.parametrize("length", [1 << 28, (1 << 28) + 1, 1 << 63])
def test_a_length_that_no_index_has_is_damage(length: int) -> None:
    """And does not claim memory."""
    content = bytearray(with_blobs(b"index", [], "name"))
    content[73:81] = length.to_bytes(8, "big")
    with pytest.raises(ValueError, match="it is cut off or has been overwritten"):
        read_index(pa.BufferReader(bytes(content)), "name")


def test_an_index_that_could_not_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be found when the run has died."""
    monkeypatch.setattr(blob_files, "_LONGEST_INDEX", 4)
    with pytest.raises(ValueError, match=r"its index has 5 bytes; at most 4 can be read"):
        with_blobs(b"index", [], "name")


def test_a_sealed_index_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    """Of a file whose seal is right, as another version might write it."""
    store, name, path = written(tmp_path)
    inner = (4).to_bytes(8, "big") + b"none"
    path.write_bytes(sealed(inner, f"r1/{STATES}/{name}"))
    for read in (read_file_of_snapshots, verified):
        with pytest.raises(CheckpointError, match=rf"is damaged: {STATES}/{name}: .+"):
            read(store, name)


def test_one_bin_of_a_large_file_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 MB no more than the index and the bin."""
    chance, store = random.Random(1), SnapshotStore(str(tmp_path), "r1")
    bins = {number: (part(key=chance.randbytes(16 << 10)),) for number in range(1024)}
    name, size = write_snapshots(store, "1", 1, [Snapshot("FM", 0, 1, bins=bins)])
    read = count_reads(monkeypatch)
    reader = SnapshotReader(store)
    (stored,) = reader.snapshots(name)
    before = read.total()
    assert before < 80 << 10
    assert dict(reader.parts(stored, [511])) == {511: bins[511]}
    assert read.total() - before == len(bins[511][0])
    assert size > 16 << 20


def test_a_file_is_verified_in_constant_memory(tmp_path: Path) -> None:
    """A bin of 64 MB, of which no more than a few blocks are held."""
    store = SnapshotStore(str(tmp_path), "r1")
    bins = {1: (part(a=bytes(64 << 20)),), 2: (part(b=b"x"),)}
    name, _ = write_snapshots(store, "1", 1, [Snapshot("FM", 0, 1, bins=bins)])
    verified(store, name)
    tracemalloc.start()
    verified(store, name)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20
