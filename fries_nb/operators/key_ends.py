"""Keys that end: what an operator with ``ttl=`` does for a row, and for a key for which none has come for so long.

The state of a key is the user's own; the end of the key is its entry in the operator's agenda, which each row puts off.
A key that has ended is forgotten whatever ``on_expire`` has made of it, also if it has failed on it: its dead letter
says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.keys import canonical_key
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.rows import Columns, Row
from fries_nb.operators.state import key_reader
from fries_nb.operators.timed_calls import due_emitter, due_step, rows_of, state_of_row, time_values

if TYPE_CHECKING:
    from fries_nb.operators.steps import Behind


def renewing_call(instance: Instance) -> Callable[[Row], Any]:
    """The current function of an operator with ``ttl=`` as a function of a row, which puts off the end of its key."""
    expiring: Expiring = instance.function
    process, begin, agenda = expiring.process, state_of_row(instance), instance.agenda
    known: Columns | None = None
    lasts = 0
    assert agenda is not None, "the operator is timed"

    def call(row: Row) -> Any:
        nonlocal known, lasts
        key, state = begin(row)
        if row.columns is not known:
            known = row.columns
            lasts = expiring.lasts(time_values(known.batch.schema.field(TIME).type).is_timestamp)
        # A row that came late cannot end its key before now.
        agenda.call(max(known.times()[row.index] + lasts, agenda.stamp[1]), canonical_key(key))
        return process(row, state)

    return call


def due_or_end_step(instance: Instance, behind: Behind) -> Callable[[Row], None]:
    """Emits what the function makes for a key whose time has passed: that of ``due``, or of ``on_expire``."""
    return _end_step(instance, behind) if isinstance(instance.function, Expiring) else due_step(instance, behind)


def _end_step(instance: Instance, behind: Behind) -> Callable[[Row], None]:
    emit_all = due_emitter(instance, behind.valued(instance)[0])
    ended = getattr(instance.function.function, "on_expire", None)
    read, get = key_reader(instance.operator.key), instance.state.get

    def step(row: Row) -> None:
        if ended is None:
            return
        key, t = read(row), row.columns.times()[row.index]
        try:
            result = ended(key, get(key))
        except FAILURES as error:
            raise failure(instance, error) from error
        emit_all(row, ((t, out) for out in rows_of(instance, result)))

    return step


def forget_step(instance: Instance) -> Callable[[Row], None] | None:
    """Forgets the state of a key that has ended; ``None`` for an operator whose keys do not end."""
    if not isinstance(instance.function, Expiring):
        return None
    read, drop = key_reader(instance.operator.key), instance.state.drop
    return lambda row: drop(read(row))
