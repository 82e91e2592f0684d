"""What is requested of a seeded run: changes, single steps of a rescale, and chains.

The changes of a seeded run, managed by the same ``ChangeQueue`` as those of a run on Spark.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> pair = Graph("pair", (Operator("src"), Operator("FM", function=len)), (Edge("src", "FM"),))
>>> changes = SeededChanges(pair, chaining=True)
>>> changes.request({"FM": repr}), changes.request({"FM": str})
('u1', 'u2')
>>> [event.change for event in changes.posted()], sorted(changes.open)
(['u1'], ['u1', 'u2'])
>>> changes.take(events.Resolved(events.Outcome("u1", "fries", "done")))
>>> [event.change for event in changes.posted()], sorted(changes.open)
(['u2'], ['u2'])

Requests of single steps, which a rescale makes in a real run, and of chains, which hosts choose there.

A simulation draws them in any order, and so tries more than a rescale does. The controller of a real run takes none of
them as an event: the coordinator that does is added here.

>>> from fries_nb.controller.controller import Controller
>>> from fries_nb.controller.events import HostJoined
>>> from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
>>> operators = Operator("S", kind=Kind.SOURCE), Operator("A")
>>> graph = Graph("pair", operators, (Edge("S", "A", Partitioning.REBALANCE),))
>>> controller = Controller(graph, hosts=1, incarnation=1, commit_interval_ns=None)
>>> controller.coordinators.append(StepRequests(controller.coordinators))
>>> controller.handle(TopologyRequested(Topology.dealt(graph, hosts=1).grown("A", host=0)), now_ns=0)
[]
>>> [type(instruction).__name__ for instruction in controller.handle(HostJoined(0, "tcp://here:1", 1), now_ns=1)]
['Admit', 'ChangeTopology', 'Tell', 'Tell']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from fries_nb.changes.change import Change
from fries_nb.changes.change_queue import ChangeQueue
from fries_nb.changes.queue_entries import ChangeListener, QueueShell
from fries_nb.controller import events
from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import BinsRequested, Instruction, SplitsRequested, StepRequest, Tell
from fries_nb.controller.membership import Rewiring
from fries_nb.controller.moves import BinMoves, SplitMoves
from fries_nb.dataflow.arguments import Limit
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.regions import Region
from fries_nb.dataflow.updates import Update, as_updates
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.protocol.messages import SetChain, WorkerId
from fries_nb.protocol.topology import Topology


class SeededChanges(QueueShell):
    """The requested changes of a seeded run, and their outcomes; runs the queue."""

    recovers = True
    """True even without checkpoints, so that the queue does not refuse guards and controllers are tested with them."""

    def __init__(self, graph: Graph, chaining: bool) -> None:
        self._chaining = chaining  # whether operators are chained
        self.outcomes: dict[str, events.Outcome] = {}  # change id to outcome, in order of arrival
        self.guards: dict[str, events.GuardEnded] = {}  # change id to the end of its guard, in order of arrival
        self.fired: list[str] = []  # the changes whose guards have started a rollback, in order
        # ``paused``: the paused operators
        # ``orphans``: changes without an outcome when their driver died
        self.orphans, self.paused = set[str](), set[str]()
        self.listeners: list[ChangeListener] = []  # receive the queue's callbacks on changes as well
        self._graph = graph  # the dataflow, which runs as one region
        self._requested: list[str] = []
        self._posted: deque[events.ChangeRequested | events.ChangeCancelled] = deque()
        self._queue = self._new(())

    def _new(self, before: Sequence[CommittedChange]) -> ChangeQueue:
        """Make the queue of a new driver; times are not measured.

        Args:
            before: the changes that were decided before.
        """
        last = len(self._requested)
        regions = (Region(self._graph),)
        queue = ChangeQueue(self._graph, regions, self, self, before=before, last_number=last, clock=lambda: 0.0)
        queue.started(0, queue.starting(0))
        queue.flows(0)
        return queue

    # ---- requests

    @property
    def queue(self) -> ChangeQueue:
        """The queue of the current driver; ``Cluster.post`` passes on what is requested there."""
        return self._queue

    def request(
        self, change: Mapping[str, Any], scheduler: str = "fries", pruning: bool = True, rehearse: bool = False,
        guard: Limit | None = None, force: bool = False, share: float = 1.0,
    ) -> str:  # fmt: skip
        """Request a change; returns its id. See ``Cluster.request``; ``posted`` returns the controller's events."""
        how = {"limit": guard, "rehearse": rehearse, "force": force, "share": share}
        asked = self._queue.request(as_updates(change), scheduler, pruning, **how)  # type: ignore[arg-type]
        return asked.id

    def ramp(self, change: str, share: float) -> str:
        """Request a further step of a canary; returns its id."""
        return (self._queue.step(change, share) if share else self._queue.roll_back(change=change)).id

    def roll_back(self) -> str:
        """Request a rollback of the newest change in effect; returns its id."""
        return self._queue.roll_back().id

    @property
    def open(self) -> set[str]:
        """The changes without an outcome."""
        return set(self._requested) - self.outcomes.keys() - self.orphans

    # ---- the controller

    def posted(self) -> Iterator[events.ChangeRequested | events.ChangeCancelled]:
        """Take the events for the controller: requests that the queue has started or cancelled; a generator."""
        while self._posted:
            yield self._posted.popleft()

    def take(self, instruction: events.Instruction) -> None:
        """Process the controller's instructions on changes; others are ignored."""
        match instruction:
            case events.Resolved(outcome):
                if outcome.change in self.outcomes:
                    raise AssertionError(f"change {outcome.change} was resolved twice")
                self.outcomes[outcome.change] = outcome
                self._queue.resolved(0, outcome)
            case events.GuardFired():
                self.fired.append(instruction.change)
                self._queue.guard_fired(0, instruction)
            case events.GuardEnded():
                if instruction.change in self.guards:
                    raise AssertionError(f"the guard of {instruction.change} ended twice")
                self.guards[instruction.change] = instruction
                self._queue.guard_ended(0, instruction)
            case events.OperatorPaused():
                (self.paused.add if instruction.paused else self.paused.discard)(instruction.operator)
                self._queue.pause(0, instruction.operator, bool(instruction.paused))

    def restart(self, before: Sequence[CommittedChange], graph: Graph, chaining: bool) -> None:
        """Replace the queue after the death of the driver.

        Args:
            before: the decided changes, from which the new driver continues.
            graph: the graph with which the run is resumed.
            chaining: whether operators are chained.
        """
        self._graph, self._chaining = graph, chaining
        self.orphans |= self.open
        self.paused.clear()
        self._posted.clear()
        self._queue = self._new(before)

    # ---- the queue's protocols

    @property
    def chaining(self) -> bool:
        """As the run was started, or resumed."""
        return self._chaining

    def refuse_if_over(self, why: str) -> None:
        """Does nothing: the controller refuses changes after the end of the run."""

    def ship(self, updates: Mapping[str, Update]) -> dict[str, bytes]:
        """Pickle the updates, as on Spark."""
        return {name: cloudpickle.dumps(update) for name, update in updates.items()}

    def carry_out(self, region: int, event: events.ChangeRequested | events.ChangeCancelled) -> None:
        """Queue the event for the controller; see ``posted``."""
        self._posted.append(event)

    def requested(self, change: Change) -> None:
        """Record that a change was requested."""
        self._requested.append(change.id)
        for listener in self.listeners:
            listener.requested(change)

    def ended(self, change: Change, outcome: events.Outcome) -> None:
        """Record the outcome of a change that did not reach the controller; others were recorded by ``take``."""
        self.outcomes.setdefault(change.id, outcome)
        for listener in self.listeners:
            listener.ended(change, outcome)


@dataclass(frozen=True, slots=True)
class TopologyRequested(StepRequest):
    """Change to this topology, of the next epoch, as soon as no change, commit or marker is under way."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class ChainRequested(StepRequest):
    """Run these operators as one chain from this worker on; ``messages.Chained`` is the host's answer."""

    worker: WorkerId
    operators: tuple[str, ...]


class StepRequests(Coordinator):
    """Passes each request to the coordinator that carries it out; ``listed`` are those of the controller."""

    takes = (TopologyRequested, BinsRequested, SplitsRequested, ChainRequested)

    def __init__(self, listed: Iterable[Coordinator]) -> None:
        by_type = {type(coordinator): coordinator for coordinator in listed}
        rewiring, bin_moves, split_moves = by_type[Rewiring], by_type[BinMoves], by_type[SplitMoves]
        assert isinstance(rewiring, Rewiring), "by its type"
        assert isinstance(bin_moves, BinMoves), "by its type"
        assert isinstance(split_moves, SplitMoves), "by its type"
        self._rewiring, self._bin_moves, self._split_moves = rewiring, bin_moves, split_moves
        self._flows = False

    def started(self, now_ns: int) -> list[Instruction]:
        """Chains are formed from now on."""
        self._flows = True
        return []

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """No worker can form a chain until the next start."""
        self._flows = False
        return []

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """Begin what is requested, as soon as it is possible."""
        match event:
            case TopologyRequested():
                self._rewiring.request(event.topology)
            case BinsRequested():
                self._bin_moves.request(event)
            case SplitsRequested():
                self._split_moves.request(event)
            case ChainRequested() if self._flows:
                return [Tell(event.worker, SetChain(event.operators))]
        return []
