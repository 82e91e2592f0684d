"""The workers of a run, as the controller knows them: who there is, and who has ended."""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.dataflow.graph import Graph
from fries_nb.errors import ProtocolError
from fries_nb.messages import WorkerId
from fries_nb.topology.expansion import workers_of


class Workers:
    """All workers of a graph, in the order of declaration."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ended: set[WorkerId] = set()
        self._of = {name: workers_of(graph, name) for name in graph.by_name}
        self._known = {worker for workers in self._of.values() for worker in workers}

    def of(self, operators: Iterable[str]) -> list[WorkerId]:
        """The workers of these operators."""
        return [worker for name in self._ordered(operators) for worker in self._of[name]]

    def live(self, operators: Iterable[str] | None = None) -> list[WorkerId]:
        """The workers of these operators, or of all, that have not ended."""
        names = self.graph.by_name if operators is None else operators
        return [worker for worker in self.of(names) if worker not in self.ended]

    def check(self, worker: WorkerId) -> None:
        """Raise a ProtocolError unless the run has this worker."""
        if worker not in self._known:
            raise ProtocolError(f"an answer from {worker}, a stranger: this run has no such worker")

    def end(self, worker: WorkerId) -> None:
        """Note that a worker has ended.

        Raises:
            ProtocolError: it had ended before.
        """
        if worker in self.ended:
            raise ProtocolError(f"{worker} has ended for the second time")
        self.ended.add(worker)

    def _ordered(self, operators: Iterable[str]) -> list[str]:
        wanted = set(operators)
        for name in wanted:
            self.graph.operator(name)
        return [name for name in self._of if name in wanted]
