"""A change from request to outcome: prepare, decision, FCMs, stages, the queue, and what aborts it."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FM_AND_MC, FM_BY_EPOCH, MC_ALONE, Desk, flow, markers, only, plan, told

from fries_nb.controller.events import ChangeRequested, Journal, Journaled, Resolved, StopRequested, Tell
from fries_nb.controller.states import ChangeProgress, ChangeState
from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import (
    Abort,
    Done,
    Ended,
    Fcm,
    Marker,
    Prepare,
    Prepared,
    Reconfigure,
    Rehearse,
    Rehearsed,
    WorkerId,
)


def test_prepare_goes_to_every_worker_of_every_target():
    """Payload per operator; recent tuples of all workers of an operator for which that was asked."""
    said = Desk().request(FM_AND_MC, rehearse=["FM"])
    assert said == [
        Tell(WorkerId("FM", 0), Prepare("u1", b"FM", True)),
        Tell(WorkerId("FM", 1), Prepare("u1", b"FM", True)),
        Tell(WorkerId("MC", 0), Prepare("u1", b"MC", False)),
        Tell(WorkerId("MC", 1), Prepare("u1", b"MC", False)),
    ]


def test_the_decision_is_journaled_before_the_first_fcm():
    """Nothing leaves before all have prepared; then the journal comes first."""
    desk = Desk()
    desk.request(FM_AND_MC)
    assert desk.prepared("FM") == []
    decided = desk.prepared("MC")
    assert isinstance(decided[0], Journal)
    assert decided[0].decided.change == "u1"
    assert sorted(decided[0].decided.payloads) == ["FM", "MC"]
    marker = Marker(1, frozenset({"FM", "MC"}), Reconfigure("u1", frozenset({"FM", "MC"})))
    assert decided[1:] == [Tell(WorkerId("FM", 0), Fcm(marker)), Tell(WorkerId("FM", 1), Fcm(marker))]


def test_the_progress_of_a_change_is_known_until_it_ends():
    """How many of its workers have prepared, then whether it is rehearsed, then how many have switched."""
    desk = Desk()
    desk.request(FM_AND_MC, rehearse=["FM"])
    desk.request(MC_ALONE, change="u2")

    def progress(change: str = "u1") -> ChangeProgress | None:
        return desk.controller.progress_of(change)

    assert progress() == ChangeProgress(ChangeState.PREPARING, workers=4)
    assert progress("u2") == ChangeProgress(ChangeState.REQUESTED, workers=2)
    desk.answer(Prepared("u1", WorkerId("FM", 1), samples=(b"3",)))
    assert progress() == ChangeProgress(ChangeState.PREPARING, workers=4, prepared=1)
    desk.answer(Prepared("u1", WorkerId("FM", 0)))
    desk.prepared("MC")
    assert progress() == ChangeProgress(ChangeState.PREPARING, workers=4, prepared=4, rehearses=True)
    desk.answer(Rehearsed("u1", WorkerId("FM", 0), tuples=1))
    assert progress() == ChangeProgress(ChangeState.COMMITTING, workers=4, prepared=4)
    desk.answer(Done(1, WorkerId("FM", 0), switched=True))
    assert progress() == ChangeProgress(ChangeState.COMMITTING, workers=4, prepared=4, switched=1)
    desk.answer(Done(1, WorkerId("FM", 1), switched=True))
    desk.done(1, "MC", switched=True)
    assert progress() is None
    assert progress("u2") == ChangeProgress(ChangeState.PREPARING, workers=2)
    assert progress("u3") is None


def test_a_change_is_rehearsed_on_the_tuples_that_came_along():
    """On one host, when all have prepared: of all workers in turn. It is decided when that has gone well."""
    desk = Desk()
    desk.request(FM_AND_MC, rehearse=["FM"])
    desk.answer(Prepared("u1", WorkerId("FM", 1), samples=(b"3",)))
    desk.answer(Prepared("u1", WorkerId("FM", 0), samples=(b"1", b"2")))
    assert desk.prepared("MC") == [Tell(WorkerId("FM", 0), Rehearse("u1", {"FM": (b"1", b"3", b"2")}))]
    with pytest.raises(ProtocolError, match=r"MC\[0\] rehearsed change 'u1', which it was not asked to"):
        desk.answer(Rehearsed("u1", WorkerId("MC", 0)))
    said = desk.answer(Rehearsed("u1", WorkerId("FM", 0), tuples=3, tried=frozenset({"FM", "MC"})))
    assert told(said, Fcm) == ["FM[0]", "FM[1]"]
    desk.done(1, "FM", "MC", switched=True)
    assert desk.outcomes["u1"].rehearsal == "rehearsed on 3 recent tuples through FM, MC"


def test_what_fails_in_the_rehearsal_aborts_the_change():
    """All forget what they prepared; what is said of a rehearsal after an abort is too late to matter."""
    desk = Desk()
    desk.request(FM_ALONE, rehearse=["FM"])
    desk.prepared("FM", samples=(b"1",))
    said = desk.answer(Rehearsed("u1", WorkerId("FM", 0), "MC failed", "Traceback"))
    assert told(said, Abort) == ["FM[0]", "FM[1]"]
    outcome = desk.outcomes["u1"]
    assert (outcome.outcome, outcome.error, outcome.details) == ("aborted", "MC failed", "Traceback")
    assert desk.answer(Rehearsed("u1", WorkerId("FM", 0))) == []


def trial(desk: Desk) -> list[object]:
    """Ask for a trial of FM, with examples."""
    payloads = {"FM": b"FM"}
    asked = ChangeRequested("t1", FM_ALONE, payloads, frozenset({"FM"}), examples=20, is_trial=True)
    return [*desk.hear(asked)]


def test_a_trial_is_rehearsed_and_forgotten():
    """More tuples are asked for; nothing is journaled, and the next change goes on. So it is where nothing has come."""
    desk = Desk()
    assert trial(desk) == [
        Tell(WorkerId("FM", index), Prepare("t1", b"FM", True, examples=20)) for index in (0, 1)
    ]  # fmt: skip
    assert desk.request(MC_ALONE) == []
    asked = desk.prepared("FM", change="t1", samples=tuple(b"%d" % number for number in range(30)))
    [tell] = asked
    assert isinstance(tell, Tell)
    assert isinstance(tell.control, Rehearse)
    assert (len(tell.control.samples["FM"]), tell.control.examples, tell.control.only) == (32, 20, True)
    said = desk.answer(Rehearsed("t1", WorkerId("FM", 0), tuples=20))
    assert not any(isinstance(one, Journal) for one in said)
    assert (told(said, Abort), told(said, Prepare)) == (["FM[0]", "FM[1]"], ["MC[0]", "MC[1]"])
    assert (desk.outcomes["t1"].outcome, desk.outcomes["t1"].has_examples) == ("rehearsed", True)
    desk = Desk()
    trial(desk)
    desk.prepared("FM", change="t1")
    assert (desk.outcomes["t1"].outcome, desk.outcomes["t1"].has_examples) == ("rehearsed", False)
    assert desk.outcomes["t1"].rehearsal.startswith("not rehearsed, since there was no recent tuple")


def test_a_trial_that_would_be_refused_is_aborted():
    """With the words of a change; it has examples all the same."""
    desk = Desk()
    trial(desk)
    desk.prepared("FM", change="t1", samples=(b"1",))
    desk.answer(Rehearsed("t1", WorkerId("FM", 0), "FM failed"))
    outcome = desk.outcomes["t1"]
    assert (outcome.outcome, outcome.error, outcome.has_examples) == ("aborted", "FM failed", True)


def test_a_change_is_done_when_all_targets_are():
    """The outcome comes with the last Done that the stage awaits, and says what each worker did."""
    desk = Desk()
    desk.request(FM_AND_MC)
    desk.prepared("FM", "MC", after_ms=1)
    assert desk.done(1, "FM", after_ms=1, switched=True, old_tuples=5) == []
    resolved = desk.done(1, "MC", after_ms=1, switched=True)
    outcome = desk.outcomes["u1"]
    assert resolved == [Resolved(outcome)]
    assert (outcome.outcome, outcome.prepare_ms, outcome.commit_ms, outcome.delay_ms) == ("done", 4.0, 4.0, 8.0)
    assert outcome.components == (("FM", "MC"),)
    assert {str(worker): (seen.delay_ms, seen.old_tuples) for worker, seen in outcome.per_worker.items()} == {
        "FM[0]": (5.0, 5), "FM[1]": (6.0, 5), "MC[0]": (7.0, 0), "MC[1]": (8.0, 0),
    }  # fmt: skip
    assert desk.controller.changes == {"u1": ChangeState.DONE}


def test_what_the_disk_takes_for_the_decision_is_no_part_of_the_commit():
    """The commit begins when the decision is on disk, and the first FCM leaves."""
    desk = Desk()
    desk.request(FM_ALONE)
    desk.prepared("FM", after_ms=1)
    desk.now_ns += 7_000_000
    assert desk.controller.handle(Journaled("u1", desk.now_ns), desk.now_ns) == []
    desk.done(1, "FM", after_ms=1, switched=True)
    outcome = desk.outcomes["u1"]
    assert (outcome.prepare_ms, outcome.commit_ms, outcome.delay_ms) == (2.0, 2.0, 11.0)


def test_changes_go_one_after_another_in_order_of_request():
    """The second is prepared once the first has ended, not before."""
    desk = Desk()
    desk.request(FM_ALONE, "u1")
    assert desk.request(MC_ALONE, "u2") == []
    assert desk.request(FM_ALONE, "u3") == []
    desk.prepared("FM", change="u1")
    assert told(desk.done(1, "FM"), Prepare) == ["MC[0]", "MC[1]"]
    assert desk.controller.changes == {"u1": ChangeState.DONE, "u2": ChangeState.PREPARING, "u3": ChangeState.REQUESTED}


def test_the_next_decision_waits_until_the_marker_has_retired():
    """By Epoch FM is done long before the sinks are; the next change may prepare, and its FCMs wait."""
    desk = Desk()
    desk.request(FM_BY_EPOCH, "u1")
    desk.request(MC_ALONE, "u2")
    desk.prepared("FM", change="u1")
    desk.done(1, "payments", "FC")
    assert desk.outcomes.keys() == set()
    desk.done(1, "FM")
    assert desk.outcomes["u1"].outcome == "done"
    assert desk.prepared("MC", change="u2") == []
    desk.done(1, "MC")
    assert desk.controller.on_the_way == (1,)
    decided = desk.done(1, "scored")
    assert [marker.id for marker in markers(decided)] == [2]
    assert len(only(decided, Journal)) == 1


def test_stages_run_one_after_another():
    """The second stage's FCMs leave when the first is over and its marker has retired; one decision for both."""
    staged = plan("FM MC", ({"MC": "MC"}, "MC"), ({"FM": "FM MC"}, "FM"))
    desk = Desk()
    desk.request(staged)
    assert told(desk.prepared("FM", "MC"), Fcm) == ["MC[0]", "MC[1]"]
    second = desk.done(1, "MC")
    assert told(second, Fcm) == ["FM[0]", "FM[1]"]
    assert only(second, Journal) == []
    assert "u1" not in desk.outcomes
    desk.done(2, "FM")
    assert desk.outcomes["u1"].outcome == "done"
    assert desk.controller.on_the_way == (2,)


def test_each_component_has_a_marker_of_its_own():
    """Different ids, since one chain may be in both scopes; the lane is free when both have retired."""
    desk = Desk()
    desk.request(plan("FC MC", ({"FC": "FC", "MC": "MC"}, "FC MC")))
    sent = markers(desk.prepared("FC", "MC"))
    assert [(marker.id, set(marker.scope)) for marker in sent] == [(1, {"FC"}), (2, {"MC"})]
    desk.done(1, "FC")
    assert desk.controller.on_the_way == (1, 2)
    desk.done(2, "MC")
    assert desk.controller.on_the_way == ()


def test_heads_of_one_component_share_a_marker():
    """Their markers meet, so they are one."""
    desk = Desk(flow("a>FC b>FM FC>U FM>U U>out"), hosts=1)
    desk.request(plan("FC FM U", ({"FC": "FC FM U", "FM": "FC FM U"}, "FC FM U")))
    said = desk.prepared("FC", "FM", "U")
    assert told(said, Fcm) == ["FC[0]", "FM[0]"]
    assert [marker.id for marker in markers(said)] == [1]


def test_an_error_in_prepare_aborts_with_the_workers_own_words():
    """All target workers forget it, nothing changes, later answers do not matter, the next change goes on."""
    desk = Desk()
    desk.request(FM_ALONE, "u1")
    desk.request(MC_ALONE, "u2")
    said = desk.answer(Prepared("u1", WorkerId("FM", 1), error="FM: open() raised", details="Traceback"), after_ms=2)
    outcome = desk.outcomes["u1"]
    assert told(said, Abort) == ["FM[0]", "FM[1]"]
    assert (outcome.outcome, outcome.error, outcome.details) == ("aborted", "FM: open() raised", "Traceback")
    assert (outcome.prepare_ms, outcome.delay_ms, outcome.per_worker) == (2.0, 0.0, {})
    assert told(said, Prepare) == ["MC[0]", "MC[1]"]
    assert desk.answer(Prepared("u1", WorkerId("FM", 0))) == []
    assert told(desk.prepared("MC", change="u2"), Fcm) == ["MC[0]", "MC[1]"]


def test_a_change_after_the_end_is_aborted_in_words():
    """It resolves at once and disturbs nothing."""
    desk = Desk()
    desk.hear(StopRequested())
    (resolved,) = desk.request(FM_ALONE)
    assert resolved.outcome.outcome == "aborted"
    assert resolved.outcome.error == "the run was over (stopped) before the change was begun; nothing changed"


# ---- workers that have ended


def test_a_worker_that_has_ended_prepares_and_is_not_waited_for():
    """It may be restored with the function; it switches no more, as the outcome says, and passes the marker on."""
    desk = Desk()
    desk.answer(Ended(WorkerId("FM", 0)))
    asked = desk.request(FM_ALONE, rehearse=["FM"])
    assert told(asked, Prepare) == ["FM[0]", "FM[1]"]
    assert [str(tell.worker) for tell in asked if tell.control.rehearse] == ["FM[1]"], "it has a recent tuple"
    assert desk.answer(Prepared("u1", WorkerId("FM", 1))) == []
    assert told(desk.answer(Prepared("u1", WorkerId("FM", 0))), Fcm) == ["FM[0]", "FM[1]"]
    assert desk.answer(Done(1, WorkerId("FM", 0), ended=True)) == []
    desk.answer(Done(1, WorkerId("FM", 1), switched=True))
    outcome = desk.outcomes["u1"]
    assert outcome.outcome == "done"
    assert {str(worker): seen.ended for worker, seen in outcome.per_worker.items()} == {"FM[0]": True, "FM[1]": False}


def test_a_worker_that_ends_while_it_prepares_still_answers():
    """The change waits for it, and then for the other alone."""
    desk = Desk()
    desk.request(FM_ALONE)
    desk.answer(Prepared("u1", WorkerId("FM", 0)))
    assert desk.answer(Ended(WorkerId("FM", 1))) == []
    assert told(desk.answer(Prepared("u1", WorkerId("FM", 1))), Fcm) == ["FM[0]", "FM[1]"]
    desk.answer(Done(1, WorkerId("FM", 0), switched=True))
    assert desk.outcomes["u1"].outcome == "done"


@pytest.mark.parametrize("at", ["before", "meanwhile"])
def test_what_fails_at_a_worker_that_has_ended_aborts_the_change(at):
    """A run that went back to before its end could not be restored. All forget what they prepared, it as well."""
    desk = Desk()
    if at == "before":
        desk.answer(Ended(WorkerId("MC", 1)))
    desk.request(FM_AND_MC)
    if at == "meanwhile":
        desk.answer(Ended(WorkerId("MC", 1)))
    desk.prepared("FM")
    desk.answer(Prepared("u1", WorkerId("MC", 0)))
    said = desk.answer(Prepared("u1", WorkerId("MC", 1), "new MC failed in open(): OSError: no such model"))
    assert told(said, Abort) == ["FM[0]", "FM[1]", "MC[0]", "MC[1]"]
    assert (desk.outcomes["u1"].outcome, told(desk.said, Fcm)) == ("aborted", [])
    assert desk.outcomes["u1"].error == "new MC failed in open(): OSError: no such model"


def test_nothing_is_rehearsed_where_all_have_ended():
    """They prepare; the tuples that they met last may be older than the operators above them."""
    desk = Desk()
    desk.ended("payments", "FC", "FM")
    asked = desk.request(FM_AND_MC, rehearse=["FM"])
    assert told(asked, Prepare) == ["FM[0]", "FM[1]", "MC[0]", "MC[1]"]
    assert not [tell.worker for tell in asked if tell.control.rehearse]


def test_the_end_of_a_worker_counts_as_done():
    """It ends with the FCM on its way to it: no hang, and its answer to the FCM is let pass."""
    desk = Desk()
    desk.request(FM_ALONE)
    desk.prepared("FM")
    desk.answer(Done(1, WorkerId("FM", 0), switched=True))
    desk.answer(Ended(WorkerId("FM", 1)))
    assert desk.outcomes["u1"].outcome == "done"
    assert desk.controller.on_the_way == ()
    assert desk.answer(Done(1, WorkerId("FM", 1), ended=True)) == []


def test_a_change_whose_targets_have_all_ended_is_aborted():
    """Before it begins, with nothing tried, and while it prepares, without a wait for the answers."""
    desk = Desk()
    desk.ended("payments", "FC", "FM")
    (resolved,) = desk.request(FM_ALONE)
    assert resolved.outcome.error == "all workers of FM have ended; there is nothing left to change"
    desk.request(MC_ALONE, "u2")
    assert told(desk.ended("MC"), Abort) == ["MC[0]", "MC[1]"]
    assert desk.outcomes["u2"].error == "all workers of MC have ended; there is nothing left to change"


def test_a_change_that_reached_nobody_is_not_called_done():
    """All targets end between the decision and the FCM."""
    desk = Desk()
    desk.request(FM_ALONE)
    desk.prepared("FM")
    assert told(desk.ended("FM"), Abort) == ["FM[0]", "FM[1]"], "they keep what they prepared"
    outcome = desk.outcomes["u1"]
    assert (outcome.outcome, outcome.error) == ("failed", "all workers of FM ended before the change reached them")
    assert desk.controller.on_the_way == ()


def test_a_marker_that_could_start_nowhere_is_not_sent():
    """Epoch after the sources have ended: refused in words, so the lane stays free for Fries."""
    desk = Desk()
    desk.ended("payments")
    desk.request(FM_BY_EPOCH, "u1")
    desk.prepared("FM")
    assert "epoch starts its marker at payments, whose workers have all ended" in desk.outcomes["u1"].error
    desk.request(FM_ALONE, "u2")
    desk.prepared("FM", change="u2")
    desk.done(1, "FM", switched=True)
    assert desk.outcomes["u2"].outcome == "done"


def test_heads_that_have_ended_still_lead_to_a_worker_that_lives():
    """All workers of FM have ended, U lives on by its other input: the marker goes behind FM's end and reaches it."""
    desk = Desk(flow("a>FM FM>U b>U U>out"), hosts=1)
    desk.ended("a", "FM")
    desk.request(plan("FM U", ({"FM": "FM U"}, "FM U")))
    assert told(desk.prepared("FM", "U"), Fcm) == ["FM[0]"]
    desk.done(1, "U", switched=True)
    assert desk.outcomes["u1"].outcome == "done"


# ---- answers that cannot be


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Prepared("u9", WorkerId("FM", 0)), "'u9', which was never requested"),
        (Prepared("u1", WorkerId("FC", 0)), "does not concern it"),
        (Done(2, WorkerId("FM", 0)), "marker 2, which was never issued"),
        (Done(0, WorkerId("FM", 0)), "marker 0, which was never issued"),
        (Done(1, WorkerId("FC", 0)), "whose scope it is not in"),
        (Done(1, WorkerId("FM", 1)), "for the second time"),
        (Done(1, WorkerId("FM", 2)), "no such worker"),
        (Ended(WorkerId("FX", 0)), "no such worker"),
        (Ended(WorkerId("scored", 0)), "for the second time"),
    ],
)
def test_impossible_answers_are_refused_and_change_nothing(answer, message):
    """Each raises, and the change at hand goes on to its end."""
    desk = Desk()
    desk.answer(Ended(WorkerId("scored", 0)))
    desk.request(FM_ALONE)
    desk.prepared("FM")
    desk.answer(Done(1, WorkerId("FM", 1)))
    with pytest.raises(ProtocolError, match=message):
        desk.answer(answer)
    desk.answer(Done(1, WorkerId("FM", 0)))
    assert desk.outcomes["u1"].outcome == "done"


def test_requests_that_cannot_be_carried_out_are_refused():
    """A second use of an id, a function missing, a stage that would wait for ever."""
    desk = Desk()
    desk.request(FM_ALONE)
    with pytest.raises(ProtocolError, match="requested before"):
        desk.request(FM_ALONE)
    with pytest.raises(ProtocolError, match="ships functions for FM; its targets are FM, MC"):
        desk.hear(ChangeRequested("u2", FM_AND_MC, {"FM": b""}))
    with pytest.raises(ProtocolError, match="awaits MC, which no marker of it reaches"):
        desk.request(plan("FM", ({"FM": "FM"}, "FM MC")), "u2")
    with pytest.raises(ProtocolError, match="scopes of a stage of fries overlap"):
        desk.request(plan("FM MC", ({"FM": "FM MC", "MC": "MC"}, "FM MC")), "u2")
    assert list(desk.controller.changes) == ["u1"]
