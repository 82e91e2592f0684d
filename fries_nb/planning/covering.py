"""The minimal covering sub-DAG of a change, and the one-to-many operators above it that pruning leaves out.

**Pruning** finds which of these operators need no synchronisation with the targets.

A one-to-many operator may put two tuples of one data transaction on paths that lead to targets; then the markers must
start at it (Fries, algorithm 3). Two rules exclude that (section 6.3, rule 2 corrected):

1. *Edge-wise*: it emits at most one tuple on each out-edge, and only one of its out-edges leads to targets.
2. *Uniqueness*: the same operator, which emits at most one tuple for each transaction, lies strictly between it and
   every target that it reaches, on all paths. (As printed, the rule asks for *some* such operator on each path. But two
   paths with different such operators deliver two tuples, and another target may be reached without any.)

Both rules refer to **all** targets below the operator, so there is one decision for each operator instead of one for
each target, and no ancestor sets are needed. Nor must the earliest be selected: a kept operator lies between an
earliest kept one and a target, hence in their MCS. So algorithm 4 runs in O(V + E) for any number of targets.

Soundness. Take two tuples of a transaction that enter the MCS separately and both lead to targets, and the last
operator L on the common part of their paths. L is above the MCS, since no path leaves an MCS and returns. L is
one-to-many; if it were kept, it would be inside. Rule 1 cannot have pruned it: the two paths leave L by one edge with
two tuples, or by two edges that lead to targets. Nor can rule 2: both paths would pass the unique operator below L and
share its one output tuple. So at most one tuple of a transaction enters the MCS, at one worker, and from there on
markers keep its descendants on its side of the change.

Completeness. Where neither rule applies such a transaction exists (Menger's theorem: no single operator or edge that
passes one tuple separates the operator from the targets), so as far as the types tell, nothing is kept needlessly.

A broadcast edge counts as a Replicate behind its tail, with several tuples on the one logical edge, even to a single
worker: a plan does not depend on the number of workers. Each broadcast edge of a one-to-one operator is judged by
itself, since a tuple takes one of them. Hash fan-out to workers does not count: the rules apply to logical edges.

**The minimal covering sub-DAG** (MCS) is the part of a graph to synchronise so that a set of operators changes as one.

It contains the members, and every operator and edge on a path between two of them. An operator belongs to it exactly if
it is a member or below one ("red"), and a member or above one ("blue").

Fries, definition 5.4 and algorithm 1. Algorithm 1 colours operators in topological order; a search along the edges
colours the same operators without an order, and never visits the rest of the graph.

>>> figure_7 = nx.DiGraph(["AC", "CD", "CE", "DF", "EF", "FH", "BG", "GH"])
>>> covering = minimal_covering_subdag(figure_7, {"C", "F", "G"})
>>> sorted(covering.nodes), sorted("".join(edge) for edge in covering.edges)
(['C', 'D', 'E', 'F', 'G'], ['CD', 'CE', 'DF', 'EF'])

The synchronisation that a transactional change of a set of operators needs (Fries, algorithms 2 to 4).

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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import networkx as nx

from fries_nb.dataflow.graph import Edge, Emits, Graph, Partitioning
from fries_nb.dataflow.loops import contracted
from fries_nb.dataflow.regions import pipelined
from fries_nb.errors import PlanError, unknown


class Digraph(Protocol):
    """The interface of a graph that algorithm 1 needs; networkx's ``DiGraph`` and ``dataflow.Graph`` implement it."""

    def __iter__(self) -> Iterator[str]: ...

    def __contains__(self, name: object, /) -> bool: ...

    def successors(self, n: str, /) -> Iterable[str]:
        """The operators that this one feeds."""
        ...

    def predecessors(self, n: str, /) -> Iterable[str]:
        """The operators that feed this one."""
        ...


def minimal_covering_subdag(digraph: Digraph, members: Collection[str]) -> nx.DiGraph[str]:
    """The MCS of ``members`` in O(V + E), with nodes and edges in the order of ``digraph`` (Fries, algorithm 1)."""
    for member in members:
        if member not in digraph:
            raise nx.NodeNotFound(f"operator {member!r} is not in the graph")
    inside = covered(digraph, members)
    covering: nx.DiGraph[str] = nx.DiGraph()
    covering.add_nodes_from(name for name in digraph if name in inside)
    covering.add_edges_from((name, to) for name in list(covering) for to in digraph.successors(name) if to in inside)
    return covering


def covered(digraph: Digraph, members: Collection[str]) -> set[str]:
    """The operators of the MCS; its edges are the graph's edges between them."""
    blue = reached(members, digraph.predecessors)
    return reached(members, digraph.successors, within=blue)


def reached(
    starts: Iterable[str], neighbours: Callable[[str], Iterable[str]], within: Collection[str] | None = None
) -> set[str]:
    """The operators reachable from ``starts``."""
    found = set(starts)
    todo = list(found)
    while todo:
        for name in neighbours(todo.pop()):
            if name not in found and (within is None or name in within):
                found.add(name)
                todo.append(name)
    return found


class Rule(StrEnum):
    """The reason why a one-to-many ancestor is pruned or kept."""

    EDGEWISE = "edgewise"
    UNIQUENESS = "uniqueness"
    SEVERAL_TUPLES = "several_tuples"
    SEVERAL_EDGES = "several_edges"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class PruningDecision:
    """The decision on a one-to-many operator above the targets, with a witness.

    ``witness`` holds operator names: for ``edgewise`` the head of the one edge that leads to targets; for
    ``uniqueness`` the operator that passes one tuple, or one behind each broadcast edge; for ``several_tuples`` the
    head of an edge that may carry several tuples toward a target; for ``several_edges`` the heads of two edges that
    lead to targets; for ``off`` nothing. See ``counter_example.witnesses`` for the ways of such tuples.
    """

    operator: str
    pruned: bool
    rule: Rule
    witness: tuple[str, ...]

    @property
    def reason(self) -> str:
        """The decision as a sentence.

        >>> PruningDecision("RE", True, Rule.UNIQUENESS, ("SJ",)).reason
        'RE pruned (uniqueness): SJ lets one tuple of a transaction pass, and lies before every target below RE'
        """
        shown, single = " and ".join(self.witness), len(self.witness) == 1
        why = {
            Rule.EDGEWISE: f"only its edge to {shown} leads to targets, with one tuple at most",
            Rule.UNIQUENESS: f"{shown} {'lets' if single else 'let'} one tuple of a transaction pass, and "
            f"{'lies' if single else 'lie'} before every target below {self.operator}",
            Rule.SEVERAL_TUPLES: f"several tuples of a transaction may take its edge to {shown}, toward targets",
            Rule.SEVERAL_EDGES: f"its edges to {shown} both lead to targets",
            Rule.OFF: "pruning is switched off",
        }[self.rule]
        return f"{self.operator} {'pruned' if self.pruned else 'kept'} ({self.rule}): {why}"


def prune(graph: Graph, targets: Set[str]) -> tuple[PruningDecision, ...]:
    """The decision on every one-to-many operator strictly above a target, in topological order (Fries, algorithm 4).

    >>> from fries_nb.dataflow.graph import Operator
    >>> replicate = Operator("RE", Emits.ONE_TO_MANY, edgewise_one_to_one=True)
    >>> join = Operator("SJ", unique_per_transaction=True)
    >>> figure_10 = Graph("figure 10", (replicate, Operator("C"), Operator("D"), join, Operator("E")), (
    ...     Edge("RE", "C"), Edge("RE", "D"), Edge("C", "SJ"), Edge("D", "SJ"), Edge("SJ", "E")))
    >>> [decision.reason for decision in prune(figure_10, {"C"})]
    ['RE pruned (edgewise): only its edge to C leads to targets, with one tuple at most']
    >>> [(decision.rule.value, decision.witness) for decision in prune(figure_10, {"E"})]
    [('uniqueness', ('SJ',))]
    >>> [(decision.rule.value, decision.witness) for decision in prune(figure_10, {"SJ"})]
    [('several_edges', ('C', 'D'))]
    """
    leading = leading_edges(graph, targets)
    gates = _gates(graph, targets, leading)
    return tuple(
        _decide(graph, name, [(group, _gate_behind(graph, group, targets, gates)) for group in groups])
        for name in graph.order
        if (groups := multiplying(graph, name, leading.get(name, [])))
    )


def keep_all(decisions: Iterable[PruningDecision]) -> tuple[PruningDecision, ...]:
    """The same operators, all kept (Fries, algorithm 3)."""
    return tuple(PruningDecision(decision.operator, False, Rule.OFF, ()) for decision in decisions)


def leading_edges(graph: Graph, targets: Iterable[str]) -> dict[str, list[Edge]]:
    """For each operator above a target, its out-edges that lead to targets."""
    leads = reached(targets, graph.predecessors)
    edges = {name: [edge for edge in graph.out_edges(name) if edge.to in leads] for name in leads}
    return {name: out for name, out in edges.items() if out}


def _gates(graph: Graph, targets: Set[str], leading: Mapping[str, list[Edge]]) -> dict[str, str]:
    """For each operator, the last unique operator that lies strictly between it and every target that it reaches.

    The operators that lie on all paths from an operator form a chain, so two operators have one in common exactly if
    their last ones are the same. Hence one pass upward suffices.
    """
    gates: dict[str, str] = {}
    for name in reversed(graph.order):
        if name in graph.on_cycles:  # what lies behind it lies before it as well, so none is said to
            continue
        if name in leading and (gate := _gate_behind(graph, leading[name], targets, gates)) is not None:
            gates[name] = gate
    return gates


def _gate_behind(graph: Graph, edges: Iterable[Edge], targets: Set[str], gates: Mapping[str, str]) -> str | None:
    """The last unique operator that precedes every target that these edges lead to."""
    found: set[str | None] = set()
    for edge in edges:
        if edge.to in targets:
            return None
        found.add(gates.get(edge.to, edge.to if passes_one(graph, edge.to) else None))
    return found.pop() if len(found) == 1 else None


def multiplying(graph: Graph, name: str, leading: list[Edge]) -> list[list[Edge]]:
    """The edges toward targets, in groups on or between whose edges one tuple may become several."""
    operator = graph.by_name[name]
    if operator.emits is Emits.ONE_TO_MANY or operator.edgewise_one_to_one:
        return [leading] if leading else []
    return [[edge] for edge in leading if edge.partitioning is Partitioning.BROADCAST]


def passes_one(graph: Graph, name: str) -> bool:
    """Whether an operator emits one tuple of a transaction at most: a unique one, whose workers do not each get all."""
    is_fed_by_all = any(edge.partitioning is Partitioning.BROADCAST for edge in graph.in_edges(name))
    return graph.by_name[name].unique_per_transaction and not is_fed_by_all


def carries_several(graph: Graph, edge: Edge) -> bool:
    """Whether several tuples that an operator emits for one may take this edge, one of a group of ``multiplying``."""
    tail = graph.by_name[edge.source]
    one_an_edge = tail.edgewise_one_to_one or passes_one(graph, tail.name)
    return edge.partitioning is Partitioning.BROADCAST or not one_an_edge


def _decide(graph: Graph, name: str, groups: list[tuple[list[Edge], str | None]]) -> PruningDecision:
    """The decision on an operator, from its groups of edges and the gate behind each."""
    edges = [edge for group, gate in groups if gate is None for edge in group]
    crowded = [edge.to for edge in edges if carries_several(graph, edge)]
    first = groups[0][0]
    if len(groups) == len(first) == 1 and not carries_several(graph, first[0]):
        return PruningDecision(name, True, Rule.EDGEWISE, (first[0].to,))
    if not edges:
        return PruningDecision(name, True, Rule.UNIQUENESS, tuple(dict.fromkeys(gate for _, gate in groups if gate)))
    if crowded:
        return PruningDecision(name, False, Rule.SEVERAL_TUPLES, (crowded[0],))
    return PruningDecision(name, False, Rule.SEVERAL_EDGES, (edges[0].to, edges[1].to))


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
    """The components of an MCS, ordered by their first operators, in O(V + E)."""

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
            a kept one-to-many operator, so that two tuples of one transaction meet targets. Naive FCM does not order
            the switches with respect to these tuples. Nor does it with a loop in a component, since a tuple meets a
            target in every round.
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
