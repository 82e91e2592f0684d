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

The connected components of a minimal covering sub-DAG; each is synchronised by markers from its heads.

Fries, section 5.3. The heads of a component are its operators without an in-edge inside it; they receive the FCM. A
component that holds an operator of a loop holds the whole loop, and feedback edges do not count as in-edges.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("J", "SP", "FMX"))), (Edge("J", "SP"), Edge("SP", "FMX")))
>>> [part] = components(graph, {"J", "SP", "FMX"}, {"FMX"})
>>> sorted(part.heads), sorted(part.targets), part.edges, part.longest_path
(['J'], ['FMX'], (('J', 'SP'), ('SP', 'FMX')), 2)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.loops import contracted
from fries_nb.dataflow.regions import pipelined
from fries_nb.errors import PlanError, unknown
from fries_nb.planning.pruning import PruningDecision, covered, keep_all, prune, reached


@dataclass(frozen=True)
class Component:
    """A connected component of an MCS.

    Attributes:
        operators: its operators.
        heads: its operators without an in-edge inside the component, apart from feedback edges.
        targets: its operators that are changed.
        edges: its edges as (from, to), in topological order of their tails.
        longest_path: number of edges on its longest path without feedback edges; 0 for a single operator.
        loops: the outermost loops that it holds, which have to be empty when its operators switch.
    """

    operators: frozenset[str]
    heads: frozenset[str]
    targets: frozenset[str]
    edges: tuple[tuple[str, str], ...]
    longest_path: int
    loops: tuple[str, ...] = ()


def components(graph: Graph, covering: Set[str], targets: Set[str]) -> tuple[Component, ...]:
    """The components of an MCS, ordered by their first operators, in O(V + E).

    Args:
        graph: the dataflow.
        covering: the operators of the MCS, with all operators of a loop or none.
        targets: the operators to change.
    """

    def neighbours(name: str) -> list[str]:
        return graph.successors(name) + graph.predecessors(name)

    part_of: dict[str, int] = {}
    parts: list[list[str]] = []
    for name in graph.order:
        if name in covering:
            if name not in part_of:
                part_of.update(dict.fromkeys(reached([name], neighbours, within=covering), len(parts)))
                parts.append([])
            parts[part_of[name]].append(name)
    return tuple(_component(graph, operators, covering, targets) for operators in parts)


def _component(graph: Graph, operators: Sequence[str], covering: Set[str], targets: Set[str]) -> Component:
    """The component of these operators, given in topological order."""
    edges = [edge for name in operators for edge in graph.out_edges(name) if edge.to in covering]
    depths = _depths(operators, [(edge.source, edge.to) for edge in edges if not edge.feedback])
    outermost = (one.name for one in map(graph.operator, operators) if one.traits.heads_loop and one.within.level == 1)
    return Component(
        operators=frozenset(operators),
        heads=frozenset(name for name, depth in depths.items() if depth == 0),
        targets=frozenset(name for name in operators if name in targets),
        edges=tuple((edge.source, edge.to) for edge in edges),
        longest_path=max(depths.values()),
        loops=tuple(outermost),
    )


def _depths(operators: Sequence[str], edges: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """For each operator, the number of edges on the longest path to it; edges are in topological order."""
    depths = dict.fromkeys(operators, 0)
    for name, to in edges:
        if depths[to] <= depths[name]:
            depths[to] = depths[name] + 1
    return depths


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
