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
restart      restart payments: FC-FM-MC-payments
minibatch    hold    payments: FC-FM-MC-payments
minibatch    switch  FM: FM MC: MC
minibatch    release payments: payments
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from fries_nb.dataflow.graph import Graph
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
    """

    scheduler: str
    targets: frozenset[str]
    stages: Stages
    covering: Covering
    prediction: Prediction | None = field(default=None, compare=False)

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
    "restart": restart,
    "minibatch": minibatch,
}


def schedule(name: str, graph: Graph, targets: Iterable[str], pruning: bool = True) -> Plan:
    """The plan of a change.

    Returns:
        The plan, without a prediction.
    """
    if not isinstance(name, str) or name not in SCHEDULERS:
        raise PlanError(unknown("scheduler", str(name), SCHEDULERS))
    covering = cover(graph, targets, pruning)
    return Plan(name, covering.targets, SCHEDULERS[name](graph, covering), covering)


def _from_sources(graph: Graph) -> tuple[Send, ...]:
    """A message to each source, whose marker passes the whole graph."""
    everywhere = frozenset(graph.by_name)
    return tuple(Send(source, everywhere) for source in graph.sources)


def _alone(operators: Iterable[str]) -> tuple[Send, ...]:
    """A message to each operator, whose marker stays there."""
    return tuple(Send(operator, frozenset((operator,))) for operator in sorted(operators))


def foretold(plan: Plan) -> list[str]:
    """A line on the predicted delay and its parts; empty if the plan was not made for a run.

    >>> from dataclasses import replace
    >>> from fries_nb.dataflow.graph import Edge, Operator
    >>> from fries_nb.planning.prediction import CriticalPath
    >>> plan = schedule("fries", Graph("chain", (Operator("S"), Operator("A")), (Edge("S", "A"),)), ["A"])
    >>> foretold(plan), foretold(replace(plan, prediction=Prediction((CriticalPath(("A",), 12.0),), 8_400.0)))
    ([], ['predicted delay: time to prepare (not measured yet), then commit 12 ms (epoch: 8.4 s)'])
    >>> foretold(replace(plan, prediction=Prediction((CriticalPath(("A",), 12.0),), 8_400.0, 158.0)))
    ['predicted delay 170 ms: prepare 158 ms, as in changes before, then commit 12 ms (epoch: 8.4 s)']
    """
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
