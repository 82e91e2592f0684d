"""Hosts that join or leave a running dataflow: one request for another number of hosts at a time.

    phase        effect on entering it                  ends when                                 next
    REQUESTED    -                                      tuples flow                               STARTING, NARROWING
                                                        hosts have left, and more are wanted      IDLE (aborted)
    STARTING     StartHosts                             all new hosts have said hello             JOINING
                                                        one is lost, or 60 s have passed          IDLE (aborted)
    JOINING      request a topology with their workers  all workers have adopted it               WIDENING
                                                        one is lost before that was begun         IDLE (aborted)
                                                        one is lost, or a worker cannot be made   RETRACTING
    WIDENING     they are members; request a topology   all workers have adopted it               IDLE (done)
                 that routes rows to their workers
    RETRACTING   request a topology without them        all workers have adopted it               IDLE (aborted)
    NARROWING    request a topology that routes no row  all workers have adopted it               LEAVING
                 to the workers of the last hosts
    LEAVING      request a topology without them        all workers have adopted it; ReleaseHosts IDLE (done)

Each topology is adopted by ``rewiring``, while nothing else is under way. Rows are routed to new workers only when
their hosts are members: until then the loss of a new host has no effect on rows, and can be taken back. Later it is a
loss like any other. When hosts are lost the request ends: the next incarnation has as many hosts as there were members.

>>> from fries_nb.controller.membership import Workers
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
>>> operators = Operator("S", kind=Kind.SOURCE), Operator("A", workers=2)
>>> graph = Graph("pair", operators, (Edge("S", "A", Partitioning.REBALANCE),))
>>> membership = Membership(hosts=1, incarnation=1)
>>> joining = Joining(Topology.dealt(graph, hosts=1), membership, Rewiring(Workers(graph)))
>>> joining.request(HostsRequested("r1", hosts=2, shares={"A": 2}), now_ns=0)
[]
>>> joining.advance(now_ns=0)
[StartHosts(hosts=(1,))]
>>> joining.lost(1, "its process died", now_ns=0)[-1].error
'host 1 was lost (its process died) before it took part; nothing changed'
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from fries_nb.controller.events import (
    HostsRequested,
    Instruction,
    ReleaseHosts,
    RescaleEnded,
    StartHosts,
    TopologyChanged,
    TopologyRefused,
)
from fries_nb.controller.membership import Membership
from fries_nb.controller.rewiring import Rewiring
from fries_nb.controller.states import RESCALE_MOVES, RescalePhase
from fries_nb.errors import DataflowError
from fries_nb.messages import WorkerId
from fries_nb.topology.topology import Topology
from fries_nb.transitions import moved

JOIN_S = 60
"""Seconds within which new hosts must have joined."""
_NOT_NEEDED = "the run goes on with fewer hosts"
_HAVE_LEFT = (
    "hosts have left, and new ones would have workers of the same numbers, which the output and the trace do not tell "
    "apart yet; nothing changed"
)


class Joining:
    """The request for another number of hosts that is under way, if any.

    Args:
        topology: the first topology.
        membership: the hosts of the run.
        rewiring: changes the topology.
        patience_s: seconds within which new hosts must have joined.

    Attributes:
        phase: see the table.
        topology: the current topology.
    """

    def __init__(
        self, topology: Topology, membership: Membership, rewiring: Rewiring, patience_s: float = JOIN_S
    ) -> None:
        self.phase = RescalePhase.IDLE
        self.topology = topology
        self._membership = membership
        self._rewiring = rewiring
        self._patience_s = patience_s
        self._request = HostsRequested("", 0, {})
        self._hosts: tuple[int, ...] = ()  # those that join or leave
        self._since_ns = self._until_ns = 0
        self._why = ""
        self._have_left = False

    @property
    def under_way(self) -> bool:
        """Whether a request has begun to change the topology."""
        return self.phase not in (RescalePhase.IDLE, RescalePhase.REQUESTED, RescalePhase.STARTING)

    def request(self, event: HostsRequested, now_ns: int) -> list[Instruction]:
        """Begin a request as soon as tuples flow; refused if another one is under way.

        Args:
            event: the request.
            now_ns: the current time.
        """
        if self.phase is not RescalePhase.IDLE:
            wanted = self._request.hosts
            return self.refuse(event, f"a rescale to {wanted} hosts is under way; expected its end")
        self._move(RescalePhase.REQUESTED)
        self._request, self._since_ns = event, now_ns
        return []

    def refuse(self, event: HostsRequested, why: str) -> list[Instruction]:
        """Refuse a request, for this reason."""
        return [RescaleEnded(event.request, "aborted", self._count, why)]

    def advance(self, now_ns: int) -> list[Instruction]:
        """Take the next step, if that is possible now; called while tuples flow."""
        if self.phase is RescalePhase.REQUESTED:
            self._since_ns = now_ns
            return self._begin(now_ns)
        if self.phase is not RescalePhase.STARTING:
            return []
        if not self._membership.awaited:
            return self._join(now_ns)
        if now_ns >= self._until_ns:
            late = f"host {self._membership.awaited[0]} has not joined within {self._patience_s:g} s"
            return self._take_back(f"{late}; nothing changed", now_ns)
        return []

    def heard(self, instructions: Iterable[Instruction], now_ns: int) -> list[Instruction]:
        """Follow the changes of the topology, which ``rewiring`` has begun, ended or refused.

        Args:
            instructions: its instructions.
            now_ns: the current time.
        """
        for instruction in instructions:
            if isinstance(instruction, TopologyChanged):
                self.topology = instruction.topology
                return self._changed(now_ns)
            if isinstance(instruction, TopologyRefused):
                return self._refused(instruction.reason, now_ns)
        return []

    def concerns(self, host: int) -> bool:
        """Whether this host is expected, and not a member yet."""
        return host in self._membership.newcomers

    def lost(self, host: int, reason: str, now_ns: int) -> list[Instruction]:
        """Take back all new hosts, since one of them was lost; see the table.

        Args:
            host: index of the lost host.
            reason: the cause, for the message.
            now_ns: the current time.
        """
        return self._take_back(f"host {host} was lost ({reason}) before it took part; nothing changed", now_ns)

    def failed(self, worker: WorkerId, error: str, now_ns: int) -> list[Instruction]:
        """Take back all new hosts, since a worker cannot be made there; see the table.

        Args:
            worker: the worker.
            error: the failure in one sentence.
            now_ns: the current time.
        """
        return self._take_back(f"{worker} cannot run on a new host ({error}); nothing changed", now_ns)

    def begin_again(self, topology: Topology, why: str, now_ns: int) -> list[Instruction]:
        """End the request, since the hosts are lost and start again.

        Args:
            topology: the first topology of the next incarnation.
            why: the reason in one sentence.
            now_ns: the current time.
        """
        self.topology, self._have_left = topology, False
        if self.phase is RescalePhase.IDLE:
            return []
        if self.phase is RescalePhase.WIDENING:
            return [self._over("done", now_ns)]
        return [self._over("aborted", now_ns, f"{why}; the run goes on with {self._count} hosts")]

    def close(self, why: str, now_ns: int) -> list[Instruction]:
        """End the request, since the run has ended.

        Args:
            why: the reason, as a clause.
            now_ns: the current time.
        """
        if self.phase is RescalePhase.IDLE:
            return []
        return [self._over("failed" if self.under_way else "aborted", now_ns, f"{why} before the rescale was complete")]

    # ---- steps

    def _begin(self, now_ns: int) -> list[Instruction]:
        more = self._request.hosts - self._count
        if not more:
            return [self._over("done", now_ns)]
        if more < 0:
            return self._narrow(self._membership.hosts[more:], now_ns)
        if self._have_left:
            return [self._over("aborted", now_ns, _HAVE_LEFT)]
        self._move(RescalePhase.STARTING)
        self._hosts = self._membership.expect(more)
        self._until_ns = now_ns + int(self._patience_s * 1e9)
        return [StartHosts(self._hosts)]

    def _join(self, now_ns: int) -> list[Instruction]:
        try:
            topology = self.topology.joined(self._hosts, self._request.shares)
        except DataflowError as error:
            return self._take_back(f"{error}; nothing changed", now_ns)
        self._move(RescalePhase.JOINING)
        self._rewiring.request(topology, awaited=topology.placement.keys() - self.topology.placement.keys())
        return []

    def _narrow(self, hosts: tuple[int, ...], now_ns: int) -> list[Instruction]:
        try:
            topology = self.topology.narrowed(self.topology.workers_on(hosts))
        except DataflowError as error:
            words = f"host {hosts[0]} has been there from the beginning or since a recovery ({error})"
            return [self._over("aborted", now_ns, f"{words}; nothing changed")]
        self._move(RescalePhase.NARROWING)
        self._hosts = hosts
        self._rewiring.request(topology)
        return []

    def _changed(self, now_ns: int) -> list[Instruction]:
        """Continue after a change of the topology."""
        if self.phase is RescalePhase.JOINING:
            self._membership.admit()
            self._move(RescalePhase.WIDENING)
            self._rewiring.request(self.topology.widened())
        elif self.phase is RescalePhase.RETRACTING and self._hosts:
            gone = self.topology.workers_on(self._hosts)
            self._rewiring.request(self.topology.without(gone), lost=gone)
            self._hosts = ()
        elif self.phase is RescalePhase.NARROWING:
            self._move(RescalePhase.LEAVING)
            self._rewiring.request(self.topology.without(self.topology.workers_on(self._hosts)))
        elif self.phase is RescalePhase.LEAVING:
            self._membership.dismiss(self._hosts)
            self._have_left = True
            return [ReleaseHosts(self._hosts, _NOT_NEEDED), self._over("done", now_ns)]
        elif self.phase is not RescalePhase.IDLE:
            return [self._over("aborted" if self._why else "done", now_ns, self._why)]
        return []

    def _refused(self, reason: str, now_ns: int) -> list[Instruction]:
        if self.phase is RescalePhase.JOINING:
            return self._take_back(f"{reason}; nothing changed", now_ns)
        if self.phase is RescalePhase.WIDENING:  # the hosts are members, and there are hardly any rows left
            return [self._over("done", now_ns)]
        if self.phase in (RescalePhase.NARROWING, RescalePhase.LEAVING):
            return [self._over("aborted", now_ns, f"{reason}; no host has left")]
        return []

    def _take_back(self, why: str, now_ns: int) -> list[Instruction]:
        """Release all new hosts; if the topology is being changed already, remove their workers afterwards."""
        newcomers = self._membership.newcomers
        self._membership.dismiss(newcomers)
        released = ReleaseHosts(newcomers, why)
        if self._rewiring.under_way:
            self._move(RescalePhase.RETRACTING)
            self._rewiring.give_up()
            self._why = why
            return [released]
        self._rewiring.withdraw()
        return [released, self._over("aborted", now_ns, why)]

    # ---- end

    @property
    def _count(self) -> int:
        return len(self._membership.hosts)

    def _over(self, outcome: Literal["done", "aborted", "failed"], now_ns: int, error: str = "") -> RescaleEnded:
        self._move(RescalePhase.IDLE)
        self._hosts, self._why = (), ""
        delay_ms = (now_ns - self._since_ns) / 1e6
        return RescaleEnded(self._request.request, outcome, self._count, error, delay_ms)

    def _move(self, to: RescalePhase) -> None:
        self.phase = moved(RESCALE_MOVES, self.phase, to, "the rescale")
