"""The progress of a host beside one that leaves: a last frame that does not come is noticed."""

from __future__ import annotations

from typing import Any

import pytest

import fries_nb as fn
from fries_nb.errors import LinkError
from fries_nb.host import host_progress
from fries_nb.host.host_progress import PARTING_S, ProgressLink
from fries_nb.host.region_spec import Options, RegionSpec
from fries_nb.progress.exchange import HostProgress
from fries_nb.protocol.progress_locations import listeners, progress_graph
from fries_nb.transport.sockets import make_keys


class Counted:
    """Counts the rows of a window."""

    def process(self, row: dict[str, Any], state: dict[str, int]) -> None:
        """Count one."""
        state["rows"] = state.get("rows", 0) + 1

    def close(self, key: int, time: int, state: dict[str, int]) -> dict[str, int]:
        """The count."""
        return {"key": key, **state}


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the links, which a test advances."""
    now = [100.0]
    monkeypatch.setattr(host_progress.time, "monotonic", lambda: now[0])
    return now


def of_two() -> tuple[ProgressLink, HostProgress]:
    """Host 0 of two, and the progress of host 1; both have begun, and host 0 has heard so."""
    flow = fn.Dataflow("timed")
    rows = flow.source("S", fn.rate(10), time="value", late=0)
    rows.window("W", Counted(), fn.tumbling(5), key="value").sink("out", fn.memory())
    graph = flow.graph(2)
    none: Any = {}
    options = Options(2, 1 << 20, False, True, None, 10.0, 0)
    region = RegionSpec("r", 1, graph, none, none, none, "", make_keys().hosts, "127.0.0.1", options, none)
    link = ProgressLink(region, graph, 0, lambda *_: None, lambda *_: None)
    other = HostProgress(1, progress_graph(graph), listeners(graph), range(2))
    link.begin([])
    frame = other.begin([])
    assert frame is not None
    link.receive(frame)
    return link, other


def test_a_host_that_leaves_without_its_last_frame_is_noticed(now_s: list[float]) -> None:
    """After a while, in a sentence: the frontiers of the others would wait for it for ever."""
    link, _ = of_two()
    link.part([1])
    now_s[0] += PARTING_S
    link.check()
    now_s[0] += 1
    with pytest.raises(LinkError, match="host 1 left, and its last counts have not come within 30 s"):
        link.check()


def test_one_that_leaves_with_it_is_not_awaited(now_s: list[float]) -> None:
    """Whether the frame comes before or after the driver's word; nor is a host that has not left."""
    for is_early in (False, True):
        link, other = of_two()
        if is_early:
            link.receive(other.leave())
        link.part([1])
        if not is_early:
            link.receive(other.leave())
        now_s[0] += 2 * PARTING_S
        link.check()
    link, _ = of_two()
    now_s[0] += 2 * PARTING_S
    link.check()
