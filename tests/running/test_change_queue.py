"""The change queue: one request in flight in each region, merges, rollbacks, regions that have not started."""

from __future__ import annotations

import pickle
from functools import partial
from types import SimpleNamespace

import pytest
from queue_setting import Desk, first, function

from fries_nb.changes.queue_entries import ChangeOrigin
from fries_nb.controller.states import ChangeProgress, ChangeState
from fries_nb.dataflow.updates import Edits, Update
from fries_nb.errors import PlanError
from fries_nb.running.region_runner import RegionRunner


def shipped(desk: Desk, operator: str) -> str:
    """The name of the function that was carried out last."""
    assert desk.last is not None
    update: Update = pickle.loads(desk.last.payloads[operator])
    return str(update.function.__name__)


def test_one_is_in_flight_and_the_others_wait_in_order() -> None:
    """The next is begun when the one before has ended, whichever way; waiting counts into the delay."""
    desk = Desk()
    changes = [desk.ask(A=function(name)) for name in "xyz"]
    assert [orders for _, orders in changes] == [["0:u1"], [], []]
    assert desk.end(0, "u1", "aborted") == ["0:u2"]
    desk.now_s = 2.0
    assert desk.end(0, "u2") == ["0:u3"]
    assert desk.end(0, "u3", delay_ms=5.0) == []
    assert [change.result(0).outcome for change, _ in changes] == ["aborted", "done", "done"]
    assert changes[2][0].result(0).delay_ms == pytest.approx(2005.0)
    assert desk.resolved == [("u1", "aborted"), ("u2", "done"), ("u3", "done")]


def test_merged_changes_are_one_and_end_alike() -> None:
    """Those that wait are carried out once, under the newest id; the later function of an operator counts."""
    desk = Desk()
    desk.ask(A=function("begun"))
    older, _ = desk.ask(A=function("old"), B=function("b"))
    newer, orders = desk.ask(A=function("new"), merge=True)
    assert orders == []
    assert desk.end(0, "u1") == ["0:u3"]
    assert desk.last is not None
    assert {name: shipped(desk, name) for name in desk.last.payloads} == {"A": "new", "B": "b"}
    assert desk.last.plan.targets == {"A", "B"}
    desk.end(0, "u3")
    assert older.result(0).outcome == newer.result(0).outcome == "done"
    assert older.result(0).change == "u2"
    assert sorted(desk.queue.executed()) == [("u1", "A"), ("u3", "A"), ("u3", "B")]


def test_the_progress_is_that_of_the_change_as_carried_out() -> None:
    """In the first region whose controller has it and in which it has not ended."""
    desk = Desk()
    begun, _ = desk.ask(A=function("begun"))
    older, _ = desk.ask(A=function("old"))
    newer, _ = desk.ask(A=function("new"), merge=True)
    known = {"u3": ChangeProgress(ChangeState.PREPARING, workers=8, prepared=3)}
    regions = [SimpleNamespace(driver=SimpleNamespace(controller=SimpleNamespace(progress_of=one))) for one in (
        {}.get, known.get
    )]  # fmt: skip
    runner = SimpleNamespace(launched=regions)
    desk.progress = lambda change: RegionRunner.progress(runner, change)  # type: ignore[method-assign, arg-type]
    assert older.progress() == newer.progress() == known["u3"]
    assert begun.progress() is None


def test_of_all_that_is_merged_the_latest_counts() -> None:
    """The order of request is kept among those that waited."""
    desk = Desk()
    desk.ask(B=function("begun"))
    desk.ask(A=function("first"))
    desk.ask(A=function("second"))
    desk.ask(B=function("b"), merge=True)
    desk.end(0, "u1")
    assert shipped(desk, "A") == "second"


def test_a_rollback_does_not_go_ahead_of_what_it_undoes() -> None:
    """An operator that is paused gets its fix at once; but what is under way would come behind its own rollback."""
    desk = Desk()
    desk.ask(A=function("x"))
    back, orders = desk.roll_back(paused="A")
    assert orders == []
    desk.end(0, "u1", "aborted")
    assert back.result(0).outcome == "aborted"


def test_a_rollback_that_waited_while_a_fix_went_ahead_of_what_it_undoes_is_asked_again() -> None:
    """The fix is what ran before, which nobody knew."""
    desk = Desk()
    desk.ask(A=function("x"))
    back, _ = desk.roll_back()
    desk.ask(A=function("fix"), ahead=True)
    desk.end(0, "u3")
    assert desk.end(0, "u1") == []
    assert back.result(0).error == (
        "A ran change u3 before change u1, which was not known when the rollback was asked for; roll change u1 back "
        "again"
    )
    again, _ = desk.roll_back()
    assert again.updates["A"].function.__name__ == "fix"


def test_a_rollback_skips_what_came_to_nothing() -> None:
    """What was aborted, or rolled back before, is not what ran before."""
    desk = Desk()
    desk.ask(A=function("rolled"))
    desk.end(0, "u1")
    desk.roll_back()
    desk.end(0, "u2")
    desk.ask(A=function("aborted"))
    desk.end(0, "u3", "aborted")
    desk.ask(A=function("done"))
    desk.end(0, "u4")
    back, _ = desk.roll_back()
    assert back.updates["A"].function is first


def test_nothing_is_merged_that_has_begun() -> None:
    """With nothing waiting, a merge is a change like any other."""
    desk = Desk()
    desk.ask(A=function("begun"))
    _, orders = desk.ask(B=function("b"), merge=True)
    assert orders == []
    assert desk.end(0, "u1") == ["0:u2"]


def test_a_rollback_of_what_waits_withdraws_it() -> None:
    """What was not begun never is; the rollback is done at once, and the next one undoes the change before."""
    desk = Desk()
    desk.ask(A=function("x"))
    waiting, _ = desk.ask(A=function("y"))
    back, orders = desk.roll_back()
    assert orders == []
    assert back.result(0).outcome == "done"
    assert waiting.result(0).outcome == "aborted"
    assert "rolled back before it was begun" in waiting.result(0).error
    assert desk.end(0, "u1") == []
    _, orders = desk.roll_back()
    assert orders == ["0:u4"]


def test_a_rollback_waits_for_what_is_in_flight_and_needs_it_done() -> None:
    """It goes back to what ran before; where the change came to nothing, so does the rollback."""
    desk = Desk()
    desk.ask(A=function("x"))
    desk.end(0, "u1")
    desk.ask(A=function("y"))
    back, orders = desk.roll_back()
    assert orders == []
    assert back.updates["A"].function.__name__ == "x"
    assert desk.end(0, "u2", "aborted") == []
    assert back.result(0).outcome == "aborted"
    assert "nothing to roll back" in back.result(0).error
    again, orders = desk.roll_back()
    assert orders == ["0:u4"]
    assert again.updates["A"].function is first


def test_merged_changes_are_rolled_back_together() -> None:
    """They were one change; what was in effect before them is so again."""
    desk = Desk()
    desk.ask(A=function("x"))
    desk.ask(A=function("y"))
    desk.ask(B=function("z"), merge=True)
    desk.end(0, "u1")
    desk.end(0, "u3")
    back, orders = desk.roll_back()
    assert orders == ["0:u4"]
    assert back.updates["A"].function.__name__ == "x"
    assert back.updates["B"].function is first
    desk.end(0, "u4")
    before, _ = desk.roll_back()
    assert list(before.updates) == ["A"]
    desk.end(0, "u5")
    with pytest.raises(PlanError, match="no change is in effect"):
        desk.roll_back()


def test_a_merge_does_not_reach_behind_a_rollback() -> None:
    """A rollback that waits stays what it is."""
    desk = Desk()
    desk.ask(A=function("x"))
    desk.roll_back()
    desk.ask(B=function("b"))
    desk.ask(A=function("y"), merge=True)
    assert desk.end(0, "u1") == ["0:u2"]
    assert desk.end(0, "u2") == ["0:u4"]
    assert desk.last is not None
    assert set(desk.last.payloads) == {"A", "B"}


def test_changes_requested_before_tuples_flow_are_timed_from_then() -> None:
    """So is one that waited behind another; how long it was until then is said apart."""
    desk = Desk(flowing=False)
    first, second = desk.ask(A=function("a"))[0], desk.ask(A=function("b"))[0]
    desk.now_s = 3.0
    desk.queue.flows(0)
    desk.now_s = 3.5
    assert desk.end(0, "u1", delay_ms=20.0, waited_ms=3480.0) == ["0:u2"]
    desk.end(0, "u2", delay_ms=30.0)
    assert (first.result(0).delay_ms, first.result(0).waited_ms) == (pytest.approx(20.0), pytest.approx(3480.0))
    assert (second.result(0).delay_ms, second.result(0).waited_ms) == (pytest.approx(530.0), pytest.approx(3000.0))


def test_a_change_of_a_later_region_is_what_it_begins_with() -> None:
    """It does not stand in the way of the first region's; it is done when its region starts."""
    desk = Desk()
    change, orders = desk.ask(C=function("c"))
    assert orders == []
    assert desk.ask(A=function("a"))[1] == ["0:u2"]
    desk.end(0, "u2")
    desk.now_s = 3.0
    [applied] = desk.start_second()
    assert applied.updates["C"].function.__name__ == "c"
    assert change.result(0).outcome == "done"
    assert (change.result(0).delay_ms, change.result(0).waited_ms) == (pytest.approx(0.0), pytest.approx(3000.0))
    assert [str(worker) for worker in change.result(0).per_worker] == ["C[0]"]
    assert desk.queue.executed() == [("u2", "A")]
    assert desk.ask(C=function("d"))[1] == ["1:u3"]


def test_a_change_over_two_regions_is_done_when_both_are() -> None:
    """Each region has its own plan; a failed part makes the whole a failure that says what did change."""
    desk = Desk()
    change, orders = desk.ask(A=function("a"), C=function("c"))
    assert orders == ["0:u1"]
    desk.end(0, "u1")
    assert not change.done
    desk.start_second()
    assert change.result(0).outcome == "done"
    desk.ask(C=function("d"))
    back, _ = desk.roll_back()
    assert back.updates["C"].function.__name__ == "c"


def test_half_a_change_is_a_failure() -> None:
    """The first region did not take it, the second began with it."""
    desk = Desk()
    change, _ = desk.ask(A=function("a"), C=function("c"))
    desk.end(0, "u1", "aborted", "A has no such column")
    desk.start_second()
    assert change.result(0).outcome == "failed"
    assert change.result(0).error == "A has no such column (but C changed, in another region)"


def test_a_rollback_that_half_came_to_nothing_is_asked_again_for_that_half() -> None:
    """The other half waits for its region as before, and returns to nothing that was rolled back meanwhile."""
    desk = Desk()
    desk.ask(C=function("x"))
    desk.ask(A=function("y"), C=function("z"))
    desk.end(0, "u2")
    desk.roll_back()
    desk.roll_back()
    desk.end(0, "u3", "aborted")
    again, _ = desk.roll_back()
    assert {name: update.function for name, update in again.updates.items()} == {"A": first}
    desk.end(0, "u5")
    with pytest.raises(PlanError, match="no change is in effect"):
        desk.roll_back()
    begun = {name: update.function for request in desk.start_second() for name, update in request.updates.items()}
    assert begun["C"] is first


def test_rollbacks_that_came_to_nothing_in_one_region_are_asked_again_for_that_one_alone() -> None:
    """The newer change first, as ever; in the second region both rollbacks wait, and are not made twice."""
    desk = Desk()
    desk.ask(A=function("x"), C=function("x"))
    desk.end(0, "u1")
    desk.ask(A=function("y"), C=function("y"))
    desk.end(0, "u2")
    desk.roll_back()
    desk.roll_back()
    desk.end(0, "u3", "aborted")
    back, _ = desk.roll_back()
    assert list(back.updates) == ["A"]
    assert back.updates["A"].function.__name__ == "x"
    again, _ = desk.roll_back()
    assert {name: update.function for name, update in again.updates.items()} == {"A": first}


def test_operators_of_a_finished_region_are_refused() -> None:
    """In words; and a rollback of their change is refused likewise."""
    desk = Desk()
    desk.ask(A=function("a"))
    desk.end(0, "u1")
    waiting, _ = desk.ask(A=function("b"))
    desk.start_second()
    assert waiting.result(0).outcome == "aborted"
    assert "region 1 of 2 had finished before" in waiting.result(0).error
    with pytest.raises(PlanError, match=r"^A ran in region 1 of 2, which has finished; expected operators of"):
        desk.ask(A=function("c"))
    with pytest.raises(PlanError, match="which has finished"):
        desk.roll_back()


def test_a_fix_goes_ahead_of_what_waits() -> None:
    """An operator that is paused can be mended only at once."""
    desk = Desk()
    desk.ask(A=function("x"))
    desk.ask(A=function("y"))
    fix, orders = desk.ask(B=function("fixed"), ahead=True)
    assert orders == ["0:u3"]
    assert desk.end(0, "u3") == []
    assert fix.result(0).outcome == "done"
    assert desk.end(0, "u1", "aborted") == ["0:u2"]


def test_a_fix_ahead_of_a_change_under_way_is_what_its_rollback_returns_to() -> None:
    """The operator runs the change's function in the end, and the fix ran before it."""
    desk = Desk()
    desk.ask(A=function("a1"), B=function("b1"))
    fix, _ = desk.ask(ahead=True, B=function("b2"))
    desk.end(0, fix.id, before="u1")
    desk.end(0, "u1")
    back, _ = desk.roll_back()
    assert set(back.updates) == {"A", "B"}
    assert back.updates["B"].function.__name__ == "b2"


def test_a_fix_that_waits_goes_ahead_when_its_operator_is_paused() -> None:
    """The change in flight waits for that operator: before, only a fix asked for afterwards could mend it."""
    desk = Desk()
    desk.ask(A=function("x"), B=function("x"))
    desk.ask(A=function("y"))
    fix, orders = desk.ask(B=function("fixed"), guard=5.0)
    assert (orders, desk.queue.executed()) == ([], [])
    assert desk.pause("B", True) == ["0:u3"]
    assert fix.guard.startswith("not at all"), "no guard holds a fix back"
    assert desk.pause("B", True) == []
    assert desk.end(0, "u3") == []
    assert desk.pause("B", False) == []
    assert fix.result(0).outcome == "done"
    assert desk.end(0, "u1", "aborted") == ["0:u2"]


def test_while_an_operator_is_paused_its_fixes_go_ahead_one_by_one() -> None:
    """The second is needed only if the first is none; of an operator that pauses again the first is an ordinary one."""
    desk = Desk()
    desk.ask(A=function("x"), B=function("x"))
    desk.ask(B=function("no fix"))
    desk.ask(B=function("a fix"))
    assert desk.pause("B", True) == ["0:u2"]
    assert desk.end(0, "u2") == ["0:u3"], "it is still paused"
    another, orders = desk.ask(B=function("another"))
    assert orders == []
    assert desk.pause("B", False) == []
    assert desk.pause("B", True) == [f"0:{another.id}"]


def test_what_is_requested_on_the_condition_that_nothing_has_changed_is_refused_beside_a_change() -> None:
    """As a set state, which has the function of now: it would undo a change that waits, or has ended since."""
    desk = Desk()
    assert desk.queue.last_of("A") == ""
    desk.queue.refuse_if_changed("A", "")
    desk.ask(B=function("first"))
    desk.ask(A=function("x"))
    for last in ("", "u2"):
        with pytest.raises(PlanError, match="change u2 of A is under way, or has just ended; expected its end"):
            desk.queue.refuse_if_changed("A", last)
    desk.end(0, "u1")
    desk.end(0, "u2")
    desk.queue.refuse_if_changed("A", desk.queue.last_of("A"))
    with pytest.raises(PlanError, match="change u2 of A"):
        desk.queue.refuse_if_changed("A", "")
    never = ChangeOrigin(check=partial(desk.queue.refuse_if_changed, "A", ""))
    with pytest.raises(PlanError, match="change u2 of A"):
        desk.queue.request({"A": Update(function("y"))}, origin=never)
    assert [change.id for change in desk.queue.changes] == ["u1", "u2"]


@pytest.mark.parametrize(
    ("identities", "guard", "transforms", "why"),
    [
        (False, None, (), "the rows of this run carry no identities"),
        (True, 5.0, (), "has no guard of its own"),
        (True, None, (dict,), "the state of A cannot be transformed without a way back"),
        (True, None, (Edits({}), Edits({})), "the states of single keys of A would be set anew"),
    ],
)
def test_the_cut_is_refused_where_rows_cannot_decide(identities, guard, transforms, why):
    """By name; a change that is merged with one of these too."""
    desk = Desk()
    desk.identifies = identities
    with pytest.raises(PlanError, match=f"{why}.*expected scheduler='fries'"):
        desk.queue.request({"A": Update(function("x"), *transforms)}, "cut", limit=guard)
    assert desk.queue.plan(["A"], "auto", True, None).scheduler == "fries"


def test_a_rollback_by_the_cut_needs_identities_too() -> None:
    """Refused by name, and the change stays in effect."""
    desk = Desk()
    change, _ = desk.ask(A=function("x"))
    desk.end(0, change.id)
    with pytest.raises(PlanError, match="carry no identities"):
        desk.queue.roll_back("cut")
    desk.identifies = True
    assert desk.queue.roll_back("cut").plan.scheduler == "cut"
