"""Declaration of the operators that work by the time of rows: windows and reduces.

They need sources with ``time=``. What is above a timed operator is known when it is declared, so a source without a
time, or one whose rows may be late, is found by the call that declares the operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from fries_nb.dataflow.arguments import Columns, columns_of
from fries_nb.dataflow.endpoints import OnError, Sink, checked_sink
from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.dataflow.operators import is_timed
from fries_nb.dataflow.scopes import StreamScope
from fries_nb.dataflow.windowing import EACH_TIME, WindowFunction, Windowing, checked_lateness, checked_windowing
from fries_nb.errors import DataflowError

if TYPE_CHECKING:
    from fries_nb.dataflow.builder import DataflowBuilder
    from fries_nb.dataflow.streams import Stream

LATE = 1
"""The branch of a window or reduce on which late rows leave; results leave on branch 0."""


class TimedStream:
    """The methods of a stream that declare operators that work by the time of its rows."""

    flow: DataflowBuilder

    def window(
        self, name: str, function: Any, windows: Windowing, key: Columns, lateness: float = 0, late: Sink | None = None,
        workers: int | None = None, on_error: OnError | None = None, early: bool = False,
    ) -> Stream:
        """Declare an operator that makes rows of each window of each key, when no row of it can still arrive.

        Args:
            name: name of the operator, unique in the dataflow.
            function: an object with ``process(row, state)``, called for each row of a window, and ``close(key, time,
                state)``, which returns the window's row, an iterable of rows, or ``None``. ``time`` is the end of the
                window: a ``datetime`` if the source's times are timestamps (to the microsecond), otherwise an integer.
                ``initial_state()`` makes the state of a window, by default a dict.
            windows: ``fn.tumbling(size)`` or ``fn.sliding(size, every)``, in seconds or units of the source's integers.
            key: column or columns of the key.
            lateness: how long after its end a window takes rows that come late; if any came, ``close`` is called again
                at that time, and its rows follow as a correction.
            late: the sink ``<name>.late`` of rows all of whose windows are closed.
            workers: number of parallel instances; ``None`` for the run's default.
            on_error: the error policy, see ``map``; a dead letter of ``close`` has the key and the time at
                which its result was due, the last moment of the window.
            early: whether ``process`` returns rows as well, which leave at once, in the transaction of the row.

        Returns:
            The output: rows exactly as ``close`` returns them, so it returns the key where it is needed.

        Raises:
            DataflowError: windows that are empty or leave gaps; no key; a function that lacks ``close``; a lateness
                without ``late``; no source with ``time=`` above; or see ``map``.
        """
        if not isinstance(early, bool):
            raise DataflowError(f"window {name!r} has early={early!r}; expected True or False")
        used = WindowFunction(function, checked_windowing(name, windows), checked_lateness(name, lateness, late), early)
        stream = cast("Stream", self)
        return self.flow._add_timed(Kind.WINDOW, name, stream, used, key, late, workers, on_error)

    def reduce(
        self, name: str, function: Any, key: Columns, late: Sink | None = None, workers: int | None = None,
        on_error: OnError | None = None,
    ) -> Stream:
        """Declare an operator that makes one result of each key and time, and inside a loop of each round.

        Args:
            name: see ``window``.
            function: see ``window``; ``time`` is the time of the rows.
            key: see ``window``.
            late: see ``window``.
            workers: see ``window``.
            on_error: see ``window``.

        Returns:
            The output.

        Raises:
            DataflowError: see ``window``.
        """
        stream = cast("Stream", self)
        used = WindowFunction(function, EACH_TIME)
        return self.flow._add_timed(Kind.REDUCE, name, stream, used, key, late, workers, on_error)


def timed_key(kind: Kind, name: str, key: Columns | None) -> tuple[str, ...]:
    """The key of a window or reduce.

    Raises:
        DataflowError: there is none, or see ``columns_of``.
    """
    if key is None or key == ():
        raise DataflowError(f"{kind} {name!r} has no key, by which its rows are grouped; expected key=<column>")
    return columns_of(name, key)


def checked_late(kind: Kind, name: str, late: object, scope: StreamScope) -> None:
    """Refuse a place for late rows that is no sink, or that would be in a loop.

    Raises:
        DataflowError: it is none, or rows would leave a loop by it.
    """
    if late is not None and scope.level:
        raise DataflowError(
            f"{kind} {name!r} of {scope.described} has late=, and rows leave a loop by its output only; expected a "
            "window in front of the loop to take the late rows, or a source without late="
        )
    if late is not None:
        checked_sink(f"{kind} {name!r} has late=", late)


def check_times(
    operator: Operator, sources: Sequence[Operator], direct: Sequence[Operator], scope: StreamScope
) -> None:
    """Refuse an operator whose rows have no time that it needs, or only some of them, or with no place for late ones.

    Args:
        operator: the new operator.
        sources: the sources, and blocking operators, that its rows come from.
        direct: those of them from which rows come that may be late: not only as results of windows and reduces.
        scope: the loops around it.

    Raises:
        DataflowError: a source above a timed operator has no time; some sources have one and others not; or a source's
            rows may be late and the window has no ``late=``.
    """
    timed = [one for one in sources if one.time is not None]
    untimed = [one for one in sources if one.time is None]
    name = operator.name
    if is_timed(operator) and untimed:
        first = untimed[0]
        what = f"{first.kind} {first.name!r} above it, whose rows have no time"
        if first.blocking:
            raise DataflowError(f"{operator.kind} {name!r} has the {what} any more; expected a stream before it")
        raise DataflowError(f"{operator.kind} {name!r} has the {what}; expected source(..., time=<column>)")
    untimed = [one for one in untimed if not one.blocking]  # what bypasses a blocking operator has no time any more
    if timed and untimed:
        raise DataflowError(
            f"{operator.kind} {name!r} gets rows with a time from {timed[0].name!r} and rows without one from "
            f"{untimed[0].name!r}; expected time= at both sources, or at neither"
        )
    late = [one for one in direct if one.time is not None and one.time.late]
    expected = "late=<sink>, such as late=fn.memory()"
    if scope.level:
        expected = f"a window in front of {scope.described} to take them, since rows leave a loop by its output only"
    if operator.traits.timed and late and operator.branches == 1:
        raise DataflowError(
            f"{operator.kind} {name!r} has no place for rows that come late, and source {late[0].name!r} has late="
            f"{late[0].time.late if late[0].time else 0}; expected {expected}"
        )
