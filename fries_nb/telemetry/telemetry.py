"""The telemetry of a run over all of its regions: measurements, marks for plots, printed lines.

Sinks of a region include those at which the dataflow was cut. Tuples that a region reads from an earlier region are not
counted again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fries_nb.controller.events import CheckpointEnded, OperatorPaused, Recover, RescaleEnded
from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.regions import Region, regions
from fries_nb.locks import locked
from fries_nb.operators.timed_calls import TimeValues, values_named
from fries_nb.progress.exchange import first_counts
from fries_nb.progress.progress_graph import CountChanges
from fries_nb.protocol.messages import Chained, Paused, Report, WorkerId
from fries_nb.protocol.progress_locations import progress_graph
from fries_nb.protocol.running_chains import ChainChange, RunningChains
from fries_nb.storage.part_files import first_come
from fries_nb.telemetry.frontiers import Frontiers, LoopState, loop_states
from fries_nb.telemetry.history import (
    CountHistory,
    CountSample,
    History,
    MarkKind,
    PlotMark,
    Point,
    QueueHistory,
    QueuePoint,
    WaitingPoint,
)
from fries_nb.telemetry.metrics import HostLoad, Metrics, MetricsSnapshot, OperatorMetrics, StateGrowth, loads_by_host
from fries_nb.telemetry.run_states import ConstraintStates
from fries_nb.transport.envelopes import Line, ProcessUsage


@dataclass(frozen=True)
class KeptCheckpoint:
    """A complete checkpoint."""

    epoch: int  # number of the checkpoint
    at_s: float  # time of its completion, in seconds since the Unix epoch
    region: int = 1  # number of its region, from 1


@dataclass(frozen=True)
class RecoveryTime:
    """A restart of the hosts from a checkpoint."""

    reason: str  # its cause: the loss of a host, or a change by restart
    at_s: float  # time of its beginning, in seconds since the Unix epoch
    epoch: int  # number of the checkpoint from which the run continued; 0 for the initial state
    seconds: float | None = None  # duration until all hosts had joined again; ``None`` until then


EVENTS_KEPT = 1_000
"""Number of checkpoints, of recoveries, and of topologies that are kept besides the last one."""
CHAINS_KEPT = 1_000
"""Maximum number of changes of chains that are kept."""
PRINTED = 1_000
"""Maximum number of printed lines that are kept."""


class Telemetry:
    """The telemetry of a run. One thread writes it, any thread may read it: each method is atomic."""

    def __init__(
        self,
        graph: Graph,
        clock: Callable[[], float] = time.monotonic,
        constraints: Iterable[LatencyConstraint] = (),
        chains: Iterable[tuple[str, ...]] = (),
    ) -> None:
        self.lock = threading.RLock()  # held by each method
        self._graph = graph  # the whole dataflow
        self._clock = clock  # a monotonic clock in seconds
        self._metrics = Metrics(graph.by_name)
        self._history = History()
        self._queue_history = QueueHistory()
        self._growth = StateGrowth()
        self._count_history = CountHistory()
        self._printed: deque[Line] = deque(maxlen=PRINTED)
        self.lines_printed = 0  # number of lines that operators have printed
        self.paused: Mapping[str, tuple[Paused, ...]] = {}  # operator to its workers that are paused on a tuple
        self.failed_at = ""  # the operator that failed first since the hosts were started, or restarted
        self.checkpoints: tuple[KeptCheckpoint, ...] = ()  # the complete checkpoints, in order
        self.recoveries: tuple[RecoveryTime, ...] = ()  # the restarts of hosts, in order
        # the operators grouped into chains, as at the start
        # the last answer to a request for the chain that begins with a worker, since the hosts were restarted
        self.chains: Mapping[WorkerId, Chained] = {}
        workers = {operator.name: operator.workers for operator in graph.operators}
        # the chains as they are now
        self.running_chains = RunningChains((chain for chain in chains if workers.keys() >= set(chain)), workers)
        self.chain_changes: tuple[ChainChange, ...] = ()  # when they have changed, and what they were from then on
        self.topologies: tuple[HostCount, ...] = ()  # the hosts before the first rescale, and from each one on
        self._columns: dict[WorkerId, pa.Schema] = {}
        # the latency constraints with which it starts
        self.constraints = ConstraintStates(constraints)  # the latency constraints, and whether they are met
        self._usages: dict[int, ProcessUsage] = {}
        self._outstanding: tuple[int, CountChanges] | None = None
        self._frontiers: Frontiers | None = None  # of these; computed when someone asks

    @locked
    def go_on(self, graph: Graph) -> None:
        """Go on with the dataflow after a change of its shape; what was measured of removed operators is forgotten.

        Until a host reports its view again, added sources count as they begin: frontiers below them are at the
        beginning, rather than at an end.
        """
        if self._outstanding is not None:
            number, counts = self._outstanding
            told = {one.location.operator for one in counts} | self._graph.by_name.keys()
            added = {one.name: one.workers for one in graph.operators if one.traits.is_source and one.name not in told}
            self._outstanding = number, (*counts, *first_counts(progress_graph(graph), added))
        self._frontiers = None  # those of the dataflow before
        self._graph = graph
        self._metrics.go_on(graph.by_name)
        workers = {operator.name: operator.workers for operator in graph.operators}
        self.running_chains = RunningChains((), workers)

    @locked
    def outstanding(self, region: int, counts: CountChanges) -> None:
        """Record the outstanding pointstamps of a region."""
        self._outstanding, self._frontiers = (region, counts), None

    @locked
    def frontiers(self) -> Frontiers | None:
        """The frontiers of the operators of the region that runs, as last reported; ``None`` if there are none."""
        values = self._time_values()
        if self._frontiers is None and self._outstanding is not None and values is not None:
            number, counts = self._outstanding
            self._frontiers = Frontiers(regions(self._graph)[number].graph, counts, values)
        return self._frontiers

    @locked
    def shown_time(self, ticks: int) -> Any:
        """A time as operators have it, as users see it: a ``datetime``, or the same number."""
        values = self._time_values()
        return ticks if values is None else values.shown(ticks)

    def _time_values(self) -> TimeValues | None:
        """The type of times, once a source has reported the columns that it reads; all sources have the same."""
        columns = {one.name: one.time.column for one in self._graph.operators if one.time is not None}
        reports = self._metrics.reports if columns else ()
        seen = (one.writes.get(columns[one.worker.operator]) for one in reports if one.worker.operator in columns)
        return next((values_named(kind) for kind in seen if kind is not None), None)

    @locked
    def loops(self, begun: Mapping[str, Loop]) -> tuple[LoopState, ...]:
        """The loops of the dataflow."""
        return loop_states(self._graph.heads, begun, self._metrics.reports)

    @locked
    def report(self, region: Region, report: Report) -> None:
        """Process a worker's report; those of a region's inputs from earlier regions are not counted."""
        if report.worker.operator not in region.inputs:
            now_s = time.time()
            self._metrics.add(report, self._clock())
            self._history.add(report, now_s)
            if self._queue_history.is_due(now_s):
                operators = self._declared(self._metrics.operators())
                self._queue_history.add(operators, now_s)
                self._count_history.add(operators, now_s)
                if self._growth.is_due(now_s):
                    self._growth.add(self._keys(operators), now_s)
        if report.columns:
            self._columns[report.worker] = pa.ipc.read_schema(pa.py_buffer(report.columns))

    def _keys(self, operators: Mapping[str, OperatorMetrics]) -> dict[str, int]:
        """Operator to its number of keys, for those whose states do not end by themselves, as by windows or a ttl."""
        known = {name: self._graph.operator(name) for name in operators}
        ends = {name for name, one in known.items() if one.traits.timed or isinstance(one.function, Expiring)}
        return {name: one.keys for name, one in operators.items() if name not in ends}

    @locked
    def counts(self, operators: Collection[str]) -> tuple[CountSample, ...]:
        """What these operators had processed in the course of the last minute."""
        return self._count_history.samples(operators)

    @locked
    def columns(self, sink: str) -> pa.Schema:
        """The columns that the sink's workers have written so far, committed or not; empty if there are none."""
        schemas = [schema for worker, schema in sorted(self._columns.items()) if worker.operator == sink]
        return first_come(schemas)

    @locked
    def hear(self, lines: Iterable[Line]) -> None:
        """Append lines that operators have printed."""
        for line in lines:
            self._printed.append(line)
            self.lines_printed += 1

    @locked
    def used(self, host: int, usage: ProcessUsage) -> None:
        """Record what the process of a host uses."""
        self._usages[host] = usage

    @locked
    def loads(self, status: TopologyStatus) -> dict[int, HostLoad]:
        """Host to its load, for the hosts of a topology that have told what they use."""
        return loads_by_host(status, self._usages, self._metrics.reports)

    @locked
    def pause(self, event: OperatorPaused) -> None:
        """Record that workers of an operator are paused on a tuple, or have resumed."""
        others = {name: workers for name, workers in self.paused.items() if name != event.operator}
        self.paused = others | ({event.operator: event.paused} if event.paused else {})

    @locked
    def fail(self, operator: str) -> None:
        """Record that an operator has failed."""
        self.failed_at = self.failed_at or operator

    @locked
    def chain(self, answer: Chained) -> None:
        """Record the answer to a request for a chain."""
        self.chains = {**self.chains, answer.worker: answer}
        self._rechain(self.running_chains.after(answer))

    def _rechain(self, chains: RunningChains) -> None:
        if chains.chained != self.running_chains.chained:
            names = tuple(map(str, chains.chained))
            self.chain_changes = (*self.chain_changes[-CHAINS_KEPT:], ChainChange(time.time(), names))
        self.running_chains = chains

    @locked
    def kept(self, region: int, event: CheckpointEnded) -> None:
        """Record a checkpoint that has ended; aborted ones are ignored."""
        if not event.reason:
            now_s = time.time()
            kept = KeptCheckpoint(event.epoch, now_s, region + 1)
            self.checkpoints = (*self.checkpoints[-EVENTS_KEPT:], kept)
            self._history.mark(f"c{event.epoch}", "checkpoint", f"checkpoint {event.epoch}", now_s)

    @locked
    def recovering(self, event: Recover) -> None:
        """Record that the hosts are being restarted."""
        now_s, checkpoint = time.time(), event.restoration.checkpoint
        recovery = RecoveryTime(event.reason, now_s, checkpoint.epoch if checkpoint else 0)
        self.recoveries = (*self.recoveries[-EVENTS_KEPT:], recovery)
        self._history.mark(f"r{len(self.recoveries)}", "recovery", event.reason, now_s)
        self.paused, self.chains, self.failed_at = {}, {}, ""
        self._rechain(self.running_chains.restarted())
        self.constraints.forget()
        self._usages.clear()
        self._outstanding = self._frontiers = None

    @locked
    def recovered(self) -> None:
        """Record that all hosts have joined again."""
        now_s = time.time()
        self.recoveries = tuple(
            replace(one, seconds=now_s - one.at_s) if one.seconds is None else one for one in self.recoveries
        )

    @locked
    def mark(self, change: str, kind: MarkKind, label: str, at_s: float) -> None:
        """Record that a change was requested, or has ended."""
        self._history.mark(change, kind, label, at_s)

    @locked
    def rescale_requested(self, request: str, aim: str, status: TopologyStatus) -> None:
        """Record the request of another number of hosts or workers, and the topology before the first one."""
        now_s = time.time()
        self._metrics.expect_all()
        self.topologies = self.topologies or (HostCount.of(now_s, status),)
        self._history.mark(_mark_of(request), "request", f"rescale {aim}", now_s)

    @locked
    def rescale_ended(self, event: RescaleEnded, aim: str, status: TopologyStatus) -> None:
        """Record the end of a rescale to an ``aim``, and the topology since then; workers that it lacks have left."""
        now_s, label = time.time(), f"rescale {aim}"
        self._history.mark(_mark_of(event.request), event.outcome, label, now_s)
        if event.outcome == "done":
            self.topologies = (*self.topologies[-EVENTS_KEPT:], HostCount.of(now_s, status))
            self._usages = {host: usage for host, usage in self._usages.items() if host in status.hosts_now}
            self.constraints.forget()  # a host without workers of a sequence never corrects its last verdict
            known = [report.worker for report in self._metrics.reports]
            self._metrics.depart(
                worker for worker in known if worker.index >= len(status.workers.get(worker.operator, ()))
            )

    @locked
    def worker_rates(self) -> dict[WorkerId, float]:
        """Worker to the tuples per second that it takes in, as last measured."""
        return self._metrics.worker_rates()

    @locked
    def reports(self) -> tuple[Report, ...]:
        """The last report of each worker."""
        return self._metrics.reports

    @locked
    def snapshot(self) -> MetricsSnapshot:
        """The current measurements of the operators that the user declared."""
        snapshot = self._metrics.snapshot()
        known, frontiers = self._declared(snapshot.operators), self.frontiers()
        reached = {} if frontiers is None else frontiers.reached()
        return replace(snapshot, operators=known, frontier=reached, growing=self._growth.growing)

    def _declared(self, operators: Mapping[str, OperatorMetrics]) -> dict[str, OperatorMetrics]:
        return {name: operator for name, operator in operators.items() if name in self._graph}

    @locked
    def reads(self, operator: str) -> tuple[str, ...]:
        """The input columns that the operator has read so far."""
        return self._metrics.reads(operator)

    @locked
    def rest(self, operators: Iterable[str]) -> None:
        """Set the rates of these operators to 0, since their region has ended."""
        self._metrics.rest(operators)

    @locked
    def points(self) -> tuple[Point, ...]:
        """Latency and throughput at the sinks over time."""
        return self._history.points()

    @locked
    def queue_points(self) -> tuple[QueuePoint, ...]:
        """Queues and rates of the operators over time."""
        return self._queue_history.points()

    @locked
    def waiting(self) -> tuple[WaitingPoint, ...]:
        """The queues of all operators together over time."""
        return self._queue_history.waiting()

    @locked
    def marks(self) -> tuple[PlotMark, ...]:
        """The times of requests, outcomes, checkpoints and recoveries."""
        return self._history.marks()

    @locked
    def printed(self) -> tuple[Line, ...]:
        """The last lines that operators printed."""
        return tuple(self._printed)


def _mark_of(request: str) -> str:
    """The name of a rescale's marks, since recoveries are numbered likewise."""
    return f"rescale {request}"
