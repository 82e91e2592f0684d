"""Where the regions of a run keep their checkpoints: a run of one region in the place itself, else each in one below.

With several regions the place holds the note of the whole flow, and ``region-1``, ``region-2``, ... are places of
their own, made when their regions begin.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from pyarrow import fs

from fries_nb.checkpoints import Decided, Restoration
from fries_nb.dataflow.graph import Graph
from fries_nb.running.ledger import Request
from fries_nb.spark.checkpoints import Place
from fries_nb.spark.storage import join, locate


class Places:
    """The places of a run's regions.

    Args:
        path: given by the user; empty for none.
        graph: the whole dataflow.
        regions: how many there are.
        resumed: whether a run of before goes on there.

    Raises:
        CheckpointError: the place is taken, or holds nothing to go on with, or another flow's; or cannot be used.
    """

    def __init__(self, path: str, graph: Graph, regions: int, resumed: bool) -> None:
        self._path = path
        self._regions = regions
        self._several = regions > 1
        self._resumed = resumed
        if path and self._several:
            if resumed:
                Place.resume(path, graph)
            else:
                Place.claim(path, graph, uuid.uuid4().hex[:8])

    def of(self, region: int) -> str:
        """The place of a region; empty for none."""
        return join(self._path, f"region-{region + 1}") if self._path and self._several else self._path

    def restoration(self, region: int) -> Restoration | None:
        """What the region goes on from; ``None`` if it begins.

        Raises:
            CheckpointError: there is nothing at the place, or it is damaged.
        """
        place = self.of(region)
        if not self._resumed or (self._several and not _exists(place)):
            return None
        return Place.load(place)[1]

    def decided(self) -> tuple[Decided, ...]:
        """The changes that were decided before the run was resumed, in order, region by region.

        Raises:
            CheckpointError: there is nothing at a place, or it is damaged.
        """
        if not self._resumed:
            return ()
        regions = range(self._regions) if self._several else (0,)
        restorations = (self.restoration(region) for region in regions)
        return tuple(one for restoration in restorations if restoration for one in restoration.decided)

    def decide(self, region: int, graph: Graph, requests: Iterable[Request]) -> Restoration | None:
        """As ``restoration``, with these requests decided on top: the region begins with them, however often.

        Raises:
            CheckpointError: the place cannot be used.
        """
        restoration, added = self.restoration(region), list(requests)
        if not added:
            return restoration
        path = self.of(region)
        place = Place.claim(path, graph, uuid.uuid4().hex[:8]) if restoration is None else Place.resume(path, graph)
        known = restoration or Restoration(None)
        for request in added:
            one = decided(request, region, place.incarnation)
            place.decide(one)
            known = Restoration(known.checkpoint, (*known.decided, one))
        return known


def decided(request: Request, region: int, incarnation: int) -> Decided:
    """The note of a request as one region carries it out."""
    plan = request.plans[region]
    return Decided(
        request.id,
        plan.scheduler,
        tuple(tuple(sorted(part.operators)) for part in plan.covering.components),
        {name: request.payloads[name] for name in plan.targets},
        incarnation,
    )


def _exists(place: str) -> bool:
    filesystem, path = locate(place)
    found: fs.FileInfo = filesystem.get_file_info(f"{path}/flow.json")
    return bool(found.type == fs.FileType.File)
