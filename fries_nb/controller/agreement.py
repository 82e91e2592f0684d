"""Columns that come to a sink in two types that no one type holds, though each worker keeps to its own.

A worker sees to it that its operator's columns keep their types (see ``worker.written``); that two workers of one
operator write a column in different types is seen where their rows meet. The type that came first is agreed on. Where
the operator sets failing tuples aside, or pauses, the run goes back to its last checkpoint and the operator is told
that type, so that the other values fail there, each on its tuple; otherwise the run fails, and the error names it.

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
from fries_nb.dataflow.table_columns import is_fixed
from fries_nb.messages import HIDDEN, Report, WorkerId
from fries_nb.topology.expansion import chains

_NUMBERS = frozenset({*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float", "double"})

_THERE = " in the operator"
"""How a refusal ends that has the remedy already."""
_REMEDY = "a column keeps its type, so convert it"


class Agreement:
    """The columns of each sink in the types that arrived first, and the operators that were told of them.

    Args:
        graph: the dataflow.
        chaining: whether operators share workers; a worker reports what its last operator writes.
        agreed: filled with serialized schemas: the types that operators were told.
    """

    def __init__(self, graph: Graph, chaining: bool, agreed: dict[str, bytes]) -> None:
        self._graph = graph
        self._chain_of = {name: chain for chain in chains(graph, chaining) for name in chain}
        self._agreed = agreed
        self._known: dict[str, pa.Schema] = {}

    def hear(self, sink: str, columns: bytes) -> str:
        """Take note of what a worker of a sink has written, as a serialized schema; empty if it says nothing new.

        Returns the first column that others wrote in another type, or an empty name.
        """
        known, clash = _joined(self._known.get(sink, pa.schema([])), _schema(columns))
        self._known[sink] = known
        return clash

    def know(self, sink: str, columns: bytes) -> None:
        """Take note of what a sink's target has, whatever was written to it since."""
        self._known[sink], _ = _joined(_schema(columns), self._known.get(sink, pa.schema([])))

    def settle(
        self, sink: str, column: str, error: str, reports: Mapping[WorkerId, Report], may_tell: bool
    ) -> tuple[str, bool]:
        """The operator that wrote a column in two types, in words; and whether it is told the first type.

        Args:
            sink: the sink at which the types met.
            column: name of the column.
            error: the message if it is not known which workers differ.
            reports: the last report of each worker.
            may_tell: whether the run can go back to before such a row was written.
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
        """The first operator on the way to the sink whose workers differ, with a worker of each type.

        Where none has reported that yet it is the nearest one that makes rows of its own.
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
    """One worker of the operator for each type in which they write the column, if these are of several kinds."""
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
    """The columns of both, each in a type that holds both, or else in the first; and a column without such a type.

    A column of a table stays as the table has it.
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
    """The column of this name; a table's column also by a name that differs in the case of its letters."""
    low = name.lower()
    alike = [field for field in schema if field.name == name or (is_fixed(field) and field.name.lower() == low)]
    return min(alike, key=lambda field: not is_fixed(field), default=None)


def _includes(told: pa.Schema, field: pa.Field) -> bool:
    """Whether the column was told; one of a table anew where it was told as anything else."""
    return field.name in told.names and (not is_fixed(field) or told.field(field.name).equals(field, True))


def _with(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    index = schema.get_field_index(field.name)
    return schema.append(field) if index < 0 else schema.set(index, field)
