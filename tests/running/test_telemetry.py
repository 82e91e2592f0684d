"""Telemetry is written by one thread and read by others: a reader never sees a part of a report."""

from __future__ import annotations

import threading

from fries_nb.dataflow.graph import Graph, Kind, Operator
from fries_nb.dataflow.regions import Region
from fries_nb.messages import WorkerId
from fries_nb.running.telemetry import Telemetry


class Slow:
    """A report of a worker that is not known yet; while it is taken in, another thread reads the measurements."""

    def __init__(self, telemetry):
        self.worker, self.processed, self.queued, self.queued_tuples = WorkerId("FM", 0), 7, 0, 0
        self.reads, self.latency, self.columns, self.writes, self.feedback = (), ((1.0, 2),), b"", {}, None
        self.turn_ns = self.blocked_ns = 0
        self.found = []
        self.reader = threading.Thread(target=lambda: self.found.append(telemetry.snapshot()))

    @property
    def held(self):
        """Looked at in the middle of taking it in; the reader then has all the time that it needs, or waits."""
        if not self.reader.ident:
            self.reader.start()
            self.reader.join(0.2)
        return 0


def test_measurements_are_not_read_while_they_are_written(monkeypatch):
    """The reader has waited, and sees the report as a whole; it was a KeyError, which ended a view."""
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    graph = Graph("one", (Operator("FM", kind=Kind.MAP),), ())
    telemetry = Telemetry(graph)
    report = Slow(telemetry)
    telemetry.report(Region(graph), report)
    report.reader.join()
    assert failures == []
    assert [snapshot.operators["FM"].processed for snapshot in report.found] == [7]
