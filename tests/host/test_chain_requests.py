"""The chains of a host without its threads: locks that others hold, events that come late, chains that turn slow."""

from __future__ import annotations

from typing import Any

import pytest
from worker_bench import data

from fries_nb.connectors.sink import OpenSinks
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.host.environment import Threads, run
from fries_nb.host.host_chains import HostChains
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.operators.instance import Instance, Ready
from fries_nb.protocol.messages import Chained, ChannelId, Data, Fcm, Marker, Reconfigure, SetChain, WorkerId
from fries_nb.protocol.topology import Topology, wire
from fries_nb.worker.chaining import PATIENCE_NS, ChainRequest
from fries_nb.worker.events import Arrived, Directed, Grant, Granted
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.worker import Worker

A, B, Z = (WorkerId(name, 0) for name in "ABZ")
OUT = ChannelId(B, Z)


class Clocked(Threads):
    """Threads whose time the test sets."""

    time_ns = 0

    def now_ns(self) -> int:
        return self.time_ns


class Desk:
    """A host with A and B in one loop that has no thread; turns are taken by hand."""

    def __init__(self) -> None:
        self.environment = Clocked()
        self.told: list[Chained] = []
        self.rows: list[int] = []
        middle = [Operator(name, function=dict) for name in "AB"]
        ends = Operator("S", kind=Kind.SOURCE), Operator("Z", kind=Kind.SINK)
        graph = Graph("pair", (ends[0], *middle, ends[1]), (Edge("S", "A"), Edge("A", "B"), Edge("B", "Z")))
        topology = Topology.dealt(graph, 1, chaining=False)
        self.hosted = {worker: self.made(topology, worker) for worker in (A, B)}
        self.loop = HostLoop(self.environment, 0, "loop", self.hosted.values(), tickets=1)
        self.loop_of = {worker: (self.loop, hosted) for worker, hosted in self.hosted.items()}
        self.chains = HostChains(self.environment, topology, self.hosted, self.loop_of, self.told.append)
        self.post(Granted(OUT, 1 << 20), B)
        self.turns()

    def made(self, topology: Topology, id_: WorkerId) -> HostedWorker:
        wiring = wire(topology, (id_.operator,), 0)
        instance = Instance(id_, wiring.chain[0], wiring.chain[0].function, audit=False)
        worker = Worker(wiring, [instance], 1 << 20, lambda: 0)
        return HostedWorker(worker, self.environment, self.carry_out, OpenSinks({}))

    def carry_out(self, instruction: Any) -> None:
        if isinstance(instruction, SendFrame) and instruction.channels == (OUT,):
            if isinstance(instruction.frame, Data):
                self.rows += instruction.frame.batch.column("n").to_pylist()
                self.post(Granted(OUT, instruction.frame.size), B)
        elif isinstance(instruction, SendFrame):
            self.post(Arrived(instruction.channels[0], instruction.frame), B)
        elif isinstance(instruction, Grant):
            for channel, size in instruction.sizes.items():
                if channel.sender == A:
                    self.post(Granted(channel, size), A)

    def post(self, event: Any, worker: WorkerId) -> None:
        self.hosted[worker].post(event)

    def arrive(self, *numbers: int) -> None:
        self.post(Arrived(self.hosted[A].worker.wiring.incoming[0], data(*numbers)), A)

    def turns(self) -> None:
        """Let all workers process all that they have."""
        for _ in range(4):
            for hosted in dict.fromkeys(self.hosted.values()):
                while run(hosted.turn()):
                    pass
                hosted.flush()

    def ask(self, *operators: str) -> str:
        """Request a chain; the error of the answer that is there at once."""
        self.chains.request(WorkerId(operators[0], 0), SetChain(operators))
        run(self.chains.advance())
        return self.told[-1].error if self.told else "waits"


def test_chains_are_made_at_once_where_nothing_is_between() -> None:
    """Then the operators have one worker, and two again."""
    desk = Desk()
    assert desk.ask("A", "B") == ""
    assert desk.hosted[A] is desk.hosted[B]
    assert desk.loop.workers == (desk.hosted[A],)
    desk.arrive(1, 2)
    desk.turns()
    assert desk.ask("A") == ""
    assert desk.loop.workers == (desk.hosted[A], desk.hosted[B])
    desk.arrive(3)
    desk.turns()
    assert desk.rows == [1, 2, 3]
    assert [answer.operators for answer in desk.told] == [("A", "B"), ("A",)]


def test_a_request_to_a_host_that_does_not_run_the_worker_is_refused() -> None:
    """In a sentence, in place of an error in the control thread; the next request is carried out."""
    desk = Desk()
    desk.chains.request(WorkerId("C", 7), SetChain(("C", "A")))
    run(desk.chains.advance())
    error = "this host does not run C[7]; expected a worker of the host to which the request is sent"
    assert (desk.told, desk.chains.is_waiting) == ([Chained(WorkerId("C", 7), (), error)], False)
    assert desk.ask("A", "C") == "A[0] runs A; expected workers of this host that make A, C"
    assert desk.ask("A", "B") == ""


@pytest.mark.parametrize("lock", ["owner", "rehearsal"])
def test_a_lock_that_another_thread_holds_is_not_waited_for(lock: str) -> None:
    """The first worker is stalled meanwhile, and goes on once the request is given up."""
    desk = Desk()
    held = desk.hosted[B].owner if lock == "owner" else desk.chains.kept
    with held:
        assert desk.ask("A", "B") == "waits"
        assert desk.chains.is_waiting
        run(desk.hosted[A].turn())
        assert desk.hosted[A].worker._stalled
        desk.environment.time_ns = PATIENCE_NS
        run(desk.chains.advance())
    assert desk.told == [Chained(A, ("A",), "A[0] was busy after 250 ms, so the chain was left as it was")]
    desk.arrive(1)
    desk.turns()
    assert (desk.rows, desk.chains.is_waiting) == ([1], False)


def test_a_chain_that_is_there_is_answered_while_its_worker_runs() -> None:
    """A change of the shape asks every operator whose edges change, most of which are in no chain."""
    desk = Desk()
    with desk.hosted[A].owner:
        assert desk.ask("A") == ""
    assert (desk.told, desk.chains.is_waiting) == ([Chained(A, ("A",))], False)


def test_events_that_come_late_reach_the_operator() -> None:
    """Another thread has looked the worker up before the chain was changed, and posts behind it."""
    desk = Desk()
    before = desk.hosted[B]
    desk.ask("A", "B")
    fused = desk.hosted[A]
    fused.worker.instances[1].prepared["u1"] = Ready(lambda row: row | {"n": -row["n"]}, None)
    marker = Marker(1, frozenset("B"), Reconfigure("u1", frozenset("B")))
    before.post(Directed(B, Fcm(marker)))
    run(before.turn())
    desk.arrive(1)
    desk.turns()
    desk.ask("A")
    fused.post(Granted(OUT, 0))  # B's, at A
    before.post(Granted(OUT, 0))
    run(before.turn())
    desk.arrive(2)
    desk.turns()
    assert desk.rows == [-1, -2]
    assert not any(hosted.failed for hosted in (before, fused, *desk.hosted.values()))


def test_a_fused_chain_that_turns_slow_is_split() -> None:
    """Into the workers that were fused; the slow one gets a thread for itself by and by."""
    desk = Desk()
    desk.ask("A", "B")
    desk.hosted[A].worker.slowness.is_slow = True
    run(desk.chains.advance())
    assert desk.hosted[A] is not desk.hosted[B]
    assert desk.told[-1] == Chained(A, ("A",))


def test_a_loop_that_met_a_worker_in_the_hands_of_the_control_thread_runs_it_later() -> None:
    """It has dropped the worker from its rota meanwhile; without a wake-up it would sleep until its next event."""
    desk = Desk()
    desk.arrive(1)
    steps = desk.chains._step(ChainRequest(A, ("A",), 0))
    next(steps), next(steps)  # the worker is owned
    desk.loop.turns.posted(desk.hosted[A])
    assert desk.loop.turns.begin() is not desk.hosted[A]
    assert run(steps) == Chained(A, ("A",))
    for _ in range(len(desk.hosted) + 1):
        if desk.loop.turns.begin() is desk.hosted[A]:
            return
    raise AssertionError("the worker was not run")
