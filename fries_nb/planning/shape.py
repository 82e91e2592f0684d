"""The synchronisation that a change of the shape of a dataflow needs: operators and edges added and removed.

Fries replaces functions along the minimal covering of its targets. A change of the shape is one of the same kind: an
operator whose out-edges change sends a row to the old or to the new receivers, as it runs an old or a new function.
What differs is the graph in which the covering is looked for, and which operators have to wait.

1. *Targets* are the operators of both graphs whose function or set of out-edges changes, and sources that are removed.
2. The covering is found on the *union* of both graphs: a row of before the change may be on an old edge while another
   of its transaction, behind the change, is on a new one. On either graph alone it would be too small.
3. *Order*: where rows of two out-edges of a rerouted operator meet again, the operator at which they meet joins the
   covering, by itself and without what is one-to-many above it. Otherwise a row on the short new way would overtake
   the rows of its key on the long old one.
4. Added operators have no rows yet, so they are no members. What gets a new edge reads it only from its own switch on;
   a receiver that is no member switches by itself.
5. A removed operator that works by time is a member: it would wait for times of rows that go elsewhere now. When the
   markers have come it drops what it holds for later times.

Each member gets a fast control message, and switches when every old channel on which another member sends to it has
brought the marker or its end.

A loop keeps its operators and edges, and counts as one operator, as in any plan. Rows stay in it behind every marker,
so a loop that takes part has to be *empty* when its component switches. Such a component begins at the sources, and
these read nothing until it has switched: so a checkpoint can pass while it is empty, from which on no row of before is
inside. A loop that pruning may leave out of a later plan counts as a target: it would keep rows of before, and no later
change would wait for them.

>>> from fries_nb.dataflow.graph import Operator
>>> def graph(*edges):
...     names = dict.fromkeys(name for edge in edges for name in edge)
...     return Graph("g", tuple(map(Operator, names)), tuple(Edge(*edge) for edge in edges))
>>> before, after = graph("SA", "AB", "BC"), graph("SA", "AN", "NB", "BC")      # N is inserted between A and B
>>> plan = shape_plan(before, after, ["C"])
>>> [sorted(part.operators) for part in plan.plan.covering.components]
[['A', 'B', 'C']]
>>> for line in plan.lines:
...     print(line)
A at the message: its out-edges change
B at the marker of A: rows of A that come directly and by way of N meet there, and keep their order
C at the marker of B: its function changes

A difference that was planned has both plans of a change of the shape, with the order of rows kept and without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields

import networkx as nx

from fries_nb.dataflow.builder import is_copy
from fries_nb.dataflow.graph import Edge, Emits, Graph, ends_of, union_of
from fries_nb.dataflow.loops import Contraction, contracted
from fries_nb.dataflow.operators import is_timed, same_origins
from fries_nb.errors import FriesError, PlanError, unknown
from fries_nb.planning.covering import Component, Covering, PruningDecision, components, covered, prune, reached
from fries_nb.planning.difference import Difference, Ends
from fries_nb.planning.schedulers import Plan, Send, Stage, StageAction, foretold
from fries_nb.protocol.progress_locations import is_tracked, listeners
from fries_nb.words import counted

BETWEEN, _FUNCTION = "it lies between others", "its function changes"
_FED = "it gets a new edge"


@dataclass(frozen=True)
class ExplainedPlan:
    """A plan of a change, with the reason why each operator takes part.

    Attributes:
        plan: its stages; its scheduler is ``fries``.
        reasons: member, or receiver of a new edge, to why it has to wait for markers, or is told, in words.
    """

    plan: Plan
    reasons: Mapping[str, str]

    @property
    def lines(self) -> list[str]:
        """A line for each operator that takes part: what it waits for, and why."""
        part_of = {name: part for part in self.plan.covering.components for name in part.operators}
        return [f"{name} {_awaited(name, part_of[name])}: {why}" for name, why in self.reasons.items()]


def _awaited(name: str, part: Component) -> str:
    """What an operator of a component waits for."""
    if part.loops:
        several = len(part.loops) > 1
        return f"when {'loops' if several else 'loop'} {', '.join(part.loops)} {'are' if several else 'is'} empty"
    above = [source for source, to in part.edges if to == name]
    if not above:
        return "at the message"
    return f"at the {'marker' if len(above) == 1 else 'markers'} of {', '.join(above)}"


@dataclass(frozen=True, repr=False)
class PlannedDifference(Difference):
    """A difference between what runs and what was declared, with the plan of the change that applies it.

    Attributes:
        planned: the plan; ``None`` if there is no difference, or if it is refused. Its ``prediction`` is there while
            tuples flow.
        unordered: that of a change of the shape in which rows of a key need not keep their order; ``None`` for others.
        refused: why this version cannot apply the difference, in a sentence; empty if it can.
        limits: the latency constraints that begin (``+``) or end with it, a line each.
    """

    planned: ExplainedPlan | None = None
    unordered: ExplainedPlan | None = None
    refused: str = ""
    limits: Sequence[str] = ()

    @property
    def sections(self) -> list[tuple[str, list[str]]]:
        """The plan in words, headings with lines: what takes part and why, the predicted delay; both for each order.

        Behind it what becomes of numbers of workers, and of latency constraints.
        """
        if self.refused:
            return [(self.refused, [])]
        limits = [("Latency constraints", list(self.limits))] if self.limits else []
        return [*self._plans, *self._rescale, *limits]

    @property
    def _rescale(self) -> list[tuple[str, list[str]]]:
        if not self.workers:
            return []
        sizes = {name: (self.before.operator(name).workers, count) for name, count in self.workers.items()}
        lines = [f"{name}: from {counted(was, 'worker')} to {now}" for name, (was, now) in sizes.items()]
        behind = "behind the change; " if self.planned else ""
        return [(f"Rescale: {behind}rows flow meanwhile, and the states of keys move", lines)]

    @property
    def _plans(self) -> list[tuple[str, list[str]]]:
        if self.planned is None:
            return []
        first = _section("Plan", self.planned)
        if self.unordered is None:
            return [first]
        without = "order=False, which lets rows of a key change places"
        if self.unordered.plan == self.planned.plan:
            return [first, (f"The same plan with {without}", [])]
        return [first, _section(f"Plan with {without}", self.unordered)]

    def __repr__(self) -> str:
        lines = [line for heading, told in self.sections for line in (heading, *(f"  {one}" for one in told))]
        return "\n".join([super().__repr__(), *lines])


def _section(heading: str, explained: ExplainedPlan) -> tuple[str, list[str]]:
    number = len(explained.reasons)
    takes = "takes" if number == 1 else "take"
    size = f"{counted(number, 'operator')} {takes} part" if number else "no operator has to wait"
    return f"{heading}: {size}", [*explained.lines, *foretold(explained.plan)]


def with_plan(
    found: Difference,
    functions: Callable[[], Plan],
    shape: Callable[[], tuple[ExplainedPlan, ExplainedPlan]],
    check: Callable[[], None] = lambda: None,
    limits: Sequence[str] = (),
) -> PlannedDifference:
    """A difference with the plan of the change that applies it.

    Args:
        found: the difference.
        functions: makes the plan if only functions differ.
        shape: makes the plans of a change of the shape, with the order of rows kept and without; raises a FriesError if
            this version does not make the change.
        check: raises a FriesError if the operators cannot have so many workers.
        limits: what becomes of latency constraints, a line each.
    """
    values = {field.name: getattr(found, field.name) for field in fields(Difference)} | {"limits": limits}
    if not found:
        return PlannedDifference(**values)
    try:
        check()
        if not (found.has_new_shape or found.functions):
            return PlannedDifference(**values)
        if not found.has_new_shape:
            return PlannedDifference(**values, planned=explained(found.before, functions()))
        ordered, unordered = shape()
        return PlannedDifference(**values, planned=ordered, unordered=unordered)
    except FriesError as refused:
        return PlannedDifference(**values, refused=str(refused))


def explained(graph: Graph, plan: Plan) -> ExplainedPlan:
    """A plan of a change of functions, with the reason why each operator takes part."""
    members = frozenset().union(*(part.operators for part in plan.covering.components))
    found = dict.fromkeys(members, BETWEEN) | _kept(plan.covering.pruning) | dict.fromkeys(plan.targets, _FUNCTION)
    return ExplainedPlan(plan, {name: found[name] for name in graph.order if name in members})


def _kept(decisions: Iterable[PruningDecision]) -> dict[str, str]:
    """One-to-many operator to why it is in the covering, of those that are not pruned."""
    return {one.operator: f"one-to-many, and {one.reason.partition(': ')[2]}" for one in decisions if not one.pruned}


def refuse_unsupported(
    found: Difference, drop: Collection[str] = (), gone: Collection[str] = (), past: Collection[Ends] = ()
) -> None:
    """Check that a running dataflow can become another one in this version.

    Args:
        found: how they differ.
        drop: the removed operators whose state may be lost.
        gone: the names of operators that were removed before, and whose functions had been changed.
        past: the ends of edges that the run had before.

    Raises:
        PlanError: it cannot, for the first reason that is found.
    """
    before, after = found.before, found.after
    if blocking := next((one for one in (*before.operators, *after.operators) if one.blocking), None):
        cuts = f"{blocking.name} ({blocking.kind}) cuts the dataflow into regions, which run one after the other"
        raise PlanError(f"{cuts}: such a dataflow keeps its shape while it runs, in this version")
    _refuse_inside_loops(found)
    refuse_in_time(before, after, past)
    for operator in found.changed:
        kept = operator.aspects.keys() - {"workers"} - ({"function"} if operator.name in found.functions else set())
        if kept:
            words = "expected another name for an operator that is another one"
            raise PlanError(f"{operator.name}: {min(kept)} does not change while a dataflow runs; {words}")
    for (source, to), words in found.edges_changed.items():
        raise PlanError(f"the edge {source} -> {to} does not change while a dataflow runs ({words})")
    for name in after:
        inputs = {edge.source for edge in after.in_edges(name)}
        joins = name in before and after.operator(name).traits.two_sided
        if joins and inputs != {edge.source for edge in before.in_edges(name)}:
            raise PlanError(f"{name} joins the same inputs as long as it runs; expected a new name for another join")
        if name not in before and name in gone:
            words = "was removed from this run after its function had changed; expected another name for a new one"
            raise PlanError(f"an operator {name} {words}")
    if lost := [name for name in found.removed if name in found.states and name not in drop]:
        which = "; ".join(f"{name}: {found.states[name]}" for name in lost)
        raise PlanError(f"{which}; expected drop={[*drop, *lost]!r}, if that is meant")
    for name in drop:
        if name not in found.removed:
            raise PlanError(f"drop={list(drop)!r}: {unknown('removed operator', str(name), found.removed)}")


def _refuse_inside_loops(found: Difference) -> None:
    """Check that loops keep their operators and edges, and that none comes or goes."""
    before, after = found.before, found.after
    for name in (*found.added, *found.removed):
        operator = (after if name in after else before).operator(name)
        if not operator.within.level:
            continue
        loop, did = operator.within.loops[0], "added" if name in after else "removed"
        if loop not in before or loop not in after:
            raise PlanError(f"loop {loop!r} cannot be {did} while a dataflow runs, in this version")
        raise PlanError(f"{name} cannot be {did} inside of loop {loop!r}, which keeps its shape while it runs")
    for edge in sorted(_inside_loops(before) ^ _inside_loops(after), key=lambda edge: (edge.source, edge.to)):
        inside = next(graph for graph in (before, after) if edge.source in graph and edge.to in graph)
        names = [name for name in (edge.source, edge.to) if not is_copy(inside.operator(name))]
        where = inside.operator(edge.source).within.described
        raise PlanError(f"{' and '.join(names)}: edges inside of {where} stay as they are while a dataflow runs")


def _inside_loops(graph: Graph) -> set[Edge]:
    """The edges inside of loops, without those to what copies rows that leave."""
    loop = {one.name: one.within.loops[:1] for one in graph.operators}

    def leaves(name: str) -> bool:
        return is_copy(graph.operator(name)) and all(loop[edge.to] != loop[name] for edge in graph.out_edges(name))

    return {edge for edge in graph.edges if () != loop[edge.source] == loop[edge.to] and not leaves(edge.to)}


def refuse_in_time(before: Graph, after: Graph, past: Collection[Ends] = ()) -> None:
    """Check that no frontier would have to go back or wait for itself, and that what is open has a place to stay.

    Args:
        before: the dataflow before the change; without times all is well.
        after: that behind it.
        past: see ``refuse_unsupported``.

    Raises:
        PlanError: the first source with times comes, or the last one goes; an added source leads to an operator that
            works by time, or a sink, that there has been before; one of these gets rows of others than before.
    """
    if not (is_tracked(before) or is_tracked(after)):
        return
    union = union_of(before, after)
    if not (is_tracked(before) and is_tracked(after)):
        [name, *_] = [one.name for one in union.operators if one.time is not None]
        how = "has times; a run that began without" if is_tracked(after) else "is the last with times; a run with some"
        raise PlanError(f"source {name} {how} goes on so, in this version")
    # Hosts count on all edges that there have been (see ``progress.tracker``), so these are what frontiers depend on.
    ever, grown = nx.DiGraph((*past, *ends_of(before))), nx.DiGraph((*past, *ends_of(before), *ends_of(after)))
    gone = ever.nodes - union.by_name.keys()  # those of which are known by name only
    if reason := same_origins(sorted(gone | {one.name for one in union.operators if is_timed(one)})):
        raise PlanError(f"{reason}; expected another name for the new one")
    for name in listeners(union):
        is_sink = union.operator(name).traits.is_sink
        if name in ever and (new := nx.ancestors(grown, name) & set(after.sources) - before.by_name.keys()):
            words = f"{name}, which may have passed the times of its rows"
            raise PlanError(f"source {min(new)} leads to {words}; expected only operators and sinks that are new, too")
        if not is_sink and any(name in nx.descendants(grown, to) for to in grown.successors(name)):
            raise PlanError(f"{name} works by time, and gets no rows of what it has sent to, while it runs")
        if name in ever and (new := (nx.ancestors(grown, name) - nx.ancestors(ever, name)) & before.by_name.keys()):
            words = f"whose times {name} may have passed; expected another name for a new sink or operator"
            raise PlanError(f"{name} gets no rows of {min(new)} while it runs, {words}")


def shape_plan(
    before: Graph, after: Graph, functions: Collection[str] = (), order: bool = True, givers: Collection[str] = ()
) -> ExplainedPlan:
    """The plan that makes a running dataflow another one, in O(V + E) for each operator whose out-edges change.

    Args:
        before: the dataflow that runs.
        after: what it is to become.
        functions: the operators of both whose function changes.
        order: whether rows of a key keep their order where the old and the new ways of an operator meet.
        givers: the operators with whose states at the marker others begin, or go on.

    Raises:
        PlanError: nothing changes.
    """
    rerouted = {name for name in before if name in after and _outs(before, name) != _outs(after, name)}
    removed = {name for name in before.sources if name not in after}
    dropped = {one.name for one in before.operators if one.name not in after and is_timed(one)}
    dropped |= set(givers)
    targets = frozenset(rerouted | removed | set(functions))
    if not targets and not set(after.sources) - set(before.by_name):
        raise PlanError("the two dataflows have the same shape and functions; expected a difference")
    contraction = contracted(union_of(before, after))
    nodes, flat = frozenset(map(contraction.node, targets)), contraction.graph
    stay = _staying(contraction) if targets else frozenset()
    decisions = prune(flat, nodes | stay) if targets else ()
    meetings = dict(_meetings(before, after, contraction, rerouted)) if order else {}
    kept = _kept(decisions)
    receivers = {to for _, to in ends_of(after) - ends_of(before) if to in before}
    fed = dict.fromkeys(receivers & contraction.members.keys(), _FED)
    members = nodes | stay | kept.keys() | meetings.keys() | fed.keys() | dropped
    scope = {name for name in contraction.expanded(covered(flat, members)) if name in before}
    scope, emptied = _from_the_sources(before, contraction, scope, targets | fed.keys() | dropped)
    parts = components(before, scope, targets) + tuple(
        part for name in sorted(receivers - scope) for part in components(before, {name}, frozenset())
    )
    whys = dict.fromkeys(functions, _FUNCTION) | dict.fromkeys(rerouted, "its out-edges change")
    whys |= dict.fromkeys(removed, "it is removed, and reads no further")
    whys |= dict.fromkeys(dropped, "it is removed, with what it holds for a later time")
    whys |= dict.fromkeys(givers, "another operator gets a copy of its state")
    found = dict.fromkeys(sorted(scope), BETWEEN) | emptied | fed | kept | meetings | whys
    found |= dict.fromkeys(sorted(receivers - scope), "it gets a new edge, which it reads from then on")
    reasons = {name: found[name] for name in before.order if name in found and name in scope | receivers}
    longest = max((part.longest_path for part in parts), default=0)
    covering = Covering(targets, parts, decisions, len(scope) <= 1, longest)
    return ExplainedPlan(Plan("fries", targets, _stages(before, after, covering), covering), reasons)


def _staying(contraction: Contraction) -> frozenset[str]:
    """The loops that a plan may leave out although a target lies behind them; see the module."""
    flat = contraction.graph
    unique = {one.name for one in flat.operators if one.unique_per_transaction}

    def may_be_pruned(loop: str) -> bool:
        one = flat.operator(loop)
        is_one = one.emits is Emits.ONE_TO_ONE or one.edgewise_one_to_one
        return is_one or not unique.isdisjoint(reached([loop], flat.successors))

    return frozenset(filter(may_be_pruned, contraction.members))


def _from_the_sources(
    before: Graph, contraction: Contraction, scope: set[str], causes: Set[str]
) -> tuple[set[str], dict[str, str]]:
    """The members, with all that is above one that is to be empty with a loop; and the words for what was added."""
    # A component without any cause holds a loop that may keep rows, of which none meets what changes.
    parts = (part.operators for part in components(before, scope, frozenset()))
    first = scope = {name for part in parts if part & causes for name in part}
    while True:
        looped = [part for part in components(before, scope, frozenset()) if part.loops]
        above = reached({name for part in looped for name in part.operators}, before.predecessors)
        if above <= scope:
            return scope, dict.fromkeys(sorted(scope - first), "rows reach it by this one")
        wider = covered(contraction.graph, set(map(contraction.node, scope | above)))
        scope = {name for name in contraction.expanded(wider) if name in before}


def _stages(before: Graph, after: Graph, covering: Covering) -> tuple[Stage, ...]:
    """A message to every member; then a marker from all sources, of which the added ones begin to read with it.

    Where there is a loop, each switches by itself, since its component is empty. The change is done when all members
    have switched and all added sources read. The second marker passes everything, and nothing waits for it; but until
    it has, rows of before are below the change, and no other change may begin.
    """
    sends = tuple(
        Send(name, frozenset((name,)) if part.loops else part.operators)
        for part in covering.components
        for name in sorted(part.operators)
    )
    switch = Stage(sends, frozenset(send.operator for send in sends), along=frozenset(ends_of(before)))
    everywhere = frozenset((*before, *after))
    added = frozenset(name for name in after.sources if name not in before)
    again = tuple(Send(name, everywhere) for name in after.sources)
    release = Stage(again, added, StageAction.RELEASE, frozenset(ends_of(after)))
    return (switch, release) if sends else (release,)


def _outs(graph: Graph, name: str) -> set[Edge]:
    return set(graph.out_edges(name))


def _meetings(
    before: Graph, after: Graph, contraction: Contraction, rerouted: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Each operator at which rows of two out-edges of a rerouted one meet, one of them changed, and the words."""
    union = contraction.graph
    for name in sorted(rerouted):
        node = contraction.node(name)
        outs = dict.fromkeys(union.successors(node))
        changed = {contraction.node(edge.to) for edge in _outs(before, name) ^ _outs(after, name)}
        splits = node in contraction.members or union.operator(node).branches > 1
        behind = {to: reached([to], union.successors) for to in outs}
        for meeting in union.order:
            if meeting not in before or meeting not in after:
                continue
            ways = [
                {meeting} if source == node else {to for to in outs if source in behind[to]}
                for source in union.predecessors(meeting)
            ]
            pairs = (
                (a, b)
                for place, first in enumerate(ways)
                for second in ways[place + 1 :]
                for a in sorted(first)
                for b in sorted(second)
                if a != b and (splits or a in changed or b in changed)
            )
            if (pair := next(pairs, None)) is not None:
                ways_to = [f"by way of {to}" for to in pair if to != meeting]
                come = " and ".join(ways_to if len(ways_to) == 2 else ["directly", *ways_to])
                yield meeting, f"rows of {name} that come {come} meet there, and keep their order"
