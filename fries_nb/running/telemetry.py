"""What is heard of a run while it goes on: measurements, marks, printed lines; all its regions together.

A region's ends count as sinks, also those at which the dataflow was cut; what a region reads of an earlier one's rows
was counted there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from fries_nb.changes import Change
from fries_nb.controller.events import CheckpointEnded, OperatorPaused, Outcome, Recover
from fries_nb.controller.history import History, PlotMark, Point
from fries_nb.controller.metrics import Metrics, MetricsSnapshot
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.regions import Region
from fries_nb.messages import Paused, Report, WorkerId
from fries_nb.running.locks import locked
from fries_nb.storage.schemas import first_come
from fries_nb.transport.envelopes import Line


@dataclass(frozen=True)
class KeptCheckpoint:
    """A checkpoint that is complete.

    Attributes:
        epoch: its number; ``region`` the number of the region that it is of, from 1.
        at_s: when that was known, seconds since the Unix epoch.
    """

    epoch: int
    at_s: float
    region: int = 1


@dataclass(frozen=True)
class RecoveryTime:
    """The hosts were started again, from a checkpoint.

    Attributes:
        reason: why: a host was lost, or a change asked for it.
        at_s: when it began, seconds since the Unix epoch.
        epoch: of the checkpoint that the run went on from; 0 for its beginning.
        seconds: until all hosts had joined again; ``None`` as long as they have not.
    """

    reason: str
    at_s: float
    epoch: int
    seconds: float | None = None


PRINTED = 1_000
"""Lines kept of what operators print."""


class Telemetry:
    """All that is known of a run from its drivers' words. One thread writes it, any may read: each method is atomic.

    Args:
        graph: the whole dataflow.
        clock: seconds, never going back.

    Attributes:
        lock: held by each method.
        lines_printed: how many lines operators have printed.
        paused: operators that are paused on a tuple, with the workers that are.
        checkpoints, recoveries: so far, in order.
    """

    def __init__(self, graph: Graph, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self._graph = graph
        self._clock = clock
        self._metrics = Metrics(graph.by_name)
        self._history = History()
        self._printed: deque[Line] = deque(maxlen=PRINTED)
        self.lines_printed = 0
        self.paused: Mapping[str, tuple[Paused, ...]] = {}
        self.checkpoints: tuple[KeptCheckpoint, ...] = ()
        self.recoveries: tuple[RecoveryTime, ...] = ()
        self._columns: dict[WorkerId, pa.Schema] = {}

    @locked
    def report(self, region: Region, report: Report) -> None:
        """Take in a worker's report."""
        if report.worker.operator not in region.inputs:
            self._metrics.add(report, self._clock())
            self._history.add(report, time.time())
        if report.columns:
            self._columns[report.worker] = pa.ipc.read_schema(pa.py_buffer(report.columns))

    @locked
    def columns(self, sink: str) -> pa.Schema:
        """The columns that the sink's workers have written so far, committed or not; none if nothing came."""
        schemas = [schema for worker, schema in sorted(self._columns.items()) if worker.operator == sink]
        return first_come(schemas)

    @locked
    def hear(self, lines: Iterable[Line]) -> None:
        """Take in what operators have printed."""
        for line in lines:
            self._printed.append(line)
            self.lines_printed += 1

    @locked
    def pause(self, event: OperatorPaused) -> None:
        """Workers of an operator are paused on a tuple, or go on."""
        others = {name: workers for name, workers in self.paused.items() if name != event.operator}
        self.paused = others | ({event.operator: event.paused} if event.paused else {})

    @locked
    def kept(self, region: int, event: CheckpointEnded) -> None:
        """Record a checkpoint that has ended; aborted ones are ignored."""
        if not event.reason:
            now_s = time.time()
            self.checkpoints += (KeptCheckpoint(event.epoch, now_s, region + 1),)
            self._history.mark(f"c{event.epoch}", "checkpoint", f"checkpoint {event.epoch}", now_s)

    @locked
    def recovering(self, event: Recover) -> None:
        """The hosts are being started again."""
        now_s, checkpoint = time.time(), event.restoration.checkpoint
        self.recoveries += (RecoveryTime(event.reason, now_s, checkpoint.epoch if checkpoint else 0),)
        self._history.mark(f"r{len(self.recoveries)}", "recovery", event.reason, now_s)
        self.paused = {}

    @locked
    def recovered(self) -> None:
        """All hosts have joined again."""
        now_s = time.time()
        self.recoveries = tuple(
            replace(one, seconds=now_s - one.at_s) if one.seconds is None else one for one in self.recoveries
        )

    @locked
    def requested(self, change: Change) -> None:
        """A change was requested."""
        self._history.mark(change.id, "request", change.label, change.requested_s)

    @locked
    def ended(self, change: Change, outcome: Outcome) -> None:
        """A change has come to its end."""
        self._history.mark(change.id, outcome.outcome, change.label, change.ended_s(outcome, time.time()))

    @locked
    def snapshot(self) -> MetricsSnapshot:
        """The measurements now, of the operators that the user declared."""
        snapshot = self._metrics.snapshot()
        known = {name: one for name, one in snapshot.operators.items() if name in self._graph}
        return replace(snapshot, operators=known)

    @locked
    def reads(self, operator: str) -> tuple[str, ...]:
        """Columns that the operator has looked at so far."""
        return self._metrics.reads(operator)

    @locked
    def rest(self, operators: Iterable[str]) -> None:
        """Nothing more will come from these operators."""
        self._metrics.rest(operators)

    @locked
    def points(self) -> tuple[Point, ...]:
        """Latency and throughput at the sinks over time."""
        return self._history.points()

    @locked
    def marks(self) -> tuple[PlotMark, ...]:
        """What happened when."""
        return self._history.marks()

    @locked
    def printed(self) -> tuple[Line, ...]:
        """The last lines that operators printed."""
        return tuple(self._printed)
