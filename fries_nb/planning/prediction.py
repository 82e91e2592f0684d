"""Predictions from measurements: the delay of a change, and the number of hosts that a dataflow needs.

Predicts the delay of a marker from the heads of its scope to the targets, from the queues on its path.

A fast control message overtakes the queue of a head, and waits for the head's current tuple only. From the head on a
marker travels with the data, behind the queue of each operator downstream. A target's delay is therefore that
of the critical path from a head to it, and a component's delay that of its last target (Fries, sections 3.2 and 5.3).

The waiting time of a queue is its length divided by the rate at which tuples are taken from it (Little's law). The
measured rate already reflects parallelism, tuple cost and back-pressure.

FM has 400 tuples waiting and takes 200 a second with two workers, MC has 50. A change of both starts at FM, whose queue
it overtakes; markers from the source would not:

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> graph = Graph("fraud", (Operator("payments"), Operator("FM", workers=2), Operator("MC", workers=2)), (
...     Edge("payments", "FM"), Edge("FM", "MC")))
>>> queues = {"payments": Queue(0, 200.0), "FM": Queue(400, 200.0), "MC": Queue(50, 200.0)}
>>> targets = frozenset({"FM", "MC"})
>>> ways(graph, {targets: {"FM"}}, targets, queues)
(CriticalPath(operators=('FM', 'MC'), delay_ms=260.0, unmeasured=(), loops=()),)
>>> ways(graph, {frozenset(graph): {"payments"}}, targets, queues)
(CriticalPath(operators=('payments', 'FM', 'MC'), delay_ms=2250.0, unmeasured=(), loops=()),)

The prediction assumes that the lengths of queues do not change. Behind a growing queue the marker takes longer, behind
a shrinking one less. It also assumes that tuples are distributed evenly among an operator's workers; with skewed keys
the marker takes longer. A loop on a path to a target has to be empty first, which nothing measured predicts. For an
operator that is sometimes idle the measured rate is the arrival rate, so the waiting time of its queue is
overestimated.

That is the commit, one part of a change's delay. The other part, from the request to the first message, is mostly the
time to prepare the new functions. No queue tells it; it is taken from the changes of the run that are done.

**Hosts**: how many a dataflow needs at the rates of its sources, in the manner of DS2 (Kalavri et al., OSDI 2018).

An operator costs so many nanoseconds of a processor for each tuple that it takes in, and takes in so many tuples for
each one of the sources (its selectivity). At a target rate of the sources, these products sum up to a number of busy
cores. A host is one process with one interpreter lock, so it has one core, of which ``BUSY_SHARE`` is to be used. What
the hosts need for sending and receiving does not count. The target rate is what the sources are to deliver, and a
selectivity is that of the path: what arrives at an operator for each tuple that the operators above have processed. So
the answer is the same whether or not the dataflow keeps up: no trials are needed.

>>> before = {"S": Totals(1_000, 1_000, 2_000_000), "FM": Totals(1_000, 1_000, 300_000_000)}
>>> after = {"S": Totals(3_000, 3_000, 6_000_000), "FM": Totals(1_600, 2_800, 480_000_000)}  # 1,200 are queued
>>> demands = demands_of(before, after, {"S": (), "FM": ("S",)})
>>> for one in demands:
...     print(one.operator, one.useful_ns, round(one.selectivity, 2))
S 2000.0 1.0
FM 300000.0 0.9
>>> cores = cores_needed(demands, rate=6_000)
>>> round(cores, 3), hosts_needed(cores), hosts_needed(cores=0.1)
(1.632, 3, 1)

Functions that wait, for a service or a disk, need no processor, but a worker each: so many have to stay.

>>> slow = OperatorDemand("FM", useful_ns=50_000, selectivity=1.0, busy_ns=10_000_000)
>>> round(slow.workers_needed(rate=100), 3)
1.25
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from fries_nb.dataflow.graph import Graph
from fries_nb.planning.covering import reached


@dataclass(frozen=True, slots=True)
class Queue:
    """Measurements of an operator over all its workers.

    Attributes:
        waiting: tuples in its queues.
        rate: tuples that it takes per second, by the last measurement.
    """

    waiting: int
    rate: float


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path that determines the delay of a marker.

    Attributes:
        operators: from a head to the target that is reached last; empty if unknown.
        delay_ms: milliseconds from the first message to the switch of the last target; ``None`` if unknown.
        unmeasured: operators on paths to targets whose rate is unknown: they have taken no tuple yet, or currently take
            none although some wait.
        loops: outermost loops on paths to targets; the delay is then unknown, since rows may go round them for long.
    """

    operators: tuple[str, ...]
    delay_ms: float | None
    unmeasured: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted delay of a change and its parts, if it were requested now; the delay is that of ``Outcome``.

    Attributes:
        ways: the critical path of each marker; with Fries one for each component. Empty for schedulers whose stages
            await more than markers.
        epoch_ms: the commit by markers from all sources in milliseconds, for comparison; ``None`` if unknown.
        prepare_ms: milliseconds from the request to the first message: the median of the run's last changes that are
            done; ``None`` before the first one.
    """

    ways: tuple[CriticalPath, ...]
    epoch_ms: float | None
    prepare_ms: float | None = None

    @property
    def commit_ms(self) -> float | None:
        """The commit: milliseconds from the first message to the last switch; ``None`` if unknown.

        It is that of the slowest marker, since they travel concurrently.
        """
        return longest(self.ways)

    @property
    def delay_ms(self) -> float | None:
        """Milliseconds from the request to the last switch; ``None`` if one of its parts is unknown."""
        commit_ms = self.commit_ms
        return None if commit_ms is None or self.prepare_ms is None else self.prepare_ms + commit_ms


def longest(ways: Iterable[CriticalPath]) -> float | None:
    """The delay of concurrent paths, in milliseconds; ``None`` if there are none or any delay is unknown."""
    delays = [way.delay_ms for way in ways]
    known = [delay for delay in delays if delay is not None]
    return max(known) if known and len(known) == len(delays) else None


def ways(
    graph: Graph, markers: Mapping[frozenset[str], Set[str]], targets: Set[str], queues: Mapping[str, Queue]
) -> tuple[CriticalPath, ...]:
    """The critical path of each marker, in O(V + E) apart from sorting.

    Returns:
        One path per scope, in the order of ``markers``.
    """
    place = {name: number for number, name in enumerate(graph.order)}
    found = []
    for scope, heads in markers.items():
        above = sorted(reached(targets & scope, graph.predecessors, within=scope), key=place.__getitem__)
        found.append(_way(graph, above, heads, targets, queues))
    return tuple(found)


def _way(
    graph: Graph, above: list[str], heads: Set[str], targets: Set[str], queues: Mapping[str, Queue]
) -> CriticalPath:
    """The critical path among these operators, which lie on paths to targets and are given in topological order."""
    outermost = (one for one in map(graph.operator, above) if one.traits.heads_loop and one.within.level == 1)
    if loops := tuple(one.name for one in outermost):
        return CriticalPath((), None, loops=loops)
    unmeasured = tuple(name for name in above if graph.in_edges(name) and not _has_pace(queues.get(name)))
    if unmeasured:
        return CriticalPath((), None, unmeasured)
    passed_s: dict[str, float] = {}
    before: dict[str, str] = {}
    for name in above:
        tails = [tail for tail in graph.predecessors(name) if tail in passed_s]
        if tails:
            before[name] = max(tails, key=passed_s.__getitem__)
        arrives_s = passed_s[before[name]] if tails else 0.0
        ahead = _ahead(graph, name, name in heads, queues)
        passed_s[name] = arrives_s + (ahead / queues[name].rate if ahead else 0.0)
    last = max((name for name in reversed(above) if name in targets), key=passed_s.__getitem__)
    operators = [last]
    while operators[-1] in before:
        operators.append(before[operators[-1]])
    return CriticalPath(tuple(reversed(operators)), passed_s[last] * 1000)


def _has_pace(queue: Queue | None) -> bool:
    return queue is not None and (queue.rate > 0 or not queue.waiting)


def _ahead(graph: Graph, name: str, is_head: bool, queues: Mapping[str, Queue]) -> int:
    """The number of tuples that a marker waits for; at a head, the current tuple of each worker.

    It is 0 at a source, whose read-ahead is overtaken by the message.
    """
    if not graph.in_edges(name):
        return 0
    return min(queues[name].waiting, graph.by_name[name].workers) if is_head else queues[name].waiting


BUSY_SHARE = 0.8
"""Share of a host's core that is to be used, so that there is room for peaks."""


class Totals(NamedTuple):
    """What the workers of an operator have done since the start.

    Attributes:
        processed: tuples taken in.
        arrived: these, and those that wait for it.
        useful_ns: processor time in nanoseconds.
        busy_ns: duration of their turns in nanoseconds, of workers with slow tuples only.
    """

    processed: int
    arrived: int
    useful_ns: int
    busy_ns: int = 0


@dataclass(frozen=True)
class OperatorDemand:
    """What an operator needs of a processor.

    Attributes:
        operator: the operator; the first one of a chain stands for all of it.
        useful_ns: nanoseconds of a processor for each tuple that it takes in.
        selectivity: number of tuples that arrive at it for each tuple of the sources.
        busy_ns: nanoseconds for which a worker with slow tuples is busy with each, waits included; 0 for other workers.
    """

    operator: str
    useful_ns: float
    selectivity: float
    busy_ns: float = 0.0

    def workers_needed(self, rate: float) -> float:
        """The number of workers that such slow tuples keep busy for that share of the time; 0 if they are quick."""
        return self.busy_ns * self.selectivity * rate / 1e9 / BUSY_SHARE


def demands_of(
    before: Mapping[str, Totals], after: Mapping[str, Totals], upstream: Mapping[str, Collection[str]]
) -> tuple[OperatorDemand, ...]:
    """What the operators have needed between two moments.

    Returns:
        The demand of each operator; empty if the sources have delivered nothing, if totals have fallen, as when workers
        have left or were restored, or if an operator has taken in nothing though tuples wait for it: then it is inside
        a call that takes longer, and it is not known yet what a tuple costs.
    """
    passed = {
        name: Totals(*(end - begin for begin, end in zip(before[name], now, strict=True)))
        for name, now in after.items()
        if name in before
    }
    delivered = sum(passed[name].processed for name, above in upstream.items() if not above and name in passed)
    if delivered <= 0 or any(min(one.processed, one.useful_ns, one.busy_ns) < 0 for one in passed.values()):
        return ()
    if any(not passed[name].processed and after[name].arrived > after[name].processed for name in passed):
        return ()
    selectivity: dict[str, float] = {}
    for name, above in upstream.items():
        if name not in passed:  # it had not reported at the first moment
            continue
        known = [one for one in above if one in selectivity]
        sent = sum(passed[one].processed for one in known)
        if not above:
            selectivity[name] = passed[name].processed / delivered
        elif sent:
            selectivity[name] = max(0, passed[name].arrived) / sent * sum(selectivity[one] for one in known)
    return tuple(
        OperatorDemand(name, one.useful_ns / one.processed, selectivity[name], one.busy_ns / one.processed)
        for name, one in passed.items()
        if one.processed and name in selectivity
    )


def cores_needed(demands: Iterable[OperatorDemand], rate: float) -> float:
    """The number of cores that these demands keep busy."""
    return sum(demand.useful_ns * demand.selectivity for demand in demands) * rate / 1e9


def hosts_needed(cores: float) -> int:
    """The number of hosts for so many busy cores."""
    return max(1, math.ceil(cores / BUSY_SHARE - 1e-9))
