"""Commit markers: when they start, when they give way, and that each file is committed exactly once."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FM_BY_EPOCH, FRAUD, Desk, markers, only, told

from fries_nb.controller.events import (
    BinsRequested,
    CommitFiles,
    DismissHosts,
    DrainRequested,
    Journal,
    RunEnded,
    StopRequested,
    Tell,
    Tick,
)
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.errors import ProtocolError
from fries_nb.planning.schedulers import Send
from fries_nb.protocol.messages import Cancel, Commit, Done, Drain, Ended, Fcm, Installed, Move, Reconfigure, WorkerId
from fries_nb.protocol.partitioning import RoutingTable

EVERYTHING = tuple(FRAUD.by_name)
BUT_SINK = EVERYTHING[:-1]


def test_the_first_tick_after_the_interval_starts_a_commit():
    """To all workers of all sources, with all operators in its scope; not earlier, and not twice."""
    desk = Desk(commit_ms=100)
    assert desk.hear(Tick(), after_ms=99) == []
    started = desk.hear(Tick(), after_ms=1)
    assert told(started, Fcm) == ["payments[0]", "payments[1]"]
    (marker,) = markers(started)
    assert (marker.id, marker.scope, marker.action) == (1, frozenset(EVERYTHING), Commit(1))
    assert desk.hear(Tick(), after_ms=500) == []


def test_commits_that_take_longer_than_their_interval_leave_every_other_turn_to_a_move_of_bins():
    """Then one is always due: it comes between two steps, and a step between two commits."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.take_steps().hear(BinsRequested({"FM": RoutingTable.even(1)}, at_once=200))
    turns = [Commit]
    for _ in range(7):
        desk.hear(Tick(), after_ms=150)
        [marker] = desk.controller.on_the_way
        said = desk.done(marker, *(EVERYTHING if turns[-1] is Commit else ("FC", "FM", "MC")))
        if turns[-1] is Move:
            said += desk.answer(Installed(marker, WorkerId("FM", 0)))
        said += desk.hear(Tick())
        turns += [type(one.control.marker.action) for one in only(said, Tell)[:1]]
    assert turns == [Commit, Move, Commit, Move, Commit, Move, Commit, Commit]  # the three moves of 512 bins


def test_files_are_committed_when_the_marker_has_retired():
    """All workers, not the sinks alone: then the lane is free and the cut is complete."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    assert desk.done(1, "scored", files=("a",)) == []
    assert desk.done(1, *BUT_SINK) == [CommitFiles(1, {"scored": ("a",)})]


def test_an_epoch_without_files_commits_nothing():
    """The instruction is left out, and the next epoch comes."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    assert desk.done(1, *EVERYTHING) == []
    assert markers(desk.hear(Tick(), after_ms=100))[0].action == Commit(2)


def test_without_an_interval_only_the_end_commits():
    """The files of the end make one epoch; then the run has finished and the hosts go home."""
    desk = Desk()
    assert desk.hear(Tick(), after_ms=10**6) == []
    assert told(desk.hear(DrainRequested()), Drain) == ["payments[0]", "payments[1]"]
    desk.ended(*BUT_SINK)
    assert desk.ended("scored", files=("last",)) == [
        CommitFiles(1, {"scored": ("last-0", "last-1")}),
        DismissHosts("the run has finished"),
        RunEnded("finished"),
    ]
    assert desk.controller.state == "finished"


def test_no_commit_starts_once_the_sources_have_ended():
    """A marker would start at none of them."""
    desk = Desk(commit_ms=100)
    desk.ended("payments")
    assert desk.hear(Tick(), after_ms=100) == []


def test_a_decision_cancels_the_commit_on_its_way():
    """At every worker, after the journal and before the FCMs; what sinks closed is committed with the next epoch."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.answer(Done(1, WorkerId("scored", 0), files=("early",)))
    desk.request(FM_ALONE)
    decided = desk.prepared("FM")
    assert isinstance(decided[0], Journal)
    assert told(decided, Cancel) == [str(worker) for worker in desk.workers(*EVERYTHING)]
    assert [type(tell.control) for tell in decided[-2:]] == [Fcm, Fcm]
    assert [type(marker.action) for marker in markers(decided)] == [Reconfigure]
    # This sink answered before it heard of the cancellation: the answer counts for nothing, its file is kept.
    assert desk.answer(Done(1, WorkerId("scored", 1), files=("late",))) == []
    desk.done(2, "FM", switched=True)
    assert markers(desk.hear(Tick()))[0].action == Commit(2)
    desk.done(3, *BUT_SINK)
    assert desk.done(3, "scored") == [CommitFiles(2, {"scored": ("early", "late")})]


def test_a_commit_that_has_retired_is_not_cancelled():
    """Its files are committed already."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.done(1, *EVERYTHING)
    desk.request(FM_ALONE)
    assert told(desk.prepared("FM"), Cancel) == []


def test_no_commit_between_decision_and_retirement():
    """By Epoch the marker is on its way long after FM is done; commits wait for its last acknowledgement."""
    desk = Desk(commit_ms=100)
    desk.request(FM_BY_EPOCH)
    desk.prepared("FM")
    desk.done(1, *BUT_SINK)
    assert desk.outcomes["u1"].outcome == "done"
    assert desk.hear(Tick(), after_ms=1000) == []
    desk.done(1, "scored")
    assert markers(desk.hear(Tick()))[0].action == Commit(1)


def test_a_file_handed_in_twice_is_committed_once():
    """A sink may name the file of a cancelled epoch again."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.done(1, *BUT_SINK)
    desk.answer(Done(1, WorkerId("scored", 0), files=("a",)))
    desk.request(FM_ALONE)
    desk.prepared("FM")
    desk.done(2, "FM")
    desk.hear(Tick(), after_ms=100)
    desk.done(3, *BUT_SINK)
    (commit,) = desk.done(3, "scored", files=("a", "b"))
    assert commit == CommitFiles(2, {"scored": ("a", "b")})


def test_what_a_sink_closes_behind_the_cut_waits_for_the_next_epoch():
    """It was done with the marker and has ended since; its last file is not part of this epoch's cut."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.answer(Done(1, WorkerId("scored", 0), files=("cut",)))
    desk.answer(Ended(WorkerId("scored", 0), files=("behind",)))
    desk.answer(Ended(WorkerId("scored", 1), files=("whole",)))
    assert desk.done(1, *BUT_SINK) == [CommitFiles(1, {"scored": ("cut", "whole")})]
    assert desk.ended(*BUT_SINK)[0] == CommitFiles(2, {"scored": ("behind",)})


def test_the_end_commits_what_a_cancelled_epoch_left():
    """No further marker comes, and the file is not lost."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.answer(Done(1, WorkerId("scored", 0), files=("early",)))
    desk.request(FM_ALONE)
    desk.prepared("FM")
    desk.ended(*BUT_SINK)
    said = desk.ended("scored", files=("rest",))
    assert only(said, CommitFiles) == [CommitFiles(2, {"scored": ("early", "rest-0", "rest-1")})]


def test_a_stopped_run_commits_no_torn_epoch():
    """Files that are no complete cut stay outside of the output."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    desk.done(1, "scored", files=("torn",))
    assert only(desk.hear(StopRequested()), CommitFiles) == []


def test_one_marker_at_a_time():
    """The lane refuses a second marker, and cancels nothing but a commit."""
    lane = MarkerCoordinator(Workers(FRAUD))
    with pytest.raises(ProtocolError, match="can be cancelled on its way"):
        lane.cancel()
    lane.start([Send("FM", frozenset({"FM"}))], Reconfigure("u1", frozenset({"FM"})))
    with pytest.raises(ProtocolError, match="the next marker has to wait"):
        lane.start([Send("FM", frozenset({"FM"}))], Commit(1))
    with pytest.raises(ProtocolError, match="can be cancelled on its way"):
        lane.cancel()
