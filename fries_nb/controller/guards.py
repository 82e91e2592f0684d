"""Guards: automatic rollback of a change whose new configuration fails.

A guard begins when its change is decided, and lasts a number of seconds or tuples, counted from the switch of the last
worker. A failure counts if it occurs in a target that has switched, or in an operator downstream of a target and would
end the run, since its tuples may come from the new configuration. The remedy depends on which new configurations the
failing tuple has passed:

    the failing tuple has passed           remedy
    new targets in the failing chain only  *in place*: the worker pauses, the FCM of the rollback precedes the tuple,
                                           and the old configuration processes it
    a new target in another chain          the run restarts from its last checkpoint with the change rolled back, and
                                           the old configuration processes the tuple
    the same, without a checkpoint         the operator's error policy applies (fail, pause, dead letter)

A chain can retry a tuple in place if it contains a head of the rollback's plan, since then no changed operator is
upstream of it. Hosts rearrange chains while they run, so a paused worker names its own.

A change of the shape is always rolled back by a restart, with the dataflow before it.

A guard fires at most once. It ends after its duration, when a later change is decided whose markers pass an operator
that its rollback needs, or with the run.

When such a later change is decided, a worker may be paused on a tuple on which the guarded configuration failed, or
fail later:

    the worker                             effect
    is a head of the later change          its FCM precedes the tuple, which the later configuration processes
    switches by a marker on its channels   if the later change replaces every target of the guarded one, the run
                                           restarts from its last checkpoint with the later change in effect
    the same, without a checkpoint         the operator's error policy applies, since the marker is behind the tuple
    runs a target that is not replaced     the operator's error policy applies; the guarded configuration stays

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.planning.schedulers import schedule
>>> flow = Graph("chain", tuple(map(Operator, ("S", "A", "B", "C"))), (Edge("S", "A"), Edge("A", "B"), Edge("B", "C")))
>>> guards = Guards(flow, chaining=False)
>>> plan = schedule("fries", flow, {"A", "B"})
>>> guards.begin("u1", Guard(plan, back=True, seconds=5), frozenset())
>>> watch = guards.of("u1")
>>> watch.in_place(["A"]), watch.in_place(["B"]), sorted(watch.covered)
(True, False, ['A', 'B', 'C'])
>>> guards.counting("u1", 0, {}), guards.expired(4 * 10**9, {}), guards.expired(5 * 10**9, {})
(None, [], ['u1'])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from fries_nb.controller.events import Guard
from fries_nb.dataflow.graph import Graph
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.protocol.topology import chains


@dataclass
class Watch:
    """An active guard.

    Attributes:
        change: the id of its change.
        guard: the requested guard.
        transforms: the targets whose state the change transforms.
        covered: the targets and the operators downstream of them.
        scope: the operators that the rollback's markers pass.
        heads: the operators that get the rollback's FCMs.
        until_ns: time of its end, once the change is done; ``None`` before, and if it is limited by tuples.
        before: number of tuples that each target had processed when the change was done.
        error: the failure for which it has fired; empty if it has not.
        details: the traceback of the failure.
    """

    change: str
    guard: Guard
    transforms: frozenset[str]
    covered: frozenset[str]
    scope: frozenset[str]
    heads: frozenset[str]
    until_ns: int | None = None
    before: dict[str, int] | None = None
    error: str = ""
    details: str = ""

    @property
    def back(self) -> str:
        """The id of the rollback."""
        return rollback_of(self.change)

    @property
    def fired(self) -> bool:
        """Whether the rollback is decided."""
        return bool(self.error)

    def in_place(self, chain: Collection[str]) -> bool:
        """Whether the old configuration can retry, in place, a tuple on which an operator of this chain failed."""
        return self.guard.back and not self.heads.isdisjoint(chain)


class Guards:
    """All active guards of a run.

    Args:
        chaining: whether hosts chain operators from the start on; a chain retries a tuple as a whole.
    """

    def __init__(self, graph: Graph, chaining: bool) -> None:
        self._chaining = chaining
        self._watches: dict[str, Watch] = {}
        self.know(graph)

    def know(self, graph: Graph) -> None:
        """Go on with the dataflow after a change of its shape."""
        self._graph = graph
        self._chain_of = {name: frozenset(chain) for chain in chains(graph, self._chaining) for name in chain}

    def begin(self, change: str, guard: Guard, transforms: frozenset[str]) -> None:
        """Begin the guard of a change that is decided."""
        plan = guard.plan
        if guard.shape is not None:
            self._begin_of_shape(change, guard, guard.shape.after)
            return
        below = {name for target in plan.targets for name in nx.descendants(self._graph.digraph, target)}
        heads = frozenset(send.operator for stage in plan.stages for send in stage.sends)
        self._watches[change] = Watch(change, guard, transforms, plan.targets | below, plan.scope, heads)

    def _begin_of_shape(self, change: str, guard: Guard, before: Graph) -> None:
        """Begin the guard of a change of the shape, which ends with the next change and has nothing to retry in place.

        A failure counts in what was added, in targets, and below both.
        """
        graph = self._graph.digraph
        begun = [name for name in graph if name not in before or name in guard.plan.targets]
        covered = frozenset(begun).union(*(nx.descendants(graph, name) for name in begun))
        self._watches[change] = Watch(change, guard, frozenset(), covered, frozenset(graph), frozenset())

    def counting(self, change: str, now_ns: int, reports: Mapping[WorkerId, Report]) -> None:
        """Start the duration of a guard, since its change is done."""
        watch = self._watches.get(change)
        if watch is None:
            return
        if watch.guard.seconds is not None:
            watch.until_ns = now_ns + int(watch.guard.seconds * 1e9)
        watch.before = self._processed(watch, reports)

    def chain_of(self, operator: str) -> frozenset[str]:
        """The operators of this one's chain, as hosts form it at the start."""
        return self._chain_of[operator]

    def of(self, change: str) -> Watch | None:
        """The guard of this change, if it is active."""
        return self._watches.get(change)

    def end(self, change: str) -> Watch | None:
        """End the guard of this change, if it is active."""
        return self._watches.pop(change, None)

    def all(self) -> list[str]:
        """The changes under guard, in the order in which they were decided."""
        return list(self._watches)

    def covering(self, operator: str) -> list[Watch]:
        """The guards whose change may have caused a failure of this operator, newest first."""
        return [watch for watch in reversed(self._watches.values()) if operator in watch.covered]

    def meeting(self, operators: Iterable[str]) -> list[Watch]:
        """The guards that have not fired and whose rollback would pass one of these operators."""
        passed = set(operators)
        return [watch for watch in self._watches.values() if not watch.fired and watch.scope & passed]

    def expired(self, now_ns: int, reports: Mapping[WorkerId, Report]) -> list[str]:
        """The ids of changes whose guards have reached their duration without firing."""
        return [
            watch.change
            for watch in self._watches.values()
            if not watch.fired and (self._time_is_up(watch, now_ns) or self._count_is_reached(watch, reports))
        ]

    def _time_is_up(self, watch: Watch, now_ns: int) -> bool:
        return watch.until_ns is not None and now_ns >= watch.until_ns

    def _count_is_reached(self, watch: Watch, reports: Mapping[WorkerId, Report]) -> bool:
        tuples, before = watch.guard.tuples, watch.before
        if tuples is None or before is None:
            return False
        now = self._processed(watch, reports)
        return all(now[name] - before[name] >= tuples for name in watch.guard.plan.targets)

    def _processed(self, watch: Watch, reports: Mapping[WorkerId, Report]) -> dict[str, int]:
        counts = dict.fromkeys(watch.guard.plan.targets, 0)
        for worker, report in reports.items():
            if worker.operator in counts:
                counts[worker.operator] += report.processed
        return counts


def rollback_of(change: str) -> str:
    """The id of the automatic rollback of this change."""
    return f"{change}.back"
