"""Commits of a run: checkpoints in its store, and files at its sinks' targets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from fries_nb.connectors.sink import RuntimeSink
from fries_nb.controller import events
from fries_nb.errors import CheckpointError, ColumnError, FriesError, PlaceHeldError, SinkError
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange


class DurablePlace(Protocol):
    """Where decisions and records of checkpoints are kept: a ``storage.checkpoint_store.CheckpointStore``.

    All that is written is durable when the call returns, and otherwise raises a ``CheckpointError``.
    """

    @property
    def incarnation(self) -> int:
        """Incarnation of the attempt that holds the place."""

    @property
    def is_own(self) -> bool:
        """Whether this attempt holds it still."""

    @property
    def doubtful(self) -> Collection[str]:
        """The files of records of which it is not known whether they were written."""

    def begin(self, incarnation: int) -> None:
        """Begin another incarnation."""

    def decide(self, decided: CommittedChange) -> None:
        """Write a decision."""

    def keep(self, record: Checkpoint) -> None:
        """Write the record of a checkpoint."""

    def tidy(self) -> None:
        """Delete what no restart needs."""

    def release(self) -> None:
        """Let other attempts have it."""


def complete(checkpoint: Checkpoint | None, sinks: Mapping[str, RuntimeSink]) -> None:
    """Make the output of the sinks equal to that of a restored checkpoint, if the earlier driver ended before that."""
    if checkpoint is not None:
        for name, sink in sinks.items():
            sink.recover(checkpoint.epoch, checkpoint.sinks.get(name, ()))


class Committer:
    """Stores the decisions and the checkpoints of a region, and commits the output of its sinks.

    Args:
        place: the checkpoint store.
        sinks: sinks by name, and by the name of operators with dead letters.
        warn: called with problems that do not affect the run.

    Attributes:
        failure: why output could not be committed; empty if none failed.
    """

    def __init__(self, place: DurablePlace, sinks: Mapping[str, RuntimeSink], warn: Callable[[str], None]) -> None:
        self.failure = ""
        self._place = place
        self._sinks = sinks
        self._warn = warn
        self._prepared = 0  # the last epoch whose files were validated by ``Sink.prepare``

    def add(self, sinks: Mapping[str, RuntimeSink]) -> None:
        """Commit the output of these sinks as well; removed ones stay known, for what they have written last."""
        self._sinks = {**self._sinks, **sinks} if sinks else self._sinks

    def decide(self, decided: CommittedChange) -> None:
        """Store a decision, which is durable on return.

        Raises:
            CheckpointError: it cannot be written, or another process has resumed the run.
        """
        self._place.decide(decided)

    def keep(self, record: Checkpoint) -> list[events.Event]:
        """Store a checkpoint's record, if its output can be committed; returns the event for the controller.

        Raises:
            PlaceHeldError: another process has resumed the run.
        """
        for sink, files in record.sinks.items():
            try:
                self._sinks[sink].prepare(files)
            except SinkError as error:
                self.failure = f"sink {sink} could not commit epoch {record.epoch}: {error}"
                kept = events.CheckpointKept(record.epoch, self.failure)
                if isinstance(error, ColumnError):
                    return [events.ColumnRefused(sink, error.column, error.before, self.failure), kept]
                return [kept, events.StopRequested()]
        self._prepared = record.epoch
        try:
            self._place.keep(record)
        except PlaceHeldError:
            raise
        except CheckpointError as error:
            return [events.CheckpointKept(record.epoch, str(error))]
        return [events.CheckpointKept(record.epoch)]

    def commit(self, epoch: int, files: Mapping[str, tuple[str, ...]]) -> list[events.Event]:
        """Commit the files of an epoch, sinks in the order of their declaration; a failure stops the run.

        Returns:
            The events for the controller; empty if all sinks have committed.
        """
        failed: list[events.Event] = []
        for sink in dict.fromkeys((*self._sinks, *files)):
            if (names := files.get(sink)) is None:
                continue
            try:
                if epoch != self._prepared:
                    self._sinks[sink].prepare(names)
                self._sinks[sink].commit(epoch, names)
            except FriesError as error:
                self.failure = f"sink {sink} could not commit epoch {epoch}: {error}"
                failed.append(events.StopRequested())
        return failed

    def begin(self, incarnation: int) -> None:
        """Begin a new attempt from the last checkpoint; output that could not be committed is produced again.

        Raises:
            CheckpointError: the store cannot be written, or another process has taken it over.
        """
        self._place.begin(incarnation)
        self.failure = ""

    def tidy(self) -> None:
        """Delete old checkpoints; a failure is only a warning."""
        try:
            self._place.tidy()
        except CheckpointError as error:
            self._warn(str(error))

    def end(self) -> None:
        """Delete uncommitted files, unless another attempt may still commit them, and release the store.

        If the release cannot be written, other processes can resume the run only after this process has ended.
        """
        if not self.failure and self._place.is_own:
            for name, sink in self._sinks.items():
                try:
                    sink.discard(self._place.incarnation, self._place.doubtful)
                except SinkError as error:
                    self._warn(f"uncommitted parts of sink {name} are left behind: {error}")
        try:
            self._place.release()
        except CheckpointError as error:
            self._warn(str(error))
