"""What new hosts bring, and which dataflows cannot be rescaled, by the name of the operator."""

from __future__ import annotations

from typing import Any

import pytest

import fries_nb as fn
from fries_nb.controller.events import HostsRequested, RescaleEnded
from fries_nb.dataflow.regions import regions
from fries_nb.errors import PlanError
from fries_nb.running.rescales import Rescales, shares
from fries_nb.spark.region_spec import Options


def options(flow: fn.Dataflow, hosts: int = 2) -> Options:
    """The options of a run on two hosts."""
    return Options(hosts, 1 << 20, False, True, None, 10.0, 0, fixed=flow.fixed)


def flow_of(**declared: Any) -> fn.Dataflow:
    """A source, an operator whose options are given, a sink."""
    flow = fn.Dataflow("line")
    flow.source("S", fn.rate(10), workers=declared.pop("sources", 1)).map("A", dict, **declared).sink("Z", fn.memory())
    return flow


def test_a_new_host_brings_its_share_of_every_operator_without_a_declared_number() -> None:
    """By the numbers of the beginning; operators on forward edges together."""
    flow = flow_of()
    assert shares(flow.graph(4), 2, options(flow)) == {"A": 2, "Z": 2}
    assert shares(flow.graph(5), 2, options(flow)) == {"A": 2, "Z": 2}
    assert shares(flow.graph(2), 1, options(flow)) == {"A": 2, "Z": 2}
    flow = flow_of(workers=3)
    assert shares(flow.graph(2), 2, options(flow)) == {"Z": 1}


@pytest.mark.parametrize(
    ("declared", "workers", "words"),
    [
        ({"key": "k"}, 2, "A has its keys on the hosts of the beginning, and keys do not move yet"),
        ({"workers": 2}, 2, "no operator can get workers on a new host: S stays; A stays; Z stays with A"),
        ({"sources": 2}, 2, "S stays; A stays with S, on its forward edges; Z stays with S, on its forward edges"),
        ({}, 1, "A stays with S, on its forward edges"),
    ],
)
def test_what_cannot_grow_is_refused_by_name(declared: dict[str, Any], workers: int, words: str) -> None:
    """Keys, declared numbers, sources and what is on forward edges with them."""
    flow = flow_of(**declared)
    with pytest.raises(PlanError, match=words):
        shares(flow.graph(workers), 2, options(flow))


def test_dataflows_by_time_are_refused_by_name() -> None:
    """Progress is not handed over to new hosts yet."""
    flow = fn.Dataflow("timed")
    flow.source("S", fn.rate(10), time="value").map("A", dict).sink("Z", fn.memory())
    with pytest.raises(PlanError, match="a dataflow that works by time or has a loop cannot be rescaled yet; S does"):
        shares(flow.graph(2), 2, options(flow))


class Runs:
    """A run that only notes requests."""

    def __init__(self, flow: fn.Dataflow) -> None:
        self.launched: list[Any] = []
        self.options = options(flow)
        self.posted: list[HostsRequested] = []

    def post(self, event: HostsRequested) -> None:
        """Note it."""
        self.posted.append(event)

    def refuse_if_over(self, why: str) -> None:
        """It goes on."""


def test_a_handle_waits_for_the_end_of_its_request() -> None:
    """What the controller says resolves it; so does the end of a run that has not heard of it."""
    flow = flow_of()
    run = Runs(flow)
    rescales = Rescales(regions(flow.graph(2)), run)
    first = rescales.request(2)
    assert run.posted == [HostsRequested("r1", 2, {"A": 1, "Z": 1})]
    assert repr(first) == "Rescale(to 2 hosts: under way)"
    with pytest.raises(TimeoutError, match="the rescale to 2 hosts is still under way"):
        first.result(timeout=0)
    rescales.ended(RescaleEnded("r1", "done", 2, delay_ms=5.0))
    assert (first.outcome, first.result().hosts, first.result().delay_ms) == ("done", 2, 5.0)
    second = rescales.request(1)
    rescales.closed()
    assert (second.outcome, first.outcome) == ("aborted", "done")
    assert second.result().error == "the run had ended; nothing changed"
    for hosts in (0, True, 2.5):
        with pytest.raises(PlanError, match="expected a whole number from 1 up"):
            rescales.request(hosts)  # type: ignore[arg-type]
