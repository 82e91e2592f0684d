"""The progress of a host beside one that leaves: a last frame that does not come is noticed."""

from __future__ import annotations

from typing import Any

import pytest

import fries_nb as fn
from fries_nb.errors import LinkError
from fries_nb.host.environment import Threads
from fries_nb.host.host_progress import PARTING_NS, ProgressLink, first_view
from fries_nb.progress.exchange import HostProgress
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.progress_locations import listeners, progress_graph
from fries_nb.protocol.topology import Topology


class Counted:
    """Counts the rows of a window."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Count one."""
        state["rows"] = state.get("rows", 0) + 1

    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, int]:
        """The count."""
        return {"key": key, **state}


class Clocked(Threads):
    """The environment of a host, with a time that a test advances."""

    time_ns = 100

    def now_ns(self) -> int:  # type: ignore[override]
        """The time."""
        return self.time_ns


def of_two(clock: Clocked) -> tuple[ProgressLink, HostProgress]:
    """Host 0 of two, and the progress of host 1; both have begun, and host 0 has heard so."""
    flow = fn.Dataflow("timed")
    rows = flow.source("S", fn.rate(10), time="value", late=0)
    rows.window("W", Counted(), fn.tumbling(5), key="value").sink("out", fn.memory())
    graph = flow.graph(2)
    view = first_view(0, range(2), graph, progress_graph(graph))
    link = ProgressLink(clock, view, range(2), {}, lambda *_: None, lambda *_: None)
    other = HostProgress(1, progress_graph(graph), listeners(graph), range(2))
    link.begin([])
    frame = other.begin([])
    assert frame is not None
    link.receive(frame)
    return link, other


def test_a_host_that_leaves_without_its_last_frame_is_noticed() -> None:
    """After a while, in a sentence: the frontiers of the others would wait for it for ever."""
    clock = Clocked()
    link, _ = of_two(clock)
    link.part([1])
    clock.time_ns += PARTING_NS
    link.check()
    clock.time_ns += 1
    with pytest.raises(LinkError, match="host 1 left, and its last counts have not come within 30 s"):
        link.check()


def test_one_that_leaves_with_it_is_not_awaited() -> None:
    """Whether the frame comes before or after the driver's word; nor is a host that has not left."""
    clock = Clocked()
    for is_early in (False, True):
        link, other = of_two(clock)
        if is_early:
            link.receive(other.leave())
        link.part([1])
        if not is_early:
            link.receive(other.leave())
        clock.time_ns += 2 * PARTING_NS
        link.check()
    link, _ = of_two(clock)
    clock.time_ns += 2 * PARTING_NS
    link.check()


def test_workers_that_are_added_hear_of_the_frontier_of_now() -> None:
    """They are told of later ones only when it advances, and it may not; the workers of before have heard."""
    flow = fn.Dataflow("timed")
    rows = flow.source("S", fn.rate(10), time="value", late=0, workers=1)
    rows.window("W", Counted(), fn.tumbling(5), key="value").sink("out", fn.memory(), workers=1)
    graph = flow.graph(1)
    told = list[tuple[WorkerId, Any]]()
    view = first_view(0, [0], graph, progress_graph(graph))
    link = ProgressLink(
        Clocked(), view, [0], {"W": ("W",)}, lambda *_: None, lambda worker, event: told.append((worker, event))
    )
    topology = Topology.dealt(graph, 1)
    link.place(topology)
    link.begin([])
    assert [worker for worker, _ in told] == [WorkerId("W", 0)]
    link.notify(topology.scaled(topology.numbers({"W": 3}), [0]))
    assert [worker for worker, _ in told[1:]] == [WorkerId("W", 1), WorkerId("W", 2)]
    assert {event for _, event in told[1:]} == {told[0][1]}
