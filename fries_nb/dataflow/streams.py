"""Streams: the outputs of operators, with a method for each kind of operator that consumes them.

Declaration of the operators that work by the time of rows: windows and reduces.

They need sources with ``time=``. What is above a timed operator is known when it is declared, so a source without a
time, or one whose rows may be late, is found by the call that declares the operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from fries_nb.dataflow.arguments import (
    Columns,
    Identity,
    checked_suffix,
    columns_of,
    is_identity,
    needed_columns,
    number_of,
)
from fries_nb.dataflow.awaiting import CallOptions, OnChange
from fries_nb.dataflow.endpoints import OnError, Sink, checked_sink
from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.graph import ROOT, Emits, Kind, Operator, StreamScope
from fries_nb.dataflow.loops import LoopDeclarations
from fries_nb.dataflow.operators import is_timed
from fries_nb.dataflow.regions import aggregation, ordering
from fries_nb.dataflow.stream_joins import JoinedStream
from fries_nb.dataflow.tables import JoinTable, join_columns
from fries_nb.dataflow.top_rows import top
from fries_nb.dataflow.traits import TRAITS
from fries_nb.dataflow.windowing import (
    EACH_TIME,
    UNIT,
    AnyWindowing,
    CountWindowing,
    WindowFunction,
    checked_lateness,
    checked_windowing,
    is_positive,
)
from fries_nb.errors import DataflowError

if TYPE_CHECKING:
    from fries_nb.dataflow.builder import DataflowBuilder


LATE = 1
"""The branch of a window or reduce on which late rows leave; results leave on branch 0."""


class TimedStream:
    """The methods of a stream that declare operators that work by the time of its rows."""

    flow: DataflowBuilder

    def window(
        self, name: str, function: Any, windows: AnyWindowing, key: Columns, lateness: float = 0,
        late: Sink | None = None, workers: int | None = None, on_error: OnError | None = None, early: bool = False,
    ) -> Stream:
        """Declare an operator that makes rows of each window of each key, when no row of it can still arrive.

        Args:
            name: name of the operator, unique in the dataflow.
            function: an object with ``process(row, state)``, called for each row of a window, and ``close(key, time,
                state)``, which returns the window's row, an iterable of rows, or ``None``. ``time`` is the end of the
                window: a ``datetime`` if the source's times are timestamps (to the microsecond), otherwise an integer.
                ``initial_state()`` makes the state of a window, by default a dict.
            windows: ``fn.tumbling(size)``, ``fn.sliding(size, every)``, ``fn.session(gap)``, ``fn.months()``, or
                ``fn.count(n)``, for which rows need no time, and ``close`` gets the number of rows in place of one.
                Durations are in seconds or units of the source's integers. For sessions the function has a method
                ``merge(state, other)``, which adds the state of a later session to that of an earlier one, or returns
                the state of both.
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
            DataflowError: windows that are empty or leave gaps; no key; a function that lacks ``close``, or ``merge``
                for sessions; a lateness without ``late``, or either of them, or ``early``, for windows by count; no
                source with ``time=`` above; or see ``map``.
        """
        if not isinstance(early, bool):
            raise DataflowError(f"window {name!r} has early={early!r}; expected True or False")
        used = WindowFunction(function, checked_windowing(name, windows), checked_lateness(name, lateness, late), early)
        stream = cast("Stream", self)
        if isinstance(windows, CountWindowing):
            columns = _counted_key(name, key, {"late": late, "early": early})
            return self.flow._add_function(Kind.COUNT_WINDOW, name, stream, used, columns, workers, on_error, True)
        return self.flow._add_timed(Kind.WINDOW, name, stream, used, key, late, workers, on_error)

    def top(
        self, name: str, n: int, by: Columns, key: Columns, windows: AnyWindowing, smallest: bool = False,
        rank: str | None = None, end: str | None = None, lateness: float = 0, late: Sink | None = None,
        workers: int | None = None, on_error: OnError | None = None,
    ) -> Stream:
        """Declare an operator that makes the ``n`` best rows of each window of each key, the best first.

        Rows are ordered by the columns ``by``, then, so that ties do not depend on the order in which rows come, by all
        columns in the order of their names, ascending: numbers by value, others as text, nulls last. In ``by``, null
        and NaN are worse than all values. Its function is ``fn.top(...)``, by which it can be changed; windows that are
        open keep the number and the order with which they were opened.

        Args:
            name: see ``window``.
            n: number of rows.
            by: column or columns, of which the greatest values are best.
            key: see ``window``.
            windows: see ``window``; any of them.
            smallest: whether the smallest values of ``by`` are best.
            rank: name of a column for the place of a row in its window, from 1; ``None`` for none.
            end: name of a column for the end of the window; ``None`` for none.
            lateness: see ``window``.
            late: see ``window``.
            workers: see ``window``.
            on_error: see ``window``.

        Returns:
            The output: the rows with all of their columns.

        Raises:
            DataflowError: ``n`` is no number of 1 or more, or ``by`` no column; or see ``window``.
        """
        best = top(n, by, smallest, rank, end)
        return self.window(name, best, windows, key, lateness, late, workers, on_error)

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


def _counted_key(name: str, key: Columns | None, given: Mapping[str, object]) -> tuple[str, ...]:
    """The key of windows by count, which have no times to which the other arguments could apply."""
    for what, value in given.items():
        if value:
            raise DataflowError(
                f"window {name!r} is by a count of rows and has {what}={value!r}; expected neither late= nor early=, "
                "since no row is late there, and rows leave when a window is full"
            )
    return timed_key(Kind.WINDOW, name, key)


def checked_within(name: str, within: object, scope: StreamScope) -> float:
    """The validated duration of a dedup.

    Raises:
        DataflowError: it is no number above 0, or rows would meet themselves in a loop.
    """
    if not is_positive(within):
        raise DataflowError(f"dedup {name!r} has within={within!r}; expected a number above 0, {UNIT}")
    if scope.level:
        raise DataflowError(
            f"dedup {name!r} of {scope.described} has within={within!r}, and rows of a loop come back at their times; "
            "expected it in front of the loop or behind it"
        )
    return within


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
    timed = [source for source in sources if source.time is not None]
    untimed = [source for source in sources if source.time is None]
    name = operator.name
    if is_timed(operator) and untimed:
        first = untimed[0]
        what = f"{first.kind} {first.name!r} above it, whose rows have no time"
        if first.blocking:
            raise DataflowError(f"{operator.kind} {name!r} has the {what} any more; expected a stream before it")
        if isinstance(operator.function, Expiring):
            raise DataflowError(
                f"{operator.kind} {name!r} has ttl={operator.function.ttl!r}, by the time of rows, and the {what}; "
                "expected source(..., time=<column>), since keys do not end by the clock in this version"
            )
        raise DataflowError(f"{operator.kind} {name!r} has the {what}; expected source(..., time=<column>)")
    untimed = [one for one in untimed if not one.blocking]  # what bypasses a blocking operator has no time any more
    if timed and untimed:
        raise DataflowError(
            f"{operator.kind} {name!r} gets rows with a time from {timed[0].name!r} and rows without one from "
            f"{untimed[0].name!r}; expected time= at both sources, or at neither"
        )
    late = [source for source in direct if source.time is not None and source.time.late]
    expected = "late=<sink>, such as late=fn.memory()"
    if scope.level:
        expected = f"a window in front of {scope.described} to take them, since rows leave a loop by its output only"
    if operator.traits.timed and late and operator.branches == 1:
        raise DataflowError(
            f"{operator.kind} {name!r} has no place for rows that come late, and source {late[0].name!r} has late="
            f"{late[0].time.late if late[0].time else 0}; expected {expected}"
        )


@dataclass(frozen=True, eq=False)
class Stream(LoopDeclarations, TimedStream, JoinedStream):
    """The output of an operator, or one branch of a split. The methods of ``Dataflow`` and of streams return them.

    Each method declares an operator and returns its output; nothing runs.

    Attributes:
        flow: the dataflow.
        operator: name of the operator.
        kind: kind of the operator.
        branch: index of the branch; 0 except for a split, a window's late rows, and rows that come back to a head.
        identity: the column that identifies source tuples, as far as known.
        within: the loops around the place where it is consumed; the output of a loop is outside of it.
        branches: number of branches of the operator.
    """

    flow: DataflowBuilder
    operator: str
    kind: Kind
    branch: int = 0
    identity: Identity | None = None
    within: StreamScope = ROOT
    branches: int = 1

    @property
    def name(self) -> str:
        """The operator's name; with the branch if there are several, as in ``SP[1]``, but for a window's results."""
        is_numbered = self.branch > 0 or (self.branches > 1 and not TRAITS[self.kind].timed)
        return f"{self.operator}[{self.branch}]" if is_numbered else self.operator

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    def map(
        self, name: str, function: Any, key: Columns | None = None, workers: int | None = None,
        on_error: OnError | None = None, chain: bool = True, concurrency: int | None = None,
        timeout: float | None = None, ordered: bool = True, on_change: OnChange = "finish", ttl: float | None = None,
    ) -> Stream:
        """Declare an operator that makes one row of each row.

        A function that returns ``None`` drops the row; a generator makes any number of rows. If it is a coroutine, as
        ``async def process(self, row, state)``, many calls are in flight at each worker, of each key one at a time.
        What a call does to its state takes effect when its row leaves, so each call is given a copy.

        Args:
            name: name of the operator, unique in the dataflow.
            function: a function of a row (a dict), a function of an Arrow batch (``fn.batched``), or an object with
                ``process(row, state)``, whose state is kept per key: what ``initial_state()`` makes, by default a dict.
                It is called once here, to refuse a state that cannot change in place. With a third parameter it is
                timed: ``process(row, state, at)`` reads ``at.time`` and may ``at.call(time)``, for which
                ``due(key, time, state)`` makes rows when no row of that time can still arrive.
            key: column or columns by which rows are partitioned among workers and state is kept. Equal values are one
                key, and equal instants are, in whatever zones they are shown; lists and structs can be no keys.
            workers: number of parallel instances; ``None`` for the run's default.
            on_error: the error policy for tuples on which the function fails. ``"fail"`` ends the run; ``"pause"``
                pauses the operator until it is fixed, and then retries the tuple; a sink receives the tuple as a dead
                letter.
            chain: whether the operator may share a worker with its neighbours; ``False`` keeps it apart, also while
                the run chains operators to keep a latency constraint. One that awaits is always apart.
            concurrency: of a coroutine, the number of rows at a worker that have begun and have not left; 64 by
                default.
            timeout: of a coroutine, seconds after which a call is cancelled and counts as failed; ``None`` for no
                limit.
            ordered: of a coroutine, whether rows leave in the order in which they came; otherwise they leave as calls
                end, and only those of one key stay in order.
            on_change: of a coroutine, ``"finish"`` lets the calls in flight end before a change; ``"retry"`` cancels
                them, and the new function is called with their rows.
            ttl: of a function with state, how long a key lasts without a row, by the times of rows: in seconds, or
                units of the source's integers. A key whose newest row is of the time T is forgotten when no row of
                ``T + ttl`` can still arrive; ``on_expire(key, state)`` of the function, if it has it, then makes a row,
                rows, or ``None``. A later row begins the key anew. ``None`` keeps keys for good.

        Returns:
            The output.

        Raises:
            DataflowError: duplicate or empty name, a function that cannot be called, a key that is not a column name,
                or another argument that is invalid, or is of coroutines only; ``ttl`` with a function that keeps no
                state, awaits or is timed, inside of a loop, or where a source has no ``time=``.
        """
        options = CallOptions(concurrency, timeout, ordered, on_change)
        return self.flow._add_function(
            Kind.MAP, name, self, function, key, workers, on_error, chain, options=options, ttl=ttl
        )

    def flat_map(
        self, name: str, function: Any, key: Columns | None = None, workers: int | None = None,
        on_error: OnError | None = None, chain: bool = True, concurrency: int | None = None,
        timeout: float | None = None, ordered: bool = True, on_change: OnChange = "finish", ttl: float | None = None,
    ) -> Stream:
        """Declare an operator that makes any number of rows of each row.

        The function yields them or returns an iterable; a coroutine returns one. A batched function returns a batch
        and, for each of its rows, the index of the row that it derives from.

        Args:
            name: see ``map``.
            function: see ``map``.
            key: see ``map``.
            workers: see ``map``.
            on_error: see ``map``.
            chain: see ``map``.
            concurrency: see ``map``.
            timeout: see ``map``.
            ordered: see ``map``.
            on_change: see ``map``.
            ttl: see ``map``.

        Returns:
            The output.

        Raises:
            DataflowError: see ``map``.
        """
        options = CallOptions(concurrency, timeout, ordered, on_change)
        return self.flow._add_function(
            Kind.FLAT_MAP, name, self, function, key, workers, on_error, chain, options=options, ttl=ttl
        )

    def filter(
        self, name: str, predicate: Any, workers: int | None = None, on_error: OnError | None = None,
        chain: bool = True, concurrency: int | None = None, timeout: float | None = None, ordered: bool = True,
        on_change: OnChange = "finish",
    ) -> Stream:
        """Declare an operator that keeps the rows for which a predicate is true.

        Args:
            name: see ``map``.
            predicate: function of a row to a truth value, or a batched function to a boolean array.
            workers: see ``map``.
            on_error: see ``map``.
            chain: see ``map``.
            concurrency: see ``map``.
            timeout: see ``map``.
            ordered: see ``map``.
            on_change: see ``map``.

        Returns:
            The output.

        Raises:
            DataflowError: see ``map``.
        """
        options = CallOptions(concurrency, timeout, ordered, on_change)
        return self.flow._add_function(
            Kind.FILTER, name, self, predicate, None, workers, on_error, chain, options=options
        )

    def split(
        self, name: str, router: Any, into: int = 2, workers: int | None = None, on_error: OnError | None = None,
        chain: bool = True,
    ) -> tuple[Stream, ...]:
        """Declare an operator that sends each row to one of several streams.

        Args:
            name: see ``map``.
            router: function of a row to the index of a stream (``False`` is 0, ``True`` is 1).
            into: number of streams, at least 2.
            workers: see ``map``.
            on_error: see ``map``.
            chain: see ``map``.

        Returns:
            The streams, in order of their index.

        Raises:
            DataflowError: ``into`` is below 2; or see ``map``.
        """
        number_of("split", name, "into", into)
        self.flow._add_function(Kind.SPLIT, name, self, router, None, workers, on_error, chain, into)
        return tuple(self.flow.stream(f"{name}[{branch}]") for branch in range(into))

    def union(self, name: str, *others: Stream, workers: int | None = None) -> Stream:
        """Declare an operator that passes on the rows of several streams, in order of arrival.

        Args:
            name: see ``map``.
            others: the other streams, at least one.
            workers: see ``map``.

        Returns:
            The output.

        Raises:
            DataflowError: there is no other stream, one is of another dataflow, or two are outputs of one operator.
        """
        if not others:
            raise DataflowError(f"union {name!r} has one input; expected at least one other stream")
        return self.flow._add(Operator(name, kind=Kind.UNION), (self, *others), workers, None)

    def replicate(self, name: str, n: int = 2, workers: int | None = None) -> tuple[Stream, ...]:
        """Declare an operator that sends a copy of each row along each of its out-edges.

        Args:
            name: see ``map``.
            n: number of returned handles, at least 2.
            workers: see ``map``.

        Returns:
            The output, ``n`` times.

        Raises:
            DataflowError: ``n`` is below 2; duplicate or empty name.
        """
        copies = number_of("replicate", name, "n", n)
        return (self.flow._add(replicating(name), (self,), workers, self.identity),) * copies

    def unnest(self, name: str, column: str, workers: int | None = None, on_error: OnError | None = None) -> Stream:
        """Declare an operator that makes one row of each element of a list column.

        The fields of a struct element are merged into the row; any other element replaces the list.

        Args:
            name: see ``map``.
            column: the list column.
            workers: see ``map``.
            on_error: see ``map``.

        Returns:
            The output.

        Raises:
            DataflowError: ``column`` is not a name; duplicate or empty name; invalid ``on_error``.
        """
        if not isinstance(column, str) or not column:
            raise DataflowError(f"unnest {name!r} takes the name of a list column; got {column!r}")
        policy = self.flow._policy(name, on_error)
        operator = Operator(name, Emits.ONE_TO_MANY, kind=Kind.UNNEST, function=column, on_error=policy)
        return self.flow._add(operator, (self,), workers, None)

    def self_join(
        self, name: str, other: Stream, on: Columns, suffix: str = "_right", unique: bool | None = None,
        workers: int | None = None,
    ) -> Stream:
        """Declare an operator that joins rows of this stream with rows of another one, by equal values in columns.

        Each row waits in keyed state for its partner. The output has this stream's columns, then the other's.

        Args:
            name: see ``map``.
            other: the other stream.
            on: column or columns to join on.
            suffix: appended to the name of a column of ``other`` that this stream has as well.
            unique: whether there is at most one output row for each source tuple; ``None`` to infer it (see
                ``dataflow.builder``).
            workers: see ``map``.

        Returns:
            The output.

        Raises:
            DataflowError: both streams are outputs of one operator, ``on`` names no column, or the suffix is not a
                string.
        """
        key = needed_columns("self_join", name, on)
        checked_suffix("self_join", name, suffix)
        is_unique = is_identity(key, self.identity, getattr(other, "identity", None)) if unique is None else unique
        operator = Operator(name, unique_per_transaction=is_unique, kind=Kind.SELF_JOIN, function=suffix, key=key)
        return self.flow._add(operator, (self, other), workers, self.identity if is_unique else None)

    def join(
        self, name: str, table: Any, on: Columns | Mapping[str, str], how: str = "inner", one_to_many: bool = False,
        suffix: str = "_right", on_error: OnError | None = None, workers: int | None = None,
        key: Columns | bool = False,
    ) -> Stream:
        """Declare an operator that joins each row with the row of a table that has an equal key.

        The output has the stream's columns, then the table's without its key columns. Every host reads the table once,
        before the run, and its workers share it. The table can be changed at run time: ``run.reconfigure({name:
        other_table})``.

        Args:
            name: see ``map``.
            table: a Spark DataFrame, an Arrow table, the path of a Parquet file or directory, ``fn.table(name)`` or
                ``fn.sql(query)``.
            on: columns to join on, with the same name on both sides, or a mapping from the stream's columns to the
                table's.
            how: ``"inner"`` drops rows without partner, ``"left"`` keeps them with nulls.
            one_to_many: whether the table may have several rows of a key, each of which makes an output row.
            suffix: appended to the name of a column of the table that the stream has as well.
            on_error: see ``map``.
            workers: see ``map``.
            key: whether to partition rows by the stream's columns of ``on`` (``True``) or by other columns; with
                ``False`` rows are not repartitioned.

        Returns:
            The output.

        Raises:
            DataflowError: the table cannot be used or lacks a column; ``on``, ``how`` or the suffix is invalid; see
                ``map``.
        """
        columns = join_columns(name, on)
        checked_suffix("join", name, suffix)
        partitioned_by = () if key is False else tuple(columns) if key is True else columns_of(name, key)
        operator = Operator(
            name,
            Emits.ONE_TO_MANY if one_to_many else Emits.ONE_TO_ONE,
            kind=Kind.JOIN,
            function=JoinTable(name, table, columns, how, one_to_many, suffix),
            key=partitioned_by,
            on_error=self.flow._policy(name, on_error),
        )
        return self.flow._add(operator, (self,), workers, None if one_to_many else self.identity)

    def dedup(
        self, name: str, on: Columns, unique: bool | None = None, workers: int | None = None,
        within: float | None = None, late: Sink | None = None,
    ) -> Stream:
        """Declare an operator that passes on the first row of each key; null is a value like any other.

        With ``within=``, a row passes if no row of its key has passed whose time is at most so far away from its own.
        Rows that do not pass count for nothing, so the time counts from the first row, and a key that is silent for so
        long costs no memory.

        Args:
            name: see ``map``.
            on: column or columns of the key.
            unique: whether there is at most one output row for each source tuple; ``None`` to infer it: true if ``on``
                is the identity of a stream that has not been multiplied (children of a flat_map may have their own
                identities).
            workers: see ``map``.
            within: how far apart rows of a key have to be to pass both, by their times: in seconds, or units of the
                source's integers. ``None`` passes one row of a key for good.
            late: with ``within``, the sink ``<name>.late`` of rows that come so late that the rows with which they
                would have to be compared may be forgotten.

        Returns:
            The output.

        Raises:
            DataflowError: ``on`` names no column; duplicate or empty name; ``within`` is no number above 0, or inside
                of a loop; ``late`` without it; no source with ``time=`` above, or one with ``late=`` and no ``late``
                here.
        """
        columns = needed_columns("dedup", name, on)
        is_unique = is_identity(columns, self.identity) if unique is None else unique
        operator = Operator(name, unique_per_transaction=is_unique, kind=Kind.DEDUP, key=columns)
        if within is not None:
            duration = checked_within(name, within, self.flow._scope)
            timed = replace(operator, kind=Kind.DEDUP_WITHIN, function=duration)
            return self.flow._add_with_late(timed, (self,), late, workers, self.identity)
        if late is not None:
            raise DataflowError(
                f"dedup {name!r} has late={late!r} and compares rows whatever their times; expected within= with it"
            )
        return self.flow._add(operator, (self,), workers, self.identity)

    def aggregate(self, name: str, by: Columns | None, columns: Mapping[str, str]) -> Stream:
        """Declare an operator that makes one row of each group, with SQL aggregates over the group.

        It blocks: Spark SQL computes it once all input is available, and operators below it form a later region.

        Args:
            name: see ``map``.
            by: column or columns to group by; ``None`` for a single group.
            columns: name to SQL expression, as in ``{"total": "sum(amount)"}``.

        Returns:
            The output, with the columns of ``by`` and those of ``columns``.

        Raises:
            DataflowError: no expression, or a column name twice; duplicate or empty name.
        """
        function = aggregation(name, columns_of(name, by), columns)
        return self.flow._add(Operator(name, blocking=True, kind=Kind.AGGREGATE, function=function), (self,), 1, None)

    def sort(self, name: str, by: Columns, descending: bool = False) -> Stream:
        """Declare an operator that sorts all rows; it blocks as ``aggregate`` does.

        Args:
            name: see ``map``.
            by: column or columns to sort by.
            descending: whether the order is descending.

        Returns:
            The output.

        Raises:
            DataflowError: ``by`` names no column; duplicate or empty name.
        """
        function = ordering(name, columns_of(name, by), descending)
        operator = Operator(name, blocking=True, kind=Kind.SORT, function=function)
        return self.flow._add(operator, (self,), 1, self.identity)

    def sink(self, name: str, description: Sink, workers: int | None = None) -> Stream:
        """Declare a sink, at which the stream ends.

        Args:
            name: see ``map``; ``run.output(name)`` reads the rows.
            description: ``fn.memory()``, ``fn.parquet(path)``, ``fn.delta(path)``, ``fn.kafka(servers, topic)``, or
                your own ``fn.Sink``, of which the run takes a copy.
            workers: see ``map``.

        Returns:
            The sink, which no operator can consume.

        Raises:
            DataflowError: ``description`` is not a sink; duplicate or empty name.
        """
        function = checked_sink(f"sink {name!r} got ", description)
        return self.flow._add(Operator(name, kind=Kind.SINK, function=function), (self,), workers, None)


def replicating(name: str) -> Operator:
    """An operator that sends a copy of each row along each of its out-edges."""
    return Operator(name, Emits.ONE_TO_MANY, edgewise_one_to_one=True, kind=Kind.REPLICATE)
