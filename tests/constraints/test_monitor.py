"""The verdicts of a monitor, from measurements that are given by hand, on a manual clock."""

from __future__ import annotations

from math import inf

import pytest
from monitor_setting import TASKS, Watch, buffer, channel, replace_index, sample, task

from fries_nb.constraints import sequences
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.constraints.sequences import RunningMeans
from fries_nb.dataflow import edge
from fries_nb.protocol.messages import QueueMeasured, WorkerId

VIOLATED, MET, UNJUDGED = ConstraintStatus.VIOLATED, ConstraintStatus.MET, ConstraintStatus.NOT_YET_JUDGED


def test_met_with_the_numbers():
    """Mean, worst, each element, and why."""
    verdict = Watch()(*TASKS, sample("AB", 40.0), sample("BC", 50.0), buffer("AB", 4.0), buffer("BC", 5.0))
    assert (verdict.status, verdict.mean_ms, verdict.worst_ms, verdict.tasks_ms) == (MET, 150.0, 150.0, 60.0)
    assert [(one.element, one.mean_ms, one.worst_ms, one.buffer_ms) for one in verdict.elements] == [
        ("A", 10.0, 10.0, 0.0), ("A -> B", 40.0, 40.0, 4.0), ("B", 20.0, 20.0, 0.0), ("B -> C", 50.0, 50.0, 5.0),
        ("C", 30.0, 30.0, 0.0),
    ]  # fmt: skip
    assert verdict.worst == (WorkerId("A", 0), WorkerId("B", 0), WorkerId("C", 0))
    assert verdict.reason == "the worst sequence, A[0] -> B[0] -> C[0], takes 150 ms, at most 300 ms"
    assert (verdict.sequence, verdict.limit_ms, verdict.rows) == ("A -> B -> C", 300.0, 10.0)


def test_violated_with_the_cause():
    """The element with the largest share is named; two workers differ, and the worst sequence is that of the worse."""
    watch = Watch(workers=2)
    tasks = [replace_index(one, index) for one in TASKS for index in (0, 1)]
    samples = [sample("AB", 10.0, 0, 0), sample("AB", 20.0, 1, 1)]
    samples += [sample("BC", 30.0 + 400 * (b == 1 and c == 0), b, c) for b in (0, 1) for c in (0, 1)]
    verdict = watch(*tasks, *samples)
    assert verdict.status is VIOLATED
    assert verdict.worst == (WorkerId("A", 1), WorkerId("B", 1), WorkerId("C", 0))
    assert verdict.reason == "A[1] -> B[1] -> C[0] takes 510 ms, at most 300 ms: 430 ms of it at B -> C"
    assert verdict.worst_ms == 510.0
    assert verdict.mean_ms < verdict.worst_ms


def test_not_yet_judged_names_what_is_missing():
    """Elements without any sample; with all of them it is judged."""
    watch = Watch()
    assert watch().reason == "no sample yet of A, B, C, A -> B, B -> C"
    verdict = watch(*TASKS, sample("AB", 1.0))
    assert (verdict.status, verdict.reason) == (UNJUDGED, "no sample yet of B -> C")
    assert (verdict.mean_ms, verdict.worst_ms, verdict.elements) == (None, None, ())
    assert watch(sample("BC", 1.0)).status is MET


def test_samples_end_with_the_window():
    """After it nothing is judged, and not what was."""
    watch = Watch(window_s=5)
    assert watch(*TASKS, sample("AB", 400.0), sample("BC", 1.0)).status is VIOLATED
    assert watch(seconds=4.9).status is VIOLATED
    assert watch(seconds=0.1).status is UNJUDGED


def test_samples_weigh_by_their_number(monkeypatch):
    """99 quick rows and a slow one; a mean of means would be a violation."""
    measured = (*TASKS, sample("AB", 10.0, samples=99), sample("BC", 1.0))
    watch = Watch(limit_ms=100.0)
    watch(*measured)
    assert watch(sample("AB", 1_010.0)).worst_ms == pytest.approx(81.0)
    monkeypatch.setattr(RunningMeans, "add", lambda *given, add=RunningMeans.add: add(*given[:4], [1] * len(given[4])))
    mutant = Watch(limit_ms=100.0)
    mutant(*measured)
    assert mutant(sample("AB", 1_010.0)).status is VIOLATED


def test_only_elements_of_the_sequence_count():
    """An edge at the end counts without the operator behind it; sources and sinks have no latency."""
    watch = Watch(sequence=("B", edge("B", "C")))
    assert watch(task("B", 20.0), sample("BC", 50.0)).worst_ms == 70.0
    assert watch(task("C", 500.0), task("A", 500.0), sample("AB", 500.0)).worst_ms == 70.0
    assert Watch(sequence=("B",))(task("B", 20.0)).worst_ms == 20.0
    assert Watch(sequence=("S", "A"))(sample("SA", 7.0), task("A", 2.0), task("S", 99.0)).worst_ms == 9.0


def test_a_stalled_path_is_violated():
    """Rows wait, none is taken: from the first report on, though older samples are in the window."""
    watch = Watch()
    assert watch(*TASKS, sample("AB", 1.0), sample("BC", 1.0)).status is MET
    verdict = watch(task("A", 10.0), sample("AB", 1.0), QueueMeasured(channel("BC"), 40, 0.0))
    assert (verdict.status, verdict.worst_ms, verdict.mean_ms) == (VIOLATED, inf, inf)
    assert verdict.reason.endswith("has no end, at most 300 ms: rows wait at B -> C, and none is taken")
    assert watch(sample("BC", 1.0)).worst_ms == 62.0


def test_a_queue_counts_as_its_length_over_its_rate():
    """500 rows at a thousand a second wait for half a second; a short queue does not make a channel quicker."""
    watch = Watch()
    assert watch(*TASKS, sample("AB", 1.0), QueueMeasured(channel("BC"), 500, 1_000.0)).worst_ms == 561.0
    assert watch(sample("BC", 100.0)).worst_ms == 161.0
    assert watch(QueueMeasured(channel("BC"), 5, 1_000.0)).worst_ms == 161.0
    assert watch(QueueMeasured(channel("BC"), 0, 0.0)).worst_ms == 161.0, "an empty queue is no stall"
    assert watch(sample("BC", 100.0), QueueMeasured(channel("BC"), 500, 1_000.0)).worst_ms == 161.0, "it has a sample"


def test_a_stall_is_found_without_any_sample_behind_it():
    """Behind the stalled worker nothing was ever measured; a mutant that waits for it never judges."""
    measured = (task("A", 10.0), QueueMeasured(channel("AB"), 40, 0.0))
    assert Watch()(*measured).status is VIOLATED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fries_nb.constraints.measured_allocation.with_stalls", lambda layers, queued: layers)
        assert Watch()(*measured).status is UNJUDGED
    assert sequences.with_stalls is not None


def test_a_limit_below_the_tasks_is_said_after_the_first_window():
    """With the numbers."""
    watch = Watch(limit_ms=50.0, window_s=5)
    measured = (*TASKS, sample("AB", 100.0), sample("BC", 1.0))
    assert watch(*measured).reason == "A[0] -> B[0] -> C[0] takes 161 ms, at most 50 ms: 100 ms of it at A -> B"
    for _ in range(4):
        assert "takes 161 ms" in watch(*measured).reason
    verdict = watch(*measured)
    expected = "the limit of 50 ms is below the task latencies: A 10 ms + B 20 ms + C 30 ms = 60 ms"
    assert (verdict.reason, verdict.tasks_ms, verdict.status) == (expected, 60.0, VIOLATED)


def test_clocks_that_differ_prevent_a_judgement():
    """By more than a tenth of the limit in sum over the channels between hosts; forward ones are on one host."""
    measured = [replace_index(one, index) for one in TASKS for index in (0, 1)]
    measured += [sample("AB", 1.0, index, index) for index in (0, 1)]
    measured += [sample("BC", 900.0, b, c) for b in (0, 1) for c in (0, 1)]
    watch = Watch(workers=2, hosts=2, window_s=5)
    verdict = watch(*measured, clock_error_ms=31.0)
    assert (verdict.status, watch.instructions) == (UNJUDGED, [])
    assert "differ by up to 31 ms along the sequence, more than a tenth of the limit of 300 ms" in verdict.reason
    assert watch(*measured, seconds=5, clock_error_ms=30.0).status is VIOLATED
    assert Watch(workers=2, hosts=1)(*measured, clock_error_ms=900.0).status is VIOLATED


def test_violated_windows_are_counted_from_the_first_violation():
    """A verdict within the limit ends the count."""
    watch = Watch(window_s=2)
    high, low = (*TASKS, sample("AB", 900.0), sample("BC", 1.0)), (*TASKS, sample("AB", 1.0), sample("BC", 1.0))
    assert [watch(*high).violated_windows for _ in range(6)] == [0, 0, 1, 1, 2, 2]
    assert watch(*low, seconds=2).violated_windows == 0
    assert [watch(*high, seconds=2).violated_windows for _ in range(3)] == [0, 1, 2]
