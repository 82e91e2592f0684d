"""The part of a host in latency constraints, without a host: what its workers are told to measure, and when."""

from __future__ import annotations

from typing import Any

import pytest

from fries_nb.dataflow.constraints import constraint_of
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.host.constraint_watch import ConstraintWatch
from fries_nb.host.region_spec import Options, RegionSpec
from fries_nb.protocol.messages import BufferMeasured, ChannelId, ChannelMeasured, TaskMeasured, WorkerId
from fries_nb.transport.sockets import make_keys
from fries_nb.worker.events import Event, Measure, Observe, Resize

A, B = WorkerId("A", 0), WorkerId("B", 0)
APART, TOGETHER = [(A,), (B,)], [(A, B)]


class Watched:
    """The watch of a lone host, with a constraint on A -> B that is violated at each step."""

    def __init__(self, adapt: bool = True) -> None:
        ends = Operator("S", kind=Kind.SOURCE), Operator("Z", kind=Kind.SINK)
        graph = Graph("pair", (ends[0], Operator("A"), Operator("B"), ends[1]),
                      (Edge("S", "A"), Edge("A", "B"), Edge("B", "Z")))  # fmt: skip
        constraint = constraint_of(graph, ["A", "B"], latency_ms=300)
        options = Options(1, 1 << 20, False, False, None, 1.0, 0, (constraint,), adapt=adapt)
        store: Any = None
        region = RegionSpec("r", 1, graph, {}, {}, {}, "", make_keys().hosts, "127.0.0.1", options, store)
        self.posted: list[tuple[WorkerId, Event]] = []
        self.verdicts: list[Any] = []
        self.chains: list[tuple[str, ...]] = []
        self.watch = ConstraintWatch(
            region, 0, lambda *event: self.posted.append(event), lambda *_: None, self.verdicts.extend,
            lambda _, operators: self.chains.append(operators),
        )  # fmt: skip
        self.watch.begin(APART, {0: "tcp://127.0.0.1:1"})

    def observed(self) -> list[WorkerId]:
        """The workers that were told what to measure since the last call."""
        told = [worker for worker, event in self.posted if isinstance(event, Observe)]
        self.posted.clear()
        return told

    def step(self, now_s: float) -> None:
        """An interval in which rows waited for 390 ms in the buffer between A and B."""
        channel = ChannelId(A, B)
        self.watch.measured((
            ChannelMeasured(channel, 400.0, 1), BufferMeasured(channel, 390.0, 80, 32_768, 0),
            *(TaskMeasured(worker, 1.0, 1, 0.1) for worker in (A, B)),
        ))  # fmt: skip
        self.watch.step(now_s)


def test_workers_are_told_again_only_if_a_chain_has_changed() -> None:
    """Each time they forget what they have measured; refused requests come once a window."""
    host = Watched()
    assert host.observed() == [A, B]
    host.watch.rechain(APART)
    assert host.observed() == []
    host.watch.rechain(TOGETHER)
    assert host.observed() == [A]
    host.watch.rechain(list(TOGETHER))
    assert host.observed() == []


@pytest.mark.parametrize("adapt", [True, False])
def test_only_a_host_that_adapts_changes_buffers(adapt: bool) -> None:
    """Both measure, and judge alike."""
    host = Watched(adapt)
    host.step(1e9)
    sizes = [event.size for _, event in host.posted if isinstance(event, Resize)]
    assert sizes == ([11_933] if adapt else [])
    assert [verdict.status for verdict in host.verdicts] == ["violated"]
    assert [worker for worker, event in host.posted if isinstance(event, Measure)] == [A, B]
