"""The checkpoint store of a run, in a directory whose layout is described in ``checkpoint_contents``.

The directory is a local path or a URI that the driver and all hosts reach, and is held by one attempt of a run at a
time (see ``claims``). Whatever failure occurs, the newest intact record is the checkpoint.

An attempt checks for a newer one after each of its writes, and a newer one reads the contents after its claim. So if an
old and a new driver run concurrently, at least one of them notices in time: either the old one's write is valid and the
new one resumes from it, or the old one learns of the new one before it relies on its write.

The layout of a checkpoint directory, and which of its files are valid.

    claims/<attempt>-<token>.json           claims on an attempt (see ``claims``)
    attempts/<attempt>.json                 the dataflow, the format, and the files with which the attempt began
    decisions/<n>-<attempt>.msgpack         changes, each written before its first fast control message is sent; deleted
                                            when both records have forgotten it
    sources/<name>-<attempt>.msgpack        the rows that each worker of a replay reads
    targets/<name>-<attempt>.msgpack        the sinks, pickled: what to commit to, if a later dataflow lacks one
    states/<epoch>-<attempt>/               snapshots of workers, which also name parts of earlier ones
    complete/<epoch>-<attempt>.json         the record that completes a checkpoint; the last two are kept
    staged/<attempt>/, sinks/<name>/        rows staged for hosts; contents of memory sinks

The newest attempt that began determines what is valid: the files that it lists, and those that it has written, which
have its number in their names. A late write of an older attempt is not read: it has another number, and is not listed.
Each file is written atomically and carries a seal.
"""

from __future__ import annotations

import contextlib
import errno
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from pyarrow import fs

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Restoration, in_effect
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage.blob_files import Blob, verify_blobs
from fries_nb.storage.claims import ATTEMPTS, CLAIMS, Claims
from fries_nb.storage.durable import (
    NO_KEY,
    encoded,
    entries,
    locate,
    make_directory,
    read_file,
    sealed,
    unsealed,
    write_file,
)
from fries_nb.storage.flow_shape import (
    FORMAT,
    FlowFingerprint,
    concerning,
    conflict,
    flow_of,
    followed_by,
    known,
    next_flow,
    refused,
    shape_of,
)
from fries_nb.storage.snapshot_files import (
    STATES,
    SnapshotStore,
    blobs_of,
    earlier_of,
    indexed_as,
    read_snapshots,
    seal_name,
)
from fries_nb.storage.stored_parts import IndexedFile, forgotten_files, is_past

COMPLETE = "complete"
DECISIONS = "decisions"
SOURCES = "sources"
TARGETS = "targets"
_ENTRY = re.compile(r"(.+)-(\d+)\.(?:json|msgpack)")
_VERIFYING = 8
"""Number of snapshots that are verified concurrently."""

_T = TypeVar("_T")


class _Format(msgspec.Struct, frozen=True):
    format: int


class RunAttempt(msgspec.Struct, frozen=True):
    """The state with which an attempt began; what follows ``flow`` are names of files, ``records`` oldest first."""

    format: int
    flow: FlowFingerprint
    records: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    sources: dict[str, str] = {}
    targets: dict[str, str] = {}


@dataclass(frozen=True)
class Location:
    """A checkpoint directory on its file system, and the key that signs its files."""

    path: str
    filesystem: fs.FileSystem
    root: str
    key: bytes
    lasts: bool = True  # whether its files are to survive the machine

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
        """Read and decode a file."""
        try:
            content = unsealed(read_file(self.filesystem, f"{self.root}/{name}"), seal_name(run, name), self.key)
            if name.endswith(".json"):
                return msgspec.json.decode(content, type=kind)
            return msgspec.msgpack.decode(content, type=kind)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise self.damaged(name, error) from error

    def read_bytes(self, name: str, run: str) -> bytes:
        """Read a file that is not encoded."""
        try:
            return unsealed(read_file(self.filesystem, f"{self.root}/{name}"), seal_name(run, name), self.key)
        except (OSError, ValueError) as error:
            raise self.damaged(name, error) from error

    def verify(self, file: str, run: str) -> tuple[IndexedFile, tuple[IndexedFile, ...]]:
        """Check all of a file of snapshots, of any size; raises a CheckpointError as ``read`` does.

        Returns:
            The file, and the earlier ones that it needs, which are not checked.
        """
        name, found = f"{STATES}/{file}", list[bytes]()

        def listed(index: bytes) -> Sequence[Blob]:
            found.append(index)
            return blobs_of(index)

        try:
            with self.filesystem.open_input_stream(f"{self.root}/{name}") as stream:
                verify_blobs(stream, seal_name(run, name), self.key, listed)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise self.damaged(name, error) from error
        return indexed_as(file, found[0]), earlier_of(found[0])

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
    targets: dict[str, str]


def _behind(flow: FlowFingerprint, decided: CommittedChange) -> FlowFingerprint:
    """The dataflow after a decision."""
    if not decided.shape:
        return flow
    # What it has given to the operators that it adds concerns these, and nothing earlier does.
    return followed_by(flow, msgspec.msgpack.decode(decided.shape, type=FlowFingerprint), decided.number - 1)


def begun(at: Location) -> list[int]:
    """The numbers of the attempts that have begun."""
    return [int(name.removesuffix(".json")) for name in at.names(ATTEMPTS) if re.fullmatch(r"\d+\.json", name)]


def contents(at: Location, until: int | None = None) -> Contents | None:
    """The valid contents; ``None`` if no attempt has begun.

    The dataflow is that behind all decisions, or behind those up to a number, of the ones that the attempt has made.
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
    flow = attempt.flow
    later = [name for name in _numbered(at, DECISIONS, number) if name not in attempt.decisions]
    for name in later if until is None else [one for one in later if numbered(one) <= until]:
        flow = _behind(flow, at.read(name, CommittedChange, flow.run))
    return Contents(
        number,
        flow,
        tuple(dict.fromkeys((*attempt.records, *_numbered(at, COMPLETE, number)))),
        (*attempt.decisions, *later),
        attempt.sources | _plans(at, number) | {encoded(name): file for name, file in flow.plans.items()},
        attempt.targets | {name: f"{TARGETS}/{file}" for name, file in _own(at, TARGETS, number)},
    )


def expected(found: Contents | None, path: str) -> Contents:
    """The valid contents; raises a CheckpointError if there are none."""
    if found is None:
        raise CheckpointError(f"{path} holds no checkpoint; expected what flow.run(checkpoint=...) wrote there")
    return found


def decisions(at: Location, found: Contents, since: Checkpoint | None) -> dict[str, CommittedChange]:
    """The decisions by the names of their files, in order, without those that were forgotten and deleted."""
    there, last = set(at.names(DECISIONS)), since.decisions if since is not None else 0
    needed = [name for name in found.decisions if numbered(name) > last or name.rpartition("/")[2] in there]
    read = {name: at.read(name, CommittedChange, found.flow.run) for name in needed}
    known = {decision.change for decision in read.values()}
    if missing := sorted(set(since.decided if since is not None else ()) - known):
        raise CheckpointError(f"the checkpoint at {at.path} is damaged: the decision on change {missing[0]} has gone")
    return read


def newest(at: Location, found: Contents, thoroughly: bool) -> tuple[tuple[str, Checkpoint] | None, str]:
    """The newest intact checkpoint with its name, and the damage of the newest checkpoint, empty if that is intact."""
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


def _plans(at: Location, number: int) -> dict[str, str]:
    """The sources with which this attempt began, by encoded name, and their files; those of changes decisions name."""
    return {name: f"{SOURCES}/{file}" for name, file in _own(at, SOURCES, number) if "." not in name}


def _numbered(at: Location, directory: str, number: int) -> list[str]:
    """The numbered files that this attempt wrote, in the order of their numbers (1,000,000 after 999,999)."""
    found = [(int(what), name) for what, name in _own(at, directory, number) if what.isdigit()]
    return [f"{directory}/{name}" for _, name in sorted(found)]


def _check_snapshots(at: Location, record: Checkpoint, run: str, thoroughly: bool) -> None:
    if not thoroughly:
        for name in record.files:
            if not at.has(f"{STATES}/{name}"):
                raise CheckpointError(f"the checkpoint at {at.path} is damaged: {STATES}/{name} has gone")
        return
    with ThreadPoolExecutor(_VERIFYING, "fries-verify") as threads:
        checked = list(threads.map(lambda name: at.verify(name, run), record.files))
    known, own = {file.name: file for file, _ in checked}, {*record.snapshots.values(), *record.parked}
    for file, earlier in checked:
        # What an earlier file has needed itself may have gone.
        if file.name in own and (others := [one.name for one in earlier if known.get(one.name) != one]):
            error = ValueError(f"it is not the file that {STATES}/{file.name} names")
            raise at.damaged(f"{STATES}/{others[0]}", error)


def _of_another_format(path: str, version: int) -> str:
    return (
        f"{path} holds a checkpoint in format {version}; this fries_nb reads format {FORMAT}: "
        "likely another version of fries_nb wrote it"
    )


KEPT = 2
STAGED = "staged"
SINKS = "sinks"


class CheckpointStore:
    """A checkpoint directory held by one attempt of a run; made by ``claim`` or ``resume``, left by ``release``."""

    def __init__(
        self, at: Location, claims: Claims, found: Contents, made: Mapping[str, CommittedChange], since: Restoration
    ) -> None:
        self.path = at.path  # the directory
        self.key = at.key  # signs the files; ``NO_KEY`` for none
        self.flow = found.flow  # the dataflow's fingerprint
        self.incarnation = claims.number  # incarnation of the attempt that holds the directory
        self.restoration = since  # the state from which the run continues
        self._at = at
        self._claims = claims
        self._records = _readable(at, found)
        self._decisions = {name: decision.concerns for name, decision in made.items()}
        self._sources = dict(found.sources)
        self._targets = dict(found.targets)
        then = since.checkpoint.decisions if since.checkpoint is not None else 0
        self._last_decision = max([then, *(numbered(name) for name in found.decisions)])
        self._doubtful: set[str] = set()
        self._stored: dict[str, set[str]] = {}  # directory of past snapshots to its files
        self._unwritten: dict[str, bytes] = {}  # file to its content, which has to last from the next record on
        self._shapes: set[str] = set()  # decisions by which the dataflow is another one than that of the attempt's file

    @classmethod
    def claim(
        cls, path: str, graph: Graph, run: str, key: bytes = NO_KEY, lasts: bool = True
    ) -> CheckpointStore:  # fmt: skip
        """Make an empty or new directory the checkpoint directory of a run.

        Args:
            path: the directory.
            graph: the dataflow.
            run: id of the run.
            key: the key that signs its files.
            lasts: whether it is to survive its driver; what does not is not flushed to the disk, for which all wait.

        Raises:
            CheckpointError: the directory is not empty, or cannot be written.
        """
        at = replace(Location.of(path, key), lasts=lasts)
        check_empty(at, graph)
        claims = Claims(at.filesystem, at.root, path)
        with in_words(f"{path} cannot hold checkpoints"), contextlib.ExitStack() as undo:
            claims.acquire()
            undo.callback(claims.release)
            check_empty(at, graph)  # after the claim, since another run may have begun and ended before it
            for directory in (STAGED, SINKS, DECISIONS):  # the first decision is not to wait for the last one
                make_directory(at.filesystem, f"{at.root}/{directory}")
            empty = Contents(claims.number, flow_of(graph, run), (), (), {}, {})
            place = cls(at, claims, empty, {}, Restoration(None))
            place._begin()
            undo.pop_all()
        return place

    @classmethod
    def resume(cls, path: str, graph: Graph, key: bytes = NO_KEY, drop: Collection[str] = ()) -> CheckpointStore:
        """Take over the directory of a run that has ended or died, as the next attempt.

        If the newest checkpoint is damaged the run continues from the one before it, with a warning. The dataflow may
        have another shape than the one that wrote it: see ``flow_shape``.

        Args:
            path: the directory.
            graph: the dataflow that is to go on.
            key: the key that signs its files.
            drop: the removed operators whose state may be lost.

        Raises:
            CheckpointError: the dataflow cannot go on from there, or the directory is damaged or cannot be written.
        """
        at = Location.of(path, key)
        if other := conflict(expected(contents(at), path).flow, graph):
            raise CheckpointError(f"{path} holds a checkpoint {other}")
        claims = Claims(at.filesystem, at.root, path)
        with in_words(f"{path} cannot be written"), contextlib.ExitStack() as undo:
            claims.acquire()
            undo.callback(claims.release)
            found = expected(contents(at), path)  # after the claim: later writes of the old attempt are not valid
            good, wrong = newest(at, found, thoroughly=True)
            last = numbered(found.records[-1]) if found.records else 0
            if good is not None and wrong:
                found = replace(found, records=found.records[: found.records.index(good[0]) + 1])
            since = good[1] if good is not None else None
            found = replace(found, flow=known(found.flow, since))
            if why := shape_refusal(at, found.flow, graph, since, drop):
                raise CheckpointError(f"{path} holds a checkpoint {why}")
            made = decisions(at, found, since)
            found = going_on(found, graph, since)  # numbers of workers may have changed, too
            decided = concerning(in_effect(made.values(), since), graph, found.flow.since)
            place = cls(at, claims, found, made, Restoration(since, decided, last_epoch=last).begun_anew())
            place._begin()
            undo.pop_all()
        if wrong:
            warnings.warn(f"{wrong}; the run goes on from the checkpoint before it", RuntimeWarning, stacklevel=2)
        return place

    @staticmethod
    def load(path: str, key: bytes = NO_KEY) -> tuple[FlowFingerprint, Restoration]:
        """The dataflow's fingerprint, and the state to continue from; does not take over the directory."""
        at = Location.of(path, key)
        found = expected(contents(at), path)
        good, _ = newest(at, found, thoroughly=False)
        since = good[1] if good is not None else None
        made = in_effect(decisions(at, found, since).values(), since)
        return found.flow, Restoration(since, concerning(made, found.flow.operators, found.flow.since))

    @staticmethod
    def is_there(path: str) -> bool:
        """Whether a run has begun in the directory; raises a CheckpointError if it cannot be read."""
        return bool(begun(Location.of(path, NO_KEY)))

    @property
    def staging(self) -> str:
        """The directory in which this attempt stages rows for hosts; kept as long as decisions refer to them."""
        return f"{self.path.rstrip('/')}/{STAGED}/{self.incarnation:04d}"

    @property
    def is_own(self) -> bool:
        """Whether no newer attempt has taken over the directory, as far as is known."""
        try:
            with in_words(f"{self.path} cannot be read"):
                self._claims.check()
        except CheckpointError:
            return False
        return True

    @property
    def doubtful(self) -> frozenset[str]:
        """Files of sinks that are listed in records which may exist although writing them failed."""
        return frozenset(self._doubtful)

    def withdraw(self) -> None:
        """Empty the directory, as ``claim`` found it, unless another attempt holds it."""
        with in_words(f"{self.path} cannot be emptied"):
            self._at.filesystem.delete_file(f"{self._at.root}/{attempt_file(self.incarnation)}")
            if self.is_own:  # later contenders then find no attempt that has begun
                self._at.filesystem.delete_dir_contents(self._at.root)
            self._claims.release()

    def release(self) -> None:
        """Record that the run has ended, so that others can take over without checking its process."""
        with in_words(f"{self.path} cannot be released"):
            self._claims.release()

    def begin(self, incarnation: int) -> None:
        """Begin a new attempt of this run; earlier attempts can no longer write."""
        with in_words(f"{self.path} cannot be written"):
            self._claims.advance(incarnation)
            self.incarnation = incarnation
            self._begin()

    def decide(self, decided: CommittedChange) -> None:
        """Store the decision of a change, durably."""
        self._last_decision = decided.number or self._last_decision + 1
        journaled = msgspec.structs.replace(decided, number=self._last_decision)
        name = entry(DECISIONS, f"{self._last_decision:06d}", self.incarnation, "msgpack")
        self._write(name, msgspec.msgpack.encode(journaled))
        self._decisions[name] = decided.concerns
        if decided.shape:
            self.flow = _behind(self.flow, journaled)
            self._sources |= {encoded(name): file for name, file in self.flow.plans.items()}
            self._shapes.add(name)

    def keep(self, record: Checkpoint) -> None:
        """Store the record that completes a checkpoint, durably."""
        name = entry(COMPLETE, f"{record.epoch:06d}", self.incarnation, "json")
        try:
            self._flush()
            self._write(name, msgspec.json.encode(record))
        except CheckpointError:
            self._doubtful.update(file for files in record.sinks.values() for file in files)
            raise
        self._doubtful.clear()  # this record has the files of all that could not be written
        self._records[name] = record

    def tidy(self) -> None:
        """Delete checkpoints before the last two, incomplete ones, and decisions that both have forgotten."""
        # Files of newer attempts are kept, so a late call by an old driver is harmless.
        with in_words(f"old checkpoints at {self.path} cannot be deleted"):
            self._forget_records()
            self._forget_states()
            self._forget_decisions()
            for number in begun(self._at):
                if number < self.incarnation - 1:  # a contender may be reading that of the previous attempt
                    self._delete(attempt_file(number))
            self._claims.forget_older()

    def keep_source(self, name: str, plan: Any, number: int | None = None) -> None:
        """Store which rows the workers of a source read.

        That of a source which a change is to add has a number, never given before in this attempt: a removed source of
        its name had another plan, which counts until the change is decided (``FlowFingerprint.plans``).
        """
        file = self._plan_file(name, number)
        self._write(file, msgspec.msgpack.encode(plan))
        if number is None:
            self._sources[encoded(name)] = file

    def plans(self, sources: Iterable[str], numbers: Mapping[str, int]) -> dict[str, str]:
        """The files with the splits of sources: of those that a change adds, by their numbers, else the ones of now."""
        return {
            name: self._plan_file(name, numbers[name]) if name in numbers else self._sources[encoded(name)]
            for name in sources
        }

    def _plan_file(self, name: str, number: int | None) -> str:
        which = encoded(name) if number is None else f"{encoded(name)}.{number}"
        return entry(SOURCES, which, self.incarnation, "msgpack")

    def source(self, name: str, kind: type[_T]) -> _T | None:
        """The value stored for the source; ``None`` if there is none."""
        file = self._sources.get(encoded(name))
        return None if file is None else self._at.read(file, kind, self.flow.run)

    def keep_target(self, name: str, sink: bytes) -> None:
        """Store a sink, pickled; its output is completed by it if a later dataflow lacks the sink.

        Nothing is owed to it before the next record, in front of which it is written: no change of the shape waits for
        the disk.
        """
        file = entry(TARGETS, encoded(name), self.incarnation, "msgpack")
        self._unwritten[file] = sink
        self._targets[encoded(name)] = file

    def target(self, name: str) -> bytes | None:
        """The sink that was stored by this name, pickled; ``None`` if there is none."""
        file = self._targets.get(encoded(name))
        if file is None or file in self._unwritten:
            return self._unwritten.get(file or "")
        return self._at.read_bytes(file, self.flow.run)

    def _begin(self) -> None:
        """Record the state with which the attempt begins; from then on that, and its later writes, are valid."""
        self._flush()
        begun = RunAttempt(
            FORMAT, self.flow, tuple(self._records), tuple(self._decisions), self._sources, self._targets
        )
        name = attempt_file(self.incarnation)
        self._write_sealed(name, sealed(msgspec.json.encode(begun), name, self.key))
        self._shapes.clear()

    def _write(self, name: str, content: bytes) -> None:
        self._write_sealed(name, sealed(content, seal_name(self.flow.run, name), self.key))

    def _write_sealed(self, name: str, content: bytes) -> None:
        with in_words(f"{self.path} cannot be written"):
            write_file(self._at.filesystem, f"{self._at.root}/{name}", content, lasts=self._at.lasts)
            self._claims.check()

    def _flush(self) -> None:
        """Write what has waited for the next record, or the next attempt."""
        for name, content in tuple(self._unwritten.items()):  # the thread of a user may add to it meanwhile
            self._write(name, content)
            if self._unwritten[name] is content:
                del self._unwritten[name]

    def _delete(self, name: str) -> None:
        self._forget(self._at.filesystem.delete_file, name)

    def _forget(self, delete: Callable[[str], None], name: str) -> None:
        """Delete a file or directory of the past, as far as others leave that possible."""
        try:
            delete(f"{self._at.root}/{name}")
        except OSError as error:
            # The snapshot of a checkpoint that was given up may be written late, by a host that was busy: what it adds
            # while its directory is deleted goes with the next checkpoint. And two drivers may delete the same.
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise

    def _forget_records(self) -> None:
        kept = dict(list(self._records.items())[-KEPT:])
        for name in self._at.names(COMPLETE):
            written = written_by(name)
            if written is None or f"{COMPLETE}/{name}" in kept:
                continue
            if f"{COMPLETE}/{name}" in self._records or written[1] < self.incarnation:
                self._delete(f"{COMPLETE}/{name}")
        self._records = kept

    def _forget_decisions(self) -> None:
        records = self._records.values()
        gone = [
            name
            for name, change in self._decisions.items()
            if records and all(record.has_forgotten(change, numbered(name)) for record in records)
        ]
        if self._shapes.intersection(gone):  # the decision is forgotten before the attempt ends, its dataflow is not
            self._begin()
        for name in gone:
            self._delete(name)
            del self._decisions[name]

    def _forget_states(self) -> None:
        """Delete files of snapshots as ``forgotten_files`` says, while hosts may be writing the next ones."""
        records = [*self._records.values()]
        there = [name for name in self._at.names(STATES) if is_past(name, records, self.incarnation)]
        for directory in there:  # each is listed once, since nothing of importance is added to it any more
            if directory not in self._stored:
                self._stored[directory] = {f"{directory}/{file}" for file in self._at.names(f"{STATES}/{directory}")}
        self._stored = {name: self._stored[name] for name in there}
        for directory, files in self._stored.items():
            gone = forgotten_files(files, records, self.incarnation)
            if len(gone) == len(files):
                self._forget(self._at.filesystem.delete_dir, f"{STATES}/{directory}")
                continue
            for file in gone:
                self._delete(f"{STATES}/{file}")
            files.difference_update(gone)


def shape_refusal(
    at: Location, flow: FlowFingerprint, graph: Graph, since: Checkpoint | None, drop: Collection[str]
) -> str:
    """Why a dataflow of another shape cannot go on from a checkpoint, as the end of a sentence; empty if it can."""
    removed = {} if since is None else {name: since.workers.get(name, 0) for name in shape_of(flow, graph).removed}
    workers = [WorkerId(name, index) for name, count in removed.items() for index in range(count)]
    held = read_snapshots(SnapshotStore(at.path, flow.run, at.key), since, workers)
    with_state = {worker.operator for worker, one in held.items() if one.bins or one.agenda or one.tokens}
    why = refused(flow, graph, since, with_state, drop)
    return f"of flow {flow.flow!r} in another shape: {why}" if why else ""


def going_on(found: Contents, graph: Graph, since: Checkpoint | None) -> Contents:
    """The contents as they count for the dataflow that goes on from them, which may have another shape."""
    # Others begin anew, whatever has had their names.
    kept = {encoded(name) for name in graph if name in found.flow.operators}
    owed = {encoded(name) for name in (since.sinks if since else ())}
    last = max([since.decisions if since is not None else 0, *map(numbered, found.decisions)])
    return replace(
        found,
        flow=next_flow(found.flow, graph, since, last),
        sources={name: file for name, file in found.sources.items() if name in kept},
        targets={name: file for name, file in found.targets.items() if name in kept or name in owed},
    )


def _readable(at: Location, found: Contents) -> dict[str, Checkpoint]:
    """The last records by name, oldest first, without damaged ones."""
    records = {}
    for name in found.records[-KEPT:]:
        with contextlib.suppress(CheckpointError):
            records[name] = at.read(name, Checkpoint, found.flow.run)
    return records


def check_empty(at: Location, graph: Graph) -> None:
    """Raise a CheckpointError unless there are only claims, which failed attempts leave behind."""
    with in_words(f"{at.path} cannot hold checkpoints"):
        kind = at.filesystem.get_file_info(at.root).type
    if kind == fs.FileType.File:
        raise CheckpointError(f"{at.path} is a file; expected a directory, or a path where none is yet")
    if (found := contents(at)) is not None:
        if other := conflict(found.flow, graph):
            raise CheckpointError(f"{at.path} holds a checkpoint {other}; use another path")
        raise CheckpointError(
            f"{at.path} holds a run of flow {found.flow.flow!r} already; "
            f"go on with it by flow.resume({at.path!r}), or use another path"
        )
    if set(at.names("")) - {CLAIMS, ATTEMPTS, STAGED, SINKS, DECISIONS}:
        raise CheckpointError(f"{at.path} holds files that are no checkpoint; use an empty directory or a new one")
