"""The policies of constraints over a run's queue: what is requested, when, and what ends the automatism."""

from __future__ import annotations

import logging

import pytest
from queue_setting import Desk, function
from remedy_setting import REASON, WINDOW_S, ConstrainedDesk

from fries_nb.dataflow import constraint_of
from fries_nb.dataflow.updates import lighter
from fries_nb.errors import DataflowError, PlanError


def test_the_lighter_function_comes_and_goes_by_ordinary_changes() -> None:
    """The driver's thread requests nothing itself; the state is transformed there and back."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    assert (desk.orders, desk.phase, desk.said) == ([], "applying", "lighter functions of A are being applied")
    desk.later.make()
    assert desk.orders == ["0:u1"]
    (change,) = desk.queue.changes
    assert (change.constraint, change.label) == ("A -> B", "A by fries, by constraint")
    desk.end(0, "u1")
    assert (desk.phase, desk.said) == ("lighter", "lighter functions of A run by change u1")
    desk.judge(100, 100, rate=80.0)  # 0.8 of a worker's time
    assert desk.phase == "lighter"
    desk.judge(100, 100, rate=20.0)
    assert desk.phase == "returning"
    desk.later.make()
    assert desk.orders == ["0:u1", "0:u2"]
    assert desk.last is not None
    assert (desk.last.undoes, desk.said) == ("u1", "the original functions of A return")
    back = desk.queue.changes[1].updates["A"]
    assert (back.function.__name__, back.state, back.back) == ("first", tuple, list)
    desk.end(0, "u2")
    assert (desk.phase, desk.said) == ("original", "")
    labels = [(mark.change, mark.kind, mark.label) for mark in desk.telemetry.marks()]
    words = "A by fries, by constraint"
    assert labels == [("u1", "request", words), ("u1", "done", words), ("u2", "request", words), ("u2", "done", words)]
    assert desk.remedies.violations() == ()


def test_it_does_not_return_if_the_cost_of_a_row_is_unknown() -> None:
    """Whatever the latency of its batch was."""
    desk = ConstrainedDesk()
    desk.row_ms = 0.0
    desk.judge(30, 900)
    desk.later.make()
    desk.end(0, "u1")
    desk.row_ms = 10.0  # that of the lighter function
    desk.judge(200, 100, rate=20.0)
    assert desk.phase == "lighter"


def test_it_returns_below_later_changes_of_other_operators() -> None:
    """These stay in effect, and a rollback by the user undoes the newest of them."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.later.make()
    desk.end(0, "u1")
    desk.ask(B=function("b"))
    desk.end(0, "u2")
    desk.judge(100, 100, rate=20.0)
    desk.later.make()
    assert desk.last is not None
    assert (desk.last.change, desk.last.undoes, set(desk.queue.changes[2].updates)) == ("u3", "u1", {"A"})
    desk.end(0, "u3")
    assert desk.phase == "original"
    desk.roll_back()
    assert desk.last.undoes == "u2"


def test_an_automatic_change_is_not_merged_with_changes_of_the_user() -> None:
    """The way back would undo theirs."""
    desk = ConstrainedDesk()
    desk.ask(B=function("b"))
    desk.judge(30, 900)
    desk.later.make()
    desk.ask(merge=True, B=function("c"))
    assert [one.merged for one in desk.queue._known.requests] == [("u1",), ("u2",), ("u3",)]


USER = "change u{} of A was requested"


@pytest.mark.parametrize("moment", ["before", "decided", "under way", "lighter", "returning"])
def test_a_change_of_the_user_ends_the_automatism(moment: str) -> None:
    """Whenever it comes, also between the decision and the request, it is the last one."""
    desk = ConstrainedDesk()
    if moment != "before":
        desk.judge(30, 900)
    if moment not in ("before", "decided"):
        desk.later.make()
    if moment in ("lighter", "returning"):
        desk.end(0, "u1")
    if moment == "returning":
        desk.judge(100, 100, rate=20.0)
    change, _ = desk.ask(A=function("user"), B=function("user"))
    desk.later.make()
    if moment == "under way":
        desk.end(0, "u1")
    desk.end(0, change.id)
    desk.judge(2_000, 900)
    desk.judge(200, 100, rate=20.0)
    desk.later.make()
    assert (desk.phase, desk.said) == ("ended", "ended: " + USER.format(change.id[1:]))
    assert desk.queue.changes[-1] is change
    assert len(desk.remedies.violations()) == 1


def test_a_rollback_by_the_user_ends_the_automatism_as_well() -> None:
    """It is a change of the same operators."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.later.make()
    desk.end(0, "u1")
    desk.roll_back()
    assert (desk.phase, desk.said) == ("ended", "ended: " + USER.format(2))


@pytest.mark.parametrize("outcome", ["aborted", "failed"])
@pytest.mark.parametrize("way", ["there", "back"])
def test_an_automatic_change_that_is_not_done_ends_the_automatism(
    outcome: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason, which is also logged: for instance that the new columns do not fit."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.later.make()
    if way == "back":
        desk.end(0, "u1")
        desk.judge(100, 100, rate=20.0)
        desk.later.make()
    change = desk.queue.changes[-1].id
    desk.end(0, change, outcome, "FM: column p is missing")
    assert desk.said == f"ended: change {change} was {outcome}: FM: column p is missing"
    assert "no further change is made by this constraint, since change" in caplog.text
    desk.judge(2_000, 900)
    desk.later.make()
    assert desk.queue.changes[-1].id == change


def test_a_request_that_is_refused_ends_the_automatism() -> None:
    """As at the end of a run."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.over = "finished"
    desk.later.make()
    assert desk.said == "ended: run 'desk' has finished; a change needs a running dataflow"


def test_a_defect_of_a_request_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The automatism ends, and the thread fails visibly."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    monkeypatch.setattr(desk, "ship", lambda updates: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        desk.later.make()
    assert desk.said == "ended: ZeroDivisionError: division by zero"


def test_a_violation_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """In the log and in a list; again after it was met meanwhile."""
    desk = ConstrainedDesk("tell")
    with caplog.at_level(logging.WARNING, "fries_nb"):
        desk.judge(50, 900)
        desk.judge(5, 100)
        desk.judge(50, 900)
    assert [one.reason for one in desk.remedies.violations()] == [REASON, REASON]
    assert caplog.messages == [f"A -> B: at most 300 ms over 10 s is violated: {REASON}"] * 2
    assert (desk.queue.changes, desk.later.calls) == ((), [])


def test_declared_again_an_ended_automatism_begins_anew() -> None:
    """With the new lighter functions; one that has not ended goes on as it was."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.remedies.add(desk.constraint, desk.light)
    assert desk.phase == "applying"
    desk.ask(A=function("user"))
    desk.later.make()
    desk.remedies.add(desk.constraint, lighter({"A": function("lightest")}))
    assert desk.phase == "original"
    desk.judge(30, 900)
    desk.later.make()
    assert desk.queue.changes[-1].updates["A"].function.__name__ == "lightest"


def test_a_resumed_run_does_not_make_a_state_lighter_twice() -> None:
    """Operators that were changed before are left to the user; others are not."""
    desk = ConstrainedDesk()
    desk.remedies.resumed(["B"])
    assert desk.said == ""
    desk.remedies.resumed(["A", "B"])
    assert desk.said == "ended: A had been changed before the run was resumed"


def test_a_second_constraint_on_an_operator_that_has_lighter_functions_is_refused() -> None:
    """And is not kept."""
    desk = ConstrainedDesk()
    other = constraint_of(desk.graph, ["A"], 100, WINDOW_S, "apply")
    with pytest.raises(DataflowError, match="A has lighter functions in two constraints, on A -> B and on A, which"):
        desk.remedies.add(other, desk.light)
    assert [one.constraint for one in desk.remedies.states()] == [desk.constraint]


def test_a_change_that_others_have_replaced_is_not_rolled_back_by_name() -> None:
    """Nor is one that is undone already, or unknown."""
    desk = Desk()
    desk.ask(A=function("a1"))
    desk.ask(A=function("a2"))
    for change in ("u1", "u2"):
        desk.end(0, change)
    with pytest.raises(PlanError, match=r"^change u2 has changed A since change u1; roll that back first$"):
        desk.queue.roll_back(change="u1")
    assert desk.queue.roll_back(change="u2").id == "u3"
    with pytest.raises(PlanError, match=r"^change u2 is not in effect .*: change u3 rolls it back$"):
        desk.queue.roll_back(change="u2")
    with pytest.raises(PlanError, match=r"^change u9 is not in effect"):
        desk.queue.roll_back(change="u9")
