"""Operators that are paused on a tuple: what moves, what waits, and in which version it is fixed."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FM_AND_MC, FM_BY_EPOCH, FRAUD, MC_ALONE, Desk, flow, markers, only, plan, told

from fries_nb.controller.events import (
    ChangeRequested,
    CheckpointRequested,
    HostLost,
    Journal,
    OperatorPaused,
    Recover,
    Resolved,
    Tell,
    Tick,
)
from fries_nb.controller.states import ChangeState
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import SCHEDULERS, schedule
from fries_nb.protocol.messages import (
    Abort,
    Cancel,
    Fcm,
    Marker,
    Paused,
    Prepare,
    Prepared,
    Reconfigure,
    Resumed,
    WorkerId,
)

FM0, FM1 = WorkerId("FM", 0), WorkerId("FM", 1)
STANDS = Paused(FM0, "FM: KeyError: 'x'", "Traceback", '{"a": 1}')
MC_STANDS = Paused(WorkerId("MC", 0), "MC: no")
MC_BY_EPOCH = plan("MC", ({"payments": "payments FC FM MC scored"}, "MC"), scheduler="epoch")


def test_the_user_learns_who_stands_and_who_goes_on():
    """All workers of the operator that are paused, each with its last words."""
    desk = Desk()
    assert desk.answer(STANDS) == [OperatorPaused("FM", (STANDS,))]
    other = Paused(FM1, "FM: KeyError: 'y'")
    assert desk.answer(other) == [OperatorPaused("FM", (STANDS, other))]
    again = Paused(FM0, "FM: still")
    assert desk.answer(again) == [OperatorPaused("FM", (again, other))]
    assert desk.answer(Resumed(FM0)) == [OperatorPaused("FM", (other,))]
    assert desk.answer(Resumed(FM1)) == [OperatorPaused("FM")]
    with pytest.raises(ProtocolError, match=r"FM\[0\] resumed without having been paused"):
        desk.answer(Resumed(FM0))


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_fix_goes_to_the_operator_alone_whatever_its_scheduler(scheduler):
    """Ahead of those that wait; the marker's scope is the operator, so that no channel carries it."""
    desk = Desk()
    desk.answer(STANDS)
    assert desk.request(FM_AND_MC, "u1") == []
    assert told(desk.request(schedule(scheduler, FRAUD, {"FM"}), "u2"), Prepare) == ["FM[0]", "FM[1]"]
    journal, *fcms = desk.prepared("FM", change="u2")
    assert journal.decided.change == "u2"
    marker = Marker(1, frozenset({"FM"}), Reconfigure("u2", frozenset({"FM"})))
    assert fcms == [Tell(FM0, Fcm(marker)), Tell(FM1, Fcm(marker))]
    desk.done(1, "FM", switched=True)
    assert desk.outcomes["u2"].outcome == "done"
    assert told(desk.answer(Resumed(FM0)), Prepare) == ["FM[0]", "FM[1]", "MC[0]", "MC[1]"]


def test_a_fix_that_was_none_is_followed_by_another():
    """The operator is paused again, and the next fix is as free to come."""
    desk = Desk()
    desk.answer(STANDS)
    for number in (1, 2):
        desk.request(FM_ALONE, f"u{number}")
        desk.prepared("FM", change=f"u{number}")
        desk.done(number, "FM", switched=True)
        desk.answer(STANDS)
        assert desk.outcomes[f"u{number}"].outcome == "done"


def test_a_fix_passes_a_marker_that_is_stuck():
    """A change by epoch waits behind the operator, is no obstacle, and goes on when the operator does."""
    desk = Desk()
    desk.request(MC_BY_EPOCH, "u1")
    desk.prepared("MC", change="u1")
    desk.answer(STANDS)
    assert told(desk.request(FM_ALONE, "u2"), Prepare) == ["FM[0]", "FM[1]"]
    assert [marker.id for marker in markers(desk.prepared("FM", change="u2"))] == [2]
    assert desk.controller.on_the_way == (1, 2)
    desk.done(2, "FM", switched=True)
    desk.answer(Resumed(FM0))
    assert desk.outcomes.keys() == {"u2"}
    desk.done(1, "payments", "FC", "FM", "MC", "scored")
    assert desk.outcomes["u1"].outcome == "done"


def test_a_fix_cancels_a_commit_that_is_stuck_and_none_starts_meanwhile():
    """A marker behind an operator that is paused would hold up all that goes past it."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.answer(STANDS)
    desk.request(FM_ALONE)
    assert len(told(desk.prepared("FM"), Cancel)) == 10
    desk.done(2, "FM", switched=True)
    assert desk.hear(Tick(), after_ms=100) == desk.hear(CheckpointRequested("c1")) == []
    assert len(markers(desk.answer(Resumed(FM0)))) == 1


def test_what_prepares_is_aborted_unless_it_is_the_fix():
    """In words; a change of the operator alone becomes its fix."""
    desk = Desk()
    desk.request(FM_AND_MC, "u1")
    said = desk.answer(STANDS)
    assert told(said, Abort) == ["FM[0]", "FM[1]", "MC[0]", "MC[1]"]
    assert desk.outcomes["u1"].error == (
        "FM is paused on a tuple that it fails on (FM: KeyError: 'x'); nothing changed"
    )
    desk = Desk()
    desk.request(FM_BY_EPOCH, "u1")
    assert only(desk.answer(STANDS), Resolved) == []
    assert told(desk.prepared("FM"), Fcm) == ["FM[0]", "FM[1]"]


def test_a_change_that_was_begun_as_a_fix_and_is_none_any_more_is_one_like_others():
    """The operator went on by an earlier fix: what its own scheduler planned is sent, and nothing is prepared twice."""
    desk = Desk()
    desk.answer(STANDS)
    desk.request(FM_ALONE, "u1")
    desk.prepared("FM", change="u1")
    desk.request(FM_BY_EPOCH, "u2")
    desk.done(1, "FM", switched=True)
    assert told(desk.answer(Resumed(FM0)), Prepare) == []
    assert told(desk.prepared("FM", change="u2"), Fcm) == ["payments[0]", "payments[1]"]


def committing(desk):
    """A change is being committed, whose FCMs have gone to FM, its head."""
    desk.request(FM_AND_MC, "u1")
    desk.prepared("FM", "MC", change="u1")


def test_a_worker_below_the_head_of_a_change_is_fixed_in_the_old_version():
    """The fix is ahead of the change in the journal, at each worker and in a restart, and asks nothing of the head."""
    desk = Desk(checkpoints=True)
    committing(desk)
    assert desk.answer(MC_STANDS) == [OperatorPaused("MC", (MC_STANDS,))]
    said = desk.request(MC_ALONE, "u2")
    assert [tell.control.before for tell in said] == ["u1", "u1"]
    said = desk.prepared("MC", change="u2")
    assert [entry.decided.before for entry in only(said, Journal)] == ["u1"]
    assert {tell.control.marker.action.before for tell in only(said, Tell)} == {"u1"}
    desk.done(2, "MC", switched=True)
    assert (desk.outcomes["u2"].outcome, desk.outcomes["u2"].before) == ("done", "u1")
    assert desk.controller.changes["u1"] is ChangeState.COMMITTING
    [recover] = only(desk.hear(HostLost(0, "gone")), Recover)
    assert [each.change for each in recover.restoration.decided] == ["u2", "u1"]


def test_a_fix_in_the_old_version_keeps_the_state_as_the_change_under_way_expects_it():
    """One that transforms it is refused in words, and nothing has changed."""
    desk = Desk()
    committing(desk)
    desk.answer(MC_STANDS)
    asked = ChangeRequested("u2", MC_ALONE, {"MC": b"new"}, transforms=frozenset({"MC"}))
    assert only(desk.hear(asked), Tell) == []
    assert desk.outcomes["u2"].error == (
        "MC is paused on a tuple from before change 'u1', which was prepared for the current state; "
        "expected a fix without a state transformation"
    )


@pytest.mark.parametrize("switched", [(), ("FM",)])
def test_a_head_and_a_worker_that_has_switched_wait_for_the_change(switched):
    """The FCM of a head comes in front of its tuple; behind a switch the tuple is one of the new version."""
    desk = Desk()
    committing(desk)
    desk.done(1, *switched, switched=True)
    desk.answer(STANDS)
    assert desk.request(FM_ALONE, "u2") == []
    desk.done(1, *{"FM", "MC"} - {*switched}, switched=True)
    assert desk.outcomes["u1"].outcome == "done"
    assert desk.controller.changes["u2"] is ChangeState.PREPARING


def test_a_change_of_just_the_operator_that_is_on_its_way_is_a_fix_by_itself():
    """Its FCM makes the worker try the tuple again; another fix waits until it is done."""
    desk = Desk()
    desk.request(FM_ALONE, "u1")
    desk.prepared("FM", change="u1")
    assert desk.answer(STANDS) == [OperatorPaused("FM", (STANDS,))]
    assert desk.request(FM_ALONE, "u2") == []
    assert told(desk.done(1, "FM", switched=True), Prepare) == ["FM[0]", "FM[1]"]
    assert desk.controller.changes == {"u1": ChangeState.DONE, "u2": ChangeState.PREPARING}


def test_two_operators_are_mended_one_after_the_other():
    """Each by its own change; a third that names both waits."""
    desk = Desk()
    desk.answer(STANDS)
    desk.answer(Paused(WorkerId("MC", 0), "MC: no"))
    desk.request(FM_AND_MC, "u1")
    desk.request(MC_ALONE, "u2")
    assert desk.request(FM_ALONE, "u3") == []
    desk.prepared("MC", change="u2")
    assert told(desk.done(1, "MC", switched=True), Prepare) == ["FM[0]", "FM[1]"]
    desk.answer(Resumed(WorkerId("MC", 0)))
    desk.prepared("FM", change="u3")
    desk.done(2, "FM", switched=True)
    assert len(told(desk.answer(Resumed(FM0)), Prepare)) == 4


def test_a_fix_is_lost_or_carried_out_with_its_hosts():
    """Not decided: aborted. Decided: in the restoration. New workers say for themselves whether they are paused."""
    for prepared, outcome in (((), "aborted"), (("FM",), "done")):
        desk = Desk(checkpoints=True)
        desk.request(MC_BY_EPOCH, "u1")
        desk.prepared("MC", change="u1")
        desk.answer(STANDS)
        desk.request(FM_ALONE, "u2")
        desk.prepared(*prepared, change="u2")
        said = desk.hear(HostLost(0, "gone"))
        assert OperatorPaused("FM") in said
        (recover,) = only(said, Recover)
        assert len(recover.restoration.decided) == 1 + len(prepared)
        desk.join(4)
        assert desk.outcomes["u2"].outcome == outcome
        assert desk.outcomes["u1"].outcome == "done"


def test_the_lost_are_not_paused_in_the_next_incarnation():
    """The user hears of it, and commits begin again; nothing would ever resume the workers that were lost."""
    desk = Desk(checkpoints=True, commit_ms=10)
    desk.answer(STANDS)
    assert OperatorPaused("FM") in desk.hear(HostLost(0, "killed"))
    desk.join(4)
    assert markers(desk.hear(Tick(), after_ms=20)) != []


def test_the_journal_of_a_fix_comes_first_as_always():
    """Also where it passes another that was journaled before it."""
    desk = Desk(flow("a>b b>c c>out"), hosts=1)
    desk.request(plan("c", ({"a": "a b c out"}, "c")), "u1")
    desk.answer(Prepared("u1", WorkerId("c", 0)))
    desk.answer(Paused(WorkerId("b", 0), "no"))
    desk.request(plan("b", ({"b": "b"}, "b")), "u2")
    desk.answer(Prepared("u2", WorkerId("b", 0)))
    assert [journal.decided.change for journal in only(desk.said, Journal)] == ["u1", "u2"]


def test_a_trial_of_a_fix_goes_aside_and_leaves_the_operator_as_it_is():
    """It is rehearsed on the tuple that failed; the fix is free to come after it, others still wait."""
    desk = Desk()
    desk.answer(STANDS)
    assert desk.request(FM_AND_MC, "u1") == []
    asked = ChangeRequested("t1", FM_ALONE, {"FM": b"FM"}, frozenset({"FM"}), examples=5, is_trial=True)
    assert told(desk.hear(asked), Prepare) == ["FM[0]", "FM[1]"]
    said = desk.prepared("FM", change="t1")
    assert (told(said, Abort), told(said, Fcm)) == (["FM[0]", "FM[1]"], [])
    assert desk.outcomes["t1"].outcome == "rehearsed"
    assert told(desk.request(FM_ALONE, "u2"), Prepare) == ["FM[0]", "FM[1]"]
