"""Requests for other numbers of hosts or workers: what can be rescaled, and the handles of the requests.

A new host brings ``round(workers / hosts)`` workers of every operator, by the numbers with which the run began, except
where the number was declared, or requested since. Operators on forward edges between equal numbers grow together, or
not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal, Protocol

from fries_nb.changes.change import Change
from fries_nb.controller.events import RescaleCancelled, RescaleEnded, RescaleRequested
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.arguments import MOST_WORKERS
from fries_nb.dataflow.endpoints import rate_of
from fries_nb.dataflow.graph import Graph, Partitioning
from fries_nb.dataflow.regions import Region
from fries_nb.errors import DataflowError, PlanError, unknown
from fries_nb.host.region_spec import Options
from fries_nb.protocol.messages import Report
from fries_nb.protocol.partitioning import BINS
from fries_nb.protocol.progress_locations import is_tracked
from fries_nb.protocol.topology import Topology
from fries_nb.running.remedies import HostAdvice
from fries_nb.spark.launch import Launched
from fries_nb.telemetry.telemetry import Telemetry
from fries_nb.words import counted

NO_NUMBERS: Mapping[str, int] = MappingProxyType({})


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
    """A request for another number of hosts, or of workers; made by ``Run.rescale``.

    Attributes:
        id: the id of the request, unique in its run.
        hosts: the requested number of hosts; ``None`` if it is one of workers.
        workers: operator to the requested number of workers; empty if it is one of hosts.
        is_cancelled: whether it is to be cancelled, if that is possible.
    """

    def __init__(
        self, request: str, hosts: int | None, run: RescaledRun, workers: Mapping[str, int] = NO_NUMBERS
    ) -> None:
        self.id = request
        self.hosts = hosts
        self.workers = dict(workers)
        self.is_cancelled = False
        self._run = run
        self._ended = threading.Event()
        self._result: RescaleResult | None = None

    def __repr__(self) -> str:
        return f"Rescale({self.aim}: {self.outcome or 'under way'})"

    @property
    def aim(self) -> str:
        """What it is to lead to, in words.

        >>> Rescale("r1", None, None, {"FM": 4, "FD": 1}).aim
        'to 4 workers of FM and 1 of FD'
        """
        if self.hosts is not None:
            return f"to {counted(self.hosts, 'host')}"
        (name, count), *others = self.workers.items()
        return " and ".join([f"to {counted(count, 'worker')} of {name}", *(f"{n} of {each}" for each, n in others)])

    @property
    def outcome(self) -> str:
        """``done``, ``aborted`` or ``failed``; empty while it is under way."""
        return self._result.outcome if self._result is not None else ""

    def cancel(self) -> None:
        """Cancel it, if no row is routed to new workers yet and no state has moved; otherwise it continues.

        ``result()`` says which: a cancelled rescale is ``aborted``. Without effect if it has ended.
        """
        if not self._ended.is_set():
            self.is_cancelled = True
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
            raise TimeoutError(f"the rescale {self.aim} is still under way")
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

    def post(self, event: RescaleRequested | RescaleCancelled) -> None:
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
        self._numbered = frozenset[str]()  # operators that got a number of workers since the run began
        self._told = 0  # the number of hosts, as the controller has told it last
        self._requests: dict[str, Rescale] = {}
        self._last_number = 0
        self._lock = threading.Lock()
        self._is_closed = False

    def go_on(self, regions: tuple[Region, ...]) -> None:
        """Go on with the dataflow after a change of its shape."""
        self._regions = regions
        self.advice = HostAdvice(regions[-1].graph, self)

    def declare(self, names: Collection[str]) -> None:
        """Record that the numbers of workers of these operators are declared from now on."""
        with self._lock:
            self._numbered = self._numbered.union(names)
            self.__dict__.pop("can_rescale", None)  # which depends on them

    def request(
        self, hosts: int | None, at_once: int | None = None, workers: Mapping[str, int] | None = None
    ) -> Rescale:
        """Request another number of hosts, or of workers; see ``Run.rescale`` for the arguments and errors."""
        if (hosts is None) is (workers is None):
            given = f"hosts={hosts!r}, workers={workers!r}"
            raise PlanError(f"{given}; expected either a number of hosts, or operators with their numbers of workers")
        if at_once is not None and not (_is_number(at_once) and at_once <= BINS):
            raise PlanError(f"at_once={at_once!r}; expected a number of bins from 1 to {BINS:,}, or None to adapt it")
        if hosts is not None and not _is_number(hosts):
            raise PlanError(f"hosts={hosts!r}; expected a whole number from 1 up")
        self._run.refuse_if_over("a rescale needs a running dataflow")
        if workers is not None:
            self.check(workers)
        brought = {} if hosts is None else self._brought_to(hosts)
        rescale = self._new(hosts, workers or {})
        self._run.post(RescaleRequested(rescale.id, hosts, brought, at_once or 0, rescale.workers))
        return rescale

    def _brought_to(self, hosts: int) -> dict[str, int]:
        """Operator to the number of workers that each new host brings."""
        if len(self._regions) > 1:
            raise PlanError("a dataflow with an aggregate or a sort cannot be rescaled yet; expected one region")
        _refuse_loops(self._regions[0].graph)
        if hosts > self._hosts:
            brought = self._shares()
            self._run.launched[-1].session.require_more(hosts - self._hosts, self._hosts)
            return brought
        return self._shares() if self.can_rescale else {}  # hosts can leave all the same

    def _new(self, hosts: int | None, numbers: Mapping[str, int]) -> Rescale:
        """A request that is known from now on; the controller is not told of it yet."""
        self.declare(numbers)
        with self._lock:
            ended = [one for one, rescale in self._requests.items() if rescale.outcome]
            for one in ended[:-1]:  # the last one is shown
                del self._requests[one]
            self._last_number += 1
            rescale = Rescale(f"r{self._last_number}", hosts, self._run, numbers)
            self._run.telemetry.rescale_requested(rescale.id, rescale.aim, self.status)
            self._requests[rescale.id] = rescale
            if self._is_closed:  # since it was asked whether the run is over
                rescale.resolve(self._unheard())
        return rescale

    def behind(self, change: Change, numbers: Mapping[str, int]) -> Rescale:
        """Request other numbers of workers as soon as a change is done; without the change there is no rescale."""
        rescale = self._new(None, numbers)

        def follow() -> None:
            result = change.result()
            if result.outcome != "done":
                words = f"change {change.id} was not made; the numbers of workers are as before"
                self.ended(RescaleEnded(rescale.id, "aborted", self._hosts, words))
                return
            self._run.post(RescaleRequested(rescale.id, None, workers=rescale.workers))
            if rescale.is_cancelled:  # the controller did not know it yet
                self._run.post(RescaleCancelled(rescale.id))

        threading.Thread(target=follow, name="fries-rescale-behind", daemon=True).start()
        return rescale

    @property
    def sizes(self) -> dict[str, int]:
        """Operator to its number of workers now; empty for a dataflow of several regions."""
        return {} if len(self._regions) > 1 else {name: len(at) for name, at in self.status.workers.items()}

    def check(self, workers: Mapping[str, int], after: Graph | None = None) -> None:
        """Check that operators can have these numbers of workers.

        Args:
            workers: operator to its number.
            after: the dataflow with this shape, if it is changed before.

        Raises:
            PlanError: see ``Run.rescale``.
        """
        if len(self._regions) > 1:
            raise PlanError("a dataflow with an aggregate or a sort cannot be rescaled yet; expected one region")
        graph = after or self._regions[0].graph
        if not isinstance(workers, Mapping) or not workers:
            raise PlanError(f"workers={workers!r}; expected operators with their numbers, as in {{'FM': 4}}")
        for name, count in workers.items():
            if not _is_number(count) or count > MOST_WORKERS:
                raise PlanError(f"workers={dict(workers)!r}; expected whole numbers from 1 to {MOST_WORKERS:,}")
            if name not in graph:
                raise PlanError(unknown("operator", str(name), graph))
        _refuse_loops(graph)
        try:
            placed = self._run.launched[-1].driver.controller.placed
            topology = placed if after is None else placed.reshaping(after, [0]).reshaped()
            numbers = topology.numbers(workers)
        except DataflowError as error:
            raise PlanError(str(error)) from None
        sizes = topology.graph.sizes
        moved = [name for name in graph.sources if numbers.get(name, sizes[name]) != sizes[name]]
        if moved and is_tracked(graph):
            raise PlanError(f"splits of {min(moved)} do not move yet in a dataflow with times")

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
        options = replace(self._run.options, fixed=self._run.options.fixed | self._numbered)
        return shares(self._regions[0].graph, options.hosts, options)

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
        self._run.telemetry.rescale_ended(event, rescale.aim, self.status)
        rescale.resolve(result)

    def closed(self) -> None:
        """End the requests that the controller has not heard of, since the region has ended."""
        with self._lock:
            self._is_closed = True
            for rescale in self._requests.values():
                rescale.resolve(self._unheard())

    def _unheard(self) -> RescaleResult:
        return RescaleResult("aborted", self._hosts, "the run had ended; nothing changed")


def _is_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 1


def _refuse_loops(graph: Graph) -> None:
    if looped := [one.name for one in graph.operators if one.within.level]:
        raise PlanError(f"a dataflow with a loop cannot be rescaled yet; {looped[0]} is in one")


def shares(graph: Graph, hosts: int, options: Options) -> dict[str, int]:
    """Operator to the number of workers that each new host brings."""
    _refuse_loops(graph)
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
