"""A change of a function that takes seconds for a tuple waits for the tuple in hand, and for no other.

The host is the real one, with its threads; only its sockets are replaced. A tuple takes as long as the test holds it.
"""

from __future__ import annotations

import queue
import sys
import threading

import cloudpickle
import pyarrow as pa
import pytest
from patience import PATIENCE_S

from fries_nb.connectors.sink import OpenSinks
from fries_nb.dataflow.columns import DUE
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.host import host as hosting
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.host.region_spec import Options, RegionSpec
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import (
    ChannelId,
    Data,
    Done,
    Fcm,
    Marker,
    Prepare,
    Prepared,
    Reconfigure,
    Report,
    WorkerId,
)
from fries_nb.protocol.topology import Topology, wire
from fries_nb.transport.envelopes import Said, ToWorker
from fries_nb.transport.sockets import make_keys
from fries_nb.worker import turns
from fries_nb.worker.events import Arrived, Granted
from fries_nb.worker.worker import Worker


class Gate:
    """Where tuples are held, one at a time."""

    def __init__(self):
        self.entered = queue.SimpleQueue()
        self.free = threading.Semaphore(0)
        self.clock_s = 0

    def pass_through(self, version, number):
        """Wait at the gate; behind it ten seconds have passed."""
        self.entered.put((version, number))
        self.free.acquire()
        self.clock_s += 10


gate = Gate()


class Links:
    """In the place of sockets: acts as a controller that decides as soon as all is prepared."""

    def __init__(self, *_, **__):
        self.prepared = threading.Event()
        self.done = threading.Event()
        self.errors = []
        self.decide = None

    def say(self, message):
        for answer in message.answers if isinstance(message, Said) else ():
            if isinstance(answer, Prepared):
                self.errors.append(answer.error)
                self.decide()
                self.prepared.set()
            elif isinstance(answer, Done):
                self.done.set()

    def post(self, *_):
        pass


class Slow:
    """A function that takes ten seconds for a tuple by the worker's clock, and as long as the test likes by ours."""

    def __init__(self, version):
        self.version = version

    def process(self, row):
        if not threading.current_thread().name.startswith("fries-prepare"):  # not in a rehearsal
            gate.pass_through(self.version, row["n"])
        return row | {"version": self.version}


def host_of(monkeypatch, *operators):
    """A host with one worker that runs this chain between A and Z, which are elsewhere."""
    monkeypatch.setattr(hosting, "HostLinks", Links)
    names = ["A", *(one.name for one in operators), "Z"]
    graph = Graph("slow", (Operator("A", kind=Kind.SOURCE), *operators, Operator("Z", kind=Kind.SINK)),
                  tuple(map(Edge, names, names[1:])))  # fmt: skip
    options = Options(2, 1 << 20, False, True, None, 10.0, 0)
    heads = dict.fromkeys(names, "M")
    region = RegionSpec("r", 1, graph, {}, {}, {}, "", make_keys().hosts, "127.0.0.1", options, heads)
    host = hosting.Host(region, 0, "", None)
    instances = [Instance(WorkerId(one.name, 0), one, one.function, False) for one in operators]
    wiring = wire(Topology.dealt(graph, 1), tuple(names[1:-1]), 0)
    worker = Worker(wiring, instances, 1 << 20, lambda: gate.clock_s * 10**9)
    hosted = HostedWorker(worker, host._environment, host._core.carry_out, OpenSinks({}))
    host._progress = host._linked(region.topology)
    host._core.admit(host._core.topology, {instance.worker: hosted for instance in instances})
    hosted.post(Granted(ChannelId(instances[-1].worker, WorkerId("Z", 0)), 1 << 20))
    return host, hosted


@pytest.mark.parametrize(
    "operators",
    [
        (Operator("M", function=Slow("old")),),
        (Operator("M", function=lambda row: row), Operator("N", function=Slow("old"))),
    ],
    ids=["alone", "in a chain"],
)
def test_a_change_of_a_slow_function_waits_for_the_tuple_in_hand_only(monkeypatch, operators):
    """Requested while tuple 3 is in hand: tuple 4 is the new function's. It was the seventh tuple that was, once."""
    monkeypatch.setattr(sys.modules[__name__], "gate", Gate())
    monkeypatch.setattr(turns, "HANDOFF_NS", 0)
    host, hosted = host_of(monkeypatch, *operators)
    target = WorkerId(operators[-1].name, 0)
    marker = Marker(1, frozenset({target.operator}), Reconfigure("u1", frozenset({target.operator})))
    host._links.decide = lambda: host._hear(ToWorker(target, Fcm(marker)), [])
    channel = ChannelId(WorkerId("A", 0), WorkerId("M", 0))
    for number in range(8):
        hosted.post(Arrived(channel, Data(pa.RecordBatch.from_pydict({"n": [number], DUE: [0]}), size=1)))
    host._deal({0: "tcp://here:1"})
    host._start()
    try:
        for number in range(4):
            assert gate.entered.get(timeout=PATIENCE_S) == ("old", number)
            if number == 0:  # all tuples came in one slice, which this ends
                hosted.worker.interrupt.set()
            if number < 3:
                gate.free.release()
        host._hear(ToWorker(target, Prepare("u1", cloudpickle.dumps(Update(Slow("new"))))), [])
        host._links.prepared.wait(PATIENCE_S)
        gate.free.release(5)
        versions = [gate.entered.get(timeout=PATIENCE_S)[0] for _ in range(4)]
        assert versions == ["new"] * 4
        assert host._links.done.wait(PATIENCE_S)
        assert host._links.errors == [""]
    finally:
        gate.free.release(8)
        assert host._end_threads() == ()


@pytest.mark.parametrize(
    "operators",
    [
        (Operator("M", function=Slow("old")),),
        (Operator("M", function=lambda row: row), Operator("N", function=Slow("old"))),
    ],
    ids=["alone", "in a chain"],
)
def test_a_worker_inside_a_call_is_busy_before_the_call_returns(monkeypatch, operators):
    """It cannot report itself then; what waits for it is known as well, and nothing counts twice when it returns."""
    monkeypatch.setattr(sys.modules[__name__], "gate", Gate())
    host, hosted = host_of(monkeypatch, *operators)
    told = []
    host._links.say = lambda message: told.extend(
        one for one in getattr(message, "answers", ()) if isinstance(one, Report) and one.worker.operator == "M"
    )
    channel = ChannelId(WorkerId("A", 0), WorkerId("M", 0))
    frame = Data(pa.RecordBatch.from_pydict({"n": [0, 1, 2], DUE: [0] * 3}), size=9)
    hosted.post(Arrived(channel, frame))
    host._deal({0: "tcp://here:1"})
    host._start()
    try:
        gate.entered.get(timeout=PATIENCE_S)
        hosted.post(Arrived(channel, frame))
        for _ in range(4):  # the first one asks the worker, which cannot answer
            gate.clock_s += 2
            host._tick()
        inside = told[-3:]
        assert sum(one.turn_ns for one in inside) == 8 * 10**9
        assert [one.turn_ns for one in inside[1:]] == [2 * 10**9] * 2
        assert inside[-1].queued_tuples >= 3
        gate.free.release(6)
        for _ in range(5):
            gate.entered.get(timeout=PATIENCE_S)
    finally:
        gate.free.release(8)
        assert host._end_threads() == ()
    assert told[-1].processed == 6
    assert sum(one.turn_ns for one in told) <= gate.clock_s * 10**9
    assert not told[-1].queued_tuples
