"""A worker that was removed from a host, and whose operator comes back on another one."""

from __future__ import annotations

from typing import Any

from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.host.environment import Threads
from fries_nb.host.host_core import HostCore
from fries_nb.protocol.messages import ChannelId, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.transport.wire import Credit


class SentAway:
    """Takes what goes to other hosts."""

    def __init__(self) -> None:
        self.posted: list[tuple[int, Any]] = []

    def post(self, host: int, frame: Any, channels: tuple[ChannelId, ...]) -> None:
        """Called by the router."""
        self.posted.append((host, frame))


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
