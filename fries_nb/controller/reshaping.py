"""A change of the shape at the controller: two changes of the topology around the markers of a change.

    phase         requested    separated   all wired   decided     markers have retired   refused       lost
    IDLE          SEPARATING   -           -           -           -                      -             -
    SEPARATING    error        WIRING      -           -           -                      IDLE          IDLE
    WIRING        error        -           WIRED       -           -                      WITHDRAWING   IDLE
    WIRED         error        -           -           SWITCHING   -                      WITHDRAWING   IDLE
    SWITCHING     error        -           -           -           CLEARING               -             IDLE
    CLEARING      error        -           IDLE        -           -                      -             IDLE
    WITHDRAWING   error        -           IDLE        -           -                      -             IDLE

*Separating*: operators whose edges change leave their chains, since their workers send and receive by themselves from
now on; those that no host could have chained are not asked. *Wiring*: hosts make the workers of added operators; every
other worker learns of its channels to them, which are shut (see ``worker.bin_transfer``). Nothing has changed by then,
so it can be withdrawn. Meanwhile the targets prepare. *Switching*: each member of the covering sends and reads on the
new edges from its switch on, and ends the old ones (``change_steps`` sends the markers). When the second marker of the
plan has passed everything, the removed workers have ended, and no row of before the change is left anywhere. Each has
*parked* its state by then: stored it, so that a rollback can bring the operator back as it was. *Clearing* removes them
from the topology. Only then may the next change begin.

After a loss of hosts the run goes on with the dataflow after the change if it was decided, otherwise with that before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from fries_nb.controller.commits import Recovery
from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import (
    AddedOperators,
    Instruction,
    ShapeChange,
    ShapeDecided,
    ShapeUndone,
    Tell,
    TopologyChanged,
    TopologyRefused,
)
from fries_nb.controller.guards import rollback_of
from fries_nb.controller.joining import Joining
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import NONE_PARKED, Membership, Rewiring, Workers
from fries_nb.controller.states import RESHAPING_MOVES, ReshapingPhase
from fries_nb.dataflow.graph import Graph, ends_of
from fries_nb.protocol.checkpoints import ParkedOperator
from fries_nb.protocol.messages import Answer, Chained, Failed, Parked, SetChain, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.transitions import moved


class Reshaping(Coordinator):
    """The change of the shape that is prepared or carried out, if any.

    Args:
        workers, membership, lane: the workers, the hosts, and the markers in flight.
        rewiring: carries out changes of the topology.
        joining: has the topology, and takes the steps of its changes.
        recovery: receives the states of operators that are removed.

    Attributes:
        followers: called with the graph of the dataflow when a change of its shape is decided.
        without_input: the loops that no more rows enter.
        phase: see the table.
        failure: why workers of added operators could not be made, with the traceback; ``None`` if none has failed.
        epoch: the epoch in which workers switch.
    """

    takes = (TopologyChanged, TopologyRefused, Chained, Parked)

    def __init__(
        self, workers: Workers, membership: Membership, lane: MarkerCoordinator, rewiring: Rewiring, joining: Joining,
        recovery: Recovery, followers: Iterable[Callable[[Graph], None]],
    ) -> None:  # fmt: skip
        self.phase = ReshapingPhase.IDLE
        self.failure: tuple[str, str] | None = None
        self.epoch = 0
        self._workers = workers
        self._membership = membership
        self._lane = lane
        self._rewiring = rewiring
        self._joining = joining
        self._recovery = recovery
        self.followers = list(followers)
        self.without_input: Callable[[], Collection[str]] = frozenset
        self._before: Graph | None = None
        self._after: Graph | None = None
        self._change = ""
        self._shape: ShapeChange | None = None
        self._failed: set[WorkerId] = set()
        self._unseparated: set[WorkerId] = set()
        self._ask_again: set[WorkerId] = set()
        self._unparked: set[WorkerId] = set()
        self._parked: list[Parked] = []
        self._is_done = False
        self._concerned = frozenset[str]()

    @property
    def is_idle(self) -> bool:
        """Whether no shape is being changed, so that a change may begin."""
        return self.phase is ReshapingPhase.IDLE

    @property
    def is_wiring(self) -> bool:
        """Whether workers are about to learn of the channels of both shapes."""
        return self.phase is ReshapingPhase.WIRING

    @property
    def is_wired(self) -> bool:
        """Whether all workers know the channels of both shapes."""
        return self.phase is ReshapingPhase.WIRED

    @property
    def rewires(self) -> bool:
        """Whether a change of the topology is requested here, which need not wait for the change to end."""
        return self.phase in (ReshapingPhase.WIRING, ReshapingPhase.CLEARING, ReshapingPhase.WITHDRAWING)

    @property
    def added(self) -> frozenset[str]:
        """The operators that the change adds; none if no shape is changed."""
        before, after = self._before, self._after
        return frozenset() if before is None or after is None else frozenset(after.by_name) - before.by_name.keys()

    @property
    def is_parking(self) -> bool:
        """Whether removed workers may have ended that are still there: a checkpoint would lack their states."""
        return self.phase in (ReshapingPhase.SWITCHING, ReshapingPhase.CLEARING)

    def refusal(self, after: Graph) -> str | None:
        """Why the dataflow cannot become this one now, as a message; ``None`` if it can."""
        before = self._before or self._joining.topology.graph  # of now, not of both
        known = {(edge.source, edge.to) for edge in before.edges}
        ended = {worker.operator for worker in self._workers.ended}
        for edge in after.edges:
            if (edge.source, edge.to) in known:
                continue
            if edge.to in ended:
                return f"{edge.to} has ended, so it can get no new input from {edge.source}"
            if edge.to in self.without_input():
                return f"no more rows were to enter loop {edge.to}, so it can get no new input from {edge.source}"
            if edge.source in ended and edge.source in before:
                return f"{edge.source} has ended, so {edge.to} would get nothing from it"
        if not self._joining.is_idle:
            return "the number of hosts or workers is being changed"
        return None

    def unkept(self, shape: ShapeChange) -> str | None:
        """Why an operator cannot return in the state that it had, or with that of another; ``None`` if all can."""
        topology = self._joining.topology
        for heir, giver in shape.inherits.items():
            sizes = {topology.graph.operator(name).workers for name in (heir, giver) if name in topology.graph}
            tables = {topology.tables.get(name) for name in (heir, giver) if name in topology.graph}
            if len(sizes) > 1 or len(tables) > 1:
                return f"{heir} cannot go on with the state of {giver}, which has other workers or bins since a rescale"
        held = self._recovery.parked if shape.returns else {}
        return next((f"{name} cannot return: {held[name].error}" for name in held if held[name].error), None)

    def begin(self, change: str, shape: ShapeChange, members: Collection[str], now_ns: int) -> list[Instruction]:
        """Let the operators whose edges change leave their chains; then workers learn of the new channels.

        Those are told that are wired otherwise, or switch; the others stay as they are. Where there are no chains to
        leave, workers learn of the channels at once.
        """
        self._move(ReshapingPhase.SEPARATING)
        topology = self._joining.topology
        self._change, self._shape, self.failure = change, shape, None
        self._before, self._after = topology.graph, shape.after
        self._failed, self._is_done, self._parked = set(), False, []
        self._concerned = frozenset(members)
        ends = {name for ends in ends_of(topology.graph) ^ ends_of(shape.after) for name in ends}
        chained = {name for name in ends & topology.graph.by_name.keys() if topology.may_be_chained(name)}
        self._unseparated = set(self._workers.live(chained))
        self._ask_again = set()
        return [*self._separate(self._unseparated), *self._wire(), *self._joining.advance(now_ns, is_tick=False)]

    def _separate(self, workers: Collection[WorkerId]) -> list[Instruction]:
        return [Tell(worker, SetChain((worker.operator,))) for worker in sorted(workers)]

    def _separated(self, answer: Chained) -> list[Instruction]:
        """A worker has left its chain, or could not: then it is asked again, unless it has ended."""
        if self.phase is not ReshapingPhase.SEPARATING or answer.worker not in self._unseparated:
            return []
        if answer.error and answer.worker not in self._workers.ended:
            self._ask_again.add(answer.worker)
            return []
        self._unseparated.discard(answer.worker)
        return self._wire()

    def _wire(self) -> list[Instruction]:
        """Make the workers of added operators, and let the others learn of the channels of both shapes."""
        if self._unseparated or self._shape is None or self.refusal(self._shape.after):
            return []  # a worker that ended in its chain does not know the channels that it would get
        self._move(ReshapingPhase.WIRING)
        topology = self._joining.topology
        wired = topology.reshaping(self._shape.after, self._membership.hosts)
        self.epoch = wired.epoch
        self._concerned |= wired.concerned
        made = wired.placement.keys() - topology.placement.keys()
        self._unparked = {worker for worker in wired.placement if worker.operator not in self._shape.after}
        parked = self._recovery.parked if self._shape.returns else NONE_PARKED
        keeps = {name: one for name, one in parked.items() if name in self._shape.after}
        given = self._shape.given
        if self._shape.returns:  # after a loss, what was added and removed since the checkpoint has not had a row
            held = {name: self._recovery.given_to(name) for name in self.added - keeps.keys()}
            given = {name: states for name, states in held.items() if states}
        added = AddedOperators(
            self._change, self._shape.additions, keeps, given, self.added & self._shape.inherits.keys()
        )
        self._request(wired, awaited=made, added=added)
        return []

    def answered(self, answer: Answer, now_ns: int) -> list[Instruction]:
        """Process the answer of a worker of an added operator: that it was made, or why it could not be."""
        if isinstance(answer, Failed):
            self.failure = self.failure or (answer.error, answer.details)
            self._failed.add(answer.worker)
            self._rewiring.give_up({answer.worker})
            return []
        return self._rewiring.take(answer, now_ns)

    def decide(self) -> list[Instruction]:
        """The change is decided: from now on a restart begins with the dataflow after it."""
        assert self._after is not None, "it is wired"
        assert self._before is not None, "it is wired"
        self._move(ReshapingPhase.SWITCHING)
        self._recovery.remove([name for name in self._before if name not in self._after], self._after.by_name)
        for follow in self.followers:
            follow(self._after)
        return [ShapeDecided(self.epoch, self._change)]

    def withdraw(self) -> None:
        """Go back to the dataflow before the change, which is not made."""
        if self.phase is ReshapingPhase.WIRED:
            self._move(ReshapingPhase.WITHDRAWING)
            self._withdraw_wired()
        elif self.phase is ReshapingPhase.WIRING and not self._rewiring.withdraw():
            self._move(ReshapingPhase.WITHDRAWING)  # as soon as all have adopted the epoch that is under way
        elif not self.is_idle:
            self._forget()

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Follow a change of the topology."""
        if isinstance(event, Chained):
            return self._separated(event)
        if isinstance(event, Parked):
            if event.epoch == self.epoch and event.worker in self._unparked:
                self._unparked.discard(event.worker)
                self._parked.append(event)
            return []
        if isinstance(event, TopologyChanged) and not self.is_idle:
            if event.topology.after is None:
                self._forget()
                return self._rejoin()
            if self.phase is ReshapingPhase.WIRING:
                self._move(ReshapingPhase.WIRED)
            else:
                self._withdraw_wired()
        return []

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """Remove what has ended, when the last marker of the change has retired; ask again for what was busy."""
        if self.phase is ReshapingPhase.SEPARATING and is_tick:
            again, self._ask_again = self._ask_again - self._workers.ended, set()
            self._unseparated -= self._workers.ended
            return [*self._separate(again), *self._wire()]
        is_over = self._is_done and not self._unparked and not self._lane.busy
        if self.phase is ReshapingPhase.SWITCHING and is_over:
            self._park()
            self._move(ReshapingPhase.CLEARING)
            self._request(self._joining.topology.reshaped())
            return self._joining.advance(now_ns, is_tick)
        return []

    def undo(self, change: str, before: Graph) -> list[Instruction]:
        """Go back to the dataflow before the last change at the restart that follows, since its guard has fired."""
        now = self._joining.topology
        removed = [name for name in (now.after or now.graph) if name not in before]
        self._recovery.remove(removed, before.by_name)
        for follow in self.followers:
            follow(before)
        if self.is_idle:
            self._workers.begin_with(before)
        else:
            self._before = self._after = before
        return [ShapeUndone(rollback_of(change))]

    def done(self) -> None:
        """The last stage of the change has ended; its marker may still be in flight."""
        self._is_done = self.phase is ReshapingPhase.SWITCHING

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Begin again with the dataflow before a change that was not decided, or with that after it."""
        decided = self.phase in (ReshapingPhase.SWITCHING, ReshapingPhase.CLEARING)
        if not self.is_idle:
            graph = self._after if decided else self._before
            assert graph is not None, "a change is under way"
            self._workers.begin_with(graph)
            self._forget()
        return []

    def _park(self) -> None:
        """Keep where the states of removed operators are."""
        for name in self._recovery.removed:
            parts = [one for one in self._parked if one.worker.operator == name]
            count = self._workers.graph.operator(name).workers
            self._recovery.parked[name] = ParkedOperator(
                {str(one.worker): one.name for one in parts if one.name},
                count,
                self._workers.uneven.get(name, b""),
                0 if (reading := self._workers.readers.get(name, count)) == count else reading,
                tuple(sorted({need for one in parts for need in one.needs})),
                next((one.error for one in parts if one.error), ""),
            )

    def _withdraw_wired(self) -> None:
        self._request(self._joining.topology.withdrawn(), lost=self._failed)

    def _request(self, topology: Topology, **details: Any) -> None:
        self._rewiring.request(topology, despite_ends=True, concerned=self._concerned, **details)

    def _forget(self) -> None:
        self._move(ReshapingPhase.IDLE)
        self._shape = self._before = self._after = None
        self._is_done = False
        self._unparked, self._parked = set(), []

    def _rejoin(self) -> list[Instruction]:
        """Let operators that are chained in the topology of now share a worker again; whether they do matters not."""
        chains = [chain for chain in self._joining.topology.chains if len(chain) > 1]
        return [Tell(worker, SetChain(chain)) for chain in chains for worker in self._workers.live(chain[:1])]

    def _move(self, to: ReshapingPhase) -> None:
        self.phase = moved(RESHAPING_MOVES, self.phase, to, "the change of the shape")
