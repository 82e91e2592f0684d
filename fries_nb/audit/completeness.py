"""Whether a trace holds all that its workers wrote: each says the numbers, at each hand-over and at its end.

A trace that begins with a ``Flow`` claims to be complete: then every worker is there, and has said what it wrote. One
without is taken as it is, and claims nothing. A run's records are complete up to a moment, as long as it goes on.

>>> from fries_nb.trace import Ran
>>> completeness = Completeness()
>>> for record in (TraceFlow({"FM": 1}, ()), Wrote("FM"), Ran("t1", "FM"), Wrote("FM", ran=2)):
...     completeness.add(record)
Traceback (most recent call last):
fries_nb.errors.TraceError: the trace is incomplete: FM[0] wrote 2 records up to a point at which it holds 1 of them
"""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import StrEnum

from fries_nb.errors import TraceError
from fries_nb.trace import Counts, Record, TraceFlow, Wrote

Worker = tuple[str, int]


class StatedCounts(StrEnum):
    """How much of what happened a trace holds.

    ``COMPLETE``: all, up to the end of the run. ``SO_FAR``: all that each worker had handed out at some moment.
    ``NONE``: nobody says (a schedule written by hand).
    """

    COMPLETE = "complete"
    SO_FAR = "so far"
    NONE = "not claimed"


class Completeness:
    """What has been counted of a trace so far.

    Attributes:
        flows: what ran.
    """

    def __init__(self) -> None:
        self.flows: list[TraceFlow] = []
        self._found: defaultdict[Worker, Counts] = defaultdict(Counts)
        self._said: dict[Worker, Wrote] = {}
        self._vouched: dict[Worker, Counts] = {}
        self._base: dict[Worker, Counts] = {}
        self._operations = 0

    def add(self, record: Record) -> None:
        """Counts the next record.

        Raises:
            TraceError: its worker had written another number of records by now than the trace holds.
        """
        if isinstance(record, TraceFlow):
            self.flows.append(record)
            return
        worker = record.operator, record.worker
        if not isinstance(record, Wrote):
            self._found[worker] = self._found[worker].with_record(record)
            self._operations += 1
        elif not record.spent:
            self._check(worker, record)
        else:
            self._said.setdefault(worker, record)

    def _check(self, worker: Worker, record: Wrote) -> None:
        said, found = Counts(record.ran, record.updated, record.emitted), self._found[worker]
        if worker not in self._base:
            resumed = any(flow.resumed and record.operator in flow.workers for flow in self.flows)
            self._base[worker] = said if resumed and found == Counts() else Counts()
        expected = Counts(*(one - base for one, base in zip(said, self._base[worker], strict=True)))
        if found != expected:
            raise TraceError(
                f"the trace is incomplete: {_name(worker)} wrote {sum(expected):,} records up to a point at which it "
                f"holds {sum(found):,} of them"
            )
        self._said[worker], self._vouched[worker] = record, found

    def claim(self) -> StatedCounts:
        """How much the trace holds, now that it is read.

        Raises:
            TraceError: it is empty, or misses records of a worker.
        """
        if not self._operations:
            raise TraceError("the trace is empty: it holds no operation, so it proves nothing")
        for worker in self._vouched:
            if (found := self._found[worker]) != (said := self._vouched[worker]):
                raise TraceError(
                    f"the trace is damaged: it holds {sum(found):,} records of {_name(worker)}, which wrote "
                    f"{sum(said):,}, as far as it says"
                )
        for flow in self.flows:
            self._all_there(flow)
        if not self.flows:
            return StatedCounts.NONE
        return StatedCounts.COMPLETE if all(flow.finished for flow in self.flows) else StatedCounts.SO_FAR

    def _all_there(self, flow: TraceFlow) -> None:
        heard = Counter(operator for operator, _ in self._said)
        ended = Counter(operator for (operator, _), said in self._said.items() if said.ended or said.spent)
        for operator, workers in flow.workers.items():
            if heard[operator] != workers:
                raise TraceError(
                    f"the trace is incomplete: {operator} has {_counted(workers)}, of which {heard[operator]} said "
                    "how much they wrote"
                )
            if flow.finished and ended[operator] != workers:
                raise TraceError(
                    f"the trace is incomplete: the run has finished, and of {operator}'s {_counted(workers)} "
                    f"{ended[operator]} said so; the last records of the others are missing"
                )


def _name(worker: Worker) -> str:
    return f"{worker[0]}[{worker[1]}]"


def _counted(workers: int) -> str:
    return f"{workers} worker{'' if workers == 1 else 's'}"
