"""The membership of a run: hosts that have joined or are refused, and workers that have ended.

The dataflow starts when all hosts have joined. A host of an older incarnation survives from an earlier attempt and is
refused. A second host with the same index, or one of a newer incarnation, means that a host died and Spark restarted
it, without its state.

Later hosts may join a running dataflow. They are *newcomers* until they are admitted, and can be dismissed before that
without any effect on the members. Their indices are not used again within an incarnation, so that late messages of a
dismissed host are recognised. The next incarnation numbers its hosts anew.

>>> membership = Membership(hosts=1, incarnation=1)
>>> membership.expect(2)
(1, 2)
>>> membership.join(HostJoined(2, "tcp://there:1", incarnation=1))
>>> membership.awaited, membership.newcomers, membership.hosts
((1,), (1, 2), (0,))
>>> membership.dismiss([1, 2])
>>> membership.expect(1), membership.has_left(2)
((3,), True)

Silence of a host is no loss, since a user's function may hold Python's interpreter lock for minutes. Losses are
reported by the network (ZeroMQ's heartbeats) and by Spark, as ``HostLost``.

Changes of the topology: every worker adopts the channels of the next epoch while no marker is in flight.

    phase      requested   nothing is under way   some worker has ended   all have adopted, the leaving have ended
    IDLE       AWAITED     -                      -                       -
    AWAITED    error       ADOPTING               IDLE (refused)          -
    ADOPTING   error       -                      -                       IDLE (changed)

Changes of operators, commits and changes of the topology exclude each other: a marker that arrives on channels of both
epochs would never be aligned at some workers. Added workers are made by their hosts first, and start when all others
have adopted the topology; those of hosts that join are awaited, since their functions may take long to open, or fail.
Where hosts of now add workers to operators, the others are told only when these are there: one that ends would send its
end to a worker that does not exist yet.
Removed workers are ended by their senders, those of sources are drained; they are forgotten once they have
ended. A loss of hosts aborts the change; the next incarnation starts with the first topology. Only the loss of awaited
workers does not: they are removed by the next epoch, as *lost* ones, whose channels are ended by the hosts of their
receivers.

>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
>>> operators = Operator("S", kind=Kind.SOURCE), Operator("A")
>>> graph = Graph("pair", operators, (Edge("S", "A", Partitioning.REBALANCE),))
>>> workers = Workers(graph)
>>> rewiring, topology = Rewiring(workers), Topology.dealt(graph, hosts=1)
>>> rewiring.request(topology.grown("A", host=0))
>>> for instruction in rewiring.step(is_free=True, issued=7)[1:]:
...     print(instruction)
Tell(worker=WorkerId(operator='S', index=0), control=AdoptTopology(epoch=2))
Tell(worker=WorkerId(operator='A', index=0), control=AdoptTopology(epoch=2))
>>> for name in "SA":
...     rewiring.adopted(TopologyAdopted(2, WorkerId(name, 0)))
>>> [changed] = rewiring.step(is_free=True, issued=7)
>>> [str(worker) for worker in workers.of("A")], workers.routed["A"]
(['A[0]', 'A[1]'], 1)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import (
    AddedOperators,
    ChangeTopology,
    HostJoined,
    Instruction,
    Tell,
    TopologyChanged,
    TopologyRefused,
)
from fries_nb.controller.states import HOST_MOVES, TOPOLOGY_MOVES, HostState, TopologyPhase
from fries_nb.dataflow.graph import Graph, resized
from fries_nb.errors import ProtocolError
from fries_nb.protocol.checkpoints import CommittedChange, ParkedOperator
from fries_nb.protocol.messages import AdoptTopology, Drain, TopologyAdopted, WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import Topology, workers_of
from fries_nb.transitions import moved


class Membership:
    """The hosts 0, 1, ... of the current incarnation of the run.

    Attributes:
        incarnation: number of the current incarnation.
        addresses: host that has joined to the address at which its peers reach it.
    """

    def __init__(self, hosts: int, incarnation: int) -> None:
        self.incarnation = incarnation
        self.addresses: dict[int, str] = {}
        self._states = dict.fromkeys(range(hosts), HostState.AWAITED)
        self._newcomers: set[int] = set()
        self._next = hosts  # the first index that was never used

    @property
    def complete(self) -> bool:
        """Whether all hosts have joined."""
        return all(state is HostState.JOINED for state in self._states.values())

    @property
    def hosts(self) -> tuple[int, ...]:
        """The members, in order of their indices."""
        return tuple(sorted(self._states.keys() - self._newcomers))

    @property
    def newcomers(self) -> tuple[int, ...]:
        """The hosts that are expected and not admitted yet."""
        return tuple(sorted(self._newcomers))

    @property
    def awaited(self) -> tuple[int, ...]:
        """The newcomers that have not joined yet."""
        return tuple(host for host in self.newcomers if self._states[host] is HostState.AWAITED)

    def expect(self, count: int) -> tuple[int, ...]:
        """Expect so many further hosts; returns their indices."""
        fresh = tuple(range(self._next, self._next + count))
        self._next += count
        self._newcomers.update(fresh)
        self._states.update(dict.fromkeys(fresh, HostState.AWAITED))
        return fresh

    def admit(self) -> None:
        """Make the newcomers members."""
        if self.awaited:
            raise ProtocolError(f"host {self.awaited[0]} was admitted before it has joined; expected its hello")
        self._newcomers.clear()

    def dismiss(self, hosts: Iterable[int]) -> None:
        """Forget hosts that leave, or that are not to join any more."""
        for host in hosts:
            self.check(host)
            self._newcomers.discard(host)
            self.addresses.pop(host, None)
            del self._states[host]

    def has_left(self, host: int) -> bool:
        """Whether this host was dismissed; its messages are ignored."""
        return host not in self._states and 0 <= host < self._next

    def stranger(self, hello: HostJoined) -> str | None:
        """Why this host does not belong to the current incarnation; ``None`` if it does."""
        if hello.host not in self._states:
            return self._unknown(hello.host)
        if hello.incarnation < self.incarnation:
            return f"incarnation {hello.incarnation} is over; this run is at incarnation {self.incarnation}"
        return None

    def restarted(self, hello: HostJoined) -> str | None:
        """Why this host must have been restarted by Spark, as a message; ``None`` if it was not."""
        if self._states[hello.host] is HostState.JOINED:
            return f"Spark started it again at {hello.address}, without its state"
        if hello.incarnation > self.incarnation:
            return f"Spark started it again as incarnation {hello.incarnation}, without its state"
        return None

    def join(self, hello: HostJoined) -> None:
        """Admit a host."""
        self.check(hello.host)
        self._move(hello.host, HostState.JOINED)
        self.addresses[hello.host] = hello.address

    def lose(self, host: int) -> None:
        """Record the loss of a host."""
        self._move(host, HostState.LOST)

    def begin(self, incarnation: int) -> None:
        """Replace the members by as many awaited hosts of the next incarnation."""
        count = len(self.hosts)
        for host in self.hosts:
            if self._states[host] is not HostState.LOST:
                self._move(host, HostState.LOST)
            self._move(host, HostState.AWAITED)
        self._states = dict.fromkeys(range(count), HostState.AWAITED)
        self._newcomers.clear()
        self._next = count
        self.incarnation = incarnation
        self.addresses = {}

    def check(self, host: int) -> None:
        """Raise a ProtocolError unless the run has a host of this number."""
        if host not in self._states:
            raise ProtocolError(self._unknown(host))

    def _unknown(self, host: int) -> str:
        return f"no host {host} in this run; expected {_listed(sorted(self._states))}"

    def _move(self, host: int, to: HostState) -> None:
        self._states[host] = moved(HOST_MOVES, self._states[host], to, f"host {host}")


def _listed(hosts: Sequence[int]) -> str:
    """The hosts in words.

    >>> _listed([0, 1, 2]), _listed([0, 1, 4])
    ('0 to 2', '0, 1, 4')
    """
    return f"0 to {len(hosts) - 1}" if hosts == list(range(len(hosts))) else ", ".join(map(str, hosts))


class Workers:
    """All workers of a graph, in the order of declaration.

    Args:
        graph: the graph, with each operator's number of workers.

    Attributes:
        graph: the graph of the current topology.
        settled: the same, but while a change of the shape is prepared the dataflow before it: rows flow there only.
        ended: the workers that have ended.
        routed: operator to the number of its workers to which tuples are routed.
        tables: keyed operator to its routing table, if its bins are not dealt evenly to its routed workers.
        readers: source to the number of its workers that have splits, the first ones, if not all have.
    """

    def __init__(self, graph: Graph) -> None:
        self.ended: set[WorkerId] = set()
        self._former: set[WorkerId] = set()
        self._known: set[WorkerId] = set()
        self._know(graph)
        self.settled = graph
        self.routed: dict[str, int] = {}
        self.tables: dict[str, RoutingTable] = {}
        self.readers: dict[str, int] = {}
        self.restarted()

    def _know(self, graph: Graph) -> None:
        self.graph = graph
        self._of = {name: workers_of(graph, name) for name in graph.by_name}
        self._known = {worker for workers in self._of.values() for worker in workers}

    def become(self, topology: Topology) -> None:
        """Switch to the workers of another topology; workers that it lacks must have ended, and are removed."""
        kept = [source for source in self.graph.sources if source in topology.graph]
        before, readers = self._known, {source: self.reading(source) for source in kept}
        self._know(topology.graph)
        self.settled = topology.before or topology.graph
        self._former = (self._former | before) - self._known
        self.ended &= self._known
        self.routed = {name: topology.routed(name) for name in topology.graph.by_name}
        self.tables = dict(topology.tables)
        for source, count in readers.items():
            self.read_by(source, count)

    def begin_with(self, graph: Graph) -> None:
        """The next incarnation begins with the workers of this graph; ``restarted`` follows."""
        self._former = set()
        self._know(resized(graph, self.graph.sizes))
        self.settled = self.graph
        self.tables = {name: table for name, table in self.tables.items() if name in graph}

    def restarted(self) -> None:
        """Record that all workers start anew, none of them idle: tuples are routed to every one, by the same tables.

        The splits of each source are dealt to all of its workers.
        """
        self.readers.clear()
        self.routed = {operator.name: operator.workers for operator in self.graph.operators}

    def table(self, operator: str) -> RoutingTable:
        """The routing table of a keyed operator."""
        return self.tables.get(operator) or RoutingTable.even(self.routed[operator])

    def reading(self, source: str) -> int:
        """The number of a source's workers that have splits: the first ones."""
        return self.readers.get(source, len(self._of[source]))

    def read_by(self, source: str, count: int) -> None:
        """Record that the splits of a source are dealt to so many of its workers."""
        self.readers[source] = count
        if count == len(self._of[source]):
            del self.readers[source]

    @property
    def uneven(self) -> dict[str, bytes]:
        """Keyed operator to its packed routing table, if its bins are not dealt evenly to all of its workers."""
        tables = {name: (self.table(name), len(self._of[name])) for name in self.graph.keyed}
        return {name: table.packed for name, (table, count) in tables.items() if table != RoutingTable.even(count)}

    def has_left(self, worker: WorkerId) -> bool:
        """Whether this worker was removed by a change of the topology; its messages are ignored."""
        return worker in self._former

    def of(self, operators: Iterable[str]) -> list[WorkerId]:
        """The workers of these operators."""
        return [worker for name in self._ordered(operators) for worker in self._of[name]]

    def live(self, operators: Iterable[str] | None = None) -> list[WorkerId]:
        """The workers of these operators (``None``: of all) that have not ended."""
        if operators is None:
            return [worker for workers in self._of.values() for worker in workers if worker not in self.ended]
        return [worker for worker in self.of(operators) if worker not in self.ended]

    def check(self, worker: WorkerId) -> None:
        """Raise a ProtocolError unless the run has or had this worker."""
        if worker not in self._known and worker not in self._former:
            raise ProtocolError(f"an answer from {worker}; this run has no such worker")

    def end(self, worker: WorkerId) -> None:
        """Record that a worker has ended."""
        if worker in self.ended:
            raise ProtocolError(f"{worker} has ended for the second time")
        self.ended.add(worker)

    def _ordered(self, operators: Iterable[str]) -> list[str]:
        wanted = set(operators)
        for name in wanted - self._of.keys():
            self.graph.operator(name)
        return [name for name in self._of if name in wanted]


NONE_PARKED: Mapping[str, ParkedOperator] = MappingProxyType({})


class Rewiring(Coordinator):
    """The change of the topology that is requested or under way, if any.

    Args:
        workers: the workers of the run; updated at the end of the change.

    Attributes:
        phase: see the table.
        epoch: epoch of the current topology.
    """

    takes = (TopologyAdopted,)

    def __init__(self, workers: Workers) -> None:
        self.phase = TopologyPhase.IDLE
        self.epoch = 1
        self._workers = workers
        self._next: Topology | None = None
        self._pending_acks: set[WorkerId] = set()
        self._leaving: frozenset[WorkerId] = frozenset()
        self._awaited: frozenset[WorkerId] = frozenset()
        self._lost: frozenset[WorkerId] = frozenset()
        self._added: AddedOperators | None = None
        self._despite_ends = False
        self._concerned: Collection[str] | None = None
        self._ahead: frozenset[WorkerId] = frozenset()
        self._orders: list[Instruction] = []  # that follow when those that are awaited ahead are there

    @property
    def is_idle(self) -> bool:
        """Whether no topology is requested or being adopted."""
        return self.phase is TopologyPhase.IDLE

    @property
    def is_awaited(self) -> bool:
        """Whether a topology is requested that no worker adopts yet."""
        return self.phase is TopologyPhase.AWAITED

    @property
    def under_way(self) -> bool:
        """Whether workers are adopting a topology, so that no marker may start."""
        return self.phase is TopologyPhase.ADOPTING

    def request(
        self, topology: Topology, awaited: Collection[WorkerId] = (), lost: Collection[WorkerId] = (),
        added: AddedOperators | None = None, despite_ends: bool = False, concerned: Collection[str] | None = None,
        ahead: Collection[WorkerId] = (),
    ) -> None:  # fmt: skip
        """Request a topology; it is adopted as soon as nothing else is under way.

        Args:
            topology: the topology.
            awaited: the added workers whose answers are awaited, since they may fail.
            lost: the removed workers that are gone, so that their receivers' hosts end their channels.
            added: the operators that are added, if any.
            despite_ends: whether it is adopted even if workers have ended.
            concerned: the operators whose workers are told of it, since the others stay as they are; ``None`` for all.
            ahead: the added workers that must be there before any other worker is told.
        """
        if topology.epoch != self.epoch + 1:
            raise ProtocolError(
                f"epoch {topology.epoch} of the topology was requested in epoch {self.epoch}; expected the next one"
            )
        for source in self._workers.graph.sources:
            stays = source in topology.graph
            if stays and topology.routed(source) < (reading := self._workers.reading(source)):
                raise ProtocolError(f"{source}[{reading - 1}] was to be idle; expected its splits to be moved first")
        self._move(TopologyPhase.AWAITED)
        self._next, self._awaited, self._lost = topology, frozenset(awaited), frozenset(lost)
        self._added, self._despite_ends = added, despite_ends
        self._concerned, self._ahead = concerned, frozenset(ahead)

    def expects(self, worker: WorkerId) -> bool:
        """Whether an answer of this added worker is awaited, which is not one of the run's workers yet."""
        return worker in self._awaited and self.under_way

    def give_up(self, workers: Collection[WorkerId] | None = None) -> None:
        """Await no answer of added workers (``None``: of all), which are lost; the next epoch is to remove them."""
        self._pending_acks -= self._awaited if workers is None else set(workers)
        if workers is None:
            self._awaited = frozenset()

    def adopted(self, answer: TopologyAdopted) -> None:
        """Record that a worker has adopted the next epoch."""
        if self._next is None or answer.epoch != self._next.epoch or answer.worker not in self._pending_acks:
            adopted = f"{answer.worker} adopted epoch {answer.epoch} of the topology"
            raise ProtocolError(f"{adopted}, which was not requested of it")
        self._pending_acks.discard(answer.worker)

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """See ``adopted``."""
        if isinstance(event, TopologyAdopted):
            self.adopted(event)
        return []

    def step(self, is_free: bool, issued: int, decided: Iterable[CommittedChange] = ()) -> list[Instruction]:
        """Begin the requested change, refuse it or end it, if that is possible now."""
        if self.phase is TopologyPhase.AWAITED and self._workers.ended and not (self._lost or self._despite_ends):
            return self._refuse()
        if self.phase is TopologyPhase.AWAITED and is_free:
            return self._begin(issued, tuple(decided))
        if self.under_way and self._orders:
            return self._order()
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

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Abort the change, since the hosts are lost; the next incarnation starts with epoch 1, and no idle worker."""
        if self.phase is not TopologyPhase.IDLE:
            self._move(TopologyPhase.IDLE)
        self.epoch, self._next = 1, None
        self._leaving = self._awaited = self._lost = self._ahead = frozenset()
        self._pending_acks.clear()
        self._orders = []
        self._workers.restarted()
        return []

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
        self._workers.ended |= self._lost & set(present)  # they are gone: nothing can be told them any more
        told = topology.graph.by_name if self._concerned is None else self._concerned
        asked = [worker for worker in present if worker in stay and worker.operator in told]
        self._pending_acks = {*asked, *self._awaited}
        order = AdoptTopology(topology.epoch)
        change = ChangeTopology(topology, issued, self._lost, decided, self._added, self._awaited)
        self._added = None
        sources = set(self._workers.graph.sources)
        leaving = sorted(self._leaving - self._workers.ended)
        ends = [Tell(worker, Drain()) for worker in leaving if worker.operator in sources]
        self._orders = [*(Tell(worker, order) for worker in asked), *ends]
        return [change, *self._order()]

    def _order(self) -> list[Instruction]:
        """Tell the workers of now, unless others must be there before."""
        orders: list[Instruction] = []
        if not self._pending_acks & self._ahead:
            orders, self._orders = self._orders, []
        return orders

    def _end(self) -> list[Instruction]:
        assert self._next is not None, "under way"
        self._move(TopologyPhase.IDLE)
        topology, self._next, self._awaited = self._next, None, frozenset()
        self.epoch = topology.epoch
        self._workers.become(topology)
        return [TopologyChanged(topology)]

    def _move(self, to: TopologyPhase) -> None:
        self.phase = moved(TOPOLOGY_MOVES, self.phase, to, "the change of topology")
