"""Measurements of a run, made of its workers' reports."""

from __future__ import annotations

import pytest

from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.telemetry.metrics import Metrics

S = 1_000_000_000


def test_the_most_that_versions_have_held_is_kept_when_they_hold_nothing_any_more() -> None:
    """Worker by worker, and added up: both states lie in memory only while old tuples remain."""
    metrics = Metrics(["FD"])
    for now_s, held in enumerate([(0, 300), (500, 100), (0, 0)]):
        for index, size in enumerate(held):
            metrics.add(Report(WorkerId("FD", index), 10, 0, held=size), float(now_s))
        last = metrics.snapshot().operators["FD"]
        assert last.held_bytes == sum(held)
    assert last.held_peak == 500 + 300


def test_tuples_of_workers_that_have_left_count_and_their_rates_do_not():
    """Nor do reports of them that come late; a later worker of the same index begins anew."""
    metrics = Metrics(["FM"])
    for now_s, processed in ((1.0, 100), (2.0, 200)):
        for index in (0, 1):
            metrics.add(Report(WorkerId("FM", index), processed, 0), now_s)
    assert metrics.worker_rates() == {WorkerId("FM", 0): 100.0, WorkerId("FM", 1): 100.0}
    metrics.depart([WorkerId("FM", 1)])
    metrics.add(Report(WorkerId("FM", 1), 210, 0), 2.1)
    found = metrics.snapshot().operators["FM"]
    assert (found.processed, found.rate) == (400, 100.0)
    metrics.expect_all()
    metrics.add(Report(WorkerId("FM", 1), 7, 0), 9.0)
    assert metrics.snapshot().operators["FM"].processed == 407
    assert metrics.worker_rates()[WorkerId("FM", 1)] == 0.0


def test_an_operator_is_as_busy_and_blocked_as_its_workers_on_average():
    """Over three seconds, or between the last two reports of a worker that reports less often; never more than 1."""
    metrics = Metrics(["FM", "MC"])
    for quarter in range(41):  # FM[0] works 0.2 s of each quarter in the last 5 s, and waits for credit before
        works = quarter > 20
        report = Report(WorkerId("FM", 0), quarter, 0, turn_ns=S // 5 * works, blocked_ns=S // 10 * (not works))
        metrics.add(report, quarter / 4)
        metrics.add(Report(WorkerId("FM", 1), quarter, 0, turn_ns=S), quarter / 4)  # reports that came late
    found = metrics.snapshot().operators
    assert (found["FM"].busy, found["FM"].blocked) == (pytest.approx((0.8 + 1.0) / 2), 0.0)
    assert (found["MC"].busy, found["MC"].blocked) == (0.0, 0.0)
    for at_s, turn_ns in ((10.0, 0), (20.0, 9 * S), (30.0, 4 * S)):
        metrics.add(Report(WorkerId("MC", 0), 100, 0, turn_ns=turn_ns, blocked_ns=turn_ns // 2), at_s)
    slow = metrics.snapshot().operators["MC"]
    assert (slow.busy, slow.blocked) == (pytest.approx(0.4), pytest.approx(0.2))
    metrics.add(Report(WorkerId("MC", 0), 50, 0, turn_ns=S), 30.1)  # restored from a checkpoint
    assert metrics.snapshot().operators["MC"].busy == 0.0
    metrics.rest(["FM"])
    assert metrics.snapshot().operators["FM"].busy == 0.0
