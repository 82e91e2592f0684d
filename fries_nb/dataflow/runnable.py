"""Whether a graph that can be planned can also be run."""

from __future__ import annotations

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.traits import Holds
from fries_nb.errors import DataflowError


def check_runnable(graph: Graph) -> None:
    """Refuse a graph that cannot be run.

    Raises:
        DataflowError: there is no source or no sink; an operator has no function (as in a graph read from JSON) or no
            input; or rows would be lost because nothing consumes them.
    """
    traits = [operator.traits for operator in graph.operators]
    for end, found, call in (
        ("source", any(one.is_source for one in traits), "flow.source(name, replay(...))"),
        ("sink", any(one.is_sink for one in traits), "stream.sink(name, memory())"),
    ):
        if not found:
            raise DataflowError(f"dataflow {graph.name!r} has no {end}; expected at least one, from {call}")
    for operator in graph.operators:
        if operator.function is None and operator.traits.holds is not Holds.NOTHING:
            raise DataflowError(
                f"operator {operator.name!r} has no function to run; a graph read from JSON can be planned but not run"
            )
        _check_fed(graph, operator)
        _check_consumed(graph, operator)


def _check_fed(graph: Graph, operator: Operator) -> None:
    if not operator.traits.is_source and not graph.in_edges(operator.name):
        raise DataflowError(f"operator {operator.name!r} has no input; expected it to follow a source")


def _check_consumed(graph: Graph, operator: Operator) -> None:
    if operator.traits.is_sink:
        return
    consumed = {edge.branch for edge in graph.out_edges(operator.name)}
    for branch in range(operator.branches):
        if branch not in consumed:
            stream = f"{operator.name}[{branch}]" if operator.traits.routes else operator.name
            raise DataflowError(f"nothing consumes {stream!r}, and its rows would be lost; expected a sink behind it")
