"""Requests for another number of hosts: what can be rescaled, what new hosts bring, and the handles of the requests.

A new host brings ``round(workers / hosts)`` workers of every operator, by the numbers with which the run began, except
where the number was declared. Operators on forward edges between equal numbers grow together, or not at all.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from fries_nb.controller.events import HostsRequested, RescaleCancelled, RescaleEnded
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.endpoints import rate_of
from fries_nb.dataflow.graph import Graph, Partitioning
from fries_nb.dataflow.regions import Region
from fries_nb.errors import PlanError
from fries_nb.host.region_spec import Options
from fries_nb.protocol.messages import Report
from fries_nb.protocol.partitioning import BINS
from fries_nb.protocol.progress_locations import is_tracked
from fries_nb.protocol.topology import Topology
from fries_nb.running.remedies import HostAdvice
from fries_nb.spark.launch import Launched
from fries_nb.telemetry.telemetry import Telemetry


@dataclass(frozen=True)
class RescaleResult:
    """The outcome of a rescale.

    Attributes:
        outcome: ``done``; ``aborted``, without any effect; or ``failed`` with the run.
        hosts: the number of hosts now.
        error: the reason in one sentence; empty if done.
        delay_ms: milliseconds from the request, or from when tuples flow, to the end.
    """

    outcome: Literal["done", "aborted", "failed"]
    hosts: int
    error: str = ""
    delay_ms: float = 0.0


class Rescale:
    """A request for another number of hosts; made by ``Run.rescale``.

    Attributes:
        id: the id of the request, unique in its run.
        hosts: the requested number of hosts.
    """

    def __init__(self, request: str, hosts: int, run: RescaledRun) -> None:
        self.id = request
        self.hosts = hosts
        self._run = run
        self._ended = threading.Event()
        self._result: RescaleResult | None = None

    def __repr__(self) -> str:
        return f"Rescale(to {self.hosts} hosts: {self.outcome or 'under way'})"

    @property
    def outcome(self) -> str:
        """``done``, ``aborted`` or ``failed``; empty while it is under way."""
        return self._result.outcome if self._result is not None else ""

    def cancel(self) -> None:
        """Cancel it, if no row is routed to new hosts yet and no state has moved; otherwise it continues.

        ``result()`` says which: a cancelled rescale is ``aborted``. Without effect if it has ended.
        """
        if not self._ended.is_set():
            self._run.post(RescaleCancelled(self.id))

    def result(self, timeout: float | None = None) -> RescaleResult:
        """Wait until the rescale has ended.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Returns:
            The outcome, with the reason if it is not done.

        Raises:
            TimeoutError: it has not ended in time; it continues.
        """
        if not self._ended.wait(timeout) or self._result is None:
            raise TimeoutError(f"the rescale to {self.hosts} hosts is still under way")
        return self._result

    def resolve(self, result: RescaleResult) -> None:
        """Record the outcome and wake waiting threads; called by the run."""
        if self._result is None:
            self._result = result
            self._ended.set()


class RescaledRun(Protocol):
    """The run that is rescaled; see ``region_runner``."""

    launched: list[Launched]
    options: Options
    telemetry: Telemetry
    rates: dict[str, float]

    def post(self, event: HostsRequested | RescaleCancelled) -> None:
        """Pass a request to the controller of the running region."""

    def refuse_if_over(self, why: str) -> None:
        """Raise a RunError if the run accepts no further requests."""


class Rescales:
    """The requests of a run.

    Attributes:
        advice: proposes another number of hosts.
    """

    def __init__(self, regions: tuple[Region, ...], run: RescaledRun) -> None:
        self.advice = HostAdvice(regions[-1].graph, self)
        self._regions = regions
        self._run = run
        self._told = 0  # the number of hosts, as the controller has told it last
        self._requests: dict[str, Rescale] = {}
        self._last_number = 0
        self._lock = threading.Lock()
        self._is_closed = False

    def go_on(self, regions: tuple[Region, ...]) -> None:
        """Go on with the dataflow after a change of its shape."""
        self._regions = regions
        self.advice = HostAdvice(regions[-1].graph, self)

    def request(self, hosts: int, at_once: int | None) -> Rescale:
        """Request another number of hosts; see ``Run.rescale`` for the arguments and errors."""
        if not isinstance(hosts, int) or isinstance(hosts, bool) or hosts < 1:
            raise PlanError(f"hosts={hosts!r}; expected a whole number from 1 up")
        if at_once is not None and (
            not isinstance(at_once, int) or isinstance(at_once, bool) or not 1 <= at_once <= BINS
        ):
            raise PlanError(f"at_once={at_once!r}; expected a number of bins from 1 to {BINS:,}, or None to adapt it")
        self._run.refuse_if_over("a rescale needs a running dataflow")
        if len(self._regions) > 1:
            raise PlanError("a dataflow with an aggregate or a sort cannot be rescaled yet; expected one region")
        brought = self._shares()
        if hosts > self._hosts:
            self._run.launched[-1].session.require_more(hosts - self._hosts, self._hosts)
        with self._lock:
            ended = [one for one, rescale in self._requests.items() if rescale.outcome]
            for one in ended[:-1]:  # the last one is shown
                del self._requests[one]
            self._last_number += 1
            rescale = Rescale(f"r{self._last_number}", hosts, self._run)
            self._run.telemetry.rescale_requested(rescale.id, hosts, self.status)
            self._requests[rescale.id] = rescale
            if self._is_closed:  # since it was asked whether the run is over
                rescale.resolve(self._unheard())
        self._run.post(HostsRequested(rescale.id, hosts, brought, at_once or 0))
        return rescale

    @property
    def status(self) -> TopologyStatus:
        """The topology of the region launched last; see ``Run.topology``."""
        return self._run.launched[-1].driver.controller.topology

    @property
    def last(self) -> Rescale | None:
        """The last request that has not ended, or else the last one; ``None`` before the first."""
        requests = list(self._requests.values())
        return next((request for request in requests if not request.outcome), requests[-1] if requests else None)

    @cached_property
    def can_rescale(self) -> bool:
        """Whether the dataflow can be rescaled, as far as that does not depend on free slots."""
        try:
            return len(self._regions) == 1 and bool(self._shares())
        except PlanError:
            return False

    def _shares(self) -> dict[str, int]:
        return shares(self._regions[0].graph, self._run.options.hosts, self._run.options)

    def reports(self) -> tuple[Report, ...]:
        """The last report of each worker."""
        return self._run.telemetry.reports()

    def target_rates(self) -> dict[str, float | None]:
        """Source to the rate that it is to deliver in tuples per second, ``None`` without one."""
        by_name, found = self._regions[-1].graph.by_name, dict[str, float | None]()
        for name in self._regions[-1].graph.sources:
            found[name] = self._run.rates.get(name, rate_of(by_name[name].function))
        return found

    @property
    def _hosts(self) -> int:
        return self._told or self._run.options.hosts

    def ended(self, event: RescaleEnded) -> None:
        """Record the outcome of a request."""
        self._told = event.hosts
        result = RescaleResult(event.outcome, event.hosts, event.error, event.delay_ms)
        rescale = self._requests[event.request]
        self._run.telemetry.rescale_ended(event, rescale.hosts, self.status)
        rescale.resolve(result)

    def closed(self) -> None:
        """End the requests that the controller has not heard of, since the region has ended."""
        with self._lock:
            self._is_closed = True
            for rescale in self._requests.values():
                rescale.resolve(self._unheard())

    def _unheard(self) -> RescaleResult:
        return RescaleResult("aborted", self._hosts, "the run had ended; nothing changed")


def shares(graph: Graph, hosts: int, options: Options) -> dict[str, int]:
    """Operator to the number of workers that each new host brings."""
    if looped := [one.name for one in graph.operators if one.within.level]:
        raise PlanError(f"a dataflow with a loop cannot be rescaled yet; {looped[0]} is in one")
    fixed = options.fixed.union(graph.sources if is_tracked(graph) else ())  # splits do not move with times yet
    topology = Topology.dealt(graph, hosts, options.chaining)
    brought: dict[str, int] = {}
    why: list[str] = []
    for name, operator in graph.by_name.items():
        group = {worker.operator for worker in topology.last_workers(name)}
        into = [edge.partitioning for edge in graph.edges if edge.to in group and not topology.is_one_to_one(edge)]
        if stays := sorted(group & fixed):
            why.append(f"{name} stays" if name in stays else f"{name} stays with {stays[0]}, on its forward edges")
        elif Partitioning.BROADCAST in into:
            why.append(f"each worker of {name} gets all rows")
        else:
            brought[name] = round(operator.workers / hosts)
    if not any(brought.values()):
        reasons = "; ".join(why) or "there are fewer workers than hosts"
        declared = "declared workers= stay, and a source's is 1 unless it is None"
        raise PlanError(f"no operator can get workers on a new host: {reasons}; {declared}")
    return {name: count for name, count in brought.items() if count}
