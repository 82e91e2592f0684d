"""Telemetry is written by one thread and read by others: a reader never sees a part of a report."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fries_nb.controller.events import Recover, RescaleEnded
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import rate
from fries_nb.dataflow.graph import Graph, Kind, Operator
from fries_nb.dataflow.regions import Region
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.telemetry.metrics import HostLoad, Metrics, StateGrowth
from fries_nb.telemetry.run_states import Explanation
from fries_nb.telemetry.telemetry import Telemetry
from fries_nb.transport.envelopes import ProcessUsage


class Slow:
    """A report of a worker that is not known yet; while it is taken in, another thread reads the measurements."""

    def __init__(self, telemetry):
        self.worker, self.processed, self.queued, self.queued_tuples = WorkerId("FM", 0), 7, 0, 0
        self.reads, self.latency, self.columns, self.writes, self.feedback = (), ((1.0, 2),), b"", {}, None
        self.turn_ns = self.blocked_ns = self.failed = self.given = self.keys = self.left_out = 0
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


def test_hosts_that_were_lost_or_have_left_have_no_load():
    """Their last words would be taken for a load of today; what waits is counted at the host of its worker."""
    graph = Graph("two", (Operator("FM", kind=Kind.MAP, workers=2),), ())
    telemetry, topology = Telemetry(graph), Topology.dealt(graph, hosts=2)
    both, one = TopologyStatus.of(topology, (0, 1)), TopologyStatus.of(Topology.dealt(graph, hosts=1), (0,))
    for index, queued in enumerate((100, 23)):
        telemetry.report(Region(graph), Report(WorkerId("FM", index), 7, queued))
    telemetry.used(1, ProcessUsage(1.5, 4096))
    assert telemetry.loads(both) == {1: HostLoad(1.5, 4096, 23)}
    telemetry.used(0, ProcessUsage(0.5, 4096))
    telemetry.rescale_ended(RescaleEnded("r1", "done", 1), 1, one)
    assert telemetry.loads(one) == {0: HostLoad(0.5, 4096, 123)}
    assert telemetry.loads(both) == {0: HostLoad(0.5, 4096, 100)}
    telemetry.recovering(Recover(2, Restoration(None), "a host was lost", 1))
    assert telemetry.loads(one) == {}


def test_an_operator_that_comes_back_is_counted_anew():
    """What was reported of an earlier one of its name is forgotten, and a late report of it before that ignored."""
    metrics, worker = Metrics(("S", "X")), WorkerId("X", 0)
    metrics.add(Report(worker, processed=40, queued=0), 1.0)
    metrics.go_on(("S",))
    metrics.add(Report(worker, processed=41, queued=0), 2.0)
    assert metrics.operators()["X"].processed == 40
    metrics.go_on(("S", "X"))
    assert metrics.operators()["X"].processed == 0
    metrics.add(Report(worker, processed=45, queued=0), 3.0)
    assert metrics.operators()["X"].processed == 45


def test_a_state_that_grows_without_a_bound_is_told() -> None:
    """With its number of keys; not of windows, nor of one that comes to an end, nor after a restart with fewer keys."""
    growth = StateGrowth()
    for minute in range(12):
        keys = {
            "grows": 2_000 * minute, "ends": 90_000 - 90_000 // 2**minute, "few": 50 * minute,
            "restarts": 5_000 * (minute % 7),
        }  # fmt: skip
        growth.add(keys, 60.0 * minute)
    assert [*growth.growing] == ["grows"]
    assert growth.growing["grows"].per_minute == 2_000
    words = str(Explanation((), "", growth.growing.values()))
    assert "22,000 keys, and 2,000 more each minute" in words
    assert "or that end: by ttl=" in words


def test_keys_that_end_by_themselves_are_not_told_to_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a function with a ttl, as those of a dedup within a time; others are."""
    now_s = [0.0]
    monkeypatch.setattr("fries_nb.telemetry.telemetry.time.time", lambda: now_s[0])
    source = DataflowBuilder("keys").source("S", rate(1), time="at")
    source.map("ends", Keeping(), "k", ttl=60)
    source.map("grows", Keeping(), "k")
    source.dedup("fades", "k", within=60)
    graph = source.flow.graph()
    telemetry = Telemetry(graph)
    for minute in range(12):
        now_s[0] = 60.0 * minute
        for name in ("ends", "fades", "grows"):
            telemetry.report(Region(graph), Report(WorkerId(name, 0), 1, 0, keys=2_000 * minute))
    assert [*telemetry.snapshot().growing] == ["grows"]


class Keeping:
    """Keeps a state."""

    def process(self, row: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        """The row."""
        return row


def test_numbers_of_keys_are_kept_once_a_minute() -> None:
    """Also if the clock was set back, after which they begin anew."""
    growth = StateGrowth()
    assert growth.is_due(5.0)
    growth.add({"K": 1}, 5.0)
    assert not growth.is_due(64.0)
    assert growth.is_due(65.0)
    assert growth.is_due(4.0)
