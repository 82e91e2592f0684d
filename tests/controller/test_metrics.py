"""Measurements of a run, made of its workers' reports."""

from __future__ import annotations

from fries_nb.controller.metrics import Metrics
from fries_nb.messages import Report, WorkerId


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
