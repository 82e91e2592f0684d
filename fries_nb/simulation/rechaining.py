"""Runs in which chains are fused and split while whatever else happens: changes, checkpoints, failures, guards.

>>> from fries_nb.simulation.scenarios import draw_focused, play
>>> cluster = play(draw_focused(3, chained=True), RechainingCluster).cluster
>>> cluster.state, bool(cluster.chained)
('finished', True)
"""

from __future__ import annotations

from collections.abc import Iterator

from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.topology import may_chain
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.step_requests import ChainRequested
from fries_nb.worker.worker import Worker


class RechainingCluster(Cluster):
    """A cluster in which chains are requested at random; the arguments are those of ``Cluster``.

    Attributes:
        rechains: probability at a step that a chain is requested.
    """

    rechains = 0.03

    def step(self) -> bool:
        """Carry out one event; sometimes request another chain first."""
        if self.hosts.started and self.random.random() < self.rechains:
            self._want_chain()
        return super().step()

    def chain(self, *operators: str, index: int = 0) -> None:
        """Request that these operators are run as one chain; ``chained`` gets the answer.

        Args:
            operators: the chain.
            index: index of its workers.
        """
        self._say(ChainRequested(WorkerId(operators[0], index), operators))

    def _want_chain(self) -> None:
        """Request some of the operators of a chain, or those of two workers, which mostly may share one."""
        pairs = list(self._pairs())
        alike = [pair for pair in pairs if may_chain(pair[0].wiring.chain[-1], pair[1].wiring.chain[0])]
        wanted = alike if self.random.random() < 0.9 else pairs
        chains = [worker for worker in self.workers.values() if len(worker.instances) > 1]
        if chains and (not wanted or self.random.random() < 0.5):
            worker = self.random.choice(chains)
            names = [operator.name for operator in worker.wiring.chain]
            begin = self.random.randrange(len(names))
            self.chain(*names[begin : self.random.randint(begin + 1, len(names))], index=worker.wiring.index)
        elif wanted:
            first, second = self.random.choice(wanted)
            both = (*first.wiring.workers, *second.wiring.workers)
            self.chain(*(one.operator for one in both), index=first.wiring.index)

    def _pairs(self) -> Iterator[tuple[Worker, Worker]]:
        """The workers that feed one worker, each with that one."""
        for worker in self.workers.values():
            if len(worker.wiring.edges) == 1 and len(worker.wiring.edges[0].channels) == 1:
                yield worker, self.hosts.worker_of(worker.wiring.edges[0].channels[0].receiver)
