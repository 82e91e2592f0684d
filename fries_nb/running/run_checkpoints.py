"""The checkpoints of a run: where its regions keep them, and those that users ask for and wait for.

A run of one region keeps them in the place itself, another one in a place below for each.

With several regions the place holds the note of the whole flow, and ``region-1``, ``region-2``, ... are places of
their own, made when their regions begin.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fries_nb.checkpoints import CommittedChange
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import new_table
from fries_nb.running.queue_entries import Request
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.locations import absolute, join


class CheckpointLayout:
    """The places of a run's regions.

    Args:
        path: given by the user; empty for none.
        graph: the whole dataflow.
        regions: how many there are.
        resumed: whether a run of before goes on there.
        key: that signs what is kept; ``NO_KEY`` for none.

    Raises:
        CheckpointError: the place is taken, or holds nothing to go on with, or another flow's; or cannot be used.
    """

    def __init__(self, path: str, graph: Graph, regions: int, resumed: bool, key: bytes) -> None:
        self._path = path = absolute(path) if path else ""  # a region that begins later may find another directory
        self.key = key
        self._whole: CheckpointStore | None = None
        self._regions = regions
        self._several = regions > 1
        self._resumed = resumed
        if path and self._several:
            if resumed:
                self._whole = CheckpointStore.resume(path, graph, key)
            else:
                self._whole = CheckpointStore.claim(path, graph, uuid.uuid4().hex[:8], key)

    def of(self, region: int) -> str:
        """The place of a region; empty for none."""
        return join(self._path, f"region-{region + 1}") if self._path and self._several else self._path

    def resumes(self, region: int) -> bool:
        """Whether the region goes on from what is kept at its place; else it begins.

        Raises:
            CheckpointError: the place cannot be read.
        """
        return self._resumed and (not self._several or CheckpointStore.is_there(self.of(region)))

    def decided(self) -> tuple[CommittedChange, ...]:
        """The changes that were decided before the run was resumed, in order, region by region.

        Raises:
            CheckpointError: there is nothing at a place, or it is damaged.
        """
        places = [self.of(region) for region in range(self._regions) if self.resumes(region)]
        return tuple(one for place in dict.fromkeys(places) for one in CheckpointStore.load(place, self.key)[1].decided)

    def begin(self, region: int, graph: Graph, requests: Sequence[Request]) -> tuple[Graph, bool]:
        """Let the region begin with these requests, however often it is started.

        Args:
            region: its number.
            graph: what it is to run.
            requests: what applies before its first tuple.

        Returns:
            What it runs, and whether it goes on from what is at its place: the requests are noted there, if it has one.

        Raises:
            CheckpointError: the place cannot be used.
        """
        if self.of(region):
            return graph, self._decide(region, graph, requests)
        return changed(graph, region, requests), False

    def _decide(self, region: int, graph: Graph, requests: Iterable[Request]) -> bool:
        resumes, added, path = self.resumes(region), list(requests), self.of(region)
        if not added:
            return resumes
        if resumes:
            place = CheckpointStore.resume(path, graph, self.key)
        else:
            place = CheckpointStore.claim(path, graph, uuid.uuid4().hex[:8], self.key)
        try:
            for request in added:
                place.decide(decided(request, region, place.incarnation))
        finally:
            place.release()
        return True

    def abandon(self) -> None:
        """The run could not start: what was there is left as it was found.

        Raises:
            CheckpointError: the place cannot be written.
        """
        if self._whole is not None and not self._resumed:
            self._whole.withdraw()
        self.release()

    def release(self) -> None:
        """The run has ended: others may resume it.

        Raises:
            CheckpointError: that cannot be written; this process knows it all the same.
        """
        if self._whole is not None:
            self._whole.release()


def decided(request: Request, region: int, incarnation: int) -> CommittedChange:
    """The note of a request as one region carries it out."""
    plan = request.plans[region]
    return CommittedChange(
        request.id,
        plan.scheduler,
        tuple(tuple(sorted(part.operators)) for part in plan.covering.components),
        {name: request.payloads[name] for name in plan.targets},
        incarnation,
    )


def changed(graph: Graph, region: int, requests: Iterable[Request]) -> Graph:
    """The graph as it is after these requests, which nothing has run before."""
    functions: dict[str, Any] = {}
    for request in requests:
        for name in request.plans[region].targets:
            operator, update = graph.operator(name), request.updates[name]
            functions[name] = new_table(operator, update) if operator.traits.holds is Holds.TABLE else update.function
    return with_functions(graph, functions)


def with_functions(graph: Graph, functions: Mapping[str, Any]) -> Graph:
    """The graph, with other functions for some operators."""
    if not functions:
        return graph
    operators = tuple(
        replace(one, function=functions[one.name]) if one.name in functions else one for one in graph.operators
    )
    return Graph(graph.name, operators, graph.edges)


class CheckpointRequests:
    """The requests of a run's users for checkpoints, with the answer to each; any thread may call any method.

    >>> requests = CheckpointRequests()
    >>> request = requests.new()
    >>> requests.answer([request], "no space left on device")
    >>> requests.wait(request, timeout=1.0)
    'no space left on device'
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: dict[str, threading.Event] = {}
        self._reasons: dict[str, str] = {}

    def new(self) -> str:
        """Begin a request; returns its id."""
        with self._lock:
            request = f"k{len(self._answered) + 1}"
            self._answered[request] = threading.Event()
        return request

    def answer(self, requests: Iterable[str], reason: str) -> None:
        """Answer requests: the checkpoint is complete, or was aborted for a reason; only the first answer counts."""
        with self._lock:
            for request in requests:
                self._reasons.setdefault(request, reason)
                self._answered[request].set()

    def refuse(self, reason: str) -> None:
        """None of those that are still open will be taken."""
        self.answer(list(self._answered), reason)

    def wait(self, request: str, timeout: float) -> str:
        """Wait for the answer: why there is no checkpoint, empty if there is one.

        Args:
            request: its id.
            timeout: seconds to wait.

        Raises:
            TimeoutError: there is no answer by then.
        """
        if not self._answered[request].wait(timeout):
            raise TimeoutError(f"request {request} has no answer after {timeout:g} s")
        return self._reasons[request]
