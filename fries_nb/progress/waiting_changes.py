"""What a host has not broadcast yet: it waits, and grows, until it can let a frontier advance somewhere.

>>> from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
>>> flow = ProgressGraph({"S": (), "O": ()}, (FlowEdge("S", "O"),))
>>> source = GraphLocation("S")
>>> waiting = WaitingChanges(Tracker(flow, ["O"], [CountChange(source, (0, 3), 1), CountChange(source, (0, 5), 1)]))
>>> waiting.is_due(waiting.extend([CountChange(source, (0, 5), -1)]), {})    # 3 holds O back, not 5
False
>>> waiting.is_due(waiting.extend([CountChange(source, (0, 3), -1)]), {})
True
>>> len(waiting), len(waiting.take()), len(waiting)
(2, 2, 0)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from types import MappingProxyType

from fries_nb.progress.antichain import Antichain
from fries_nb.progress.change_batch import ChangeBatch, CountChange, CountChanges, GraphLocation, Pointstamp
from fries_nb.progress.times import Time
from fries_nb.progress.tracker import Tracker

__all__ = ["Antichain", "GraphLocation", "Tracker", "WaitingChanges"]

NO_CHANGE: Mapping[str, Antichain] = MappingProxyType({})


class WaitingChanges:
    """The changes that a host has not broadcast yet, and what each of them could release.

    Args:
        tracker: the host's view.
    """

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._batch = ChangeBatch()
        self._releases: dict[tuple[str, Time], set[Pointstamp]] = {}

    def __len__(self) -> int:
        return len(self._batch)

    def extend(self, changes: Iterable[CountChange]) -> list[Pointstamp]:
        """Add a step; returns what it takes away that was not taken away before."""
        released: list[Pointstamp] = []
        for location, time, delta in changes:
            if not self._tracker.graph.leads_on(location):
                continue
            net = self._batch.update(location, time, delta)
            if (net < 0) != (net - delta < 0):
                self._index((location, time), net < 0)
                if net < 0:
                    released.append((location, time))
        return released

    def _index(self, stamp: Pointstamp, is_release: bool) -> None:
        for image in self._tracker.images(*stamp):
            stamps = self._releases.setdefault(image, set())
            if is_release:
                stamps.add(stamp)
            else:
                stamps.discard(stamp)
                if not stamps:
                    del self._releases[image]

    def is_due(self, stamps: Iterable[Pointstamp], frontiers: Mapping[str, Antichain]) -> bool:
        """Whether something minimal in the view is taken away: one of these, or what these frontiers wait for.

        Args:
            stamps: what has come to wait, or whose count in the view has changed.
            frontiers: those that have changed.
        """
        if any(self._batch.get(*stamp) < 0 and self._tracker.is_minimal(*stamp) for stamp in stamps):
            return True
        elements = chain.from_iterable(((listener, time) for time in new) for listener, new in frontiers.items())
        waiting = chain.from_iterable(self._releases.get(element, ()) for element in elements)
        return any(self._tracker.count(*stamp) > 0 for stamp in waiting)

    @property
    def stamps(self) -> list[Pointstamp]:
        """What has changed."""
        return [(location, time) for location, time, _ in self._batch]

    def take(self) -> CountChanges:
        """All changes, whole; none is left."""
        self._releases.clear()
        return self._batch.take()
