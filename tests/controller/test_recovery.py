"""Hosts that are lost: what survives, what is aborted, what the new incarnation is told, and when it is enough."""

from __future__ import annotations

import pytest
from controller_setting import FM_ALONE, FM_AND_MC, FM_BY_EPOCH, FRAUD, MC_ALONE, Desk, markers, only, told

from fries_nb.controller.commits import Recovery
from fries_nb.controller.events import (
    Admit,
    Answered,
    CheckpointEnded,
    CheckpointKept,
    CheckpointRequested,
    CommitFiles,
    DrainRequested,
    HostJoined,
    HostLeft,
    HostLost,
    RateRequested,
    Recover,
    RefuseHost,
    Resolved,
    RunEnded,
    StopRequested,
    Tell,
    Tick,
)
from fries_nb.controller.states import ChangeState
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange, ParkedOperator, Restoration
from fries_nb.protocol.messages import (
    Abort,
    Commit,
    Done,
    Drain,
    Ended,
    Failed,
    Fcm,
    Prepare,
    Prepared,
    Saved,
    SetRate,
    WorkerId,
)

EVERYTHING = tuple(FRAUD.by_name)
BUT_SINK = EVERYTHING[:-1]
GONE = HostLost(1, "its process was killed")


def desk_with_place(**extra) -> Desk:
    """A run with a checkpoint place, and commits every 100 ms."""
    return Desk(commit_ms=100, checkpoints=True, run="r7", **extra)


def keep(desk: Desk, marker: int, epoch: int, *files: str) -> None:
    """A whole checkpoint."""
    desk.hear(Tick(), after_ms=100)
    desk.done(marker, *BUT_SINK)
    desk.answer(Done(marker, WorkerId("scored", 0), files=files))
    desk.answer(Done(marker, WorkerId("scored", 1)))
    desk.saved(epoch, *EVERYTHING)
    desk.hear(CheckpointKept(epoch))


@pytest.mark.parametrize("event", [GONE, HostLeft(1), HostJoined(1, "x", 3), HostJoined(1, "x", 4)])
def test_a_lost_host_starts_a_new_incarnation_from_the_last_record(event):
    """However it shows; whoever said hello without being expected is turned away."""
    desk = desk_with_place()
    keep(desk, 1, 1, "a")
    said = desk.hear(event)
    (recover,) = only(said, Recover)
    assert said[-1] is recover
    assert (recover.incarnation, recover.restoration.checkpoint.epoch) == (4, 1)
    assert recover.reason.startswith("host 1 was lost (")
    assert len(only(said, RefuseHost)) == isinstance(event, HostJoined)
    assert desk.controller.state == "recovering"
    assert desk.join(4) == [Admit({0: "tcp://host0", 1: "tcp://host1"})]
    assert desk.controller.state == "running"


def test_before_the_first_record_it_starts_from_what_the_run_started_from():
    """The beginning, or the checkpoint that was resumed with all that was decided then."""
    assert desk_with_place().hear(GONE) == [
        Recover(4, Restoration(None), "host 1 was lost (its process was killed)", hosts=2),
    ]
    restored = Restoration(Checkpoint("r7", 41, 2, {}), (CommittedChange("u0", "fries", (), {"FM": b""}, 2),))
    (recover,) = desk_with_place(restored=restored).hear(GONE)
    assert recover.restoration == restored


@pytest.mark.parametrize("joined", [[], [0]])
def test_a_host_lost_while_others_join_is_recovered_from(joined):
    """Those that had joined come again as the next incarnation."""
    desk = desk_with_place(joined=False)
    for host in joined:
        desk.hear(HostJoined(host, "x", 3))
    (recover,) = desk.hear(GONE)
    assert recover.incarnation == 4
    assert desk.hear(HostJoined(0, "x", 3)) == [RefuseHost(0, "incarnation 3 is over; this run is at incarnation 4")]
    assert only(desk.join(4), Admit)


# ---- changes


def test_a_change_that_prepares_is_aborted_and_those_that_wait_wait_on():
    """Nobody is left to be told; the next one is prepared when all have joined."""
    desk = desk_with_place()
    desk.request(FM_ALONE, "u1")
    desk.request(MC_ALONE, "u2")
    said = desk.hear(GONE)
    assert only(said, Tell) == []
    assert desk.outcomes["u1"].error == (
        "host 1 was lost (its process was killed) before the change was decided; nothing changed"
    )
    assert desk.request(FM_ALONE, "u3") == []
    assert told(desk.join(4), Prepare) == ["MC[0]", "MC[1]"]
    assert desk.controller.changes == {
        "u1": ChangeState.ABORTED, "u2": ChangeState.PREPARING, "u3": ChangeState.REQUESTED,
    }  # fmt: skip


@pytest.mark.parametrize("switched", [(), ("FM",)])
def test_a_change_that_is_decided_is_carried_out_by_the_restoration(switched):
    """Between journal and FCM as well as half way: done when all have joined, and the delay has counted on."""
    desk = desk_with_place()
    desk.request(FM_AND_MC)
    desk.prepared("FM", "MC", after_ms=1)
    desk.done(1, *switched, switched=True, old_tuples=7)
    (recover,) = desk.hear(GONE, after_ms=10)
    assert [(each.change, sorted(each.payloads)) for each in recover.restoration.decided] == [("u1", ["FM", "MC"])]
    assert "u1" not in desk.outcomes
    desk.now_ns += 30_000_000
    joined = desk.join(4)
    assert isinstance(joined[0], Admit)
    outcome = desk.outcomes["u1"]
    assert joined[1] == Resolved(outcome)
    assert (outcome.outcome, outcome.delay_ms, len(outcome.per_worker)) == ("done", 44.0, 4)
    assert not any(seen.ended for seen in outcome.per_worker.values())
    assert desk.controller.on_the_way == ()


def test_a_target_that_had_ended_at_the_checkpoint_has_not_switched():
    """The outcome says so after a recovery, too."""
    desk = desk_with_place()
    desk.answer(Ended(WorkerId("FM", 0)))
    desk.hear(Tick(), after_ms=100)
    living = [worker for worker in desk.workers(*EVERYTHING) if worker != ("FM", 0)]
    for worker in living:
        desk.answer(Done(1, worker))
    desk.saved(1, *BUT_SINK[:2], "MC", "scored")
    desk.answer(Saved(1, WorkerId("FM", 1), "1/FM[1]"))
    desk.hear(CheckpointKept(1))
    desk.request(FM_ALONE)
    desk.prepared("FM")
    desk.hear(GONE)
    desk.join(4)
    outcome = desk.outcomes["u1"]
    assert {str(worker): seen.ended for worker, seen in outcome.per_worker.items()} == {"FM[0]": True, "FM[1]": False}


def test_a_marker_on_its_way_is_gone_with_its_workers():
    """The lane is free for the next incarnation, and ids go on."""
    desk = desk_with_place()
    desk.request(FM_BY_EPOCH)
    desk.prepared("FM")
    desk.done(1, *BUT_SINK)
    desk.hear(GONE)
    desk.join(4)
    desk.request(MC_ALONE, "u2")
    assert [marker.id for marker in markers(desk.prepared("MC", change="u2"))] == [2]


# ---- checkpoints


def test_a_checkpoint_that_is_not_kept_is_lost_and_its_requests_wait_on():
    """Its files are written again, into others; who asked is answered by the next."""
    desk = desk_with_place()
    desk.hear(CheckpointRequested("c1"))
    desk.done(1, *BUT_SINK)
    desk.answer(Done(1, WorkerId("scored", 0), files=("lost",)))
    desk.answer(Done(1, WorkerId("scored", 1)))
    assert only(desk.hear(GONE), CheckpointEnded) == []
    joined = desk.join(4)
    assert markers(joined)[0].action == Commit(2, checkpoint=True)
    desk.done(2, *BUT_SINK)
    desk.done(2, "scored", files=("again",))
    desk.saved(2, *EVERYTHING)
    assert desk.hear(CheckpointKept(2)) == [CommitFiles(2, {"scored": ("again",)}), CheckpointEnded(2, ("c1",))]


@pytest.mark.parametrize(("reason", "epoch"), [("", 1), ("disk full", None)])
def test_a_recovery_waits_for_a_record_that_is_being_written(reason, epoch):
    """Whether it counts is not known before; who is lost or speaks meanwhile does not matter."""
    desk = desk_with_place()
    desk.hear(Tick(), after_ms=100)
    desk.done(1, *EVERYTHING, files=("a",))
    desk.saved(1, *EVERYTHING)
    assert desk.hear(GONE) == desk.hear(HostLost(0, "too")) == desk.answer(Failed(WorkerId("FM", 0), "late")) == []
    said = desk.hear(CheckpointKept(1, reason))
    recover = said[-1]
    assert isinstance(recover, Recover)
    kept = recover.restoration.checkpoint
    assert (kept.epoch if kept else None) == epoch
    assert len(only(said, CommitFiles)) == (epoch is not None)


# ---- who is heard


def test_what_an_older_incarnation_says_counts_for_nothing():
    """While others are awaited, and when it is told apart by its number; hellos are refused."""
    desk = desk_with_place()
    desk.request(FM_ALONE)
    desk.hear(GONE)
    assert desk.answer(Prepared("u1", WorkerId("FM", 0))) == []
    assert desk.hear(HostLost(0, "late", incarnation=3)) == []
    desk.join(4)
    for late in (HostLost(0, "late", 3), HostLeft(0, 3), Answered(Ended(WorkerId("FM", 0)), 3)):
        assert desk.hear(late) == []
    assert desk.controller.state == "running"
    assert isinstance(desk.hear(HostJoined(0, "x", 3))[0], RefuseHost)
    desk.answer(Ended(WorkerId("FM", 0)))


def test_rates_and_drain_reach_the_new_incarnation():
    """The last rate of each source, asked for before or during the recovery; what was draining goes on draining."""
    desk = desk_with_place()
    desk.hear(RateRequested("payments", 10))
    desk.hear(RateRequested("payments", 20))
    (recover,) = desk.hear(GONE)
    assert recover.rates == {"payments": 20.0}
    assert desk.hear(DrainRequested()) == []
    joined = desk.join(4)
    assert [tell.control for tell in only(joined, Tell)] == [SetRate(20.0), SetRate(20.0), Drain(), Drain()]
    assert desk.controller.state == "draining"
    desk.hear(GONE)
    assert told(desk.join(5), Drain) == ["payments[0]", "payments[1]"]


def test_a_host_that_is_lost_after_its_hello_is_lost_again():
    """During a recovery as at any other time; that it is silent for an hour, as in ``open()``, is no loss."""
    desk = desk_with_place()
    desk.hear(GONE)
    desk.hear(HostJoined(0, "x", 4))
    assert desk.hear(Tick(), after_ms=3_600_000) == []
    (recover,) = desk.hear(HostLost(0, "its process is gone", 4))
    assert isinstance(recover, Recover)
    assert recover.incarnation == 5


# ---- when it is enough


def test_a_run_that_is_lost_again_and_again_is_given_up():
    """More than ten times without a new record; one in between starts the count anew."""
    desk = desk_with_place()
    for incarnation in range(4, 13):
        assert only(desk.hear(GONE), Recover)
        desk.join(incarnation)
    keep(desk, 1, 1)
    for incarnation in range(13, 23):
        assert only(desk.hear(GONE), Recover)
        desk.join(incarnation)
    ended = desk.hear(GONE)[-1]
    assert ended == RunEnded(
        "failed",
        "host 1 was lost (its process was killed), and the run was recovered 10 times without a new checkpoint in "
        "between; what was committed stays readable",
    )


def test_an_error_of_the_users_is_not_recovered_from():
    """It would come again."""
    desk = desk_with_place()
    assert desk.answer(Failed(WorkerId("FM", 0), "boom"))[-1] == RunEnded("failed", "boom")


def test_a_stop_during_a_recovery_ends_the_run():
    """The change that was decided has failed, the others are aborted, and nobody is told."""
    desk = desk_with_place()
    desk.request(FM_ALONE, "u1")
    desk.request(MC_ALONE, "u2")
    desk.prepared("FM")
    desk.hear(GONE)
    said = desk.hear(StopRequested())
    assert told(said, Abort) == told(said, Fcm) == []
    assert [desk.outcomes[change].outcome for change in ("u1", "u2")] == ["failed", "aborted"]
    assert said[-1] == RunEnded("stopped")


def test_an_operator_begins_with_what_the_last_change_has_given_it_since_the_checkpoint() -> None:
    """Whatever the checkpoint, or a file, has of an operator of its name: the rows since then are read again."""
    recovery = Recovery(1)
    for change, states in (("u1", b"1"), ("u2", b""), ("u3", b"3")):
        recovery.decide(change, "fries", (), {}, shape=b"shape", given={"N": states})
    assert [recovery.given_to(name) for name in ("N", "M")] == [b"3", None]
    recovery.keep(Checkpoint("r", 1, 1, {"N[0]": "1-1/N-0"}, decided=("u1", "u2"), workers={"N": 1}, decisions=2))
    recovery.decide("u4", "fries", (), {}, shape=b"shape")
    recovery.remove(["N"], ())
    recovery.parked["N"] = ParkedOperator({"N[0]": "parked-4-1/N-0"}, 1)
    recovery.lose({})
    restoration = recovery.again("a host was lost", 1).restoration
    assert (restoration.given_to("N"), recovery.parked) == (b"3", {})
    recovery.keep(Checkpoint("r", 2, 2, {}, decided=("u1", "u2", "u3", "u4"), workers={}, decisions=4))
    assert recovery.given_to("N") is None
    assert not any(one.given for one in recovery.decided)
