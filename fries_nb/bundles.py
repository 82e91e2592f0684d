"""Bundles: small data frames of one sender to several workers of one host, which travel together as one batch.

>>> from fries_nb.messages import WorkerId
>>> channels = [ChannelId(WorkerId("A", 0), WorkerId("B", index)) for index in range(2)]
>>> bundle = Bundle(pa.RecordBatch.from_pydict({"x": [1, 2, 3]}), rows=(2, 1), sizes=(16, 8))
>>> [(str(channel), frame.batch["x"].to_pylist(), frame.size) for channel, frame in deliveries(channels, bundle)]
[('A[0]->B[0]', [1, 2], 16), ('A[0]->B[1]', [3], 8)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from fries_nb.messages import ChannelId, Data, Frame, Tag


@dataclass(frozen=True, slots=True)
class Bundle:
    """A data frame for each of several channels: consecutive rows of one batch, in the order of the channels.

    Attributes:
        batch: the tuples of all frames.
        rows: the number of rows of each frame.
        sizes: the cost of each frame in bytes of credit.
        version: that of all frames.
        tags: position of a frame to its tag, for those that have one.
        timestamps: the timestamp of each frame; empty if none has one.
    """

    batch: pa.RecordBatch
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    version: int = 0
    tags: Mapping[int, Tag] = field(default_factory=dict)
    timestamps: tuple[tuple[int, ...], ...] = ()

    def frames(self) -> Iterator[Data]:
        """The frames, in the order of the channels; each keeps the whole batch alive."""
        first = 0
        for position, (rows, size) in enumerate(zip(self.rows, self.sizes, strict=True)):
            timestamp = self.timestamps[position] if self.timestamps else ()
            yield Data(self.batch.slice(first, rows), timestamp, size, self.version, self.tags.get(position))
            first += rows


def deliveries(channels: Iterable[ChannelId], frame: Frame | Bundle) -> Iterable[tuple[ChannelId, Frame]]:
    """The channels, each with its frame: of a bundle its own, otherwise the same for all."""
    if isinstance(frame, Bundle):
        return zip(channels, frame.frames(), strict=True)
    return ((channel, frame) for channel in channels)
