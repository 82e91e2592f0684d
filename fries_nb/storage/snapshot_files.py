"""Snapshots of workers as files, written by a separate thread of the host, so that no tuple waits for storage.

A file has the snapshots of a chain. Each bin of a snapshot, and the agenda of each bin, is a blob of its own (see
below). So a reader that wants the state of one key reads only its bin: ``SnapshotFile``.

Spilling of record batches to a host's disk, as memory-mapped files that the system loads and evicts as needed.

Each call writes one file, maps it and unlinks it, so that no file remains, however the process ends.

Sealed files of many blobs, of which each can be read and verified alone.

    seal (73 bytes) | length of the index (8 bytes) | index | blob | blob | ...

The seal covers the name of the file and the index. The index, whose form is a matter of its writer, lists the length
and the SHA-256 digest of each blob, in the order in which they follow. So a reader of one blob reads the index and this
blob only, and has verified it as thoroughly as by reading the whole file: without the key no index can be made or
changed, and there is no second blob with a digest that is listed. Digests need no key of their own for that.

A file has to end where its last blob does. So one that was cut off, or to which something was added, is found without
a look at its blobs; that a blob is another one, when it is read, or by ``verify_blobs``.

>>> ham, eggs = Blob.of(b"ham"), Blob.of(b"eggs")
>>> content = with_blobs(b"2 blobs", [b"ham", b"eggs"], "states/1/FM")
>>> index, start = read_index(pa.BufferReader(content), "states/1/FM")
>>> index, content[start + ham.length :]
(b'2 blobs', b'eggs')
>>> read_blob(pa.BufferReader(content), start + ham.length, eggs)
b'eggs'
>>> read_blob(pa.BufferReader(content), start, eggs)
Traceback (most recent call last):
...
ValueError: it is cut off or has been overwritten
"""

from __future__ import annotations

import hashlib
import hmac
import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from fries_nb.errors import CheckpointError, RunError, exception_text
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import Answer, WorkerId
from fries_nb.storage.durable import (
    NO_KEY,
    SEAL_BYTES,
    encoded,
    join,
    locate,
    read_file,
    refuse_digest,
    sealed,
    unsealed,
    write_file,
)

_LENGTH_BYTES = 8
_LONGEST_INDEX = 1 << 28
"""A length beyond it is damage; with it, a thousand operators in one file may have all of their bins."""
_BLOCK = 1 << 20


class Blob(msgspec.Struct, frozen=True, array_like=True):
    """What an index says of a blob.

    Attributes:
        length: number of its bytes.
        digest: their SHA-256.
    """

    length: int
    digest: bytes

    @classmethod
    def of(cls, content: bytes) -> Blob:
        """The entry of an index for this content."""
        return cls(len(content), hashlib.sha256(content).digest())


def with_blobs(index: bytes, blobs: Iterable[bytes], name: str, key: bytes = NO_KEY) -> bytes:
    """The content of a file: an index, which lists ``Blob.of`` each of the blobs in this order, and the blobs.

    Raises:
        ValueError: the index is longer than a reader accepts.
    """
    if len(index) > _LONGEST_INDEX:
        raise ValueError(f"its index has {len(index):,} bytes; at most {_LONGEST_INDEX:,} can be read")
    return b"".join([sealed(len(index).to_bytes(_LENGTH_BYTES, "big") + index, name, key), *blobs])


def read_index(file: pa.NativeFile, name: str, key: bytes = NO_KEY) -> tuple[bytes, int]:
    """Read the index, from the beginning of a file on, and the place where the first blob begins.

    Raises:
        ValueError: the seal does not match index, name and key.
    """
    head = bytes(file.read(SEAL_BYTES + _LENGTH_BYTES))
    length = int.from_bytes(head[SEAL_BYTES:], "big")
    index = bytes(file.read(length)) if length <= _LONGEST_INDEX else b""  # which the seal does not match
    found = unsealed(head + index, name, key)[_LENGTH_BYTES:]
    return found, SEAL_BYTES + _LENGTH_BYTES + length


def check_length(file: pa.NativeFile, start: int, blobs: Iterable[Blob], key: bytes = NO_KEY) -> None:
    """Check that a file of which the blobs begin at this place ends where the last of them does.

    Raises:
        ValueError: it does not.
    """
    if file.size() != start + sum(blob.length for blob in blobs):
        refuse_digest(key)


def read_blob(file: pa.NativeFile, offset: int, blob: Blob, key: bytes = NO_KEY) -> bytes:
    """Read one blob, which begins at this offset of a file.

    Raises:
        ValueError: its content is another one than when the index was made.
    """
    content = bytes(file.read_at(blob.length, offset))
    if len(content) != blob.length or not hmac.compare_digest(hashlib.sha256(content).digest(), blob.digest):
        refuse_digest(key)
    return content


def verify_blobs(
    stream: pa.NativeFile, name: str, key: bytes, listed: Callable[[bytes], Sequence[Blob]]
) -> None:  # fmt: skip
    """Check the seal and all blobs of a file, of which no more than the index and a block is in memory at a time.

    Args:
        stream: the file, from its beginning on.
        name: the name under which it was sealed.
        key: the key that signs it.
        listed: from the index to its blobs, in order.

    Raises:
        ValueError: seal, name and key do not match, a blob is another one, or the file does not end behind the last.
    """
    for _ in _verified(stream, name, key, listed):
        pass


def resealed(
    stream: pa.NativeFile, names: tuple[str, str], keys: tuple[bytes, bytes], listed: Callable[[bytes], Sequence[Blob]]
) -> Iterator[bytes]:
    """The content of a file under another name and key, piece by piece; blobs are checked as ``verify_blobs`` does.

    Args:
        stream: the file, from its beginning on.
        names: the name under which it was sealed, and that under which it will be.
        keys: the key that signs it, and the one that will.
        listed: from the index to its blobs, in order.

    Raises:
        ValueError: see ``verify_blobs``; what came before it is not to be used.
    """
    pieces = _verified(stream, names[0], keys[0], listed)
    yield with_blobs(next(pieces), (), names[1], keys[1])
    yield from pieces


def _verified(
    stream: pa.NativeFile, name: str, key: bytes, listed: Callable[[bytes], Sequence[Blob]]
) -> Iterator[bytes]:  # fmt: skip
    """The index of a file, and then the content of its blobs; raises a ValueError where it finds damage."""
    index, _ = read_index(stream, name, key)
    yield index
    for blob in listed(index):
        digest, left = hashlib.sha256(), blob.length
        while left and (block := stream.read(min(left, _BLOCK))):
            digest.update(block)
            left -= len(block)
            yield block
        if left or not hmac.compare_digest(digest.digest(), blob.digest):
            refuse_digest(key)
    if stream.read(1):
        refuse_digest(key)


STATES = "states"
_DAMAGE = (OSError, ValueError, RecursionError, msgspec.MsgspecError)


class SnapshotStore(NamedTuple):
    """The location of a run's snapshots."""

    place: str  # the checkpoint directory
    run: str  # id of the run; snapshots of other runs are refused
    key: bytes = NO_KEY  # signs the files; ``NO_KEY`` for none


def seal_name(run: str, name: str) -> str:
    """The name under which a file is sealed, unique over the files of all runs, so that files cannot be exchanged."""
    return f"{run}/{name}" if run else name


class Storing(Protocol):
    """An order to store snapshots as one file: ``worker.events.Save``, or ``Park``."""

    @property
    def place(self) -> str:
        """The name of the directory, within an incarnation."""

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """What is to be stored."""

    def written(self, snapshot: Snapshot, name: str, size: int) -> Answer:
        """The answer for one of them."""

    def failed(self, worker: WorkerId, error: str) -> Answer:
        """The answer if the file could not be written."""


class SnapshotIndex(msgspec.Struct, frozen=True, array_like=True):
    """Where the parts of a snapshot are in its file, one behind the other in this order.

    Attributes:
        operator: name of the operator.
        index: index of the parallel instance.
        rest: the encoded snapshot, without what follows.
        bins: bin number to the parts of its states.
        agenda: bin number to its pickled agenda.
    """

    operator: str
    index: int
    rest: Blob
    bins: dict[int, tuple[Blob, ...]]
    agenda: dict[int, Blob]

    @property
    def blobs(self) -> list[Blob]:
        """All parts, in their order."""
        return [self.rest, *chain.from_iterable(self.bins.values()), *self.agenda.values()]


def _encoded(snapshots: Sequence[Snapshot], name: str, key: bytes) -> bytes:
    """The content of a file; each byte of a bin is read once for its digest, and copied once."""
    indices, blobs = [], []
    for snapshot in snapshots:
        rest = msgspec.msgpack.encode(replace(snapshot, bins={}, agenda={}))
        bins = {bin: tuple(map(Blob.of, parts)) for bin, parts in snapshot.bins.items()}
        agenda = {bin: Blob.of(part) for bin, part in snapshot.agenda.items()}
        indices.append(SnapshotIndex(snapshot.operator, snapshot.index, Blob.of(rest), bins, agenda))
        blobs += [rest, *chain.from_iterable(snapshot.bins.values()), *snapshot.agenda.values()]
    return with_blobs(msgspec.msgpack.encode(indices), blobs, name, key)


def _decoded(index: bytes) -> tuple[SnapshotIndex, ...]:
    return msgspec.msgpack.decode(index, type=tuple[SnapshotIndex, ...])


def blobs_of(index: bytes) -> list[Blob]:
    """All blobs of a file of snapshots with this index, in order."""
    return [blob for one in _decoded(index) for blob in one.blobs]


def write_snapshots(
    store: SnapshotStore, place: str, incarnation: int, snapshots: Sequence[Snapshot]
) -> tuple[str, int]:
    """Write snapshots durably, as one file of the checkpoint directory; returns its name, and its size in bytes."""
    worker = WorkerId(snapshots[0].operator, snapshots[0].index)
    name = f"{place}-{incarnation}/{encoded(worker.operator)}-{worker.index}.msgpack"
    try:
        content = _encoded(snapshots, seal_name(store.run, f"{STATES}/{name}"), store.key)
        filesystem, path = locate(join(store.place, STATES, name))
        write_file(filesystem, path, content)
    except (OSError, ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        words = f"the state of {worker} cannot be written to {store.place}: {_first_line(error)}"
        raise CheckpointError(words) from error
    return name, len(content)


class BlobPlace(NamedTuple):
    """Where a part of a snapshot is."""

    offset: int  # from the beginning of the file
    blob: Blob


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot in a file, and where its parts are."""

    worker: WorkerId
    rest: BlobPlace  # the snapshot without what follows
    bins: Mapping[int, tuple[BlobPlace, ...]]  # bin number to the parts of its states
    agenda: Mapping[int, BlobPlace]  # bin number to its pickled agenda


class SnapshotFile:
    """One file of snapshots, of which the index has been read and verified; each part is verified when it is read.

    Args:
        store: where it is.
        name: its name.
        content: its content, if it is in memory; otherwise only parts that are asked for are read.

    Attributes:
        snapshots: what is in the file.

    Raises:
        CheckpointError: there is no such file, or its seal, its index or its length are damaged.
    """

    def __init__(self, store: SnapshotStore, name: str, content: pa.Buffer | None = None) -> None:
        self._store, self._name, self._content = store, name, content
        with self._opened() as file:
            index, start = read_index(file, seal_name(store.run, f"{STATES}/{name}"), store.key)
            check_length(file, start, blobs_of(index), store.key)
            self.snapshots = tuple(_stored(_decoded(index), start))

    @classmethod
    def whole(cls, store: SnapshotStore, name: str) -> SnapshotFile:
        """The file, read at once, since all of its parts will be needed."""
        with in_file(store, name):
            filesystem, path = locate(join(store.place, STATES, name))
            return cls(store, name, pa.py_buffer(read_file(filesystem, path)))

    def rest(self, one: StoredSnapshot) -> Snapshot:
        """A snapshot without bins and agenda; raises a CheckpointError if it is damaged."""
        with self._opened() as file:
            return msgspec.msgpack.decode(read_blob(file, *one.rest, self._store.key), type=Snapshot)

    def parts(self, places: Mapping[int, tuple[BlobPlace, ...]]) -> Iterator[tuple[int, tuple[bytes, ...]]]:
        """Read the parts of bins, bin by bin; raises a CheckpointError if one is damaged."""
        with self._opened() as file:
            for number, some in places.items():
                yield number, tuple([read_blob(file, *place, self._store.key) for place in some])

    def agenda(self, places: Mapping[int, BlobPlace]) -> dict[int, bytes]:
        """Read the agenda of bins; raises a CheckpointError if it is damaged."""
        with self._opened() as file:
            return {number: read_blob(file, *place, self._store.key) for number, place in places.items()}

    @contextmanager
    def _opened(self) -> Iterator[pa.NativeFile]:
        with in_file(self._store, self._name):
            if self._content is not None:
                yield pa.BufferReader(self._content)
                return
            filesystem, path = locate(join(self._store.place, STATES, self._name))
            with filesystem.open_input_file(path) as file:
                yield file


def _stored(indices: Iterable[SnapshotIndex], start: int) -> Iterator[StoredSnapshot]:
    """The snapshots of an index, whose first blob begins there."""

    def place(blob: Blob) -> BlobPlace:
        nonlocal start
        start += blob.length
        return BlobPlace(start - blob.length, blob)

    for one in indices:
        rest = place(one.rest)
        bins = {bin: tuple(map(place, blobs)) for bin, blobs in one.bins.items()}
        agenda = {bin: place(blob) for bin, blob in one.agenda.items()}
        yield StoredSnapshot(WorkerId(one.operator, one.index), rest, bins, agenda)


@contextmanager
def in_file(store: SnapshotStore, name: str) -> Iterator[None]:
    """Turns what is raised for a damaged file of snapshots, or one that cannot be read, into a CheckpointError."""
    try:
        yield
    except _DAMAGE as error:
        words = f"the checkpoint at {store.place} is damaged: {STATES}/{name}: {_first_line(error)}"
        raise CheckpointError(words) from error


def read_file_of_snapshots(store: SnapshotStore, name: str) -> tuple[Snapshot, ...]:
    """Read the snapshots in one file of a checkpoint."""
    file = SnapshotFile.whole(store, name)
    return tuple(
        replace(file.rest(one), bins=dict(file.parts(one.bins)), agenda=file.agenda(one.agenda))
        for one in file.snapshots
    )


def read_snapshots(
    store: SnapshotStore, checkpoint: Checkpoint | None, workers: Iterable[WorkerId]
) -> dict[WorkerId, Snapshot]:
    """Read the snapshots of these workers that the checkpoint has; each file is read once."""
    known = checkpoint.snapshots if checkpoint is not None else {}
    files = {worker: known[str(worker)] for worker in workers if str(worker) in known}
    found = (snapshot for name in dict.fromkeys(files.values()) for snapshot in read_file_of_snapshots(store, name))
    held = {WorkerId(snapshot.operator, snapshot.index): snapshot for snapshot in found}
    return {worker: held[worker] for worker in files if worker in held}


class Saver(threading.Thread):
    """Writes the snapshots of a host's workers, one after the other, and reports each."""

    def __init__(self, store: SnapshotStore, incarnation: int, say: Callable[[Answer], None]) -> None:
        super().__init__(name="fries-save", daemon=True)
        self._store = store
        self._incarnation = incarnation
        self._say = say  # called from this thread with the result of each write
        self._orders: queue.SimpleQueue[Storing | None] = queue.SimpleQueue()

    def save(self, order: Storing) -> None:
        """Submit snapshots for one file; may be called from any thread."""
        self._orders.put(order)

    def leave(self) -> None:
        """End when all submitted snapshots are written; may be called from any thread."""
        self._orders.put(None)

    def run(self) -> None:
        """The thread's body: writes snapshots in the order in which they were submitted."""
        while (order := self._orders.get()) is not None:
            first = order.snapshots[0]
            try:
                name, size = write_snapshots(self._store, order.place, self._incarnation, order.snapshots)
            except Exception as error:  # noqa: BLE001 - an answer is owed, or the checkpoint never ends
                words = str(error) if isinstance(error, CheckpointError) else exception_text(error)
                self._say(order.failed(WorkerId(first.operator, first.index), words))
            else:
                for one in order.snapshots:
                    self._say(order.written(one, name, size if one is first else 0))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def spilled(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same batches, mapped from a file in the host's scratch space (Spark's, if configured)."""
    directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    try:
        return [batch for schema, some in groupby(batches, _schema) for batch in _mapped(schema, list(some), directory)]
    except OSError as error:
        raise RunError(f"tuples that wait cannot be spilled to {directory}: {error}") from error


def _schema(batch: pa.RecordBatch) -> pa.Schema:
    return batch.schema


def _mapped(schema: pa.Schema, batches: Sequence[pa.RecordBatch], directory: str) -> list[pa.RecordBatch]:
    with tempfile.NamedTemporaryFile(prefix="fries-spill-", dir=directory) as file:
        with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        file.flush()
        with pa.memory_map(file.name) as mapped:
            return list(pa.ipc.open_stream(mapped))
