"""What is kept of a run over time stays small however long it runs, and the shape of it stays."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.simulation.cluster import ManualClock
from fries_nb.telemetry.history import FINE_S, MARKS_KEPT, SHARE, History, QueueHistory
from fries_nb.telemetry.metrics import OperatorMetrics

S = 1_000_000_000
DAY_S = 24 * 3600


def test_a_day_of_queues_is_a_thousand_points_that_keep_its_surge():
    """The last minute in full, the rest thinned with its age; a surge of one second is still to be seen."""
    history, clock = QueueHistory(), ManualClock(0)
    quiet, surge = {"FM": OperatorMetrics(queued=3, rate=100.0)}, {"FM": OperatorMetrics(0, 200.0, 900, 9_000)}
    for quarter in range(4 * DAY_S):
        clock.advance(S // 4)
        history.add(surge if 40_000 <= quarter < 40_004 else quiet, clock() / 1e9)
    points = history.points()
    assert len(points) <= 1_000
    ends = [0.0, *(point.at_s for point in points)]
    steps = [end - start for start, end in pairwise(ends)]
    assert (min(steps), set(steps[-239:]), sum(steps)) == (0.25, {0.25}, DAY_S)
    assert all(step <= max(0.5, (ends[-1] - end) / 30) for step, end in zip(steps, ends[1:], strict=True))
    assert [(point.queued, point.queued_bytes) for point in points if point.queued > 3] == [(900, 9_000)]
    tuples = sum(point.rate * step for point, step in zip(points, steps, strict=True))
    assert tuples == pytest.approx(100 * DAY_S + 100)


def test_peaks_of_all_queues_together_are_not_the_sum_of_peaks():
    """Of merged samples the largest sum: operators that have waited one after the other have not waited together."""
    history = QueueHistory()
    for second in range(1_000):
        queued = {"FM": second % 2 * 7, "MC": (second + 1) % 2 * 7}
        history.add({name: OperatorMetrics(queued=count) for name, count in queued.items()}, float(second))
    assert {point.queued for point in history.waiting()} == {7}
    assert {point.queued for point in history.points() if point.at_s < 500} == {7}


def test_a_clock_that_was_set_back_does_not_stop_the_history():
    """The next sample is taken at once, and not when the time of the last one comes again."""
    history = QueueHistory()
    assert [history.is_due(at_s) for at_s in (100.0, 100.1, 100.25)] == [False, False, True]
    history.add({}, 100.25)
    assert [history.is_due(at_s) for at_s in (100.3, 50.0)] == [False, True]


def test_hours_of_latencies_are_kept_whole_and_are_coarser_with_age():
    """Ten minutes in full; of the rest no tuple, no peak and no long gap is lost; medians are weighted by tuples."""
    history, clock, whole_s = History(), ManualClock(0), 4 * 3600
    for second in range(whole_s):
        clock.advance(S)
        surge, quiet = second == 3_000, 8_000 <= second < 10_000
        latency = ((4.0, 30), (9_000.0, 3)) if surge else ((4.0, 3),) if second % 2 else ((8.0, 1),)
        history.add(Report(WorkerId("out", 0), second, 0, latency=() if quiet else latency), clock() / 1e9)
    points = history.points()
    assert (len(points) <= 3_500, points[0].at_s) == (True, 2.0)
    steps = [(end, end.at_s - start.at_s) for start, end in pairwise(points)]
    assert {step for end, step in steps if end.at_s > whole_s - FINE_S} == {1.0}
    [gap] = [step for end, step in steps if end.is_idle]
    assert gap == pytest.approx(2_000, abs=15)
    assert all(step <= max(2.0, (whole_s - end.at_s) * SHARE) for end, step in steps if not end.is_idle)
    assert sum(end.rate * step for end, step in steps) == pytest.approx(2 * (whole_s - 2_000) + 32, abs=10)
    [peak] = [point for point in points if point.p99_ms > 10]
    assert (peak.p99_ms, peak.at_s) == (pytest.approx(9_000, rel=0.01), pytest.approx(3_000, abs=20))
    merged = [end.p50_ms for end, step in steps if step > 10 and not end.is_idle and end is not peak]
    assert merged == pytest.approx([5.0] * len(merged), rel=0.1)


def test_the_marks_of_a_day_are_bounded_and_keep_the_changes():
    """Of many checkpoints the oldest marks go; those of changes stay until there are as many of them."""
    history, clock = History(), ManualClock()
    history.mark("u1", "request", "FM by fries", clock() / 1e9)
    for second in range(DAY_S):
        clock.advance(S)
        history.mark(f"c{second}", "checkpoint", f"checkpoint {second}", clock() / 1e9)
    assert len(history.marks()) == MARKS_KEPT
    marks = history.marks()
    assert (marks[0].change, marks[1].change, marks[-1].change) == ("u1", f"c{DAY_S - MARKS_KEPT + 1}", f"c{DAY_S - 1}")
    for number in range(MARKS_KEPT):
        history.mark(f"u{number + 2}", "request", "FM by fries", clock() / 1e9)
    assert (len(history.marks()), history.marks()[0].change) == (MARKS_KEPT, "u2")
