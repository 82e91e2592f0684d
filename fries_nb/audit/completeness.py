"""Checks that a trace contains all records that its workers wrote, by the counts that each worker states.

A trace that begins with a ``TraceFlow`` claims to be complete: every worker must be present and its stated counts must
match. A trace without one claims nothing. While a run goes on, its records are complete up to some moment.

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
    """The extent of a trace.

    - ``COMPLETE``: all records up to the end of the run.
    - ``SO_FAR``: all records that each worker had reported at some moment.
    - ``NONE``: the trace makes no claim, such as a schedule written by hand.
    """

    COMPLETE = "complete"
    SO_FAR = "so far"
    NONE = "not claimed"


class Completeness:
    """Record counts of a trace so far.

    Attributes:
        flows: the descriptions of what ran.
    """

    def __init__(self) -> None:
        self.flows: list[TraceFlow] = []
        self._found: defaultdict[Worker, Counts] = defaultdict(Counts)
        self._said: dict[Worker, Wrote] = {}
        self._vouched: dict[Worker, Counts] = {}
        self._base: dict[Worker, Counts] = {}
        self._operations = 0

    def add(self, record: Record) -> None:
        """Count the next record.

        Raises:
            TraceError: the worker states a number of records other than the trace contains.
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
        """The extent of the trace; called when all of it has been read.

        Raises:
            TraceError: the trace is empty, or records of a worker are missing.
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
