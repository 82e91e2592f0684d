"""Checks that each worker ran the function that its last switch installed.

>>> from fries_nb.trace import Ran
>>> executed = Executed()
>>> for record in (Ran("t1", "FM", 0, ""), Updated("u1", "FM"), Ran("t2", "FM", 0, ""), Ran("t3", "FM", 0, "")):
...     executed.add(record)
>>> executed.stale
[Stale(operator='FM', worker=0, update='u1', ran='', tuples=2)]
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from fries_nb.trace import Began, Ran, RanMany, Record, TraceFlow, Updated, Wrote

Id = str | int


@dataclass(frozen=True, slots=True)
class Stale:
    """A worker that recorded a switch and continued with another function.

    Attributes:
        update: the change that it recorded last; empty if there is none.
        ran: the change whose function it really ran; empty for the initial function.
        tuples: number of tuples that it ran with that function.
    """

    operator: str
    worker: int
    update: Id
    ran: Id
    tuples: int


class Executed:
    """Compares recorded switches with the functions that ran."""

    def __init__(self) -> None:
        self._resumed: set[str] = set()
        self._due: dict[tuple[str, int], Id] = {}
        self._applied: defaultdict[tuple[str, int], set[Id]] = defaultdict(set)
        self._stale: Counter[tuple[str, int, Id, Id]] = Counter()

    def add(self, record: Record) -> None:
        """Process the next record."""
        match record:
            case Updated(update, operator, worker, before):
                applied = self._applied[operator, worker]
                applied.add(update)
                if before not in applied:
                    self._due[operator, worker] = update
            case Ran(_, operator, worker, function):
                self._ran(operator, worker, function, 1)
            case RanMany(transactions, operator, worker, function) | Began(transactions, operator, worker, function):
                self._ran(operator, worker, function, len(transactions))
            case TraceFlow() if record.resumed:
                self._resumed.update(record.workers)
            case Wrote(operator, worker) if operator in self._resumed:
                self._due.setdefault((operator, worker), record.function)

    def _ran(self, operator: str, worker: int, function: str | None, tuples: int) -> None:
        due = self._due.get((operator, worker), "")
        if function is not None and function != due:
            self._stale[operator, worker, due, function] += tuples

    @property
    def stale(self) -> list[Stale]:
        """The switches without effect so far."""
        return [Stale(*what, tuples) for what, tuples in self._stale.items()]
