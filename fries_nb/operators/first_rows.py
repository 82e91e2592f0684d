"""The first row of each key within a time: the operator of ``stream.dedup(..., within=...)``.

A row passes if no row of its key has passed whose time is at most ``within`` away from its own, before or after. Rows
that do not pass count for nothing, so the time counts from the row that has. What has passed is remembered until no row
can come for which it counts; by then no memory is left of a silent key, and of a busy one only of the time around the
frontier. A row that is so late that what it would have to be compared with may be forgotten is not guessed at: it
leaves on the branch of late rows, unless what is still remembered says that it is not the first.
"""

from __future__ import annotations

from collections.abc import Callable

from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.windowing import ticks
from fries_nb.operators.audit_log import dropped_of
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.rows import Columns, Row
from fries_nb.operators.state import key_reader
from fries_nb.operators.steps import Behind
from fries_nb.operators.timed_calls import time_values
from fries_nb.operators.window_steps import late_emitter

Step = Callable[[Row], None]


class PassedTimes(dict[int, int]):
    """The state of a key: the time of each row that has passed, and the last time of rows for which it counts."""

    def has(self, t: int, within: int) -> bool:
        """Whether a row has passed that is at most so far away from this time.

        >>> PassedTimes({10: 15}).has(15, within=5), PassedTimes({10: 15}).has(4, within=5)
        (True, False)
        """
        return any(first - within <= t <= last for first, last in self.items())


def first_step(instance: Instance, behind: Behind) -> Step:
    """Emits the row if it is the first of its key within the time; on their branch late ones that cannot be decided."""
    emits, agenda, duration = behind.valued(instance), instance.agenda, instance.function
    emit, late, dropped = emits[0], late_emitter(instance, emits), dropped_of(instance)
    state, read = instance.state, key_reader(instance.operator.key)
    known: Columns | None = None
    within = 0
    assert agenda is not None, "the operator is timed"

    def step(row: Row) -> None:
        nonlocal known, within
        if row.columns is not known:
            known = row.columns
            within = ticks(duration, time_values(known.batch.schema.field(TIME).type).is_timestamp)
        t = known.times()[row.index]
        try:
            key = canonical_key(read(row))
            passed: PassedTimes | None = state.get(key)
            is_first = passed is None or not passed.has(t, within)
            is_decided = not is_first or agenda.may_call(t, key)
            if is_first and is_decided:
                agenda.call(t + within, key)
                state.put(key, PassedTimes({**(passed or {}), t: t + within}))
        except FAILURES as error:
            raise failure(instance, error) from error
        if not is_decided:
            late(row)
        elif is_first:
            emit(row)
        elif dropped is not None:
            dropped(row.columns.transactions()[row.index])

    return step


def fade_step(instance: Instance, behind: Behind) -> Step:
    """Forgets what has passed and counts for no row any more; emits nothing."""
    state, read = instance.state, key_reader(instance.operator.key)

    def step(row: Row) -> None:
        key, t = read(row), row.columns.times()[row.index]
        left = PassedTimes({first: last for first, last in (state.get(key) or {}).items() if last > t})
        if left:
            state.put(key, left)
        else:
            state.drop(key)

    return step
