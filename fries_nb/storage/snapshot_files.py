"""Snapshots of workers as files of a checkpoint directory.

A file has the snapshots of a chain. Each part of the states of a bin, and the agenda of each bin, is a blob of its own
(see ``blob_files``). A snapshot also names parts that earlier files have (see ``stored_parts``), by their numbers among
the blobs of these; of each such file the index has the SHA-256 digest of its index. So a seal covers the digests of all
parts of a snapshot, in whichever files they are, and a reader that wants the state of one key reads the indices and the
parts of its bin only: ``SnapshotReader``.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage.blob_files import Blob, blob_start, check_length, read_blob, read_index, with_blobs
from fries_nb.storage.durable import NO_KEY, encoded, join, locate, write_file
from fries_nb.storage.stored_parts import IndexedFile, PartsRun, SnapshotLayout, StoredBlob, StoredParts, laid_out

STATES = "states"
_DAMAGE = (OSError, ValueError, RecursionError, msgspec.MsgspecError)
_WHOLE = 0.5
"""From this share on that is wanted of the bytes between the first and the last part, they are read at once."""
_EXPECTED = (
    "expected the file as it was written, for example from a copy of the directory; without it, a run resumes from the "
    "checkpoint before it, if that does not need the file, too"
)


class SnapshotDirectory(Protocol):
    """Where files of snapshots are: a checkpoint directory, or what stands for it in a simulation."""

    @property
    def place(self) -> str:
        """Its name in messages."""

    @property
    def run(self) -> str:
        """The id of the run; snapshots of other runs are refused."""

    @property
    def key(self) -> bytes:
        """The key that signs the files; ``NO_KEY`` for none."""

    def opened(self, name: str) -> AbstractContextManager[pa.NativeFile]:
        """A block that reads a file; raises an OSError if there is none."""

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file, piece by piece, atomically and durably; raises an OSError or a ValueError if that fails."""


class SnapshotStore(NamedTuple):
    """The location of a run's snapshots."""

    place: str  # the checkpoint directory
    run: str  # id of the run; snapshots of other runs are refused
    key: bytes = NO_KEY  # signs the files; ``NO_KEY`` for none

    @contextmanager
    def opened(self, name: str) -> Iterator[pa.NativeFile]:
        """See ``SnapshotDirectory``."""
        filesystem, path = locate(join(self.place, STATES, name))
        with filesystem.open_input_file(path) as file:
            yield file

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """See ``SnapshotDirectory``."""
        filesystem, path = locate(join(self.place, STATES, name))
        write_file(filesystem, path, content)


def seal_name(run: str, name: str) -> str:
    """The name under which a file is sealed, unique over the files of all runs, so that files cannot be exchanged."""
    return f"{run}/{name}" if run else name


# ---- the index

BlobName = tuple[int, int]
"""A number among the earlier files, from 1, or 0 for the file itself; and a number among the blobs of that file."""


class SnapshotIndex(msgspec.Struct, frozen=True, array_like=True):
    """Where the parts of a snapshot are.

    Attributes:
        operator: name of the operator.
        index: index of the parallel instance.
        rest: the encoded snapshot, without what follows.
        bins: bin number to the parts of its states, the oldest first.
        agenda: bin number to its pickled agenda.
    """

    operator: str
    index: int
    rest: BlobName
    bins: dict[int, tuple[BlobName, ...]]
    agenda: dict[int, BlobName]


class FileIndex(msgspec.Struct, frozen=True, array_like=True):
    """The index of a file of snapshots.

    Attributes:
        earlier: the earlier files whose parts it names.
        blobs: its own blobs, in order.
        snapshots: the snapshots, in order of the chain.
    """

    earlier: tuple[IndexedFile, ...]
    blobs: tuple[Blob, ...]
    snapshots: tuple[SnapshotIndex, ...]


_index = msgspec.msgpack.Decoder(FileIndex)


def blobs_of(index: bytes) -> tuple[Blob, ...]:
    """All blobs of a file of snapshots with this index, in order."""
    return _index.decode(index).blobs


def earlier_of(index: bytes) -> tuple[IndexedFile, ...]:
    """The earlier files that a file of snapshots with this index needs."""
    return _index.decode(index).earlier


def indexed_as(name: str, index: bytes) -> IndexedFile:
    """How later files name a file with this index."""
    return IndexedFile(name, hashlib.sha256(index).digest())


def _blobs_behind(file: IndexedFile, start: int, blobs: Iterable[Blob]) -> tuple[StoredBlob, ...]:
    """The blobs of a file of which the first one begins there."""
    found = []
    for number, blob in enumerate(blobs):
        found.append(StoredBlob(file, number, start, blob, blob.length, blob.entries))
        start += blob.length
    return tuple(found)


# ---- writing


class WrittenFile(NamedTuple):
    """A file of snapshots that was written."""

    name: str
    size: int  # its length in bytes
    earlier: tuple[str, ...]  # the earlier files whose parts its snapshots name
    stored: Mapping[WorkerId, StoredParts]  # what is stored of each worker now


def write_snapshots(
    store: SnapshotDirectory, place: str, incarnation: int, snapshots: Sequence[Snapshot]
) -> tuple[str, int]:
    """Write snapshots that have all states, durably, as one file; returns its name, and its size in bytes.

    Raises:
        CheckpointError: it could not be written.
    """
    written = write_behind(store, f"{place}-{incarnation}", 0, snapshots, {})
    return written.name, written.size


def write_behind(
    store: SnapshotDirectory,
    directory: str,
    number: int,
    snapshots: Sequence[Snapshot],
    stored: Mapping[WorkerId, StoredParts],
) -> WrittenFile:
    """Write snapshots durably, as one file, behind what is stored of their workers.

    Args:
        store: where the files are.
        directory: the directory there.
        number: number of these snapshots, by which later ones name them.
        snapshots: the snapshots of a chain, in order.
        stored: what is stored of their workers so far.

    Raises:
        CheckpointError: it could not be written, or a part that is to be written again could not be read.
    """
    first = WorkerId(snapshots[0].operator, snapshots[0].index)
    name = f"{directory}/{encoded(first.operator)}-{first.index}.msgpack"
    try:
        draft = _Draft()
        for snapshot in snapshots:
            worker = WorkerId(snapshot.operator, snapshot.index)
            layout = laid_out(snapshot, before := stored.get(worker))
            known = before.bins if before is not None else None
            draft.add(snapshot, layout, read_parts(store, worker, layout.to_read, known))
        index = draft.index()
        # In pieces, since states may take as much memory as there is.
        content = [with_blobs(index, (), seal_name(store.run, f"{STATES}/{name}"), store.key), *draft.contents]
        store.write(name, content)
    except (*_DAMAGE, TypeError, OverflowError) as error:
        words = f"the state of {first} cannot be written to {store.place}: {_first_line(error)}"
        raise CheckpointError(words) from error
    earlier = tuple(one.name for one in draft.earlier)
    stored_now = dict(draft.stored(number, indexed_as(name, index), index))
    return WrittenFile(name, sum(map(len, content)), earlier, stored_now)


class _Draft:
    """A file of snapshots that is being put together.

    Attributes:
        contents: the contents of its blobs, in order.
        earlier: the earlier files that it needs.
    """

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.earlier: list[IndexedFile] = []
        self._blobs: list[Blob] = []
        self._numbers: dict[str, int] = {}
        self._snapshots: list[SnapshotIndex] = []
        self._kept: list[tuple[SnapshotLayout, int]] = []  # with the number of bytes of the parts that it has written

    def add(self, snapshot: Snapshot, layout: SnapshotLayout, contents: Mapping[StoredBlob, bytes]) -> None:
        """Add a snapshot; ``contents`` has the stored parts that are written again."""
        needs = tuple(sorted(layout.needs))
        rest = self._own(msgspec.msgpack.encode(
            replace(snapshot, bins={}, agenda={}, since=0, gone=(), needs=needs)
        ))  # fmt: skip
        before = len(self._blobs)
        parts = {bin: tuple(self._parts(row, contents)) for bin, row in layout.bins.items()}
        bins = {bin: names for bin, names in parts.items() if names}
        self._kept.append((layout, sum(blob.length for blob in self._blobs[before:])))
        agenda = {
            bin: self._named(held) if isinstance(held, StoredBlob) else self._own(held)
            for bin, held in layout.agenda.items()
        }
        self._snapshots.append(SnapshotIndex(snapshot.operator, snapshot.index, rest, bins, agenda))

    def _parts(self, row: Iterable[StoredBlob | PartsRun], contents: Mapping[StoredBlob, bytes]) -> Iterator[BlobName]:
        for part in row:
            if isinstance(part, StoredBlob):
                yield self._named(part)
            elif (joined := part.joined(contents)) is not None:
                yield self._own(joined.content, joined.entries)

    def _own(self, content: bytes, entries: int = 0) -> BlobName:
        self.contents.append(content)
        self._blobs.append(Blob.of(content, entries))
        return 0, len(self._blobs) - 1

    def _named(self, blob: StoredBlob) -> BlobName:
        if blob.file.name not in self._numbers:
            self.earlier.append(blob.file)
            self._numbers[blob.file.name] = len(self.earlier)
        return self._numbers[blob.file.name], blob.number

    def index(self) -> bytes:
        """The index."""
        return msgspec.msgpack.encode(FileIndex(tuple(self.earlier), tuple(self._blobs), tuple(self._snapshots)))

    def stored(self, number: int, file: IndexedFile, index: bytes) -> Iterator[tuple[WorkerId, StoredParts]]:
        """What is stored of each worker, when it is written."""
        own = _blobs_behind(file, blob_start(index), self._blobs)
        for one, (layout, written) in zip(self._snapshots, self._kept, strict=True):
            named = {(0, blob.number): blob for blob in own}
            for part in (*itertools.chain.from_iterable(layout.bins.values()), *layout.agenda.values()):
                if isinstance(part, StoredBlob):
                    named[self._numbers[part.file.name], part.number] = part
            bins = {bin: tuple([named[name] for name in names]) for bin, names in one.bins.items()}
            agenda = {bin: named[name] for bin, name in one.agenda.items()}
            kept = StoredParts(number, bins, agenda, layout.needs, layout.credit_after(written))
            yield WorkerId(one.operator, one.index), kept


# ---- reading


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot in a file, and where its parts are, in whichever files."""

    worker: WorkerId
    rest: StoredBlob  # the snapshot without what follows
    bins: Mapping[int, tuple[StoredBlob, ...]]  # bin number to the parts of its states
    agenda: Mapping[int, StoredBlob]  # bin number to its pickled agenda


@dataclass(frozen=True)
class _Table:
    """The index of a file, and where its blobs are."""

    file: IndexedFile
    index: FileIndex
    blobs: tuple[StoredBlob, ...]


class SnapshotReader:
    """Reads the snapshots of checkpoints: of each file its index, once, and of its parts those that are asked for.

    Each part is verified when it is read.
    """

    def __init__(self, store: SnapshotDirectory) -> None:
        self._store = store
        self._tables: dict[str, _Table] = {}

    def snapshots(self, name: str) -> tuple[StoredSnapshot, ...]:
        """The snapshots in a file.

        Raises:
            CheckpointError: there is no such file, or one that it needs; or seal, index or length of one are damaged.
        """
        own = self._table(name)
        return tuple(self._located(own, one) for one in own.index.snapshots)

    def rest(self, one: StoredSnapshot) -> Snapshot:
        """A snapshot without bins and agenda; raises a CheckpointError if it is damaged."""
        name = one.rest.file.name
        with in_file(self._store, name, f" (the snapshot of {one.worker})"), self._store.opened(name) as file:
            content = read_blob(file, one.rest.offset, one.rest.blob, self._store.key)
            return msgspec.msgpack.decode(content, type=Snapshot)

    def parts(self, one: StoredSnapshot, bins: Iterable[int]) -> Iterator[tuple[int, tuple[bytes, ...]]]:
        """Read the parts of those of these bins that it has; raises a CheckpointError if one is damaged."""
        wanted = {bin: one.bins[bin] for bin in bins if bin in one.bins}
        contents = read_parts(self._store, one.worker, itertools.chain.from_iterable(wanted.values()), one.bins)
        for bin, parts in wanted.items():
            yield bin, tuple([contents[part] for part in parts])

    def agenda(self, one: StoredSnapshot) -> dict[int, bytes]:
        """Read the agenda of all bins; raises a CheckpointError if it is damaged."""
        contents = read_parts(self._store, one.worker, one.agenda.values())
        return {bin: contents[blob] for bin, blob in one.agenda.items()}

    def without_states(self, one: StoredSnapshot) -> Snapshot:
        """A snapshot of which the bins have no parts; raises a CheckpointError if any of it is damaged."""
        return replace(self.rest(one), bins=dict.fromkeys(one.bins, ()), agenda=self.agenda(one))

    def whole(self, one: StoredSnapshot) -> Snapshot:
        """All of a snapshot; raises a CheckpointError if any of it is damaged."""
        return replace(self.rest(one), bins=dict(self.parts(one, one.bins)), agenda=self.agenda(one))

    def _located(self, own: _Table, one: SnapshotIndex) -> StoredSnapshot:
        worker = WorkerId(one.operator, one.index)

        def found(name: BlobName) -> StoredBlob:
            if not name[0]:
                return own.blobs[name[1]]
            return self._earlier(own.index.earlier[name[0] - 1], worker).blobs[name[1]]

        with in_file(self._store, own.file.name):
            bins = {bin: tuple([found(name) for name in names]) for bin, names in one.bins.items()}
            agenda = {bin: found(name) for bin, name in one.agenda.items()}
            return StoredSnapshot(worker, found(one.rest), bins, agenda)

    def _earlier(self, file: IndexedFile, worker: WorkerId) -> _Table:
        """The table of an earlier file, which has to be the one that was named."""
        table = self._table(file.name, f" (with states of {worker})")
        if table.file != file:
            with in_file(self._store, file.name, f" (with states of {worker})"):
                raise ValueError("it is another file than the one that later ones name")
        return table

    def _table(self, name: str, what: str = "") -> _Table:
        if name not in self._tables:
            with in_file(self._store, name, what), self._store.opened(name) as file:
                index, start = read_index(file, seal_name(self._store.run, f"{STATES}/{name}"), self._store.key)
                found, indexed = _index.decode(index), indexed_as(name, index)
                check_length(file, start, found.blobs, self._store.key)
                self._tables[name] = _Table(indexed, found, _blobs_behind(indexed, start, found.blobs))
        return self._tables[name]


def read_parts(
    store: SnapshotDirectory,
    worker: WorkerId,
    blobs: Iterable[StoredBlob],
    bins: Mapping[int, Sequence[StoredBlob]] | None = None,
) -> dict[StoredBlob, bytes]:
    """Read parts of a worker's states, in whichever files they are, file by file.

    Args:
        store: where the files are.
        worker: the worker.
        blobs: the parts.
        bins: bin to its parts, for the error.

    Raises:
        CheckpointError: one is missing, or another one than was written; it names the bin.
    """
    by_file = defaultdict[str, list[StoredBlob]](list)
    for blob in blobs:
        by_file[blob.file.name].append(blob)
    found: dict[StoredBlob, bytes] = {}
    for wanted in by_file.values():
        found.update(_read_of_file(store, wanted, lambda blob: _owner(worker, blob, bins or {})))
    return found


def read_bin(
    store: SnapshotDirectory, worker: WorkerId, bin: int, parts: Sequence[StoredBlob]
) -> tuple[bytes, ...]:  # fmt: skip
    """Read the parts of one bin, the oldest first; raises as ``read_parts`` does."""
    contents = read_parts(store, worker, parts, {bin: parts})
    return tuple([contents[part] for part in parts])


def _read_of_file(
    store: SnapshotDirectory, wanted: Sequence[StoredBlob], owner: Callable[[StoredBlob], str]
) -> Iterator[tuple[StoredBlob, bytes]]:
    """Read blobs of one file; ``owner`` says in words whose one is."""
    blob, name = wanted[0], wanted[0].file.name
    with in_file(store, name, lambda: owner(blob)), store.opened(name) as file:
        start, end = min(one.offset for one in wanted), max(one.offset + one.length for one in wanted)
        if sum(one.length for one in wanted) > _WHOLE * (end - start):
            file = pa.BufferReader(file.read_at(end - start, start))
        else:
            start = 0
        for blob in wanted:
            yield blob, read_blob(file, blob.offset - start, blob.blob, store.key)


def _owner(worker: WorkerId, blob: StoredBlob, bins: Mapping[int, Sequence[StoredBlob]]) -> str:
    """Whose a blob is, in words."""
    bin = next((bin for bin, parts in bins.items() if blob in parts), None)
    return f" (states of {worker})" if bin is None else f" (states of {worker}, in bin {bin})"


@contextmanager
def in_file(store: SnapshotDirectory, name: str, what: str | Callable[[], str] = "") -> Iterator[None]:
    """Turns what is raised for a damaged file of snapshots, or one that cannot be read, into a CheckpointError."""
    try:
        yield
    except _DAMAGE as error:
        owner = what if isinstance(what, str) else what()
        words = f"the checkpoint at {store.place} is damaged: {STATES}/{name}: {_first_line(error)}{owner}"
        raise CheckpointError(f"{words}; {_EXPECTED}") from error


def read_file_of_snapshots(store: SnapshotDirectory, name: str) -> tuple[Snapshot, ...]:
    """Read the snapshots in one file of a checkpoint."""
    reader = SnapshotReader(store)
    return tuple(map(reader.whole, reader.snapshots(name)))


def stored_snapshots(
    reader: SnapshotReader, checkpoint: Checkpoint | None, workers: Iterable[WorkerId]
) -> dict[WorkerId, StoredSnapshot]:
    """Those of these workers' snapshots that the checkpoint has; of each file the index is read once."""
    known = checkpoint.snapshots if checkpoint is not None else {}
    files = {worker: known[str(worker)] for worker in workers if str(worker) in known}
    found = (one for name in dict.fromkeys(files.values()) for one in reader.snapshots(name))
    held = {one.worker: one for one in found}
    return {worker: held[worker] for worker in files if worker in held}


def read_snapshots(
    store: SnapshotDirectory, checkpoint: Checkpoint | None, workers: Iterable[WorkerId]
) -> dict[WorkerId, Snapshot]:
    """Read the snapshots of these workers that the checkpoint has."""
    reader = SnapshotReader(store)
    return {worker: reader.whole(one) for worker, one in stored_snapshots(reader, checkpoint, workers).items()}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
