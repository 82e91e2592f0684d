"""Requests for another number of hosts: what can be rescaled, what new hosts bring, and the handles of the requests.

A new host brings ``round(workers / hosts)`` workers of every operator, by the numbers with which the run began, except
where the number was declared. Operators on forward edges between equal numbers grow together, or not at all.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal, Protocol

from fries_nb.controller.events import HostsRequested, RescaleEnded
from fries_nb.dataflow.graph import Graph, Partitioning
from fries_nb.dataflow.regions import Region
from fries_nb.errors import PlanError
from fries_nb.spark.launch import Launched
from fries_nb.spark.region_spec import Options
from fries_nb.topology.progress_locations import progress_of
from fries_nb.topology.topology import Topology


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

    def __init__(self, request: str, hosts: int) -> None:
        self.id = request
        self.hosts = hosts
        self._ended = threading.Event()
        self._result: RescaleResult | None = None

    def __repr__(self) -> str:
        return f"Rescale(to {self.hosts} hosts: {self.outcome or 'under way'})"

    @property
    def outcome(self) -> str:
        """``done``, ``aborted`` or ``failed``; empty while it is under way."""
        return self._result.outcome if self._result is not None else ""

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

    def post(self, event: HostsRequested) -> None:
        """Pass a request to the controller of the running region."""

    def refuse_if_over(self, why: str) -> None:
        """Raise a RunError if the run accepts no further requests."""


class Rescales:
    """The requests of a run.

    Args:
        regions: the regions of the dataflow.
        run: the run.
    """

    def __init__(self, regions: tuple[Region, ...], run: RescaledRun) -> None:
        self._regions = regions
        self._run = run
        self._told = 0  # the number of hosts, as the controller has told it last
        self._requests: dict[str, Rescale] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def request(self, hosts: int) -> Rescale:
        """Request another number of hosts; see ``Run.rescale`` for the arguments and errors."""
        if not isinstance(hosts, int) or isinstance(hosts, bool) or hosts < 1:
            raise PlanError(f"hosts={hosts!r}; expected a whole number from 1 up")
        self._run.refuse_if_over("a rescale needs a running dataflow")
        if len(self._regions) > 1:
            raise PlanError("a dataflow with an aggregate or a sort cannot be rescaled yet; expected one region")
        brought = shares(self._regions[0].graph, self._run.options.hosts, self._run.options)
        if hosts > self._hosts:
            self._run.launched[-1].session.require_more(hosts - self._hosts, self._hosts)
        with self._lock:
            rescale = Rescale(f"r{len(self._requests) + 1}", hosts)
            self._requests[rescale.id] = rescale
            if self._is_closed:  # since it was asked whether the run is over
                rescale.resolve(self._unheard())
        self._run.post(HostsRequested(rescale.id, hosts, brought))
        return rescale

    @property
    def _hosts(self) -> int:
        return self._told or self._run.options.hosts

    def ended(self, event: RescaleEnded) -> None:
        """Record the outcome of a request."""
        self._told = event.hosts
        result = RescaleResult(event.outcome, event.hosts, event.error, event.delay_ms)
        self._requests[event.request].resolve(result)

    def closed(self) -> None:
        """End the requests that the controller has not heard of, since the region has ended."""
        with self._lock:
            self._is_closed = True
            for rescale in self._requests.values():
                rescale.resolve(self._unheard())

    def _unheard(self) -> RescaleResult:
        return RescaleResult("aborted", self._hosts, "the run had ended; nothing changed")


def shares(graph: Graph, hosts: int, options: Options) -> dict[str, int]:
    """Operator to the number of workers that each new host brings.

    Args:
        graph: the dataflow, as the run began.
        hosts: the number of hosts with which it began.
        options: the options of the run.

    Raises:
        PlanError: the dataflow works by time or has a loop, or a keyed operator would have to move state, or no
            operator can get another worker.
    """
    if progress_of(graph) is not None:
        timed = (one.name for one in graph.operators if one.time is not None or one.within.level or one.traits.timed)
        raise PlanError(f"a dataflow that works by time or has a loop cannot be rescaled yet; {next(timed)} does")
    topology = Topology.dealt(graph, hosts, options.chaining)
    brought: dict[str, int] = {}
    why: list[str] = []
    for name, operator in graph.by_name.items():
        group = {worker.operator for worker in topology.last_workers(name)}
        into = [edge.partitioning for edge in graph.edges if edge.to in group and not topology.is_one_to_one(edge)]
        if stays := sorted(group & (options.fixed | set(graph.sources))):
            why.append(f"{name} stays" if name in stays else f"{name} stays with {stays[0]}, on its forward edges")
        elif Partitioning.BROADCAST in into:
            why.append(f"each worker of {name} gets all rows")
        elif Partitioning.HASH in into:
            raise PlanError(
                f"{name} has its keys on the hosts of the beginning, and keys do not move yet; expected no operator "
                "with key=, or workers= there, so that it stays"
            )
        else:
            brought[name] = round(operator.workers / hosts)
    if not any(brought.values()):
        reasons = "; ".join(why) or "there are fewer workers than hosts"
        raise PlanError(f"no operator can get workers on a new host: {reasons}; sources and declared workers= stay")
    return {name: count for name, count in brought.items() if count}
