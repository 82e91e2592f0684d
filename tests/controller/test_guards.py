"""Guards at the controller: what begins and ends them, and what a failure under one leads to."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FM_AND_MC, FRAUD, MC_ALONE, Desk, only, plan, told

from fries_nb.controller.events import (
    ChangeRequested,
    Guard,
    GuardEnded,
    GuardFired,
    HostLost,
    Journal,
    OperatorPaused,
    Recover,
    RunEnded,
    Tell,
    Tick,
)
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import Done, Failed, Fcm, Paused, Prepare, Report, Resumed, Unguard, WorkerId

FM0, MC0 = WorkerId("FM", 0), WorkerId("MC", 0)
FC_ALONE = plan("FC", ({"FC": "FC"}, "FC"))
BY_EPOCH = plan("FC", ({"payments": "payments FC FM MC scored"}, "FC"), scheduler="epoch")


def guarded(desk, operators=FM_AND_MC, **guard):
    """A change under guard that is done."""
    back = guard.pop("back", True)
    limit = guard or {"seconds": 5}
    rollback = Guard(schedule("fries", FRAUD, operators.targets), back, **limit)
    payloads = {name: name.encode() for name in operators.targets}
    said = desk.hear(ChangeRequested("u1", operators, payloads, guard=rollback))
    assert {tell.control.guard for tell in only(said, Tell) if isinstance(tell.control, Prepare)} == {"u1.back"}
    desk.prepared(*sorted(operators.targets), change="u1")
    desk.done(1, *sorted(operators.targets), switched=True)
    assert desk.outcomes["u1"].outcome == "done"


def fails(worker, change="u1"):
    """A worker waits with a tuple."""
    return Paused(worker, f"{worker.operator}: no", "Traceback", change=change, chain=(worker.operator,))


def test_the_rollback_of_a_head_comes_at_once_and_prepares_nothing():
    """Journal, then FCMs to the heads; when its targets are done the guard has ended, and no other outcome is said."""
    desk = Desk()
    guarded(desk)
    said = desk.answer(fails(FM0))
    [journal] = only(said, Journal)
    assert (journal.decided.change, journal.decided.undoes, journal.decided.payloads) == ("u1.back", "u1", {})
    assert only(said, GuardFired) == [GuardFired("u1", "FM: no")]
    assert told(said, Fcm) == ["FM[0]", "FM[1]"]
    assert told(said, Prepare) == []
    said = desk.done(2, "FM", "MC", switched=True)
    assert only(said, GuardEnded) == [
        GuardEnded("u1", "the new configuration failed, and the old one runs again", True, "FM: no", "Traceback")
    ]
    assert list(desk.outcomes) == ["u1"]


def test_it_fires_once():
    """Another worker that fails meanwhile gets the same FCM."""
    desk = Desk()
    guarded(desk)
    desk.answer(fails(FM0))
    assert desk.answer(fails(WorkerId("FM", 1))) == []


@pytest.mark.parametrize("limit", [{"seconds": 5}, {"tuples": 10}])
def test_a_guard_lasts_so_long(limit):
    """Then the workers are told, and what fails is the operator's own affair, also if it failed just before."""
    desk = Desk()
    guarded(desk, **limit)
    said = desk.hear(Tick(), after_ms=4_999)
    for operator in ("FM", "MC"):
        for index in (0, 1):
            assert only(said, GuardEnded) == []
            said = desk.answer(Report(WorkerId(operator, index), 5, 0))
    if "seconds" in limit:
        assert only(said, GuardEnded) == []
        said = desk.hear(Tick(), after_ms=1)
    assert only(said, GuardEnded) == [GuardEnded("u1", "the new configuration has not failed")]
    assert told(said, Unguard) == ["FM[0]", "FM[1]", "MC[0]", "MC[1]"]
    assert desk.answer(fails(FM0)) == []


def test_below_another_target_the_policy_says_where_there_is_no_checkpoint():
    """The worker is told so; what ran before is kept for a rollback that a head may still ask for."""
    desk = Desk()
    guarded(desk)
    said = desk.answer(fails(MC0))
    assert said == [Tell(MC0, Unguard("u1", keeps=True))]
    assert told(desk.answer(fails(FM0)), Fcm) == ["FM[0]", "FM[1]"]


def test_below_another_target_the_run_goes_back_where_it_can():
    """With the change and its rollback decided, so that nothing of it is in place."""
    desk = Desk(checkpoints=True)
    guarded(desk)
    said = desk.answer(fails(MC0))
    [recover] = only(said, Recover)
    assert only(said, GuardFired) == [GuardFired("u1", "MC: no")]
    assert [one.change for one in recover.restoration.decided] == ["u1", "u1.back"]
    assert "change 'u1' is rolled back by its guard (MC: no)" in recover.reason
    assert [ended.rolled_back for ended in only(desk.join(4), GuardEnded)] == [True]


@pytest.mark.parametrize(("operator", "checkpoints", "saved"), [("scored", True, True), ("scored", False, False),
                                                                ("FC", True, False), ("MC", True, True)])  # fmt: skip
def test_a_failure_that_would_end_the_run_counts_at_and_below_the_targets(operator, checkpoints, saved):
    """And only where the run can go back; above them it is nobody's."""
    desk = Desk(checkpoints=checkpoints)
    guarded(desk)
    said = desk.answer(Failed(WorkerId(operator, 0), "no"))
    assert bool(only(said, Recover)) == saved
    assert bool(only(said, RunEnded)) == (not saved)


@pytest.mark.parametrize(("operator", "checkpoints", "saved"), [("scored", True, True), ("scored", False, False),
                                                                ("FC", True, False)])  # fmt: skip
def test_an_operator_below_that_would_pause_is_not_to_blame(operator, checkpoints, saved):
    """The change is rolled back where the run can go back, as if the operator had failed; else it pauses."""
    desk = Desk(checkpoints=checkpoints)
    guarded(desk)
    said = desk.answer(fails(WorkerId(operator, 0), change=""))
    assert bool(only(said, Recover)) == saved
    assert bool(only(said, OperatorPaused)) == (not saved)


def test_state_that_cannot_go_back_needs_a_checkpoint_from_before():
    """In place it is not possible either."""
    desk = Desk(checkpoints=True)
    guarded(desk, FM_ALONE, back=False)
    assert only(desk.answer(fails(FM0)), Recover) != []
    desk = Desk()
    guarded(desk, FM_ALONE, back=False)
    assert desk.answer(fails(FM0)) == [Tell(FM0, Unguard("u1", keeps=True))]


@pytest.mark.parametrize(("later", "ends"), [(MC_ALONE, True), (FC_ALONE, False), (BY_EPOCH, True)])
def test_a_later_change_whose_marker_passes_an_operator_ends_the_guard(later, ends):
    """When it is decided, not when it is asked for."""
    desk = Desk()
    guarded(desk)
    assert only(desk.request(later, "u2"), GuardEnded) == []
    said = desk.prepared(*sorted(later.targets), change="u2")
    assert only(said, GuardEnded) == ([GuardEnded("u1", "change 'u2' came after it")] if ends else [])


@pytest.mark.parametrize(("later", "goes_back"), [(FM_AND_MC, True), (MC_ALONE, False)])
def test_a_later_change_comes_in_front_of_what_its_heads_wait_with(later, goes_back):
    """Behind a head its marker travels: there the run goes back, if that change replaces all that was under guard."""
    desk = Desk(checkpoints=True)
    guarded(desk)
    desk.request(later, "u2")
    said = desk.prepared(*sorted(later.targets), change="u2")
    kinds = [type(one.control) for one in only(said, Tell)]
    assert kinds == sorted(kinds, key=(Fcm, Unguard).index)
    said = desk.answer(Failed(MC0, "no"))
    assert [one.reason for one in only(said, Recover)] == (
        ["change 'u2' replaces the function that failed (no)"] if goes_back else []
    )
    assert bool(only(said, RunEnded)) == (not goes_back)


def test_what_a_later_change_has_switched_fails_on_its_own():
    """It is no failure of what it has replaced."""
    desk = Desk(checkpoints=True)
    guarded(desk)
    desk.request(FM_AND_MC, "u2")
    desk.prepared("FM", "MC", change="u2")
    desk.answer(Done(2, FM0, switched=True))
    assert only(desk.answer(Failed(FM0, "no")), RunEnded) != []


def test_what_prepares_is_aborted_when_a_guard_fires():
    """As when an operator is paused."""
    desk = Desk()
    guarded(desk)
    desk.request(FC_ALONE, "u2")
    desk.answer(fails(FM0))
    assert desk.outcomes["u2"].error == "change 'u1' is being rolled back by its guard; nothing changed"


@pytest.mark.parametrize("heard", ["before the guard has rolled back", "after it"])
def test_a_rollback_on_request_behind_that_of_the_guard_comes_to_nothing(heard):
    """Its requester could not know yet; the state would be transformed back twice."""
    desk = Desk()
    guarded(desk)
    desk.answer(fails(FM0))
    request = ChangeRequested("u2", FM_AND_MC, dict.fromkeys(FM_AND_MC.targets, b""), undoes="u1")
    said = desk.hear(request) if heard.startswith("before") else []
    said += desk.done(2, "FM", "MC", switched=True)
    said += desk.hear(request) if heard.startswith("after") else []
    assert told(said, Prepare) == []
    assert desk.outcomes["u2"].outcome == "aborted"
    assert desk.outcomes["u2"].error == "change 'u1' was rolled back by its guard already; nothing changed"


def test_nor_is_it_a_fix_while_the_guard_rolls_back():
    """An operator that is paused gets one at once; what its guard brings back may have to wait for the lane."""
    desk = Desk()
    guarded(desk, FM_ALONE)
    desk.request(FC_ALONE, "u3")
    desk.prepared("FC", change="u3")
    desk.answer(Paused(WorkerId("FM", 1), "FM: no"))
    desk.answer(fails(FM0))
    desk.hear(ChangeRequested("u2", FM_ALONE, {"FM": b""}, undoes="u1"))
    assert desk.outcomes["u2"].error == "change 'u1' is being rolled back by its guard; nothing changed"


def test_a_loss_meanwhile_carries_the_rollback_out():
    """It was on disk before its first FCM left; the guard of what runs again goes on until then."""
    desk = Desk(checkpoints=True)
    guarded(desk)
    desk.answer(fails(FM0))
    [recover] = only(desk.hear(HostLost(0, "gone")), Recover)
    assert [one.change for one in recover.restoration.decided] == ["u1", "u1.back"]
    assert [ended.change for ended in only(desk.join(4), GuardEnded)] == ["u1"]


def test_a_fix_is_under_no_guard():
    """It goes at once, to an operator that is paused."""
    desk = Desk()
    desk.answer(Paused(FM0, "FM: no"))
    rollback = Guard(schedule("fries", FRAUD, {"FM"}), True, 5)
    said = desk.hear(ChangeRequested("u1", FM_ALONE, {"FM": b"FM"}, guard=rollback))
    assert {tell.control.guard for tell in only(said, Tell)} == {""}
    desk.prepared("FM", change="u1")
    [ended] = only(desk.said, GuardEnded)
    assert (ended.change, ended.rolled_back) == ("u1", False), "whoever waits for its end waits for nothing"
    desk.done(1, "FM", switched=True)
    desk.answer(Resumed(FM0))
    assert only(desk.hear(Tick(), after_ms=10_000), GuardEnded) == []


@pytest.mark.parametrize("prepared_as", ["a fix", "a change"])
def test_a_guard_begins_where_workers_were_told_to_keep_what_they_ran(prepared_as):
    """A fix that is needed no more is made like other changes, and a change on its way becomes the operator's fix."""
    desk = Desk()
    request = ChangeRequested("u1", FM_ALONE, {"FM": b"FM"}, guard=Guard(schedule("fries", FRAUD, {"FM"}), True, 5))
    if prepared_as == "a fix":
        desk.answer(Paused(FM0, "FM: no"))
        desk.hear(request)
        desk.answer(Resumed(FM0))
    else:
        desk.hear(request)
        desk.answer(Paused(FM0, "FM: no"))
    [kept] = {tell.control.guard for tell in only(desk.said, Tell) if isinstance(tell.control, Prepare)}
    desk.prepared("FM", change="u1")
    desk.done(1, "FM", switched=True)
    assert bool(kept) == (prepared_as == "a change")
    assert bool(only(desk.hear(Tick(), after_ms=10_000), GuardEnded)) == bool(kept)


def test_a_rollback_is_no_fix():
    """It is prepared and decided; while a worker of its operator is paused it waits for the lane, as ever."""
    desk = Desk()
    guarded(desk, FM_ALONE)
    desk.request(FC_ALONE, "u2")
    desk.prepared("FC", change="u2")
    desk.answer(Paused(WorkerId("FM", 1), "FM: no"))
    said = desk.answer(fails(FM0))
    assert [entry.decided.change for entry in only(said, Journal)] == ["u1.back"]
    assert told(said, Fcm) == []
    assert told(desk.done(2, "FC", switched=True), Fcm) == ["FM[0]", "FM[1]"]
    said = desk.done(3, "FM", switched=True)
    assert [ended.rolled_back for ended in only(said, GuardEnded)] == [True]
