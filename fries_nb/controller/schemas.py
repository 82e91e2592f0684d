"""Does what the new functions write still fit those who read it?

What an operator reads is what its workers report to have looked at so far; what a target writes now is what they
report, and what it will write is what its rehearsal produced. A target without a rehearsal, or without a report, is
not judged. The readers of an operator are its neighbours, and those behind neighbours that pass columns along.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fries_nb.dataflow.graph import Graph, Kind
from fries_nb.messages import Report, WorkerId

PASSING = frozenset({Kind.UNION, Kind.REPLICATE, Kind.FILTER, Kind.SPLIT, Kind.DEDUP, Kind.JOIN})
"""Kinds whose output has the columns of their input (and those of a table)."""

WIDENING = frozenset(
    {
        ("int8", "int16"), ("int8", "int32"), ("int8", "int64"), ("int16", "int32"), ("int16", "int64"),
        ("int32", "int64"), ("int32", "double"), ("int64", "double"), ("float", "double"),
    }
)  # fmt: skip
"""Changes of type (before, after) that a sink takes."""

NOTHING_SEEN = "null"
"""Arrow's type for a column in which only missing values were seen; it fits every type."""


def misfit(
    graph: Graph, targets: Collection[str], writes: Mapping[str, dict[str, str]], reports: Mapping[WorkerId, Report]
) -> str:
    """Why the change would not fit, as a sentence, or an empty string.

    Args:
        graph: the running dataflow.
        targets: the operators to change; they are not judged as readers, since they change along.
        writes: columns and Arrow type names that the targets' new functions produced in their rehearsals.
        reports: the last report of each worker.
    """
    for target, after in writes.items():
        before = _written(target, reports)
        for reader in readers(graph, target):
            if reader in targets:
                continue
            lost = [column for column in _read(reader, reports) if column in before and column not in after]
            if lost:
                return f"{target} would no longer write {lost[0]!r}, which {reader} reads"
            if graph.operator(reader).kind is Kind.SINK:
                for column, was in before.items():
                    now = after.get(column, was)
                    if not _fits(was, now):
                        return (
                            f"{target} would write {column!r} as {now}, which sink {reader} has taken as {was} "
                            f"so far; convert it to {was} in {target}"
                        )
    return ""


def readers(graph: Graph, operator: str) -> Iterator[str]:
    """The operators that see the columns of this one, nearest first, each once."""
    seen: set[str] = set()
    ahead = [edge.to for edge in graph.out_edges(operator)]
    while ahead:
        name = ahead.pop(0)
        if name in seen:
            continue
        seen.add(name)
        yield name
        if graph.operator(name).kind in PASSING:
            ahead += [edge.to for edge in graph.out_edges(name)]


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


def _fits(before: str, after: str) -> bool:
    return before == after or NOTHING_SEEN in (before, after) or (before, after) in WIDENING
