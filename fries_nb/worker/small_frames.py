"""Small frames to several workers of one host are made and sent together, as bundles.

Between hundreds of workers a channel has one or two tuples at a time, and a frame costs as much as many tuples. So what
is buffered for the workers of one host becomes one batch, which is measured, encoded and sent once; the receiving host
divides it among its workers. Each channel keeps its order and its credit, as if it had a frame of its own.

A part of a bundle keeps the whole batch alive. So each costs at least an equal share of the batch: while a slow worker
holds parts of many bundles, these are not larger than the credit of all channels to that host.

>>> from fries_nb.messages import ChannelId, WorkerId
>>> from fries_nb.worker.out_channel import PendingChannels
>>> pending, a = PendingChannels(), WorkerId("A", 0)
>>> channels = [OutChannel(ChannelId(a, WorkerId("B", index)), pending, 0, host=1) for index in range(2)]
>>> for number, channel in enumerate(channels):
...     channel.window = 1 << 20
...     channel.add(pa.RecordBatch.from_pydict({"x": [number] * (number + 1)}))
>>> sends, alone = bundled(channels)
>>> sends[0].frame.batch.to_pydict(), sends[0].frame.rows, sends[0].frame.sizes, alone
({'x': [0, 1, 1]}, (1, 2), (12, 16), [])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from fries_nb.bundles import Bundle
from fries_nb.worker.out_channel import OutChannel, SendFrame

PART_ROWS = 256
"""Number of rows up to which a buffer becomes part of a bundle."""
BUNDLE_BYTES = 64 << 10
"""Maximum size of a bundle in bytes; larger frames are sent one by one, since their rows cost more than they do."""


def bundled(channels: Iterable[OutChannel]) -> tuple[list[SendFrame], list[OutChannel]]:
    """Make bundles of the buffers of channels, and empty these.

    Args:
        channels: channels whose buffers are not empty.

    Returns:
        The bundles; and the other channels, whose buffers are to be framed one by one: they have many rows, wait for
        credit, or are the only ones to their host.
    """
    groups: dict[tuple[str, int], list[OutChannel]] = {}
    sends: list[SendFrame] = []
    alone: list[OutChannel] = []
    for channel in channels:
        if channel.host is None or channel.queue or channel.rows > PART_ROWS:
            alone.append(channel)
        else:
            groups.setdefault((channel.channel.receiver.operator, channel.host), []).append(channel)
    for group in groups.values():
        if len(group) > 1 and (send := _bundle(group)) is not None:
            sends.append(send)
        else:
            alone += group
    return sends, alone


def _bundle(channels: Sequence[OutChannel]) -> SendFrame | None:
    """The bundle of these buffers; ``None`` if they are too large together, differ in schema, or one lacks credit."""
    batches = [batch for channel in channels for batch in channel.buffer]
    if not all(batch.schema.equals(batches[0].schema, check_metadata=True) for batch in batches[1:]):
        return None
    whole = pa.concat_batches(batches)
    size = int(whole.get_total_buffer_size())
    if size > BUNDLE_BYTES:
        return None
    least, total = max(1, size // len(channels)), whole.num_rows
    sizes = tuple([max(least, size * channel.rows // total) for channel in channels])
    if not all(map(OutChannel.fits, channels, sizes)):
        return None
    rows = tuple([channel.rows for channel in channels])
    for channel, cost in zip(channels, sizes, strict=True):
        channel.spend(cost)
    emptied = [channel.empty() for channel in channels]
    tags = {position: tag for position, (tag, _) in enumerate(emptied) if tag is not None}
    timestamps = tuple([timestamp for _, timestamp in emptied])
    bundle = Bundle(whole, rows, sizes, channels[0].version, tags, timestamps if timestamps[0] else ())
    return SendFrame(tuple([channel.channel for channel in channels]), bundle)
