"""Checks that the columns written by new functions fit the operators that read them.

The rehearsal on one host runs the operators downstream of the targets, so an operator that cannot process the new
columns fails there. These checks add what one host cannot know: whether each sink can accept the rows that reached it
in the rehearsal, given the rows that all of its workers have accepted so far. For operators that no tuple of the
rehearsal reached, types are compared only: columns that they have read must still be written, and columns that arrive
at a sink must keep their types. Without a rehearsal nothing is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec
import networkx as nx
import pyarrow as pa

from fries_nb.dataflow.catalog_endpoints import CatalogTable
from fries_nb.dataflow.columns import alike, clash, united
from fries_nb.dataflow.endpoints import DeltaTable
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.held_types import HeldBy, NotHeldError, held_columns, refuse_twins
from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.dataflow.kafka_endpoint import Kafka
from fries_nb.dataflow.own_endpoints import OwnSink
from fries_nb.messages import Rehearsed, Report, WorkerId

NOTHING_SEEN = "null"
"""Arrow's type of a column with missing values only; it is compatible with every type."""


def misfit(
    graph: Graph, targets: Collection[str], rehearsed: Rehearsed | None, reports: Mapping[WorkerId, Report]
) -> str:
    """Why the columns of a change do not fit, as a sentence; empty if they do.

    Args:
        graph: the running dataflow.
        targets: the operators to change; they are not checked as readers, since they change too.
        rehearsed: the result of the rehearsal; ``None`` if there was none.
        reports: the last report of each worker.
    """
    if rehearsed is None:
        return ""
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
) -> str:
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
    return ""


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


def _clash(
    taken: pa.Schema, arriving: Iterable[pa.Schema], fixed: bool
) -> tuple[str, pa.DataType, pa.DataType] | None:
    """The first column whose type a sink cannot accept: its name, its type so far, its new type; or ``None``."""
    whole = taken
    for schema in arriving:
        if refused := clash(taken, schema, fixed) or clash(whole, schema):
            return refused
        whole = united(whole, schema)
    return None


def _as_held(schema: pa.Schema, taken: pa.Schema, sink: object) -> pa.Schema:
    """The columns in the types in which a sink would hold them, beside those that it has taken so far.

    Raises:
        NotHeldError: it would refuse one.
    """
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
    told = [report.columns for worker, report in reports.items() if worker.operator == sink]
    taken = pa.schema([])
    for new in map(_schema, filter(None, [*told, rehearsed.taken.get(sink)])):
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
