"""The newest checkpoint in a directory, for reading only: nothing is claimed, written or deleted.

So the run that holds the directory goes on, and may delete what is being read: it keeps its last two checkpoints. While
the record is looked for, that is met by looking again; later, an error says that the checkpoint has been replaced.

Of files of snapshots, only the parts that are asked for are read. States are unpickled as a restored worker would do,
but with the definitions of this process: there is no function with which they came.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import TIME
from fries_nb.dataflow.keys import canonical_key
from fries_nb.errors import CheckpointError, OperatorError
from fries_nb.operators.shown_states import unpickled
from fries_nb.operators.timed_calls import TimeValues, time_values
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.storage.checkpoint_store import COMPLETE, Location, contents, expected, newest
from fries_nb.storage.durable import encoded, join
from fries_nb.storage.flow_shape import FlowFingerprint
from fries_nb.storage.snapshot_files import SnapshotFile, SnapshotStore, StoredSnapshot

LOOKS = 3
"""Number of times that a record is looked for, while a run may be replacing it."""
REGION = re.compile(r"region-\d+")
_T = TypeVar("_T")


class StoredWorker:
    """The snapshot of one worker of an operator, of which states are read bin by bin.

    Args:
        checkpoint: what it is part of.
        file: the file that has it.
        stored: where it is there.

    Attributes:
        operator: name of the operator.
        index: index of the worker.
        bins: bin to the place of its states.
        bytes: the size of its pickled states.
    """

    def __init__(self, checkpoint: StoredCheckpoint, file: SnapshotFile, stored: StoredSnapshot) -> None:
        self.operator, self.index = stored.worker
        self.bins = stored.bins
        self.bytes = sum(place.blob.length for place in stored.bins.values())
        self._checkpoint, self._file, self._stored = checkpoint, file, stored

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot, without states and agenda; raises a CheckpointError if it is damaged."""
        with self._checkpoint.present():
            return self._file.rest(self._stored)

    def states(self, bins: Iterable[int]) -> Iterator[tuple[int, dict[Any, Any]]]:
        """Read those of these bins that it has, one after the other: each with its states by key.

        Raises:
            CheckpointError: a bin is damaged, or holds something that this process does not know.
        """
        places = {bin: self.bins[bin] for bin in bins if bin in self.bins}
        if not places:
            return
        times = _times(self.snapshot)
        with self._checkpoint.present():
            for bin, pickled in self._file.parts(places):
                yield bin, _states(self.operator, pickled, times)

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
    """

    def __init__(
        self, at: Location, flow: FlowFingerprint, name: str, record: Checkpoint, sources: Mapping[str, str]
    ) -> None:
        self.flow = flow
        self._sources = sources
        self.record = record
        self._at = at
        self.name = name
        self._files: dict[str, SnapshotFile] = {}

    def operators(self) -> list[str]:
        """The operators of which it holds anything, in the order of the dataflow; removed ones last."""
        parked = {one.worker.operator for name in self.record.parked for one in self._file(name).snapshots}
        held = {*self.record.workers, *(name.rpartition("[")[0] for name in self.record.snapshots), *parked}
        return [name for name in self.flow.operators if name in held]

    def workers(self, operator: str) -> list[StoredWorker]:
        """The snapshots of an operator's workers, in order of their indices; those that had ended have none."""
        pattern = re.compile(re.escape(operator) + r"\[\d+\]")
        names = [name for worker, name in self.record.snapshots.items() if pattern.fullmatch(worker)]
        files = [self._file(name) for name in dict.fromkeys(names or self.record.parked)]
        found = [StoredWorker(self, file, one) for file in files for one in file.snapshots]
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

    def _file(self, name: str) -> SnapshotFile:
        if name not in self._files:
            with self.present():
                self._files[name] = SnapshotFile(SnapshotStore(self._at.path, self.flow.run, self._at.key), name)
        return self._files[name]


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


def _states(operator: str, pickled: bytes, times: TimeValues | None) -> dict[Any, Any]:
    try:
        return {canonical_key(key): state for key, state in unpickled(operator, pickled, times).items()}
    except OperatorError as error:
        raise CheckpointError(str(error)) from error


def _times(rest: Snapshot) -> TimeValues | None:
    """How times of the operator's rows are shown; ``None`` as they are."""
    schema = pa.ipc.read_schema(pa.py_buffer(rest.came)) if rest.came else pa.schema([])
    return time_values(schema.field(TIME).type) if TIME in schema.names else None
