"""A proposal of another number of hosts, once the arithmetic of ``planning.host_demand`` has asked for it three times.

Every few seconds the totals in the reports of workers give a number of hosts. Nothing is rescaled by itself: after
``EQUAL_ANSWERS`` equal answers that differ from the present number there is a proposal, until the answer changes, a
rescale is requested, or the sources deliver nothing.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import PlanError
from fries_nb.messages import Report
from fries_nb.planning.host_demand import BUSY_SHARE, OperatorDemand, Totals, cores_needed, demands_of, hosts_needed
from fries_nb.report.markup import counted
from fries_nb.running.locks import locked
from fries_nb.topology.progress_locations import is_tracked

if TYPE_CHECKING:
    from fries_nb.running.rescales import Rescale  # which has an advice

INTERVAL_S = 3.0
"""Seconds between two answers."""
EQUAL_ANSWERS = 3
"""Number of equal answers after which another number of hosts is proposed."""


class AdvisedRun(Protocol):
    """What the advice needs of a run; see ``region_runner``."""

    @property
    def status(self) -> TopologyStatus:
        """The present topology."""

    @property
    def can_rescale(self) -> bool:
        """Whether the dataflow can be rescaled."""

    def reports(self) -> tuple[Report, ...]:
        """The last report of each worker."""

    def target_rates(self) -> Mapping[str, float | None]:
        """Source to the rate that it is to deliver, ``None`` without one."""

    def request(self, hosts: int, at_once: int | None) -> Rescale:
        """Request another number of hosts."""


@dataclass(frozen=True)
class HostProposal:
    """A proposed number of hosts.

    Attributes:
        hosts: the number of hosts.
        cores: number of cores that the operators keep busy at the rates of the sources.
        rate: these rates in sum, in tuples per second.
        present: the number of hosts when it was proposed.
    """

    hosts: int
    cores: float
    rate: float
    present: int
    _accept: Callable[[HostProposal], Rescale] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{counted(self.hosts, 'host')} instead of {self.present}, since {self.reason}"

    @property
    def reason(self) -> str:
        """Why it is proposed, in one sentence."""
        work = f"the operators need {self.cores:,.2f} cores at {self.rate:,.0f} tuples/s"
        return f"{work}, and a host is to use {BUSY_SHARE:.0%} of one"

    def accept(self) -> Rescale:
        """Request the rescale; returns at once.

        Raises:
            PlanError: the proposal has been accepted or withdrawn already.
            SessionError: Spark has too few free task slots; includes the numbers.
            RunError: the run has ended.
        """
        return self._accept(self)


class HostAdvice:
    """Watches what the operators of a run cost.

    Args:
        graph: the dataflow.
        run: the run.
        clock: a monotonic clock in seconds.

    Attributes:
        lock: held by each method, except while a rescale is requested.
    """

    def __init__(self, graph: Graph, run: AdvisedRun, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self._graph = graph
        self._upstream = {
            name: [edge.source for edge in graph.in_edges(name) if not edge.feedback] for name in graph.order
        }
        self._run = run
        self._clock = clock
        self._due_s = 0.0
        self._before: dict[str, Totals] = {}
        self._answer = self._equal = 0
        self._proposal: HostProposal | None = None

    @property
    def proposal(self) -> HostProposal | None:
        """The proposal, if there is one."""
        return self._proposal

    @locked
    def observe(self) -> None:
        """Workers have reported; answers anew every few seconds."""
        now_s = self._clock()
        if now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        status = self._run.status
        rates = self._run.target_rates()
        known = [rate for rate in rates.values() if rate]
        if not status.is_idle or len(known) < len(rates) or not self._run.can_rescale:
            self._forget()
            return
        before, self._before = self._before, _totals(self._run.reports())
        demands = demands_of(before, self._before, self._upstream)
        if not demands:
            self._equal, self._proposal = 0, None
            return
        rate = sum(known)
        cores = cores_needed(demands, rate)
        least = max(self._least(status), hosts_that_stay(status, demands, rate))
        self._decide(max(hosts_needed(cores), least), cores, rate, len(status.hosts))

    def _decide(self, answer: int, cores: float, rate: float, present: int) -> None:
        self._equal = self._equal + 1 if answer == self._answer else 1
        self._answer = answer
        if answer == present or self._equal < EQUAL_ANSWERS:
            if self._proposal is not None and self._proposal.hosts != answer:
                self._proposal = None
        elif self._proposal is None or self._proposal.present != present:
            self._proposal = HostProposal(answer, cores, rate, present, self._accept)

    def _least(self, status: TopologyStatus) -> int:
        """The number of hosts that cannot leave: with times, those with workers of sources, which keep their splits."""
        sources = self._graph.sources if is_tracked(self._graph) else ()
        return 1 + max((host for name in sources for host in status.workers[name]), default=0)

    def _accept(self, proposal: HostProposal) -> Rescale:
        with self.lock:
            if self._proposal is not proposal:
                raise PlanError("this proposal was accepted or withdrawn already; expected run.host_proposal()")
            self._forget()
        return self._run.request(proposal.hosts, None)

    def _forget(self) -> None:
        self._before, self._answer, self._equal, self._proposal = {}, 0, 0, None


def hosts_that_stay(status: TopologyStatus, demands: Iterable[OperatorDemand], rate: float) -> int:
    """The number of the present hosts whose workers suffice for functions that wait; the last ones leave first.

    More hosts than there are is never the answer: waits of busy processors look alike.

    Args:
        status: the topology.
        demands: what the operators need.
        rate: the rates of the sources in sum, in tuples per second.
    """
    present, stay = len(status.hosts), 1
    for one in demands:
        homes = sorted(status.workers.get(one.operator, ()))
        needed = math.ceil(one.workers_needed(rate) - 1e-9)
        if needed > 0 and homes:
            stay = max(stay, 1 + homes[min(needed, len(homes)) - 1])
    return min(stay, present)


def _totals(reports: Iterable[Report]) -> dict[str, Totals]:
    """Operator to the totals of its workers."""
    totals: dict[str, Totals] = {}
    for report in reports:
        name = report.worker.operator
        here = report.processed, report.processed + report.queued_tuples, report.useful_ns, report.busy_ns
        totals[name] = Totals(*(one + more for one, more in zip(totals.get(name, (0, 0, 0, 0)), here, strict=True)))
    return totals
