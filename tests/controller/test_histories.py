"""What is kept of a run over time stays small however long it runs, and the shape of it stays."""

from __future__ import annotations

from itertools import pairwise

import pytest

from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.simulation.cluster import ManualClock
from fries_nb.telemetry.history import KEPT, MARKS_KEPT, History, QueueHistory
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


def test_a_clock_that_was_set_back_does_not_stop_the_history():
    """The next sample is taken at once, and not when the time of the last one comes again."""
    history = QueueHistory()
    assert [history.is_due(at_s) for at_s in (100.0, 100.1, 100.25)] == [False, False, True]
    history.add({}, 100.25)
    assert [history.is_due(at_s) for at_s in (100.3, 50.0)] == [False, True]


def test_a_day_of_latencies_and_marks_is_bounded_and_keeps_the_changes():
    """Of many checkpoints the oldest marks go; those of changes stay until there are as many of them."""
    history, clock = History(), ManualClock()
    history.mark("u1", "request", "FM by fries", clock() / 1e9)
    for second in range(DAY_S):
        clock.advance(S)
        if second % 4 == 0:
            history.add(Report(WorkerId("out", 0), second, 0, latency=((4.0, 1),)), clock() / 1e9)
        history.mark(f"c{second}", "checkpoint", f"checkpoint {second}", clock() / 1e9)
    assert (len(history.points()), len(history.marks())) == (KEPT, MARKS_KEPT)
    marks = history.marks()
    assert (marks[0].change, marks[1].change, marks[-1].change) == ("u1", f"c{DAY_S - MARKS_KEPT + 1}", f"c{DAY_S - 1}")
    for number in range(MARKS_KEPT):
        history.mark(f"u{number + 2}", "request", "FM by fries", clock() / 1e9)
    assert (len(history.marks()), history.marks()[0].change) == (MARKS_KEPT, "u2")
