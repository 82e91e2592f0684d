"""The membership of a run: hosts that have joined or are refused, and workers that have ended.

The dataflow starts when all hosts have joined. A host of an older incarnation survives from an earlier attempt and is
refused. A second host with the same index, or one of a newer incarnation, means that a host died and Spark restarted
it, without its state.

Silence of a host is no loss, since a user's function may hold Python's interpreter lock for minutes. Losses are
reported by the network (ZeroMQ's heartbeats) and by Spark, as ``HostLost``.
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.controller.events import HostJoined
from fries_nb.controller.states import HOST_MOVES, HostState
from fries_nb.dataflow.graph import Graph, Partitioning
from fries_nb.errors import ProtocolError
from fries_nb.messages import WorkerId
from fries_nb.topology.expansion import workers_of
from fries_nb.topology.routing_table import RoutingTable
from fries_nb.topology.topology import Topology
from fries_nb.transitions import moved


class Membership:
    """The hosts 0, 1, ... of the current incarnation of the run.

    Args:
        hosts: number of hosts.
        incarnation: number of the incarnation.

    Attributes:
        incarnation: number of the current incarnation.
        addresses: host that has joined to the address at which its peers reach it.
    """

    def __init__(self, hosts: int, incarnation: int) -> None:
        self.incarnation = incarnation
        self.addresses: dict[int, str] = {}
        self._states = dict.fromkeys(range(hosts), HostState.AWAITED)

    @property
    def complete(self) -> bool:
        """Whether all hosts have joined."""
        return all(state is HostState.JOINED for state in self._states.values())

    def stranger(self, hello: HostJoined) -> str:
        """Why this host does not belong to the current incarnation; empty if it does."""
        if hello.host not in self._states:
            return self._unknown(hello.host)
        if hello.incarnation < self.incarnation:
            return f"incarnation {hello.incarnation} is over; this run is at incarnation {self.incarnation}"
        return ""

    def restarted(self, hello: HostJoined) -> str:
        """Why this host must have been restarted by Spark, as a message; empty if it was not."""
        if self._states[hello.host] is HostState.JOINED:
            return f"Spark started it again at {hello.address}, without its state"
        if hello.incarnation > self.incarnation:
            return f"Spark started it again as incarnation {hello.incarnation}, without its state"
        return ""

    def join(self, hello: HostJoined) -> None:
        """Admit a host.

        Raises:
            ProtocolError: the host is not awaited.
        """
        self._move(hello.host, HostState.JOINED)
        self.addresses[hello.host] = hello.address

    def lose(self, host: int) -> None:
        """Record the loss of a host.

        Raises:
            ProtocolError: the loss was recorded before.
        """
        self._move(host, HostState.LOST)

    def begin(self, incarnation: int) -> None:
        """Replace all hosts by as many awaited ones of the next incarnation."""
        for host, state in self._states.items():
            if state is not HostState.LOST:
                self._move(host, HostState.LOST)
            self._move(host, HostState.AWAITED)
        self.incarnation = incarnation
        self.addresses = {}

    def check(self, host: int) -> None:
        """Raise a ProtocolError unless the run has a host of this number."""
        if host not in self._states:
            raise ProtocolError(self._unknown(host))

    def _unknown(self, host: int) -> str:
        return f"no host {host} in this run; expected 0 to {len(self._states) - 1}"

    def _move(self, host: int, to: HostState) -> None:
        self._states[host] = moved(HOST_MOVES, self._states[host], to, f"host {host}")


class Workers:
    """All workers of a graph, in the order of declaration.

    Args:
        graph: the graph, with each operator's number of workers.

    Attributes:
        graph: the graph of the current topology.
        ended: the workers that have ended.
        routed: operator to the number of its workers to which tuples are routed.
        tables: keyed operator to its routing table, if its bins are not dealt evenly to its routed workers.
    """

    def __init__(self, graph: Graph) -> None:
        self.ended: set[WorkerId] = set()
        self._former: set[WorkerId] = set()
        self._known: set[WorkerId] = set()
        self._know(graph)
        self.routed: dict[str, int] = {}
        self.tables: dict[str, RoutingTable] = {}
        self.restarted()

    def _know(self, graph: Graph) -> None:
        self.graph = graph
        self._of = {name: workers_of(graph, name) for name in graph.by_name}
        self._known = {worker for workers in self._of.values() for worker in workers}

    def become(self, topology: Topology) -> None:
        """Switch to the workers of another topology; workers that it lacks must have ended, and are removed."""
        before = self._known
        self._know(topology.graph)
        self._former = (self._former | before) - self._known
        self.ended &= self._known
        self.routed = {name: topology.routed(name) for name in topology.graph.by_name}
        self.tables = dict(topology.tables)

    def restarted(self) -> None:
        """Record that all workers start anew, none of them idle: tuples are routed to every one, by the same tables."""
        self.routed = {operator.name: operator.workers for operator in self.graph.operators}

    def table(self, operator: str) -> RoutingTable:
        """The routing table of a keyed operator."""
        return self.tables.get(operator) or RoutingTable.even(self.routed[operator])

    @property
    def uneven(self) -> dict[str, bytes]:
        """Keyed operator to its packed routing table, if its bins are not dealt evenly to all of its workers."""
        keyed = {edge.to for edge in self.graph.edges if edge.partitioning is Partitioning.HASH}
        tables = {name: (self.table(name), len(self._of[name])) for name in sorted(keyed)}
        return {name: table.packed for name, (table, count) in tables.items() if table != RoutingTable.even(count)}

    def has_left(self, worker: WorkerId) -> bool:
        """Whether this worker was removed by a change of the topology; its messages are ignored."""
        return worker in self._former

    def of(self, operators: Iterable[str]) -> list[WorkerId]:
        """The workers of these operators."""
        return [worker for name in self._ordered(operators) for worker in self._of[name]]

    def live(self, operators: Iterable[str] | None = None) -> list[WorkerId]:
        """The workers of these operators (``None``: of all) that have not ended."""
        names = self.graph.by_name if operators is None else operators
        return [worker for worker in self.of(names) if worker not in self.ended]

    def check(self, worker: WorkerId) -> None:
        """Raise a ProtocolError unless the run has or had this worker."""
        if worker not in self._known and worker not in self._former:
            raise ProtocolError(f"an answer from {worker}; this run has no such worker")

    def end(self, worker: WorkerId) -> None:
        """Record that a worker has ended.

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
