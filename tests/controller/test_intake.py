"""Before tuples flow, and when they no longer do: changes that wait for them, and what was read and not committed."""

from __future__ import annotations

from controller_setting import FM_ALONE, Desk, told

from fries_nb.controller.events import Admit, DrainRequested, StopRequested, Tick
from fries_nb.controller.intake import PATIENCE, Uncommitted
from fries_nb.protocol.checkpoints import Checkpoint, Restoration
from fries_nb.protocol.messages import Done, Drain, Ended, Prepare, Report, WorkerId

SOURCES = [WorkerId("payments", 0), WorkerId("payments", 1)]


def report(desk: Desk, processed: int, *workers: WorkerId, after_ms: float = 0) -> list:
    """These workers report so many tuples each."""
    said = []
    for worker in workers:
        said += desk.answer(Report(worker, processed, 0), after_ms)
    return said


def test_a_change_before_the_start_waits_for_tuples_and_is_timed_from_them():
    """Hosts that join do not suffice: there would be nothing to rehearse it on, and start-up is no delay."""
    desk = Desk(joined=False)
    assert desk.request(FM_ALONE) == []
    desk.now_ns += 3_000_000_000
    started = desk.join(3)
    assert isinstance(started[0], Admit)
    assert report(desk, 50, *SOURCES, after_ms=100) == []
    assert report(desk, 0, WorkerId("FM", 0)) == []
    assert told(report(desk, 1, WorkerId("FM", 1)), Prepare) == ["FM[0]", "FM[1]"]
    desk.prepared("FM", after_ms=2)
    desk.done(1, "FM", switched=True, after_ms=1)
    outcome = desk.outcomes["u1"]
    assert (outcome.outcome, outcome.waited_ms, outcome.delay_ms) == ("done", 3200.0, 6.0)
    assert [worker.delay_ms for worker in outcome.per_worker.values()] == [5.0, 6.0]


def test_a_change_before_the_start_waits_for_no_source_that_pauses():
    """Nobody knows when its first tuple comes."""
    desk = Desk(joined=False)
    desk.request(FM_ALONE)
    desk.join(3)
    for _ in range(PATIENCE - 1):
        assert report(desk, 0, *SOURCES) == []
    assert told(report(desk, 0, *SOURCES), Prepare) == ["FM[0]", "FM[1]"]


def test_a_change_before_the_start_waits_for_no_source_that_has_ended():
    """An empty one never says anything else."""
    desk = Desk(joined=False)
    desk.request(FM_ALONE)
    desk.join(3)
    assert desk.answer(Ended(SOURCES[0])) == []
    assert told(desk.answer(Ended(SOURCES[1])), Prepare) == ["FM[0]", "FM[1]"]


def test_what_is_not_committed_is_counted_from_the_marker_of_the_last_commit():
    """By where it went past each source, though its files become output later; hosts' last words count, too."""
    desk = Desk(commit_ms=1000)
    report(desk, 400, *SOURCES)
    assert desk.controller.uncommitted == Uncommitted(800, 0, first=True)
    desk.hear(Tick(), after_ms=1000)
    desk.answer(Done(1, SOURCES[0], read=500))
    desk.answer(Done(1, SOURCES[1], read=450))
    report(desk, 700, *SOURCES, after_ms=300)
    assert desk.controller.uncommitted.tuples == 1400
    desk.done(1, "FC", "FM", "MC", "scored")
    assert desk.controller.uncommitted == Uncommitted(450, 1_000_000_000, first=False)
    desk.hear(StopRequested())
    report(desk, 710, *SOURCES)
    assert desk.controller.uncommitted.tuples == 470


def test_a_source_that_has_ended_in_front_of_the_marker_is_wholly_committed():
    """It meets no marker any more."""
    desk = Desk(commit_ms=1000)
    report(desk, 400, *SOURCES)
    desk.answer(Ended(SOURCES[0]))
    desk.hear(Tick(), after_ms=1000)
    desk.answer(Done(1, SOURCES[1], read=400))
    desk.done(1, "FC", "FM", "MC", "scored")
    assert desk.controller.uncommitted.tuples == 0


def test_a_run_that_was_resumed_counts_from_where_it_goes_on():
    """Its workers' first reports say where that is."""
    kept = Checkpoint("r", 7, 2, {}, (), {}, ())
    desk = Desk(checkpoints=True, restored=Restoration(kept))
    report(desk, 10_000, *SOURCES)
    report(desk, 10_070, *SOURCES)
    assert desk.controller.uncommitted.tuples == 140


def test_rows_of_an_earlier_region_are_not_drained():
    """They were read when that region ran."""
    desk = Desk()
    assert told(desk.hear(DrainRequested(spared=frozenset({"payments"}))), Drain) == []
    assert desk.controller.state == "draining"
