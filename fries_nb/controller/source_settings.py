"""What the user wants of the sources: their rates, and whether they shall end. It outlives the workers.

>>> from fries_nb.dataflow.graph import Graph, Kind, Operator
>>> wishes = Sources(Workers(Graph("one", (Operator("src", workers=2, kind=Kind.SOURCE),), ())))
>>> wishes.set_rate("src", 10.0)
>>> [(str(tell.worker), tell.control.rate) for tell in wishes.tell()]
[('src[0]', 5.0), ('src[1]', 5.0)]
"""

from __future__ import annotations

from math import inf

from fries_nb.controller.events import Instruction, Tell
from fries_nb.controller.membership import Workers
from fries_nb.errors import DataflowError, SourceError, unknown
from fries_nb.messages import Drain, SetRate


class Sources:
    """The last rate asked for, by source, and whether they are to read no more (``draining``)."""

    def __init__(self, workers: Workers) -> None:
        self.draining = False
        self._workers = workers
        self._rates: dict[str, float] = {}
        self._spared: frozenset[str] = frozenset()

    def set_rate(self, source: str, rate: float) -> None:
        """Tuples per second of all workers of the source together; 0 pauses it.

        Raises:
            DataflowError, SourceError: no such source, or no rate.
        """
        sources = self._workers.graph.sources
        if source not in sources:
            raise DataflowError(unknown("source", source, sources))
        if not 0 <= rate < inf:
            raise SourceError(f"a rate of {rate} tuples per second; expected 0 (pause) or more")
        self._rates[source] = rate

    def drain(self, spared: frozenset[str]) -> None:
        """They are to read no more, but for those that are ``spared``."""
        self.draining, self._spared = True, spared

    def tell(self) -> list[Instruction]:
        """Everything, to workers that know nothing of it yet."""
        told = [instruction for source in self._rates for instruction in self.tell_rate(source)]
        return told + (self.tell_drain() if self.draining else [])

    def tell_rate(self, source: str) -> list[Instruction]:
        """Each worker of the source gets its share."""
        share = self._rates[source] / self._workers.graph.operator(source).workers
        return [Tell(worker, SetRate(share)) for worker in self._workers.live({source})]

    def tell_drain(self) -> list[Instruction]:
        """All sources read no more, but for those that are spared."""
        drained = [source for source in self._workers.graph.sources if source not in self._spared]
        return [Tell(worker, Drain()) for worker in self._workers.live(drained)]
