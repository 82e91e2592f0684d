"""One operator at one worker: its current function, its state, prepared changes, counts and audit log.

A switch is a pointer swap between two tuples (Fries, section 4.1): the function was loaded and opened beforehand, and
the state is moved to a layer that is transformed key by key.

>>> from fries_nb.dataflow.graph import Operator
>>> instance = Instance(WorkerId("FD", 0), Operator("FD"), lambda row: row | {"version": 1}, audit=False)
>>> instance.prepared["u1"] = Ready(lambda row: row | {"version": 2}, None)
>>> instance.switch("u1"), instance.function({})
(True, {'version': 2})
>>> instance.switch("u2")     # not a change that this worker has prepared
Traceback (most recent call last):
...
fries_nb.errors.ProtocolError: FD[0] was told to switch to change 'u2', which it has not prepared

Failures of users' functions on a tuple, as errors or as dead letters.

An error contains the user's traceback, without the frames of this package. The tuple is shown as JSON, in the message
of a paused worker and in a dead letter.

>>> import datetime
>>> row_as_json({"day": datetime.date(2026, 2, 1), "amounts": [1, float("nan")], "shop": "Zürich"})
'{"day": "2026-02-01", "amounts": [1, "nan"], "shop": "Zürich"}'
"""

from __future__ import annotations

import json
import math
import os
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.keys import initial_state
from fries_nb.dataflow.masking import masked
from fries_nb.dataflow.operators import is_timed
from fries_nb.dataflow.windowing import WindowFunction, following
from fries_nb.errors import OperatorError, ProtocolError, exception_text
from fries_nb.operators.arms import Arms
from fries_nb.operators.audit_log import AuditLog, Mark
from fries_nb.operators.cold_states import StateBudget
from fries_nb.operators.column_types import ColumnTypes
from fries_nb.operators.joined_names import JoinedNames
from fries_nb.operators.pickled_states import definitions_of, renewed
from fries_nb.operators.row_versions import Earlier, is_declared, settled, with_fix, with_steps
from fries_nb.operators.state import KeyedState, StateCopy, Transform
from fries_nb.progress.agenda import Agenda, EndAgenda
from fries_nb.progress.progress_graph import ChangeBatch, CountChange, CountChanges, GraphLocation
from fries_nb.progress.tokens import TokenBook, TokenKeepers
from fries_nb.protocol.checkpoints import Position
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.partitioning import bins_of_keys
from fries_nb.protocol.rollout import BroughtOut, RolloutStep
from fries_nb.protocol.trace import Counts, WorkerRecord

if TYPE_CHECKING:
    from fries_nb.operators.awaited_calls import Call, CallLoop
    from fries_nb.operators.dead_letters import ReturnedRows

NO_RECORDS = Counts()
Draw = Callable[[Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Ready:
    """A prepared configuration: a function that has been unpickled and opened, and its state transformations.

    ``recreate`` makes another instance of the function, not opened; ``states`` are copies of some current states.
    ``guard`` is the id of the rollback for which the previous function is kept, or empty; ``back`` is the rollback's
    state transformation.
    """

    function: Any
    transform: Transform | None
    recreate: Callable[[], Any] | None = None
    states: tuple[StateCopy, ...] = ()
    back: Transform | None = None
    guard: str = ""


@dataclass(frozen=True, slots=True)
class Previous:
    """The configuration before a change under guard, and the id of the rollback that restores it."""

    change: str
    rollback: str
    function: Any
    recreate: Callable[[], Any] | None
    transform: Transform | None
    back: Transform | None


@dataclass(slots=True)
class Failing:
    """What dead letters an operator has written at one worker, and which of their rows are to come back.

    Attributes:
        writer: id of the writer of its dead letters, which no other one of the run has.
        written: number of letters so far.
        returned: rows of dead letters that it is to process next.
        tries: how often the operator has failed on the rows in hand; 0 for those that come for the first time.
    """

    writer: str = ""
    written: int = 0
    returned: deque[ReturnedRows] = field(default_factory=deque)
    tries: int = 0

    def next_letter(self, worker: WorkerId) -> str:
        """An id for a dead letter of this worker."""
        self.written += 1
        return f"{worker}.{self.writer}.{self.written}"


class Instance:
    """An operator's worker, without its channels."""

    earlier: tuple[Earlier, ...] = ()
    """What it runs for rows that are old for changes which are decided row by row."""
    state: KeyedState
    """Its states in the form in which they are kept, shown and moved."""
    newest: KeyedState
    """The states as the newest of its versions has them."""
    clock: Callable[[], int] = staticmethod(lambda: 0)
    """Returns nanoseconds: that of its worker."""
    calls: CallLoop | None = None
    """Where the calls of a coroutine function run; ``None`` for others."""
    budget: StateBudget | None = None
    """How much of its states may be in memory; ``None`` for all of them."""
    deferred: Callable[[], None] | None = None
    """Applies the decided changes that it was restored without."""
    came: pa.Schema | None = None
    """The schema of a timed operator's last batch, which firings follow."""
    rewindowed = False
    """Whether windows of an earlier function may be open."""
    brought_out: BroughtOut | None = None
    """Counts what time brings out of a timed operator; ``None`` for others."""
    arms: Arms | None = None
    """What both versions have done since the last canary began; ``None`` if the last change is none."""

    def __init__(self, worker: WorkerId, operator: Operator, function: Any, audit: bool) -> None:
        self.worker, self.operator = worker, operator
        self.function = function = following(operator.function, function)
        self.recreate: Callable[[], Any] | None = None  # makes another instance, not opened, if one can be made
        own = weakref.ref(self)  # no cycle, so that the function is released together with the instance
        self.state = self.newest = KeyedState(lambda: _initial_state(own()))  # of the key ``None`` if it has no key
        self.written = ColumnTypes(worker.operator)  # the types of the columns that it has written
        self.refused: set[int] = set()  # indices of the rows of the current batch that became dead letters
        self.prepared: dict[str, Ready] = {}  # change id to the prepared configuration
        self.processed = self.failed = 0  # number of input tuples processed, and of dead letters that were taken
        self.given = 0  # at the end of a chain, number of rows that were taken from it
        self.positions: dict[int, Position | None] = {}  # for a source, split to its position; ``None`` at its end
        self.bounds: dict[int, int] = {}  # for a source, split number to the least time of its unread rows
        self.applied: tuple[str, ...] = ()  # ids of the changes that it has switched to, in order
        self.rerouted: tuple[str, ...] = ()  # those of them that have added it, or replaced its out-edges only
        self.has_dead_letters = False  # whether tuples on which the function fails become dead letters
        self.letters: list[pa.RecordBatch] = []  # dead letters not yet taken by the worker
        self.withheld: list[pa.RecordBatch] | None = None  # those of a tuple that wait until its chain has processed it
        self.failing = Failing()  # what it failed on before
        # ``identities``: whether rows carry those of their source tuples; ``hide``: columns whose values are not shown
        self.audit, self.identities, self.hide = audit, audit, frozenset[str]()
        self.guarded = ""  # the change under guard that it has switched to, or empty; failed tuples are then kept
        self._previous: Previous | None = None
        self.log = AuditLog(worker)  # the audit log
        self.returned: dict[int, Call] = {}  # index to the call of a coroutine that has ended, for the rows in hand
        self.draw: Draw = iter  # limits the rows that a tuple becomes, in a trial; otherwise takes all
        self.agenda: Agenda | None = None  # the entries of a timed operator; ``None`` for others
        self.tokens: TokenBook | None = None  # the tokens of a timed operator; ``None`` for others
        self.sides: dict[str, pa.Schema] = {}  # of a join of two streams, the columns of each side that has come
        self.names = JoinedNames(worker.operator)  # of a join, what the columns of both sides are called behind it
        if is_timed(operator if function is None else replace(operator, function=function)):
            self.tokens = TokenBook(operator.name, ChangeBatch(), trial=True)
            self.brought_out = BroughtOut(operator.name)
            self.agenda = _agenda_of(operator, function or operator.function, self.tokens)
        self._prepared_at: dict[str, int] = {}
        self._missed: dict[str, Transform] = {}
        self.transforms: dict[str, Transform] = {}  # the state transformations that it has applied itself, by change
        self._tagged = ""
        self._installed: tuple[Any, str, str] = (function, "", "")

    def track(self, changes: ChangeBatch, clock: Callable[[], int]) -> None:
        """Count the tokens and entries of a timed operator here from now on; before, as in a trial, nowhere.

        And time rows by this clock of nanoseconds; a trial does so by its own.
        """
        self.clock = clock
        if self.agenda is not None and self.tokens is not None:
            self.agenda.changes = changes
            self.tokens.track(changes)

    def bound(self) -> AbstractContextManager[None]:
        """A block that runs the operator's functions, or unpickles its states; only there can its tokens be used."""
        return nullcontext() if self.tokens is None else self.tokens.bound()

    @property
    def holds_time(self) -> bool:
        """Whether a timed operator has entries or tokens."""
        return self.agenda is not None and self.tokens is not None and bool(self.agenda.holds or self.tokens.times)

    def held(self) -> CountChanges:
        """The counts of the tokens and entries that a timed operator was restored with."""
        if self.agenda is None or self.tokens is None:
            return ()
        location, times = GraphLocation(self.operator.name), (*self.agenda.held, *self.tokens.times.values())
        return tuple(CountChange(location, time, 1) for time in times)

    def drop_times(self) -> None:
        """Give up all tokens and entries, since it has ended; only one that is removed has any left but tokens."""
        if self.agenda is not None and self.tokens is not None:
            self.tokens.end()
            self.agenda.end()

    def drop_lost(self) -> str:
        """Drop the tokens whose handles the function has lost; returns what is to be said of it, if there are any."""
        lost = self.tokens.take_lost() if self.tokens is not None else []
        if not lost:
            return ""
        text = f"{lost[0].operator} has lost a token of time {lost[0].time}, which counts as dropped"
        return f"{text}, as any later one; expected token.drop()"

    @property
    def journals(self) -> tuple[Agenda | TokenBook, ...]:
        """What must be undone, beside the state, if a tuple fails."""
        return () if self.agenda is None or self.tokens is None else (self.agenda, self.tokens)

    def agree(self, columns: bytes) -> None:
        """Require the current function to write these columns (a serialized Arrow schema) with these types."""
        self.written.agreed = pa.ipc.read_schema(pa.py_buffer(columns))
        self.written.forget()

    def expect(self, change: str, tagged: bool = False) -> None:
        """Record that a change is being prepared, and count further tuples as processed by the old function."""
        self._prepared_at[change] = self.processed
        if tagged:
            self._tagged = change

    @property
    def tagged(self) -> Ready | None:
        """The prepared configuration for tuples of the next version, if a tagged change is prepared."""
        return self.prepared.get(self._tagged)

    @property
    def expects_tagged(self) -> bool:
        """Whether a tagged change is being prepared, or is ready."""
        return self.expects(self._tagged)

    def fork(self, ready: Ready) -> Instance:
        """Make an instance of the same operator with another configuration, without state, counts or records."""
        fork = Instance(self.worker, self.operator, None, self.audit)
        fork.run_function(ready.function, self._tagged)
        fork.has_dead_letters, fork.letters = self.has_dead_letters, self.letters
        fork.written.needed, fork.hide, fork.identities = self.written.needed, self.hide, self.identities
        fork.brought_out, fork.sides, fork.calls = self.brought_out, self.sides, self.calls
        fork.names = self.names
        return fork

    def merge(self, fork: Instance) -> None:
        """Add the counts and records of a fork, after the switch to its configuration."""
        self.processed += fork.processed
        self.log.merge(fork.log)

    def forget(self, change: str) -> None:
        """Discard the prepared configuration of a change; idempotent."""
        self.prepared.pop(change, None)
        self._prepared_at.pop(change, None)
        self._missed.pop(change, None)

    def supersede_change(self, change: str) -> None:
        """Record a change as applied without effect, since it is ordered before one that was applied already."""
        self.forget(change)
        self.applied = (*self.applied, change)

    def skip_change(self, change: str) -> None:
        """Discard the function prepared for a change, whose marker arrived after the worker had ended."""
        # If the run restarts from a checkpoint before the end, the worker is restored with this change and later ones.
        # So the state transformation is kept, for the trials of later changes.
        ready = self.prepared.get(change)
        self.forget(change)
        if ready is not None and ready.transform is not None:
            self._missed[change] = ready.transform

    def copies(self, count: int, before: str = "") -> tuple[StateCopy, ...]:
        """Copies of the states of some keys for the trial of a change, in the form that the change will find."""
        # They include the transformations of prepared changes, and of those that an ended worker has skipped.
        prepared = [ready for change, ready in self.prepared.items() if change != before]
        coming = [ready.transform for ready in prepared if ready.transform is not None]
        missed = (*self._missed.values(), *coming)
        form = next((one.states for one in self.earlier if one.change == before), self.state)  # of what a fix replaces
        return tuple([replace(copy, missed=(*copy.missed, *missed)) for copy in form.sample(count)])

    def expects(self, change: str) -> bool:
        """Whether this change is being prepared, or is ready, and was not aborted meanwhile."""
        return change in self._prepared_at

    def old_tuples(self, change: str) -> int:
        """Number of tuples processed since the preparation of the change began; 0 on further calls."""
        return self.processed - self._prepared_at.pop(change, self.processed)

    def switch(self, change: str, before: str = "") -> bool:
        """Switch to the prepared function of a change, or back to the previous function for a guard's rollback."""
        if self._previous is not None and self._previous.rollback == change:
            self._switch_back(change, self._previous)
            return True
        ready = self.prepared.pop(change, None)
        if ready is None:
            raise ProtocolError(f"{self.worker} was told to switch to change {change!r}, which it has not prepared")
        if self._previous is None or self._previous.rollback != before:
            self.unguard()
        if before in [one.change for one in self.earlier]:
            self.earlier = with_fix(self.earlier, before, ready.function, ready.recreate, change)
            place = self.applied.index(before)
            self.applied = (*self.applied[:place], change, *self.applied[place:])
            if self.audit:
                self.log.updated(change, before)
            return True
        if ready.guard:
            self.guarded = change
            back = renewed(definitions_of(self.recreate), ready.back)
            self._previous = Previous(change, ready.guard, self.function, self.recreate, ready.transform, back)
        self.run_function(ready.function, change)
        self.recreate = ready.recreate
        self.apply_change(change, ready.transform, before)
        return True

    def decide_rows(self, change: str, steps: tuple[RolloutStep, ...]) -> None:
        """Take a step of a change that is decided row by row; ``steps`` are all so far.

        Raises:
            ProtocolError: the change is not prepared.
        """
        ready = self.prepared.pop(change, None)
        if ready is not None:
            self.unguard()
            back = renewed(definitions_of(self.recreate), ready.back)
            self.run_beside(change, steps, replace(ready, back=back))
            self.applied = (*self.applied, change)
        elif any(one.change == change for one in self.earlier):
            self.earlier = with_steps(self.earlier, change, steps)
            self._declare()
        else:
            raise ProtocolError(f"{self.worker} was told a step of change {change!r}, which it has not prepared")
        self._note_steps(change, steps)

    def run_beside(self, change: str, steps: tuple[RolloutStep, ...], ready: Ready, has_form: bool = False) -> None:
        """Run this function for the rows that are new for a change, and the present one for the others.

        Args:
            change: id of the change.
            steps: all of its steps so far.
            ready: the function, and what transforms the state there and back.
            has_form: whether the states are in the form behind the change, as those of a checkpoint may be.
        """
        self.earlier = (*self.earlier, Earlier(change, steps, self.function, self.recreate, self.identity, self.newest))
        self.newest = self.state.beside(ready.transform, ready.back)  # no row is new for a change withdrawn before it
        if has_form:
            self.newest.hold(self.state)
        self._declare()
        self.arms = Arms(change) if any(0 < step.share < 1 for step in steps) else None
        self.run_function(ready.function, change)
        self.recreate = ready.recreate

    def _declare(self) -> None:
        """Keep states in the form behind the last change that is no canary, as all rows will find them at its end."""
        forms = [*(one.states for one in self.earlier), self.newest]
        declared = [form for one, form in zip(self.earlier, forms[1:], strict=True) if is_declared(one.steps)]
        self.state = declared[-1] if declared else forms[0]

    @property
    def canaries(self) -> tuple[str, ...]:
        """The open changes behind which states have another form than that in which they are kept."""
        return tuple([one.change for one in self.earlier if not is_declared(one.steps)])

    def note_rows(self, change: str, steps: tuple[RolloutStep, ...]) -> None:
        """Record a change that is decided row by row, and that it was restored with."""
        self.applied = (*self.applied, change)
        self._note_steps(change, steps)

    def _note_steps(self, change: str, steps: tuple[RolloutStep, ...]) -> None:
        self.written.agreed = pa.schema([])
        if self.audit:
            self.log.updated(change, "", steps=steps)

    def settle(self, change: str) -> bool:
        """Drop what no row needs any more of a change that is decided row by row; returns whether it had any."""
        before = self.earlier
        self.earlier, back = settled(before, change)
        if back is not None:
            self.install(back.function, back.identity)
            self.recreate, self.log.function, self.newest = back.recreate, back.identity, back.states
        self.newest.close([*(one.states for one in self.earlier), self.newest])
        if self.audit and self.earlier != before:
            self.log.chooses(self.earlier, self.identity)
        return self.earlier != before

    def unguard(self, change: str = "", keeps: bool = False) -> bool:
        """End the guard of a change; returns whether the operator was under guard."""
        if change in self.prepared and not keeps:
            self.prepared[change] = replace(self.prepared[change], guard="")
        if self._previous is None or (change and change != self._previous.change):
            return False
        was, self.guarded = self.guarded, ""
        if not keeps:
            self._previous = None
        return bool(was)

    def _switch_back(self, rollback: str, previous: Previous) -> None:
        self.unguard()
        self.run_function(previous.function, rollback)
        self.recreate = previous.recreate
        self.undo_change(rollback, previous.transform, previous.back)

    def undo_change(self, rollback: str, transform: Transform | None, back: Transform | None) -> None:
        """Undo the last change; keys that were not transformed yet keep their state."""
        self.state.undo(transform, back)
        self._note(rollback)

    def apply_change(self, change: str, transform: Transform | None, before: str = "") -> None:
        """Apply a change to the state, transformed key by key on access, and record it."""
        self.state.transform(transform)
        if transform is not None:
            self.transforms[change] = transform
        self._note(change, before)

    def reroute(self, change: str) -> None:
        """Record that it sends on other edges from now on, and runs the same function."""
        self.applied, self.rerouted = (*self.applied, change), (*self.rerouted, change)
        if self.audit:
            self.log.updated(change, "", edges=True)

    def _note(self, change: str, before: str = "") -> None:
        self.written.agreed = pa.schema([])
        self.applied = (*self.applied, change)
        if self.audit:
            self.log.updated(change, before)

    def run_function(self, function: Any, change: str) -> None:
        """Run this function of a change from the next tuple on; one without windows of its own keeps those before."""
        present, function = self.function, following(self.function, function)
        if isinstance(function, WindowFunction) and isinstance(present, WindowFunction):
            self.rewindowed = self.rewindowed or function.windowing != present.windowing
        self._installed = (function, change, self.identity)
        self.function = function
        self.log.function = change

    def install(self, function: Any, identity: str) -> None:
        """Run a function that the operator had before, under the id of the change that had installed it."""
        self._installed = (function, identity, identity)
        self.function = function

    @property
    def identity(self) -> str:
        """The change that installed the function that is really run, determined by comparing the function object."""
        function, change, before = self._installed
        return change if self.function is function else before

    def begin_at(
        self, processed: int, applied: tuple[str, ...], traced: Counts = NO_RECORDS, rerouted: tuple[str, ...] = ()
    ) -> None:
        """Set counts and applied changes from a snapshot, and discard prepared configurations and records."""
        self.processed, self.applied, self.rerouted = processed, applied, rerouted
        self.prepared.clear()
        self._prepared_at.clear()
        self._missed.clear()
        self.log.begin_at(traced)

    def write_letter(self, letter: pa.RecordBatch) -> None:
        """Add a dead letter to ``withheld`` if that is not ``None``, else to ``letters``."""
        if self.withheld is not None:
            self.withheld.append(letter)
        else:
            self.letters.append(letter)

    def take_letters(self) -> list[pa.RecordBatch]:
        """The dead letters since the last call."""
        taken = self.letters.copy()
        self.failed += sum(letter.column("requeued").null_count for letter in taken)  # others say what came back
        self.letters.clear()
        return taken

    def mark(self) -> tuple[int, Mark]:
        """The current count and audit log position, for ``rewind``."""
        return self.processed, self.log.mark()

    def rewind(self, mark: tuple[int, Mark]) -> None:
        """Restore the count, and remove the audit records since ``mark``."""
        self.processed = mark[0]
        self.log.rewind(mark[1])

    def records(self, ended: bool = False) -> list[WorkerRecord]:
        """The audit records since the last call; see ``AuditLog.take``. Empty without audit."""
        return self.log.take(ended) if self.audit else []


def _agenda_of(operator: Operator, function: Any, tokens: TokenBook) -> Agenda:
    """The agenda of a timed operator; each key has one entry where keys end."""
    kind = EndAgenda if isinstance(function, Expiring) else Agenda
    return kind(operator.name, ChangeBatch(), bins_of_keys, TokenKeepers(tokens))


def _initial_state(instance: Instance | None) -> Any:
    """The state of a key that the instance has not seen."""
    assert instance is not None, "its state outlives an instance"
    return initial_state(instance.worker.operator, instance.function)


FAILURES = (Exception, SystemExit)
"""Exceptions of a user's function that count as its failure on the tuple."""
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_OURS = tuple(os.path.join(_PACKAGE, room) + os.sep for room in ("worker", "operators", "dataflow"))


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's frame on, as text; frames of this package are left out."""
    if isinstance(error, OperatorError) and error.details:
        return error.details
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    lines = ["Traceback (from your code):\n", *traceback.format_list(frames)] if frames else []
    return "".join([*lines, *traceback.format_exception_only(error)])


def failure(instance: Instance, error: BaseException) -> OperatorError:
    """Wrap an exception of a user's function, with the traceback from the user's frame on."""
    name = instance.worker.operator
    reason = str(error) if isinstance(error, OperatorError) else exception_text(error)
    failed = OperatorError(f"{name} failed on a tuple: {reason}", name, user_traceback(error))
    failed.mentions = error.mentions if isinstance(error, OperatorError) else failed.mentions
    return failed


def row_as_json(values: dict[str, Any], hide: Collection[str] = ()) -> str:
    """A row's values as one JSON object; values that JSON cannot represent are converted to text.

    Those of the columns ``hide`` are masked.
    """
    return json.dumps(_sayable(masked(values, hide)), ensure_ascii=False)


def _sayable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _sayable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_sayable(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
