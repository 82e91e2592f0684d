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
from math import inf

from fries_nb.controller.events import Instruction, Tell
from fries_nb.controller.membership import Workers
from fries_nb.errors import DataflowError, SourceError, unknown
from fries_nb.messages import Done, Drain, Report, SetRate, WorkerId

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
        workers: the workers of the run.
        restored: whether they start from a checkpoint; the first report then gives the initial counts.
    """

    def __init__(self, workers: Workers, restored: bool) -> None:
        self._workers = workers
        self._restored = restored
        self._read: dict[WorkerId, int] = {}
        self._base: dict[WorkerId, int | None] = {}  # at the last commit; None: all, since the worker had ended
        self._cut: dict[WorkerId, int] = {}
        self._began_ns = self._since_ns = 0
        self._first = True
        self._reports: Counter[WorkerId] = Counter()
        self._active: set[str] = set()

    def start(self, now_ns: int) -> None:
        """Record that the dataflow starts on its hosts, for the first time or again."""
        self._reports.clear()
        if not self._since_ns:
            self._since_ns = now_ns

    def report(self, report: Report) -> None:
        """Process a worker's report."""
        worker = report.worker
        if report.processed:
            self._active.add(worker.operator)
        if self._workers.graph.operator(worker.operator).traits.is_source:
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
        sources = self._workers.of(self._workers.graph.sources)
        self._base = {worker: self._cut.get(worker) for worker in sources}
        self._since_ns, self._first = self._began_ns, False

    def lost(self) -> None:
        """Record that the hosts are lost: tuples read since the last checkpoint are read again."""
        self._read.clear()

    def uncommitted(self) -> Uncommitted:
        """The tuples read since the last commit, as last reported."""
        bases = {worker: self._base.get(worker, 0) for worker in self._read}
        tuples = sum(max(0, read - base) for worker, read in self._read.items() if (base := bases[worker]) is not None)
        return Uncommitted(tuples, self._since_ns, self._first)


class Sources:
    """The requested settings of the sources, which new incarnations of the workers receive again.

    Attributes:
        draining: whether the sources were told to end.

    >>> from fries_nb.dataflow.graph import Graph, Kind, Operator
    >>> sources = Sources(Workers(Graph("one", (Operator("src", workers=2, kind=Kind.SOURCE),), ())))
    >>> sources.set_rate("src", 10.0)
    >>> [(str(tell.worker), tell.control.rate) for tell in sources.tell()]
    [('src[0]', 5.0), ('src[1]', 5.0)]
    """

    def __init__(self, workers: Workers) -> None:
        self.draining = False
        self._workers = workers
        self._rates: dict[str, float] = {}
        self._spared: frozenset[str] = frozenset()

    def set_rate(self, source: str, rate: float) -> None:
        """Set the rate of a source in tuples per second over all of its workers; 0 pauses it.

        Raises:
            DataflowError: no such source.
            SourceError: an invalid rate.
        """
        sources = self._workers.graph.sources
        if source not in sources:
            raise DataflowError(unknown("source", source, sources))
        if not 0 <= rate < inf:
            raise SourceError(f"a rate of {rate} tuples per second; expected 0 (pause) or more")
        self._rates[source] = rate

    def drain(self, spared: frozenset[str]) -> None:
        """Record that all sources except those in ``spared`` are to end."""
        self.draining, self._spared = True, spared

    def tell(self) -> list[Instruction]:
        """The messages with all settings, for new workers."""
        told = [instruction for source in self._rates for instruction in self.tell_rate(source)]
        return told + (self.tell_drain() if self.draining else [])

    def tell_rate(self, source: str) -> list[Instruction]:
        """The messages with each worker's share of the rate of a source."""
        share = self._rates[source] / self._workers.graph.operator(source).workers
        return [Tell(worker, SetRate(share)) for worker in self._workers.live({source})]

    def tell_drain(self) -> list[Instruction]:
        """The messages that end all sources except the spared ones."""
        drained = [source for source in self._workers.graph.sources if source not in self._spared]
        return [Tell(worker, Drain()) for worker in self._workers.live(drained)]
