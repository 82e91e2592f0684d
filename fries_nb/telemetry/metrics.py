"""The measurements of a run, aggregated from its workers' reports: of operators, of workers, and of hosts.

>>> metrics = Metrics()
>>> metrics.add(Report(WorkerId("scored", 0), processed=3, queued=0, latency=((2.0, 2), (9.0, 1))), now_s=1.0)
>>> snapshot = metrics.snapshot()
>>> snapshot.operators["scored"].processed, round(snapshot.latency.p50_ms), snapshot.latency.count
(3, 2, 3)

Where workers are, what they own, and what they process:

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> from fries_nb.protocol.topology import Topology
>>> edge = Edge("S", "K", Partitioning.HASH, ("k",))
>>> topology = Topology.dealt(Graph("pair", (Operator("S"), Operator("K", key=("k",), workers=2)), (edge,)), hosts=2)
>>> status = TopologyStatus.of(topology, (0, 1))
>>> reports = [Report(WorkerId("K", 1), 8, 300, queued_tuples=9)]
>>> print(placed_workers(status, {WorkerId("K", 0): 20.0}, reports).to_pandas().to_string(index=False))
operator  worker  host  routed  bins  rate  queued
       S       0     0    True  <NA>   0.0       0
       K       0     0    True   512  20.0       0
       K       1     1    True   512   0.0       9
>>> rates_by_host(status, {WorkerId("K", 0): 20.0, WorkerId("S", 0): 30.0})
{0: 50.0, 1: 0.0}
>>> loads_by_host(status, {0: ProcessUsage(0.5, 90)}, [Report(WorkerId("K", index), 8, 300) for index in (0, 1)])
{0: HostLoad(cpu_share=0.5, rss_bytes=90, waiting_bytes=300)}

What a run has recorded, in order: a tuple of values that is also a DataFrame.

>>> from fries_nb.telemetry.history import Point
>>> latency = Recorded.of(Point, [Point(0.25, 4.0, 9.0, 2_000.0)])
>>> latency[0].p99_ms, len(latency)
(9.0, 1)
>>> latency.to_pandas().reset_index().to_dict("records")
[{'at': Timestamp('1970-01-01 00:00:00.250000+0000', tz='UTC'), 'p50_ms': 4.0, 'p99_ms': 9.0, 'rate': 2000.0}]
>>> Recorded.of(Point, []).to_pandas().columns.tolist()
['p50_ms', 'p99_ms', 'rate']

Whether the state of an operator grows without a bound, from what its workers report.

Workers report the numbers of keys of which they keep a state. Each minute one number of an operator is kept, and those
of the last ten minutes are compared. A state grows without a bound, as far as can be seen, if there were more keys in
each of these minutes, and the second half has added at least half as many as the first: where keys come back, fewer and
fewer are new.

>>> growth = StateGrowth()
>>> for minute in range(11):
...     growth.add({"FM": 1_000 * minute, "FC": 50_000 - 50_000 // 2**minute, "FD": 7}, 60.0 * minute)
>>> print(*growth.growing.values())
FM keeps the states of 10,000 keys, and 1,000 more each minute for 10 minutes, without a bound in sight; expected ...

States that grow while their number of keys does not, as lists to which each row is added, are not seen here; for these
``Run.state_sizes`` measures a sample.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from ddsketch import DDSketch

from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.transport.envelopes import ProcessUsage

T = TypeVar("T")

Row = Mapping[str, Any]
"""Column to value."""


class Recorded(tuple[T, ...]):
    """Values in order, the oldest first: a tuple, with ``to_pandas()`` for the same as a DataFrame."""

    _columns: Mapping[str, str | None]
    _rows: Callable[[T], Iterable[Row]]

    def __new__(
        cls, values: Iterable[T], columns: Mapping[str, str | None], rows: Callable[[T], Iterable[Row]]
    ) -> Recorded[T]:
        """Values whose frame has these columns, with their pandas types where these differ, and these rows for each."""
        recorded = super().__new__(cls, values)
        recorded._columns, recorded._rows = columns, rows
        return recorded

    def __getnewargs__(self) -> tuple[Any, ...]:
        """What a copy is made of."""
        return tuple(self), self._columns, self._rows

    @staticmethod
    def of(kind: type[T], values: Iterable[T]) -> Recorded[T]:
        """Values of a dataclass, a row each; its frame has the fields that its ``repr`` shows."""
        shown = [field for field in fields(kind) if field.repr]  # type: ignore[arg-type]
        types = {field.name: "Int64" if field.type == "int | None" else None for field in shown}
        return Recorded(values, types, _one_row)

    def to_pandas(self) -> Any:
        """The values as a pandas DataFrame: by ``at`` in UTC if they have times, otherwise numbered."""
        from pandas import DataFrame, to_datetime  # takes longer to import than all of fries_nb's own modules

        frame = DataFrame([row for value in self for row in self._rows(value)], columns=[*self._columns])
        frame = frame.astype({name: kind for name, kind in self._columns.items() if kind is not None})
        if "at_s" not in self._columns:
            return frame
        at = to_datetime(frame.pop("at_s"), unit="s", utc=True).rename("at")
        return frame.set_index(at)


def _one_row(value: Any) -> Iterable[Row]:
    return [{field.name: getattr(value, field.name) for field in fields(value) if field.repr}]


MISSING = object()
"""In place of a value that a row lacks."""
_NULLABLE = {int: "Int64", bool: "boolean", float: "float64"}
"""The types of columns some of whose rows lack a value, so that the others stay as they are."""


def series(values: Sequence[Any]) -> Any:
    """A column of the frame; whole numbers stay whole, also where values are missing."""
    from pandas import Series

    present = [value for value in values if value is not MISSING and value is not None]
    kinds = {type(value) for value in present}
    if len(kinds) == 1 and len(present) < len(values):
        nullable = _NULLABLE.get(next(iter(kinds)))
        if nullable is not None and not (nullable == "Int64" and any(abs(value) >= 2**63 for value in present)):
            return Series([None if value is MISSING else value for value in values], dtype=nullable)
    return Series([None if value is MISSING else value for value in values], dtype=object).infer_objects()


WINDOW_S = 3.0
"""Length of the sliding window for latency quantiles and rates, in seconds."""


@dataclass(frozen=True)
class Latency:
    """End-to-end latencies at the sinks, in milliseconds from the time at which the source tuple was due."""

    count: int = 0  # number of tuples
    p50_ms: float = 0.0  # the median
    p99_ms: float = 0.0  # the 99th percentile


@dataclass(frozen=True)
class OperatorMetrics:
    """Measurements of one operator over all of its workers.

    Attributes:
        processed: number of tuples processed since the start.
        rate: tuples per second, over the last three seconds.
        queued: number of tuples in its input queues.
        queued_bytes: size of these tuples in bytes.
        held_bytes: bytes of tuples that a multi-version change sets aside until older tuples are processed, as last
            reported.
        held_peak: maximum of ``held_bytes`` of each worker, summed over the workers.
        busy: share of time, 0 to 1, in which its workers were in their turns over the last three seconds, the mean over
            its workers; a turn includes what its function waits for, also before the call returns.
        blocked: share of time in which they took no tuple, since their output waited for credit of its receivers
            (Flink's back-pressure). Operators that run as a chain (``Run.chains``) are measured as a whole: each has
            the shares of the chain.
        failed: number of tuples that became dead letters, since the start or the last restart of its workers.
        given: number of rows that it gave, since then as well; a row that goes several ways counts once.
        keys: number of keys of which it keeps a state.
        left_out: number of its rows that a shadow beside what follows it did not get, since its budget was used up.
    """

    processed: int = 0
    rate: float = 0.0
    queued: int = 0
    queued_bytes: int = 0
    held_bytes: int = 0
    held_peak: int = 0
    busy: float = 0.0
    blocked: float = 0.0
    failed: int = 0
    given: int = 0
    keys: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class MetricsSnapshot:
    """All measurements at one moment.

    Attributes:
        operators: operator to its measurements.
        latency: latencies of the last three seconds.
        total: latencies of the whole run.
        frontier: operator to the least time that can still arrive at it, ``None`` if nothing can: a ``datetime`` if the
            times are timestamps (to the microsecond), otherwise an integer. Empty if rows have no times, and until the
            first row was read.
        growing: operator to the growth of its state, if that has gone on for ten minutes without a bound in sight.
    """

    operators: dict[str, OperatorMetrics] = field(default_factory=dict)
    latency: Latency = Latency()
    total: Latency = Latency()
    frontier: dict[str, Any] = field(default_factory=dict)
    growing: dict[str, Growth] = field(default_factory=dict)

    def to_pandas(self) -> Any:
        """The measurements of operators.

        >>> MetricsSnapshot({"FM": OperatorMetrics(processed=9, queued=2)}).to_pandas()[["processed", "queued"]]
                  processed  queued
        operator
        FM                9       2

        Returns:
            A pandas DataFrame with a row for each operator and the columns of ``OperatorMetrics``, and ``frontier``
            where rows have times.
        """
        from pandas import DataFrame, Index  # takes longer to import than all of fries_nb's own modules

        names = Index(self.operators, name="operator")
        rows = [vars(operator) | ({"frontier": self.frontier[name]} if name in self.frontier else {})
                for name, operator in self.operators.items()]  # fmt: skip
        return DataFrame(rows, index=names)


class _Seen(NamedTuple):
    """What a worker had reported by this time, in seconds of a monotonic clock."""

    at_s: float
    processed: int
    turn_s: float = 0.0
    blocked_s: float = 0.0


_Rates = tuple[float, float, float]
"""Tuples per second, and the busy and blocked shares of time as ``OperatorMetrics`` has them."""


class Metrics:
    """Collects reports on these operators; quantiles come from mergeable sketches (DDSketch, one percent error)."""

    def __init__(self, operators: Iterable[str] = ()) -> None:
        self._operators = tuple(operators)
        self._last: dict[WorkerId, Report] = {}
        self._seen: dict[WorkerId, deque[_Seen]] = {}
        self._held: dict[WorkerId, int] = {}
        self._gone: set[WorkerId] = set()
        self._processed_by_gone: Counter[str] = Counter()
        self._failed_by_gone: Counter[str] = Counter()
        self._given_by_gone: Counter[str] = Counter()
        self._total = DDSketch()
        self._recent: deque[tuple[float, DDSketch]] = deque()

    def go_on(self, operators: Iterable[str]) -> None:
        """Collect reports on these operators from now on; one that comes, or comes back, is counted anew."""
        before, self._operators = self._operators, tuple(operators)
        fresh = set(self._operators).difference(before)
        self._gone = {worker for worker in self._gone if worker.operator not in fresh}
        for name in fresh:
            for counts in (self._processed_by_gone, self._failed_by_gone, self._given_by_gone):
                counts.pop(name, None)
        self.depart(worker for worker in list(self._last) if worker.operator not in self._operators)

    def add(self, report: Report, now_s: float) -> None:
        """Add a report that arrived at this time, in seconds of a monotonic clock."""
        if report.worker in self._gone:
            return  # its last report, which came late
        self._last[report.worker] = report
        self._held[report.worker] = max(report.held, self._held.get(report.worker, 0))
        seen = self._seen.setdefault(report.worker, deque())
        if seen and report.processed < seen[-1].processed:
            seen.clear()  # the worker was restored, with the count of a checkpoint
        before = seen[-1] if seen else _Seen(now_s, 0)
        times = before.turn_s + report.turn_ns / 1e9, before.blocked_s + report.blocked_ns / 1e9
        seen.append(_Seen(now_s, report.processed, *times))
        while len(seen) > 2 and seen[0].at_s < now_s - WINDOW_S:  # two remain of a worker that reports less often
            seen.popleft()
        if report.latency:
            sketch = DDSketch()
            for milliseconds, count in report.latency:
                sketch.add(milliseconds, float(count))
            self._total.merge(sketch)
            self._recent.append((now_s, sketch))
        while self._recent and self._recent[0][0] < now_s - WINDOW_S:
            self._recent.popleft()

    def rest(self, operators: Iterable[str]) -> None:
        """Set the rates of these operators to 0, since they send no more reports."""
        for worker in [worker for worker in list(self._seen) if worker.operator in set(operators)]:
            self._seen[worker] = deque([self._seen[worker][-1]])

    def depart(self, workers: Iterable[WorkerId]) -> None:
        """Record that workers have left: their tuples count, their rates do not. Late reports of them are ignored."""
        for worker in workers:
            if (last := self._last.pop(worker, None)) is not None:
                self._gone.add(worker)
                del self._seen[worker], self._held[worker]
                self._processed_by_gone[worker.operator] += last.processed
                self._failed_by_gone[worker.operator] += last.failed
                self._given_by_gone[worker.operator] += last.given

    def expect_all(self) -> None:
        """Record that workers with the indices of those that have left may report from now on."""
        self._gone.clear()

    def worker_rates(self) -> dict[WorkerId, float]:
        """Worker to the tuples per second that it takes in, over the last three seconds."""
        return {worker: self._rates(worker)[0] for worker in list(self._last)}

    @property
    def reports(self) -> tuple[Report, ...]:
        """The last report of each worker."""
        return tuple(self._last.values())

    def reads(self, operator: str) -> tuple[str, ...]:
        """The input columns that the operator's workers have read so far."""
        reports = [report for worker, report in list(self._last.items()) if worker.operator == operator]
        return tuple(dict.fromkeys(name for report in reports for name in report.reads))

    def snapshot(self) -> MetricsSnapshot:
        """The current measurements."""
        recent = DDSketch()
        for _, sketch in list(self._recent):
            recent.merge(sketch)
        return MetricsSnapshot(self.operators(), _latency(recent), _latency(self._total))

    def operators(self) -> dict[str, OperatorMetrics]:
        """Operator to its current measurements."""
        of = {name: list[WorkerId]() for name in [*self._operators, *self._processed_by_gone]}
        for worker in self._last:
            of.setdefault(worker.operator, []).append(worker)
        return {name: self._operator(name, workers) for name, workers in of.items()}

    def _operator(self, name: str, workers: list[WorkerId]) -> OperatorMetrics:
        processed, queued, queued_bytes, held, peak = self._processed_by_gone[name], 0, 0, 0, 0
        rate, busy, blocked = 0.0, 0.0, 0.0
        failed, given, keys, left_out = self._failed_by_gone[name], self._given_by_gone[name], 0, 0
        for worker in workers:  # one loop, since a dashboard of 200 operators asks for this four times a second
            report, (its_rate, its_busy, its_blocked) = self._last[worker], self._rates(worker)
            processed += report.processed
            queued += report.queued_tuples
            queued_bytes += report.queued
            held += report.held
            peak += self._held[worker]
            failed += report.failed
            given += report.given
            keys += report.keys
            left_out += report.left_out
            rate += its_rate
            busy += its_busy
            blocked += its_blocked
        count = max(1, len(workers))
        shares = busy / count, blocked / count
        counts = failed, given, keys, left_out
        return OperatorMetrics(processed, rate, queued, queued_bytes, held, peak, *shares, *counts)

    def _rates(self, worker: WorkerId) -> _Rates:
        """The rates of a worker over the window; reports may arrive late."""
        seen = self._seen[worker]
        (began_s, before, turns_s, blocked_s), (at_s, processed, turns, blocked) = seen[0], seen[-1]
        passed_s = at_s - began_s
        if passed_s <= 0:
            return 0.0, 0.0, 0.0
        busy, held = (turns - turns_s) / passed_s, (blocked - blocked_s) / passed_s
        return (processed - before) / passed_s, min(1.0, busy), min(1.0, held)


def _latency(sketch: DDSketch) -> Latency:
    if not sketch.count:
        return Latency()
    return Latency(
        int(sketch.count), float(sketch.get_quantile_value(0.5) or 0.0), float(sketch.get_quantile_value(0.99) or 0.0)
    )


@dataclass(frozen=True, slots=True)
class HostLoad:
    """What a host uses, and what waits there.

    Attributes:
        cpu_share: processor time of its process per time, over about the last second; 1.0 is one core.
        rss_bytes: resident memory of its process in bytes.
        waiting_bytes: bytes of tuples in the input queues of its workers.
    """

    cpu_share: float
    rss_bytes: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True)
class PlacedWorker:
    """A worker, and where it is.

    Attributes:
        operator: its operator.
        worker: its index.
        host: its host.
        routed: whether rows are routed to it.
        bins: number of bins that it owns; ``None`` (in a frame ``<NA>``) without keys.
        rate: tuples per second that it takes in.
        queued: number of tuples in its input queues.
    """

    operator: str
    worker: int
    host: int
    routed: bool
    bins: int | None
    rate: float
    queued: int


def placed_workers(
    status: TopologyStatus, rates: Mapping[WorkerId, float], reports: Iterable[Report]
) -> Recorded[PlacedWorker]:
    """The workers of a topology."""
    found, waiting = [], {report.worker: report.queued_tuples for report in reports}
    for operator, placed in status.workers.items():
        owned = status.bins(operator) if operator in status.tables else None
        for index, host in enumerate(placed):
            bins = None if owned is None else len(owned.get(index, ()))
            worker, routed = WorkerId(operator, index), index < status.routed[operator]
            rate, queued = rates.get(worker, 0.0), waiting.get(worker, 0)
            found.append(PlacedWorker(operator, index, host, routed, bins, rate, queued))
    return Recorded.of(PlacedWorker, found)


def rates_by_host(status: TopologyStatus, rates: Mapping[WorkerId, float]) -> dict[int, float]:
    """Host to the sum of the rates of its workers."""
    found = dict.fromkeys(status.hosts_now, 0.0)
    for worker, rate in rates.items():
        placed = status.workers.get(worker.operator, ())
        if worker.index < len(placed):  # else it has left
            found[placed[worker.index]] += rate
    return found


def loads_by_host(
    status: TopologyStatus, usages: Mapping[int, ProcessUsage], reports: Iterable[Report]
) -> dict[int, HostLoad]:
    """Host to its load, without hosts that have not told it yet."""
    waiting = {report.worker: float(report.queued) for report in reports}
    return {
        host: HostLoad(usages[host].cpu_share, usages[host].rss_bytes, int(queued))
        for host, queued in rates_by_host(status, waiting).items()
        if host in usages
    }


STEP_S = 60.0
"""Seconds between two numbers that are kept."""
STEPS = 10
"""Number of steps in each of which keys have come if a state grows."""
LEAST_KEYS = 1_000
"""Number of keys below which a state does not count as one that grows."""


@dataclass(frozen=True)
class Growth:
    """A state that grows.

    Attributes:
        operator: the operator.
        keys: its number of keys.
        per_minute: number of keys that have come in a minute, over the last ten minutes.
    """

    operator: str
    keys: int
    per_minute: float

    def __str__(self) -> str:
        more = f"and {self.per_minute:,.0f} more each minute for {STEPS * STEP_S / 60:g} minutes"
        advice = "expected keys that come back, or that end: by ttl=, by within= of a dedup, or by windows"
        return f"{self.operator} keeps the states of {self.keys:,} keys, {more}, without a bound in sight; {advice}"


class StateGrowth:
    """The numbers of keys of operators over the last minutes.

    Attributes:
        growing: the operators whose state grows without a bound, as far as can be seen.
    """

    def __init__(self) -> None:
        self.growing: dict[str, Growth] = {}
        self._seen: deque[tuple[float, dict[str, int]]] = deque(maxlen=STEPS + 1)

    def is_due(self, at_s: float) -> bool:
        """Whether the next numbers are to be added at this time, in seconds of any clock."""
        return not self._seen or not 0 <= at_s - self._seen[-1][0] < STEP_S  # also if the clock was set back

    def add(self, keys: Mapping[str, int], at_s: float) -> None:
        """Add the number of keys of each operator."""
        if self._seen and at_s < self._seen[-1][0]:
            self._seen.clear()
        self._seen.append((at_s, dict(keys)))
        found = {name: self._growth(name) for name, count in keys.items() if count >= LEAST_KEYS}
        self.growing = {name: growth for name, growth in found.items() if growth is not None}

    def _growth(self, operator: str) -> Growth | None:
        if len(self._seen) <= STEPS:
            return None
        counts = [keys.get(operator, 0) for _, keys in self._seen]
        steps = [later - earlier for earlier, later in pairwise(counts)]
        half = len(steps) // 2
        if min(steps) <= 0 or 2 * sum(steps[half:]) < sum(steps[:half]):
            return None
        minutes = (self._seen[-1][0] - self._seen[0][0]) / 60
        return Growth(operator, counts[-1], sum(steps) / minutes)
