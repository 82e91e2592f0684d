"""A worker that was removed from a host, and whose operator comes back on another one."""

from __future__ import annotations

from typing import Any

import pytest

from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.host.environment import Threads
from fries_nb.host.host_core import HostCore
from fries_nb.protocol.messages import ChannelId, End, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.transport.wire import Credit
from fries_nb.worker.events import Arrived
from fries_nb.worker.outbox import SendFrame


class SentAway:
    """Takes what goes to other hosts."""

    def __init__(self) -> None:
        self.posted: list[tuple[int, Any]] = []

    def post(self, host: int, frame: Any, channels: tuple[ChannelId, ...]) -> None:
        """Called by the router."""
        self.posted.append((host, frame))

    def wake(self) -> None:
        """There is no control thread."""


def test_what_is_for_a_worker_goes_to_the_host_that_it_has_come_back_to() -> None:
    """And not to the mailbox that was kept for the last credit; credit for the earlier one is dropped."""
    operators = Operator("S", kind=Kind.SOURCE, workers=2), Operator("A", workers=2)
    graph = Graph("g", operators, (Edge("S", "A", Partitioning.REBALANCE),))
    sender, receiver = WorkerId("S", 1), WorkerId("A", 0)
    away = SentAway()
    core = HostCore(Threads(), 0, Topology.dealt(graph, hosts=1), away, print, print)
    core.loop_of[sender] = core.loop_of[receiver] = ("its loop", "its mailbox")  # type: ignore[assignment]
    core.adopt(Topology.dealt(graph, hosts=2))
    channel = ChannelId(sender, receiver)
    core.router.grant({channel: 7})
    assert away.posted == [(1, Credit((7,)))]
    core.router.receive((channel,), Credit((7,)))
    assert core.loop_of.keys() == {receiver}


def test_the_end_for_a_worker_that_could_not_be_made_does_not_reach_the_next_one_of_its_id() -> None:
    """It comes from another host, where the change that failed was taken back; nobody waits for it."""
    operators = Operator("S", kind=Kind.SOURCE), Operator("A"), Operator("out", kind=Kind.SINK)
    before = Graph("g", (operators[0], operators[2]), (Edge("S", "out"),))
    after = Graph("g", operators, (Edge("S", "out"), Edge("S", "A"), Edge("A", "out")))
    failed = Topology.dealt(before, hosts=1).reshaping(after, [0])
    again = failed.withdrawn().reshaping(after, [0])
    core = HostCore(Threads(), 0, again, SentAway(), print, print)
    posted: list[Any] = []
    core.router.post = lambda worker, event: posted.append(event)  # type: ignore[method-assign]
    core.adopt(again)
    late, own = (next(one for one in epoch.channels() if one.receiver.operator == "A") for epoch in (failed, again))
    for channel in (late, own):
        core.router.receive((channel,), End())
        core.router.receive((ChannelId(channel.receiver, channel.receiver, channel.epoch),), Credit((7,)))
    assert posted == [Arrived(own, End())]


def test_nothing_goes_to_the_earlier_self_of_a_worker_that_could_not_be_made() -> None:
    """It was removed from this host, and its mailbox stays for the last credit."""
    operators = Operator("S", kind=Kind.SOURCE), Operator("A")
    graph = Graph("g", operators, (Edge("S", "A", Partitioning.REBALANCE),))
    away = SentAway()
    core = HostCore(Threads(), 0, Topology.dealt(graph, hosts=1), away, print, print)
    channel = ChannelId(WorkerId("S", 0), WorkerId("A", 0))
    core.router.post = lambda worker, event: pytest.fail(f"{event} came to {worker}")  # type: ignore[method-assign]
    core.loop_of[channel.receiver] = ("its loop", "its mailbox")  # type: ignore[assignment]
    core.router.leave_out([channel.receiver])
    core.router.send(SendFrame((channel,), End()))
    core.router.grant({ChannelId(channel.receiver, channel.sender): 7})
    assert away.posted == []
