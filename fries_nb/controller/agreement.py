"""Columns that reach a sink in two incompatible types, written by different workers of one operator.

Each worker keeps the types of the columns that it writes (see ``operators.column_types``), so a conflict between two
workers is detected only at the sink. The type that arrived first is the agreed one. If the operator's error policy
covers single tuples (dead letters or pause), the run restarts from its last checkpoint with the agreed type imposed on
the operator, so that values of another type fail there, tuple by tuple. Otherwise the run fails, and the error names
the operator.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
>>> flow = Graph("pair", (Operator("FM", workers=2), Operator("out", kind=Kind.SINK)), (Edge("FM", "out"),))
>>> agreement = Agreement(flow, chaining=True, agreed={})
>>> workers = [Report(WorkerId("FM", n), 1, 0, writes={"x": kind}) for n, kind in enumerate(("int64", "string"))]
>>> reports = {report.worker: report for report in workers}
>>> [agreement.hear("out", pa.schema({"x": kind}).serialize().to_pybytes()) for kind in (pa.int64(), pa.string())]
['', 'x']
>>> agreement.settle("out", "x", "", reports, may_tell=True)
("FM[0] writes column 'x' as int64 and FM[1] as string; a column keeps its type, so convert it in FM", False)
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from fries_nb.controller.schema_checks import NOTHING_SEEN
from fries_nb.dataflow.columns import united
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.dataflow.table_columns import is_fixed
from fries_nb.messages import Report, WorkerId
from fries_nb.topology.expansion import chains

_NUMBERS = frozenset({*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float", "double"})

_THERE = " in the operator"
"""The ending of an error message of a sink that already names the remedy."""
_REMEDY = "a column keeps its type, so convert it"


class Agreement:
    """The columns of each sink in the types that arrived first, and the types imposed on operators.

    Args:
        graph: the dataflow.
        chaining: whether chained operators share a worker thread; reports of a chain describe its last operator.
        agreed: operator to the types imposed on it, as a serialized Arrow schema; updated in place.
    """

    def __init__(self, graph: Graph, chaining: bool, agreed: dict[str, bytes]) -> None:
        self._graph = graph
        self._chain_of = {name: chain for chain in chains(graph, chaining) for name in chain}
        self._agreed = agreed
        self._known: dict[str, pa.Schema] = {}

    def hear(self, sink: str, columns: bytes) -> str:
        """Merge the columns that a worker of a sink has written.

        Args:
            sink: name of the sink.
            columns: serialized Arrow schema; empty if there are no new columns.

        Returns:
            The first column with an incompatible type; empty if there is none.
        """
        known, clash = _joined(self._known.get(sink, pa.schema([])), _schema(columns))
        self._known[sink] = known
        return clash

    def know(self, sink: str, columns: bytes) -> None:
        """Merge the columns of a sink's target table; their types take precedence over those written so far."""
        self._known[sink], _ = _joined(_schema(columns), self._known.get(sink, pa.schema([])))

    def settle(
        self, sink: str, column: str, error: str, reports: Mapping[WorkerId, Report], may_tell: bool
    ) -> tuple[str, bool]:
        """Find the operator that wrote a column in two types, and impose the agreed type on it if possible.

        Args:
            sink: the sink that received both types.
            column: name of the column.
            error: the message to use if the reports do not show which workers differ.
            reports: the last report of each worker.
            may_tell: whether the run can restart from a checkpoint.

        Returns:
            The error message, and whether a type was newly imposed, so that a restart resolves the conflict.
        """
        blamed, types = self._blamed(sink, column, reports)
        words, told_there, remedy = error, error.endswith(_THERE), _REMEDY
        if told_there:
            words, _, remedy = error.removesuffix(_THERE).rpartition("; ")
        if types:
            parts = [f"{worker} {'as' if number else f'writes column {column!r} as'} {kind}"
                     for number, (worker, kind) in enumerate(types.items())]  # fmt: skip
            words, remedy = " and ".join(parts), _REMEDY
        words = f"{words}; {remedy} in {blamed}"
        guarded = [name for name in self._chain_of[blamed] if self._graph.operator(name).on_error != "fail"]
        known = _named(self._known.get(sink, pa.schema([])), column)
        if not may_tell or known is None:
            return words, False
        untold = [name for name in guarded if not _includes(self._told(name), known)]
        for name in untold:
            self._agreed[name] = _with(self._told(name), known).serialize().to_pybytes()
        return words, bool(untold)

    def _told(self, operator: str) -> pa.Schema:
        told = self._agreed.get(operator)
        return pa.schema([]) if told is None else pa.ipc.read_schema(pa.py_buffer(told))

    def _blamed(
        self, sink: str, column: str, reports: Mapping[WorkerId, Report]
    ) -> tuple[str, dict[WorkerId, str]]:
        """The operator upstream of the sink whose workers write the column in different types; a worker of each type.

        If several differ it is the most distant one; if no report shows a difference, the nearest operator that creates
        rows.
        """
        nearest = ""
        blamed, types = "", {}
        seen, ahead = set(), [edge.source for edge in self._graph.in_edges(sink)]
        while ahead:
            name = ahead.pop(0)
            if name in seen:
                continue
            seen.add(name)
            ahead += [edge.source for edge in self._graph.in_edges(name)]
            if self._graph.operator(name).traits.keeps_columns:
                continue
            nearest = nearest or name
            if found := _differing(name, column, reports):
                blamed, types = name, found
        return blamed or nearest or sink, types


def _differing(operator: str, column: str, reports: Mapping[WorkerId, Report]) -> dict[WorkerId, str]:
    """One worker of the operator for each incompatible type of the column; empty if all types are compatible.

    All numeric types are compatible with each other.
    """
    by_type: dict[str, tuple[WorkerId, str]] = {}
    for worker, report in sorted(reports.items()):
        kind = report.writes.get(column, NOTHING_SEEN)
        if worker.operator == operator and kind != NOTHING_SEEN:
            by_type.setdefault("a number" if kind in _NUMBERS else kind, (worker, kind))
    return dict(by_type.values()) if len(by_type) > 1 else {}


def _schema(columns: bytes) -> pa.Schema:
    if not columns:
        return pa.schema([])
    schema = pa.ipc.read_schema(pa.py_buffer(columns)).remove_metadata()
    return pa.schema([field for field in schema if field.name not in HIDDEN])


def _joined(first: pa.Schema, then: pa.Schema) -> tuple[pa.Schema, str]:
    """The union of two schemas, and the name of the first column whose types have no common supertype (or empty).

    Such a column keeps its type in ``first``. The column of a table keeps the table's type.
    """
    clash = ""
    for field in then:
        known = _named(first, field.name)
        try:
            both = united(first, pa.schema([field]))
        except pa.ArrowException:
            clash, both = clash or str(field.name), first
        if is_fixed(field):
            first = _with(first, field)
        elif known is None or not is_fixed(known):
            first = both
    return first, clash


def _named(schema: pa.Schema, name: str) -> pa.Field | None:
    """The column with this name; names of a table's columns are compared without case."""
    low = name.lower()
    alike = [field for field in schema if field.name == name or (is_fixed(field) and field.name.lower() == low)]
    return min(alike, key=lambda field: not is_fixed(field), default=None)


def _includes(told: pa.Schema, field: pa.Field) -> bool:
    """Whether the type of the column was imposed; that of a table's column only if it was imposed exactly."""
    return field.name in told.names and (not is_fixed(field) or told.field(field.name).equals(field, True))


def _with(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    index = schema.get_field_index(field.name)
    return schema.append(field) if index < 0 else schema.set(index, field)
