"""The synchronisation that a transactional change of a set of operators needs (Fries, algorithms 2 to 4).

>>> from fries_nb.dataflow.graph import Edge, Emits, Operator
>>> names = ("FC", "SP", "FMX", "FMY", "U")
>>> figure_8 = Graph("figure 8", (Operator("J", Emits.ONE_TO_MANY), *map(Operator, names)), (Edge("FC", "J"),
...     Edge("J", "SP"), Edge("SP", "FMX"), Edge("SP", "FMY"), Edge("FMX", "U"), Edge("FMY", "U")))
>>> covering = cover(figure_8, ["FMX"])
>>> [(sorted(part.operators), sorted(part.heads), part.longest_path) for part in covering.components]
[(['FMX', 'J', 'SP'], ['J'], 2)]
>>> covering.pruning[0].reason
'J kept (several_tuples): several tuples of a transaction may take its edge to SP, toward targets'
>>> covering.naive_safe
False
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.loops import contracted
from fries_nb.dataflow.regions import pipelined
from fries_nb.errors import PlanError, unknown
from fries_nb.planning.components import Component, components
from fries_nb.planning.mcs import covered
from fries_nb.planning.pruning import PruningDecision, keep_all, prune


@dataclass(frozen=True)
class Covering:
    """The synchronisation that a change needs.

    Attributes:
        targets: the operators to change.
        components: the components, which are synchronised independently.
        pruning: the decision on each one-to-many operator above a target.
        naive_safe: whether naive FCM, one message to each target and no marker, is consistent. That holds exactly if,
            with pruning, every component is a single operator: then Fries itself sends just these messages.
            Otherwise a component has two targets one above the other, so that one tuple meets both; or it starts at
            a kept one-to-many operator, so that two tuples of one transaction meet targets (see ``pruning``). Naive FCM
            does not order the switches with respect to these tuples. Nor does it with a loop in a component, since a
            tuple meets a target in every round.
        longest_path: number of edges on the longest path of any component.
    """

    targets: frozenset[str]
    components: tuple[Component, ...]
    pruning: tuple[PruningDecision, ...]
    naive_safe: bool
    longest_path: int

    @property
    def loops(self) -> tuple[str, ...]:
        """The outermost loops in its components, which have to be empty when the operators switch."""
        return tuple(loop for part in self.components for loop in part.loops)


def cover(graph: Graph, targets: Iterable[str], pruning: bool = True) -> Covering:
    """The components, heads and pruning decisions of a change, in O(V + E), independent of the number of workers.

    Blocking operators cut the graph: no synchronisation crosses them (see ``dataflow.regions``). Nor does it cross the
    results of windows, each of which is a transaction of its own. A loop counts as one operator, which is one-to-many
    unless it is declared ``one_to_one`` (see ``dataflow.loops``); a component that holds one of its operators holds
    them all.

    Args:
        graph: the dataflow.
        targets: names of the operators to change.
        pruning: if false, every one-to-many operator above a target is kept (Fries, algorithm 3).

    Returns:
        The covering.

    Raises:
        PlanError: an unknown operator, no operator, a source, or a blocking operator.
    """
    chosen = _checked(graph, targets)
    graph = within_transactions(graph)
    contraction = contracted(graph)
    flat, nodes = contraction.graph, frozenset(map(contraction.node, chosen))
    pruned = prune(flat, nodes)
    decisions = pruned if pruning else keep_all(pruned)
    least = covered(flat, _members(nodes, pruned))
    covering = least if pruning else covered(flat, _members(nodes, decisions))
    parts = components(graph, contraction.expanded(covering), chosen)
    is_safe = _is_apart(flat, least) and not contraction.loops(least)
    return Covering(chosen, parts, decisions, is_safe, max(part.longest_path for part in parts))


def within_transactions(graph: Graph) -> Graph:
    """The same operators, and the edges on which rows stay in their transaction; all of those inside loops."""
    graph = pipelined(graph)
    begins = {one.name for one in graph.operators if one.begins_transactions and not one.within.level}
    if not begins:
        return graph
    edges = tuple(edge for edge in graph.edges if edge.branch or edge.source not in begins)
    return Graph(graph.name, graph.operators, edges)


def _members(targets: frozenset[str], decisions: Iterable[PruningDecision]) -> frozenset[str]:
    """The targets, and the kept one-to-many operators above them."""
    return targets.union(decision.operator for decision in decisions if not decision.pruned)


def _is_apart(graph: Graph, covering: set[str]) -> bool:
    """Whether no edge of the graph connects two of these operators."""
    return not any(to in covering for name in covering for to in graph.successors(name))


def _checked(graph: Graph, targets: Iterable[str]) -> frozenset[str]:
    if isinstance(targets, str):
        raise PlanError(f"a change names its operators in a list; got the string {targets!r}; expected [{targets!r}]")
    chosen = frozenset(targets)
    if not chosen:
        raise PlanError("the change is empty; expected at least one operator to change")
    for name in sorted(chosen, key=str):
        if name not in graph.by_name:
            raise PlanError(unknown("operator", str(name), graph.by_name))
        if not graph.in_edges(name):
            raise PlanError(f"{name!r} is a source; a change replaces the operators behind it, and sources stay")
        if graph.by_name[name].blocking:
            raise PlanError(
                f"{name!r} is blocking: it is computed between two regions; a change replaces operators that run in one"
            )
    return chosen
