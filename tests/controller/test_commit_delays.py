"""What keeps a run from committing is told: at the first failure, when nothing completes, and when it is over."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FRAUD, Desk, flow, only

from fries_nb.controller.events import CheckpointKept, CheckpointRequested, CommitsHeld, RunEnded, StopRequested, Tick
from fries_nb.protocol.messages import Done, Ended, Paused, Report, Saved, WorkerId

EVERYTHING = tuple(FRAUD.by_name)
MINUTE_MS = 60_000


def desk_of(commit_ms: int | None = 100, **extra) -> Desk:
    """A run with checkpoints."""
    return Desk(commit_ms=commit_ms, **{"checkpoints": True, "run": "r7"} | extra)


def passed(desk: Desk, ms: int) -> list[CommitsHeld]:
    """Time passes, tick by tick of half a second; what is told of commits then."""
    told = []
    for _ in range(ms // 500):
        told += only(desk.hear(Tick(), after_ms=500), CommitsHeld)
    return told


def complete(desk: Desk, marker: int) -> None:
    """The checkpoint under way succeeds."""
    desk.done(marker, *EVERYTHING)
    desk.saved(marker, *EVERYTHING)
    desk.hear(CheckpointKept(marker))


def test_a_failure_is_told_at_once_and_its_end_too():
    """Not only after a while; and a second failure for the same reason is no news."""
    desk = desk_of()
    for marker in (1, 2):
        desk.hear(Tick(), after_ms=100)
        desk.done(marker, *EVERYTHING)
        desk.answer(Saved(marker, WorkerId("FM", 0), error="TypeError: cannot pickle a lock"))
    (held,) = only(desk.said, CommitsHeld)
    assert held.failed
    assert held.reason == "the snapshot of FM[0] could not be written: TypeError: cannot pickle a lock"
    desk.hear(Tick(), after_ms=100)
    complete(desk, 3)
    assert only(desk.said, CommitsHeld) == [held, CommitsHeld()]


def test_a_requested_checkpoint_of_a_run_without_any_is_answered_to_its_requester_alone():
    """Its output does not depend on it."""
    desk = desk_of(checkpoints=False)
    desk.hear(CheckpointRequested("c1"), after_ms=0)
    desk.done(1, *EVERYTHING)
    desk.answer(Saved(1, WorkerId("FM", 0), error="no"))
    assert not only(desk.said, CommitsHeld)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_worker_that_is_stuck_is_named_after_a_minute(checkpoints):
    """The first one that the marker has not passed, with what waits there; those behind it are not at fault."""
    desk = desk_of(checkpoints=checkpoints)
    desk.hear(Tick(), after_ms=100)
    desk.done(1, "payments", "FC")
    desk.answer(Done(1, WorkerId("FM", 1)))
    desk.answer(Report(WorkerId("FM", 0), 12, 900, queued_tuples=1_204))
    assert passed(desk, MINUTE_MS - 1_000) == []
    (held,) = passed(desk, 5_000)
    assert held == CommitsHeld(
        "the marker of commit 1 has not passed FM[0], which is still at work (1,204 tuples wait there)", 0
    )
    desk.done(1, "MC", "scored")
    desk.answer(Done(1, WorkerId("FM", 0)))
    if checkpoints:
        desk.saved(1, *EVERYTHING)
        desk.hear(CheckpointKept(1))
    assert only(desk.said, CommitsHeld) == [held, CommitsHeld()]


def test_long_intervals_are_not_late_after_a_minute():
    """Three of them must have passed."""
    desk = desk_of(commit_ms=10 * MINUTE_MS)
    assert passed(desk, 30 * MINUTE_MS - 1_000) == []
    assert len(passed(desk, 2_000)) == 1


def test_without_an_interval_nothing_is_late():
    """Only the end commits, as declared."""
    assert passed(desk_of(commit_ms=None, checkpoints=False), 10 * MINUTE_MS) == []


def test_snapshots_and_a_record_that_are_not_written_are_told():
    """A slow or hanging store."""
    desk = desk_of()
    desk.hear(Tick(), after_ms=100)
    desk.done(1, *EVERYTHING)
    desk.saved(1, "payments", "FC", "FM", "scored")
    (held,) = passed(desk, MINUTE_MS + 1_000)
    assert held.reason == "checkpoint 1 waits until the state of MC[0], MC[1] is written"
    desk.saved(1, "MC")
    (held,) = passed(desk, 1_500)
    assert held.reason == "the record of checkpoint 1 is being written"


def test_a_paused_operator_is_named_before_and_behind_the_marker():
    """No checkpoint begins while it is paused, and none passes it."""
    desk = Desk(flow("a>b b>c", workers=1), commit_ms=100, checkpoints=True, run="r7")
    desk.hear(Tick(), after_ms=100)
    desk.done(1, "a")
    desk.answer(Paused(WorkerId("b", 0), "b failed"))
    (behind,) = passed(desk, MINUTE_MS + 1_000)
    assert behind.reason == (
        "the marker of commit 1 waits behind b[0], which is paused on a tuple on which it failed"
    )
    other = Desk(flow("a>b b>c", workers=1), commit_ms=100, checkpoints=True, run="r7")
    other.answer(Paused(WorkerId("b", 0), "b failed"))
    (before,) = passed(other, MINUTE_MS + 1_000)
    assert before.reason == "b[0] is paused on a tuple on which it failed"


def test_the_marker_of_a_change_that_does_not_come_through_is_named():
    """Checkpoints wait for it."""
    desk = desk_of()
    desk.request(FM_ALONE)
    desk.prepared("FM")
    (held,) = passed(desk, MINUTE_MS + 1_000)
    assert held.reason == "the marker of a change has not passed FM[0], FM[1], which are still at work"


def test_after_the_end_of_the_sources_the_rest_is_committed_at_the_end():
    """Which may take long, and is said."""
    desk = desk_of()
    for index in (0, 1):
        desk.answer(Ended(WorkerId("payments", index)))
    (held,) = passed(desk, MINUTE_MS + 1_000)
    assert held.reason == (
        "its sources have ended, and the rest is committed at the end; FC[0], FC[1], FM[0] and 5 more, "
        "which are still at work"
    )


def test_nothing_is_told_after_the_end():
    """The error of the run is what counts then."""
    desk = desk_of()
    desk.hear(StopRequested())
    assert only(desk.said, RunEnded)
    assert passed(desk, 2 * MINUTE_MS) == []
