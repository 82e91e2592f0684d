"""Plans that do more than switch: restart, minibatch and multiversion, as the controller carries them out."""

from __future__ import annotations

from controller_setting import FM_ALONE, FRAUD, Desk, flow, markers, only, told

from fries_nb.controller.events import CheckpointEnded, CheckpointKept, HostLost, Journal, Resolved, Tell
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.messages import Commit, Fcm, Prepare, Reconfigure

EVERYTHING = tuple(FRAUD.by_name)

# ---- restart


def test_a_restart_takes_a_checkpoint_and_starts_again_with_the_change():
    """Nothing is decided before the checkpoint is kept; then journal and restart leave together."""
    desk = Desk()
    desk.request(schedule("restart", FRAUD, {"FM"}))
    assert markers(desk.prepared("FM"))[0].action == Commit(1, checkpoint=True)
    desk.done(1, *EVERYTHING)
    desk.saved(1, *EVERYTHING)
    assert only(desk.said, Journal) == []
    ended, journal, recover = desk.hear(CheckpointKept(1))
    assert ended == CheckpointEnded(1)
    assert journal.decided.change == "u1"
    assert recover.incarnation == 4
    assert recover.restoration.checkpoint.epoch == 1
    assert [decided.change for decided in recover.restoration.decided] == ["u1"]
    assert recover.reason == "change 'u1' starts the run again"
    assert desk.controller.state == "recovering"
    assert "u1" not in desk.outcomes
    said = desk.join(4)
    assert only(said, Resolved) == [Resolved(desk.outcomes["u1"])]
    assert desk.outcomes["u1"].outcome == "done"
    assert len(desk.outcomes["u1"].per_worker) == 2


def test_a_restart_without_its_checkpoint_changes_nothing():
    """The disk is full: aborted, in words, and the run goes on."""
    desk = Desk()
    desk.request(schedule("restart", FRAUD, {"FM"}))
    desk.prepared("FM")
    desk.done(1, *EVERYTHING)
    desk.saved(1, *EVERYTHING)
    desk.hear(CheckpointKept(1, "disk full"))
    outcome = desk.outcomes["u1"]
    assert outcome.outcome == "aborted"
    assert outcome.error == (
        "the checkpoint for the restart was aborted (the record could not be written: disk full); "
        "nothing changed"
    )
    assert desk.controller.state == "running"
    assert told(desk.request(FM_ALONE, "u2"), Prepare) == ["FM[0]", "FM[1]"]


def test_a_host_lost_in_a_restart_without_a_place_fails_the_run():
    """As any loss in such a run; the decided change is told to have failed."""
    desk = Desk()
    desk.request(schedule("restart", FRAUD, {"FM"}))
    desk.prepared("FM")
    desk.done(1, *EVERYTHING)
    desk.saved(1, *EVERYTHING)
    desk.hear(CheckpointKept(1))
    desk.hear(HostLost(1, "gone"))
    assert desk.outcomes["u1"].outcome == "failed"
    assert desk.controller.state == "failed"


# ---- the other new stages


def test_minibatch_goes_stage_by_stage_and_counts_the_switch():
    """Hold, switch, release, each when the one before has retired; the delay ends with the last target's switch."""
    desk = Desk(flow("a>b b>out"), hosts=1)
    desk.request(schedule("minibatch", desk.graph, {"b"}))
    actions = [type(marker.action).__name__ for marker in markers(desk.prepared("b"))]
    actions += [type(marker.action).__name__ for marker in markers(desk.done(1, "a", "b", "out", after_ms=1))]
    actions += [type(marker.action).__name__ for marker in markers(desk.done(2, "b", after_ms=1, old_tuples=9))]
    assert actions == ["Hold", "Reconfigure", "Release"]
    desk.done(3, "a", after_ms=5)
    outcome = desk.outcomes["u1"]
    assert (outcome.outcome, outcome.delay_ms) == ("done", 4.0)
    assert [seen.old_tuples for seen in outcome.per_worker.values()] == [9]


def test_a_target_that_ends_behind_the_hold_has_not_switched():
    """Letting the hold pass is no switch; the sources are released all the same."""
    desk = Desk(flow("a>b c>out b>out"), hosts=1)
    desk.request(schedule("minibatch", desk.graph, {"b"}))
    desk.prepared("b")
    desk.ended("a")
    desk.done(1, "b")
    desk.ended("b")
    released = desk.done(1, "c", "out")
    assert told(released, Fcm) == ["b[0]", "a[0]", "c[0]"]
    desk.done(4, "c")
    assert desk.outcomes["u1"].error == "all workers of b ended before the change reached them"


def test_multiversion_tags():
    """One marker from the sources, done when the targets are."""
    desk = Desk(flow("a>b b>out"), hosts=1)
    desk.request(schedule("multiversion", desk.graph, {"b"}))
    assert markers(desk.prepared("b"))[0].action == Reconfigure("u1", frozenset({"b"}), tagged=True)
    desk.done(1, "a", "b")
    assert desk.outcomes["u1"].outcome == "done"


def test_two_changes_by_versions_do_not_overlap():
    """A worker takes tuples of the next version for the change that it has prepared as tagged, so there is but one."""
    desk = Desk(flow("a>b b>c c>out"), hosts=1)
    first = desk.request(schedule("multiversion", desk.graph, {"b"}))
    assert [tell.control.tagged for tell in only(first, Tell)] == [True]
    desk.prepared("b")
    desk.done(1, "a", "b")
    assert told(desk.request(schedule("multiversion", desk.graph, {"c"}), "u2"), Prepare) == []
    desk.done(1, "c")
    assert told(desk.done(1, "out"), Prepare) == ["c[0]"]


def test_a_change_of_another_kind_prepares_behind_one_by_versions():
    """It takes no tuple before its marker."""
    desk = Desk(flow("a>b b>c c>out"), hosts=1)
    desk.request(schedule("multiversion", desk.graph, {"b"}))
    desk.prepared("b")
    desk.done(1, "a", "b")
    second = desk.request(schedule("fries", desk.graph, {"c"}), "u2")
    assert [tell.control.tagged for tell in only(second, Tell)] == [False]
