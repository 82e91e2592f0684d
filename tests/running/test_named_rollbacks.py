"""Rollbacks of a named change, the reasons why there is none, and the functions before and after each change."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from queue_setting import Desk, first, function

from fries_nb.changes.change import Change
from fries_nb.changes.queue_entries import ChangeOrigin
from fries_nb.controller.events import GuardEnded
from fries_nb.dataflow.updates import Update
from fries_nb.errors import FriesError, PlanError


def two_done(**second: Any) -> Desk:
    """A queue with u1 of A and B, and u2 of the given operators, both done."""
    desk = Desk()
    desk.ask(A=function("a1"), B=function("b1"))
    desk.ask(**second)
    for change in ("u1", "u2"):
        desk.end(0, change)
    return desk


def test_the_reason_names_the_later_change_and_the_operator() -> None:
    """Once that one is rolled back, the operator runs the function of the named change again."""
    desk = two_done(A=function("a2"))
    words = "change u2 has changed A since change u1; roll that back first"
    assert desk.queue.blocked_by("u1") == words
    with pytest.raises(PlanError, match=f"^{words}$"):
        desk.queue.roll_back(change="u1")
    assert desk.queue.blocked_by("u2") is None
    back = desk.queue.roll_back(change="u2")
    desk.end(0, "u3")
    assert (back.origin, back.updates["A"].function.__name__) == ("rollback of u2", "a1")
    assert str(desk.queue.blocked_by("u2")).endswith("cannot be rolled back: change u3 has rolled it back")
    assert str(desk.queue.blocked_by("u3")).startswith("change u3 is a rollback itself, of change u2; request its")
    assert desk.queue.blocked_by("u1") is None
    again = desk.queue.roll_back(change="u1")
    assert {name: update.function for name, update in again.updates.items()} == {"A": first, "B": first}


def test_an_earlier_change_of_other_operators_is_undone_alone() -> None:
    """The later one stays in effect."""
    desk = two_done(C=function("c"))
    with pytest.raises(PlanError, match=r"^no change is in effect"):
        Desk().queue.roll_back()
    assert desk.queue.roll_back(change="u1").updates.keys() == {"A", "B"}
    assert desk.queue.blocked_by("u2") is None


def test_other_reasons_are_told_in_words() -> None:
    """State without an inverse, an aborted change, one that a guard has rolled back, and one that was merged."""
    desk = Desk()
    one, _ = desk.ask(A=Update(function("a"), state=list))
    desk.ask(B=function("b"))
    desk.ask(guard=5.0, B=function("b"))
    desk.end(0, "u1")
    desk.end(0, "u2", "aborted", "no")
    desk.end(0, "u3")
    desk.queue.guard_ended(0, GuardEnded("u3", "it failed", True, "no"))
    assert str(desk.queue.blocked_by("u1")).startswith("the state of A was transformed by change u1, which has no")
    gone = "is not in effect and cannot be rolled back: it"
    assert desk.queue.blocked_by("u2") == f"change u2 {gone} was aborted"
    assert desk.queue.blocked_by("u3") == f"change u3 {gone}s guard has rolled it back"
    desk.ask(C=function("c"))
    desk.ask(merge=True, B=function("b"))
    assert (one.origin, desk.queue.blocked_by("u4")) == ("user", None)
    desk.queue.over(0, "region 1 of 2 had finished")
    assert desk.queue.blocked_by("u4") is None  # it waits for its region
    assert desk.queue.roll_back(change="u4").plan.targets == {"C"}


def test_the_origin_names_a_constraint_and_what_its_policy_undoes() -> None:
    """Both, if the policy rolls its own change back."""
    desk = Desk()
    asked = desk.queue.request({"A": Update(function("light"))}, origin=ChangeOrigin("A -> B"))
    desk.end(0, "u1")
    back = desk.queue.roll_back(change="u1", origin=ChangeOrigin("A -> B"))
    assert (asked.origin, back.origin) == ("constraint A -> B", "constraint A -> B, rollback of u1")


@dataclass
class Ledger:
    """What a queue should know: for each operator its functions, each with the change that installed it."""

    desk: Desk
    chance: random.Random
    held: dict[str, list[tuple[str, Any]]] = field(default_factory=lambda: {name: [("", first)] for name in "AB"})
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    rolled_back: int = 0
    refused: int = 0

    def ask(self) -> None:
        """Request a change of one or both operators, which may be aborted."""
        names = self.chance.choice(("A", "B", "AB"))
        change, _ = self.desk.ask(**{name: function(f"{name}{len(self.changes)}") for name in names})
        was = {name: self.held[name][-1][1].__name__ for name in names}
        self.end(change, was)
        if change.result(0).outcome == "done":
            for name in names:
                self.held[name].append((change.id, change.updates[name].function))
            self.changes[change.id] = {name: change.updates[name].function.__name__ for name in names}

    def end(self, change: Change, was: dict[str, str]) -> None:
        """The controller ends it; before and after are known from then on, on disk or not."""
        self.desk.end(0, change.id, "aborted" if self.chance.random() < 0.3 else "done")
        found = {name: (old.__name__, new.__name__) for name, (old, new) in change.functions().items()}
        assert found == {name: (was[name], change.updates[name].function.__name__) for name in was}

    def undo(self) -> None:
        """Roll a drawn change back, if each of its operators runs the function that it installed."""
        victim = self.chance.choice([*self.changes])
        names = self.changes[victim]
        runs = victim not in self.undone and all(self.held[name][-1][0] == victim for name in names)
        assert (self.desk.queue.blocked_by(victim) is None) is runs
        if not runs:
            self.refused += 1
            with pytest.raises(FriesError):
                self.desk.queue.roll_back(change=victim)
            return
        back = self.desk.queue.roll_back(change=victim)
        assert {name: update.function.__name__ for name, update in back.updates.items()} == {
            name: self.held[name][-2][1].__name__ for name in names
        }
        self.end(back, names)
        if back.result(0).outcome == "done":
            self.rolled_back += 1
            self.undone.add(victim)
            for name in names:
                self.held[name].pop()


def test_a_change_is_undone_exactly_while_its_functions_run() -> None:
    """Of drawn changes and rollbacks, in any order, with some that are aborted; functions are told of all of them."""
    undone = refused = 0
    for seed in range(60):
        ledger = Ledger(Desk(), random.Random(seed))
        for _ in range(12):
            if ledger.changes and ledger.chance.random() < 0.5:
                ledger.undo()
            else:
                ledger.ask()
        undone, refused = undone + ledger.rolled_back, refused + ledger.refused
    assert undone > 60
    assert refused > 60
