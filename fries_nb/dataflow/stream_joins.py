"""Declaration of joins of two streams by the time of their rows.

Both sides need sources with ``time=``. State is bounded by the bounds of the join: a row is kept until no row can come
any more that it could be joined with.

>>> from fries_nb.dataflow.builder import DataflowBuilder
>>> from fries_nb.dataflow.endpoints import rate
>>> flow = DataflowBuilder("auctions")
>>> bids, auctions = flow.source("bids", rate(100), time="at"), flow.source("auctions", rate(1), time="at")
>>> bids.join_within("J", auctions, on="auction", before=3_600)
Stream('J')
>>> [str(edge.partitioning) for edge in flow.graph().in_edges("J")]
['hash', 'hash']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from fries_nb.dataflow.arguments import Columns, needed_columns
from fries_nb.dataflow.endpoints import OnError, Sink
from fries_nb.dataflow.join_bounds import (
    HOWS,
    Bounds,
    Latest,
    StreamJoin,
    Within,
    check_sides,
    checked_bounds,
    checked_how,
    checked_suffixes,
)
from fries_nb.dataflow.traits import Kind
from fries_nb.dataflow.windowing import AnyWindowing, Windowing
from fries_nb.errors import DataflowError

if TYPE_CHECKING:
    from fries_nb.dataflow.builder import DataflowBuilder
    from fries_nb.dataflow.streams import Stream


class JoinedStream:
    """The methods of a stream that declare joins with another stream, by the time of rows."""

    flow: DataflowBuilder

    def join_within(
        self, name: str, right: Stream, on: Columns, before: float = 0, after: float = 0, how: str = "inner",
        suffixes: tuple[str, str] = ("_x", "_y"), late: Sink | None = None, function: Any = None,
        workers: int | None = None, on_error: OnError | None = None,
    ) -> Stream:
        """Declare a join of rows of equal keys whose times are close: of ``right`` from ``before`` to ``after``.

        A pair leaves when its second row comes, with the later one of both times. A row is kept until no partner can
        come any more; then it leaves if ``how`` says so and it has found none, with that last moment as its time.

        Args:
            name: name of the operator, unique in the dataflow.
            right: the other stream.
            on: column or columns that are equal in both rows, of the same type in both streams. Null equals nothing.
            before: how much earlier than the row of this stream one of ``right`` may be: seconds if the sources' times
                are timestamps, otherwise units of their integers.
            after: how much later it may be.
            how: what leaves besides pairs: rows without partner of this stream (``"left"``), of ``right``, of both
                (``"full"``), or none (``"inner"``). The other row's columns are null, if they are known by then.
            suffixes: what is appended to the names of columns that both have, of this stream and of ``right``. If rows
                without partner leave, these columns have to be known when the join is declared, as those of tables.
            late: the sink ``<name>.late`` of rows that come when their time is past.
            function: makes the output rows of a pair, instead of the columns of both: ``function(left, right)`` gets
                the two rows (dicts), one of which is ``None`` for a row without partner, and returns a row, an iterable
                of rows, or ``None``. With ``run.reconfigure`` it can be replaced, and the bounds with
                ``fn.Update(function, windows=fn.within(...))``; a pair is judged by the bounds under which the first of
                its rows came.
            workers: number of parallel instances; ``None`` for the run's default.
            on_error: the error policy for rows on which ``function`` fails, see ``map``.

        Returns:
            The output.

        Raises:
            DataflowError: a bound is negative, infinite or no number; a source above has no ``time=``, or late rows
                and the join no ``late``; the types of a key differ, or two columns would have one name, as far as
                columns are known; both streams are outputs of one operator; or see ``map``.
        """
        given = name, right, on, how, suffixes, late, function, workers, on_error
        return self._joined(Kind.JOIN_WITHIN, Within(before, after), HOWS, *given)

    def join_latest(
        self, name: str, right: Stream, on: Columns, tolerance: float | None = None, how: str = "inner",
        suffixes: tuple[str, str] = ("_x", "_y"), late: Sink | None = None, function: Any = None,
        workers: int | None = None, on_error: OnError | None = None,
    ) -> Stream:
        """Declare a join of each row with the newest row of ``right`` of the same key that is not later than it.

        A row leaves when no earlier row of ``right`` can come any more, with its own time. Of several rows of
        ``right`` with the same time the greatest counts, by the values of their columns in the order of the columns'
        names; null is less than any value. One row of ``right`` is kept of each key, besides those that are newer than
        what can still come, and with a tolerance none that is older than that.

        Args:
            name: see ``join_within``.
            right: the other stream.
            on: see ``join_within``.
            tolerance: how much older the row of ``right`` may be; ``None`` for any age. After it was replaced, the
                newest row has to be within the tolerances under which both rows came.
            how: ``"inner"`` drops rows of this stream without such a row, ``"left"`` keeps them.
            suffixes: see ``join_within``.
            late: see ``join_within``.
            function: see ``join_within``; the new tolerance is ``fn.latest(...)``.
            workers: see ``join_within``.
            on_error: see ``join_within``.

        Returns:
            The output.

        Raises:
            DataflowError: see ``join_within``.
        """
        given = name, right, on, how, suffixes, late, function, workers, on_error
        return self._joined(Kind.JOIN_LATEST, Latest(tolerance), ("inner", "left"), *given)

    def join_window(
        self, name: str, right: Stream, on: Columns, windows: AnyWindowing, how: str = "inner",
        suffixes: tuple[str, str] = ("_x", "_y"), late: Sink | None = None, function: Any = None,
        workers: int | None = None, on_error: OnError | None = None,
    ) -> Stream:
        """Declare a join of all rows of equal keys whose times are in the same window.

        If windows overlap, a pair leaves once for each window that both rows are in, and a row without partner once
        for each window in which it has found none. Times are those of ``join_within``.

        Args:
            name: see ``join_within``.
            right: the other stream.
            on: see ``join_within``.
            windows: ``fn.tumbling(size)`` or ``fn.sliding(size, every)``.
            how: see ``join_within``.
            suffixes: see ``join_within``.
            late: see ``join_within``.
            function: see ``join_within``; new windows are given as those of a window.
            workers: see ``join_within``.
            on_error: see ``join_within``.

        Returns:
            The output.

        Raises:
            DataflowError: windows that are empty or leave gaps; or see ``join_within``.
        """
        given = name, right, on, how, suffixes, late, function, workers, on_error
        return self._joined(Kind.JOIN_WINDOW, windows, HOWS, *given)

    def _joined(
        self, kind: Kind, given: Bounds | AnyWindowing, hows: tuple[str, ...], name: str, right: Stream, on: Columns,
        how: str, suffixes: tuple[str, str], late: Sink | None, function: Any, workers: int | None,
        on_error: OnError | None,
    ) -> Stream:
        left, key = cast("Stream", self), needed_columns(kind, name, on)
        bounds = checked_bounds(name, given, _TYPES[kind])
        known = [self._columns(name, kind, stream, key) for stream in (left, right)]
        join = StreamJoin(
            function, bounds, early=kind is not Kind.JOIN_LATEST, how=checked_how(name, how, hows),
            suffixes=checked_suffixes(name, suffixes), left=known[0], right=known[1],
        )  # fmt: skip
        if known[0] is not None and known[1] is not None:
            check_sides(name, join, known[0], known[1], key)
        return self.flow._add_timed(kind, name, left, join, key, late, workers, on_error, (right,))

    def _columns(self, name: str, kind: Kind, stream: Any, key: tuple[str, ...]) -> pa.Schema | None:
        """The columns of a side, if they are known; each side has those of the key."""
        if not isinstance(stream, JoinedStream):
            raise DataflowError(f"{kind} {name!r} got {stream!r} as its right side; expected a stream")
        if stream.flow is not self.flow:
            return None  # refused where the operator is added
        known = self.flow._columns_of(cast("Stream", stream))
        if known is None:
            return None
        for column in key:
            if column not in known.names:
                has = ", ".join(known.names)
                raise DataflowError(f"{kind} {name!r} is on {column!r}, which {stream!r} lacks; it has {has}")
        return known


_TYPES: dict[Kind, type[Any]] = {
    Kind.JOIN_WITHIN: Within, Kind.JOIN_LATEST: Latest, Kind.JOIN_WINDOW: Windowing
}  # fmt: skip
