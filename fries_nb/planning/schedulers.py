"""Schedulers: the stages of messages that carry out a change. ``SCHEDULERS`` lists them; ``schedule`` makes a plan.

All schedulers get the same covering, and answer stages: each has the receivers, the scope of the marker, and the
workers whose acknowledgement ends it. The controller carries out every plan in the same way, whoever made it.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("chain", tuple(map(Operator, ("payments", "FC", "FM", "MC"))), (
...     Edge("payments", "FC"), Edge("FC", "FM"), Edge("FM", "MC")))
>>> for name in SCHEDULERS:
...     for stage in schedule(name, graph, {"FM", "MC"}).stages:
...         sends = [f"{send.operator}: {'-'.join(sorted(send.scope))}" for send in stage.sends]
...         print(f"{name:12} {stage.does:7}", *sends)
fries        switch  FM: FM-MC
epoch        switch  payments: FC-FM-MC-payments
naive        switch  FM: FM MC: MC
multiversion tag     payments: FC-FM-MC-payments
cut          freeze  FM: FM MC: MC
cut          switch  FM: FM MC: MC
restart      restart payments: FC-FM-MC-payments
minibatch    hold    payments: FC-FM-MC-payments
minibatch    switch  FM: FM MC: MC
minibatch    release payments: payments

The steps of a plan: messages leave the controller, operators take them, and markers pass along edges.

An operator is reached by a marker when it has come on all of its inputs inside the marker's scope, except those of
feedback edges, on which a loop's head does not wait for it. Among the operators that can be reached next, the one with
the earliest known time is first; an operator without a time comes as early as its inputs allow.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.schedulers import schedule
>>> edges = (Edge("S", "A"), Edge("S", "B"), Edge("A", "J"), Edge("B", "J"))
>>> graph = Graph("diamond", tuple(map(Operator, "SABJ")), edges)
>>> for step in marker_steps(graph, schedule("fries", graph, ["A", "B", "J"]), {"A": 9.0, "B": 2.0, "J": 9.5}):
...     print(step.kind, " ".join(step.operators), step.edges)
sent A B ()
reached B ()
reached A ()
reached J (('A', 'J'), ('B', 'J'))
completed A B J ()
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

import networkx as nx

from fries_nb.dataflow.graph import Edge, Graph
from fries_nb.dataflow.operators import is_timed
from fries_nb.errors import PlanError, unknown
from fries_nb.planning.covering import Covering, cover
from fries_nb.planning.prediction import Prediction
from fries_nb.words import duration


class StageAction(StrEnum):
    """The action of a stage's markers."""

    SWITCH = "switch"
    """Targets switch to the prepared functions."""
    TAG = "tag"
    """Sources tag the tuples that they read from now on; targets run both versions until the old one has drained."""
    HOLD = "hold"
    """Sources stop reading; when the stage ends, no tuple is in transit."""
    RELEASE = "release"
    """Sources continue to read."""
    FREEZE = "freeze"
    """Targets begin no tuple until the change is decided; what they have begun belongs to the old version."""
    RESTART = "restart"
    """A checkpoint is taken; when it is complete, the run restarts from it with the new functions."""


@dataclass(frozen=True)
class Send:
    """An FCM to every worker of ``operator``, with a marker for ``scope``; sends of equal scope share one marker."""

    operator: str
    scope: frozenset[str]


@dataclass(frozen=True)
class Stage:
    """Messages that are sent together. The stage ends when every worker of the operators in ``awaits`` is done.

    Markers travel along all edges inside of their scope; in a change of the shape only along those in ``along``, as
    (from, to), since channels of others do not exist yet, or no more.
    """

    sends: tuple[Send, ...]
    awaits: frozenset[str]
    does: StageAction = StageAction.SWITCH
    along: frozenset[tuple[str, str]] | None = None


Stages = tuple[Stage, ...]


@dataclass(frozen=True)
class Plan:
    """The stages of a change of ``targets``.

    ``covering`` is the synchronisation that the change needs, whether or not the scheduler provides it. ``prediction``
    is the predicted delay if the plan was made for a run with flowing data; it does not influence the stages.
    ``reason`` is why ``auto`` has taken this scheduler, in a sentence; empty if it was named.
    """

    scheduler: str
    targets: frozenset[str]
    stages: Stages
    covering: Covering
    prediction: Prediction | None = field(default=None, compare=False)
    reason: str = field(default="", compare=False)

    @property
    def scope(self) -> frozenset[str]:
        """The operators that the plan changes or whose workers its markers pass."""
        return self.targets.union(*(send.scope for stage in self.stages for send in stage.sends))


def fries(graph: Graph, covering: Covering) -> Stages:
    """An FCM to the heads of each component, and a marker inside it (Fries, algorithms 2 to 4)."""
    sends = tuple(Send(head, part.operators) for part in covering.components for head in sorted(part.heads))
    return (Stage(sends, covering.targets),)


def epoch(graph: Graph, covering: Covering) -> Stages:
    """A marker from all sources through the whole graph, behind all data (Chi; Fries, section 3)."""
    return (Stage(_from_sources(graph), covering.targets),)


def naive(graph: Graph, covering: Covering) -> Stages:
    """An FCM to every target, and no marker between them (Fries, section 4.1).

    It is fast, and inconsistent if ``covering.naive_safe`` is false; it is provided for comparison.
    """
    return (Stage(_alone(covering.targets), covering.targets),)


def multiversion(graph: Graph, covering: Covering) -> Stages:
    """Sources tag new tuples; both versions run until the last tuple with the old tag has drained (Fries, section 8.1).

    No tuple waits for a marker: new-tagged tuples are processed by the new functions, concurrently with old-tagged
    ones. The cost is two configurations in memory.
    """
    return (Stage(_from_sources(graph), covering.targets, StageAction.TAG),)


def cut(graph: Graph, covering: Covering) -> Stages:
    """Targets say how far they have begun; above the highest of their answers a row is new, wherever it comes from.

    No marker waits behind a tuple, whatever is between the targets: the delay is two round trips. The cost is a
    check of each row's identity until the last old row has passed. See ``protocol.rollout``.
    """
    alone = _alone(covering.targets)
    return (Stage(alone, covering.targets, StageAction.FREEZE), Stage(alone, covering.targets))


def restart(graph: Graph, covering: Covering) -> Stages:
    """A checkpoint is taken, the job ends, and is started again with the new functions (Flink's savepoints)."""
    return (Stage(_from_sources(graph), frozenset(graph.by_name), StageAction.RESTART),)


def minibatch(graph: Graph, covering: Covering) -> Stages:
    """Sources hold until all tuples are processed; then targets switch, and sources resume.

    The change is made between two batches, as in Spark Streaming; the cost is an empty pipeline.
    """
    return (
        Stage(_from_sources(graph), frozenset(graph.by_name), StageAction.HOLD),
        Stage(_alone(covering.targets), covering.targets),
        Stage(_alone(graph.sources), frozenset(graph.sources), StageAction.RELEASE),
    )


_NAMED = 12
"""Operators that a line names at most."""

SCHEDULERS: dict[str, Callable[[Graph, Covering], Stages]] = {
    "fries": fries,
    "epoch": epoch,
    "naive": naive,
    "multiversion": multiversion,
    "cut": cut,
    "restart": restart,
    "minibatch": minibatch,
}


AUTO = "auto"
CHOICES = (*SCHEDULERS, AUTO)
"""What is accepted where a scheduler is named."""


def schedule(name: str, graph: Graph, targets: Iterable[str], pruning: bool = True, against_cut: str = "") -> Plan:
    """The plan of a change.

    Args:
        name: one of ``CHOICES``.
        graph: the dataflow.
        targets: the operators to change.
        pruning: whether one-to-many operators that need no synchronisation are left out.
        against_cut: why ``auto`` is not to take the cut, whatever the dataflow; empty for no such reason.

    Returns:
        The plan, without a prediction.
    """
    if not isinstance(name, str) or name not in CHOICES:
        raise PlanError(unknown("scheduler", str(name), CHOICES))
    covering, reason = cover(graph, targets, pruning), ""
    if name == AUTO:
        name, reason = _automatic(graph, covering, against_cut)
    return Plan(name, covering.targets, SCHEDULERS[name](graph, covering), covering, reason=reason)


def _automatic(graph: Graph, covering: Covering, against_cut: str) -> tuple[str, str]:
    """The scheduler that ``auto`` takes, and why.

    The cut where Fries would have to find a loop empty first, or would begin above the targets, at an operator that
    makes several rows of one, whose queues and those below it its markers wait in; elsewhere Fries is as fast, and rows
    are not looked at one by one.

    >>> from fries_nb.dataflow.graph import Emits, Operator
    >>> many = Operator("U", emits=Emits.ONE_TO_MANY)
    >>> graph = Graph("many", (Operator("S"), many, Operator("A")), (Edge("S", "U"), Edge("U", "A")))
    >>> schedule("auto", graph, ["A"]).reason
    'auto takes cut: the markers of fries would begin at U, which makes several rows of one'
    >>> schedule("auto", graph, ["U", "A"]).reason
    'auto takes fries: its markers begin at the operators that change'
    >>> schedule("auto", graph, ["A"], against_cut="the rows carry no identities").reason
    'auto takes fries, though its markers begin at U, since the cut cannot be taken: the rows carry no identities'
    """
    above = sorted(name for part in covering.components for name in part.heads - part.targets)
    loops = ", ".join(covering.loops[:_NAMED])
    if not (above or loops):
        return "fries", "auto takes fries: its markers begin at the operators that change"
    shown = ", ".join(above[:_NAMED])
    is_slow = f"fries waits until loop {loops} is empty" if loops else f"its markers begin at {shown}"
    if refused := against_cut or refused_by_row(graph, covering):
        return "fries", f"auto takes fries, though {is_slow}, since the cut cannot be taken: {refused}"
    if loops:
        return "cut", f"auto takes cut: fries would wait until loop {loops} is empty"
    many = "which makes" if len(above) == 1 else "which make"
    return "cut", f"auto takes cut: the markers of fries would begin at {shown}, {many} several rows of one"


def loops_above(graph: Graph, targets: Iterable[str]) -> list[str]:
    """The heads of the loops that hold some of these operators, or are above them."""
    above = set(targets).union(*(nx.ancestors(graph.digraph, name) for name in targets))
    return [head for head in graph.heads if head in above]


def refused_by_row(graph: Graph, covering: Covering) -> str:
    """Why a change of these targets cannot be decided row by row; empty if it can."""
    if timed := sorted(name for name in covering.targets if is_timed(graph.operator(name))):
        return f"what time brings out at {', '.join(timed[:_NAMED])} comes of many rows, of old and of new ones"
    return ""


def _from_sources(graph: Graph) -> tuple[Send, ...]:
    """A message to each source, whose marker passes the whole graph."""
    everywhere = frozenset(graph.by_name)
    return tuple(Send(source, everywhere) for source in graph.sources)


def _alone(operators: Iterable[str]) -> tuple[Send, ...]:
    """A message to each operator, whose marker stays there."""
    return tuple(Send(operator, frozenset((operator,))) for operator in sorted(operators))


def foretold(plan: Plan) -> list[str]:
    """Why ``auto`` has taken the scheduler, and a line on the predicted delay if the plan was made for a run.

    >>> from dataclasses import replace
    >>> from fries_nb.dataflow.graph import Edge, Operator
    >>> from fries_nb.planning.prediction import CriticalPath
    >>> plan = schedule("fries", Graph("chain", (Operator("S"), Operator("A")), (Edge("S", "A"),)), ["A"])
    >>> foretold(plan), foretold(replace(plan, prediction=Prediction((CriticalPath(("A",), 12.0),), 8_400.0)))
    ([], ['predicted delay: time to prepare (not measured yet), then commit 12 ms (epoch: 8.4 s)'])
    >>> foretold(replace(plan, prediction=Prediction((CriticalPath(("A",), 12.0),), 8_400.0, 158.0)))
    ['predicted delay 170 ms: prepare 158 ms, as in changes before, then commit 12 ms (epoch: 8.4 s)']
    """
    return [*filter(None, [plan.reason]), *_foretold(plan)]


def _foretold(plan: Plan) -> list[str]:
    known = plan.prediction
    if known is None:
        return []
    by_epoch = known.epoch_ms if plan.scheduler != "epoch" else None
    compared = "" if by_epoch is None else f" (epoch: {duration(by_epoch / 1000)})"
    slowest = max(known.ways, key=lambda way: way.delay_ms or 0.0, default=None)
    unmeasured = list(dict.fromkeys(name for way in known.ways for name in way.unmeasured))
    if slowest is None:
        return [f"predicted delay unknown, since a change by {plan.scheduler} waits for more than markers{compared}"]
    if loops := list(dict.fromkeys(name for way in known.ways for name in way.loops)):
        return [f"predicted delay unknown, since {waits_for_loops(loops)} to be empty first{compared}"]
    if unmeasured:
        named = ", ".join(unmeasured[:_NAMED])
        return [f"predicted delay unknown, since the pace of {named} is not known yet{compared}"]
    along = f" along {' → '.join(slowest.operators)}" if len(slowest.operators) > 1 else ""
    commit = f"then commit {duration((slowest.delay_ms or 0.0) / 1000)}{along}{compared}"
    if known.prepare_ms is None or known.delay_ms is None:
        return [f"predicted delay: time to prepare (not measured yet), {commit}"]
    prepare = f"prepare {duration(known.prepare_ms / 1000)}, as in changes before"
    return [f"predicted delay {duration(known.delay_ms / 1000)}: {prepare}, {commit}"]


def waits_for_loops(loops: Sequence[str]) -> str:
    """The loops, as the subject of what they have to be."""
    return f"loop {loops[0]} has" if len(loops) == 1 else f"loops {', '.join(loops)} have"


Ends = tuple[str, str]


class MarkerStepKind(StrEnum):
    """What happens in a step."""

    SENT = "sent"
    """Messages leave the controller for these operators."""
    REACHED = "reached"
    """The message (if there are no edges) or the marker has reached the operator."""
    RETURNED = "returned"
    """The marker comes back to the head of a loop, which it has passed before."""
    COMPLETED = "completed"
    """The stage has ended."""


@dataclass(frozen=True, slots=True)
class MarkerStep:
    """A step of a plan.

    Attributes:
        kind: what happens.
        does: the action of the stage.
        operators: where it happens.
        edges: the edges that the marker travels in this step.
    """

    kind: MarkerStepKind
    does: StageAction
    operators: tuple[str, ...]
    edges: tuple[Ends, ...] = ()


def marker_steps(graph: Graph, plan: Plan, times: Mapping[str, float]) -> Iterator[MarkerStep]:
    """The steps of a plan, stage by stage; each edge inside a marker's scope is travelled once.

    Returns:
        The steps, in an order in which they can have happened.
    """
    for stage in plan.stages:
        heads = tuple(dict.fromkeys(send.operator for send in stage.sends if send.operator in graph))
        yield MarkerStep(MarkerStepKind.SENT, stage.does, heads)
        is_timed = stage.does in (StageAction.SWITCH, StageAction.TAG)
        yield from _reached(graph, stage, times if is_timed else {})
        awaited = tuple(name for name in graph.order if name in stage.awaits)
        yield MarkerStep(MarkerStepKind.COMPLETED, stage.does, awaited)


def _reached(graph: Graph, stage: Stage, times: Mapping[str, float]) -> Iterator[MarkerStep]:
    """The operators in the scopes of a stage, in the order in which its markers reach them."""
    places = {name: place for place, name in enumerate(graph.order)}
    scopes = list(dict.fromkeys(send.scope for send in stage.sends))
    waits: dict[tuple[int, str], int] = {}
    ready: list[tuple[float, int, int, str]] = []
    inputs = partial(_inputs, graph, stage)
    for number, scope in enumerate(scopes):
        for name in (name for name in graph.order if name in scope):
            waits[number, name] = len(inputs(name, scope))
            if not waits[number, name]:
                heapq.heappush(ready, (times.get(name, 0.0), places[name], number, name))
    while ready:
        at, _, number, name = heapq.heappop(ready)
        scope = scopes[number]
        yield MarkerStep(MarkerStepKind.REACHED, stage.does, (name,), inputs(name, scope))
        for edge in graph.out_edges(name):
            if edge.to not in scope or not _is_along(stage, edge):
                continue
            if edge.feedback:
                yield MarkerStep(MarkerStepKind.RETURNED, stage.does, (edge.to,), ((name, edge.to),))
                continue
            waits[number, edge.to] -= 1
            if not waits[number, edge.to]:
                heapq.heappush(ready, (times.get(edge.to, at), places[edge.to], number, edge.to))


def _inputs(graph: Graph, stage: Stage, name: str, scope: frozenset[str]) -> tuple[Ends, ...]:
    """The forward edges into an operator on which markers come from inside a scope."""
    inside = (edge for edge in graph.in_edges(name) if edge.source in scope and not edge.feedback)
    return tuple((edge.source, name) for edge in inside if _is_along(stage, edge))


def _is_along(stage: Stage, edge: Edge) -> bool:
    return stage.along is None or (edge.source, edge.to) in stage.along
