"""The output buffer and queue of one channel, and the buffer of an edge in front of them.

Tuples are buffered; ``frame_buffer`` turns the buffer into one frame at the tail of the queue, and ``pump`` sends
frames from the queue: data against credit, markers and ends without. The receiver's first grant sets the window; a
frame larger than the window is sent alone, on an empty channel.

>>> from fries_nb.messages import WorkerId
>>> pending = PendingChannels()
>>> channel = OutChannel(ChannelId(WorkerId("A", 0), WorkerId("B", 0)), pending, version=0)
>>> channel.add(pa.RecordBatch.from_pydict({"x": [1, 2]}))
>>> sent = []
>>> channel.frame_buffer(), channel.pump(sent), sent      # no credit yet
(None, None, [])
>>> channel.window = 1 << 20
>>> channel.pump(sent), sent[0].frame.batch.num_rows, len(pending.queued)
(None, 2, 0)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from fries_nb.bundles import Bundle
from fries_nb.messages import ChannelId, Data, Frame, Tag
from fries_nb.progress.change_batch import GraphLocation
from fries_nb.progress.times import Time, earlier, share_frame
from fries_nb.progress.worker_counts import WorkerCounts
from fries_nb.worker.buffer_meter import BufferMeter

FLUSH_ROWS = 8192
"""Number of rows at which a channel's buffer is framed."""
UNDIVIDED_ROWS = 16
"""Number of rows for each channel of an edge from which on a batch is divided among them at once."""
SLACK, SLACK_BYTES = 1.25, 4096
"""Factor, and number of bytes, by which the memory that a frame keeps alive may exceed its size."""
SMALL_BYTES = 1024
"""Size up to which a frame's buffers are counted as a whole, since computing the rows' share takes longer."""


@dataclass(frozen=True, slots=True)
class SendFrame:
    """An instruction: send this frame on these channels, in the order of the instructions; a bundle to one host."""

    channels: tuple[ChannelId, ...]
    frame: Frame | Bundle


def _size(batch: pa.RecordBatch) -> int:
    """The cost of a batch in credit: the share of its rows in its buffers, or small buffers as a whole."""
    whole = int(batch.get_total_buffer_size())
    return whole if whole <= SMALL_BYTES else int(batch.nbytes)


def _keeps_more(batch: pa.RecordBatch, size: int) -> bool:
    """Whether a batch keeps more memory alive than its size, which is what credit counts.

    A slice keeps its whole batch alive, and a column keeps all columns of the message in which it was received over a
    link. The last columns, which are hidden, show whether a batch is as it was received, since functions do not copy
    them.
    """
    most = size * SLACK + SLACK_BYTES
    return batch.get_total_buffer_size() > most or _allocated(batch.column(batch.num_columns - 1)) > most


def _allocated(column: pa.Array) -> int:
    """The size of the allocation that contains the column's last buffer."""
    last = column.buffers()[-1]
    if last is None:
        return 0
    while (parent := last.parent) is not None:
        last = parent
    return int(last.size)


@dataclass(slots=True)
class PendingChannels:
    """The channels of an outbox on which something waits; each channel adds and removes itself.

    Attributes:
        filled: those that are full.
        buffered: those with tuples in their buffer, in the order in which these came.
        queued: those with a frame that waits for credit or to be sent, in the order in which these came.
        outstanding: bytes on all channels that were sent, and that their receivers have not processed.
        counts: counts the frames, if progress is tracked.
        time: the time of the rows that are added now, if it is.
    """

    filled: set[OutChannel] = field(default_factory=set)
    buffered: dict[OutChannel, None] = field(default_factory=dict)
    queued: dict[OutChannel, None] = field(default_factory=dict)
    outstanding: int = 0
    counts: WorkerCounts | None = None
    time: Time = ()


class EdgeBuffer:
    """The rows of a keyed edge that are not yet divided among its channels: batches of one schema.

    To divide a batch costs as much for a dozen rows as for hundreds, so small ones wait until they are many, or are to
    be sent.

    If progress is tracked, the sender has a token for them until they are counted as messages of the channels. To count
    them as one message of the edge would be wrong: when it becomes two, another host might learn that one of these was
    used up before it learns of the other, for which nothing earlier was taken away.

    Args:
        sender: the operator that sends them.
        channels: number of channels among which they are to be divided.

    Attributes:
        rows: number of rows that wait.
        schema: that of the last batch that was added; its key columns are known to be there.
        time: the time of the rows at the sender.
    """

    __slots__ = ("_batches", "_limit", "_sender", "rows", "schema", "time")

    def __init__(self, sender: str, channels: int) -> None:
        self._sender = GraphLocation(sender)
        self.time: Time = ()
        self.rows = 0
        self.schema: pa.Schema | None = None
        self._limit = UNDIVIDED_ROWS * channels
        self._batches: list[pa.RecordBatch] = []

    def fits(self, pending: PendingChannels) -> bool:
        """Whether rows of the present time can be added; otherwise those that wait must be divided first."""
        return not self.rows or pending.counts is None or share_frame(self.time, pending.time)

    def add(self, batch: pa.RecordBatch, pending: PendingChannels) -> None:
        """Add a batch, of the schema of those that wait, if any do, and of the present time."""
        if pending.counts is not None:
            time = earlier(self.time, pending.time) if self.rows else pending.time
            self._hold(pending.counts, time)
        self.schema = batch.schema
        self._batches.append(batch)
        self.rows += batch.num_rows

    @property
    def is_full(self) -> bool:
        """Whether there are so many rows that they should be divided."""
        return self.rows >= self._limit

    def take(self) -> pa.RecordBatch:
        """Remove all rows, as one batch; there must be some."""
        whole = self._batches[0] if len(self._batches) == 1 else pa.concat_batches(self._batches)
        self._batches = []
        self.rows = 0
        return whole

    def divided(self, pending: PendingChannels) -> None:
        """Record that the rows which were taken are in the buffers of their channels."""
        if pending.counts is not None:
            pending.counts.changes.update(self._sender, self.time, -1)

    def _hold(self, counts: WorkerCounts, time: Time) -> None:
        """Have a token of this time, instead of the one so far."""
        if self.rows:
            counts.changes.update(self._sender, self.time, -1)
        counts.changes.update(self._sender, time, +1)
        self.time = time


class OutChannel:
    """Buffer, queue and credit of one channel.

    Args:
        channel: the id of the channel.
        pending: the channels of the outbox on which something waits.
        version: version of the first tuples.
        host: index of the receiver's host, if frames to several of its workers may travel together.
        branch: the index of the sender's output.
    """

    __slots__ = (
        "buffer", "channel", "cuts", "edge", "host", "meter", "outstanding", "pending", "queue", "rows", "version",
        "waiting", "window",
    )  # fmt: skip

    def __init__(
        self, channel: ChannelId, pending: PendingChannels, version: int, host: int | None = None, branch: int = 0
    ) -> None:
        self.channel = channel
        self.edge = GraphLocation(channel.sender.operator, channel.receiver.operator, branch)
        self.host = host
        self.pending = pending
        self.version = version
        self.buffer: list[pa.RecordBatch] = []
        self.queue: deque[Frame] = deque()
        self.rows = self.waiting = self.window = self.outstanding = self.cuts = 0  # cuts: markers and ends
        self.meter: BufferMeter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add tuples to the buffer, which is framed when it is full."""
        if self.buffer and self.buffer[-1].schema != batch.schema:
            self.frame_buffer()
        if (counts := self.pending.counts) is not None:
            if not counts.fits(self.channel, self.edge, self.pending.time):
                self.frame_buffer()
            counts.append(self.channel, self.edge, self.pending.time)
        if not self.buffer:
            self.pending.buffered[self] = None
        self.buffer.append(batch)
        self.rows += batch.num_rows
        if self.meter is not None:
            self.meter.added(batch.num_rows, _size(batch) if self.meter.size else 0)
        if self.rows >= FLUSH_ROWS or (self.meter is not None and self.meter.is_full):
            self.frame_buffer()

    def frame_buffer(self) -> None:
        """Append what is buffered to the queue, as one frame."""
        if self.buffer:
            whole = self.buffer[0] if len(self.buffer) == 1 else pa.concat_batches(self.buffer)
            size = max(1, _size(whole))
            if _keeps_more(whole, size):
                whole = pa.concat_batches([whole])
            tag, timestamp = self.empty()
            self.queue.append(Data(whole, timestamp, size, self.version, tag))
            self.pending.queued[self] = None
            self._waits(size)

    def empty(self) -> tuple[Tag | None, tuple[int, ...]]:
        """Empty the buffer, which has become a frame; returns the tag and the timestamp of that frame."""
        del self.pending.buffered[self]
        self.buffer = []
        self.rows = 0
        tag = None if self.meter is None else self.meter.framed()
        return tag, () if self.pending.counts is None else self.pending.counts.cut(self.channel)[1:]

    def fits(self, size: int) -> bool:
        """Whether there is credit for a data frame of this size, behind all that is queued."""
        return self.window > 0 and (not self.outstanding or self.outstanding + size <= self.window)

    def spend(self, size: int) -> None:
        """Use credit for a data frame of this size, which is sent."""
        self.outstanding += size
        self.pending.outstanding += size

    def _waits(self, more: int) -> None:
        """Change the number of bytes that wait for credit; the channel is full when they exceed a window."""
        self.waiting += more
        if self.waiting > self.window:
            self.pending.filled.add(self)
        else:
            self.pending.filled.discard(self)

    def pump(self, into: list[SendFrame]) -> None:
        """Move the frames that may be sent now from the queue to this list."""
        while self.queue:
            frame = self.queue[0]
            if isinstance(frame, Data):
                if not self.fits(frame.size):
                    return
                self.spend(frame.size)
                self._waits(-frame.size)
            into.append(SendFrame((self.channel,), self.queue.popleft()))
        self.pending.queued.pop(self, None)
