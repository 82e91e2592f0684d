"""The layout of a checkpoint directory, and which of its files are valid.

    claims/<attempt>-<token>.json           claims on an attempt (see ``claims``)
    attempts/<attempt>.json                 the dataflow, the format, and the files with which the attempt began
    decisions/<n>-<attempt>.msgpack         changes, each written before its first fast control message is sent; deleted
                                            when both records have forgotten it
    sources/<name>-<attempt>.msgpack        the rows that each worker of a replay reads
    states/<epoch>-<attempt>/               snapshots of workers
    complete/<epoch>-<attempt>.json         the record that completes a checkpoint; the last two are kept
    staged/<attempt>/, sinks/<name>/        rows staged for hosts; contents of memory sinks

The newest attempt that began determines what is valid: the files that it lists, and those that it has written, which
have its number in their names. A late write of an older attempt is not read: it has another number, and is not listed.
Each file is written atomically and carries a seal.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from pyarrow import fs

from fries_nb.checkpoints import Checkpoint, CommittedChange
from fries_nb.errors import CheckpointError
from fries_nb.storage.claims import ATTEMPTS
from fries_nb.storage.durable import entries, read_file
from fries_nb.storage.flow_fingerprint import FORMAT, FlowFingerprint
from fries_nb.storage.locations import locate
from fries_nb.storage.seals import unsealed, verify
from fries_nb.storage.snapshot_files import STATES, seal_name

COMPLETE = "complete"
DECISIONS = "decisions"
SOURCES = "sources"
_ENTRY = re.compile(r"(.+)-(\d+)\.(?:json|msgpack)")
_VERIFYING = 8
"""Number of snapshots that are verified concurrently."""

_T = TypeVar("_T")


class _Format(msgspec.Struct, frozen=True):
    format: int


class RunAttempt(msgspec.Struct, frozen=True):
    """The state with which an attempt began; ``records`` (oldest first), ``decisions``, ``sources`` are file names."""

    format: int
    flow: FlowFingerprint
    records: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    sources: dict[str, str] = {}


@dataclass(frozen=True)
class Location:
    """A checkpoint directory on its file system, and the key that signs its files."""

    path: str
    filesystem: fs.FileSystem
    root: str
    key: bytes

    @staticmethod
    def of(path: str, key: bytes) -> Location:
        """The directory's location; raises a CheckpointError if there is no such file system."""
        with in_words(f"{path} cannot hold checkpoints"):
            filesystem, root = locate(path)
            return Location(path, filesystem, root.rstrip("/"), key)

    def names(self, directory: str) -> list[str]:
        """The names in a subdirectory, sorted; empty if there is no such subdirectory."""
        with in_words(f"{self.path} cannot be read"):
            return sorted(entry.base_name for entry in entries(self.filesystem, f"{self.root}/{directory}"))

    def has(self, name: str) -> bool:
        """Whether the file exists."""
        with in_words(f"{self.path} cannot be read"):
            found = self.filesystem.get_file_info(f"{self.root}/{name}").type
            return bool(found == fs.FileType.File)

    def read(self, name: str, kind: type[_T], run: str = "") -> _T:
        """Read and decode a file.

        Args:
            name: name of the file in the directory; ``.json`` files are JSON, others msgpack.
            kind: type of the content.
            run: id of the run, if it is part of the seal.

        Raises:
            CheckpointError: the file is missing or damaged, or is not signed with the key.
        """
        try:
            content = unsealed(read_file(self.filesystem, f"{self.root}/{name}"), seal_name(run, name), self.key)
            if name.endswith(".json"):
                return msgspec.json.decode(content, type=kind)
            return msgspec.msgpack.decode(content, type=kind)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise self.damaged(name, error) from error

    def verify(self, name: str, run: str) -> None:
        """Check the seal of a file of any size; raises a CheckpointError as ``read`` does."""
        try:
            verify(self.filesystem, f"{self.root}/{name}", seal_name(run, name), self.key)
        except (OSError, ValueError) as error:
            raise self.damaged(name, error) from error

    def damaged(self, name: str, error: Exception) -> CheckpointError:
        """The error for a damaged file."""
        return CheckpointError(f"the checkpoint at {self.path} is damaged: {name}: {first_line(error)}")


@dataclass(frozen=True)
class Contents:
    """The valid contents of a checkpoint directory: the newest attempt, and the names of its files, oldest first."""

    number: int
    flow: FlowFingerprint
    records: tuple[str, ...]
    decisions: tuple[str, ...]
    sources: dict[str, str]


def begun(at: Location) -> list[int]:
    """The numbers of the attempts that have begun."""
    return [int(name.removesuffix(".json")) for name in at.names(ATTEMPTS) if re.fullmatch(r"\d+\.json", name)]


def contents(at: Location) -> Contents | None:
    """The valid contents; ``None`` if no attempt has begun.

    Raises:
        CheckpointError: they are of another version of fries_nb, or damaged.
    """
    numbers = begun(at)
    if not numbers:
        if at.has("flow.json"):
            raise CheckpointError(_of_another_format(at.path, 1))
        return None
    number = max(numbers)
    file = attempt_file(number)
    if (version := at.read(file, _Format).format) != FORMAT:
        raise CheckpointError(_of_another_format(at.path, version))
    attempt = at.read(file, RunAttempt)
    return Contents(
        number,
        attempt.flow,
        (*attempt.records, *_numbered(at, COMPLETE, number)),
        (*attempt.decisions, *_numbered(at, DECISIONS, number)),
        attempt.sources | {name: f"{SOURCES}/{file}" for name, file in _own(at, SOURCES, number)},
    )


def expected(found: Contents | None, path: str) -> Contents:
    """The valid contents; raises a CheckpointError if there are none."""
    if found is None:
        raise CheckpointError(f"{path} holds no checkpoint; expected what flow.run(checkpoint=...) wrote there")
    return found


def decisions(at: Location, found: Contents, since: Checkpoint | None) -> dict[str, CommittedChange]:
    """The decisions by the names of their files, in order, without those that were forgotten and deleted.

    Args:
        at: the checkpoint directory.
        found: its valid contents.
        since: the checkpoint to start from, if there is one.

    Raises:
        CheckpointError: one that a restart needs is missing, or one is damaged.
    """
    there, last = set(at.names(DECISIONS)), since.decisions if since is not None else 0
    needed = [name for name in found.decisions if numbered(name) > last or name.rpartition("/")[2] in there]
    read = {name: at.read(name, CommittedChange, found.flow.run) for name in needed}
    known = {one.change for one in read.values()}
    if missing := sorted(set(since.decided if since is not None else ()) - known):
        raise CheckpointError(f"the checkpoint at {at.path} is damaged: the decision on change {missing[0]} has gone")
    return read


def newest(at: Location, found: Contents, thoroughly: bool) -> tuple[tuple[str, Checkpoint] | None, str]:
    """The newest intact checkpoint with its name, and the damage of the newest checkpoint, empty if that is intact.

    Args:
        at: the checkpoint directory.
        found: its valid contents.
        thoroughly: read all snapshots and check their seals; otherwise they only have to exist.

    Raises:
        CheckpointError: there are checkpoints, and none is intact; describes the damage of the newest.
    """
    wrong: CheckpointError | None = None
    for name in reversed(found.records):
        try:
            record = at.read(name, Checkpoint, found.flow.run)
            _check_snapshots(at, record, found.flow.run, thoroughly)
        except CheckpointError as error:
            wrong = wrong or error
        else:
            return (name, record), str(wrong or "")
    if wrong is not None:
        raise wrong
    return None, ""


def entry(directory: str, what: str, number: int, ending: str) -> str:
    """The name of a file of an attempt.

    Args:
        directory: the subdirectory.
        what: the subject of the file.
        number: number of the attempt.
        ending: suffix of the file.

    >>> entry("complete", "000007", 2, "json")
    'complete/000007-0002.json'
    """
    return f"{directory}/{what}-{number:04d}.{ending}"


def numbered(name: str) -> int:
    """The number of a record or a decision, from its name.

    >>> numbered("complete/000007-0002.json")
    7
    """
    return int(name.rpartition("/")[2].partition("-")[0])


def attempt_file(number: int) -> str:
    """The name of the file that records the beginning of an attempt."""
    return f"{ATTEMPTS}/{number:04d}.json"


def written_by(name: str) -> tuple[str, int] | None:
    """The subject of a file, and the number of the attempt that wrote it, from its name; ``None`` for a temporary file.

    >>> written_by("000007-0002.json"), written_by("000007-0002.json.draft")
    (('000007', 2), None)
    """
    found = _ENTRY.fullmatch(name)
    return (found[1], int(found[2])) if found is not None else None


def first_line(error: BaseException) -> str:
    """The first line of an error message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def in_words(what: str) -> Iterator[None]:
    """Turns errors of the file system into CheckpointErrors that name the failed operation."""
    try:
        yield
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"{what}: {first_line(error)}") from error


def _own(at: Location, directory: str, number: int) -> list[tuple[str, str]]:
    found = ((name, written_by(name)) for name in at.names(directory))
    return [(parsed[0], name) for name, parsed in found if parsed is not None and parsed[1] == number]


def _numbered(at: Location, directory: str, number: int) -> list[str]:
    """The numbered files that this attempt wrote, in the order of their numbers (1,000,000 after 999,999)."""
    found = [(int(what), name) for what, name in _own(at, directory, number) if what.isdigit()]
    return [f"{directory}/{name}" for _, name in sorted(found)]


def _check_snapshots(at: Location, record: Checkpoint, run: str, thoroughly: bool) -> None:
    names = [f"{STATES}/{name}" for name in dict.fromkeys(record.snapshots.values())]
    if not thoroughly:
        for name in names:
            if not at.has(name):
                raise CheckpointError(f"the checkpoint at {at.path} is damaged: {name} has gone")
        return
    with ThreadPoolExecutor(_VERIFYING, "fries-verify") as threads:
        for _ in threads.map(lambda name: at.verify(name, run), names):
            pass


def _of_another_format(path: str, version: int) -> str:
    return (
        f"{path} holds a checkpoint in format {version}; this fries_nb reads format {FORMAT}: "
        "likely another version of fries_nb wrote it"
    )
