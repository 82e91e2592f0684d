"""What new hosts bring, and which dataflows cannot be rescaled, by the name of the operator."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from changes_asked import ChangesAsked
from patience import PATIENCE_S, until

import fries_nb as fn
from fries_nb.changes.change import Change
from fries_nb.controller.events import Outcome, RescaleCancelled, RescaleEnded, RescaleRequested
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.regions import regions
from fries_nb.errors import PlanError
from fries_nb.host.region_spec import Options
from fries_nb.planning.schedulers import schedule
from fries_nb.protocol.topology import Topology
from fries_nb.running.rescales import Rescales, shares
from fries_nb.telemetry.telemetry import Telemetry


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
    flow = flow_of(sources=None)
    assert shares(flow.graph(2), 2, options(flow)) == {"S": 1, "A": 1, "Z": 1}


@pytest.mark.parametrize(
    ("declared", "workers", "words"),
    [
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


def test_dataflows_by_time_can_grow_and_those_with_loops_cannot() -> None:
    """The times of rows do not matter, rounds do."""
    flow = fn.Dataflow("timed")
    flow.source("S", fn.rate(10), time="value").map("A", dict).sink("Z", fn.memory())
    assert shares(flow.graph(2), 2, options(flow)) == {"A": 1, "Z": 1}
    looped = fn.Dataflow("looped")
    body = lambda rows: rows.map("B", dict).split("SP", lambda row: row["value"] % 2)  # noqa: E731
    looped.source("S", fn.rate(10)).iterate("L", body).sink("Z", fn.memory())
    with pytest.raises(PlanError, match="a dataflow with a loop cannot be rescaled yet; L is in one"):
        shares(looped.graph(2), 2, options(looped))


class Runs:
    """A run that only notes requests."""

    def __init__(self, flow: fn.Dataflow) -> None:
        placed = Topology.dealt(flow.graph(2), 1, chaining=True)
        status = TopologyStatus.of(placed, (0,))
        room = SimpleNamespace(require_more=lambda more, running: None)
        driver = SimpleNamespace(controller=SimpleNamespace(topology=status, placed=placed))
        self.launched: list[Any] = [SimpleNamespace(session=room, driver=driver)]
        self.rates: dict[str, float] = {}
        self.telemetry = Telemetry(flow.graph(2))
        self.options = options(flow)
        self.posted: list[RescaleRequested | RescaleCancelled] = []

    def post(self, event: RescaleRequested | RescaleCancelled) -> None:
        """Note it."""
        self.posted.append(event)

    def refuse_if_over(self, why: str) -> None:
        """It goes on."""


def test_a_handle_waits_for_the_end_of_its_request() -> None:
    """What the controller says resolves it; so does the end of a run that has not heard of it."""
    flow = flow_of()
    run = Runs(flow)
    rescales = Rescales(regions(flow.graph(2)), run)
    first = rescales.request(2, None)
    assert run.posted == [RescaleRequested("r1", 2, {"A": 1, "Z": 1})]
    assert repr(first) == "Rescale(to 2 hosts: under way)"
    with pytest.raises(TimeoutError, match="the rescale to 2 hosts is still under way"):
        first.result(timeout=0)
    rescales.ended(RescaleEnded("r1", "done", 2, delay_ms=5.0))
    assert (first.outcome, first.result().hosts, first.result().delay_ms) == ("done", 2, 5.0)
    assert [(mark.change, mark.kind, mark.label) for mark in run.telemetry.marks()] == [
        ("rescale r1", "request", "rescale to 2 hosts"), ("rescale r1", "done", "rescale to 2 hosts"),
    ]  # fmt: skip
    assert len(run.telemetry.topologies) == 2
    second = rescales.request(1, None)
    rescales.closed()
    assert (second.outcome, first.outcome) == ("aborted", "done")
    assert second.result().error == "the run had ended; nothing changed"
    for hosts in (0, True, 2.5):
        with pytest.raises(PlanError, match="expected a whole number from 1 up"):
            rescales.request(hosts, None)  # type: ignore[arg-type]


def test_a_rescale_that_is_cancelled_before_its_change_is_made_is_cancelled_behind_it() -> None:
    """The controller hears of both then; of neither if the change is not made."""
    flow = flow_of()
    run = Runs(flow)
    rescales = Rescales(regions(flow.graph(2)), run)
    plan = schedule("fries", flow.graph(2), {"A": dict})
    made, refused = (Change(name, plan, {}, 1.0, run=ChangesAsked()) for name in ("u1", "u2"))
    rescale = rescales.behind(made, {"A": 3})
    rescale.cancel()
    run.posted.clear()
    made.resolve(Outcome("u1", "fries", "done"))
    until(lambda: len(run.posted) == 2)
    assert run.posted == [RescaleRequested("r1", None, workers={"A": 3}), RescaleCancelled("r1")]
    other = rescales.behind(refused, {"A": 4})
    refused.resolve(Outcome("u2", "fries", "aborted", "no"))
    assert other.result(PATIENCE_S).error == "change u2 was not made; the numbers of workers are as before"


def test_sources_of_a_dataflow_with_times_keep_their_numbers_and_others_need_not() -> None:
    """Also where the number of the source is named, as it is declared."""
    flow = fn.Dataflow("timed")
    flow.source("S", fn.rate(10), time="value", workers=2).map("A", dict, workers=3).sink("Z", fn.memory())
    rescales = Rescales(regions(flow.graph(2)), Runs(flow))
    rescales.check({"S": 2, "A": 4})
    with pytest.raises(PlanError, match="splits of S do not move yet in a dataflow with times"):
        rescales.check({"S": 3})


def test_an_operator_whose_number_is_declared_later_gets_no_worker_on_new_hosts() -> None:
    """As one whose number was declared from the beginning."""
    flow = flow_of()
    rescales = Rescales(regions(flow.graph(2)), Runs(flow))
    assert rescales.can_rescale
    rescales.declare({"A"})
    assert not rescales.can_rescale
