"""Two workers become one and one becomes two: what each has prepared, learnt and passed goes with its operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from worker_bench import data

from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.dataflow.updates import Update
from fries_nb.errors import ProtocolError
from fries_nb.operators.dry_run import DryRun
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import (
    Abort,
    Cancel,
    Chained,
    Commit,
    Data,
    Fcm,
    Marker,
    Prepare,
    Reconfigure,
    SetChain,
    WorkerId,
)  # fmt: skip
from fries_nb.protocol.topology import Topology, wire
from fries_nb.worker.chaining import PATIENCE_NS, ChainRequest, Fused, SplitOff
from fries_nb.worker.events import Arrived, Directed, Grant, Granted, Stalled
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.rehearsal import Rehearsals
from fries_nb.worker.worker import Worker


def stamped(name: str, version: int) -> Any:
    """Names a version."""
    return lambda row: row | {name: version}


class Pair:
    """S > A > B > Z, of which A and B have a worker each; frames and credit between them are carried by hand."""

    def __init__(self, **more: Any) -> None:
        operators = [Operator(name, function=stamped(name, 0), **more.get(name, {})) for name in "AB"]
        ends = Operator("S", kind=Kind.SOURCE), Operator("Z", kind=Kind.SINK)
        edges = (Edge("S", "A"), Edge("A", "B", more.get("edge", Partitioning.FORWARD)), Edge("B", "Z"))
        self.topology = Topology.dealt(Graph("pair", (ends[0], *operators, ends[1]), edges), 1, chaining=False)
        self.a, self.b = self.made("A"), self.made("B")
        self.sent: list[Any] = []
        self.carry()

    def made(self, name: str) -> Worker:
        wiring = wire(self.topology, (name,), 0)
        instance = Instance(WorkerId(name, 0), wiring.chain[0], wiring.chain[0].function, audit=False)
        instance.recreate = partial(stamped, name, 0)
        worker = Worker(wiring, [instance], 1 << 20, lambda: 0)
        if name == "B":
            worker.handle(Granted(wiring.edges[0].channels[0], 1 << 20))
        return worker

    def carry(self) -> None:
        """Carry frames and credit between the two, as their host does."""
        for worker, event in [(self.a, one) for one in self.b.take()] + [(self.b, one) for one in self.a.take()]:
            if isinstance(event, Grant):
                for channel, size in event.sizes.items():
                    if channel.sender.operator == "A":
                        worker.handle(Granted(channel, size))
            elif isinstance(event, SendFrame) and event.channels[0].receiver.operator == "B":
                worker.handle(Arrived(event.channels[0], event.frame))
            else:
                self.sent.append(event)

    def arrive(self, *numbers: int) -> None:
        self.a.handle(Arrived(self.a.wiring.incoming[0], data(*numbers)))

    def run(self, *workers: Worker) -> None:
        """Let these workers process all that they have."""
        for worker in workers:
            while worker.run():
                pass
            worker.outbox.flush()
            self.carry()

    def step(self, *operators: str, now_ns: int = 0) -> Any:
        request = ChainRequest(WorkerId(operators[0], 0), operators, 0)
        running = {one.worker: worker for worker in (self.b, self.a) for one in worker.instances}
        return request.step(request.members(running.get), self.topology, now_ns)

    def fused(self) -> Worker:
        made = self.step("A", "B")
        assert isinstance(made, Fused), made
        self.b = self.a
        return made.worker

    def prepare(self, operator: str, worker: Worker) -> None:
        payload = cloudpickle.dumps(Update(stamped(operator, 1)))
        worker.handle(Directed(WorkerId(operator, 0), Prepare("u1", payload)))
        [order] = [one for one in worker.take() if isinstance(one, DryRun)]
        worker.handle(Rehearsals(lambda: 0).prepare(order))

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """The rows that went to Z: the number and the versions of A and B."""
        self.carry()
        frames = [one.frame for one in self.sent if isinstance(one, SendFrame) and isinstance(one.frame, Data)]
        return [(row["n"], row["A"], row["B"]) for frame in frames for row in frame.batch.to_pylist()]


def switch(number: int, *scope: str) -> Marker:
    """The marker of a change of these operators."""
    return Marker(number, frozenset(scope), Reconfigure("u1", frozenset(scope)))


def test_tuples_pass_in_one_call_behind_a_fuse_and_by_a_frame_behind_a_split() -> None:
    """In order, with the frame that was in hand."""
    pair = Pair()
    pair.arrive(1, 2, 3, 4)
    pair.a.run(1)
    pair.a.outbox.flush()
    pair.carry()
    assert pair.step("A", "B") is None  # the first tuple is at B
    pair.run(pair.b)
    pair.carry()
    worker = pair.fused()
    worker.run(1)
    pair.b = pair.step("A").rest
    assert pair.b.wiring.workers == (WorkerId("B", 0),)
    pair.run(pair.b, pair.a, pair.b)
    assert pair.rows == [(number, 0, 0) for number in (1, 2, 3, 4)]


def test_what_is_prepared_is_applied_behind_a_fuse_and_behind_a_split() -> None:
    """By the FCM of the first one and the marker between them, wherever the two are by then."""
    pair = Pair()
    pair.prepare("A", pair.a)
    pair.prepare("B", pair.b)
    worker = pair.fused()
    pair.arrive(1)
    pair.run(worker)
    worker.handle(Directed(WorkerId("A", 0), Fcm(switch(1, "A", "B"))))
    pair.arrive(2)
    pair.run(worker)
    assert pair.rows == [(1, 0, 0), (2, 1, 1)]
    pair = Pair()
    worker = pair.fused()
    pair.prepare("A", worker)
    pair.prepare("B", worker)
    pair.b = pair.step("A").rest
    worker.handle(Directed(WorkerId("A", 0), Fcm(switch(1, "A", "B"))))
    pair.carry()
    pair.arrive(1)
    pair.run(pair.b, pair.a, pair.b)
    assert pair.rows == [(1, 1, 1)]


@pytest.mark.parametrize("split", [False, True])
def test_a_marker_that_was_cancelled_at_one_of_them_is_dropped(split: bool) -> None:
    """Its arrival at the other one comes first, and its cancellation is still on its way."""
    pair = Pair()
    if split:
        pair.fused()
        pair.a.handle(Directed(WorkerId("B", 0), Cancel(1)))
        pair.b = pair.step("A").rest
        pair.carry()
        pair.b.handle(Arrived(pair.b.wiring.incoming[0], Marker(1, frozenset("SABZ"), Commit(1))))
        pair.run(pair.b)
    else:
        pair.b.handle(Directed(WorkerId("B", 0), Cancel(1)))
        worker = pair.fused()
        worker.handle(Arrived(worker.wiring.incoming[0], Marker(1, frozenset("SABZ"), Commit(1))))
        pair.run(worker)
    assert not [one for one in pair.sent if isinstance(one, SendFrame) and isinstance(one.frame, Marker)]


def test_recent_tuples_are_there_for_rehearsals_behind_a_fuse_and_a_split() -> None:
    """Until the next ones come, or a function of the chain is replaced."""
    pair = Pair()
    pair.arrive(1, 2)
    pair.run(pair.a, pair.b)
    worker = pair.fused()

    def seen(worker: Worker, position: int) -> list[int]:
        return [recent.row()["n"] for recent in worker._recent(position)]

    assert (seen(worker, 0), seen(worker, 1)) == ([2, 1], [2, 1])
    rest = pair.step("A").rest
    assert (seen(worker, 0), seen(rest, 0)) == ([2, 1], [2, 1])
    pair = Pair()
    pair.arrive(1, 2)
    pair.run(pair.a, pair.b)
    worker = pair.fused()
    pair.prepare("B", worker)
    worker.handle(Directed(WorkerId("B", 0), Fcm(switch(1, "B"))))
    assert seen(worker, 1) == []


def test_columns_keep_their_types_behind_a_fuse_and_a_split() -> None:
    """A column of floats does not become one of integers because its next values are whole."""
    pair = Pair()
    pair.b.instances[0].function = lambda row: row | {"x": row["n"] / 2 if row["n"] % 2 else row["n"]}
    pair.b._executor.rebuild()

    def kinds() -> set[pa.DataType]:
        frames = [one.frame for one in pair.sent if isinstance(one, SendFrame) and isinstance(one.frame, Data)]
        return {frame.batch.schema.field("x").type for frame in frames}

    pair.arrive(1)
    pair.run(pair.a, pair.b)
    worker = pair.fused()
    pair.arrive(2)
    pair.run(worker)
    pair.b = pair.step("A").rest
    pair.arrive(4)
    pair.run(pair.b, pair.a, pair.b)
    assert kinds() == {pa.float64()}


def test_a_fuse_waits_for_what_is_between_and_is_given_up() -> None:
    """Frames, markers, credit: each of them alone; a chain that is as requested is answered at once."""
    pair = Pair()
    assert pair.step("A") == Chained(WorkerId("A", 0), ("A",))
    pair.arrive(1)
    pair.a.run()
    assert pair.step("A", "B") is None  # in A's buffer
    pair.a.handle(Stalled(True))
    assert pair.step("A", "B") is None  # on its way
    pair.carry()
    assert pair.step("A", "B", now_ns=PATIENCE_NS - 1) is None  # in B's inbox
    answer = pair.step("A", "B", now_ns=PATIENCE_NS)
    assert (answer.operators, answer.error.rpartition(", ")[2]) == (("A",), "so the chain was left as it was")
    pair.run(pair.b)
    pair.a.handle(Directed(WorkerId("A", 0), Fcm(Marker(1, frozenset("AB"), Commit(1)))))
    assert pair.step("A", "B") is None  # the marker is on its way
    pair.carry()
    assert pair.step("A", "B") is None  # and in B's inbox
    pair.run(pair.b)
    assert isinstance(pair.step("A", "B"), Fused)


REFUSED = {
    "are declared with chain=False": {"B": {"chain": False}},
    "pause on errors": {"A": {"on_error": "pause"}},
    "not connected by a forward edge alone": {"edge": Partitioning.REBALANCE},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_no_run_would_chain_is_not_fused(words: str) -> None:
    """The rules are those of the start."""
    assert words in Pair(**REFUSED[words]).step("A", "B").error


def test_a_worker_that_is_not_well_is_left_alone() -> None:
    """Paused, failed, ended, slow, between two versions, or of another chain than the request says."""

    def said(pair: Pair) -> str:
        answer = pair.step("A", "B")
        assert answer.operators == ("A",)
        return str(answer.error)

    pair = Pair()
    pair.b.failed = True
    assert said(pair) == "B[0] has failed"
    pair = Pair()
    pair.a.ended = True
    assert said(pair) == "A[0] has ended"
    pair = Pair()
    pair.b._pause.paused = True
    assert said(pair) == "B[0] is paused on a tuple"
    pair = Pair()
    pair.b.slowness.is_slow = True
    assert said(pair) == "B[0] takes long for a tuple, and so has a thread of its own"
    pair = Pair()
    pair.b.instances[0].expect("u1", tagged=True)
    assert said(pair) == "B[0] runs two versions, since a multi-version change is under way"
    pair.b.handle(Directed(WorkerId("B", 0), Abort("u1")))
    assert "expected workers of this host that make A, Z" in pair.step("A", "Z").error
    assert isinstance(pair.step("A", "B"), Fused)
    pair.a.slowness.is_slow = True
    assert isinstance(pair.step("B"), SplitOff)  # which is what a slow chain needs


def test_a_host_that_runs_its_workers_apart_refuses_control_for_others() -> None:
    """A request for a chain is the host's; a worker that gets one says so."""
    with pytest.raises(ProtocolError, match="expected it to be carried out by the host"):
        Pair().a.handle(Directed(WorkerId("A", 0), SetChain(("A", "B"))))
