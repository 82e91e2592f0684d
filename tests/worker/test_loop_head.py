"""The worker of a loop's head, driven by hand: credit, spilling, observation, and what it logs at a checkpoint."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fries_nb.dataflow.graph import ROOT, Edge, Graph, Kind, Operator
from fries_nb.errors import ProtocolError, RunError
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import (
    Attempt,
    Cancel,
    ChannelId,
    Commit,
    Data,
    Done,
    End,
    Ended,
    EndLoop,
    Failed,
    InputEnded,
    Marker,
    WorkerId,
)
from fries_nb.protocol.topology import Topology, wire
from fries_nb.worker.events import Arrived, ClosePart, Directed, Grant, Granted, Save, TellController
from fries_nb.worker.loop_head import HeadWorker
from fries_nb.worker.outbox import SendFrame

HEAD = WorkerId("L", 0)
FORWARD, BACK = ChannelId(WorkerId("S", 0), HEAD), ChannelId(WorkerId("B", 0), HEAD)
OUT = ChannelId(HEAD, WorkerId("B", 0))
ASKED = Marker(1, frozenset("LB"), Attempt("L", 1))


def refuse(batches):
    """A disk without space."""
    raise RunError("no space left on device")


def head(window=1_000, spill=list, snapshot=None):
    """The head of a small loop, whose body grants it a lot of credit; what it says at the start is dropped."""
    inside = ROOT.nest("L")
    operators = (
        Operator("S", kind=Kind.SOURCE),
        Operator("L", kind=Kind.LOOP, within=inside),
        Operator("B", function=dict, within=inside, branches=2),
        Operator("Z", kind=Kind.SINK),
    )
    edges = (Edge("S", "L"), Edge("L", "B"), Edge("B", "L", feedback=True), Edge("B", "Z", branch=1))
    graph = Graph("loop", operators, edges)
    wiring = wire(Topology.dealt(graph, hosts=1), ("L",), 0)
    instance = Instance(HEAD, wiring.chain[0], None, audit=False)
    worker = HeadWorker(wiring, [instance], window, lambda: 0, snapshot, spill)
    worker.handle(Granted(OUT, 1 << 20))
    worker.take()
    return worker


def rows(*numbers, size=8):
    """A frame."""
    return Data(pa.RecordBatch.from_pydict({"x": list(numbers)}), size=size)


def told(worker):
    """The answers of a worker, after it has processed all that it may."""
    while worker.run():
        pass
    return [one.answer for one in worker.take() if isinstance(one, TellController | ClosePart)]


def test_credit_returns_on_arrival():
    """Of feedback frames, though the head takes nothing; that of forward frames when they are used up."""
    worker = head()
    worker.handle(Arrived(BACK, rows(1)))
    worker.handle(Arrived(FORWARD, rows(2)))
    assert [one for one in worker.take() if isinstance(one, Grant)] == [Grant({BACK: 8})]
    while worker.run():
        pass
    assert [one for one in worker.take() if isinstance(one, Grant)] == [Grant({FORWARD: 8})]


def test_an_attempt_is_answered_when_its_marker_has_come_back():
    """With the number of frames that came back ahead of it, arrived before or after the marker left."""
    worker = head()
    worker.handle(Arrived(BACK, rows(1)))
    worker._inbox.take(), worker._inbox.put(BACK, rows(2))
    worker._head(ASKED, 0)
    assert [one.frame for one in worker.take() if isinstance(one, SendFrame)] == [ASKED]
    worker.handle(Arrived(BACK, rows(3)))
    assert told(worker) == []
    worker.handle(Arrived(BACK, ASKED))
    worker.handle(Arrived(BACK, rows(4)))
    assert told(worker) == [Done(1, HEAD, observed=2)]


def test_a_cancelled_marker_is_not_answered():
    """And comes back without effect."""
    worker = head()
    worker._head(ASKED, 0)
    worker.handle(Directed(HEAD, Cancel(1)))
    worker.handle(Arrived(BACK, ASKED))
    assert told(worker) == []
    assert not worker._observations.under_way


def test_a_checkpoint_holds_the_frames_of_feedback_channels_and_a_restored_head_takes_them():
    """Those that were taken until the marker came back, and the snapshot is sent only then."""
    worker = head()
    marker = Marker(1, frozenset("SLBZ"), Commit(1, checkpoint=True))
    worker.handle(Arrived(FORWARD, marker))
    assert told(worker) == []
    for frame in (rows(1, 2), rows(3), marker, rows(4)):
        worker.handle(Arrived(BACK, frame))
    while worker.run():
        pass
    [save] = [one for one in worker.take() if isinstance(one, Save)]
    restored = head(snapshot=save.snapshots[-1])
    taken = [restored._inbox.take() for _ in range(2)]
    assert [(channel, frame.batch.column("x").to_pylist()) for channel, frame in taken] == [(BACK, [1, 2]), (BACK, [3])]
    assert restored._inbox.take() is None


def test_a_head_ends_when_it_is_told():
    """Not by the end of its forward channels, which it reports; and never while it has rows."""
    worker = head()
    worker.handle(Arrived(FORWARD, End()))
    assert told(worker) == [InputEnded(HEAD)]
    worker.handle(Arrived(BACK, rows(1)))
    with pytest.raises(ProtocolError, match="was told that its loop is empty, and has rows"):
        worker.handle(Directed(HEAD, EndLoop()))
    assert told(worker) == []
    worker.handle(Directed(HEAD, EndLoop()))
    assert told(worker) == [Ended(HEAD)]


def test_a_head_that_observes_ends_later():
    """A checkpoint's marker that is on its way comes back first."""
    worker = head()
    worker.handle(Arrived(FORWARD, End()))
    worker._head(ASKED, 0)
    worker.handle(Directed(HEAD, EndLoop()))
    assert not worker.ended
    worker.handle(Arrived(BACK, ASKED))
    assert told(worker) == [InputEnded(HEAD), Done(1, HEAD), Ended(HEAD)]


def test_beyond_its_memory_a_head_spills():
    """Rows are loaded from where they were spilled, in order; the markers among them stay in place."""
    spilled = []

    def spill(batches):
        spilled.append(len(batches))
        return [batch.slice(0) for batch in batches]

    worker = head(window=10, spill=spill)  # 20 bytes for two channels
    for number in range(5):
        worker.handle(Arrived(BACK, rows(number)))
    assert spilled == [3]
    found = [worker._inbox.take()[1].batch.column("x").to_pylist() for _ in range(5)]
    assert found == [[0], [1], [2], [3], [4]]


def test_with_a_full_disk_forward_input_stops_and_growing_feedback_fails_the_run():
    """The loop and the bytes are named."""
    worker = head(window=10, spill=refuse)
    worker.handle(Arrived(FORWARD, rows(-1)))
    for number in range(5):
        worker.handle(Arrived(BACK, rows(number)))
    assert [worker._inbox.take()[0] for _ in range(3)] == [BACK] * 3
    assert FORWARD in [worker._inbox.take()[0] for _ in range(2)]
    for number in range(6):
        worker.handle(Arrived(BACK, rows(number)))
    [failed] = [answer for answer in told(worker) if isinstance(answer, Failed)]
    assert failed.worker == HEAD
    assert "bytes of rows wait in memory for the head of a loop, L" in failed.error
    assert "no space left" in failed.error


def test_a_marker_goes_next():
    """Ahead of rows that came before it on other channels."""
    worker = head()
    for number in range(3):
        worker.handle(Arrived(BACK, rows(number)))
    marker = Marker(1, frozenset("SLB"), Commit(1))
    worker.handle(Arrived(FORWARD, marker))
    assert worker._inbox.take() == (FORWARD, marker)
