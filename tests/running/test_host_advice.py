"""Another number of hosts is proposed after three equal answers, and withdrawn when the answer changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import PlanError
from fries_nb.planning.prediction import Totals, demands_of
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.running.remedies import EQUAL_ANSWERS, INTERVAL_S, HostAdvice
from fries_nb.running.rescales import Rescale

OPERATORS = Operator("S", kind=Kind.SOURCE), Operator("K", key=("k",), workers=2)
GRAPH = Graph("pair", OPERATORS, (Edge("S", "K", Partitioning.HASH, ("k",)),))
TIMED = Graph("timed", (replace(OPERATORS[0], time=EventTime("at")), OPERATORS[1]), GRAPH.edges)
STATUS = TopologyStatus.of(Topology.dealt(GRAPH, 1), (0,))


class Costly:
    """A run with one host whose keyed operator costs so many nanoseconds a tuple."""

    def __init__(self, cost_ns: int, rate: float | None = 4_000.0, graph: Graph = GRAPH) -> None:
        self.cost_ns, self.rate = cost_ns, rate
        self.now_s = 0.0
        self.status = STATUS
        self.can_rescale = True
        self.tuples = self.used_ns = self.queued = self.waits_ns = 0
        self.requested: list[int] = []
        self.advice = HostAdvice(graph, self, lambda: self.now_s)

    def reports(self) -> tuple[Report, ...]:
        """Of the source and the operator."""
        taken, busy_ns = self.tuples - self.queued, self.waits_ns * (self.tuples - self.queued)
        keyed = Report(WorkerId("K", 0), taken, 0, self.queued, useful_ns=self.used_ns, busy_ns=busy_ns)
        return Report(WorkerId("S", 0), self.tuples, 0), keyed

    def target_rates(self) -> Mapping[str, float | None]:
        """That of the source."""
        return {"S": self.rate}

    def request(self, hosts: int, at_once: int | None) -> Rescale:
        """Note it."""
        self.requested.append(hosts)
        return Rescale("r1", hosts, self)  # type: ignore[arg-type]

    def passes(self, answers: int, tuples: int = 6_000, queued: int = 0) -> None:
        """So many answers, and the first totals if there were none; of the tuples of each so many are queued."""
        for _ in range(answers):
            self.advice.observe()
            self.now_s += INTERVAL_S
            self.tuples += tuples
            self.queued += queued
            self.used_ns += (tuples - queued) * self.cost_ns


def test_three_equal_answers_are_proposed_and_accepted_once() -> None:
    """By the target rate, though the dataflow takes in half of it."""
    run = Costly(cost_ns=500_000)
    run.passes(EQUAL_ANSWERS)
    assert run.advice.proposal is None
    run.passes(1)
    proposal = run.advice.proposal
    assert proposal is not None
    assert str(proposal) == (
        "3 hosts instead of 1, since the operators need 2.00 cores at 4,000 tuples/s, and a host is to use 80% of one"
    )
    run.passes(2)
    assert run.advice.proposal is proposal
    proposal.accept()
    assert run.requested == [3]
    with pytest.raises(PlanError, match="accepted or withdrawn already"):
        proposal.accept()


def test_a_proposal_is_withdrawn_when_the_answer_changes() -> None:
    """At once, and the other one needs three answers again."""
    run = Costly(cost_ns=500_000)
    run.passes(EQUAL_ANSWERS + 1)
    run.cost_ns = 100_000
    run.passes(2)
    assert run.advice.proposal is None


@pytest.mark.parametrize("why", ["flat out", "enough", "rescaling", "fixed", "at rest"])
def test_nothing_is_proposed_without_a_reason(why: str) -> None:
    """Nor where it could not be made."""
    run = Costly(cost_ns=100_000 if why == "enough" else 500_000, rate=None if why == "flat out" else 4_000.0)
    if why == "rescaling":
        run.status = replace(STATUS, phase="starting", wanted=2)
    run.can_rescale = why != "fixed"
    run.passes(2 * EQUAL_ANSWERS, tuples=0 if why == "at rest" else 6_000)
    assert run.advice.proposal is None


@pytest.mark.parametrize(("graph", "least"), [(GRAPH, 1), (TIMED, 2)])
def test_hosts_with_workers_of_timed_sources_are_not_proposed_to_leave(graph: Graph, least: int) -> None:
    """They cannot; without times they hand their splits over."""
    run = Costly(cost_ns=1_000, graph=graph)
    run.status = replace(STATUS, hosts=(0, 1, 2), workers={"S": (1,), "K": (0, 2)})
    run.passes(EQUAL_ANSWERS + 1)
    assert run.advice.proposal is not None
    assert run.advice.proposal.hosts == least


def test_what_is_queued_counts_as_well() -> None:
    """A dataflow that does not keep up, and whose sources go on, needs as many hosts as one that does."""
    for queued in (0, 4_000):
        run = Costly(cost_ns=500_000)
        run.passes(EQUAL_ANSWERS + 1, queued=queued)
        assert run.advice.proposal is not None
        assert (run.advice.proposal.hosts, run.advice.proposal.cores) == (3, 2.0)


@pytest.mark.parametrize(("waits_ms", "hosts"), [(0, 1), (0.15, 1), (0.3, 2), (9, None)])
def test_hosts_whose_workers_wait_are_not_proposed_to_leave(waits_ms: float, hosts: int | None) -> None:
    """Functions that wait need no processor, but a worker each: at 4,000 a second and 0.3 ms two at least."""
    run = Costly(cost_ns=1_000)
    run.waits_ns = int(waits_ms * 1e6)
    run.status = replace(STATUS, hosts=(0, 1, 2), workers={"S": (0,), "K": (0, 1, 2)})
    run.passes(EQUAL_ANSWERS + 1)
    assert (run.advice.proposal.hosts if run.advice.proposal else None) == hosts


@pytest.mark.parametrize("missing", ["S", "M", "K"])
def test_an_operator_that_reports_later_than_others_is_left_out(missing: str) -> None:
    """So are those below it, until the next answer."""
    first = {name: Totals(100, 100, 10_000) for name in ("S", "M", "K")}
    later = {name: Totals(300, 300, 30_000) for name in ("S", "M", "K")}
    upstream = {"S": (), "M": ("S",), "K": ("M",)}
    del first[missing]
    left_out = {"S": {"S", "M", "K"}, "M": {"M", "K"}, "K": {"K"}}[missing]
    assert {one.operator for one in demands_of(first, later, upstream)} == {"S", "M", "K"} - left_out


def test_fewer_hosts_are_not_proposed_while_a_call_lasts() -> None:
    """All that arrives waits for an operator that has taken in nothing since: what a tuple costs is not known yet."""
    run = Costly(cost_ns=1_000)
    run.status = replace(STATUS, hosts=(0, 1, 2), workers={"S": (0,), "K": (0, 2)})
    run.passes(1)
    run.passes(2 * EQUAL_ANSWERS, queued=6_000)
    assert run.advice.proposal is None


def test_workers_that_wait_inside_a_call_stay() -> None:
    """Their time counts, too, before the call returns: it is more than enough for a worker each."""
    run = Costly(cost_ns=1_000)
    run.status = replace(STATUS, hosts=(0, 1, 2), workers={"S": (0,), "K": (0, 2)})
    run.waits_ns = 5_000_000_000
    run.passes(2 * EQUAL_ANSWERS, queued=5_999)
    assert run.advice.proposal is None
