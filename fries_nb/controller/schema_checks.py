"""Checks that the columns written by new functions fit the operators that read them.

The rehearsal on one host runs the operators downstream of the targets, so an operator that cannot process the new
columns fails there. These checks add what one host cannot know: whether each sink can accept the rows that reached it
in the rehearsal, given the rows that all of its workers have accepted so far. For operators that no tuple of the
rehearsal reached, types are compared only: columns that they have read must still be written, and columns that arrive
at a sink must keep their types. Without a rehearsal nothing is checked.

Columns that reach a sink in two incompatible types, written by different workers of one operator.

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
>>> [agreement.written("out", pa.schema({"x": kind}).serialize().to_pybytes()) for kind in (pa.int64(), pa.string())]
[None, 'x']
>>> agreement.settle("out", "x", "", reports, may_impose=True)
("FM[0] writes column 'x' as int64 and FM[1] as string; a column keeps its type, so convert it in FM", False)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec
import networkx as nx
import pyarrow as pa

from fries_nb.dataflow.columns import (
    HIDDEN,
    HeldBy,
    NotHeldError,
    alike,
    clash,
    held_columns,
    is_fixed,
    refuse_twins,
    united,
)
from fries_nb.dataflow.endpoints import CatalogTable, DeltaTable, OwnSink
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.stream_endpoints import Kafka
from fries_nb.protocol.messages import Rehearsed, Report, WorkerId
from fries_nb.protocol.topology import chains

_NUMBERS = frozenset({*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float", "double"})

_THERE = " in the operator"
"""The ending of an error message of a sink that already names the remedy."""
_REMEDY = "a column keeps its type, so convert it"


class Agreement:
    """The columns of each sink in the types that arrived first, and the types imposed on operators.

    Args:
        chaining: whether chained operators share a worker thread; reports of a chain describe its last operator.
        agreed: operator to the types imposed on it, as a serialized Arrow schema; updated in place.
    """

    def __init__(self, graph: Graph, chaining: bool, agreed: dict[str, bytes]) -> None:
        self._chaining = chaining
        self._agreed = agreed
        self._known: dict[str, pa.Schema] = {}
        self.go_on(graph)

    def go_on(self, graph: Graph) -> None:
        """Go on with the dataflow after a change of its shape."""
        self._graph = graph
        self._chain_of = {name: chain for chain in chains(graph, self._chaining) for name in chain}

    def written(self, sink: str, columns: bytes) -> str | None:
        """Merge the columns that a worker of a sink has written.

        Returns:
            The first column with an incompatible type; ``None`` if there is none.
        """
        known, clash = _joined(self._known.get(sink, pa.schema([])), _written_schema(columns))
        self._known[sink] = known
        return clash

    def know(self, sink: str, columns: bytes) -> None:
        """Merge the columns of a sink's target table; their types take precedence over those written so far."""
        self._known[sink], _ = _joined(_written_schema(columns), self._known.get(sink, pa.schema([])))

    def settle(
        self, sink: str, column: str, error: str, reports: Mapping[WorkerId, Report], may_impose: bool
    ) -> tuple[str, bool]:
        """Find the operator that wrote a column in two types, and impose the agreed type on it if possible.

        Returns:
            The error message, and whether a type was newly imposed, so that a restart resolves the conflict.
        """
        blamed, types = self._blamed(sink, column, reports)
        words, remedy = error, _REMEDY
        if error.endswith(_THERE):
            words, _, remedy = error.removesuffix(_THERE).rpartition("; ")
        if types:
            parts = [f"{worker} {'as' if number else f'writes column {column!r} as'} {kind}"
                     for number, (worker, kind) in enumerate(types.items())]  # fmt: skip
            words, remedy = " and ".join(parts), _REMEDY
        is_source = self._graph.operator(blamed).traits.is_source
        words = f"{words}; {remedy} in {f'an operator behind {blamed}' if is_source else blamed}"
        guarded = [name for name in self._chain_of[blamed] if self._graph.operator(name).on_error != "fail"]
        known = _named(self._known.get(sink, pa.schema([])), column)
        if not may_impose or known is None:
            return words, False
        imposed_on = [name for name in guarded if not _includes(self._imposed(name), known)]
        for name in imposed_on:
            self._agreed[name] = _with(self._imposed(name), known).serialize().to_pybytes()
        return words, bool(imposed_on)

    def _imposed(self, operator: str) -> pa.Schema:
        imposed = self._agreed.get(operator)
        return pa.schema([]) if imposed is None else pa.ipc.read_schema(pa.py_buffer(imposed))

    def _blamed(self, sink: str, column: str, reports: Mapping[WorkerId, Report]) -> tuple[str, dict[WorkerId, str]]:
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


def _written_schema(columns: bytes) -> pa.Schema:
    if not columns:
        return pa.schema([])
    schema = pa.ipc.read_schema(pa.py_buffer(columns)).remove_metadata()
    return pa.schema([field for field in schema if field.name not in HIDDEN])


def _joined(first: pa.Schema, then: pa.Schema) -> tuple[pa.Schema, str | None]:
    """The union of two schemas, and the name of the first column whose types have no common supertype, if any.

    Such a column keeps its type in ``first``. The column of a table keeps the table's type.
    """
    clash: str | None = None
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


def _includes(imposed: pa.Schema, field: pa.Field) -> bool:
    """Whether the type of the column was imposed; that of a table's column only if it was imposed exactly."""
    return field.name in imposed.names and (not is_fixed(field) or imposed.field(field.name).equals(field, True))


def _with(schema: pa.Schema, field: pa.Field) -> pa.Schema:
    index = schema.get_field_index(field.name)
    return schema.append(field) if index < 0 else schema.set(index, field)


NOTHING_SEEN = "null"
"""Arrow's type of a column with missing values only; it is compatible with every type."""


def misfit(
    graph: Graph, targets: Collection[str], rehearsed: Rehearsed | None, reports: Mapping[WorkerId, Report]
) -> str | None:
    """Why the columns of a change do not fit, as a sentence; ``None`` if they do."""
    if rehearsed is None:
        return None
    for sink, schemas in rehearsed.arriving.items():
        fixed = isinstance(graph.operator(sink).function, DeltaTable | CatalogTable)
        taken, arriving = _taken(sink, reports, rehearsed), [_schema(schema) for schema in schemas]
        above = " and ".join(sorted(set(targets) & nx.ancestors(graph.digraph, sink)))
        try:
            arriving = [_as_held(schema, taken, graph.operator(sink).function) for schema in arriving]
        except NotHeldError as error:
            return f"with the new {above}, sink {sink} would get {error} there"
        if refused := _clash(taken, arriving, fixed):
            column, was, now = refused
            return _refused(above, column, was, now, sink)
    return _misfit_of_types(graph, targets, rehearsed, reports)


def _misfit_of_types(
    graph: Graph, targets: Collection[str], rehearsed: Rehearsed, reports: Mapping[WorkerId, Report]
) -> str | None:
    """``misfit`` for readers that no tuple of the rehearsal reached, by types only."""
    for name in sorted(rehearsed.writes.keys() & set(targets)):
        before, after = _written(name, reports), rehearsed.writes[name]
        for reader in readers(graph, name):
            if reader in targets or reader not in rehearsed.unreached:
                continue
            lost = [column for column in _read(reader, reports) if column in before and column not in after]
            if lost:
                return f"{name} would no longer write {lost[0]!r}, which {reader} reads"
            taken = _taken(reader, reports, rehearsed)
            for column, now in after.items():
                was = str(taken.field(column).type) if column in taken.names else NOTHING_SEEN
                if before.get(column) == was != NOTHING_SEEN and now not in (was, NOTHING_SEEN):
                    return _refused(name, column, was, now, reader)
    return None


def _refused(targets: str, column: str, was: object, now: object, sink: str) -> str:
    return (
        f"with the new {targets}, {column!r} would come to sink {sink} as {now}, which has taken it as {was} so far; "
        f"convert it to {was} in {targets}"
    )


def readers(graph: Graph, operator: str) -> Iterator[str]:
    """The operators that receive the columns of this one, nearest first, each once.

    Columns pass operators that keep them, such as filters.
    """
    seen: set[str] = set()
    ahead = [edge.to for edge in graph.out_edges(operator)]
    while ahead:
        name = ahead.pop(0)
        if name in seen:
            continue
        seen.add(name)
        yield name
        if graph.operator(name).traits.keeps_columns:
            ahead += [edge.to for edge in graph.out_edges(name)]


def _clash(taken: pa.Schema, arriving: Iterable[pa.Schema], fixed: bool) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The first column whose type a sink cannot accept: its name, its type so far, its new type; or ``None``."""
    whole = taken
    for schema in arriving:
        if refused := clash(taken, schema, fixed) or clash(whole, schema):
            return refused
        whole = united(whole, schema)
    return None


def _as_held(schema: pa.Schema, taken: pa.Schema, sink: object) -> pa.Schema:
    """The columns in the types in which a sink would hold them, beside those that it has taken so far."""
    if isinstance(sink, OwnSink) or (isinstance(sink, Kafka) and sink.encode is not None):
        return schema
    if isinstance(sink, Kafka):
        return held_columns(schema, HeldBy.MESSAGES)
    if not schema.names:
        raise NotHeldError("rows without a column", "return None, not {}, to drop a tuple")
    if isinstance(sink, DeltaTable | CatalogTable):
        return held_columns(schema, HeldBy.DELTA)
    if alike(taken.names) is None:
        refuse_twins([*taken.names, *(name for name in schema.names if name not in taken.names)])
    return held_columns(schema, HeldBy.FILES)


def _schema(serialised: bytes) -> pa.Schema:
    """Deserialize a schema, without hidden columns."""
    schema = pa.ipc.read_schema(pa.py_buffer(serialised)).remove_metadata()
    return pa.schema([field for field in schema if field.name not in HIDDEN])


def _taken(sink: str, reports: Mapping[WorkerId, Report], rehearsed: Rehearsed) -> pa.Schema:
    """The columns that all workers of a sink have accepted; conflicts among them are ignored here.

    For the host of the rehearsal this is up to date, for others as of their last reports.
    """
    reported = [report.columns for worker, report in reports.items() if worker.operator == sink]
    taken = pa.schema([])
    for new in map(_schema, dict.fromkeys(filter(None, [*reported, rehearsed.taken.get(sink)]))):
        if clash(taken, new) is None:
            taken = united(taken, new)
    return taken


def _written(operator: str, reports: Mapping[WorkerId, Report]) -> dict[str, str]:
    written: dict[str, str] = {}
    for worker, report in reports.items():
        if worker.operator == operator:
            for column, kind in report.writes.items():
                if written.get(column, NOTHING_SEEN) == NOTHING_SEEN:
                    written[column] = kind
    return written


def _read(operator: str, reports: Mapping[WorkerId, Report]) -> list[str]:
    return sorted({name for worker, report in reports.items() if worker.operator == operator for name in report.reads})


def with_columns(report: Report, last: Report | None) -> Report:
    """A sink's report, completed with the columns of the last one, which are sent only when they change."""
    if report.columns or last is None or not last.columns:
        return report
    return msgspec.structs.replace(report, columns=last.columns)
