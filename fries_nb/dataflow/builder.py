"""The builder of dataflows: declares sources, and turns the declared operators into a graph.

Declaring runs nothing, and mistakes are refused by the call that makes them. ``graph()`` returns the result as an
immutable value; a stream with two consumers is copied by a visible Replicate.

>>> from fries_nb.dataflow.endpoints import memory, rate
>>> flow = DataflowBuilder("fraud")
>>> payments = flow.source("payments", rate(1_000))
>>> customers = payments.map("FC", lambda row: row, key="CUSTOMER_ID")
>>> merchants = payments.map("FM", lambda row: row, key="TERMINAL_ID")
>>> customers.union("U", merchants).sink("scored", memory())
Stream('scored')
>>> [f"{edge.source} -> {edge.to} {edge.partitioning}" for edge in flow.graph().edges][:3]
['payments -> Replicate(payments) forward', 'Replicate(payments) -> FC hash', 'Replicate(payments) -> FM hash']

Identity. ``source(..., identity="TRANSACTION_ID")`` names the column that identifies source tuples. A self-join on that
column, of two streams that both carry it at most once for each source tuple, is unique per transaction. This is no
longer known downstream of operators that multiply rows (flat_map, unnest, a generator) and of unions; maps and filters
are trusted to keep the column. ``self_join(..., unique=True)`` declares it explicitly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import pyarrow as pa

from fries_nb.dataflow.arguments import Columns, Identity, check_workers, columns_of
from fries_nb.dataflow.awaiting import DEFAULTS, CallOptions, awaiting_of
from fries_nb.dataflow.constraints import WINDOW_S, Element, LatencyConstraint, check_agreement, constraint_of
from fries_nb.dataflow.endpoints import (
    DataSet,
    OnError,
    Sink,
    Source,
    checked_policy,
    checked_source,
    columns_of_source,
    schema_of_source,
)
from fries_nb.dataflow.expiring import Expiring, checked_ttl
from fries_nb.dataflow.graph import ROOT, Edge, Emits, Graph, Kind, Operator, Partitioning, StreamScope
from fries_nb.dataflow.loops import check_consumed_inside
from fries_nb.dataflow.operators import check_function, emits_of, is_timed, same_origins
from fries_nb.dataflow.streams import LATE, Stream, check_times, checked_late, replicating, timed_key
from fries_nb.dataflow.traits import TRAITS, ColumnsOut
from fries_nb.dataflow.updates import Lighter, check_exclusive, check_lighter
from fries_nb.dataflow.windowing import WindowFunction, checked_time
from fries_nb.errors import DataflowError, unknown


@dataclass(frozen=True)
class _Declared:
    """An operator, the streams that it consumes and those that it makes; ``workers`` is ``None`` for the run's default.

    ``feedback`` is the stream that closes a loop, if the operator is the head of one.
    """

    operator: Operator
    inputs: tuple[Stream, ...]
    workers: int | None
    outputs: tuple[Stream, ...]
    feedback: tuple[Stream, ...] = ()


_COPY = "Replicate("
"""How the names begin of operators behind streams that are consumed several times."""


@dataclass(frozen=True)
class _Constrained:
    """A constraint as it was declared; its path depends on operators that may be declared later."""

    sequence: Sequence[Element]
    latency_ms: float
    window_s: float
    on_violation: str
    lighter: Lighter | None

    def on(self, graph: Graph) -> tuple[LatencyConstraint, Lighter]:
        constraint = constraint_of(graph, self.sequence, self.latency_ms, self.window_s, self.on_violation)
        return constraint, check_lighter(graph, constraint, self.lighter)


class DataflowBuilder:
    """A dataflow under construction.

    Raises:
        DataflowError: the name is not a non-empty string.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise DataflowError(f"a dataflow's name is a non-empty string; got {name!r}")
        self.name = name  # identifies the dataflow
        self._declared: dict[str, _Declared] = {}
        self._streams: dict[str, Stream] = {}
        self._constrained: tuple[_Constrained, ...] = ()
        self._scope = ROOT
        self._without_policy: set[str] = set()

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, operators={list(self._declared)})"

    def source(
        self, name: str, description: Source, workers: int | None = 1, identity: str | None = None,
        time: str | None = None, ahead: float | None = None, late: float | None = None, cohort: str | None = None,
    ) -> Stream:
        """Declare a source.

        Args:
            name: name of the operator, unique in the dataflow.
            description: ``fn.replay``, ``fn.rate``, ``fn.files``, ``fn.table``, ``fn.sql``, ``fn.kafka``, or your own
                ``fn.Source``; the run takes a copy.
            workers: number of parallel instances; ``None`` for the run's default.
            identity: the column whose values identify the source's rows, if there is one.
            time: the column with the time of each row, by which windows and other timed operators below work:
                timestamps, dates or integers. Durations are in seconds, or in the unit of the integers.
            ahead: how far the source may read ahead of the sinks; ``None`` for no limit.
            late: for any source but a replay, how much earlier than the latest row so far a row may be.
            cohort: the column by whose values rows are divided into cohorts, in a run with ``identities=True``: rows of
                one value (a customer) are in one cohort, in every run, and so are all that derives from them. It is of
                a type that keys can have; equal values are one, whatever their types, and so are nulls. By default the
                cohort of a row depends on which row of the source it is.

        Returns:
            The source's stream.

        Raises:
            DataflowError: ``description`` is not a source; duplicate or empty name; ``identity``, ``time`` or
                ``cohort`` is no column name; a table, or a schema that is given, lacks the column of ``cohort``;
                ``ahead`` or ``late`` is no duration, there is no ``time``, or a replay has ``late``.
        """
        description = checked_source(name, description)
        for what, column in (("identity", identity), ("cohort", cohort)):
            if column is not None and (not isinstance(column, str) or not column):
                raise DataflowError(f"source {name!r} has {what}={column!r}; expected the name of one column")
        if cohort is not None and (columns := columns_of_source(description)) and cohort not in columns:
            likely = unknown("column", cohort, columns).partition("; ")[2]
            raise DataflowError(f"source {name!r} has cohort={cohort!r}, but no such column; {likely}")
        if isinstance(description, DataSet) and late is not None:
            raise DataflowError(
                f"source {name!r} has late={late!r} and is a replay, which knows its rows, so expected no late="
            )
        known = None if identity is None else Identity(name, identity)
        event_time, policy = checked_time(name, time, ahead, late), getattr(description, "on_error", "fail")
        operator = Operator(
            name, kind=Kind.SOURCE, function=description, time=event_time, on_error=policy, cohort=cohort
        )
        return self._add(operator, (), workers, known)

    def stream(self, name: str) -> Stream:
        """Look up a declared stream, to continue from it in another cell.

        Args:
            name: name of the stream; ``SP[0]`` for a branch of a split.

        Returns:
            The stream.

        Raises:
            DataflowError: there is no such stream; suggests the closest name.
        """
        if name not in self._streams:
            raise DataflowError(unknown("stream", name, self._streams))
        return self._streams[name]

    def graph(self, workers: int = 2, on_error: str = "fail") -> Graph:
        """The dataflow as an immutable value.

        A stream with several consumers passes an operator ``Replicate(<stream>)`` with as many workers as its producer.

        Args:
            workers: parallel instances of operators that were declared without a number.
            on_error: ``fail`` or ``pause``, for operators that were declared without a policy. Those inside of a loop
                cannot pause, and fail.

        Returns:
            The graph.

        Raises:
            DataflowError: ``workers`` is below 1 or above 1,024, ``on_error`` is another value, an operator has the
                name of such a Replicate, or two that work by time have one number (see ``timed_number``).
        """
        if on_error not in ("fail", "pause"):
            raise DataflowError(f"on_error={on_error!r} for a whole run; expected 'fail' or 'pause'")
        consumed = (stream for operator in self._declared.values() for stream in (*operator.inputs, *operator.feedback))
        uses = Counter((stream.operator, stream.branch) for stream in consumed)
        copied = {
            output for output, count in uses.items()
            if count > 1 and not self._declared[output[0]].operator.traits.copies
        }  # fmt: skip
        operators: list[Operator] = []
        edges: list[Edge] = []
        for declared in self._declared.values():
            operator = replace(declared.operator, workers=workers if declared.workers is None else declared.workers)
            check_workers(operator.name, operator.workers)
            if operator.name in self._without_policy and not operator.within.loops:
                operator = replace(operator, on_error=on_error)
            operators.append(operator)
            edges.extend(_in_edges(declared, copied))
            for stream in declared.outputs:
                if (stream.operator, stream.branch) in copied:
                    copy = replicating(_copy_of(stream))
                    operators.append(replace(copy, workers=operator.workers, within=operator.within))
                    edges.append(Edge(operator.name, copy.name, branch=stream.branch))
        return _with_cohorts(_with_carried_times(Graph(self.name, tuple(operators), tuple(edges))))

    def graph_like(self, other: Graph) -> Graph:
        """The dataflow as an immutable value, in which what is not declared is as in another one of the same name.

        Args:
            other: that of a run, whose defaults of workers and error policies are not known here.

        Returns:
            The graph.

        Raises:
            DataflowError: see ``graph``.
        """
        operators, graph = [], self.graph()
        for operator in graph.operators:
            known = other.by_name.get(operator.name)
            if known is not None and operator.name not in self.fixed:
                operator = replace(operator, workers=known.workers)
            if known is not None and operator.name in self._without_policy:
                operator = replace(operator, on_error=known.on_error)
            operators.append(operator)
        return Graph(self.name, tuple(operators), graph.edges)

    @property
    def fixed(self) -> frozenset[str]:
        """The operators that were declared with a number of workers."""
        return frozenset(name for name, declared in self._declared.items() if declared.workers is not None)

    def constrain(
        self,
        sequence: Sequence[Element],
        latency_ms: float,
        window_s: float = WINDOW_S,
        on_violation: str = "tell",
        lighter: Lighter | None = None,
    ) -> LatencyConstraint:
        """Limit the mean latency of a sequence of operators and edges, over any window.

        The runtime keeps the limit by itself, as far as the sizes of buffers and the chaining of operators allow. The
        operators must have been declared. Declaring the same constraint again replaces its lighter functions.

        Args:
            sequence: names of adjacent operators, or edges, as in ``["FC", "FM"]`` or
                ``[fn.edge("payments", "FC"), "FC"]``. The edges between named operators count. A source or sink at an
                end of the sequence has no latency of its own; its edge counts.
            latency_ms: the limit in milliseconds.
            window_s: the window over which latencies are averaged, in seconds.
            on_violation: what happens if the limit cannot be kept for two windows: ``tell`` reports it, ``propose``
                proposes a change to lighter functions in ``run.proposals``, ``apply`` makes it. The original
                functions return when they have become fast enough for the rate, and at the earliest after a minute,
                twice as long with each change, up to 16 minutes. A change of these operators by the user ends that.
            lighter: the lighter functions, ``fn.lighter({...})``; required by ``propose`` and ``apply``.

        Returns:
            The constraint.

        Raises:
            DataflowError: the sequence is no path or names an unknown operator; the limit or window is not a finite
                number above zero; ``on_violation`` is unknown; an earlier constraint on the sequence differs; or the
                lighter functions are missing, cannot run there, or belong to another constraint as well.
            PlanError: a lighter function is that of a source or a sink.
        """
        given = tuple(sequence) if isinstance(sequence, list | tuple) else sequence
        declared = _Constrained(given, latency_ms, window_s, on_violation, lighter)
        graph = self.graph()
        constraint, checked = declared.on(graph)
        check_agreement((*self.constraints(), constraint))
        check_exclusive(self.lighters() | {constraint: checked})
        known = {one.on(graph)[0]: one for one in self._constrained}
        self._constrained = tuple((known | {constraint: declared}).values())
        return constraint

    def constraints(self) -> tuple[LatencyConstraint, ...]:
        """The constraints declared so far, on the operators declared so far.

        Returns:
            The constraints, in order of declaration.

        Raises:
            DataflowError: operators that were declared later have made one of them invalid.
        """
        return check_agreement(self.lighters())

    def lighters(self) -> dict[LatencyConstraint, Lighter]:
        """The constraints declared so far, each with its lighter functions.

        Returns:
            Constraint to its lighter functions, without any by the policy ``tell``.

        Raises:
            DataflowError: operators that were declared later have made a constraint invalid.
        """
        graph = self.graph()
        return dict(declared.on(graph) for declared in self._constrained)

    def _policy(self, name: str, on_error: OnError | None) -> OnError:
        """The validated policy of an operator; one that is declared without takes that of the run."""
        if on_error is None:
            self._without_policy.add(name)
            return "fail"
        self._without_policy.discard(name)
        return checked_policy(name, on_error)

    def _add_function(
        self, kind: Kind, name: str, stream: Stream, function: Any, key: Columns | None, workers: int | None,
        on_error: OnError | None, chain: bool, branches: int = 1, options: CallOptions = DEFAULTS,
        ttl: float | None = None,
    ) -> Stream:
        columns = columns_of(name, key)
        if ttl is not None:
            function = Expiring(function, checked_ttl(name, ttl))
            if self._scope.level:
                raise DataflowError(
                    f"{kind} {name!r} of {self._scope.described} has ttl={ttl!r}, and rows of a loop come back at "
                    "their times; expected ttl= at an operator in front of the loop or behind it"
                )
        check_function(name, function, columns, kind)
        awaiting = awaiting_of(name, function, options)
        emits = emits_of(kind, function)
        policy = self._policy(name, on_error)
        if not isinstance(chain, bool):
            raise DataflowError(f"operator {name!r} has chain={chain!r}; expected True or False")
        operator = Operator(
            name, emits, kind=kind, function=function, key=columns, branches=branches, on_error=policy,
            chain=chain and awaiting is None, awaiting=awaiting,
        )  # fmt: skip
        return self._add(operator, (stream,), workers, stream.identity if emits is Emits.ONE_TO_ONE else None)

    def _add(
        self, operator: Operator, inputs: tuple[Stream, ...], workers: int | None, identity: Identity | None
    ) -> Stream:
        name = operator.name
        if not isinstance(name, str) or not name:
            raise DataflowError(f"an operator's name is a non-empty string; got {name!r}")
        if name in self._declared:
            raise DataflowError(f"two operators are named {name!r}; names are unique within a dataflow")
        if workers is not None:
            check_workers(name, workers)
        self._check_inputs(name, inputs)
        check_consumed_inside(operator, inputs, self._scope)
        check_times(operator, self._sources_above(inputs), self._sources_above(inputs, timely=True), self._scope)
        within = self._scope.nest(name) if operator.kind is Kind.LOOP else self._scope
        placed = replace(operator, within=within)
        made = range(operator.branches)
        outputs = tuple(Stream(self, name, operator.kind, one, identity, within, len(made)) for one in made)
        self._declared[name] = _Declared(placed, inputs, workers, outputs)
        self._streams.update({output.name: output for output in outputs})
        return outputs[0]

    @contextmanager
    def _inside(self, scope: StreamScope) -> Iterator[None]:
        """Operators that are declared within the block are in this scope."""
        outer, self._scope = self._scope, scope
        try:
            yield
        finally:
            self._scope = outer

    @contextmanager
    def _taking_back(self) -> Iterator[None]:
        """Takes back what was declared within the block if it raises, so that it can be declared again."""
        saved = dict(self._declared), dict(self._streams), self._constrained
        try:
            yield
        except BaseException:
            self._declared, self._streams, self._constrained = saved
            raise

    def _close(self, loop: str, feedback: Stream, out: Stream) -> Stream:
        """Close a loop with its feedback; its output is a stream of the scope around it, under the loop's name."""
        self._declared[loop] = replace(self._declared[loop], feedback=(feedback,))
        self._streams[loop] = out
        return out

    def _add_timed(
        self, kind: Kind, name: str, stream: Stream, function: WindowFunction, key: Columns | None, late: Sink | None,
        workers: int | None, on_error: OnError | None, others: tuple[Stream, ...] = (),
    ) -> Stream:
        """Declare a window, a reduce or a join of two streams, and the sink of its late rows."""
        columns = timed_key(kind, name, key)
        check_function(name, function, columns, kind)
        operator = Operator(
            name, Emits.ONE_TO_MANY, kind=kind, function=function, key=columns, on_error=self._policy(name, on_error),
            begins_transactions=not function.early,
        )  # fmt: skip
        return self._add_with_late(operator, (stream, *others), late, workers)

    def _add_with_late(
        self, operator: Operator, inputs: tuple[Stream, ...], late: Sink | None, workers: int | None,
        identity: Identity | None = None,
    ) -> Stream:
        """Declare an operator that works by time, and the sink of its late rows."""
        name = operator.name
        checked_late(operator.kind, name, late, self._scope)
        with self._taking_back():
            results = self._add(replace(operator, branches=1 if late is None else 2), inputs, workers, identity)
            if late is not None:
                self.stream(f"{name}[{LATE}]").sink(f"{name}.late", late)
        return results

    def _sources_above(self, inputs: tuple[Stream, ...], timely: bool = False) -> list[Operator]:
        """The sources of these streams; a blocking operator counts as one, since rows after it have no time.

        ``timely`` leaves out those behind windows, reduces and joins in time, whose results are never late.
        """
        seen: set[str] = set()
        ahead = [stream.operator for stream in inputs]
        for name in ahead:
            declared = self._declared[name]
            operator = declared.operator
            is_end = operator.blocking or (timely and (operator.begins_transactions or operator.traits.pairs))
            if name not in seen and not is_end:
                ahead += [stream.operator for stream in declared.inputs]
            seen.add(name)
        above = (declared.operator for name, declared in self._declared.items() if name in seen)
        return [one for one in above if one.traits.is_source or one.blocking]

    def _columns_of(self, stream: Stream) -> pa.Schema | None:
        """The columns of a stream, if its source tells them, and all in between keeps them; the type null for any."""
        name = stream.operator
        while not (operator := self._declared[name].operator).traits.is_source:
            if operator.traits.columns is not ColumnsOut.SAME:
                return None
            inputs = self._declared[name].inputs
            if len(inputs) > 1:
                return None
            name = inputs[0].operator
        return schema_of_source(operator.function)

    def _check_inputs(self, name: str, inputs: tuple[Stream, ...]) -> None:
        producers: set[str] = set()
        for stream in inputs:
            if not isinstance(stream, Stream):
                raise DataflowError(f"operator {name!r} got {stream!r} as an input; expected a stream")
            if stream.flow is not self:
                raise DataflowError(
                    f"operator {name!r}: stream {stream.name!r} belongs to another dataflow, {stream.flow.name!r}; "
                    f"expected one of {self.name!r} (was the cell that declares it run again?)"
                )
            if TRAITS[stream.kind].is_sink:
                raise DataflowError(f"operator {name!r}: {stream.name!r} is a sink, and nothing follows a sink")
            if stream.operator not in self._declared:
                raise DataflowError(
                    f"operator {name!r}: {stream.operator!r} was taken back, since the body of its loop failed; "
                    "expected a stream that is still declared"
                )
            if stream.operator in producers:
                raise DataflowError(
                    f"operator {name!r} would get two direct copies of {stream.operator!r}; "
                    "put an operator on one of them"
                )
            producers.add(stream.operator)


def _copy_of(stream: Stream) -> str:
    return f"{_COPY}{stream.name})"


def is_copy(operator: Operator) -> bool:
    """Whether an operator was not declared, but stands behind a stream that several operators consume."""
    return operator.traits.copies and operator.name.startswith(_COPY)


def _in_edges(declared: _Declared, copied: set[tuple[str, int]]) -> Iterator[Edge]:
    operator = declared.operator
    partitioning = Partitioning.HASH if operator.key else Partitioning.FORWARD
    for stream, feedback in (*((one, False) for one in declared.inputs), *((one, True) for one in declared.feedback)):
        is_copied = (stream.operator, stream.branch) in copied
        source, branch = (_copy_of(stream), 0) if is_copied else (stream.operator, stream.branch)
        yield Edge(source, operator.name, partitioning, operator.key, branch, feedback)


def _with_cohorts(graph: Graph) -> Graph:
    """The same graph, in which rows of all sources have the column of cohorts if those of one have it.

    So streams that meet have the same columns, and what time brings out of their rows has the cohort of its key, from
    whichever source the last row came.
    """
    if all(operator.cohort is None for operator in graph.operators):
        return graph
    operators = (replace(one, cohort=one.cohort or "") if one.traits.is_source else one for one in graph.operators)
    return Graph(graph.name, tuple(operators), graph.edges)


def _with_carried_times(graph: Graph) -> Graph:
    """The same graph, in which only rows that reach a timed operator carry their times."""
    timed = {operator.name for operator in graph.operators if is_timed(operator)}
    if reason := same_origins(sorted(timed)):
        raise DataflowError(f"{reason}; expected another name for one of them")
    spared = {
        operator.name: replace(operator, time=replace(operator.time, carried=False))
        for operator in graph.operators
        if operator.time is not None and not timed & nx.descendants(graph.digraph, operator.name)
    }
    if not spared:
        return graph
    return Graph(graph.name, tuple(spared.get(operator.name, operator) for operator in graph.operators), graph.edges)
