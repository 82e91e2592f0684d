"""Guards: a change whose new configuration fails soon is rolled back by itself.

A guard begins when its change is decided, and lasts so many seconds, or tuples, from the last worker's switch on. A
failure counts if it is one of a target that has switched, or of an operator below a target that would end the run: its
tuples may be of the new configuration. What can be done about it depends on what the tuple has met:

    the tuple in hand has met              and then
    new targets in the failing chain       *in place*: the worker waits, the FCM of the rollback comes in front of the
    alone                                  tuple, and the old configuration processes it
    a new target in another chain          the run goes back to its last checkpoint, and the change is rolled back:
                                           the old configuration processes the tuple as if nothing had been
    the same, without a checkpoint         the operator's own policy (fail, pause, dead letter) says

A chain can be retried in place if a head of the rollback's plan is in it: then nothing that changed is before it.

A guard fires at most once. It ends when it has lasted long enough, or a later change is decided whose markers pass one
of the operators that its rollback would need, or the run ends.

Such a later change may find a worker in front of a tuple that the guarded configuration has failed on, or that will:

    the worker is                          and then
    a head of the later change             its FCM comes in front of the tuple, which the later configuration processes
    to switch by a marker that travels     if every operator that the guarded change has brought is changed again, the
                                           run goes back to its last checkpoint, and the later change is in place
    the same, without a checkpoint         the operator's own policy says: the marker is behind the tuple
    in need of another rollback            likewise: the guarded configuration stays there

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.scheduling.fries import schedule
>>> flow = Graph("chain", tuple(map(Operator, ("S", "A", "B", "C"))), (Edge("S", "A"), Edge("A", "B"), Edge("B", "C")))
>>> guards = Guards(flow, chaining=False)
>>> plan = schedule(flow, {"A", "B"})
>>> guards.begin("u1", Guard(plan, back=True, seconds=5), frozenset())
>>> watch = guards.of("u1")
>>> watch.in_place("A"), watch.in_place("B"), sorted(watch.covered)
(True, False, ['A', 'B', 'C'])
>>> guards.counting("u1", 0, {}), guards.expired(4 * 10**9, {}), guards.expired(5 * 10**9, {})
(None, [], ['u1'])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from fries_nb.controller.events import Guard
from fries_nb.dataflow.graph import Graph
from fries_nb.messages import Report, WorkerId
from fries_nb.topology.expansion import chains


@dataclass
class Watch:
    """An active guard.

    Attributes:
        change: the id of its change.
        guard: the requested guard.
        transforms: the targets whose state the change transforms.
        covered: the targets, and the operators below them.
        scope: the operators that the rollback's markers pass.
        retried: the operators whose tuples can be retried in place.
        until_ns: when it ends, once the change is done; ``before``: the tuples that each target had processed by then.
        error: the failure for which it has fired, with its ``details``; empty if it has not.
    """

    change: str
    guard: Guard
    transforms: frozenset[str]
    covered: frozenset[str]
    scope: frozenset[str]
    retried: frozenset[str]
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

    def in_place(self, operator: str) -> bool:
        """Whether the old configuration can process a tuple on which this operator fails in place."""
        return self.guard.back and operator in self.retried


class Guards:
    """All active guards of a run.

    Args:
        graph: the dataflow.
        chaining: whether hosts chain operators: a chain retries a tuple as a whole.
    """

    def __init__(self, graph: Graph, chaining: bool) -> None:
        self._graph = graph
        self._chain_of = {name: frozenset(chain) for chain in chains(graph, chaining) for name in chain}
        self._watches: dict[str, Watch] = {}

    def begin(self, change: str, guard: Guard, transforms: frozenset[str]) -> None:
        """Begin the guard of a change that is decided."""
        plan = guard.plan
        below = {name for target in plan.targets for name in nx.descendants(self._graph.digraph, target)}
        heads = {send.operator for stage in plan.stages for send in stage.sends}
        retried = frozenset[str]().union(*(self._chain_of[head] for head in heads))
        self._watches[change] = Watch(change, guard, transforms, plan.targets | below, plan.scope, retried)

    def counting(self, change: str, now_ns: int, reports: Mapping[WorkerId, Report]) -> None:
        """Begin to count time, or tuples, since the change is done."""
        watch = self._watches.get(change)
        if watch is None:
            return
        if watch.guard.seconds is not None:
            watch.until_ns = now_ns + int(watch.guard.seconds * 1e9)
        watch.before = self._processed(watch, reports)

    def chain_of(self, operator: str) -> frozenset[str]:
        """The operators of this one's chain."""
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
        """The guards to which a failure of this operator may be due, the latest first."""
        return [watch for watch in reversed(self._watches.values()) if operator in watch.covered]

    def meeting(self, operators: Iterable[str]) -> list[Watch]:
        """The guards whose rollback, not decided yet, would need one of these operators."""
        passed = set(operators)
        return [watch for watch in self._watches.values() if not watch.fired and watch.scope & passed]

    def expired(self, now_ns: int, reports: Mapping[WorkerId, Report]) -> list[str]:
        """The changes whose guards have lasted long enough."""
        return [
            watch.change
            for watch in self._watches.values()
            if not watch.fired and (self._is_late(watch, now_ns) or self._is_long(watch, reports))
        ]

    def _is_late(self, watch: Watch, now_ns: int) -> bool:
        return watch.until_ns is not None and now_ns >= watch.until_ns

    def _is_long(self, watch: Watch, reports: Mapping[WorkerId, Report]) -> bool:
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
    """The id of the rollback by which a guard undoes this change."""
    return f"{change}.back"
