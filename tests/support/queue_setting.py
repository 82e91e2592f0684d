"""A change queue without a run: requests of users, and outcomes of controllers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle

from fries_nb.changes.change import Change
from fries_nb.changes.change_queue import ChangeQueue
from fries_nb.changes.queue_entries import QueueShell, Request
from fries_nb.controller.events import ChangeRequested, Outcome
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.updates import Update

NAMES = ("S", "A", "B", "G", "C", "Out")


def first(row: Any) -> Any:
    """What every operator runs in the beginning."""
    return row


def function(name: str) -> Any:
    """Another function; its name tells it apart."""

    def other(row: Any) -> Any:
        return row

    other.__name__ = name
    return other


class Desk(QueueShell):
    """A queue for ``S > A > B > G > C > Out``, where G is blocking: two regions, of which the first runs.

    In the place of what runs it: notes what is carried out, as ``region:id``.
    """

    chaining, recovers, identifies = True, False, False

    def __init__(self, flowing: bool = True) -> None:
        kinds = {"S": Kind.SOURCE, "Out": Kind.SINK, "G": Kind.AGGREGATE}
        operators = tuple(
            Operator(name, kind=kinds.get(name, Kind.MAP), blocking=name == "G", function=first) for name in NAMES
        )
        edges = tuple(Edge(*ends) for ends in itertools.pairwise(NAMES))
        graph = self.graph = Graph("desk", operators, edges)
        self.now_s = 0.0
        self.resolved: list[tuple[str, str]] = []
        self.orders: list[str] = []
        self.last: ChangeRequested | None = None
        self.queue = ChangeQueue(graph, regions(graph), self, self, clock=lambda: self.now_s)
        self.queue.started(0, self.queue.starting(0))
        assert self.orders == []
        if flowing:
            self.queue.flows(0)

    # ---- what a queue needs

    def refuse_if_over(self, why: str) -> None:
        """It never is."""

    def ship(self, updates: Mapping[str, Update]) -> dict[str, bytes]:
        """As on Spark."""
        return {name: cloudpickle.dumps(update) for name, update in updates.items()}

    def carry_out(self, region: int, request: ChangeRequested) -> None:
        """Note it."""
        self.last = request
        self.orders.append(f"{region}:{request.change}")

    def requested(self, change: Change) -> None:
        """Nothing to note."""

    def ended(self, change: Change, outcome: Outcome) -> None:
        """Each ends once, unless its guard rolls it back."""
        assert not change.done or outcome.outcome == "rolled_back"
        self.resolved.append((change.id, outcome.outcome))

    # ---- what is asked and said

    def begun(self, do: Callable[[], object]) -> list[str]:
        """What is carried out meanwhile."""
        before = len(self.orders)
        do()
        return self.orders[before:]

    def ask(
        self, merge: bool = False, ahead: bool = False, guard: float | None = None, **functions: Any
    ) -> tuple[Change, list[str]]:
        """Request a change; with what is carried out by that. One that goes ``ahead`` is a fix."""
        updates = {name: given if isinstance(given, Update) else Update(given) for name, given in functions.items()}
        return self._meanwhile(lambda: self.queue.request(updates, merge=merge, limit=guard), ahead and min(updates))

    def roll_back(self, paused: str = "") -> tuple[Change, list[str]]:
        """Roll the last change back, while an operator is paused."""
        return self._meanwhile(self.queue.roll_back, paused)

    def end(self, region: int, change: str, outcome: str = "done", error: str = "", **more: Any) -> list[str]:
        """The controller of a region says how a change ended; returns what is carried out by that."""
        ended = Outcome(change, "fries", outcome, error, **{"delay_ms": 1.0, **more})  # type: ignore[arg-type]
        return self.begun(lambda: self.queue.resolved(region, ended))

    def pause(self, operator: str, paused: bool) -> list[str]:
        """An operator of the first region is paused, or goes on."""
        return self.begun(lambda: self.queue.pause(0, operator, paused))

    def start_second(self) -> list[Request]:
        """The first region ends and the second begins; returns what it begins with."""
        self.queue.over(0, "region 1 of 2 had finished")
        applied = self.queue.starting(1)
        self.queue.started(1, applied)
        return applied

    def _meanwhile(self, do: Callable[[], Change], paused: str | bool) -> tuple[Change, list[str]]:
        changes: list[Change] = []
        if paused:
            self.queue.pause(0, str(paused), True)
        orders = self.begun(lambda: changes.append(do()))
        if paused:
            orders += self.pause(str(paused), False)
        return changes[0], orders
