"""The checkpoints of a run: the directories of its regions, and the requests of users.

A run of one region keeps its checkpoints in the user's directory. With several regions, that directory describes the
whole dataflow, and each region has a checkpoint directory in it, ``region-1``, ``region-2``, ..., created when the
region starts.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fries_nb.changes.queue_entries import Request
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import configured, new_table
from fries_nb.dataflow.windowing import following
from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.spark.launch import Begun
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.durable import absolute, join
from fries_nb.storage.flow_shape import concerning, difference


class CheckpointLayout:
    """The checkpoint directories of a run's regions.

    Args:
        path: directory or URI given by the user; empty for none.
        graph: the whole dataflow.
        resumed: whether an earlier run is resumed from the directory.
        key: the key that signs checkpoints; ``NO_KEY`` for none.
        drop: the operators that are not there any more, and whose state in the checkpoint may be lost.
        begun: the directory, if the run is a fork, which has it already.

    Attributes:
        path: the same, absolute.

    Raises:
        CheckpointError: the directory is taken, holds no checkpoint to resume or that of another dataflow, or cannot be
            used.
    """

    def __init__(
        self, path: str, graph: Graph, regions: int, resumed: bool, key: bytes, drop: Collection[str] = (),
        begun: Begun | None = None,
    ) -> None:  # fmt: skip
        self.path = path = absolute(path) if path else ""  # the working directory may change between regions
        self.key = key
        self.drop = drop
        self.begun = begun
        self._whole: CheckpointStore | None = None
        self._graph = graph
        self._regions = regions
        self._several = regions > 1
        self._resumed = resumed
        if path and resumed and (self._several or CheckpointStore.is_there(join(path, "region-1"))):
            _refuse_another_shape(path, graph, key)
        if path and self._several:
            if resumed:
                self._whole = CheckpointStore.resume(path, graph, key)
            else:
                self._whole = CheckpointStore.claim(path, graph, uuid.uuid4().hex[:8], key)

    def of(self, region: int) -> str:
        """The checkpoint directory of a region; empty for none."""
        return join(self.path, f"region-{region + 1}") if self.path and self._several else self.path

    def resumes(self, region: int) -> bool:
        """Whether the region is resumed from its directory; otherwise it starts from the beginning."""
        return self._resumed and (not self._several or CheckpointStore.is_there(self.of(region)))

    def decided(self) -> tuple[CommittedChange, ...]:
        """The changes that were decided before the run was resumed, or forked, in order, region by region."""
        if self.begun is not None:
            return concerning(self.begun.place.restoration.decided, self._graph, {})
        places = [self.of(region) for region in range(self._regions) if self.resumes(region)]
        found = (one for place in dict.fromkeys(places) for one in CheckpointStore.load(place, self.key)[1].decided)
        return concerning(found, self._graph, {})

    def begin(self, region: int, graph: Graph, requests: Sequence[Request]) -> tuple[Graph, bool]:
        """Apply requests before the region's first tuple.

        With a checkpoint directory they are stored there as decided changes, so that every restart of the region
        applies them; otherwise the graph gets their functions.

        Returns:
            The graph to run, and whether the region is to be resumed from its directory.
        """
        if self.of(region):
            return graph, self._decide(region, graph, requests)
        return changed(graph, region, requests), False

    def _decide(self, region: int, graph: Graph, requests: Iterable[Request]) -> bool:
        resumes, added, path = self.resumes(region), list(requests), self.of(region)
        if not added:
            return resumes
        if resumes:
            place = CheckpointStore.resume(path, graph, self.key, self.drop)
        else:
            place = CheckpointStore.claim(path, graph, uuid.uuid4().hex[:8], self.key)
        try:
            for request in added:
                place.decide(decided(request, region, place.incarnation))
        finally:
            place.release()
        return True

    def abandon(self) -> None:
        """Restore the directory as it was found, since the run could not start."""
        if self._whole is not None and not self._resumed:
            self._whole.withdraw()
        self.release()

    def release(self) -> None:
        """Release the directory at the end of the run, so that other processes can resume it."""
        if self._whole is not None:
            self._whole.release()


def _refuse_another_shape(path: str, graph: Graph, key: bytes) -> None:
    """Check that a dataflow of several regions has the shape that it had; each region has its own state."""
    if other := difference(CheckpointStore.load(path, key)[0], graph):
        only = "with aggregates or sorts, before or now, a dataflow goes on in the same shape only"
        raise CheckpointError(f"{path} holds a checkpoint {other}; {only}")


def decided(request: Request, region: int, incarnation: int) -> CommittedChange:
    """The decided change of a request in one region, for the checkpoint directory."""
    plan = request.plans[region]
    return CommittedChange(
        request.id,
        plan.scheduler,
        tuple(tuple(sorted(part.operators)) for part in plan.covering.components),
        {name: request.payloads[name] for name in plan.targets},
        incarnation,
    )


def changed(graph: Graph, region: int, requests: Iterable[Request]) -> Graph:
    """The graph with the functions of these requests, for a region that starts from the beginning."""
    functions: dict[str, Any] = {}
    for request in requests:
        for name in request.plans[region].targets:
            operator, update = graph.operator(name), request.updates[name]
            if operator.traits.holds is Holds.TABLE:
                functions[name] = new_table(operator, update)
            else:
                functions[name] = following(functions.get(name, operator.function), configured(operator, update))
    return with_functions(graph, functions)


def with_functions(graph: Graph, functions: Mapping[str, Any]) -> Graph:
    """The graph with other functions for the given operators."""
    if not functions:
        return graph
    operators = tuple(
        replace(one, function=functions[one.name]) if one.name in functions else one for one in graph.operators
    )
    return replace(graph, operators=operators)


class CheckpointRequests:
    """The checkpoint requests of a run's users, and the answer to each; thread-safe.

    >>> requests = CheckpointRequests()
    >>> request = requests.new()
    >>> requests.answer([request], "no space left on device")
    >>> requests.wait(request, timeout=1.0)
    'no space left on device'
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_number = 0
        self._answered: dict[str, threading.Event] = {}
        self._reasons: dict[str, str] = {}

    def new(self) -> str:
        """Begin a request; returns its id."""
        with self._lock:
            self._last_number += 1
            request = f"k{self._last_number}"
            self._answered[request] = threading.Event()
        return request

    def answer(self, requests: Iterable[str], reason: str) -> None:
        """Answer requests: the checkpoint is complete, or was aborted for a reason; only the first answer counts."""
        with self._lock:
            for request in self._answered.keys() & set(requests):  # the callers of the others have stopped waiting
                self._reasons.setdefault(request, reason)
                self._answered[request].set()

    def refuse(self, reason: str) -> None:
        """Answer all open requests with a refusal."""
        self.answer(list(self._answered), reason)

    def wait(self, request: str, timeout: float) -> str:
        """Wait for the answer to a request; only once.

        Returns:
            Why the checkpoint was aborted; empty if it is complete.
        """
        answered = self._answered[request].wait(timeout)
        with self._lock:
            del self._answered[request]
            if not answered:
                raise TimeoutError(f"request {request} has no answer after {timeout:g} s")
            return self._reasons.pop(request)
