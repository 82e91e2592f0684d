"""Windows by count: the rows of a key in the order in which they come, so many in each window.

The state of a key is a dict of its open windows, as that of windows by time is, so that a change transforms each of
them, and a state is shown by window. A window is opened with the numbers of the function that runs then, and keeps
them; the next one begins when it has had as many rows as are between two of them. It is closed by the row that fills
it, so nothing here waits for a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import getrefcount

from fries_nb.dataflow.keys import canonical_key, initial_state
from fries_nb.dataflow.windowing import CountWindowing
from fries_nb.errors import DeclarationError
from fries_nb.operators.audit_log import made_of
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.rows import Row, detach
from fries_nb.operators.state import key_reader
from fries_nb.operators.steps import Behind, Step, own_row
from fries_nb.operators.timed_calls import rows_of
from fries_nb.operators.window_steps import OpenWindow, Span, Windows


def count_step(instance: Instance, behind: Behind) -> Step:
    """Puts a row into the windows of its key, and emits the results of those that it fills."""
    emit, made, name = behind.valued(instance)[0], made_of(instance), instance.worker.operator
    put, open_next, close = _putter(instance), _opener(instance), instance.function.function.close
    state, read, find = instance.state, key_reader(instance.operator.key), instance.state.find

    def results(row: Row) -> Iterator[Row]:
        try:
            given = read(row)
            key = canonical_key(given)
            windows: Windows = find(key) or state.touch(key)
            open_next(windows)
            row = put(row, windows)
            for span, window in _counted(windows):
                for out in rows_of(instance, close(given, span[1], window.state)):
                    yield own_row(out, row, name)
            if not windows:
                state.drop(key)
        except DeclarationError:
            raise
        except FAILURES as error:
            raise failure(instance, error) from error

    def step(row: Row) -> None:
        count = 0
        for out in results(row):
            emit(out)
            count += 1
        if made is not None:
            made(row, count)

    return step


def _putter(instance: Instance) -> Callable[[Row, Windows], Row]:
    """A function that processes a row in each window; returns it, or its values if the function keeps it."""
    process, name = instance.function.process, instance.worker.operator

    def put(row: Row, windows: Windows) -> Row:
        for window in windows.values():
            own = row.copy() if len(windows) > 1 else row
            held = getrefcount(own)
            if (result := process(own, window.state)) is not None:
                raise DeclarationError(
                    f"{name} returned {type(result).__name__} from process; a window by count returns its rows from "
                    "close, when it is full",
                    name,
                )
            if getrefcount(own) > held:
                left = detach(own)
                row = left if own is row else row
        return row

    return put


def _opener(instance: Instance) -> Callable[[Windows], None]:
    """A function that opens a window if one begins with the next row of a key."""
    name, function, windowing = instance.worker.operator, instance.function.function, instance.function.windowing
    assert isinstance(windowing, CountWindowing)
    whole = (windowing.rows, windowing.rows, -windowing.every)

    def open_next(windows: Windows) -> None:
        if windows:
            left, rows, every = next(reversed(windows))
            if rows - left < -every:
                return
        windows[whole] = OpenWindow(initial_state(name, function))

    return open_next


def _counted(windows: Windows) -> list[tuple[Span, OpenWindow]]:
    """Count a row in each window; returns those that are full, which are no longer open."""
    counted = [((left - 1, rows, every), window) for (left, rows, every), window in windows.items()]
    windows.clear()
    windows.update(item for item in counted if item[0][0])
    return [item for item in counted if not item[0][0]]
