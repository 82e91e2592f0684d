"""The output of a worker: batches are partitioned among channels, buffered, and sent as credit allows.

A blocked channel does not block the other channels: its frames wait for credit in its queue, at most a window of them,
while the others are sent. When a channel is *full*, with more than a window waiting, the worker takes no further tuple.
An edge that rebalances skips blocked receivers as long as any receiver is not blocked.

Each channel has a buffer (batches not yet framed) and a queue (frames not yet sent; see ``out_channel``). A marker is
appended to the queue at once, behind what was buffered, so it never overtakes a tuple of its own channel, and it waits
only for the data of its own channel. A frame holds tuples of one version: when that changes, the buffers are framed.

>>> from fries_nb.protocol.messages import ChannelId, Data, WorkerId
>>> import pyarrow as pa
>>> channel = ChannelId(WorkerId("A", 0), WorkerId("B", 0))
>>> outbox = Outbox([OutEdge("B", Partitioning.FORWARD, (), 0, (channel,))])
>>> outbox.add(0, pa.RecordBatch.from_pydict({"x": [1, 2]}))
>>> outbox.flush()                         # frames made
1
>>> outbox.sends(), outbox.full            # no credit yet
([], True)
>>> outbox.credit(channel, 1 << 20)
>>> [(send.channels == (channel,), send.frame.batch.num_rows) for send in outbox.sends()], outbox.full
([(True, 2)], False)

The output buffer and queue of one channel, and the buffer of an edge in front of them.

Tuples are buffered; ``frame_buffer`` turns the buffer into one frame at the tail of the queue, and ``pump`` sends
frames from the queue: data against credit, markers and ends without. The receiver's first grant sets the window; a
frame larger than the window is sent alone, on an empty channel.

>>> from fries_nb.protocol.messages import WorkerId
>>> pending = PendingChannels()
>>> channel = OutChannel(ChannelId(WorkerId("A", 0), WorkerId("B", 0)), pending, version=0)
>>> channel.add(pa.RecordBatch.from_pydict({"x": [1, 2]}))
>>> sent = []
>>> channel.frame_buffer(), channel.pump(sent), sent      # no credit yet
(None, None, [])
>>> channel.window = 1 << 20
>>> channel.pump(sent), sent[0].frame.batch.num_rows, len(pending.queued)
(None, 2, 0)

Small frames to several workers of one host are made and sent together, as bundles.

Between hundreds of workers a channel has one or two tuples at a time, and a frame costs as much as many tuples. So what
is buffered for the workers of one host becomes one batch, which is measured, encoded and sent once; the receiving host
divides it among its workers. Each channel keeps its order and its credit, as if it had a frame of its own.

A part of a bundle keeps the whole batch alive. So each costs at least an equal share of the batch: while a slow worker
holds parts of many bundles, these are not larger than the credit of all channels to that host.

>>> from fries_nb.protocol.messages import ChannelId, WorkerId
>>> from fries_nb.worker.outbox import PendingChannels
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

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN
from fries_nb.dataflow.graph import Partitioning, ShadowRole
from fries_nb.errors import DeclarationError, KeyTypeError, ProtocolError, close_match
from fries_nb.progress.exchange import WorkerCounts
from fries_nb.progress.progress_graph import ChangeBatch, GraphLocation, ProgressGraph
from fries_nb.progress.times import Time, earlier, share_frame
from fries_nb.protocol.frames import Bundle
from fries_nb.protocol.messages import BufferMeasured, ChannelId, Commit, Data, End, Frame, Marker, Tag
from fries_nb.protocol.partitioning import COHORTS, Binning, Bins, cohorts, partition
from fries_nb.protocol.topology import OutEdge, Wiring
from fries_nb.worker.meters import BufferMeter

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
        pending: the channels of the outbox on which something waits.
        version: version of the first tuples.
        host: index of the receiver's host, if frames to several of its workers may travel together.
        limit: number of bytes that may wait or be in transit, beyond which rows are left out; ``None`` for no limit.

    Attributes:
        left_out: number of rows that were left out.
    """

    __slots__ = (
        "buffer", "channel", "cuts", "edge", "host", "left_out", "limit", "meter", "outstanding", "pending", "queue",
        "rows", "told", "version", "waiting", "window",
    )  # fmt: skip

    def __init__(
        self, channel: ChannelId, pending: PendingChannels, version: int, host: int | None = None, branch: int = 0,
        limit: int | None = None,
    ) -> None:  # fmt: skip
        self.channel = channel
        self.edge = GraphLocation(channel.sender.operator, channel.receiver.operator, branch)
        self.host = host
        self.pending = pending
        self.version = version
        self.buffer: list[pa.RecordBatch] = []
        self.queue: deque[Frame] = deque()
        self.rows = self.waiting = self.window = self.outstanding = self.cuts = 0  # cuts: markers and ends
        self.limit, self.left_out = limit, 0
        self.told: pa.Schema | None = None
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

    def tell(self, batch: pa.RecordBatch) -> None:
        """Add a batch without rows, if none with these columns was added; see ``OutEdge.tells``."""
        if self.told is not batch.schema and self.told != batch.schema:
            self.told = batch.schema
            self.add(batch.slice(0, 0))

    def frame_buffer(self) -> None:
        """Append what is buffered to the queue, as one frame."""
        if self.buffer:
            whole = self.buffer[0] if len(self.buffer) == 1 else pa.concat_batches(self.buffer)
            size = max(1, _size(whole))
            if _keeps_more(whole, size):
                whole = pa.concat_batches([whole])
            tag, timestamp = self.empty()
            if self.limit is not None and self.waiting + self.outstanding + size > self.limit:
                self.left_out += whole.num_rows
                return
            self.queue.append(Data(whole, timestamp, size, self.version, tag))
            self.pending.queued[self] = None
            self._waits(size)

    def leave_waiting_out(self) -> None:
        """Leave out what waits for credit, so that a commit does not wait for it; not before the first grant."""
        if not self.window:
            return
        waiting = [frame for frame in self.queue if isinstance(frame, Data)]
        self.left_out += sum(frame.batch.num_rows for frame in waiting)
        self._waits(-sum(frame.size for frame in waiting))
        self.queue = deque(frame for frame in self.queue if not isinstance(frame, Data))

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
        if self.waiting > self.window and self.limit is None:
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


def _hosts(edge: OutEdge) -> Sequence[int | None]:
    """The host of each receiver for frames that may travel together; those that may be left out travel alone."""
    return edge.hosts if edge.hosts and edge.lossy is None else [None] * len(edge.channels)


def shared(batch: pa.RecordBatch, role: ShadowRole) -> pa.RecordBatch:
    """The rows of the cohorts that a shadow gets."""
    if role.share >= 1:
        return batch
    return batch.filter(pa.array(cohorts(batch) < role.share * COHORTS))


def _rebalances(edge: OutEdge) -> bool:
    return len(edge.routed_channels) > 1 and edge.partitioning not in (Partitioning.BROADCAST, Partitioning.HASH)


class Outbox:
    """All output channels of one worker. Invariants: order is kept within a channel; channels are independent.

    Args:
        counts: counts the frames, if progress is tracked.

    Attributes:
        changes: what has been counted since it was handed over; nothing if progress is not tracked.
        version: the version of further tuples.
        fills_buffers: whether buffers are sent only when they are full, or a marker or the end follows, whatever their
            age; as in the systems with which constraints are compared.
    """

    def __init__(self, edges: Sequence[OutEdge], counts: WorkerCounts | None = None) -> None:
        self.changes = ChangeBatch() if counts is None else counts.changes
        self._edges: tuple[OutEdge, ...] = ()
        self._pending = PendingChannels(counts=counts)
        self._channels: dict[ChannelId, OutChannel] = {}
        self._left: dict[ChannelId, OutChannel] = {}
        self._since = min((name.epoch for edge in edges for name in edge.channels), default=0)
        self._positions: dict[str, int] = {}
        self._binnings: dict[str, Binning] = {}
        self._sends: list[SendFrame] = []
        self.version = 0
        self.fills_buffers = False
        self._connect(edges)

    def extend_progress(self, graph: ProgressGraph) -> None:
        """Count what is sent on further edges as well, if progress is tracked."""
        if self._pending.counts is not None:
            self._pending.counts.extend(graph)

    def _connect(self, edges: Sequence[OutEdge]) -> None:
        self._edges = tuple(edges)
        self._channels = {
            name: self._channels.get(name)
            or OutChannel(
                name, self._pending, self.version, host, edge.branch, edge.lossy.bytes if edge.lossy else None
            )
            for edge in edges
            for name, host in zip(edge.channels, _hosts(edge), strict=True)
        }
        self._undivided = {
            edge.to: EdgeBuffer(edge.channels[0].sender.operator, len(edge.routed_channels)) for edge in edges
        }
        self._ways = [(edge, tuple(self._channels[name] for name in edge.routed_channels)) for edge in self._used]
        self._tables = {edge.to: edge.owners for edge in edges}
        self._positions = {edge.to: edge.start for edge in edges} | self._positions
        self._binnings = {edge.to: self._binnings.get(edge.to) or Binning(edge.key) for edge in edges}

    @property
    def _used(self) -> list[OutEdge]:
        """The edges on which something is sent, so that their channels are to be ended."""
        return [edge for edge in self._edges if not edge.is_closed]

    def rewire(self, edges: Sequence[OutEdge], ended: bool = False) -> None:
        """Replace the out-edges by those of another topology epoch, in which an edge may have other channels.

        The end of the stream is appended to removed channels, behind rows that wait for credit there, and to new ones
        if the worker has ended. Rows that are buffered for channels that get no more of them are framed; see
        ``drains``.
        """
        self._divide_all(self._edges)
        before, used = self._channels, {name for edge in self._used for name in edge.channels}
        self._connect(edges)
        gone = {name: out for name, out in before.items() if name not in self._channels}
        fresh = [name for edge in self._used for name in edge.channels if name not in used]
        self._left.update(gone)
        self._frame([channel for channel in self._unrouted() if channel.buffer])
        if ended:  # those that were used have ended
            gone = {name: out for name, out in gone.items() if name not in used}
            gone.update({name: self._channels[name] for name in fresh})
        if gone:
            self._append([*gone.values()], End())

    def _unrouted(self) -> list[OutChannel]:
        """The channels to workers to which no row is routed any more, or none yet."""
        idle = [name for edge in self._edges for name in edge.channels[len(edge.routed_channels) :]]
        return [self._channels[name] for name in idle]

    @property
    def drains(self) -> bool:
        """Whether rows wait on a channel to which no row is routed any more."""
        return any(channel.queue or channel.rows for channel in self._unrouted())

    @property
    def round_robin_positions(self) -> dict[str, int]:
        """Receiver of each rebalancing out-edge to the index of its next worker."""
        return {edge.to: self._positions[edge.to] for edge in self._edges if _rebalances(edge)}

    def resume(self, positions: Mapping[str, int]) -> None:
        """Continue from round-robin positions of a snapshot; receivers may have had another number of workers."""
        widths = {edge.to: len(edge.routed_channels) for edge in self._edges}
        if not positions.keys() <= widths.keys() or min(positions.values(), default=0) < 0:
            raise ProtocolError(
                f"round-robin positions {dict(positions)} do not fit out-edges to {widths or 'none'} (receivers each)"
            )
        self._positions.update({to: next_ % widths[to] for to, next_ in positions.items()})

    def turn_to(self, version: int, time: Time = ()) -> None:
        """Set the version of further tuples, and their time if progress is tracked; a frame has only one version."""
        self._pending.time = time
        if version != self.version:
            self._divide_all(self._edges)
            self.version = version
            self._frame(list(self._pending.buffered))
            for channel in self._channels.values():
                channel.version = version

    def add(self, branch: int, batch: pa.RecordBatch) -> None:
        """Partition a batch among the channels of every edge that carries this branch, now or before it is sent."""
        if batch.num_rows == 0:
            return
        for edge, channels in self._ways:
            if edge.branch == branch:
                self._partition(edge, channels, batch if edge.lossy is None else shared(batch, edge.lossy))

    def _partition(self, edge: OutEdge, channels: tuple[OutChannel, ...], batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        if len(channels) == 1:
            channels[0].add(batch)
        elif edge.partitioning is Partitioning.BROADCAST:
            for channel in channels:
                channel.add(batch)
        elif edge.partitioning is Partitioning.HASH:
            waiting = self._undivided[edge.to]
            if waiting.schema is None or waiting.schema != batch.schema:
                self._bins(edge, batch.slice(0, 0))  # fails here if there is no key, not when the rows are divided
                self._divide(edge, channels)
            if not waiting.fits(self._pending):
                self._divide(edge, channels)
            waiting.add(batch, self._pending)
            if waiting.is_full or channels[0].meter is not None:
                self._divide(edge, channels)
        else:
            for worker, part in partition(batch, self._round_robin(edge, channels, batch.num_rows), len(channels)):
                channels[worker].add(part)

    def _divide_all(self, edges: Collection[OutEdge]) -> None:
        """Divide the rows that wait for these edges among their channels."""
        for edge, channels in self._ways:
            if edge in edges:
                self._divide(edge, channels)

    def _divide(self, edge: OutEdge, channels: tuple[OutChannel, ...]) -> None:
        waiting = self._undivided[edge.to]
        if waiting.rows:
            batch, now = waiting.take(), self._pending.time
            self._pending.time = waiting.time
            for channel in channels if edge.tells else ():
                channel.tell(batch)
            for worker, part in partition(batch, self._tables[edge.to][self._bins(edge, batch)], len(channels)):
                channels[worker].add(part)
            waiting.divided(self._pending)
            self._pending.time = now

    def _round_robin(self, edge: OutEdge, channels: tuple[OutChannel, ...], rows: int) -> npt.NDArray[np.int64]:
        """The receiver of each row, round robin, without channels that wait for credit unless all of them do."""
        position, width = self._positions[edge.to], len(channels)
        free = self._free(channels)
        if 0 < len(free) < width:
            first = bisect_left(free, position)
            targets = np.array(free, dtype=np.int64)[(np.arange(rows, dtype=np.int64) + first) % len(free)]
        else:
            targets = (np.arange(rows, dtype=np.int64) + position) % width
        self._positions[edge.to] = int(targets[-1] + 1) % width
        return targets

    def _free(self, channels: tuple[OutChannel, ...]) -> Sequence[int]:
        """The indices of channels without frames that wait for credit, or else of those that are not full."""
        for channel in channels:
            if channel.queue:  # frames added since the last pump may have credit
                channel.pump(self._sends)
        free = [number for number, channel in enumerate(channels) if not channel.queue]
        return free or [number for number, channel in enumerate(channels) if channel not in self._pending.filled]

    def _bins(self, edge: OutEdge, batch: pa.RecordBatch) -> Bins:
        """The bin of each row by the edge's key."""
        sender = edge.channels[0].sender.operator
        try:
            return self._binnings[edge.to].of(batch)
        except KeyError:
            have = [name for name in batch.schema.names if name not in HIDDEN]
            likely = close_match(next(name for name in edge.key if name not in have), have)
            keyed = f"{edge.to} is keyed by {', '.join(edge.key)}{likely}"
            raise DeclarationError(
                f"{sender} sends rows with columns {', '.join(have) or 'none'}; {keyed}", sender
            ) from None
        except KeyTypeError as error:
            keyed = f"{edge.to} is keyed by {', '.join(edge.key)}"
            raise DeclarationError(f"{sender} sends rows, and {keyed}: {error}", sender) from error

    @property
    def buffered(self) -> bool:
        """Whether tuples are in a buffer that ``flush`` would frame."""
        if self.fills_buffers:
            return False
        return bool(self._pending.buffered) or any(waiting.rows for waiting in self._undivided.values())

    def observe(self, receivers: Collection[str], clock: Callable[[], int], size: int, version: int = 0) -> None:
        """Measure the buffers of the channels to these operators, and of no others."""
        self._divide_all(self._edges)
        for name, channel in self._channels.items():
            if name.receiver.operator not in receivers:
                channel.meter = None
            elif channel.meter is None:
                channel.frame_buffer()  # its rows were added at unknown times
                channel.meter = BufferMeter(clock, size, version)

    def resize(self, channel: ChannelId, size: int, version: int) -> bool:
        """Change the size of a measured buffer by compare and set; see ``BufferMeter.resize``."""
        out = self._channels.get(channel)
        return out is not None and out.meter is not None and out.meter.resize(size, version)

    def measured(self) -> list[BufferMeasured]:
        """The measurements of all buffers since the last call."""
        meters = [(name, channel.meter) for name, channel in self._channels.items() if channel.meter is not None]
        return [found for name, meter in meters if (found := meter.take(name)) is not None]

    def flush(self) -> int:
        """Frame every buffer, and send what credit allows; returns the number of frames.

        It has no effect if buffers are sent only when they are full.
        """
        return 0 if self.fills_buffers else self.empty()

    def empty(self) -> int:
        """Do the same even if buffers are sent only when they are full."""
        self._divide_all(self._edges)
        return self._frame(list(self._pending.buffered))

    def _frame(self, channels: list[OutChannel]) -> int:
        """Frame these buffers, and send what credit allows; returns the number of frames."""
        bundles, alone = bundled(channels) if len(channels) > 1 else ([], channels)
        self._sends += bundles
        for channel in alone:
            channel.frame_buffer()
            channel.pump(self._sends)
        return len(bundles) + len(alone)

    def mark(self, marker: Marker) -> None:
        """Append a marker to every channel of its scope, after the buffered tuples."""
        self._to_all([edge for edge in self._used if edge.to in marker.scope], marker)

    def reassign(self, receiver: str, bins: Mapping[int, tuple[int, int]]) -> None:
        """Route the rows of these bins to their new owners from now on; those before the last marker are divided."""
        if receiver in self._tables:
            table = self._tables[receiver] = self._tables[receiver].copy()
            table[list(bins)] = [after for _, after in bins.values()]

    def end(self) -> None:
        """Append the end of the stream to every channel that is used, after the buffered tuples."""
        self._to_all(self._used, End())

    def _to_all(self, edges: Sequence[OutEdge], frame: Frame) -> None:
        """Sends a frame; channels with empty queues share one SendFrame, so that a host gets the frame once."""
        self._divide_all(edges)
        self._append([self._channels[name] for edge in edges for name in edge.channels], frame)

    def _append(self, channels: list[OutChannel], frame: Frame) -> None:
        free: list[ChannelId] = []
        self._frame([channel for channel in channels if channel.buffer])
        for channel in channels:
            channel.pump(self._sends)
            if channel.limit is not None and isinstance(frame, Marker) and isinstance(frame.action, Commit):
                channel.leave_waiting_out()
            channel.cuts += 1
            if channel.queue:
                channel.queue.append(frame)
            else:
                free.append(channel.channel)
        if free:
            self._sends.append(SendFrame(tuple(free), frame))

    @property
    def owes(self) -> bool:
        """Whether frames wait or credit is out on a channel that was dropped."""
        return any(out.queue or out.outstanding for out in self._left.values())

    def remember(self, other: Outbox) -> None:
        """Accept late grants on the channels that another outbox has dropped, which ``owes`` nothing."""
        self._left.update(other._left)

    def has_settled(self, channel: ChannelId, cuts: int) -> bool:
        """Whether nothing waits or is in transit on a channel, credit included, if so many markers have arrived."""
        out = self._channels[channel]
        return out.cuts == cuts and bool(out.window) and not (out.rows or out.queue or out.outstanding)

    def credit(self, channel: ChannelId, size: int) -> None:
        """Process a grant: the first one sets the window, later ones return credit of consumed frames."""
        out = self._channels.get(channel) or self._left.get(channel)
        if out is None and channel.epoch < self._since:
            return  # granted to an earlier worker with this index
        if out is None:
            raise ProtocolError(f"credit came for {channel}, which is not one of this worker's channels")
        if out.window == 0:
            out.window = size
        elif size > out.outstanding:
            raise ProtocolError(f"credit of {size} bytes came for {channel}, where only {out.outstanding} are owed")
        else:
            out.outstanding -= size
            self._pending.outstanding -= size
        out.pump(self._sends)

    def sends(self) -> list[SendFrame]:
        """The frames to send now, in order; removes them."""
        for channel in list(self._pending.queued):
            channel.pump(self._sends)
        taken, self._sends = self._sends, []
        return taken

    @property
    def outstanding(self) -> int:
        """Number of bytes that were sent on all channels, and that their receivers have not processed."""
        return self._pending.outstanding

    @property
    def left_out(self) -> int:
        """Number of rows that were left out on the channels of now, since their budget was used up."""
        return sum(channel.left_out for channel in self._channels.values())

    @property
    def blocked(self) -> bool:
        """Whether any frame waits for credit."""
        return bool(self._pending.queued)

    @property
    def full(self) -> bool:
        """Whether an edge has a full channel; the worker then takes no tuple.

        A rebalancing edge skips full channels, so it is full only when all of its channels are.
        """
        return bool(self._pending.filled) and any(self._is_full(edge, channels) for edge, channels in self._ways)

    def _is_full(self, edge: OutEdge, channels: tuple[OutChannel, ...]) -> bool:
        fits = all if _rebalances(edge) else any
        return fits(channel in self._pending.filled for channel in channels)


def output_of(wiring: Wiring, progress: ProgressGraph | None) -> Outbox:
    """The outbox of a worker, which counts frames if progress is tracked."""
    return Outbox(wiring.edges, None if progress is None else WorkerCounts(progress))


PART_ROWS = 256
"""Number of rows up to which a buffer becomes part of a bundle."""
BUNDLE_BYTES = 64 << 10
"""Maximum size of a bundle in bytes; larger frames are sent one by one, since their rows cost more than they do."""


def bundled(channels: Iterable[OutChannel]) -> tuple[list[SendFrame], list[OutChannel]]:
    """Make bundles of the buffers of channels, and empty these.

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
    least, total = max(1, size // len(channels)), max(1, whole.num_rows)
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
