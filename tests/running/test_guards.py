"""Changes under guard in a run's queue: who may roll them back, and what a later rollback returns to."""

from __future__ import annotations

import pytest
from queue_setting import Desk, first, function

from fries_nb.controller.events import GuardEnded, GuardFired
from fries_nb.errors import PlanError


def test_a_change_that_its_guard_rolls_back_has_another_outcome_and_is_not_undone_again() -> None:
    """It is done first; a rollback on request then undoes the change before it."""
    desk = Desk()
    desk.ask(A=function("a1"))
    desk.end(0, "u1")
    change, _ = desk.ask(guard=5.0, A=function("a2"))
    desk.end(0, "u2")
    assert change.result(0).outcome == "done"
    with pytest.raises(TimeoutError, match="u2 of A is not settled yet"):
        change.settled(0)
    assert change.guard_end == ""
    desk.queue.guard_ended(0, GuardEnded("u2", "it failed", True, "A failed on a tuple: no"))
    result = change.settled(0)
    assert result.outcome == "rolled_back"
    assert change.guard_end == "it failed"
    assert result.error == "rolled back by its guard, since the new configuration failed: A failed on a tuple: no"
    assert desk.resolved[-2:] == [("u2", "done"), ("u2", "rolled_back")]
    assert desk.queue._undoing()[0].id == "u1"


def fired(desk: Desk, change: str = "u1") -> GuardEnded:
    """A guard fires; returns how it will have ended."""
    desk.queue.guard_fired(0, GuardFired(change, "A failed on a tuple: no"))
    return GuardEnded(change, "it failed", True, "A failed on a tuple: no")


def test_what_a_guard_is_rolling_back_nobody_else_rolls_back() -> None:
    """Not while it is under way, and not when it has ended: it would be undone twice."""
    desk = Desk()
    desk.ask(guard=5.0, A=function("bad"))
    desk.end(0, "u1")
    ended = fired(desk)
    with pytest.raises(PlanError, match=r"^got .* u1, which is being rolled back by its guard .*: no; exp.* wait"):
        desk.roll_back()
    desk.queue.guard_ended(0, ended)
    with pytest.raises(PlanError, match=r"^no change is in effect .*; change u1 was rolled back by its guard already$"):
        desk.roll_back()


def test_a_guard_that_fired_and_came_to_nothing_leaves_the_change_to_others() -> None:
    """The run may end before its rollback has; then the change is as it was."""
    desk = Desk()
    desk.ask(guard=5.0, A=function("bad"))
    desk.end(0, "u1")
    fired(desk)
    desk.queue.guard_ended(0, GuardEnded("u1", "the run was stopped"))
    assert desk.queue._undoing()[0].id == "u1"


def test_a_guard_that_ends_before_its_change_is_done_is_over() -> None:
    """A fix may be decided while the change commits."""
    desk = Desk()
    change, _ = desk.ask(guard=5.0, A=function("a1"))
    desk.queue.guard_ended(0, GuardEnded("u1", "change 'u2' came after it"))
    assert change.guard_end == "change 'u2' came after it"
    desk.end(0, "u1")
    assert change.settled(0).outcome == "done"
    for version in ("a2", "a3", "a4"):
        later, _ = desk.ask(A=function(version))
        desk.end(0, later.id)
    assert [bool(one.payloads) for one in desk.queue._known.requests] == [False, False, True, True]


def test_a_change_behind_one_that_its_guard_rolls_back_returns_to_what_ran_before_both() -> None:
    """Until the guard has ended it is open what that is."""
    desk = Desk()
    desk.ask(guard=5.0, A=function("bad"))
    desk.end(0, "u1")
    ended = fired(desk)
    assert desk.ask(A=function("good"))[1] == ["0:u2"]
    with pytest.raises(PlanError, match="u2 behind change u1 of A, which is being rolled back by its guard because"):
        desk.roll_back()
    desk.queue.guard_ended(0, ended)
    desk.end(0, "u2")
    back, _ = desk.roll_back()
    assert back.updates["A"].function is first


def test_a_rollback_that_waits_does_not_bring_back_what_a_guard_has_undone() -> None:
    """Neither undoes it what the guard has undone, nor returns to that; it says so."""
    desk = Desk()
    desk.ask(guard=5.0, A=function("bad"))
    desk.end(0, "u1")
    desk.ask(B=function("b"))
    rollback, _ = desk.roll_back()
    desk.ask(A=function("worse"))
    desk.end(0, "u2")
    desk.end(0, "u3")
    back, _ = desk.roll_back()
    assert back.updates["A"].function.__name__ == "bad"
    desk.queue.guard_ended(0, fired(desk))
    desk.end(0, "u4")
    assert rollback.result(0).outcome == "done"
    assert back.result(0).outcome == "aborted"
    assert back.result(0).error == (
        "change u1, to which A was to return, was rolled back by its guard meanwhile; roll change u4 back again"
    )
    again, _ = desk.roll_back()
    assert again.updates["A"].function is first


def test_a_rollback_that_waits_while_the_guard_of_its_change_fires_has_nothing_left_to_do() -> None:
    """It was asked for before anybody could know."""
    desk = Desk()
    desk.ask(guard=5.0, A=function("bad"))
    desk.end(0, "u1")
    desk.ask(B=function("b"))
    desk.roll_back()
    back, _ = desk.roll_back()
    desk.queue.guard_ended(0, fired(desk))
    assert desk.end(0, "u2") == ["0:u3"]
    assert desk.end(0, "u3") == []
    assert back.result(0).error == "change u1 was rolled back by its guard already; there is nothing to roll back"


def test_a_guard_that_ends_leaves_the_change_as_it_is() -> None:
    """And one that nothing came of has none: it was aborted, or its region had not begun."""
    desk = Desk()
    change, _ = desk.ask(guard=5.0, A=function("a1"))
    desk.end(0, "u1")
    desk.queue.guard_ended(0, GuardEnded("u1", "the new configuration has not failed"))
    assert change.settled(0).outcome == "done"
    aborted, _ = desk.ask(guard=5.0, A=function("a2"))
    desk.end(0, "u2", "aborted")
    assert aborted.settled(0).outcome == "aborted"
