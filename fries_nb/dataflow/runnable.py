"""Whether a graph that is legal to plan can also run."""

from __future__ import annotations

from fries_nb.dataflow.graph import Graph, Kind, Operator
from fries_nb.errors import DataflowError

_WITHOUT_FUNCTION = frozenset({Kind.UNION, Kind.REPLICATE, Kind.DEDUP})


def check_runnable(graph: Graph) -> None:
    """Refuse a graph that cannot run.

    Raises:
        DataflowError: no source, no sink, an operator without a function (a graph read from JSON has none), an
            operator that nothing feeds, or rows that would be lost because nothing consumes them.
    """
    for kind, call in ((Kind.SOURCE, "flow.source(name, replay(...))"), (Kind.SINK, "stream.sink(name, memory())")):
        if not any(operator.kind is kind for operator in graph.operators):
            raise DataflowError(f"dataflow {graph.name!r} has no {kind}; expected at least one, from {call}")
    for operator in graph.operators:
        if operator.function is None and operator.kind not in _WITHOUT_FUNCTION:
            raise DataflowError(
                f"operator {operator.name!r} has no function to run; a graph read from JSON can be planned but not run"
            )
        _check_fed(graph, operator)
        _check_consumed(graph, operator)


def _check_fed(graph: Graph, operator: Operator) -> None:
    if operator.kind is not Kind.SOURCE and not graph.in_edges(operator.name):
        raise DataflowError(f"operator {operator.name!r} has no input; expected it to follow a source")


def _check_consumed(graph: Graph, operator: Operator) -> None:
    if operator.kind is Kind.SINK:
        return
    consumed = {edge.branch for edge in graph.out_edges(operator.name)}
    for branch in range(operator.branches):
        if branch not in consumed:
            stream = f"{operator.name}[{branch}]" if operator.kind is Kind.SPLIT else operator.name
            raise DataflowError(f"nothing consumes {stream!r}, and its rows would be lost; expected a sink behind it")
