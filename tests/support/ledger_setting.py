"""A run's change queue without its run: what is asked of it, and what controllers say, in short words."""

from __future__ import annotations

import itertools
from typing import Any

import cloudpickle

from fries_nb.changes import Change
from fries_nb.controller.events import Outcome
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.updates import Update
from fries_nb.running.change_queue import ChangeQueue
from fries_nb.running.queue_entries import Ground, Order, Request
from fries_nb.running.region_plans import planned, together

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


class Desk:
    """A ledger for ``S > A > B > G > C > Out``, where G is blocking: two regions, of which the first runs."""

    def __init__(self, flowing: bool = True) -> None:
        kinds = {"S": Kind.SOURCE, "Out": Kind.SINK, "G": Kind.AGGREGATE}
        operators = tuple(
            Operator(name, kind=kinds.get(name, Kind.MAP), blocking=name == "G", function=first) for name in NAMES
        )
        edges = tuple(Edge(*ends) for ends in itertools.pairwise(NAMES))
        graph = Graph("desk", operators, edges)
        self.regions = regions(graph)
        self.now_s = 0.0
        self.ended: list[tuple[str, str]] = []
        self.ledger = ChangeQueue(graph, self.regions, self._note, clock=lambda: self.now_s)
        assert self.ledger.started(0, self.ledger.starting(0)) == []
        if flowing:
            self.ledger.flows(0)

    def _note(self, change: Change, outcome: Outcome) -> None:
        assert not change.done or outcome.outcome == "rolled_back"
        self.ended.append((change.id, outcome.outcome))

    def ask(
        self, merge: bool = False, ahead: bool = False, guard: float | None = None, **functions: Any
    ) -> tuple[Change, list[str]]:
        """Request a change; the orders come as ``region:id``."""
        updates = {name: given if isinstance(given, Update) else Update(given) for name, given in functions.items()}
        return self._enter(updates, merge=merge, ahead=ahead, guard=guard)

    def roll_back(self, ahead: bool = False) -> tuple[Change, list[str]]:
        """Roll the last change back."""
        last, updates, ground = self.ledger.undoing()
        return self._enter(updates, last, ahead=ahead, ground=ground)

    def end(self, region: int, change: str, outcome: str = "done", delay_ms: float = 1.0, **more: float) -> list[str]:
        """The controller of a region says how a change ended."""
        return shown(self.ledger.resolved(region, Outcome(change, "fries", outcome, delay_ms=delay_ms, **more)))  # type: ignore[arg-type]

    def start_second(self) -> list[Request]:
        """The first region ends and the second begins; returns what it begins with."""
        self.ledger.over(0, "region 1 of 2 had finished")
        applied = self.ledger.starting(1)
        self.ledger.started(1, applied)
        return applied

    def _enter(
        self,
        updates: dict[str, Update],
        undoes: Request | None = None,
        merge: bool = False,
        ahead: bool = False,
        guard: float | None = None,
        ground: Ground | None = None,
    ) -> tuple[Change, list[str]]:
        plans = planned(self.regions, self.ledger.shares(updates), "fries", True)
        change = Change(self.ledger.new_id(), together(plans), updates, 0.0, guard="for 5 s" if guard else "")
        if undoes is not None and self.ledger.withdraw(undoes, change):
            return change, []
        joins = self.ledger.joinable() if merge else []
        names = [name for one in [*joins] for name in one.updates] + [*updates]
        whole = planned(self.regions, self.ledger.shares(dict.fromkeys(names)), "fries", True)
        payloads = {name: cloudpickle.dumps(one) for name, one in updates.items()}
        request = Request(change.id, updates, payloads, whole, [change], undoes, ground or {}, guard)
        [region] = set(whole) if ahead else [0]
        begun = self.ledger.stands(region, min(updates), True) if ahead else []
        begun += self.ledger.enter(request.joined_to(joins), joins)
        begun += self.ledger.stands(region, min(updates), False) if ahead else []
        return change, shown(begun)


def shown(orders: list[Order]) -> list[str]:
    """Orders in short."""
    return [f"{region}:{request.id}" for region, request in orders]
