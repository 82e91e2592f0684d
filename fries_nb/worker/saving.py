"""Snapshots of a worker, taken while it goes on.

At a checkpoint's marker a worker is between two tuples, and all output of earlier tuples has left it. So a snapshot
consists of the state of its operators, their positions, and the round-robin positions of its out-edges. Functions are
not included; they are in the graph and in the decided changes. While versions with several forms of state run side by
side, states are converted to one of them, whichever rows have met last: that behind the last change that is no canary.

    at the marker        what is small is copied, with the containers of what is large: the entries of an agenda
    between two tuples   some states are pickled, for a millisecond (see ``operators.states_to_save``); then the agenda
    when all is done     ``Save`` tells the shell to store the snapshots, of all operators of the chain as one file

A state that cannot be pickled ends the checkpoint, and not the run. A marker that comes before all is done gives the
attempt before it up, whose checkpoint has been given up, too.

Invariant: a snapshot is that of the marker, and taking it has no effect on the worker but pending transformations of
states, which come at the latest then.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.operators.pickled_states import loaded_states
>>> from fries_nb.protocol.messages import WorkerId
>>> one = Instance(WorkerId("FD", 0), Operator("FD", key=("c",)), dict, audit=False)
>>> one.state.touch("c7")["seen"] = 3
>>> saving = Saving(5, [one], {}, version=0, clock=lambda: 0)
>>> one.state.touch("c7")["seen"] = 4                        # saved as it was before
>>> save = saving.advance(limit=1) or saving.advance(limit=1) or saving.advance(limit=9)
>>> [loaded_states(parts, {}) for parts in save.snapshots[0].bins.values()]
[{'c7': {'seen': 3}}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from msgspec.structs import replace

from fries_nb.errors import FriesError, OperatorError, exception_text
from fries_nb.operators.instance import FAILURES, Instance, user_traceback
from fries_nb.operators.pickled_states import dumps
from fries_nb.operators.state import keeps_state
from fries_nb.progress.agenda import Entry
from fries_nb.protocol.checkpoints import EVERY_BIN, LoggedFrame, Snapshot
from fries_nb.protocol.messages import Parked, Saved
from fries_nb.protocol.partitioning import bins_of_keys
from fries_nb.worker.events import Instruction, Park, Save, TellController

SLICE_NS = 1_000_000
"""Nanoseconds for which states are pickled between two tuples."""
BETWEEN_LOOKS = 16
"""Number of keys between two looks at the clock."""
ENTRIES = 500
"""Number of an agenda's entries that are sorted by bin at once."""


class Unsaved(OperatorError):
    """A state cannot be pickled. The checkpoint is aborted; the worker continues."""


class OperatorSaving:
    """The snapshot of one operator's worker at a marker, until it is complete.

    Raises:
        OperatorError: a state transformation failed.
    """

    def __init__(self, instance: Instance, version: int) -> None:
        self._instance = instance
        with self._transforming():
            self._states = instance.state.begin_saving()
        self._at_marker = Snapshot(
            *instance.worker, instance.processed, instance.applied, traced=instance.log.counts.as_tuple,
            positions=dict(instance.positions), bounds=instance.bounds, version=version, rerouted=instance.rerouted,
            keys=len(instance.state), canaries=instance.canaries,
            names={side: dict(names) for side, names in instance.names.known.items()},
        )  # fmt: skip
        self._entries: Iterator[Entry] = iter(())
        self._keepers: Mapping[int, Sequence[Any]] = {}
        self._agenda: dict[int, list[Entry]] = {}
        self._pickled: dict[int, bytes] = {}
        self._are_states_saved = False
        self._note_times()

    def _note_times(self) -> None:
        """Copy what a timed operator has in addition: agenda, tokens, and the columns of its firings."""
        instance = self._instance
        agenda, tokens, brought_out = instance.agenda, instance.tokens, instance.brought_out
        if agenda is None or tokens is None or brought_out is None:
            return
        self._entries = agenda.as_now()
        self._keepers = {} if agenda.keepers is None else agenda.keepers.saved()
        self._agenda = {bin: [] for bin in self._keepers}
        self._at_marker = replace(
            self._at_marker,
            tokens=tokens.saved(),
            fired={EVERY_BIN: tuple((t, *rounds) for rounds, t in agenda.fired.items())},
            brought_out={**brought_out.last, EVERY_BIN: brought_out.beyond},
            came=b"" if instance.came is None else instance.came.serialize().to_pybytes(),
        )

    def advance(self, count: int) -> bool:
        """Pickle the states of so many keys, or some of the agenda; returns whether anything is left to do.

        Raises:
            Unsaved: a state cannot be pickled.
            OperatorError: a state transformation failed.
        """
        if not self._are_states_saved:
            with self._transforming():
                self._are_states_saved = not self._instance.state.save_some(count)
            self._check()
            return True
        if some := [*islice(self._entries, ENTRIES)]:
            for bin, entry in zip(bins_of_keys([key for _, key in some]).tolist(), some, strict=True):
                self._agenda.setdefault(bin, []).append(entry)
            return True
        if self._agenda:
            bin, entries = self._agenda.popitem()
            with self._instance.bound():
                self._pickled[bin] = dumps((entries, self._keepers.get(bin, [])))[0]
        return bool(self._agenda)

    def _check(self) -> None:
        if (failure := self._states.failure) is not None:
            name, (key, error) = self._instance.worker.operator, failure
            where = "" if key is None else f", for key {key!r}"
            words = f"the state of {name} cannot be saved: {exception_text(error)}{where}"
            raise Unsaved(words, name, user_traceback(error)) from error

    def end(self, number: int) -> Snapshot:
        """The complete snapshot, which is to be stored as this number; 0 if the attempt has failed."""
        states = self._states
        self._instance.state.end_saving(number)
        return replace(
            self._at_marker, since=states.since, gone=tuple(sorted(states.gone)) if states.since else (),
            bins=dict(sorted(states.parts.items())), needs=tuple(sorted(states.names)),
            agenda=dict(sorted(self._pickled.items())),
        )  # fmt: skip

    @contextmanager
    def _transforming(self) -> Iterator[None]:
        """A block in which states are pickled, or transformed."""
        name = self._instance.worker.operator
        try:
            with self._instance.bound():
                yield
        except FAILURES as error:
            words = str(error) if isinstance(error, FriesError) else exception_text(error)
            raise OperatorError(
                f"the state transformation of {name} failed: {words}", name, user_traceback(error)
            ) from error


class Saving:
    """The snapshots of a chain's operators at a checkpoint's marker.

    Args:
        epoch: number of the checkpoint.
        instances: the operators.
        positions: the round-robin positions of the chain's out-edges.
        version: number of tagged changes that have been applied.
        clock: returns nanoseconds.

    Attributes:
        epoch: see the arguments.
        feedback: the frames on feedback channels of a loop's head; ``None`` as long as they are not known.

    Raises:
        OperatorError: a state transformation failed.
    """

    def __init__(
        self, epoch: int, instances: Sequence[Instance], positions: Mapping[str, int], version: int,
        clock: Callable[[], int],
    ) -> None:  # fmt: skip
        self.epoch, self._positions, self._clock = epoch, dict(positions), clock
        self.feedback: tuple[LoggedFrame, ...] | None = ()
        self._worker = instances[0].worker
        self._operators = [OperatorSaving(instance, version) for instance in instances]
        self._left = [*self._operators]

    @property
    def waits(self) -> bool:
        """Whether everything is pickled, and only frames on feedback channels are to come."""
        return not self._left and self.feedback is None

    def advance(self, limit: int) -> Save | TellController | None:
        """Pickle some states, of at most so many keys; the instruction to store all, or the answer that it failed.

        Raises:
            OperatorError: a state transformation failed.
        """
        until = self._clock() + SLICE_NS
        try:
            while self._left and limit > 0:
                count = min(limit, BETWEEN_LOOKS)
                if not self._left[0].advance(count):
                    self._left.pop(0)
                limit -= count
                if self._clock() >= until:
                    break
        except Unsaved as error:
            for one in self._operators:
                one.end(0)
            return TellController(Saved(self.epoch, self._worker, error=str(error)))
        if self._left or self.feedback is None:
            return None
        snapshots = [one.end(self.epoch) for one in self._operators]
        last = replace(snapshots[-1], round_robin_positions=self._positions, feedback=self.feedback)
        return Save(self.epoch, (*snapshots[:-1], last))


class StateTurns:
    """What one worker does with its states between tuples: it saves those of a checkpoint, and reads what is unread.

    Args:
        clock: returns nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._saving: Saving | None = None

    @property
    def saves(self) -> bool:
        """Whether something is still to be pickled."""
        return self._saving is not None and not self._saving.waits

    def begin(self, epoch: int, instances: Sequence[Instance], positions: Mapping[str, int], version: int) -> None:
        """Begin that of a checkpoint, at its marker; raises as ``Saving`` does."""
        self._saving = Saving(epoch, instances, positions, version, self._clock)

    def await_feedback(self, epoch: int) -> None:
        """Let the snapshot of this checkpoint wait for the frames on feedback channels, if one was begun."""
        if self._saving is not None and self._saving.epoch == epoch:
            self._saving.feedback = None

    def add_feedback(self, epoch: int, frames: tuple[LoggedFrame, ...]) -> None:
        """These frames were on feedback channels at the marker of this checkpoint."""
        if self._saving is not None and self._saving.epoch == epoch:
            self._saving.feedback = frames

    def advance(self, limit: int) -> list[Instruction]:
        """Go on for a slice, with at most so many keys; raises as ``Saving.advance`` does."""
        if self._saving is None or (done := self._saving.advance(limit)) is None:
            return []
        self._saving = None
        return [done]

    def read_some(self, instances: Sequence[Instance], limit: int) -> bool:
        """Read some states that are unread since a restart, of at most so many keys; returns whether more are.

        Raises:
            UnreadableState: they cannot be read.
        """
        left = [instance for instance in instances if instance.state.is_unread]
        if not left:
            return False
        until = self._clock() + SLICE_NS
        while left and limit > 0:
            with left[0].bound():
                if not left[0].state.read_some(min(limit, BETWEEN_LOOKS)):
                    left.pop(0)
            limit -= BETWEEN_LOOKS
            if self._clock() >= until:
                break
        return bool(left)

    def finish(self) -> list[Instruction]:
        """Pickle all that is left, before states go on in another way than by rows; raises as ``advance`` does."""
        done: list[Instruction] = []
        while self.saves and not done:
            done = self.advance(ENTRIES)
        return done


def saved(instance: Instance) -> Snapshot:
    """A snapshot of one operator with everything, taken at once.

    Raises:
        Unsaved: a state cannot be pickled.
        OperatorError: a state transformation failed.
    """
    instance.state.save_all_again()
    saving = OperatorSaving(instance, 0)
    while saving.advance(ENTRIES):
        pass
    return saving.end(0)


def parking(epoch: int, instance: Instance) -> Park | TellController:
    """Park the state of an operator that is removed in this epoch of the topology; if it keeps none, say so."""
    traits = instance.operator.traits
    keeps = traits.is_source or traits.timed or keeps_state(instance.operator, instance.function)
    if not (keeps or instance.applied):  # of all workers alike
        return TellController(Parked(epoch, instance.worker))
    try:
        return Park(epoch, (saved(instance),))
    except OperatorError as error:
        return TellController(Parked(epoch, instance.worker, error=str(error)))
