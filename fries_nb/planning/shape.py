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

Each member gets a fast control message, and switches when every old channel on which another member sends to it has
brought the marker or its end.

>>> from fries_nb.dataflow.graph import Operator
>>> def graph(*edges):
...     names = dict.fromkeys(name for edge in edges for name in edge)
...     return Graph("g", tuple(map(Operator, names)), tuple(Edge(*edge) for edge in edges))
>>> before, after = graph("SA", "AB", "BC"), graph("SA", "AN", "NB", "BC")      # N is inserted between A and B
>>> plan = shape_plan(before, after, ["C"])
>>> [sorted(part.operators) for part in plan.plan.covering.components]
[['A', 'B', 'C']]
>>> for name, why in plan.reasons.items():
...     print(f"{name}: {why}")
A: its out-edges change
B: rows of A from B and from N meet there, and keep their order
C: its function changes
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fries_nb.dataflow.graph import Edge, Graph, ends_of, union_of
from fries_nb.errors import PlanError, unknown
from fries_nb.planning.covering import Covering, components, covered, prune, reached
from fries_nb.planning.difference import Difference
from fries_nb.planning.schedulers import Plan, Send, Stage, StageAction
from fries_nb.protocol.progress_locations import is_tracked


@dataclass(frozen=True)
class ShapePlan:
    """The plan of a change of the shape.

    Attributes:
        plan: its stages; its scheduler is ``fries``.
        reasons: member, or receiver of a new edge, to why it has to wait for markers, or is told, in words.
    """

    plan: Plan
    reasons: Mapping[str, str]


def refuse_unsupported(found: Difference, drop: Collection[str] = (), gone: Collection[str] = ()) -> None:
    """Check that a running dataflow can become another one in this version.

    Args:
        found: how they differ.
        drop: the removed operators whose state may be lost.
        gone: the names of operators that were removed before, and whose functions had been changed.

    Raises:
        PlanError: it cannot, for the first reason that is found.
    """
    before, after = found.before, found.after
    whole = {"an aggregate or a sort": any(one.blocking for one in (*before.operators, *after.operators)),
             "times or a loop": is_tracked(before) or is_tracked(after)}  # fmt: skip
    for what, has in whole.items():
        if has:
            raise PlanError(f"a dataflow with {what} keeps its shape while it runs, in this version")
    for operator in found.changed:
        kept = [aspect for aspect in operator.aspects if aspect != "function" or operator.name not in found.functions]
        if kept:
            words = "expected another name for an operator that is another one"
            raise PlanError(f"{operator.name}: {kept[0]} does not change while a dataflow runs; {words}")
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


def shape_plan(before: Graph, after: Graph, functions: Collection[str] = (), order: bool = True) -> ShapePlan:
    """The plan that makes a running dataflow another one, in O(V + E) for each operator whose out-edges change.

    Args:
        before: the dataflow that runs.
        after: what it is to become.
        functions: the operators of both whose function changes.
        order: whether rows of a key keep their order where the old and the new ways of an operator meet.

    Raises:
        PlanError: the union of both has a cycle, or nothing changes.
    """
    union = union_of(before, after)
    rerouted = {name for name in before if name in after and _outs(before, name) != _outs(after, name)}
    removed = {name for name in before.sources if name not in after}
    targets = frozenset(rerouted | removed | set(functions))
    if not targets and not set(after.sources) - set(before.by_name):
        raise PlanError("the two dataflows have the same shape and functions; expected a difference")
    decisions = prune(union, targets) if targets else ()
    meetings = dict(_meetings(before, after, union, rerouted)) if order else {}
    kept = {decision.operator: decision.reason for decision in decisions if not decision.pruned}
    members = targets | kept.keys() | meetings.keys()
    scope = {name for name in covered(union, members) if name in before}
    receivers = {to for _, to in ends_of(after) - ends_of(before) if to in before} - scope
    parts = components(before, scope, targets) + tuple(
        part for name in sorted(receivers) for part in components(before, {name}, frozenset())
    )
    whys = dict.fromkeys(functions, "its function changes") | dict.fromkeys(rerouted, "its out-edges change")
    whys |= dict.fromkeys(removed, "it is removed, and reads no further")
    found = dict.fromkeys(sorted(scope), "it lies between others") | kept | meetings | whys
    found |= dict.fromkeys(sorted(receivers), "it gets a new edge, which it reads from then on")
    reasons = {name: found[name] for name in before.order if name in found and name in scope | receivers}
    longest = max((part.longest_path for part in parts), default=0)
    covering = Covering(targets, parts, decisions, len(scope) <= 1, longest)
    return ShapePlan(Plan("fries", targets, _stages(before, after, covering), covering), reasons)


def _stages(before: Graph, after: Graph, covering: Covering) -> tuple[Stage, ...]:
    """A message to every member; then a marker from all sources, of which the added ones begin to read with it.

    The change is done when all members have switched and all added sources read. The second marker passes everything,
    and nothing waits for it; but until it has, rows of before are below the change, and no other change may begin.
    """
    sends = tuple(Send(name, part.operators) for part in covering.components for name in sorted(part.operators))
    switch = Stage(sends, frozenset(send.operator for send in sends))
    everywhere = frozenset((*before, *after))
    added = frozenset(name for name in after.sources if name not in before)
    release = Stage(tuple(Send(name, everywhere) for name in after.sources), added, StageAction.RELEASE)
    return (switch, release) if sends else (release,)


def _outs(graph: Graph, name: str) -> set[Edge]:
    return set(graph.out_edges(name))


def _meetings(before: Graph, after: Graph, union: Graph, rerouted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each operator at which rows of two out-edges of a rerouted one meet, one of them changed, and the words."""
    for name in sorted(rerouted):
        outs = dict.fromkeys(union.successors(name))
        changed = {edge.to for edge in _outs(before, name) ^ _outs(after, name)}
        splits = union.operator(name).branches > 1
        behind = {to: reached([to], union.successors) for to in outs}
        for meeting in union.order:
            if meeting not in before or meeting not in after:
                continue
            ways = [
                {meeting} if source == name else {to for to in outs if source in behind[to]}
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
                words = f"rows of {name} from {pair[0]} and from {pair[1]} meet there, and keep their order"
                yield meeting, words
