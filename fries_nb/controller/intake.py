"""The sources of a run: their rates, and the number of tuples read since the last commit.

The position of a commit's marker at each source is exact. The number of tuples read since is as of the workers' last
reports; a host that is dismissed sends a final report.

>>> from fries_nb.dataflow.graph import Graph, Kind, Operator
>>> intake = Intake(Workers(Graph("one", (Operator("src", kind=Kind.SOURCE),), ())), restored=False)
>>> source = WorkerId("src", 0)
>>> intake.start(now_ns=5)
>>> intake.report(Report(source, processed=70, queued=0))
>>> intake.uncommitted()
Uncommitted(tuples=70, since_ns=5, first=True)
>>> intake.begin(now_ns=9)
>>> intake.passed(Done(1, source, read=60))
>>> intake.commit()
>>> intake.uncommitted()
Uncommitted(tuples=10, since_ns=9, first=False)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import (
    ChangeTopology,
    Instruction,
    RateRequested,
    SplitsMoved,
    Tell,
    TopologyChanged,
    TopologyRefused,
)
from fries_nb.controller.membership import Workers
from fries_nb.errors import DataflowError, SourceError, unknown
from fries_nb.protocol.messages import Done, Drain, Installed, Report, SetRate, SplitsRead, WorkerId

PATIENCE = 8
"""Number of reports of each source worker (about two seconds of them) after which tuples count as flowing anyway."""


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Source tuples that were read and are not in a commit.

    Attributes:
        tuples: their number.
        since_ns: time of the last commit's marker, or of the start of the dataflow, by the controller's clock.
        first: whether nothing has been committed yet.
    """

    tuples: int
    since_ns: int
    first: bool


class Intake:
    """Counts of the tuples that source workers have read.

    Args:
        restored: whether they start from a checkpoint; the first report then gives the initial counts.

    Attributes:
        since_ns: time of the last commit's marker, or of the start of the dataflow.
    """

    def __init__(self, workers: Workers, restored: bool) -> None:
        self._workers = workers
        self._restored = restored
        self._read: dict[WorkerId, int] = {}
        self._base: dict[WorkerId, int | None] = {}  # at the last commit; None: all, since the worker had ended
        self._cut: dict[WorkerId, int] = {}
        self._began_ns = self.since_ns = 0
        self._first = True
        self._reports: Counter[WorkerId] = Counter()
        self._active: set[str] = set()

    def start(self, now_ns: int) -> None:
        """Record that the dataflow starts on its hosts, for the first time or again."""
        self._reports.clear()
        if not self.since_ns:
            self.since_ns = now_ns

    def report(self, report: Report) -> None:
        """Process a worker's report."""
        worker = report.worker
        if report.processed:
            self._active.add(worker.operator)
        operator = self._workers.graph.by_name.get(worker.operator)  # none if a change of the shape has removed it
        if operator is not None and operator.traits.is_source:
            self._reports[worker] += 1
            self._read[worker] = report.processed
            self._base.setdefault(worker, report.processed if self._restored else 0)

    def flows(self, operators: Iterable[str]) -> bool:
        """Whether tuples have reached these operators, or are not expected to: the sources have ended or are paused."""
        sources = self._workers.live(self._workers.graph.sources)
        return self._active.issuperset(operators) or all(self._reports[worker] >= PATIENCE for worker in sources)

    def begin(self, now_ns: int) -> None:
        """Record that the marker of a commit is sent."""
        self._began_ns = now_ns
        self._cut = {}

    def passed(self, done: Done) -> None:
        """Record that a worker has applied the marker; for a source, the position of the marker."""
        self._cut[done.worker] = done.read

    def commit(self) -> None:
        """Record that the commit is output; a source that did not pass its marker had ended before."""
        sources = {*self._workers.of(self._workers.graph.sources), *self._read}  # with those that have left
        self._base = {worker: self._cut.get(worker) for worker in sources}
        self.since_ns, self._first = self._began_ns, False

    def lost(self) -> None:
        """Record that the hosts are lost: tuples read since the last checkpoint are read again."""
        self._read.clear()

    def uncommitted(self) -> Uncommitted:
        """The tuples read since the last commit, as last reported."""
        bases = {worker: self._base.get(worker, 0) for worker in self._read}
        tuples = sum(max(0, read - base) for worker, read in self._read.items() if (base := bases[worker]) is not None)
        return Uncommitted(tuples, self.since_ns, self._first)


class Sources(Coordinator):
    """The requested settings of the sources, which new incarnations of the workers receive again; and their ends.

    A source worker ends when the controller tells it to drain: all workers of its source have read their splits, or the
    user drains the run. Until then it may get splits of other workers.

    Attributes:
        draining: whether the sources are to end before they are read completely.
        hands_over: whether splits are in the hands of no worker, so that none may end; set by ``SplitMoves``.

    >>> from fries_nb.dataflow.graph import Graph, Kind, Operator
    >>> sources = Sources(Workers(Graph("one", (Operator("src", workers=2, kind=Kind.SOURCE),), ())))
    >>> sources.set_rate("src", 10.0)
    >>> [(str(tell.worker), tell.control.rate) for tell in sources.started(now_ns=0)]
    [('src[0]', 10.0), ('src[1]', 10.0)]
    >>> sources.read(WorkerId("src", 0)), sources.end(), sources.read(WorkerId("src", 1))
    (None, [], None)
    >>> [str(tell.worker) for tell in sources.end()]
    ['src[0]', 'src[1]']
    """

    takes = (RateRequested, SplitsRead, Installed, SplitsMoved, ChangeTopology, TopologyChanged, TopologyRefused)

    def __init__(self, workers: Workers) -> None:
        self.draining = self.hands_over = self._flows = False
        self._workers = workers
        self._rates: dict[str, float] = {}
        self._spared: frozenset[str] = frozenset()
        self._read: set[WorkerId] = set()
        self._over: set[str] = set()
        self._ending: set[WorkerId] = set()
        self._may_end = False

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Process a requested rate, or what lets workers end, or read on."""
        match event:
            case RateRequested():
                self.set_rate(event.operator, event.rate)
                return self._with_rate(event.operator) if self._flows else []
            case SplitsRead():
                self.read(event.worker)
            case Installed():
                self.adopted(event.worker)
            case SplitsMoved():
                return self.end()
            case ChangeTopology() | TopologyChanged() | TopologyRefused():
                self.rewired()
        return []

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """See ``end``."""
        return self.end()

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Rates that are set from now on are part of the next start."""
        self._flows = False
        return []

    def set_rate(self, source: str, rate: float) -> None:
        """Set the rate of a source in tuples per second over all of its workers; see ``RateRequested``."""
        sources = self._workers.graph.sources
        if source not in sources:
            raise DataflowError(unknown("source", source, sources))
        if not rate >= 0:  # which is also so of NaN
            raise SourceError(f"a rate of {rate} tuples per second; expected 0 (pause) or more")
        self._rates[source] = rate

    def drain(self, spared: frozenset[str]) -> None:
        """Record that all sources except those in ``spared`` are to end."""
        self.draining, self._spared, self._may_end = True, spared, True

    def started(self, now_ns: int) -> list[Instruction]:
        """Begin with new workers; returns the messages with the rates that were set."""
        self._flows = True
        self._read.clear()
        self._ending.clear()
        self._over.clear()
        self._may_end = True
        return [instruction for source in self._rates for instruction in self._with_rate(source)]

    @property
    def rates(self) -> dict[str, float]:
        """The sources whose rate was set, with the rate."""
        return dict(self._rates)

    def rate_of(self, source: str) -> float | None:
        """The rate to which a source was set; ``None`` if it was not."""
        return self._rates.get(source)

    def _with_rate(self, source: str) -> list[Instruction]:
        """The messages with the rate of a source, of which each worker has the share of its splits."""
        return [Tell(worker, SetRate(self._rates[source])) for worker in self._workers.live({source})]

    # ---- ends

    def read(self, worker: WorkerId) -> None:
        """Record that a worker has read its splits."""
        self._read.add(worker)
        self._may_end = True

    def adopted(self, worker: WorkerId) -> None:
        """Record that a worker reads further splits; ``SplitsRead`` follows when it has read them."""
        self._read.discard(worker)

    def rewired(self) -> None:
        """Record that workers were added, which may have to end, or removed."""
        known = set(self._workers.of(self._workers.graph.sources))
        self._read &= known
        self._ending &= known
        self._over &= set(self._workers.graph.sources)
        # One of the same name that is added later begins at its own rate.
        self._rates = {source: rate for source, rate in self._rates.items() if source in self._workers.graph}
        self._may_end = True

    def is_over(self, source: str) -> bool:
        """Whether the workers of a source are told to end."""
        return source in self._over

    def end(self) -> list[Instruction]:
        """The messages that end the workers of sources that are read completely, or drained; none in a hand-over."""
        if self.hands_over or not self._may_end:
            return []
        self._may_end = False
        for source in self._workers.graph.sources:
            if (self.draining and source not in self._spared) or self._read.issuperset(self._workers.of({source})):
                self._over.add(source)
        ending = [worker for worker in self._workers.live(self._over) if worker not in self._ending]
        self._ending.update(ending)
        return [Tell(worker, Drain()) for worker in ending]
