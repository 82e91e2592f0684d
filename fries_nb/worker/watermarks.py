"""Frontiers by watermarks that travel in-band, in place of tokens: what tokens are compared with.

A source puts a watermark into each of its channels, behind all rows so far, once the bound of its unread rows has
risen. A worker has the least of its channels' watermarks, where a channel that has ended counts no more; when it has
risen, the worker's first operator is notified as by tokens, and the watermark is passed on behind all rows made from
earlier input and those that it has brought out. Nothing is counted, and hosts exchange nothing else.

A watermark has no version, so its frontier holds for all of them. Nor has it rounds: dataflows with loops cannot have
watermarks. And nothing tells a source how far the sinks are, so that it cannot wait for them.

>>> from fries_nb.protocol.messages import WorkerId
>>> a, b = (ChannelId(WorkerId(name, 0), WorkerId("W", 0)) for name in "AB")
>>> open_channels = {a, b}
>>> times = ChannelTimes(open_channels)
>>> times.arrived(a, Watermark(7)), times.risen()            # B can still send anything
(None, None)
>>> times.arrived(b, Watermark(4)), times.risen(), times.risen()
(None, 4, None)
>>> open_channels.remove(b)
>>> times.risen(), frontier_at(7)
(7, Antichain(elements=((0, 7),)))
>>> open_channels.remove(a)
>>> frontier_at(times.risen()), times.is_past("W")
(Antichain(elements=()), True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from fries_nb.progress.antichain import Antichain
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.progress.times import EARLIEST, LATEST, Time, moment
from fries_nb.protocol.messages import ChannelId, Data, Watermark
from fries_nb.protocol.progress_locations import Watermarks
from fries_nb.protocol.topology import Wiring
from fries_nb.worker.input_times import Bounds, InputTimes, TrackedTimes

LAST = 2**63
"""In place of a watermark, the end: follows all times."""


def frontier_at(watermark: int) -> Antichain:
    """The frontier of an operator with this watermark."""
    return Antichain() if watermark == LAST else Antichain(((0, watermark),))


class InBandTimes(InputTimes):
    """The watermark of a worker.

    Attributes:
        reached: the watermark.
    """

    is_in_band = True

    def __init__(self) -> None:
        self.reached = self._passed = EARLIEST

    def take_fired(self, stamp: Time) -> None:
        self.stamp = stamp

    def passed_on(self, held: Iterable[Time]) -> int | None:
        watermark = min(map(moment, held), default=self.reached)
        if not self._passed < (watermark := min(watermark, self.reached)) < LAST:
            return None
        self._passed = watermark
        return watermark


class ChannelTimes(InBandTimes):
    """The watermarks of the channels of one worker.

    Args:
        open_channels: the input channels that have not ended; the worker changes this set.
        version: number of tagged changes that the worker has applied.
    """

    def __init__(self, open_channels: Set[ChannelId], version: int = 0) -> None:
        super().__init__()
        self._open = open_channels
        self._watermarks: dict[ChannelId, int] = {}
        self.stamp = (version, EARLIEST)

    def take_frames(self, frames: Sequence[tuple[ChannelId, Data]], version: int) -> None:
        self.stamp = (version, self.reached)

    def arrived(self, channel: ChannelId, watermark: Watermark) -> None:
        self._watermarks[channel] = watermark.time

    def risen(self) -> int | None:
        least = min((self._watermarks.get(channel, EARLIEST) for channel in self._open), default=LAST)
        if least <= self.reached:  # a channel that was added begins with the earliest
            return None
        self.reached = least
        return least

    def is_past(self, operator: str) -> bool:
        return self.reached == LAST


class SourceTimes(InBandTimes):
    """The watermark of a source's worker: the least bound of its splits.

    Args:
        interval_ns: least time between two watermarks in nanoseconds; 0 for one for each batch that raises it.
        clock: returns nanoseconds.
    """

    def __init__(self, interval_ns: int, clock: Callable[[], int]) -> None:
        super().__init__()
        self._interval_ns, self._clock = interval_ns, clock
        self._due_ns: int | None = None
        self._bound = EARLIEST

    def take_rows(self, version: int, splits: Iterable[int], bounds: Bounds, least: int | None = None) -> None:
        self._bound = min(bounds.values(), default=LATEST)

    def risen(self) -> int | None:
        if self._bound <= self.reached:
            return None
        if self._interval_ns:
            now = self._clock()
            if self._due_ns is not None and now < self._due_ns:
                return None
            self._due_ns = now + self._interval_ns
        self.reached = self._bound
        return self.reached


def input_times(
    wiring: Wiring,
    progress: ProgressGraph | Watermarks | None,
    open_channels: Set[ChannelId],
    clock: Callable[[], int],
    version: int,
) -> InputTimes:
    """The times of a worker's input.

    Args:
        wiring: the worker's wiring.
        progress: the dataflow if progress is tracked by tokens; how watermarks are made; ``None`` for neither.
        open_channels: the worker's input channels that have not ended.
        clock: returns nanoseconds.
        version: number of tagged changes that the worker has applied.
    """
    if isinstance(progress, ProgressGraph):
        return TrackedTimes(wiring.chain[0].name, progress, version, wiring.chain[0].time is not None)
    if progress is None:
        return InputTimes()
    if wiring.chain[0].traits.is_source:
        return SourceTimes(progress.interval_ns, clock)
    return ChannelTimes(open_channels, version)
