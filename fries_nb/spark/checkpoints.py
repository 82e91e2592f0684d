"""The place where a run keeps what it would start again from.

    flow.json                    whose checkpoint it is, and in which format
    incarnation.json             the newest attempt; an older one that still lives may write no more
    decisions/<n>.msgpack        the changes, each on disk before the first fast control message leaves
    sources/<name>.msgpack       which rows the workers of a replay read
    states/<epoch>-<attempt>/    the snapshots of the workers
    complete/<epoch>.json        the record that makes them a checkpoint; the last two are kept
    sinks/<name>/                what memory sinks hold

A place is a directory or a URI that the driver and all hosts reach. Whatever stops in between, a file is there whole
or not at all; the newest record in ``complete`` is the checkpoint, and nothing else counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from pyarrow import fs

from fries_nb.checkpoints import Checkpoint, Decided, Restoration, in_effect
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import CheckpointError
from fries_nb.spark.durable import read_file, sealed, unsealed, write_file
from fries_nb.spark.flows import FORMAT, Flow, difference, flow_of
from fries_nb.spark.snapshots import STATES
from fries_nb.spark.storage import locate

KEPT = 2

_T = TypeVar("_T")


class _Format(msgspec.Struct, frozen=True):
    format: int


class _Incarnation(msgspec.Struct, frozen=True):
    incarnation: int


class Place:
    """A checkpoint place, held by one attempt of a run; made by ``claim`` or ``resume``.

    Attributes:
        path: of the place.
        flow: the note in it.
        incarnation: of the attempt that holds it.
    """

    def __init__(self, path: str, flow: Flow, incarnation: int, decisions: int) -> None:
        self.path = path
        self.flow = flow
        self.incarnation = incarnation
        self._decisions = decisions
        self._filesystem, self._root = _located(path)

    @classmethod
    def claim(cls, path: str, graph: Graph, run: str) -> Place:
        """Make an empty or new directory the place of a run.

        Raises:
            CheckpointError: it cannot be written, or holds something: a run, which could be resumed, or other files.
        """
        filesystem, root = _located(path)
        with _in_words(f"{path} cannot hold checkpoints"):
            if filesystem.get_file_info(f"{root}/flow.json").type == fs.FileType.File:
                raise CheckpointError(_taken(path, graph))
            found = filesystem.get_file_info(root)
            if found.type == fs.FileType.File:
                raise CheckpointError(f"{path} is a file; expected a directory, or a path where none is yet")
            if found.type == fs.FileType.Directory and filesystem.get_file_info(fs.FileSelector(root)):
                raise CheckpointError(f"{path} holds files that are no checkpoint; use an empty directory or a new one")
            flow = flow_of(graph, run)
            write_file(filesystem, f"{root}/flow.json", msgspec.json.encode(flow))
        place = cls(path, flow, 0, 0)
        place.begin(1)
        return place

    @classmethod
    def resume(cls, path: str, graph: Graph) -> Place:
        """Take over a place whose run has ended or died, as the next attempt.

        Raises:
            CheckpointError: there is none, it is of another flow or version, or is damaged.
        """
        flow = _flow(path)
        if other := difference(flow, graph):
            raise CheckpointError(f"{path} holds a checkpoint {other}")
        place = cls(path, flow, _incarnation(path), len(_names(path, "decisions", ".msgpack")))
        place.begin(place.incarnation + 1)
        return place

    @staticmethod
    def load(path: str) -> tuple[Flow, Restoration]:
        """Whose place it is, and what the run goes on from.

        Raises:
            CheckpointError: there is no checkpoint, it is of another version, or is damaged.
        """
        flow = _flow(path)
        filesystem, root = _located(path)
        epochs = _kept(path)
        record = None
        if epochs:
            record = _read(path, f"complete/{_record(epochs[-1])}", Checkpoint)
            for name in record.snapshots.values():
                if filesystem.get_file_info(f"{root}/{STATES}/{name}").type != fs.FileType.File:
                    raise CheckpointError(f"the checkpoint at {path} is damaged: {STATES}/{name} has gone")
        return flow, Restoration(record, _decided(path))

    def withdraw(self) -> None:
        """Leave the place as ``claim`` found it: empty."""
        with _in_words(f"{self.path} cannot be emptied"):
            self._filesystem.delete_dir_contents(self._root)

    def begin(self, incarnation: int) -> None:
        """A new attempt starts; earlier ones may write no more.

        Raises:
            CheckpointError: the place cannot be written.
        """
        self._write("incarnation.json", msgspec.json.encode(_Incarnation(incarnation)))
        self.incarnation = incarnation

    def decide(self, decided: Decided) -> None:
        """A change is decided once this returns.

        Raises:
            CheckpointError: the place cannot be written, or a newer attempt holds it.
        """
        self._see_own()
        self._write(f"decisions/{self._decisions + 1:06d}.msgpack", sealed(msgspec.msgpack.encode(decided)))
        self._decisions += 1

    def keep(self, record: Checkpoint) -> None:
        """The checkpoint is complete once this returns.

        Raises:
            CheckpointError: the place cannot be written, or a newer attempt holds it.
        """
        self._see_own()
        self._write(f"complete/{_record(record.epoch)}", msgspec.json.encode(record))

    def tidy(self) -> None:
        """Delete older checkpoints than the last two, and snapshots that no checkpoint came of.

        Raises:
            CheckpointError: they cannot be deleted.
        """
        with _in_words(f"old checkpoints at {self.path} cannot be deleted"):
            self._forget_old()

    def keep_source(self, name: str, plan: Any) -> None:
        """Which rows the workers of a source read (any msgpack value).

        Raises:
            CheckpointError: the place cannot be written.
        """
        self._write(_source(name), sealed(msgspec.msgpack.encode(plan)))

    def source(self, name: str, kind: type[_T]) -> _T | None:
        """What was kept of the source, if anything was.

        Raises:
            CheckpointError: it is damaged.
        """
        with _in_words(f"{self.path} cannot be read"):
            if self._filesystem.get_file_info(f"{self._root}/{_source(name)}").type != fs.FileType.File:
                return None
        return _read(self.path, _source(name), kind)

    @property
    def is_own(self) -> bool:
        """No newer attempt has taken the place over, as far as one can tell."""
        with contextlib.suppress(CheckpointError):
            return _incarnation(self.path) == self.incarnation
        return False

    def _see_own(self) -> None:
        newest = _incarnation(self.path)
        if newest != self.incarnation:
            raise CheckpointError(
                f"{self.path} is held by attempt {newest} of run {self.flow.run} now, and this is attempt "
                f"{self.incarnation}; likely the run was resumed elsewhere"
            )

    def _write(self, name: str, content: bytes) -> None:
        with _in_words(f"{self.path} cannot be written"):
            write_file(self._filesystem, f"{self._root}/{name}", content)

    def _forget_old(self) -> None:
        epochs = _kept(self.path)
        for epoch in epochs[:-KEPT]:
            self._filesystem.delete_file(f"{self._root}/complete/{_record(epoch)}")
        records = [_read(self.path, f"complete/{_record(epoch)}", Checkpoint) for epoch in epochs[-KEPT:]]
        needed = {name.partition("/")[0] for record in records for name in record.snapshots.values()}
        selector = fs.FileSelector(f"{self._root}/{STATES}", allow_not_found=True)
        for entry in self._filesystem.get_file_info(selector):
            epoch = entry.base_name.partition("-")[0]
            if entry.base_name not in needed and epoch.isdigit() and int(epoch) <= epochs[-1]:
                self._filesystem.delete_dir(entry.path)


def _record(epoch: int) -> str:
    return f"{epoch:06d}.json"


def _source(name: str) -> str:
    return f"sources/{quote(name, safe='')}.msgpack"


def _flow(path: str) -> Flow:
    filesystem, root = _located(path)
    with _in_words(f"{path} cannot be read"):
        if filesystem.get_file_info(f"{root}/flow.json").type != fs.FileType.File:
            raise CheckpointError(f"{path} holds no checkpoint; expected what flow.run(checkpoint=...) wrote there")
    version = _read(path, "flow.json", _Format).format
    if version != FORMAT:
        raise CheckpointError(
            f"{path} holds a checkpoint in format {version}; this fries_nb reads format {FORMAT}: "
            "likely another version of fries_nb wrote it"
        )
    return _read(path, "flow.json", Flow)


def _taken(path: str, graph: Graph) -> str:
    flow = _flow(path)
    if other := difference(flow, graph):
        return f"{path} holds a checkpoint {other}; use another path"
    return (
        f"{path} holds a run of flow {flow.flow!r} already; go on with it by flow.resume({path!r}), or use another path"
    )


def _incarnation(path: str) -> int:
    return _read(path, "incarnation.json", _Incarnation).incarnation


def _kept(path: str) -> list[int]:
    return [int(name) for name in _names(path, "complete", ".json")]


def _decided(path: str) -> tuple[Decided, ...]:
    names = _names(path, "decisions", ".msgpack")
    return in_effect(_read(path, f"decisions/{name}.msgpack", Decided) for name in names)


def _names(path: str, directory: str, ending: str) -> list[str]:
    """The numbered files of a directory, in order, without the drafts of files that were not finished."""
    filesystem, root = _located(path)
    with _in_words(f"{path} cannot be read"):
        entries = filesystem.get_file_info(fs.FileSelector(f"{root}/{directory}", allow_not_found=True))
    names = [entry.base_name.removesuffix(ending) for entry in entries if entry.base_name.endswith(ending)]
    return sorted(name for name in names if name.isdigit())


def _read(path: str, name: str, kind: type[_T]) -> _T:
    filesystem, root = _located(path)
    try:
        content = read_file(filesystem, f"{root}/{name}")
        if name.endswith(".json"):
            return msgspec.json.decode(content, type=kind)
        return msgspec.msgpack.decode(unsealed(content), type=kind)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"the checkpoint at {path} is damaged: {name}: {str(error).splitlines()[0]}") from error


def _located(path: str) -> tuple[fs.FileSystem, str]:
    with _in_words(f"{path} cannot hold checkpoints"):
        filesystem, root = locate(path)
        return filesystem, root.rstrip("/")


@contextlib.contextmanager
def _in_words(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"{what}: {(str(error).splitlines() or [type(error).__name__])[0]}") from error
