"""A checkpoint of one run, copied into the directory of another run that begins from it: a fork.

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
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from pyarrow import fs

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.traits import TRAITS, Holds
from fries_nb.errors import CheckpointError, PlaceHeldError
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, Restoration, in_effect
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
    numbered,
    shape_refusal,
    written_by,
)
from fries_nb.storage.claims import Claims
from fries_nb.storage.durable import is_local, make_directory, sealed, write_file
from fries_nb.storage.flow_shape import FlowFingerprint, concerning, conflict, known
from fries_nb.storage.snapshot_files import STATES, blobs_of, seal_name
from fries_nb.storage.stored_checkpoint import LOOKS, REGION, again

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
        place = CheckpointStore(to, claims, found, copied.made, Restoration(copied.record, decided))
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
    files = dict.fromkeys((*record.snapshots.values(), *record.parked))
    with ThreadPoolExecutor(_COPYING, "fries-copy") as threads:
        for _ in threads.map(lambda file: _copy_snapshots(at, found.flow.run, file, to, run), files):
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
    staged = f"{STAGED}/{written[1]:04d}/{source}"
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
