"""Changes of the topology: every worker adopts the channels of the next epoch while no marker is in flight.

    phase      requested   nothing is under way   some worker has ended   all have adopted, the leaving have ended
    IDLE       AWAITED     -                      -                       -
    AWAITED    error       ADOPTING               IDLE (refused)          -
    ADOPTING   error       -                      -                       IDLE (changed)

Changes of operators, commits and changes of the topology exclude each other: a marker that arrives on channels of both
epochs would never be aligned at some workers. Added workers are made by their hosts first, and start when all others
have adopted the topology; those of hosts that join are awaited, since their functions may take long to open, or fail.
Removed workers are ended by their senders, those of sources are told to drain; they are forgotten once they have
ended. A loss of hosts aborts the change; the next incarnation starts with the first topology. Only the loss of awaited
workers does not: they are removed by the next epoch, as *lost* ones, whose channels are ended by the hosts of their
receivers.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
>>> operators = Operator("S", kind=Kind.SOURCE), Operator("A")
>>> graph = Graph("pair", operators, (Edge("S", "A", Partitioning.REBALANCE),))
>>> workers = Workers(graph)
>>> rewiring, topology = Rewiring(workers), Topology.dealt(graph, hosts=1)
>>> rewiring.request(topology.grown("A", host=0))
>>> for instruction in rewiring.advance(quiet=True, issued=7)[1:]:
...     print(instruction)
Tell(worker=WorkerId(operator='S', index=0), control=AdoptTopology(epoch=2))
Tell(worker=WorkerId(operator='A', index=0), control=AdoptTopology(epoch=2))
>>> for name in "SA":
...     rewiring.adopted(TopologyAdopted(2, WorkerId(name, 0)))
>>> [changed] = rewiring.advance(quiet=True, issued=7)
>>> [str(worker) for worker in workers.of("A")], workers.routed["A"]
(['A[0]', 'A[1]'], 1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fries_nb.checkpoints import CommittedChange
from fries_nb.controller.events import ChangeTopology, Instruction, Tell, TopologyChanged, TopologyRefused
from fries_nb.controller.membership import Workers
from fries_nb.controller.states import TOPOLOGY_MOVES, TopologyPhase
from fries_nb.errors import ProtocolError
from fries_nb.messages import AdoptTopology, Drain, TopologyAdopted, WorkerId
from fries_nb.topology.topology import Topology
from fries_nb.transitions import moved


class Rewiring:
    """The change of the topology that is requested or under way, if any.

    Args:
        workers: the workers of the run; updated at the end of the change.

    Attributes:
        phase: see the table.
        epoch: epoch of the current topology.
    """

    def __init__(self, workers: Workers) -> None:
        self.phase = TopologyPhase.IDLE
        self.epoch = 1
        self._workers = workers
        self._next: Topology | None = None
        self._pending_acks: set[WorkerId] = set()
        self._leaving: frozenset[WorkerId] = frozenset()
        self._awaited: frozenset[WorkerId] = frozenset()
        self._lost: frozenset[WorkerId] = frozenset()

    @property
    def is_idle(self) -> bool:
        """Whether no topology is requested or being adopted."""
        return self.phase is TopologyPhase.IDLE

    @property
    def under_way(self) -> bool:
        """Whether workers are adopting a topology, so that no marker may start."""
        return self.phase is TopologyPhase.ADOPTING

    def request(
        self, topology: Topology, awaited: Collection[WorkerId] = (), lost: Collection[WorkerId] = ()
    ) -> None:
        """Request a topology; it is adopted as soon as nothing else is under way.

        Args:
            topology: the topology of the next epoch.
            awaited: the added workers that answer when their hosts have made them.
            lost: the removed workers that do not end, since their hosts are gone.

        Raises:
            ProtocolError: it is not of the next epoch, another one has been requested, or a source's worker that has
                splits would be idle.
        """
        if topology.epoch != self.epoch + 1:
            raise ProtocolError(
                f"epoch {topology.epoch} of the topology was requested in epoch {self.epoch}; expected the next one"
            )
        for source in self._workers.graph.sources:
            if topology.routed(source) < (reading := self._workers.reading(source)):
                raise ProtocolError(f"{source}[{reading - 1}] was to be idle; expected its splits to be moved first")
        self._move(TopologyPhase.AWAITED)
        self._next, self._awaited, self._lost = topology, frozenset(awaited), frozenset(lost)

    def expects(self, worker: WorkerId) -> bool:
        """Whether an answer of this added worker is awaited, which is not one of the run's workers yet."""
        return worker in self._awaited and self.under_way

    def give_up(self) -> None:
        """Await no answer of added workers, since their hosts are lost; the next epoch is to remove them."""
        self._pending_acks -= self._awaited
        self._awaited = frozenset()

    def adopted(self, answer: TopologyAdopted) -> None:
        """Record that a worker has adopted the next epoch.

        Raises:
            ProtocolError: no answer of this worker and epoch is awaited.
        """
        if self._next is None or answer.epoch != self._next.epoch or answer.worker not in self._pending_acks:
            adopted = f"{answer.worker} adopted epoch {answer.epoch} of the topology"
            raise ProtocolError(f"{adopted}, which was not requested of it")
        self._pending_acks.discard(answer.worker)

    def advance(self, quiet: bool, issued: int, decided: Iterable[CommittedChange] = ()) -> list[Instruction]:
        """Begin the requested change, refuse it or end it, if that is possible now.

        Args:
            quiet: whether no change, commit or marker is under way.
            issued: id of the last marker.
            decided: all changes in effect, in order.
        """
        if self.phase is TopologyPhase.AWAITED and self._workers.ended and not self._lost:
            return self._refuse()
        if self.phase is TopologyPhase.AWAITED and quiet:
            return self._begin(issued, tuple(decided))
        if self.under_way and not self._pending_acks and self._leaving <= self._workers.ended:
            return self._end()
        return []

    def withdraw(self) -> bool:
        """Withdraw the request if it has not begun; returns whether it was."""
        if self.phase is not TopologyPhase.AWAITED:
            return False
        self._move(TopologyPhase.IDLE)
        self._next = None
        return True

    def lost(self) -> None:
        """Abort the change, since the hosts are lost; the next incarnation starts with epoch 1, and no idle worker."""
        if self.phase is not TopologyPhase.IDLE:
            self._move(TopologyPhase.IDLE)
        self.epoch, self._next = 1, None
        self._leaving = self._awaited = self._lost = frozenset()
        self._pending_acks.clear()
        self._workers.restarted()

    def _refuse(self) -> list[Instruction]:
        assert self._next is not None, "awaited"
        self._move(TopologyPhase.IDLE)
        refused, self._next = self._next.epoch, None
        return [TopologyRefused(refused, f"{min(self._workers.ended)} has ended")]

    def _begin(self, issued: int, decided: tuple[CommittedChange, ...]) -> list[Instruction]:
        assert self._next is not None, "awaited"
        self._move(TopologyPhase.ADOPTING)
        topology = self._next = self._next.with_tables({**self._next.tables, **self._workers.tables})
        present, stay = self._workers.of(self._workers.graph.by_name), set(topology.workers)
        self._leaving = frozenset(present) - stay - self._lost
        asked = [worker for worker in present if worker in stay]  # whatever their chains are by now
        self._pending_acks = {*asked, *self._awaited}
        order = AdoptTopology(topology.epoch)
        change = ChangeTopology(topology, issued, self._lost, decided)
        ends = [Tell(worker, Drain()) for worker in sorted(self._leaving) if worker.operator in topology.graph.sources]
        return [change, *(Tell(worker, order) for worker in asked), *ends]

    def _end(self) -> list[Instruction]:
        assert self._next is not None, "under way"
        self._move(TopologyPhase.IDLE)
        topology, self._next, self._awaited = self._next, None, frozenset()
        self.epoch = topology.epoch
        self._workers.become(topology)
        return [TopologyChanged(topology)]

    def _move(self, to: TopologyPhase) -> None:
        self.phase = moved(TOPOLOGY_MOVES, self.phase, to, "the change of topology")
