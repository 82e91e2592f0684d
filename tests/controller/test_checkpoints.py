"""Checkpoints: when they start, what completes them, what becomes of requests, and when they become output."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FRAUD, Desk, flow, markers, only, plan, told

from fries_nb.controller.commits import Checkpoints, CommitNumbers, Recovery
from fries_nb.controller.coordinator import alone
from fries_nb.controller.events import (
    CheckpointEnded,
    CheckpointKept,
    CheckpointRequested,
    CommitFiles,
    CommitsHeld,
    DismissHosts,
    HostLost,
    Journal,
    KeepCheckpoint,
    RunEnded,
    StopRequested,
    Tick,
)
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.errors import ProtocolError
from fries_nb.protocol.checkpoints import Checkpoint, Restoration
from fries_nb.protocol.messages import Abort, Cancel, Commit, Done, Ended, Fcm, Saved, WorkerId

EVERYTHING = tuple(FRAUD.by_name)
BUT_SINK = EVERYTHING[:-1]
ALL = {f"{name}[{index}]": f"1/{name}[{index}]" for name in EVERYTHING for index in (0, 1)}
TWO_EACH = dict.fromkeys(EVERYTHING, 2)


def desk_with_place(**extra) -> Desk:
    """A run with a checkpoint place, and commits every 100 ms."""
    return Desk(commit_ms=100, checkpoints=True, run="r7", **extra)


def marked(desk: Desk, marker: int = 1, files: tuple[str, ...] = ("a",)) -> None:
    """The marker of a checkpoint goes through."""
    desk.hear(Tick(), after_ms=100)
    desk.done(marker, *BUT_SINK)
    desk.answer(Done(marker, WorkerId("scored", 0), files=files))
    desk.answer(Done(marker, WorkerId("scored", 1)))


def test_a_checkpoint_is_kept_when_all_have_saved_and_committed_when_it_is_kept():
    """Marker, snapshots, record, output: each waits for the one before."""
    desk = desk_with_place()
    desk.hear(Tick(), after_ms=100)
    (marker,) = markers(desk.said)
    assert marker.action == Commit(1, checkpoint=True)
    assert desk.done(1, *BUT_SINK) == []
    assert desk.saved(1, *BUT_SINK) == []
    desk.answer(Done(1, WorkerId("scored", 0), files=("a",)))
    desk.answer(Done(1, WorkerId("scored", 1)))
    record = Checkpoint("r7", 1, 3, ALL, (), {"scored": ("a",)}, (), TWO_EACH)
    assert desk.saved(1, "scored") == [KeepCheckpoint(record)]
    assert only(desk.said, CommitFiles) == []
    assert desk.hear(CheckpointKept(1)) == [CommitFiles(1, {"scored": ("a",)}), CheckpointEnded(1)]


def test_snapshots_may_be_there_before_the_marker_is_through():
    """The record waits for the marker: before that the cut is not complete."""
    desk = desk_with_place()
    desk.hear(Tick(), after_ms=100)
    desk.done(1, *BUT_SINK)
    desk.saved(1, *BUT_SINK)
    desk.answer(Done(1, WorkerId("scored", 0)))
    assert desk.answer(Saved(1, WorkerId("scored", 0), "s")) == []
    assert desk.answer(Done(1, WorkerId("scored", 1))) == []
    assert only(desk.answer(Saved(1, WorkerId("scored", 1), "s")), KeepCheckpoint)


def test_who_ended_in_front_of_the_marker_needs_no_snapshot():
    """Before it started, or while it was on the way; one that ends behind it still owes its snapshot."""
    desk = desk_with_place()
    desk.answer(Ended(WorkerId("payments", 0)))
    desk.hear(Tick(), after_ms=100)
    desk.answer(Ended(WorkerId("FC", 0)))
    desk.answer(Done(1, WorkerId("scored", 1), files=("cut",)))
    desk.answer(Ended(WorkerId("scored", 1), files=("behind",)))
    for worker in desk.workers(*EVERYTHING):
        if str(worker) not in ("payments[0]", "FC[0]", "scored[1]"):
            desk.answer(Done(1, worker))
            assert desk.answer(Saved(1, worker, "s")) == []
    (keep,) = desk.answer(Saved(1, WorkerId("scored", 1), "s"))
    assert keep.record.ended == ("payments[0]", "FC[0]")
    assert set(keep.record.snapshots) == ALL.keys() - {"payments[0]", "FC[0]"}
    assert keep.record.sinks == {"scored": ("cut",)}


def test_every_operator_of_a_chain_owes_a_snapshot():
    """Whatever the hosts chain, so that the checkpoint can be resumed under other chains."""
    operators = (Operator("a", kind=Kind.SOURCE), Operator("b"), Operator("c"), Operator("out", kind=Kind.SINK))
    edges = (Edge("a", "b"), Edge("b", "c"), Edge("c", "out", Partitioning.REBALANCE))
    for chaining in (True, False):
        desk = Desk(Graph("chain", operators, edges), hosts=1, commit_ms=100, checkpoints=True, chaining=chaining)
        desk.hear(Tick(), after_ms=100)
        desk.done(1, "a", "b", "c", "out")
        assert desk.saved(1, "a", "b", "out") == []
        (keep,) = desk.saved(1, "c")
        assert sorted(keep.record.snapshots) == ["a[0]", "b[0]", "c[0]", "out[0]"]


@pytest.mark.parametrize("where", ["snapshot", "record"])
def test_a_full_disk_costs_a_checkpoint_and_nothing_else(where):
    """The user is told, the files wait for the next one, and the run goes on."""
    desk = desk_with_place()
    desk.hear(CheckpointRequested("c1"))
    marked(desk)
    if where == "snapshot":
        desk.answer(Saved(1, WorkerId("FM", 0), error="disk full"))
        (ended,) = only(desk.said, CheckpointEnded)
        assert ended.reason == "the snapshot of FM[0] could not be written: disk full"
        assert desk.answer(Saved(1, WorkerId("FM", 1), "late")) == []
    else:
        desk.saved(1, *EVERYTHING)
        (ended,) = only(desk.hear(CheckpointKept(1, "disk full")), CheckpointEnded)
        assert ended.reason == "the record could not be written: disk full"
    assert (ended.epoch, ended.requests) == (1, ("c1",))
    assert only(desk.said, CommitFiles) == []
    marked(desk, 2, files=("a", "b"))
    desk.saved(2, *EVERYTHING)
    held, over = only(desk.said, CommitsHeld), CommitsHeld()
    assert held == [CommitsHeld(ended.reason, 0, failed=True)]
    assert desk.hear(CheckpointKept(2)) == [CommitFiles(2, {"scored": ("a", "b")}), CheckpointEnded(2), over]


@pytest.mark.parametrize("where", ["snapshot", "record"])
def test_a_run_that_can_do_without_checkpoints_goes_on_without_and_never_goes_back(where):
    """Its output goes on, so going back would repeat it; a lost host ends it from then on."""
    desk = desk_with_place(optional=True)
    marked(desk)
    desk.saved(1, *EVERYTHING)
    desk.hear(CheckpointKept(1))
    marked(desk, 2, files=("b",))
    if where == "snapshot":
        desk.answer(Saved(2, WorkerId("FM", 0), error="cannot pickle a lock"))
    else:
        desk.saved(2, *EVERYTHING)
        desk.hear(CheckpointKept(2, "disk full"))
    assert only(desk.said, CommitsHeld) == []
    marked(desk, 3, files=("c",))
    assert markers(desk.said)[-1].action == Commit(3, checkpoint=False)
    assert only(desk.said, CommitFiles)[-1] == CommitFiles(3, {"scored": ("b", "c")})
    [ended] = only(desk.hear(HostLost(0, "gone", 3)), RunEnded)
    assert ended.state == "failed"


def test_the_end_of_such_a_run_needs_no_record():
    """What a failed final record would have committed is committed without it."""
    desk = desk_with_place(optional=True)
    for name in EVERYTHING:
        for index in (0, 1):
            desk.answer(Ended(WorkerId(name, index)))
    [keep] = only(desk.said, KeepCheckpoint)
    said = desk.hear(CheckpointKept(keep.record.epoch, "disk full"))
    assert [ended.state for ended in only(said, RunEnded)] == ["finished"]


def test_a_decision_cancels_the_marker_and_the_requests_wait_for_the_next():
    """No snapshot of the cancelled one counts, however late it comes."""
    desk = desk_with_place()
    desk.hear(CheckpointRequested("c1"))
    desk.answer(Done(1, WorkerId("FM", 0)))
    desk.request(FM_ALONE)
    decided = desk.prepared("FM")
    assert isinstance(decided[0], Journal)
    assert len(told(decided, Cancel)) == len(desk.workers(*EVERYTHING))
    assert desk.answer(Saved(1, WorkerId("FM", 0), "late")) == []
    again = desk.done(2, "FM", switched=True)
    assert [marker.action for marker in markers(again)] == [Commit(2, checkpoint=True)]
    desk.done(3, *EVERYTHING)
    desk.saved(2, *EVERYTHING)
    (keep,) = only(desk.said, KeepCheckpoint)
    assert keep.record.decided == ("u1",)
    assert desk.hear(CheckpointKept(2)) == [CheckpointEnded(2, ("c1",))]


def test_a_checkpoint_whose_marker_is_through_completes_beside_a_change():
    """It holds the state in front of the change, and says so."""
    desk = desk_with_place()
    marked(desk)
    desk.request(FM_ALONE)
    decided = desk.prepared("FM")
    assert told(decided, Cancel) == []
    assert told(decided, Fcm) == ["FM[0]", "FM[1]"]
    (keep,) = desk.saved(1, *EVERYTHING)
    assert keep.record.decided == ()
    assert desk.hear(CheckpointKept(1))[0] == CommitFiles(1, {"scored": ("a",)})


def test_a_record_to_be_kept_is_the_last_instruction_of_its_event():
    """Its answer may be heard while it is obeyed, so that nothing may stand behind it: here, an abort."""
    desk = desk_with_place()
    desk.hear(Tick(), after_ms=100)
    desk.answer(Ended(WorkerId("FM", 1)))
    for worker in desk.workers(*EVERYTHING):
        if worker.operator != "FM":
            desk.answer(Done(1, worker))
            desk.answer(Saved(1, worker, "s"))
    desk.request(FM_ALONE)
    said = desk.answer(Ended(WorkerId("FM", 0)))
    assert told(said, Abort) == ["FM[0]", "FM[1]"]
    assert isinstance(said[-1], KeepCheckpoint)


def test_one_checkpoint_at_a_time():
    """Neither the interval nor a request starts another while one is being saved or kept."""
    desk = desk_with_place()
    marked(desk)
    assert desk.hear(Tick(), after_ms=500) == []
    assert desk.hear(CheckpointRequested("c1")) == []
    (keep,) = desk.saved(1, *EVERYTHING)
    assert keep.record.epoch == 1
    kept = desk.hear(CheckpointKept(1))
    assert only(kept, CheckpointEnded) == [CheckpointEnded(1)]
    assert markers(kept)[0].action == Commit(2, checkpoint=True)


def test_requests_share_a_checkpoint_that_starts_after_them():
    """Two that wait are answered by one; one that comes while the marker is on the way by the next."""
    desk = Desk()
    desk.request(plan("FM", ({"payments": "payments FC FM MC scored"}, "FM")))
    desk.prepared("FM")
    assert desk.hear(CheckpointRequested("c1")) == desk.hear(CheckpointRequested("c2")) == []
    started = desk.done(1, *EVERYTHING)
    assert markers(started)[0].action == Commit(1, checkpoint=True)
    desk.hear(CheckpointRequested("c3"))
    desk.done(2, *EVERYTHING)
    desk.saved(1, *EVERYTHING)
    kept = desk.hear(CheckpointKept(1))
    assert kept[0] == CheckpointEnded(1, ("c1", "c2"))
    assert markers(kept)[0].action == Commit(2, checkpoint=True)
    with pytest.raises(ProtocolError, match="'c3' was made before"):
        desk.hear(CheckpointRequested("c3"))


def test_without_a_place_only_what_is_asked_for_is_a_checkpoint():
    """Commits stay as they were."""
    desk = Desk(commit_ms=100)
    desk.hear(Tick(), after_ms=100)
    assert desk.done(1, *BUT_SINK) == []
    assert desk.done(1, "scored", files=("a",)) == [CommitFiles(1, {"scored": ("a",)})]
    assert markers(desk.hear(CheckpointRequested("c1")))[0].action == Commit(2, checkpoint=True)


# ---- the end


def test_the_end_keeps_a_last_record_before_it_commits():
    """It names no snapshot: all have ended."""
    desk = desk_with_place()
    desk.ended(*BUT_SINK)
    assert desk.hear(CheckpointRequested("c1")) == []
    (keep,) = desk.ended("scored", files=("last",))
    assert keep.record == Checkpoint("r7", 1, 3, {}, tuple(ALL), {"scored": ("last-0", "last-1")}, (), TWO_EACH)
    assert desk.hear(Tick()) == []
    assert desk.hear(CheckpointKept(1)) == [
        CommitFiles(1, {"scored": ("last-0", "last-1")}),
        CheckpointEnded(1, ("c1",)),
        DismissHosts("the run has finished"),
        RunEnded("finished"),
    ]


def test_a_host_lost_while_the_last_record_is_written_is_not_missed():
    """Nobody is needed any more."""
    desk = desk_with_place()
    desk.ended(*EVERYTHING)
    assert desk.hear(HostLost(0, "its task has ended")) == []
    assert desk.hear(CheckpointKept(1))[-1] == RunEnded("finished")


def test_a_last_record_that_cannot_be_written_fails_the_run():
    """Output without its record would come twice in a run resumed from here."""
    desk = desk_with_place()
    desk.ended(*EVERYTHING, files=("last",))
    said = desk.hear(CheckpointKept(1, "disk full"))
    assert only(said, CommitFiles) == []
    assert said[-1].error == "the last checkpoint could not be kept (disk full); what was committed stays readable"


def test_the_last_record_covers_a_checkpoint_that_is_being_saved():
    """All end while snapshots are on their way to the disk; they come late and do not matter."""
    desk = desk_with_place()
    desk.hear(CheckpointRequested("c1"))
    desk.done(1, *BUT_SINK)
    desk.answer(Done(1, WorkerId("scored", 0), files=("cut",)))
    desk.answer(Done(1, WorkerId("scored", 1)))
    (keep,) = only(desk.ended(*EVERYTHING), KeepCheckpoint)
    assert (keep.record.epoch, keep.record.sinks) == (2, {"scored": ("cut",)})
    assert desk.answer(Saved(1, WorkerId("FM", 0), "late")) == []
    assert CheckpointEnded(2, ("c1",)) in desk.hear(CheckpointKept(2))


def test_the_last_record_waits_for_one_that_is_being_written():
    """One at a time, and each commits its own files."""
    desk = desk_with_place()
    marked(desk)
    desk.saved(1, *EVERYTHING)
    assert desk.ended(*EVERYTHING, files=("b",)) == []
    first = desk.hear(CheckpointKept(1))
    assert first[:2] == [CommitFiles(1, {"scored": ("a",)}), CheckpointEnded(1)]
    assert first[2].record.epoch == 2


def test_without_a_place_a_request_that_comes_too_late_is_refused():
    """The sources have ended, so that no marker can start, and then the run has finished."""
    desk = Desk()
    desk.ended("payments")
    assert desk.hear(CheckpointRequested("c1")) == []
    said = desk.ended(*EVERYTHING[1:])
    assert only(said, CheckpointEnded)[0].requests == ("c1",)
    assert only(said, CheckpointEnded)[0].reason == "the run has finished"
    (refused,) = desk.hear(CheckpointRequested("c2"))
    assert (refused.requests, refused.reason) == (("c2",), "the run is over (finished)")


def test_a_stop_answers_requests_and_a_record_being_written_still_decides():
    """What is on disk counts, whatever happened meanwhile."""
    desk = desk_with_place()
    desk.hear(CheckpointRequested("c1"))
    desk.done(1, *BUT_SINK)
    desk.answer(Done(1, WorkerId("scored", 0), files=("a",)))
    desk.answer(Done(1, WorkerId("scored", 1)))
    desk.saved(1, *EVERYTHING)
    desk.hear(CheckpointRequested("c2"))
    said = desk.hear(StopRequested())
    assert only(said, CheckpointEnded)[0].requests == ("c2",)
    assert desk.hear(CheckpointKept(1)) == [CommitFiles(1, {"scored": ("a",)}), CheckpointEnded(1, ("c1",))]


def test_epochs_go_on_from_the_restored_one():
    """And the record knows what was applied before."""
    restored = Restoration(Checkpoint("r7", 41, 2, {}))
    desk = desk_with_place(restored=restored)
    assert markers(desk.hear(Tick(), after_ms=100))[0].action == Commit(42, checkpoint=True)


@pytest.mark.parametrize(("then", "owed"), [(2, False), (1, False), (3, True)])
def test_a_worker_that_had_ended_owes_no_snapshot_unless_it_shares_the_work_of_others_now(then, owed):
    """Of three workers one had not ended: if two are restored, each of them may have its splits."""
    record = Checkpoint("r7", 41, 2, {}, ended=("payments[0]", "payments[1]"), workers={"payments": then})
    desk = desk_with_place(restored=Restoration(record))
    desk.hear(Tick(), after_ms=100)
    desk.done(1, *BUT_SINK)
    desk.done(1, "scored")
    desk.saved(42, *EVERYTHING[1:])
    assert bool(only(desk.said, KeepCheckpoint)) is not owed


# ---- the protocol


def attempt() -> Checkpoints:
    """Nothing under way, over a small flow."""
    workers = Workers(flow("a>b b>out"))
    return Checkpoints(workers, MarkerCoordinator(workers), CommitNumbers(None), Recovery(1), "r", alone)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Saved(2, WorkerId("FM", 0), "s"), "epoch 2, which has not begun"),
        (Saved(1, WorkerId("FM", 0), "s"), "to which it owes no snapshot"),
        (Saved(1, WorkerId("FC", 0), "s"), "to which it owes no snapshot"),
    ],
)
def test_snapshots_that_nobody_owes_are_refused(event, message):
    """Before its Done, for the second time, of an epoch to come; the checkpoint goes on."""
    desk = desk_with_place()
    desk.hear(Tick(), after_ms=100)
    desk.done(1, "FC")
    desk.saved(1, "FC")
    with pytest.raises(ProtocolError, match=message):
        desk.answer(event)
    with pytest.raises(ProtocolError, match="checkpoint 1 was kept, and 1 is marking"):
        desk.hear(CheckpointKept(1))
    desk.done(1, "payments", "FM", "MC", "scored")
    assert only(desk.saved(1, "payments", "FM", "MC", "scored"), KeepCheckpoint)
