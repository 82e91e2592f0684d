"""Error policies: a tuple on which a function fails has no effect on output, state or the tuple itself.

An operator that pauses, or writes dead letters, must process a tuple completely or not at all, and be able to retry it.
So its outputs are held until the function has returned, it works on a copy of the row, and its key's state is copied
before the call and restored if it raises. A row that cannot become columns counts as a failure, and is detected here,
since at the end of the chain later tuples have already used the state (see ``column_types``). Operators that fail the
run need none of this, and do not pay for it.

Atomic processing of tuples by a chain with a change under guard.

A guard retries the tuple on which the new configuration failed with the old one. That tuple has been processed by the
operators before the failing one, and some of its rows perhaps by those after it. So under guard every operator of the
chain copies its key's state beforehand; if any fails, all states, counts, trace records and rows of the tuple are
restored, and its withheld dead letters are dropped.

If the state of an unchanged operator cannot be copied, tuples are processed as without a guard, and a failing one
cannot be retried: the run fails, or restarts from its last checkpoint.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fries_nb.dataflow.graph import Operator
from fries_nb.dataflow.keys import canonical_key
from fries_nb.errors import OperatorError, exception_text
from fries_nb.operators.column_types import TypesMark, as_value
from fries_nb.operators.dead_letters import FailedRow, set_aside
from fries_nb.operators.instance import Instance
from fries_nb.operators.row_versions import side_by_side, version_of
from fries_nb.operators.rows import UNWRITTEN, Row
from fries_nb.operators.state import keeps_state, key_reader
from fries_nb.operators.steps import MOST_ROWS, Apart, Output
from fries_nb.operators.timed_calls import shown_firing
from fries_nb.protocol.messages import WorkerId

Step = Callable[[Row], None]
Refuse = Callable[[Instance, Row, OperatorError], None]
Undo = Callable[[], None]


def is_guarded(operator: Operator) -> bool:
    """Whether the operator's policy is other than to fail the run."""
    return bool(operator.on_error != "fail")


def is_watched(instance: Instance) -> bool:
    """Whether a failing tuple must have no effect, because of the operator's policy or of a change under guard."""
    return is_guarded(instance.operator) or bool(instance.guarded)


class Held:
    """Rows that are held until the function that makes them has returned, so that none is emitted if it fails.

    Under guard at most ``MOST_ROWS`` are held, since their effects on later operators are undone with the tuple.
    """

    def __init__(self, instance: Instance, emits: Sequence[Step], most: float = math.inf) -> None:
        self.emits = [self._holder(emit) for emit in emits]
        self._operator = instance.operator.name
        self._written = instance.written
        self._checks = instance.operator.traits.runs_user_code  # values of tables and lists come from columns
        self._rows: list[tuple[Step, Row]] = []
        self._most = MOST_ROWS if instance.guarded else most
        self._came: Row
        self._before: TypesMark | None = None

    def _holder(self, emit: Step) -> Step:
        def hold(row: Row) -> None:
            rows = self._rows
            rows.append((emit, as_value(row, self._operator) if row.columns.plain < UNWRITTEN else row))
            if len(rows) >= self._most:
                self._before = self._before or self._written.mark()
                self.check()
                self._pass_on()

        return hold

    def begin(self, came: Row) -> None:
        """Start with the next row."""
        self._rows.clear()
        self._came, self._before = came, None

    def check(self) -> None:
        """Check that the held rows can become columns."""
        if self._checks:
            for _, out in self._rows:
                self._written.check(out, self._came)

    def _pass_on(self) -> None:
        for emit, out in self._rows:
            emit(out)
        self._rows.clear()

    def release(self) -> None:
        """Pass on the held rows, since the function has returned."""
        self._pass_on()

    def drop(self) -> None:
        """Discard the held rows, since the function has failed."""
        if self._before is not None:
            self._written.rewind(self._before)


class Leaving(Held):
    """Rows that are held at the end of a chain, where they become batches if there are many."""

    def __init__(self, instance: Instance, outputs: Sequence[Output]) -> None:
        self._apart = [Apart(output) for output in outputs]
        super().__init__(instance, [output.append for output in self._apart], MOST_ROWS)

    def begin(self, came: Row) -> None:
        super().begin(came)
        for output in self._apart:
            output.begin()

    def release(self) -> None:
        super().release()
        for output in self._apart:
            output.join()

    def drop(self) -> None:
        super().drop()
        for output in self._apart:
            output.drop()


def guarded(
    instance: Instance, make: Callable[[Sequence[Step]], Step], held: Held, first: bool, refuse: Refuse
) -> Step:
    """Make a step atomic: a row on which it fails has no effect.

    Raises (the step):
        OperatorError: the function failed, and the policy is not to write dead letters.
    """
    operator, audit = instance.operator.name, instance.audit
    inner, remembered = make(held.emits), remembering(instance)

    def step(row: Row) -> None:
        held.begin(row)
        if audit:
            instance.log.begin_tuple()
        undo = remembered(row)
        own = row.copy()
        try:
            inner(own if first and type(own) is Row else as_value(own, operator))
            held.check()
        except OperatorError as error:
            held.drop()
            undo()
            row.columns.clear()  # lists and dicts in it may have been changed in place
            instance.log.take_back()
            refuse(instance, row, error)
            return
        held.release()

    return step


def refuse_row(instance: Instance, row: Row, error: OperatorError) -> None:
    """Write a dead letter for a row."""
    set_aside(version_of(instance, row.columns.batch, row.index), FailedRow.of_row(row), error)
    if instance.audit:
        instance.log.dropped.append(row.columns.transactions()[row.index])


def refuse_firing(instance: Instance, row: Row, error: OperatorError) -> None:
    """Write a dead letter, with key and time, for what was due; no transaction has begun."""
    set_aside(instance, FailedRow(shown_firing(row), index=row.index), error)


def _no_state() -> None:
    """Does nothing; the undo of an operator without state."""


def remembering(instance: Instance) -> Callable[[Row], Undo]:
    """A function that copies the state of a row's key, and returns a function that restores it."""
    # What the row does to tokens and agenda is undone as well, and first, since the state may refer to tokens.
    remembered, journals = _remembering_state(instance), instance.journals
    if not journals:
        return remembered

    def both(row: Row) -> Undo:
        marks = [journal.mark() for journal in journals]
        undo = remembered(row)

        def undone() -> None:
            for journal, mark in zip(journals, marks, strict=True):
                journal.undo(mark)
            undo()

        return undone

    return both


def _remembering_state(instance: Instance) -> Callable[[Row], Undo]:
    operator = instance.operator
    if not _keeps_state(instance):
        return lambda row: _no_state
    read, states = key_reader(operator.key), instance.state

    def remembered(row: Row) -> Undo:
        try:
            key = canonical_key(read(row))
            state = states.as_held(key)  # a transformation is undone as well
            present = state.get(key)
        except Exception:  # noqa: BLE001 - the function's own access to its state fails as well, and is reported
            return _no_state
        if present is None:
            return lambda: state.drop(key)
        kept = _copied(operator.name, present)
        return lambda: state.put(key, kept())

    return remembered


def _keeps_state(instance: Instance) -> bool:
    return any(keeps_state(instance.operator, one.function) for one in side_by_side(instance))


def _copied(operator: str, state: Any) -> Callable[[], Any]:
    """A function that returns a copy of the state as it is now, once."""
    try:
        pickled = pickle.dumps(state)
        return lambda: pickle.loads(pickled)
    except (pickle.PicklingError, AttributeError, TypeError):  # a class or function defined in the notebook
        pass
    try:
        kept = copy.deepcopy(state)
        return lambda: kept
    except Exception as error:
        raise OperatorError(
            f"the state of {operator} cannot be copied, which on_error needs: {exception_text(error)}", operator
        ) from error


def is_retried(instances: Sequence[Instance]) -> bool:
    """Whether a change of an operator of the chain is under guard."""
    return any(instance.guarded for instance in instances)


class NotUndoneError(OperatorError):
    """A tuple failed under guard and has changed a state that could not be copied."""


Undos = dict[tuple[WorkerId, Any], Undo | None]
"""Operator and key to a function that restores the key's state; ``None`` for a state that was not copied."""


def undoable(instance: Instance, undos: Undos, step: Step) -> Step:
    """The operator's step, extended to copy each key's state before a tuple."""
    worker, operator = instance.worker, instance.operator
    if not _keeps_state(instance):
        return step
    remembered, read = remembering(instance), key_reader(operator.key)

    def kept(row: Row) -> None:
        try:
            met = (worker, canonical_key(read(row)))
            is_new = met not in undos
        except Exception:  # noqa: BLE001 - the function's own access to its state fails as well, and is reported
            is_new = False
        if is_new:
            try:
                undos[met] = remembered(row)
            except OperatorError:
                if is_watched(instance):
                    raise
                undos[met] = None
        step(row)

    return kept


def whole(instances: Sequence[Instance], outputs: Sequence[Apart], undos: Undos, step: Step) -> Step:
    """Make the chain's first step atomic for the whole chain.

    Raises (the step):
        OperatorError: an operator has failed; a ``NotUndoneError`` if the tuple cannot be retried.
    """

    def tried(row: Row) -> None:
        undos.clear()
        for output in outputs:
            output.begin()
        try:
            with rewound(instances):
                step(row.copy())
                for output in outputs:
                    output.join()
        except OperatorError as error:
            for output in outputs:
                output.drop()
            if None in undos.values():
                why = f"{error} (no rollback in place: the state of another operator cannot be copied)"
                raise NotUndoneError(why, error.operator, error.details) from error
            for undo in undos.values():
                assert undo is not None
                undo()
            row.columns.clear()  # lists and dicts in it may have been changed in place
            raise

    return tried


@contextmanager
def rewound(instances: Sequence[Instance]) -> Iterator[None]:
    """Withholds dead letters within the block; if an operator fails, they are dropped and counts are restored."""
    marks = [instance.mark() for instance in instances]
    for instance in instances:
        instance.withheld = []
    try:
        yield
    except OperatorError:
        for instance, mark in zip(instances, marks, strict=True):
            instance.withheld = None
            instance.rewind(mark)
        raise
    for instance in instances:
        letters, instance.withheld = instance.withheld or [], None
        for letter in letters:
            instance.write_letter(letter)
