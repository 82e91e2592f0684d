"""One operator at one worker: its present function, its state, what is prepared for it, what it has done.

A switch is a pointer swap (Fries, section 4.1: after the tuple in hand, before the next one): the function was made
ready beforehand, and state goes into a layer that is transformed key by key.

>>> from fries_nb.dataflow.graph import Operator
>>> instance = Instance(WorkerId("FD", 0), Operator("FD"), lambda row: row | {"version": 1}, audit=False)
>>> instance.prepared["u1"] = Ready(lambda row: row | {"version": 2}, None)
>>> instance.switch("u1"), instance.function({})
(True, {'version': 2})
>>> instance.switch("u2")     # not a change that this worker has prepared
Traceback (most recent call last):
...
fries_nb.errors.ProtocolError: FD[0] was told to switch to change 'u2', which it has not prepared
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fries_nb.checkpoints import Position
from fries_nb.dataflow.graph import Operator
from fries_nb.errors import OperatorError, ProtocolError
from fries_nb.messages import WorkerId
from fries_nb.operators.audit_log import AuditLog, Mark
from fries_nb.operators.column_types import ColumnTypes
from fries_nb.operators.state import KeyedState, StateCopy, Transform
from fries_nb.trace import Counts, WorkerRecord

NO_RECORDS = Counts()
Draw = Callable[[Iterable[Any]], Iterator[Any]]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Ready:
    """A function that has been unpickled and opened, and the state transformations that go with it.

    ``recreate`` makes another function like it, not opened; ``states`` are copies of some states of the present one.
    ``guard`` is the id of a rollback for which what ran before is kept, with ``back`` for the state; or empty.
    """

    function: Any
    transform: Transform | None
    recreate: Callable[[], Any] | None = None
    states: tuple[StateCopy, ...] = ()
    back: Transform | None = None
    guard: str = ""


@dataclass(frozen=True, slots=True)
class Previous:
    """What the operator ran before a change under guard: the rollback's id, and how to bring it back."""

    change: str
    rollback: str
    function: Any
    recreate: Callable[[], Any] | None
    transform: Transform | None
    back: Transform | None


class Instance:
    """An operator's worker, without its channels.

    Attributes:
        processed: tuples that it has taken in.
        positions: of a source, split number to where its reading goes on; ``None`` for a split that has ended.
        applied: the changes that it has switched to, in order.
        prepared: change id to what is ready to be switched to.
        recreate: makes another function like the present one, not opened; ``None`` where that is not known.
        has_dead_letters: tuples that its function fails on leave as dead letters.
        letters: dead letters that have left and are not yet written.
        withheld: dead letters of the tuple in hand that leave when the whole chain is past it; ``None``: at once.
        state: keyed state (under the one key ``None`` where the operator has no key).
        written: the types of the columns that it has written, as far as it asks about each tuple.
        guarded: the change under guard that it has switched to, or empty: a tuple that it fails on is kept.
        refused: the rows of the batch in hand that were set aside, by number.
        log: what it does, for the audit.
        draw: takes of all that a row becomes what is asked for: everything, except in a trial.
    """

    def __init__(self, worker: WorkerId, operator: Operator, function: Any, audit: bool) -> None:
        self.worker = worker
        self.operator = operator
        self.function = function
        self.recreate: Callable[[], Any] | None = None
        own = weakref.ref(self)  # no cycle: whoever lets go of an instance lets go of its function at once
        self.state = KeyedState(lambda: _initial_state(own()))
        self.written = ColumnTypes(worker.operator)
        self.refused: set[int] = set()
        self.prepared: dict[str, Ready] = {}
        self.processed = 0
        self.positions: dict[int, Position | None] = {}
        self.applied: tuple[str, ...] = ()
        self.has_dead_letters = False
        self.letters: list[pa.RecordBatch] = []
        self.withheld: list[pa.RecordBatch] | None = None
        self.audit = audit
        self.guarded = ""
        self._previous: Previous | None = None
        self.log = AuditLog(worker)
        self.draw: Draw = iter
        self._prepared_at: dict[str, int] = {}
        self._missed: dict[str, Transform] = {}
        self._tagged = ""
        self._brought: tuple[Any, str, str] = (function, "", "")

    def agree(self, columns: bytes) -> None:
        """The present function has to write these columns (a serialized Arrow schema) in these types."""
        self.written.agreed = pa.ipc.read_schema(pa.py_buffer(columns))
        self.written.forget()

    def expect(self, change: str, tagged: bool = False) -> None:
        """A change is being prepared: tuples from now on count as processed by the old function."""
        self._prepared_at[change] = self.processed
        if tagged:
            self._tagged = change

    @property
    def tagged(self) -> Ready | None:
        """What is ready for the tuples of the next version; ``None`` where they are treated as all others."""
        return self.prepared.get(self._tagged)

    def fork(self, ready: Ready) -> Instance:
        """The same operator at the same worker in another configuration, with nothing done yet."""
        fork = Instance(self.worker, self.operator, None, self.audit)
        fork.run_function(ready.function, self._tagged)
        fork.has_dead_letters, fork.letters = self.has_dead_letters, self.letters
        fork.written.needed = self.written.needed
        return fork

    def merge(self, fork: Instance) -> None:
        """Count what the fork has done as done here: its configuration is this instance's from now on."""
        self.processed += fork.processed
        self.log.merge(fork.log)

    def forget(self, change: str) -> None:
        """The change was aborted, or taken back; idempotent."""
        self.prepared.pop(change, None)
        self._prepared_at.pop(change, None)
        self._missed.pop(change, None)

    def supersede_change(self, change: str) -> None:
        """Note a change that is ordered ahead of one applied here already: it counts as applied, and has no effect."""
        self.forget(change)
        self.applied = (*self.applied, change)

    def skip_change(self, change: str) -> None:
        """Give up the function prepared for a change, because its marker came after the worker had ended.

        If the run goes back to before the end, the worker is restored with this change and those that come after it.
        So of what was prepared the state's transformation is kept, for the trials of those.
        """
        ready = self.prepared.get(change)
        self.forget(change)
        if ready is not None and ready.transform is not None:
            self._missed[change] = ready.transform

    def copies(self, count: int, before: str = "") -> tuple[StateCopy, ...]:
        """Copies of the states of some keys for the trial of a change, in the form in which that one would find them.

        An ended worker has missed the changes decided since, of which the last may still be on its way to it. A change
        ordered ahead of one that is on its way (``before``) finds them as they are without that.

        Raises:
            Exception: whatever pickling raises, where a state cannot be pickled.
        """
        prepared = [ready for change, ready in self.prepared.items() if change != before]
        coming = [ready.transform for ready in prepared if ready.transform is not None]
        missed = (*self._missed.values(), *coming)
        return tuple([replace(copy, missed=(*copy.missed, *missed)) for copy in self.state.sample(count)])

    def expects(self, change: str) -> bool:
        """Whether this change is being prepared, or is ready, and was not aborted meanwhile."""
        return change in self._prepared_at

    def old_tuples(self, change: str) -> int:
        """Tuples processed since the change was first heard of."""
        return self.processed - self._prepared_at.pop(change, self.processed)

    def switch(self, change: str, before: str = "") -> bool:
        """Run the prepared function from the next tuple on; ``before`` is what is ordered behind this change.

        Raises:
            ProtocolError: nothing is prepared under this change.
        """
        if self._previous is not None and self._previous.rollback == change:
            self._switch_back(change, self._previous)
            return True
        ready = self.prepared.pop(change, None)
        if ready is None:
            raise ProtocolError(f"{self.worker} was told to switch to change {change!r}, which it has not prepared")
        if self._previous is None or self._previous.rollback != before:
            self.unguard()
        if ready.guard:
            self.guarded = change
            self._previous = Previous(change, ready.guard, self.function, self.recreate, ready.transform, ready.back)
        self.run_function(ready.function, change)
        self.recreate = ready.recreate
        self.apply_change(change, ready.transform, before)
        return True

    def unguard(self, change: str = "", keeps: bool = False) -> bool:
        """The guard of this change, or of whichever there is, is over; returns whether failures were kept until now.

        With ``keeps`` the rollback may still come. Without, a guard that ends before the switch does not begin here.
        """
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
        """Undo a change from the next tuple on; keys that it has not transformed keep their state."""
        self.state.undo(transform, back)
        self._note(rollback)

    def apply_change(self, change: str, transform: Transform | None, before: str = "") -> None:
        """Apply a change from the next tuple on; present states are transformed when they are next used."""
        self.state.transform(transform)
        self._note(change, before)

    def _note(self, change: str, before: str = "") -> None:
        self.written.agreed = pa.schema([])
        self.applied = (*self.applied, change)
        if self.audit:
            self.log.updated(change, before)

    def run_function(self, function: Any, change: str) -> None:
        """Run this function, which the change has brought, from the next tuple on."""
        self._brought = (function, change, self.identity)
        self.function = function
        self.log.function = change

    @property
    def identity(self) -> str:
        """The change that brought the function that is run: told by the function itself, not by what was ordered."""
        function, change, before = self._brought
        return change if self.function is function else before

    def begin_at(self, processed: int, applied: tuple[str, ...], traced: Counts = NO_RECORDS) -> None:
        """Go on from where another one stood, with nothing prepared and nothing recorded since."""
        self.processed, self.applied = processed, applied
        self.prepared.clear()
        self._prepared_at.clear()
        self._missed.clear()
        self.log.begin_at(traced)

    def write_letter(self, letter: pa.RecordBatch) -> None:
        """A dead letter leaves, or is withheld."""
        if self.withheld is not None:
            self.withheld.append(letter)
        else:
            self.letters.append(letter)

    def take_letters(self) -> list[pa.RecordBatch]:
        """Dead letters that have left since the last call."""
        taken = self.letters.copy()
        self.letters.clear()
        return taken

    def mark(self) -> tuple[int, Mark]:
        """How far it has come, for ``rewind``."""
        return self.processed, self.log.mark()

    def rewind(self, mark: tuple[int, Mark]) -> None:
        """What it has done since is undone."""
        self.processed = mark[0]
        self.log.rewind(mark[1])

    def records(self, ended: bool = False) -> list[WorkerRecord]:
        """Under audit: what happened here since the last call, in order, and how much that is in all."""
        return self.log.take(ended) if self.audit else []


def _initial_state(instance: Instance | None) -> Any:
    """The state of a key that the instance has not seen."""
    assert instance is not None, "its state outlives an instance"
    make: Callable[[], Any] = getattr(instance.function, "initial_state", dict)
    state = make()
    if state is None:
        name = instance.worker.operator
        raise OperatorError(f"initial_state() of {name} returned None; it must return a state")
    return state
