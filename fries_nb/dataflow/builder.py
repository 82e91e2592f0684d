"""How an analyst declares a dataflow: streams, and the operators that consume them.

Declaring runs nothing. Mistakes are refused where they are made. ``graph()`` gives the result as an immutable value;
where a stream has two consumers it shows the Replicate that copies it.

>>> from fries_nb.dataflow.endpoints import memory, rate
>>> flow = DataflowBuilder("fraud")
>>> payments = flow.source("payments", rate(1_000))
>>> customers = payments.map("FC", lambda row: row, key="CUSTOMER_ID")
>>> merchants = payments.map("FM", lambda row: row, key="TERMINAL_ID")
>>> customers.union("U", merchants).sink("scored", memory())
Stream('scored')
>>> [f"{edge.source} -> {edge.to} {edge.partitioning}" for edge in flow.graph().edges][:3]
['payments -> Replicate(payments) forward', 'Replicate(payments) -> FC hash', 'Replicate(payments) -> FM hash']

Identity. ``source(..., identity="TRANSACTION_ID")`` says which column tells source tuples apart. A self-join on that
column, of two streams that both carry it at most once per source tuple, is unique per transaction. Operators that
multiply rows (flat_map, unnest, a generator) and unions end that knowledge; maps and filters are trusted to leave the
column as it is. ``self_join(..., unique=True)`` says it outright.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fries_nb.dataflow.arguments import (
    Columns,
    Identity,
    checked_suffix,
    columns_of,
    is_identity,
    needed_columns,
    number_of,
)
from fries_nb.dataflow.blocking import aggregation, ordering
from fries_nb.dataflow.endpoints import OnError, Rate, Replay, Sink, checked_policy
from fries_nb.dataflow.graph import Edge, Emits, Graph, Kind, Operator, Partitioning
from fries_nb.dataflow.operators import check_function, emits_of
from fries_nb.dataflow.tables import JoinTable, join_columns
from fries_nb.dataflow.traits import TRAITS
from fries_nb.errors import DataflowError, unknown


@dataclass(frozen=True, eq=False)
class Stream:
    """The output of an operator, or one branch of a split. Streams come from a ``Dataflow``'s methods."""

    flow: DataflowBuilder
    operator: str
    kind: Kind
    branch: int = 0
    identity: Identity | None = None

    @property
    def name(self) -> str:
        """The operator's name, with the branch where there are several: ``SP[1]``."""
        return f"{self.operator}[{self.branch}]" if TRAITS[self.kind].routes else self.operator

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    def map(
        self, name: str, function: Any, key: Columns | None = None, workers: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """One row from each row (or none, where the function returns ``None``; or many, where it is a generator).

        Args:
            name: the operator's, unique in the dataflow.
            function: of a row, of an Arrow batch (``batched``), or an object with ``process(row, state)``.
            key: column or columns by which rows are partitioned among the workers and state is kept.
            workers: parallel instances; the run's default if ``None``.
            on_error: what becomes of a tuple that the function fails on: ``"fail"`` ends the run; ``"pause"`` has the
                worker wait for a fix, with which it tries again; a sink takes it as a dead letter, with the error.

        Raises:
            DataflowError: duplicate or empty name, a function that cannot be run, a key that is not a column name, an
                ``on_error`` that is none of these.
        """
        return self.flow._add_function(Kind.MAP, name, self, function, key, workers, on_error)

    def flat_map(
        self, name: str, function: Any, key: Columns | None = None, workers: int | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Any number of rows from each row: the function yields them, or returns them in an iterable.

        A batched function returns a batch and, for each of its rows, the index of the row that it comes from.

        Takes the same arguments, and raises the same, as ``map``.
        """
        return self.flow._add_function(Kind.FLAT_MAP, name, self, function, key, workers, on_error)

    def filter(self, name: str, predicate: Any, workers: int | None = None, on_error: OnError = "fail") -> Stream:
        """The rows for which the predicate is true; raises as ``map`` does."""
        return self.flow._add_function(Kind.FILTER, name, self, predicate, None, workers, on_error)

    def split(
        self, name: str, router: Any, into: int = 2, workers: int | None = None, on_error: OnError = "fail"
    ) -> tuple[Stream, ...]:
        """Each row to one of ``into`` streams: the one whose number ``router(row)`` gives (``False`` 0, ``True`` 1).

        Raises:
            DataflowError: ``into`` below 2, or what ``map`` raises.
        """
        number_of("split", name, "into", into)
        self.flow._add_function(Kind.SPLIT, name, self, router, None, workers, on_error, into)
        return tuple(self.flow.stream(f"{name}[{branch}]") for branch in range(into))

    def union(self, name: str, *others: Stream, workers: int | None = None) -> Stream:
        """The rows of this stream and of the others, as they come.

        Raises:
            DataflowError: no other stream, one of another dataflow, or two that leave the same operator.
        """
        if not others:
            raise DataflowError(f"union {name!r} has one input; expected at least one other stream")
        return self.flow._add(Operator(name, kind=Kind.UNION), (self, *others), workers, None)

    def replicate(self, name: str, n: int = 2, workers: int | None = None) -> tuple[Stream, ...]:
        """``n`` handles on one operator that sends a copy of each row along each of its out-edges.

        Raises:
            DataflowError: ``n`` below 2, duplicate or empty name.
        """
        copies = number_of("replicate", name, "n", n)
        return (self.flow._add(_replicate(name), (self,), workers, self.identity),) * copies

    def unnest(self, name: str, column: str, workers: int | None = None, on_error: OnError = "fail") -> Stream:
        """One row for each element of a list column; a struct element is merged into the row, another takes the
        list's place.

        Raises:
            DataflowError: the column is not a name; duplicate or empty name; what ``map`` raises about ``on_error``.
        """
        if not isinstance(column, str) or not column:
            raise DataflowError(f"unnest {name!r} takes the name of a list column; got {column!r}")
        policy = checked_policy(name, on_error)
        operator = Operator(name, Emits.ONE_TO_MANY, kind=Kind.UNNEST, function=column, on_error=policy)
        return self.flow._add(operator, (self,), workers, None)

    def self_join(
        self, name: str, other: Stream, on: Columns, suffix: str = "_right", unique: bool | None = None,
        workers: int | None = None,
    ) -> Stream:
        """Pairs of a row of this stream and one of the other, with equal values in the columns ``on``.

        Each row waits in keyed state for its partner. The result has this stream's columns, then the other's; where
        both have a column, the other's is renamed by ``suffix``.

        Args:
            unique: whether it emits at most one row per source tuple; ``None`` infers it (see the module's text).

        Raises:
            DataflowError: both streams leave one operator, ``on`` names no column, or the suffix is not a string.
        """
        key = needed_columns("self_join", name, on)
        checked_suffix("self_join", name, suffix)
        is_unique = is_identity(key, self.identity, getattr(other, "identity", None)) if unique is None else unique
        operator = Operator(name, unique_per_transaction=is_unique, kind=Kind.SELF_JOIN, function=suffix, key=key)
        return self.flow._add(operator, (self, other), workers, self.identity if is_unique else None)

    def join(
        self, name: str, table: Any, on: Columns | Mapping[str, str], how: str = "inner", one_to_many: bool = False,
        suffix: str = "_right", on_error: OnError = "fail", workers: int | None = None, key: Columns | bool = False,
    ) -> Stream:
        """Each row with the columns of a table's row whose key is equal; the table's key columns are left out.

        Every host reads the table once, before the run, and its workers share it. The table can be changed while the
        flow runs: ``run.reconfigure({name: other_table})``.

        Args:
            table: a Spark DataFrame, an Arrow table, or the path of a Parquet file or directory.
            on: columns of that name on both sides, or a mapping from the stream's columns to the table's.
            how: ``"inner"`` drops a row without partner, ``"left"`` keeps it with nulls.
            one_to_many: whether the table may have several rows a key; each makes a row. Else it must not.
            suffix: added to a column of the table's that the stream has as well.
            key: partition rows by the stream's columns of ``on`` (``True``) or by other columns; else they
                stay where they are.

        Raises:
            DataflowError: no table, no such column in it, ``on``, ``how`` or the suffix is none; what ``map`` raises.
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
            on_error=checked_policy(name, on_error),
        )
        return self.flow._add(operator, (self,), workers, None if one_to_many else self.identity)

    def dedup(self, name: str, on: Columns, unique: bool | None = None, workers: int | None = None) -> Stream:
        """The first row of each key; a null is a value like any other.

        Args:
            unique: whether it emits at most one row per source tuple; ``None`` infers it: ``on`` is the identity of a
                stream that has not been multiplied (below a flat_map the children may have identities of their own).

        Raises:
            DataflowError: ``on`` names no column; duplicate or empty name.
        """
        columns = needed_columns("dedup", name, on)
        is_unique = is_identity(columns, self.identity) if unique is None else unique
        operator = Operator(name, unique_per_transaction=is_unique, kind=Kind.DEDUP, key=columns)
        return self.flow._add(operator, (self,), workers, self.identity)

    def aggregate(self, name: str, by: Columns | None, columns: Mapping[str, str]) -> Stream:
        """One row for each group of equal values in ``by``: those columns, and SQL expressions over the group.

        It blocks: Spark SQL computes it when all its input is there, and what follows is a region of its own.

        Args:
            by: columns to group by; ``None`` for one row in all.
            columns: name to SQL expression, as in ``{"total": "sum(amount)"}``.

        Raises:
            DataflowError: no expression, a name twice; duplicate or empty name.
        """
        function = aggregation(name, columns_of(name, by), columns)
        return self.flow._add(Operator(name, blocking=True, kind=Kind.AGGREGATE, function=function), (self,), 1, None)

    def sort(self, name: str, by: Columns, descending: bool = False) -> Stream:
        """All rows in the order of these columns; it blocks as ``aggregate`` does.

        Raises:
            DataflowError: ``by`` names no column; duplicate or empty name.
        """
        function = ordering(name, columns_of(name, by), descending)
        operator = Operator(name, blocking=True, kind=Kind.SORT, function=function)
        return self.flow._add(operator, (self,), 1, self.identity)

    def sink(self, name: str, description: Sink, workers: int | None = None) -> Stream:
        """The end of a stream: rows are kept by what ``memory()``, ``parquet(path)`` or ``delta(path)`` describes.

        Nothing follows it.

        Raises:
            DataflowError: the description is none of them; duplicate or empty name.
        """
        if not isinstance(description, Sink):
            raise DataflowError(f"sink {name!r} got {description!r}; expected memory(), parquet(path) or delta(path)")
        return self.flow._add(Operator(name, kind=Kind.SINK, function=description), (self,), workers, None)


@dataclass(frozen=True)
class _Declared:
    """An operator with the streams that it consumes; ``workers`` is ``None`` for the run's default."""

    operator: Operator
    inputs: tuple[Stream, ...]
    workers: int | None


class DataflowBuilder:
    """A dataflow under construction.

    Raises:
        DataflowError: the name is not a non-empty string.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise DataflowError(f"a dataflow's name is a non-empty string; got {name!r}")
        self.name = name
        self._declared: dict[str, _Declared] = {}
        self._streams: dict[str, Stream] = {}

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, operators={list(self._declared)})"

    def source(
        self, name: str, description: Replay | Rate, workers: int | None = 1, identity: str | None = None
    ) -> Stream:
        """The beginning of a stream, as ``replay(...)`` or ``rate(...)`` describes it.

        Args:
            identity: the column whose value tells the source's rows apart, if there is one.

        Raises:
            DataflowError: the description is neither; duplicate or empty name; identity is not a column name.
        """
        if not isinstance(description, Replay | Rate):
            raise DataflowError(f"source {name!r} got {description!r}; expected replay(path or DataFrame) or rate(n)")
        if identity is not None and (not isinstance(identity, str) or not identity):
            raise DataflowError(f"source {name!r} has identity={identity!r}; expected the name of one column")
        known = None if identity is None else Identity(name, identity)
        return self._add(Operator(name, kind=Kind.SOURCE, function=description), (), workers, known)

    def stream(self, name: str) -> Stream:
        """The stream of that name (``SP[0]`` for a branch of a split), to go on from it in another cell.

        Raises:
            DataflowError: there is none; names the closest one.
        """
        if name not in self._streams:
            raise DataflowError(unknown("stream", name, self._streams))
        return self._streams[name]

    def graph(self, workers: int = 2) -> Graph:
        """The dataflow as a value, with ``workers`` parallel instances where none were declared.

        A stream with several consumers goes through an operator ``Replicate(<stream>)`` on as many workers as its
        producer.

        Raises:
            DataflowError: the number of workers is below 1, or an operator has the name of such a Replicate.
        """
        uses = Counter(stream.name for declared in self._declared.values() for stream in declared.inputs)
        copied = {name for name, count in uses.items() if count > 1 and not TRAITS[self._streams[name].kind].copies}
        operators: list[Operator] = []
        edges: list[Edge] = []
        for declared in self._declared.values():
            operator = replace(declared.operator, workers=workers if declared.workers is None else declared.workers)
            operators.append(operator)
            edges.extend(_in_edges(declared, copied))
            for stream in self._outputs(operator):
                if stream.name in copied:
                    operators.append(replace(_replicate(_copy_of(stream)), workers=operator.workers))
                    edges.append(Edge(operator.name, _copy_of(stream), branch=stream.branch))
        return Graph(self.name, tuple(operators), tuple(edges))

    def _outputs(self, operator: Operator) -> Iterator[Stream]:
        if operator.traits.routes:
            yield from (self._streams[f"{operator.name}[{branch}]"] for branch in range(operator.branches))
        else:
            yield self._streams[operator.name]

    def _add_function(
        self, kind: Kind, name: str, stream: Stream, function: Any, key: Columns | None, workers: int | None,
        on_error: OnError, branches: int = 1,
    ) -> Stream:
        columns = columns_of(name, key)
        check_function(name, function, columns, kind)
        emits = emits_of(kind, function)
        policy = checked_policy(name, on_error)
        operator = Operator(name, emits, kind=kind, function=function, key=columns, branches=branches, on_error=policy)
        return self._add(operator, (stream,), workers, stream.identity if emits is Emits.ONE_TO_ONE else None)

    def _add(
        self, operator: Operator, inputs: tuple[Stream, ...], workers: int | None, identity: Identity | None
    ) -> Stream:
        name = operator.name
        if not isinstance(name, str) or not name:
            raise DataflowError(f"an operator's name is a non-empty string; got {name!r}")
        if name in self._declared:
            raise DataflowError(f"two operators are named {name!r}; names are unique within a dataflow")
        if workers is not None and (not isinstance(workers, int) or isinstance(workers, bool) or workers < 1):
            raise DataflowError(f"operator {name!r} has workers={workers!r}; expected 1 or more")
        self._check_inputs(name, inputs)
        self._declared[name] = _Declared(operator, inputs, workers)
        outputs = [Stream(self, name, operator.kind, branch, identity) for branch in range(operator.branches)]
        self._streams.update({output.name: output for output in outputs})
        return outputs[0]

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
            if stream.operator in producers:
                raise DataflowError(
                    f"operator {name!r} would get two direct copies of {stream.operator!r}; "
                    "put an operator on one of them"
                )
            producers.add(stream.operator)


def _replicate(name: str) -> Operator:
    return Operator(name, Emits.ONE_TO_MANY, edgewise_one_to_one=True, kind=Kind.REPLICATE)


def _copy_of(stream: Stream) -> str:
    return f"Replicate({stream.name})"


def _in_edges(declared: _Declared, copied: set[str]) -> Iterator[Edge]:
    operator = declared.operator
    partitioning = Partitioning.HASH if operator.key else Partitioning.FORWARD
    for stream in declared.inputs:
        if stream.name in copied:
            yield Edge(_copy_of(stream), operator.name, partitioning, operator.key)
        else:
            yield Edge(stream.operator, operator.name, partitioning, operator.key, stream.branch)
