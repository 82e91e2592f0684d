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
