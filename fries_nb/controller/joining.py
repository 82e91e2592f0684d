"""Hosts and workers that join or leave a running dataflow: requests for other numbers of them, one after another.

    phase        effect on entering it                  ends when                                 next
    REQUESTED    -                                      tuples flow; workers are to leave         CLEARING
                                                        hosts are to join                         STARTING
                                                        workers are to join                       JOINING
    STARTING     StartHosts                             all new hosts have said hello             JOINING
                                                        one is lost, or 60 s have passed          IDLE (aborted)
    JOINING      request a topology with the workers    all workers have adopted it               WIDENING
                                                        a new host is lost before it was begun    IDLE (aborted)
                                                        one is lost, or a worker cannot be made   RETRACTING
    WIDENING     new hosts are members; request a       all workers have adopted it               BALANCING
                 topology that routes rows to the
                 new workers
    BALANCING    request moves of splits, then bins     all moves are over                        IDLE (done)
                 to them
    RETRACTING   request a topology without them        all workers have adopted it               IDLE (aborted)
    CLEARING     request moves of all splits, then      all moves are over                        NARROWING
                 bins from the workers that leave       one of an operator's workers has ended    IDLE (aborted)
    NARROWING    request a topology that routes no row  all workers have adopted it               LEAVING
                 to these workers
    LEAVING      request a topology without them        all workers have adopted it; ReleaseHosts JOINING, IDLE (done)

Each topology is adopted by ``rewiring``, while nothing else is under way. Rows are routed to new workers only when
their hosts are members: until then the loss of a new host has no effect on rows, and can be taken back. Later it is a
loss like any other. When hosts are lost the request ends: the next incarnation has as many hosts as there were members.

The last workers of an operator leave, since the others are numbered from 0. When a host leaves that has not the last
ones, because workers were added to single operators before, more leave than it has; as many then join again elsewhere.

>>> from fries_nb.controller.coordinator import alone
>>> from fries_nb.controller.intake import Sources
>>> from fries_nb.controller.markers import MarkerCoordinator
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
>>> operators = Operator("S", kind=Kind.SOURCE), Operator("A", workers=2)
>>> graph = Graph("pair", operators, (Edge("S", "A", Partitioning.REBALANCE),))
>>> membership = Membership(hosts=1, incarnation=1)
>>> workers = Workers(graph)
>>> lane = MarkerCoordinator(workers)
>>> moves = BinMoves(workers, lane, alone), SplitMoves(workers, lane, Sources(workers), alone)
>>> topology, rewiring = Topology.dealt(graph, hosts=1), Rewiring(workers)
>>> joining = Joining(topology, workers, membership, rewiring, *moves, lambda now_ns, goes_on: [])
>>> joining.request(RescaleRequested("r1", hosts=2, shares={"A": 2}), now_ns=0)
[]
>>> joining.advance(now_ns=0, is_tick=False)
[StartHosts(hosts=(1,))]
>>> joining.newcomer_lost(1, "its process died", now_ns=0)[-1].error
'host 1 was lost (its process died) before it took part; nothing changed'
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Literal

from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import (
    BinsMoved,
    BinsRequested,
    Instruction,
    ReleaseHosts,
    RescaleCancelled,
    RescaleEnded,
    RescaleRequested,
    SplitsMoved,
    SplitsRequested,
    StartHosts,
    TopologyChanged,
    TopologyRefused,
)
from fries_nb.controller.membership import Membership, Rewiring, Workers
from fries_nb.controller.moves import BinMoves, SplitMoves
from fries_nb.controller.states import RESCALE_MOVES, RescalePhase
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.errors import DataflowError
from fries_nb.protocol.messages import Answer, Failed, WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import Topology
from fries_nb.transitions import moved

JOIN_S = 60
"""Seconds within which new hosts must have joined."""
_CANCELLED = "it was cancelled"
_NOTHING = "nothing changed"
_NOT_NEEDED = "the run goes on with fewer hosts"


class Joining(Coordinator):
    """The request for another number of hosts or workers that is under way, if any.

    Args:
        topology: the first topology.
        workers, membership: the workers and hosts of the run.
        rewiring, bin_moves, split_moves: carry out the parts of a request.
        rewire: takes the next step of a change of the topology, given the time and whether one was just taken.
        patience_s: seconds within which new hosts must have joined.

    Attributes:
        phase: see the table.
        topology: the current topology.
        is_held: whether the next request has to wait, since the shape is being changed.
    """

    takes = (RescaleRequested, RescaleCancelled, SplitsMoved, BinsMoved)

    def __init__(
        self,
        topology: Topology,
        workers: Workers,
        membership: Membership,
        rewiring: Rewiring,
        bin_moves: BinMoves,
        split_moves: SplitMoves,
        rewire: Callable[[int, bool], list[Instruction]],
        patience_s: float = JOIN_S,
    ) -> None:
        self.phase = RescalePhase.IDLE
        self.is_held: Callable[[], bool] = lambda: False
        self.topology = topology
        self._workers = workers
        self._membership = membership
        self._rewire = rewire
        self._rewiring = rewiring
        self._bin_moves = bin_moves
        self._split_moves = split_moves
        self._tables: dict[str, RoutingTable] = {}  # to which bins are to move
        self._patience_s = patience_s
        self._request = RescaleRequested("", None)
        self._waiting: deque[RescaleRequested] = deque()
        self._hosts: tuple[int, ...] = ()  # those that join or leave
        self._numbers: dict[str, int] = {}  # operator to the number of workers that it is to have
        self._leaving: frozenset[WorkerId] = frozenset()
        self._fresh: frozenset[WorkerId] = frozenset()  # the workers that join
        self._failed: frozenset[WorkerId] = frozenset()  # those of them that could not be made, or were lost
        self._so_far = _NOTHING
        self._since_ns = self._until_ns = 0
        self._why = ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is carried out; one that waits has not begun, and may wait for a change of the shape."""
        return self.phase in (RescalePhase.IDLE, RescalePhase.REQUESTED)

    @property
    def is_shrinking(self) -> bool:
        """Whether hosts or workers are about to leave."""
        return self.phase in (RescalePhase.CLEARING, RescalePhase.NARROWING, RescalePhase.LEAVING)

    @property
    def holds(self) -> bool:
        """Whether workers adopt a topology, so that no marker may start."""
        return self._rewiring.under_way

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Process a request, or go on after moves of splits or bins, which others have ended."""
        match event:
            case RescaleRequested():
                return self.request(event, now_ns)
            case RescaleCancelled():
                return self.cancel(event.request, now_ns)
            case SplitsMoved():
                return self._handed_over(event, now_ns)
            case BinsMoved():  # a change of the topology that was just requested begins before anything else
                return [*self._moved(event, now_ns), *self.advance(now_ns, is_tick=False)]
        return []

    def request(self, event: RescaleRequested, now_ns: int) -> list[Instruction]:
        """Begin a request as soon as tuples flow and those before it have ended."""
        self._waiting.append(event)
        if self.phase is RescalePhase.IDLE:
            self._next(now_ns)
        return []

    def cancel(self, request: str, now_ns: int) -> list[Instruction]:
        """Take the request of this id back, if no row is routed to new hosts yet and no state has moved."""
        for event in [event for event in self._waiting if event.request == request]:
            self._waiting.remove(event)
            return self._refuse(event, f"{_CANCELLED}; {_NOTHING}")
        if self._request.request != request:
            return []
        if self.phase is RescalePhase.REQUESTED:
            return [self._over("aborted", now_ns, f"{_CANCELLED}; {_NOTHING}")]
        if self.phase in (RescalePhase.STARTING, RescalePhase.JOINING):
            return self._take_back(_CANCELLED, now_ns)
        return []

    def refuse(self, event: Taken, state: str, now_ns: int) -> list[Instruction]:
        """Refuse a request, since the run was over."""
        return self._refuse(event, f"the run was over ({state})") if isinstance(event, RescaleRequested) else []

    def _refuse(self, event: RescaleRequested, why: str) -> list[Instruction]:
        return [RescaleEnded(event.request, "aborted", self._count, why)]

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Take the next step, and all steps of changes of the topology, that are possible now."""
        steps = self._step(now_ns)
        goes_on = False
        while taken := self._rewire(now_ns, goes_on):
            goes_on = True
            steps += [*taken, *self._follow(taken, now_ns)]
        return steps

    def _step(self, now_ns: int) -> list[Instruction]:
        if self.phase is RescalePhase.REQUESTED and not self.is_held():
            self._since_ns = now_ns
            return self._begin(now_ns)
        if self.phase is not RescalePhase.STARTING:
            return []
        if not self._membership.awaited:
            return self._join(now_ns, lambda: self.topology.joined(self._hosts, self._request.shares))
        if now_ns >= self._until_ns:
            late = f"host {self._membership.awaited[0]} has not joined within {self._patience_s:g} s"
            return self._take_back(late, now_ns)
        return []

    def _follow(self, instructions: Iterable[Instruction], now_ns: int) -> list[Instruction]:
        """Follow a change of the topology, which ``rewiring`` has begun, ended or refused by these instructions."""
        for instruction in instructions:
            if isinstance(instruction, TopologyChanged):
                self.topology = instruction.topology
                return self._changed(now_ns)
            if isinstance(instruction, TopologyRefused):
                return self._refused(instruction.reason, now_ns)
        return []

    def _handed_over(self, moves: SplitsMoved, now_ns: int) -> list[Instruction]:
        """Continue with moves of bins after those of splits, which ``split_moves`` has ended."""
        if self.phase is RescalePhase.CLEARING and moves.reason:
            return [self._over("aborted", now_ns, self._all_stay(moves.reason))]
        if self.phase in (RescalePhase.CLEARING, RescalePhase.BALANCING):
            self._bin_moves.request(BinsRequested(self._tables, self._request.at_once))
        return []

    def _moved(self, moves: BinsMoved, now_ns: int) -> list[Instruction]:
        """Continue after moves of bins, which ``bin_moves`` has ended."""
        if self.phase is RescalePhase.BALANCING:  # bins that were not moved are of operators that end
            return [self._over("done", now_ns)]
        if self.phase is not RescalePhase.CLEARING:
            return []
        return [self._over("aborted", now_ns, self._all_stay(moves.reason))] if moves.reason else self._narrow()

    def _all_stay(self, why: str) -> str:
        return f"{why}; no {'host' if self._hosts else 'worker'} has left"

    def concerns(self, host: int) -> bool:
        """Whether this host is expected, and not a member yet."""
        return host in self._membership.newcomers

    def newcomer_lost(self, host: int, reason: str, now_ns: int) -> list[Instruction]:
        """Take back all new hosts, since one of them was lost; ``reason`` is part of the message."""
        return self._take_back(f"host {host} was lost ({reason}) before it took part", now_ns)

    def newcomer_answered(self, answer: Answer, now_ns: int) -> list[Instruction]:
        """Process the answer of a new worker, or that it could not be made: then take back all new ones."""
        if not isinstance(answer, Failed):
            return self._rewiring.take(answer, now_ns)
        if self._hosts:
            return self._take_back(f"{answer.worker} cannot run on a new host ({answer.error})", now_ns)
        self._failed |= {answer.worker}
        self._rewiring.give_up({answer.worker})
        return self._take_back(f"{answer.worker} cannot run ({answer.error})", now_ns)

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """End the request, since the hosts are lost and start again; deal the first topology of the next incarnation.

        Moves of bins have ended before, so that the tables are those which they were to lead to.
        """
        if self.is_shrinking:  # which is given up, so the workers that were to leave own bins again
            self._workers.tables.clear()
        tables = dict(self._workers.tables)
        now = self.topology
        self.topology = Topology.dealt(self._workers.graph, self._count, now.chaining, tables, now.begun)
        if self.phase is RescalePhase.IDLE:
            return []
        if self.phase in (RescalePhase.WIDENING, RescalePhase.BALANCING):
            return [self._over("done", now_ns)]
        return [self._over("aborted", now_ns, f"{why}; the run goes on with {self._count} hosts")]

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """End all requests, since the run has ended."""
        outcome: Literal["aborted", "failed"] = "failed" if error else "aborted"
        why = error or why
        late = [end for event in self._waiting for end in self._refuse(event, f"{why} before the rescale began")]
        self._waiting.clear()
        if self.phase is RescalePhase.IDLE:
            return late
        return [self._over(outcome, now_ns, f"{why} before the rescale was complete"), *late]

    # ---- steps

    def _begin(self, now_ns: int) -> list[Instruction]:
        try:
            self._numbers = self.topology.numbers(self._request.workers)
        except DataflowError as error:
            return [self._over("aborted", now_ns, f"{error}; {_NOTHING}")]
        hosts = self._membership.hosts
        count = len(hosts) if self._request.hosts is None else self._request.hosts
        leaving = self.topology.surplus(self._numbers, hosts[count:])
        if leaving or count < len(hosts):
            return self._clear(hosts[count:], leaving, now_ns)
        if count <= len(hosts):
            return self._grow(now_ns)
        self._move(RescalePhase.STARTING)
        self._hosts = self._membership.expect(count - len(hosts))
        self._until_ns = now_ns + int(self._patience_s * 1e9)
        return [StartHosts(self._hosts)]

    def _grow(self, now_ns: int) -> list[Instruction]:
        """Add workers on the hosts that there are, as the last part of a request; it is over if none are missing."""
        sizes = self.topology.graph.sizes
        if all(sizes[name] >= count for name, count in self._numbers.items()):
            return [self._over("done", now_ns)]
        return self._join(now_ns, lambda: self.topology.scaled(self._numbers, self._membership.hosts))

    def _join(self, now_ns: int, grown: Callable[[], Topology]) -> list[Instruction]:
        try:
            topology = grown()
            self._fresh = frozenset(topology.placement.keys() - self.topology.placement.keys())
            self._split_moves.check({one.operator for one in self._fresh} & set(topology.graph.sources))
        except DataflowError as error:
            return self._take_back(str(error), now_ns)
        self._move(RescalePhase.JOINING)
        # Members have the channels of their workers to new ones on members only when these are there.
        self._rewiring.request(topology, awaited=self._fresh, ahead=() if self._hosts else self._fresh)
        return []

    def _clear(self, hosts: tuple[int, ...], leaving: frozenset[WorkerId], now_ns: int) -> list[Instruction]:
        tables, readers = self.topology.even_tables(leaving), self.topology.readers_beside(leaving)
        try:
            self._split_moves.check(readers)
            self.topology.with_tables(tables).narrowed(leaving)
        except DataflowError as error:
            first = f"host {hosts[0]}" if hosts else min(leaving)
            return [self._over("aborted", now_ns, f"{first} cannot leave: {error}; {_NOTHING}")]
        self._move(RescalePhase.CLEARING)
        self._hosts, self._leaving, self._tables = hosts, leaving, tables
        stay = Counter(one.operator for one in self.topology.placement.keys() - self.topology.workers_on(hosts))
        self._numbers |= {name: stay[name] for name in {one.operator for one in leaving} - self._numbers.keys()}
        self._split_moves.request(SplitsRequested(readers))
        return []

    def _narrow(self) -> list[Instruction]:
        self._move(RescalePhase.NARROWING)
        self._rewiring.request(self.topology.with_tables(self._bin_moves.tables).narrowed(self._leaving))
        return []

    def _balance(self) -> list[Instruction]:
        self._move(RescalePhase.BALANCING)
        added = {worker.operator for worker in self._fresh}
        sources = [name for name in self.topology.graph.sources if name in added]
        self._tables = self.topology.even_tables()
        self._split_moves.request(SplitsRequested({name: self.topology.routed(name) for name in sources}))
        return []

    def _changed(self, now_ns: int) -> list[Instruction]:
        """Continue after a change of the topology."""
        if self.phase is RescalePhase.JOINING and self._why:
            self._move(RescalePhase.RETRACTING)
        if self.phase is RescalePhase.JOINING:
            self._membership.admit()
            self._move(RescalePhase.WIDENING)
            self._rewiring.request(self.topology.widened())
        elif self.phase is RescalePhase.RETRACTING and self._fresh:
            self._rewiring.request(self.topology.without(self._fresh), lost=self._failed)
            self._fresh = frozenset()
        elif self.phase is RescalePhase.WIDENING:
            return self._balance()
        elif self.phase is RescalePhase.NARROWING:
            self._move(RescalePhase.LEAVING)
            self._rewiring.request(self.topology.without(self._leaving))
        elif self.phase is RescalePhase.LEAVING:
            return self._left(now_ns)
        elif self.phase is RescalePhase.RETRACTING:
            return [self._over("aborted", now_ns, self._why)]
        return []  # the change is one of the shape, and no request has begun

    def _left(self, now_ns: int) -> list[Instruction]:
        """Release hosts whose workers have left; then add workers, if the request has others that are to grow."""
        hosts, self._hosts = self._hosts, ()
        self._membership.dismiss(hosts)
        self._so_far = "those that were to leave have left"
        return [*([ReleaseHosts(hosts, _NOT_NEEDED)] if hosts else []), *self._grow(now_ns)]

    def _refused(self, reason: str, now_ns: int) -> list[Instruction]:
        if self.phase is RescalePhase.JOINING:
            return self._take_back(reason, now_ns)
        if self.phase is RescalePhase.WIDENING:  # the hosts are members, and there are hardly any rows left
            return [self._over("done", now_ns)]
        if self.phase in (RescalePhase.NARROWING, RescalePhase.LEAVING):
            return [self._over("aborted", now_ns, self._all_stay(reason))]
        return []

    def _take_back(self, why: str, now_ns: int) -> list[Instruction]:
        """Release all new hosts; if the topology is being changed already, remove the new workers afterwards."""
        why = f"{why}; {self._so_far}"
        newcomers = self._membership.newcomers
        self._membership.dismiss(newcomers)
        released: list[Instruction] = [ReleaseHosts(newcomers, why)] if newcomers else []
        if not self._rewiring.under_way:
            self._rewiring.withdraw()
            return [*released, self._over("aborted", now_ns, why)]
        self._why = self._why or why
        if newcomers:
            self._move(RescalePhase.RETRACTING)
            self._rewiring.give_up()
            self._failed = self._fresh
        return released

    # ---- end

    @property
    def status(self) -> TopologyStatus:
        """The hosts, workers and bins now, and what the request does; may be called from any thread."""
        is_idle = self.phase is RescalePhase.IDLE
        wanted = None if is_idle else self._request.hosts
        moves = self._bin_moves
        return TopologyStatus.of(
            self.topology, self._membership.hosts, self.phase, wanted or self._count, moves.left, moves.moved_bytes,
            dict(moves.tables), "" if is_idle else self._request.request,
        )  # fmt: skip

    @property
    def _count(self) -> int:
        return len(self._membership.hosts)

    def _over(self, outcome: Literal["done", "aborted", "failed"], now_ns: int, error: str = "") -> RescaleEnded:
        self._move(RescalePhase.IDLE)
        self._hosts, self._why, self._so_far = (), "", _NOTHING
        self._leaving = self._fresh = self._failed = frozenset()
        delay_ms = (now_ns - self._since_ns) / 1e6
        ended = RescaleEnded(self._request.request, outcome, self._count, error, delay_ms)
        self._next(now_ns)
        return ended

    def _next(self, now_ns: int) -> None:
        if self._waiting:
            self._move(RescalePhase.REQUESTED)
            self._request, self._since_ns = self._waiting.popleft(), now_ns

    def _move(self, to: RescalePhase) -> None:
        self.phase = moved(RESCALE_MOVES, self.phase, to, "the rescale")
