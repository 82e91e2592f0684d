"""The changes of a seeded run, by the queue that people use: the cluster is to it what a run on Spark is.

>>> from fries_nb.dataflow.graph import Edge, Operator
>>> pair = Graph("pair", (Operator("src"), Operator("FM", function=len)), (Edge("src", "FM"),))
>>> changes = SeededChanges(pair, chaining=True)
>>> changes.request({"FM": repr}), changes.request({"FM": str})
('u1', 'u2')
>>> [event.change for event in changes.posted()], sorted(changes.open)
(['u1'], ['u1', 'u2'])
>>> changes.take(said.Resolved(said.Outcome("u1", "fries", "done")))
>>> [event.change for event in changes.posted()], sorted(changes.open)
(['u2'], ['u2'])
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cloudpickle

from fries_nb.changes import Change
from fries_nb.checkpoints import CommittedChange
from fries_nb.controller import events as said
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.limits import Limit
from fries_nb.dataflow.regions import Region
from fries_nb.dataflow.updates import Update, as_updates
from fries_nb.running.change_queue import ChangeQueue


class SeededChanges:
    """What is asked of a seeded run, and what became of it.

    Args:
        graph: what runs, as one region.
        chaining: whether operators are chained.

    Attributes:
        outcomes: change id to outcome, as they come in.
        guards: change id to how its guard ended, as they come in.
        fired: the changes whose guards have begun to roll them back, in order.
        orphans: changes that had no outcome when the driver that they were asked of died.
        paused: operators that wait for a fix.
    """

    resumable = True
    """Also where there are no checkpoints: a guard that can do nothing is not refused, so that controllers meet it."""

    def __init__(self, graph: Graph, chaining: bool) -> None:
        self.chaining = chaining
        self.outcomes: dict[str, said.Outcome] = {}
        self.guards: dict[str, said.GuardEnded] = {}
        self.fired: list[str] = []
        self.orphans, self.paused = set[str](), set[str]()
        self._graph = graph
        self._requested: list[str] = []
        self._posted: deque[said.ChangeRequested] = deque()
        self._queue = self._new(())

    def _new(self, before: Sequence[CommittedChange]) -> ChangeQueue:
        """A queue of a driver that begins; times are none of its concern."""
        last = len(self._requested)
        regions = (Region(self._graph),)
        queue = ChangeQueue(self._graph, regions, self, self, before=before, last_number=last, clock=lambda: 0.0)
        queue.started(0, queue.starting(0))
        queue.flows(0)
        return queue

    # ---- what is asked

    def request(
        self, change: Mapping[str, Any], scheduler: str = "fries", pruning: bool = True, rehearse: bool = False,
        guard: Limit | None = None,
    ) -> str:  # fmt: skip
        """Ask for a change; returns its id. What the controller is to hear of it is ``posted``."""
        asked = self._queue.request(as_updates(change), scheduler, pruning, limit=guard, rehearse=rehearse)
        return asked.id

    def roll_back(self) -> str:
        """Ask for a rollback of the newest change in effect; returns its id."""
        return self._queue.roll_back().id

    @property
    def open(self) -> set[str]:
        """The changes without an outcome."""
        return set(self._requested) - self.outcomes.keys() - self.orphans

    # ---- what happens

    def posted(self) -> Iterator[said.ChangeRequested]:
        """What the controller has to hear, each request once; nothing more if the driver dies of it."""
        while self._posted:
            yield self._posted.popleft()

    def take(self, instruction: said.Instruction) -> None:
        """What the controller says of changes."""
        match instruction:
            case said.Resolved(outcome):
                if outcome.change in self.outcomes:
                    raise AssertionError(f"change {outcome.change} was resolved twice")
                self.outcomes[outcome.change] = outcome
                self._queue.resolved(0, outcome)
            case said.GuardFired():
                self.fired.append(instruction.change)
                self._queue.guard_fired(0, instruction)
            case said.GuardEnded():
                if instruction.change in self.guards:
                    raise AssertionError(f"the guard of {instruction.change} ended twice")
                self.guards[instruction.change] = instruction
                self._queue.guard_ended(0, instruction)
            case said.OperatorPaused():
                (self.paused.add if instruction.paused else self.paused.discard)(instruction.operator)
                self._queue.pause(0, instruction.operator, bool(instruction.paused))

    def restart(self, before: Sequence[CommittedChange], graph: Graph, chaining: bool) -> None:
        """The driver dies, and the queue with it; another one goes on from these decisions, with this graph."""
        self._graph, self.chaining = graph, chaining
        self.orphans |= self.open
        self.paused.clear()
        self._posted.clear()
        self._queue = self._new(before)

    # ---- what a queue needs

    def refuse_if_over(self, why: str) -> None:
        """A run that is over answers for itself."""

    def ship(self, updates: Mapping[str, Update]) -> dict[str, bytes]:
        """Pickle them, as on Spark."""
        return {name: cloudpickle.dumps(update) for name, update in updates.items()}

    def carry_out(self, region: int, request: said.ChangeRequested) -> None:
        """Post the request to the controller, after the instructions that are carried out now."""
        self._posted.append(request)

    def requested(self, change: Change) -> None:
        """A change was requested."""
        self._requested.append(change.id)

    def ended(self, change: Change, outcome: said.Outcome) -> None:
        """A change has ended; what never came to the controller has only this outcome."""
        self.outcomes.setdefault(change.id, outcome)
