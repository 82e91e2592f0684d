"""The regions of a dataflow, which run pipelined; blocking operators separate them.

An aggregate or a sort emits nothing before its last input row, so nothing is pipelined through it, and no change needs
to be synchronised across it (Fries, section 7.1). The dataflow is cut there: the region above ends in a sink with the
operator's name, which keeps the rows; the region below begins with a source of that name, which replays the result of
Spark SQL. Where a stream bypasses a blocking operator into a later region, it is cut as well, by a sink and a source
named after the edge.

>>> from fries_nb.dataflow.graph import Edge
>>> names = (Operator("Src"), Operator("FC"), Operator("Sum", blocking=True), Operator("FM"), Operator("Out"))
>>> ends = ("Src", "FC"), ("FC", "Sum"), ("Sum", "FM"), ("FM", "Out")
>>> first, second = regions(Graph("spending", names, tuple(Edge(*each) for each in ends)))
>>> list(first.graph), list(first.kept)
(['Src', 'FC', 'Sum'], ['Sum'])
>>> list(second.graph), second.inputs["Sum"].inputs
(['Sum', 'FM', 'Out'], (Kept(sink='Sum', region=0),))

Operators are in the last region possible: a source whose rows are needed in the second region only is read there.

Blocking operators, which need all of their input before they emit: Spark SQL executes them between regions.

Only the query is declared here; it reads a view of the rows of the region above.

>>> print(Aggregation(("shop",), (("total", "sum(amount)"),)).sql("rows"))
SELECT `shop`, sum(amount) AS `total` FROM `rows` GROUP BY `shop`
>>> print(Ordering((("amount", True), ("shop", False))).sql("rows"))
SELECT * FROM `rows` ORDER BY `amount` DESC, `shop`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fries_nb.dataflow.endpoints import memory
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.loops import contracted
from fries_nb.errors import DataflowError


@dataclass(frozen=True)
class Aggregation:
    """One row for each group of equal values in ``by`` (one in all if it is empty), with named SQL expressions."""

    by: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    def sql(self, view: str) -> str:
        """The query over a view of that name."""
        given = [f"{expression} AS {quoted(name)}" for name, expression in self.columns]
        groups = [quoted(name) for name in self.by]
        query = f"SELECT {', '.join([*groups, *given])} FROM {quoted(view)}"
        return f"{query} GROUP BY {', '.join(groups)}" if groups else query


@dataclass(frozen=True)
class Ordering:
    """All rows in the order of these columns, each with a flag for descending order."""

    by: tuple[tuple[str, bool], ...]

    def sql(self, view: str) -> str:
        """The query over a view of that name."""
        terms = [quoted(name) + (" DESC" if descends else "") for name, descends in self.by]
        return f"SELECT * FROM {quoted(view)} ORDER BY {', '.join(terms)}"


def quoted(name: str) -> str:
    """A column name as a quoted identifier of SQL."""
    return "`" + name.replace("`", "``") + "`"


def aggregation(operator: str, by: tuple[str, ...], columns: object) -> Aggregation:
    """The validated arguments of ``aggregate``, as far as they can be checked without Spark."""
    if not isinstance(columns, Mapping) or not columns:
        raise DataflowError(f"aggregate {operator!r} got {columns!r}; expected {{'total': 'sum(amount)'}} or the like")
    for name, expression in columns.items():
        if not all(isinstance(word, str) and word.strip() for word in (name, expression)):
            raise DataflowError(
                f"aggregate {operator!r} has the column {name!r}: {expression!r}; expected a name and a SQL expression"
            )
        if name in by:
            raise DataflowError(f"aggregate {operator!r} has the column {name!r} twice; it groups by it already")
    return Aggregation(by, tuple(columns.items()))


def ordering(operator: str, by: Sequence[str], descending: object) -> Ordering:
    """The validated arguments of ``sort``."""
    if not by:
        raise DataflowError(f"sort {operator!r} needs the columns to sort by; got none")
    if not isinstance(descending, bool):
        raise DataflowError(f"sort {operator!r} has descending={descending!r}; expected True or False")
    return Ordering(tuple((name, descending) for name in by))


@dataclass(frozen=True)
class Kept:
    """The rows kept by a sink of an earlier region."""

    sink: str
    region: int


@dataclass(frozen=True)
class Computed:
    """The result of a blocking operator."""

    operator: Operator
    inputs: tuple[Kept | Computed, ...]


Rows = Kept | Computed


@dataclass(frozen=True)
class Region:
    """A part of a dataflow that runs as a unit."""

    graph: Graph  # operators of the dataflow, and the sinks and sources at which the dataflow was cut
    kept: frozenset[str] = frozenset()  # the sinks at which it was cut
    # the sources at which it was cut, each with the rows that it replays
    inputs: Mapping[str, Rows] = field(default_factory=dict)

    @property
    def own(self) -> tuple[str, ...]:
        """The operators that the user declared, which can be changed."""
        return tuple(name for name in self.graph if name not in self.kept and name not in self.inputs)


def regions(graph: Graph) -> tuple[Region, ...]:
    """The regions in an order in which they can run: each after those that keep its inputs."""
    # A dataflow without blocking operators is one region.
    if not any(operator.blocking for operator in graph.operators):
        return (Region(graph),)
    levels = _levels(graph)
    used = sorted({levels[operator.name] for operator in graph.operators if not operator.blocking})
    place = {name: used.index(level) for name, level in levels.items() if level in used}
    return tuple(_region(graph, place, number) for number in range(len(used)))


def pipelined(graph: Graph) -> Graph:
    """The same operators, and the edges within regions; in O(V + E)."""
    if not any(operator.blocking for operator in graph.operators):
        return graph
    levels = _levels(graph)
    edges = tuple(edge for edge in graph.edges if not _is_cut(graph, levels, edge))
    return Graph(graph.name, graph.operators, edges)


def _levels(graph: Graph) -> dict[str, int]:
    """Operator to the number of regions that run before it; a blocking one has the level of its last input."""
    # A loop is in one region as a whole.
    contraction = contracted(graph)
    levels = _levels_without_loops(contraction.graph)
    return {name: levels[contraction.node(name)] for name in graph}


def _levels_without_loops(graph: Graph) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name in graph.order:
        blocking = graph.by_name[name].blocking
        after = [levels[one] + (graph.by_name[one].blocking and not blocking) for one in graph.predecessors(name)]
        levels[name] = max(after, default=0)
    for name in reversed(graph.order):
        followers = graph.successors(name)
        if followers and not graph.by_name[name].blocking:
            levels[name] = min(levels[follower] for follower in followers)
    return levels


def _is_cut(graph: Graph, levels: Mapping[str, int], edge: Edge) -> bool:
    ends = graph.by_name[edge.source], graph.by_name[edge.to]
    return any(end.blocking for end in ends) or levels[edge.source] != levels[edge.to]


def _region(graph: Graph, place: Mapping[str, int], number: int) -> Region:
    operators = [operator for operator in graph.operators if not operator.blocking and place[operator.name] == number]
    inside = {operator.name for operator in operators}
    edges: list[Edge] = []
    kept: dict[str, Operator] = {}
    inputs: dict[str, Rows] = {}
    for edge in graph.edges:
        blocking = graph.by_name[edge.source].blocking, graph.by_name[edge.to].blocking
        if edge.source in inside and edge.to in inside:
            edges.append(edge)
        elif edge.source in inside:
            name = edge.to if blocking[1] else _name_of(edge)
            kept.setdefault(name, Operator(
                name, workers=graph.by_name[edge.source].workers, kind=Kind.SINK, function=memory()
            ))  # fmt: skip
            edges.append(Edge(edge.source, name, branch=edge.branch))
        elif edge.to in inside:
            name = edge.source if blocking[0] else _name_of(edge)
            inputs[name] = _rows(graph, place, edge.source) if blocking[0] else Kept(name, place[edge.source])
            edges.append(replace(edge, source=name, branch=0))
    # A single worker reads, which keeps the order of a sort.
    cohort = "" if any(one.cohort is not None for one in graph.operators) else None
    sources = [Operator(name, kind=Kind.SOURCE, cohort=cohort) for name in inputs]
    whole = Graph(graph.name, (*sources, *operators, *kept.values()), tuple(edges))
    return Region(whole, frozenset(kept), inputs)


def _rows(graph: Graph, place: Mapping[str, int], blocking: str) -> Computed:
    before = graph.predecessors(blocking)
    kept = dict.fromkeys(place[name] for name in before if not graph.by_name[name].blocking)
    computed = (_rows(graph, place, name) for name in before if graph.by_name[name].blocking)
    return Computed(graph.by_name[blocking], (*(Kept(blocking, number) for number in kept), *computed))


def _name_of(edge: Edge) -> str:
    return f"{edge.source} -> {edge.to}"
