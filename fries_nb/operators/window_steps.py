"""The steps of windows and reduces: rows go into the windows of their key, and windows are closed when they are due.

The state of a key is a dict of its open windows. A window is opened by its first row, with the bounds of the function
that runs then, and keeps them: rows of its span go into it, also after a change to other windows, so that each row is
counted once where windows tumble. The agenda has an entry for its last moment, ``end - 1``; when no row of that time
can arrive any more, ``close`` makes its result, and the window is gone. With a lateness it stays for as long again, and
takes rows that come late; if there were any, ``close`` makes one corrected result.

A row is late if it went into none of its windows, since there is no right any more to produce their results. It leaves
on the branch of late rows, with all of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from sys import getrefcount
from typing import Any

from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.keys import canonical_key, initial_state
from fries_nb.dataflow.windowing import EACH_TIME, WindowFunction, ends_of, ticks
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.audit_log import made_of, transaction_of
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.rows import Columns, Row, detach
from fries_nb.operators.state import Transform, key_reader, transformed
from fries_nb.operators.steps import Behind, Step, own_row
from fries_nb.operators.timed_calls import TimeValues, due_emitter, rows_of, time_values
from fries_nb.progress.times import EARLIEST

Span = tuple[int, ...]
"""A window of a key: its end, the size and the distance of the windows it was opened with, and the rounds."""


@dataclass(slots=True)
class OpenWindow:
    """A window of a key that may still get rows."""

    state: Any  # the user's state
    fired: bool = False  # whether its first result was made, so that it waits for late rows
    added: bool = False  # whether rows came since


Windows = dict[Span, OpenWindow]


@dataclass(frozen=True)
class EachWindow:
    """A transformation of the state of a window, applied to all open windows of a key."""

    transform: Transform

    def __call__(self, windows: Windows) -> Windows:
        """The same windows with the new states."""
        return {
            span: replace(window, state=transformed(window.state, (self.transform,)))
            for span, window in windows.items()
        }


class _Bounds:
    """The windows and the lateness of a function, in the unit of the times that have come."""

    def __init__(self, instance: Instance) -> None:
        self._function: WindowFunction = instance.function
        self._columns: Columns | None = None
        self.size = self.every = self.lateness = 0
        self.values: TimeValues

    def of(self, columns: Columns) -> _Bounds:
        """The bounds for rows of this batch."""
        if columns is not self._columns:
            self._columns, function = columns, self._function
            assert function.windowing is not None, "the windows were taken over when the function was installed"
            self.values = time_values(columns.batch.schema.field(TIME).type)
            self.size, self.every = function.windowing.bounds(self.values.is_timestamp)
            self.lateness = ticks(function.lateness, self.values.is_timestamp)
        return self

    def spans(self, windows: Windows, t: int, rounds: tuple[int, ...], mixed: bool) -> list[Span]:
        """The windows that a time is in: open ones of an earlier function, otherwise those of this one."""
        size, every = self.size, self.every
        if mixed:
            before = [
                span for span in windows
                if span[1:3] != (size, every) and span[0] - span[1] <= t < span[0] and span[3:] == rounds
            ]  # fmt: skip
            if before:
                return sorted(before)
        return [(end, size, every, *rounds) for end in ends_of(t, size, every)]


def window_step(instance: Instance, behind: Behind) -> Step:
    """Puts a row into its windows; emits what ``process`` returns early, and late rows on their branch."""
    emits, take = behind.valued(instance), _taker(instance)
    early, late = _early_emitter(instance, emits[0]), late_emitter(instance, emits)
    process, made = instance.function.process, made_of(instance)
    state, read, find = instance.state, key_reader(instance.operator.key), instance.state.find

    def step(row: Row) -> None:
        count = 0
        try:
            key = canonical_key(read(row))
            windows: Windows = find(key) or state.touch(key)
            taken = take(row, key, windows)
        except FAILURES as error:
            raise failure(instance, error) from error
        if not taken:
            if not windows:
                state.drop(key)
            late(row)
            return
        for window in taken:
            own = row.copy() if len(taken) > 1 else row  # what one window changes or keeps is not that of the others
            held = getrefcount(own)
            try:
                result = process(own, window.state)
            except FAILURES as error:
                raise failure(instance, error) from error
            window.added = window.fired
            if result is not None:
                count += early(own, result)
                result = None
            if getrefcount(own) > held:
                left = detach(own)
                row = left if own is row else row
        if made is not None:
            made(row, count)

    return step


def _early_emitter(instance: Instance, emit: Step) -> Callable[[Row, Any], int]:
    """Emits what ``process`` has returned for a row, and returns how many rows it was."""
    name, is_early = instance.worker.operator, instance.function.early

    def early(row: Row, result: Any) -> int:
        if not is_early:
            how = "a window that returns rows before it is closed is declared with early=True"
            if instance.function.windowing == EACH_TIME:
                how = "a reduce returns rows from close only; fn.tumbling windows may return some early"
            raise DeclarationError(f"{name} returned {type(result).__name__} from process; {how}", name)
        count = 0
        for out in rows_of(instance, result):
            emit(own_row(out, row, name))
            count += 1
        return count

    return early


def _taker(instance: Instance) -> Callable[[Row, Any, Windows], list[OpenWindow]]:
    """A function that returns the windows that take a row, and opens those that are not open."""
    bounds, agenda, name = _Bounds(instance), instance.agenda, instance.worker.operator
    function = instance.function.function
    assert agenda is not None, "windows are timed"

    def opened(key: Any, windows: Windows, span: Span, lateness: int) -> OpenWindow | None:
        last = span[0] - 1
        is_on_time = agenda.may_call(last, key)
        if not is_on_time and not (lateness and agenda.may_call(last + lateness, key)):
            return None
        agenda.call(last if is_on_time else last + lateness, key)
        windows[span] = window = OpenWindow(initial_state(name, function), fired=not is_on_time)
        return window

    def take(row: Row, key: Any, windows: Windows) -> list[OpenWindow]:
        columns, found = row.columns, []
        own, t = bounds.of(columns), columns.times()[row.index]
        for span in own.spans(windows, t, agenda.stamp[2:], instance.rewindowed):
            window = windows.get(span) or opened(key, windows, span, own.lateness)
            if window is not None:
                found.append(window)
        return found

    return take


def late_emitter(instance: Instance, emits: Any) -> Step:
    """Emits a late row; an error if there is no branch for it."""
    name, audit = instance.worker.operator, instance.audit

    def late(row: Row) -> None:
        if len(emits) == 1:
            raise OperatorError(
                f"{name} failed on a tuple: its time is earlier than all rows that can still be counted; declare where "
                "such rows go, as in late=fn.memory()",
                name,
            )
        if audit:
            instance.log.emitted(transaction_of(row), -1)
            instance.log.emitted(transaction_of(row), 1, 1)
        emits[1](row)

    return late


def close_step(instance: Instance, behind: Behind) -> Step:
    """Emits the results of the windows of a key that are due."""
    emit_all, due = due_emitter(instance, behind.valued(instance)[0]), _due_windows(instance)
    close, values = instance.function.function.close, _Bounds(instance)
    shift = 1 if instance.function.windowing == EACH_TIME else 0
    read = key_reader(instance.operator.key)

    def results(row: Row) -> Iterator[tuple[int, dict[str, Any]]]:
        columns = row.columns
        t, key, shown = columns.times()[row.index], read(row), values.of(columns).values.shown
        for span, window in due(row):
            if window.fired and not window.added:
                continue
            try:
                result = close(key, shown(span[0] - shift), window.state)
            except FAILURES as error:
                raise failure(instance, error) from error
            for out in (result,) if type(result) is dict else rows_of(instance, result):
                yield t, out

    return lambda row: emit_all(row, results(row))


def retire_step(instance: Instance) -> Step:
    """Removes the windows that were due; one with a lateness stays for late rows after its first result."""
    state, due, bounds = instance.state, _due_windows(instance), _Bounds(instance)
    read, agenda = key_reader(instance.operator.key), instance.agenda
    assert agenda is not None, "windows are timed"

    def step(row: Row) -> None:
        key, lateness = canonical_key(read(row)), bounds.of(row.columns).lateness
        windows: Windows = state.get(key) or {}
        for span, window in due(row):
            if lateness and not window.fired:
                window.fired = True
                agenda.call(span[0] - 1 + lateness, key)
            else:
                del windows[span]
        if not windows:
            state.drop(key)

    return step


def call_for_all(instance: Instance) -> None:
    """In a trial, make entries for all open windows, since copies of states come without any."""
    agenda = instance.agenda
    assert agenda is not None, "windows are timed"
    for key, windows in instance.state.live.items():
        for span, window in windows.items():
            window.fired = False
            agenda.begin((0, EARLIEST, *span[3:]))
            agenda.call(span[0] - 1, key)


def _due_windows(instance: Instance) -> Callable[[Row], list[tuple[Span, OpenWindow]]]:
    """A function that returns the windows that a row of a firing is for, by their ends."""
    touch, find, bounds = instance.state.touch, instance.state.find, _Bounds(instance)
    read, agenda = key_reader(instance.operator.key), instance.agenda
    assert agenda is not None, "windows are timed"

    def due(row: Row) -> list[tuple[Span, OpenWindow]]:
        columns, key = row.columns, canonical_key(read(row))
        lateness, t, rounds = bounds.of(columns).lateness, columns.times()[row.index], agenda.stamp[2:]
        windows: Windows = find(key) or touch(key)
        found = [
            item for item in windows.items()
            if item[0][0] - 1 + (lateness if item[1].fired else 0) == t and item[0][3:] == rounds
        ]  # fmt: skip
        return found if len(found) < 2 else sorted(found, key=_by_span)

    return due


def _by_span(one: tuple[Span, OpenWindow]) -> Span:
    return one[0]
