"""The sources of a run: the tuples that they have read and that no commit includes, and their rates.

The cut of a commit is the position of its marker at each source, so it is exact; tuples read since are known from the
workers' reports, the last of which a dismissed host sends when it leaves.

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
"""Number of reports of each source worker, about two seconds, after which tuples count as flowing in any case."""


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Source tuples that were read and are not in a commit.

    Attributes:
        tuples: their number.
        since_ns: when the last commit's marker was sent, or the dataflow started, by the controller's clock.
        first: whether there has been no commit.
    """

    tuples: int
    since_ns: int
    first: bool


class Intake:
    """Counts of the tuples that source workers have read.

    Args:
        workers: the workers of the run.
        restored: whether they start from a checkpoint; then the first report gives the initial counts.
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
        """Whether tuples have reached these operators, or will not soon, since the sources have ended or are paused."""
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
        """Record that the last commit is output; a source without its marker had ended before."""
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
    """The requested settings of the sources: the last rates, and whether they end (``draining``).

    They outlive the workers.

    >>> from fries_nb.dataflow.graph import Graph, Kind, Operator
    >>> wishes = Sources(Workers(Graph("one", (Operator("src", workers=2, kind=Kind.SOURCE),), ())))
    >>> wishes.set_rate("src", 10.0)
    >>> [(str(tell.worker), tell.control.rate) for tell in wishes.tell()]
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
        """Let the sources end, except those in ``spared``."""
        self.draining, self._spared = True, spared

    def tell(self) -> list[Instruction]:
        """All settings, for new workers."""
        told = [instruction for source in self._rates for instruction in self.tell_rate(source)]
        return told + (self.tell_drain() if self.draining else [])

    def tell_rate(self, source: str) -> list[Instruction]:
        """The share of the rate for each worker of the source."""
        share = self._rates[source] / self._workers.graph.operator(source).workers
        return [Tell(worker, SetRate(share)) for worker in self._workers.live({source})]

    def tell_drain(self) -> list[Instruction]:
        """The end for all sources, except those that are spared."""
        drained = [source for source in self._workers.graph.sources if source not in self._spared]
        return [Tell(worker, Drain()) for worker in self._workers.live(drained)]
