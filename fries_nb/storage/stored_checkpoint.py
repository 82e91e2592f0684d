"""A stored checkpoint of another run: read without taking anything from that run, or copied for a fork.

The newest checkpoint in a directory, for reading only: nothing is claimed, written or deleted.

So the run that holds the directory goes on, and may delete what is being read: it keeps its last two checkpoints. While
the record is looked for, that is met by looking again; later, an error says that the checkpoint has been replaced.

Of files of snapshots, only the parts that are asked for are read. States are unpickled as a restored worker would do,
but with the definitions of this process: there is no function with which they came.

A checkpoint of one run, copied into the directory of another run that begins from it: a fork.

The run that holds the origin's directory keeps it: nothing there is claimed, written or deleted. So it may go on, and
replace what is being copied, since it keeps its last two checkpoints. It deletes the record of a checkpoint before
anything that the record needs. Hence the rule by which a copy that fails is judged:

    the record is still there     the checkpoint is damaged, and the one before it is taken, as by ``resume``
    the record has gone           newer ones are complete, and the newest of them is copied instead

After ``LOOKS`` copies that were overtaken, an error names the checkpoints. What has been copied is checked against the
digests of the origin, so a copy that succeeds is whole, whatever the origin has done meanwhile.

A fork is another run: all files are sealed anew, under its own id and key. It has its own sinks, into which nothing is
committed yet; so its first record, the copy, has the number 0, and lists no output. Of the decided changes it has those
of the record. Rows that are staged in the origin's directory are copied, too, since they go with the origin.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyarrow import fs

from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.traits import TRAITS, Holds
from fries_nb.errors import CheckpointError, OperatorError, PlaceHeldError
from fries_nb.operators.pickled_states import entries_of
from fries_nb.operators.shown_states import unpickled_each
from fries_nb.operators.timed_calls import TimeValues, time_values
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Restoration, Snapshot, in_effect
from fries_nb.storage.blob_files import resealed
from fries_nb.storage.checkpoint_store import (
    COMPLETE,
    DECISIONS,
    SINKS,
    STAGED,
    CheckpointStore,
    Contents,
    Location,
    check_empty,
    contents,
    decisions,
    entry,
    expected,
    going_on,
    in_words,
    newest,
    numbered,
    shape_refusal,
    written_by,
)
from fries_nb.storage.claims import Claims
from fries_nb.storage.durable import encoded, is_local, join, make_directory, sealed, write_file
from fries_nb.storage.flow_shape import FlowFingerprint, concerning, conflict, known
from fries_nb.storage.snapshot_files import (
    STATES,
    SnapshotReader,
    SnapshotStore,
    StoredSnapshot,
    blobs_of,
    seal_name,
)

LOOKS = 3
"""Number of times that a record is looked for, while a run may be replacing it."""
REGION = re.compile(r"region-\d+")
_T = TypeVar("_T")


class StoredWorker:
    """The snapshot of one worker of an operator, of which states are read bin by bin.

    Args:
        checkpoint: what it is part of.
        stored: where it is, and its parts are.

    Attributes:
        operator: name of the operator.
        index: index of the worker.
        bins: bin to the places of the parts of its states.
        bytes: the size of its pickled states, with what later parts of a bin have replaced.
    """

    def __init__(self, checkpoint: StoredCheckpoint, stored: StoredSnapshot) -> None:
        self.operator, self.index = stored.worker
        self.bins = stored.bins
        self.bytes = sum(part.length for parts in stored.bins.values() for part in parts)
        self._checkpoint, self._stored = checkpoint, stored

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot, without states and agenda; raises a CheckpointError if it is damaged."""
        with self._checkpoint.present():
            return self._checkpoint.reader.rest(self._stored)

    def states(self, bins: Iterable[int]) -> Iterator[tuple[int, dict[Any, Any]]]:
        """Read those of these bins that it has, one after the other: each with its states by key.

        Raises:
            CheckpointError: a bin is damaged, or holds something that this process does not know.
        """
        wanted = [bin for bin in bins if bin in self.bins]
        if not wanted:
            return
        times = _times(self.snapshot)
        for bin in wanted:
            with self._checkpoint.present():
                for _, parts in self._checkpoint.reader.parts(self._stored, [bin]):
                    yield bin, _states(self.operator, parts, times)

    def shown(self, time: int) -> Any:
        """A time in states of an operator with windows, as users see it: a ``datetime``, or the same number."""
        times = _times(self.snapshot)
        return time if times is None else times.shown(time)


class StoredCheckpoint:
    """A complete checkpoint of a region.

    Args:
        at: its directory.
        flow: the fingerprint of the dataflow, with all changes of its shape that were decided.
        name: the file of its record.
        record: the record.
        sources: the files with the splits of sources, by encoded name.

    Attributes:
        reader: reads its snapshots.
    """

    def __init__(
        self, at: Location, flow: FlowFingerprint, name: str, record: Checkpoint, sources: Mapping[str, str]
    ) -> None:
        self.flow = flow
        self._sources = sources
        self.record = record
        self._at = at
        self.name = name
        self.reader = SnapshotReader(SnapshotStore(at.path, flow.run, at.key))

    def operators(self) -> list[str]:
        """The operators of which it holds anything, in the order of the dataflow; removed ones last."""
        parked = {one.worker.operator for name in self.record.parked for one in self._snapshots(name)}
        held = {*self.record.workers, *(name.rpartition("[")[0] for name in self.record.snapshots), *parked}
        return [name for name in self.flow.operators if name in held]

    def workers(self, operator: str) -> list[StoredWorker]:
        """The snapshots of an operator's workers, in order of their indices; those that had ended have none."""
        pattern = re.compile(re.escape(operator) + r"\[\d+\]")
        names = [name for worker, name in self.record.snapshots.items() if pattern.fullmatch(worker)]
        files = dict.fromkeys(names or self.record.parked)
        found = [StoredWorker(self, one) for name in files for one in self._snapshots(name)]
        return sorted((one for one in found if one.operator == operator), key=attrgetter("index"))

    def ended(self, operator: str) -> list[int]:
        """The indices of an operator's workers that had ended before the checkpoint."""
        numbers = range(self.record.workers.get(operator, 0))
        return [index for index in numbers if f"{operator}[{index}]" in self.record.ended]

    def splits(self, source: str, kind: type[_T]) -> _T | None:
        """All splits of a source, as its run has planned them; ``None`` if they are not known."""
        file = self._sources.get(encoded(source))
        if file is None:
            return None
        with self.present():
            return self._at.read(file, kind, self.flow.run)

    @contextmanager
    def present(self) -> Iterator[None]:
        """A block that reads files, which the run may have deleted since the record was read."""
        try:
            yield
        except CheckpointError:
            if self._at.has(self.name) or not self._at.names(COMPLETE):
                raise
            raise CheckpointError(
                f"checkpoint {self.record.epoch} at {self._at.path} is not there any more, since its run has completed "
                f"newer ones; expected fn.checkpoint({self._at.path!r}) again"
            ) from None

    def _snapshots(self, name: str) -> tuple[StoredSnapshot, ...]:
        with self.present():
            return self.reader.snapshots(name)


def find_checkpoints(path: str, key: bytes) -> tuple[StoredCheckpoint, ...]:
    """The newest checkpoint in a directory: that of each region that has one.

    If the newest one is damaged, the one before it is taken, with a warning, as a run that is resumed does.

    Raises:
        CheckpointError: there is none, it is damaged, or not signed with the key.
    """
    at = Location.of(path, key)
    flow = again(lambda: expected(contents(at), path)).flow
    regions = sorted((name for name in at.names("") if REGION.fullmatch(name)), key=lambda name: int(name[7:]))
    places = [Location.of(join(path, region), key) for region in regions] or [at]
    looked = [_newest(place) for place in places]
    for _, wrong in looked:
        if wrong:
            warnings.warn(f"{wrong}; this is the checkpoint before it", RuntimeWarning, stacklevel=3)
    found = tuple(one for one, _ in looked if one is not None)
    if not found:
        raise CheckpointError(
            f"{path} holds a run of flow {flow.flow!r} that has not completed a checkpoint yet; expected one that has, "
            "as after run.checkpoint() or run.suspend()"
        )
    return found


def _newest(at: Location) -> tuple[StoredCheckpoint | None, str]:
    """The newest intact checkpoint of one region, ``None`` if there is none yet; and the damage of a newer one."""

    def look() -> tuple[StoredCheckpoint | None, str]:
        if (found := contents(at)) is None:
            return None, ""
        good, wrong = newest(at, found, thoroughly=False)
        return None if good is None else StoredCheckpoint(at, found.flow, *good, found.sources), wrong

    for _ in range(LOOKS):
        one, wrong = again(look)
        if not wrong:
            break
    return one, wrong


def again(look: Callable[[], _T]) -> _T:
    """What is found at once, or by looking again: a run may have replaced a file after it was listed."""
    for _ in range(LOOKS - 1):
        with suppress(CheckpointError):
            return look()
    return look()


def _states(operator: str, parts: Iterable[bytes], times: TimeValues | None) -> dict[Any, Any]:
    entries = [entry for part in parts for entry in entries_of(part)]
    try:
        keys = map(canonical_key, unpickled_each(operator, [key for key, _ in entries], times))
        last = dict(zip(keys, (state for _, state in entries), strict=True))
        held = {key: state for key, state in last.items() if state is not None}
        return dict(zip(held, unpickled_each(operator, held.values(), times), strict=True))
    except OperatorError as error:
        raise CheckpointError(str(error)) from error


def _times(rest: Snapshot) -> TimeValues | None:
    """How times of the operator's rows are shown; ``None`` as they are."""
    schema = pa.ipc.read_schema(pa.py_buffer(rest.came)) if rest.came else pa.schema([])
    return time_values(schema.field(TIME).type) if TIME in schema.names else None


_COPYING = 8
"""Number of files of snapshots that are copied concurrently."""
_TABLE = re.compile(rf"/{STAGED}/\d+/tables/[^/]+$")


@dataclass(frozen=True)
class ForkOrigin:
    """The checkpoint from which a run begins, and which stays with the run that has taken it."""

    path: str  # its directory
    key: bytes  # the key that signs it; ``NO_KEY`` for none
    record: str = ""  # the file of its record; empty for the newest checkpoint

    def flow(self) -> FlowFingerprint:
        """The fingerprint of the dataflow that runs there now.

        Raises:
            CheckpointError: there is none, or aggregates and sorts divide it.
        """
        at = Location.of(self.path, self.key)
        if any(REGION.fullmatch(name) for name in at.names("")):
            raise CheckpointError(
                f"{self.path} holds a checkpoint of a dataflow with aggregates or sorts, which is not forked in this "
                "version; expected a dataflow without"
            )
        return again(lambda: expected(contents(at), self.path)).flow


@dataclass(frozen=True)
class _Copied:
    """What has been copied, as it counts for the fork."""

    number: int  # that of the origin's attempt
    found: Contents
    record: Checkpoint
    made: dict[str, CommittedChange]  # file to decision


def fork_checkpoint(
    origin: ForkOrigin, declared: Graph, to: Location, graph: Graph, run: str, drop: Collection[str] = ()
) -> CheckpointStore:
    """Make an empty or new directory that of a run which begins from a checkpoint of another one.

    Args:
        origin: the checkpoint.
        declared: the dataflow, with the sinks of the origin.
        to: the directory, and the key that signs its files.
        graph: the same dataflow with the sinks of the fork.
        run: id of the fork.
        drop: the operators that the dataflow lacks, and whose state may be lost.

    Raises:
        CheckpointError: there is no such checkpoint, it is damaged or was replaced again and again, the dataflow cannot
            go on from it, or the directory is not empty or cannot be written. The directory is then empty.
    """
    if other := conflict(origin.flow(), declared):
        raise CheckpointError(f"{origin.path} holds a checkpoint {other}")
    check_empty(to, graph)
    claims = Claims(to.filesystem, to.root, to.path)
    with in_words(f"{to.path} cannot hold checkpoints"), contextlib.ExitStack() as undo:
        claims.acquire()
        undo.callback(claims.release)
        check_empty(to, graph)  # after the claim, since another run may have begun and ended before it
        undo.callback(_empty, to, claims)
        for directory in (STAGED, SINKS, DECISIONS):  # as for any run: its first decision is not to wait for them
            make_directory(to.filesystem, f"{to.root}/{directory}")
        copied, wrong = _copied(origin, to, run)
        then = copied.found.flow  # of the checkpoint, behind which the shape may have changed
        if why := conflict(then, declared) or shape_refusal(to, then, declared, copied.record, drop):
            raise CheckpointError(f"{origin.path} holds a checkpoint {why}")
        found = going_on(copied.found, graph, copied.record)
        decided = concerning(in_effect(copied.made.values(), copied.record), graph, found.flow.since)
        place = CheckpointStore(to, claims, found, copied.made, Restoration(copied.record, decided).begun_anew())
        place.begin(max(copied.number, claims.number) + 1)  # files of the origin's attempts are those of earlier ones
        undo.pop_all()
    if wrong:
        warnings.warn(f"{wrong}; the fork begins from the checkpoint before it", RuntimeWarning, stacklevel=2)
    return place


def _empty(to: Location, claims: Claims) -> None:
    """Empty the directory, unless another attempt holds it by now, as ``claims`` tells."""
    with contextlib.suppress(PlaceHeldError):
        claims.check()
        to.filesystem.delete_dir_contents(to.root)


def _copied(origin: ForkOrigin, to: Location, run: str) -> tuple[_Copied, str]:
    """Copy the newest intact checkpoint, or the one that is meant; and what is wrong with a newer one."""
    at, gone = Location.of(origin.path, origin.key), list[str]()
    while len(gone) < LOOKS:
        found = again(lambda: expected(contents(at), at.path))
        if not found.records:
            raise CheckpointError(
                f"{at.path} holds a run of flow {found.flow.flow!r} that has not completed a checkpoint yet; expected "
                "one that has, as after run.checkpoint() or run.suspend()"
            )
        wrong: CheckpointError | None = None
        for name in _candidates(at, found, origin):
            try:
                return _copy(at, found.number, name, to, run), str(wrong or "")
            except CheckpointError as error:
                if not at.has(name):
                    break
                wrong = wrong or error
        else:
            if wrong is not None:
                raise wrong
        gone.append(str(numbered(found.records[-1])))
        if to.names(STATES):
            to.filesystem.delete_dir(f"{to.root}/{STATES}")
    raise CheckpointError(
        f"checkpoints {', '.join(gone)} at {at.path} were replaced by newer ones, each before it was copied; expected "
        "a run that takes checkpoints less often, by a longer commit_interval_s=, or that is suspended"
    )


def _candidates(at: Location, found: Contents, origin: ForkOrigin) -> list[str]:
    """The records to try, newest first: all that exist, or the one that is meant."""
    if not origin.record:
        return [name for name in reversed(found.records) if at.has(name)]
    if not at.has(origin.record):
        raise CheckpointError(
            f"checkpoint {numbered(origin.record)} at {at.path} is not there any more, since its run has completed "
            f"newer ones; expected fn.checkpoint({at.path!r}) again, or the path, for the newest one"
        )
    return [origin.record]


def _copy(at: Location, number: int, name: str, to: Location, run: str) -> _Copied:
    """Copy one checkpoint; the copies count only when the attempt that lists them has begun."""
    found, record = _as_of(at, name)
    known_now = again(lambda: decisions(at, found, record))  # one that both records forget may go meanwhile
    made = {
        file: _with_tables(at, found.flow, one, to) for file, one in known_now.items() if one.change in record.decided
    }
    with ThreadPoolExecutor(_COPYING, "fries-copy") as threads:
        for _ in threads.map(lambda file: _copy_snapshots(at, found.flow.run, file, to, run), record.files):
            pass
    for file, decided in made.items():
        _write(to, run, file, msgspec.msgpack.encode(decided))
    for source, file in found.sources.items():
        plan = _with_staged(at, source, file, at.read(file, object, found.flow.run), to)
        _write(to, run, file, msgspec.msgpack.encode(plan))
    begun = msgspec.structs.replace(record, run=run, epoch=0, sinks={})
    copy = entry(COMPLETE, "000000", number, "json")
    _write(to, run, copy, msgspec.json.encode(begun))
    flow = msgspec.structs.replace(known(found.flow, record), run=run)
    return _Copied(number, replace(found, flow=flow, records=(copy,), decisions=tuple(made), targets={}), begun, made)


def _as_of(at: Location, name: str) -> tuple[Contents, Checkpoint]:
    """The contents of the origin as they were when it took a checkpoint, and the record of that."""

    def look() -> tuple[Contents, Checkpoint]:
        record = at.read(name, Checkpoint, expected(contents(at), at.path).flow.run)
        return expected(contents(at, record.decisions), at.path), record

    return again(look)


def _copy_snapshots(at: Location, origin_run: str, file: str, to: Location, run: str) -> None:
    name = f"{STATES}/{file}"
    names = seal_name(origin_run, name), seal_name(run, name)

    def pieces() -> Iterator[bytes]:  # what fails here is the origin's, and what fails around it the fork's
        try:
            with at.filesystem.open_input_stream(f"{at.root}/{name}") as stream:
                yield from resealed(stream, names, (at.key, to.key), blobs_of)
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise at.damaged(name, error) from error

    write_file(to.filesystem, f"{to.root}/{name}", pieces(), lasts=to.lasts)


_WITH_TABLES = frozenset(str(kind) for kind, traits in TRAITS.items() if traits.holds is Holds.TABLE)


def _with_staged(at: Location, source: str, file: str, plan: Any, to: Location) -> Any:
    """What is known of a source, whose rows are copied if they are staged in the directory of the origin."""
    written = written_by(file.rpartition("/")[2])
    assert written is not None, "it was found by its name"
    number = written[0].rpartition(".")[2] if "." in written[0] else ""  # that of a source which a change has added
    staged = "/".join(filter(None, (STAGED, f"{written[1]:04d}", number, source)))
    return _moved(plan, f"/{staged}/", _root(to)) if _copy_staged(at, staged, to) else plan


def _with_tables(at: Location, flow: FlowFingerprint, decided: CommittedChange, to: Location) -> CommittedChange:
    """The change with its new tables of joins, which are copied if they are staged in the directory of the origin."""
    payloads = dict(decided.payloads)
    for name, payload in decided.payloads.items():
        if flow.operators.get(name, "").partition(" ")[0] not in _WITH_TABLES:
            continue
        update = pickle.loads(payload)
        staged = _TABLE.search(update.function.data)
        if staged is not None and _copy_staged(at, staged[0].strip("/"), to):
            update.function.data = f"{_root(to)}{staged[0]}"
            payloads[name] = pickle.dumps(update)
    return msgspec.structs.replace(decided, payloads=payloads)


def _copy_staged(at: Location, staged: str, to: Location) -> bool:
    """Copy a directory of staged rows; whether the origin has it."""
    with in_words(f"rows that are staged at {at.path} cannot be copied to {to.path}"):
        if at.filesystem.get_file_info(f"{at.root}/{staged}").type != fs.FileType.Directory:
            return False
        make_directory(to.filesystem, f"{to.root}/{staged}")
        fs.copy_files(
            f"{at.root}/{staged}", f"{to.root}/{staged}", source_filesystem=at.filesystem,
            destination_filesystem=to.filesystem,
        )  # fmt: skip
        return True


def _root(to: Location) -> str:
    return to.root if is_local(to.path) else to.path.rstrip("/")


def _moved(plan: Any, staged: str, to: str) -> Any:
    """A value in which files below a directory are those of the same names in another place.

    >>> _moved([{"file": "/a/staged/0001/S/part-0", "rows": 3}, "/a/b"], "/staged/0001/S/", "/c")
    [{'file': '/c/staged/0001/S/part-0', 'rows': 3}, '/a/b']
    """
    if isinstance(plan, str):
        _, is_below, name = plan.rpartition(staged)
        return f"{to}{staged}{name}" if is_below else plan
    if isinstance(plan, dict):
        return {name: _moved(value, staged, to) for name, value in plan.items()}
    return [_moved(value, staged, to) for value in plan] if isinstance(plan, list) else plan


def _write(to: Location, run: str, name: str, content: bytes) -> None:
    write_file(to.filesystem, f"{to.root}/{name}", sealed(content, seal_name(run, name), to.key), lasts=to.lasts)
