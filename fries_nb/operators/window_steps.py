"""The steps of windows and reduces: rows go into the windows of their key, and windows are closed when they are due.

The state of a key is a dict of its open windows. A window is opened by its first row, with the bounds of the function
that runs then, and keeps them: rows of its span go into it, also after a change to other windows, so that each row is
counted once where windows tumble. The agenda has an entry for its last moment, ``end - 1``; when no row of that time
can arrive any more, ``close`` makes its result, and the window is gone. With a lateness it stays for as long again, and
takes rows that come late; if there were any, ``close`` makes one corrected result.

The end of a session moves as rows come; its entry stays where it was made. When that fires, and the session is still
open, there is a new one for the end of then: so each open session always has one within it, however often it is
extended. Each row keeps the gap under which it came, so a change to another gap changes no session that is open, but
what later rows add to it.

A row is late if it went into none of its windows, since there is no right any more to produce their results. It leaves
on the branch of late rows, with all of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from sys import getrefcount
from typing import Any, Self

from fries_nb.dataflow.calendars import DAYS, MONTHS, Calendar
from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.keys import canonical_key, initial_state, why_unchangeable
from fries_nb.dataflow.windowing import (
    DAY_S,
    EACH_TIME,
    AnyWindowing,
    DayWindowing,
    MonthWindowing,
    SessionWindowing,
    ShiftedWindowing,
    WindowFunction,
    Windowing,
    ends_of,
    ticks,
)
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.audit_log import made_of, transaction_of
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.rows import Columns, Row, detach
from fries_nb.operators.state import Transform, key_reader, transformed
from fries_nb.operators.steps import Behind, Step, own_row
from fries_nb.operators.timed_calls import TimeValues, due_emitter, rows_of, time_values
from fries_nb.progress.times import EARLIEST

Span = tuple[int, ...]
"""A window of a key: its end, the size and the distance of the windows it was opened with, and the rounds.

That of a session: the moment after the last at which a row would be in it, its length so far, 0, and the rounds. That
of a window by count: the rows that it still takes, all of its rows, and minus the rows between two windows.
"""


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
        self._name = instance.worker.operator
        self._columns: Columns | None = None
        self.size = self.every = self.lateness = 0
        self.values: TimeValues

    def of(self, columns: Columns) -> Self:
        """The bounds for rows of this batch."""
        if columns is not self._columns:
            self._columns, function = columns, self._function
            assert function.windowing is not None, "the windows were taken over when the function was installed"
            self.values = time_values(columns.batch.schema.field(TIME).type)
            self.lateness = ticks(function.lateness, self.values.is_timestamp)
            self._measure(function.windowing)
        return self

    def _measure(self, windowing: AnyWindowing) -> None:
        assert isinstance(windowing, Windowing)
        self.size, self.every = windowing.bounds(self.values.is_timestamp)

    def spans(self, windows: Windows, t: int, rounds: tuple[int, ...], mixed: bool) -> list[Span]:
        """The windows that a time is in: open ones of an earlier function, otherwise those of this one."""
        size, every = self.size, self.every
        own: list[Span] = [(end, size, every, *rounds) for end in ends_of(t, size, every)]
        return (_opened_before(windows, t, rounds, own) or own) if mixed else own


def _opened_before(windows: Windows, t: int, rounds: tuple[int, ...], own: Collection[Span] = ()) -> list[Span]:
    """The open windows that a time is in and that are not those of the function that runs now."""
    return sorted(
        span for span in windows if span[0] - span[1] <= t < span[0] and span[3:] == rounds and span not in own
    )


class _ShiftedBounds(_Bounds):
    """Windows with an offset."""

    def _measure(self, windowing: AnyWindowing) -> None:
        super()._measure(windowing)
        assert isinstance(windowing, ShiftedWindowing)
        self._shift = windowing.shift(self.values.is_timestamp)

    def spans(self, windows: Windows, t: int, rounds: tuple[int, ...], mixed: bool) -> list[Span]:
        size, every, shift = self.size, self.every, self._shift
        own: list[Span] = [(end + shift, size, every, *rounds) for end in ends_of(t - shift, size, every)]
        return (_opened_before(windows, t, rounds, own) or own) if mixed else own


class _CalendarBounds(_Bounds):
    """Windows of days or months, of which each has a length of its own."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        windowing = instance.function.windowing
        self._zone: str | None = windowing.timezone
        self._found: list[tuple[int, int, int]] = []
        self._begin = self._end = 0  # of the day or month for which they were found
        if isinstance(windowing, MonthWindowing):
            self._calendar, self._units = Calendar(MONTHS, windowing.timezone), (windowing.size, windowing.size)
        else:
            self._calendar = Calendar(DAYS, windowing.timezone, windowing.offset)
            self._units = int(windowing.size) // DAY_S, int(windowing.every) // DAY_S

    def _measure(self, windowing: AnyWindowing) -> None:
        what = f"windows of {self._calendar.unit}" + (f" in timezone {self._zone!r}" if self._zone else "")
        if not self.values.is_timestamp:
            raise OperatorError(
                f"{self._name} has {what} and gets times that are integers; expected timestamps, or windows without a "
                "calendar",
                self._name,
            )
        if self._zone and not self.values.is_zoned:
            raise OperatorError(
                f"{self._name} has {what} and gets times without a time zone, which are in none; expected timestamps "
                "with a time zone, or windows without timezone=",
                self._name,
            )

    def spans(self, windows: Windows, t: int, rounds: tuple[int, ...], mixed: bool) -> list[Span]:
        if not self._begin <= t < self._end:
            self._find(t)
        own: list[Span] = [(*found, *rounds) for found in self._found]
        return (_opened_before(windows, t, rounds, own) or own) if mixed else own

    def _find(self, t: int) -> None:
        """Find the windows of a day or month, since most rows are of that of the row before."""
        begin, (size, every) = self._calendar.begin, self._units
        number = self._calendar.number(t)
        self._begin, self._end = begin(number), begin(number + 1)
        ends = [(begin(end - size), begin(end)) for end in ends_of(number, size, every)]
        self._found = [(end, end - start, end - start) for start, end in ends]


class _SessionBounds(_Bounds):
    """Sessions."""

    def _measure(self, windowing: AnyWindowing) -> None:
        assert isinstance(windowing, SessionWindowing)
        is_timestamp = self.values.is_timestamp
        self._windowing, self._gap = windowing, max(1, ticks(windowing.gap, is_timestamp))
        self._longest = 0 if windowing.longest is None else max(1, ticks(windowing.longest, is_timestamp))

    def session(self, t: int, rounds: tuple[int, ...]) -> Span:
        """The session that a row would be alone in."""
        start, end = self._windowing.extent(t, self._gap, self._longest)
        return (end, end - start, 0, *rounds)


def _bounds_of(instance: Instance) -> _Bounds:
    windowing = instance.function.windowing
    if isinstance(windowing, SessionWindowing):
        return _SessionBounds(instance)
    if isinstance(windowing, DayWindowing | MonthWindowing):
        return _CalendarBounds(instance)
    return _ShiftedBounds(instance) if isinstance(windowing, ShiftedWindowing) else _Bounds(instance)


def window_step(instance: Instance, behind: Behind) -> Step:
    """Puts a row into its windows; emits what ``process`` returns early, and late rows on their branch."""
    is_session = isinstance(instance.function.windowing, SessionWindowing)
    emits, take = behind.valued(instance), _session_taker(instance) if is_session else _taker(instance)
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
    bounds, agenda, opened = _bounds_of(instance), instance.agenda, _opener(instance)
    assert agenda is not None, "windows are timed"

    def take(row: Row, key: Any, windows: Windows) -> list[OpenWindow]:
        columns, found = row.columns, []
        own, t = bounds.of(columns), columns.times()[row.index]
        for span in own.spans(windows, t, agenda.stamp[2:], instance.rewindowed):
            window = windows.get(span) or opened(key, windows, span, own.lateness)
            if window is not None:
                found.append(window)
        return found

    return take


def _opener(instance: Instance) -> Callable[[Any, Windows, Span, int], OpenWindow | None]:
    """A function that opens a window of a key; ``None`` if there is no right any more to produce its result."""
    agenda, name, function = instance.agenda, instance.worker.operator, instance.function.function
    assert agenda is not None, "windows are timed"

    def opened(key: Any, windows: Windows, span: Span, lateness: int) -> OpenWindow | None:
        last = span[0] - 1
        is_on_time = agenda.may_call(last, key)
        if not is_on_time and not (lateness and agenda.may_call(last + lateness, key)):
            return None
        agenda.call(last if is_on_time else last + lateness, key)
        windows[span] = window = OpenWindow(initial_state(name, function), fired=not is_on_time)
        return window

    return opened


def _session_taker(instance: Instance) -> Callable[[Row, Any, Windows], list[OpenWindow]]:
    """A function that returns the session that takes a row, opened, extended or made of several as is needed."""
    bounds, agenda, opened = _bounds_of(instance), instance.agenda, _opener(instance)
    assert agenda is not None, "windows are timed"
    assert isinstance(bounds, _SessionBounds)
    merged = _merger(instance)

    def take(row: Row, key: Any, windows: Windows) -> list[OpenWindow]:
        columns, rounds = row.columns, agenda.stamp[2:]
        own, t = bounds.of(columns), columns.times()[row.index]
        if instance.rewindowed:
            before = [span for span in _opened_before(windows, t, rounds) if span[2]]
            if before:
                return [windows[span] for span in before]
        alone = own.session(t, rounds)
        end = alone[0]
        met = [span for span in windows if not span[2] and t < span[0] and span[0] - span[1] < end]
        met = [span for span in met if span[3:] == rounds] if rounds else met
        if not met:
            window = opened(key, windows, alone, own.lateness)
            return [] if window is None else [window]
        if len(met) == 1 and met[0][0] >= end and met[0][0] - met[0][1] <= t:
            return [windows[met[0]]]
        return [merged(key, windows, met, alone, own.lateness)]

    return take


def _merger(instance: Instance) -> Callable[[Any, Windows, list[Span], Span, int], OpenWindow]:
    """A function that makes one session of those that a row is in, and of what the row would be alone in."""
    agenda, name = instance.agenda, instance.worker.operator
    assert agenda is not None, "windows are timed"
    merge = instance.function.function.merge

    def merged(key: Any, windows: Windows, met: list[Span], alone: Span, lateness: int) -> OpenWindow:
        met.sort(key=_start_of)
        parts = [windows[span] for span in met]
        state = parts[0].state
        for part in parts[1:]:
            result = merge(state, part.state)
            state = state if result is None else result
            if why := why_unchangeable(state):
                raise OperatorError(f"{name}: its merge() returned {why}", name)
        end = max(alone[0], *(span[0] for span in met))
        start = min(alone[0] - alone[1], _start_of(met[0]))
        fired = all(part.fired for part in parts)
        if fired:  # a late row has changed when it ends: it is closed again, as one session
            is_on_time = agenda.may_call(end - 1, key)
            agenda.call(end - 1 if is_on_time else end - 1 + lateness, key)
            fired = not is_on_time
        for span in met:
            del windows[span]
        windows[end, end - start, 0, *alone[3:]] = window = OpenWindow(state, fired)
        return window

    return merged


def _start_of(span: Span) -> int:
    return span[0] - span[1]


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
    close, values = instance.function.function.close, _bounds_of(instance)
    is_reduce = instance.function.windowing == EACH_TIME
    read = key_reader(instance.operator.key)

    def results(row: Row) -> Iterator[tuple[int, dict[str, Any]]]:
        columns = row.columns
        t, key, shown = columns.times()[row.index], read(row), values.of(columns).values.shown
        for span, window in due(row):
            if window.fired and not window.added:
                continue
            try:
                end = span[0] - 1 if is_reduce or not span[2] else span[0]
                result = close(key, shown(end), window.state)
            except FAILURES as error:
                raise failure(instance, error) from error
            for out in (result,) if type(result) is dict else rows_of(instance, result):
                yield t, out

    return lambda row: emit_all(row, results(row))


def retire_step(instance: Instance) -> Step:
    """Removes the windows that were due; one with a lateness stays for late rows after its first result."""
    state, due, bounds = instance.state, _due_windows(instance), _bounds_of(instance)
    is_session = isinstance(instance.function.windowing, SessionWindowing)
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
        elif is_session or instance.rewindowed:
            for span, window in windows.items():
                if not span[2] and span[3:] == agenda.stamp[2:]:
                    call_again(row, key, span, lateness if window.fired else 0)

    def call_again(row: Row, key: Any, span: Span, lateness: int) -> None:
        """Make an entry for the end of a session that had one at the time of this row, and has been extended since."""
        t, last = row.columns.times()[row.index], span[0] - 1 + lateness
        if _start_of(span) <= t < last:
            agenda.call(last, key)

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
    touch, find, bounds = instance.state.touch, instance.state.find, _bounds_of(instance)
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
