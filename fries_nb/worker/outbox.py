"""The output of a worker: batches are partitioned among channels, buffered, and sent as credit allows.

A blocked channel does not block the other channels: its frames wait for credit in its queue, at most a window of them,
while the others are sent. When a channel is *full*, with more than a window waiting, the worker takes no further tuple.
An edge that rebalances skips blocked receivers as long as any receiver is not blocked.

Each channel has a buffer (batches not yet framed) and a queue (frames not yet sent; see ``out_channel``). A marker is
appended to the queue at once, behind what was buffered, so it never overtakes a tuple of its own channel, and it waits
only for the data of its own channel. A frame holds tuples of one version: when that changes, the buffers are framed.

>>> from fries_nb.messages import ChannelId, Data, WorkerId
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
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fries_nb.dataflow.graph import Partitioning
from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import DeclarationError, KeyTypeError, ProtocolError, close_match
from fries_nb.measurements import BufferMeasured
from fries_nb.messages import ChannelId, End, Frame, Marker, Watermark
from fries_nb.progress.change_batch import ChangeBatch
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.progress.times import Time
from fries_nb.progress.worker_counts import WorkerCounts
from fries_nb.topology.partitioning import Binning, Bins, partition
from fries_nb.topology.progress_locations import Watermarks
from fries_nb.topology.wiring import OutEdge, Wiring
from fries_nb.worker.buffer_meter import BufferMeter
from fries_nb.worker.out_channel import EdgeBuffer, OutChannel, PendingChannels, SendFrame
from fries_nb.worker.small_frames import bundled


def _rebalances(edge: OutEdge) -> bool:
    return len(edge.routed_channels) > 1 and edge.partitioning not in (Partitioning.BROADCAST, Partitioning.HASH)


class Outbox:
    """All output channels of one worker. Invariants: order is kept within a channel; channels are independent.

    Args:
        edges: the out-edges.
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
        self._positions = {edge.to: edge.start for edge in edges}
        self._binnings = {edge.to: Binning(edge.key) for edge in edges}
        self._sends: list[SendFrame] = []
        self.version = 0
        self.fills_buffers = False
        self._connect(edges)

    def _connect(self, edges: Sequence[OutEdge]) -> None:
        self._edges = tuple(edges)
        self._channels = {
            name: self._channels.get(name) or OutChannel(name, self._pending, self.version, host, edge.branch)
            for edge in edges
            for name, host in zip(edge.channels, edge.hosts or [None] * len(edge.channels), strict=True)
        }
        self._undivided = {
            edge.to: EdgeBuffer(edge.channels[0].sender.operator, len(edge.routed_channels)) for edge in edges
        }
        self._ways = [(edge, tuple(self._channels[name] for name in edge.routed_channels)) for edge in edges]
        self._tables = {edge.to: edge.owners for edge in edges}

    def rewire(self, edges: Sequence[OutEdge], ended: bool = False) -> None:
        """Replace the out-edges by those of another topology epoch, in which an edge may have other channels.

        The end of the stream is appended to removed channels, behind rows that wait for credit there, and to new ones
        if the worker has ended. Rows that are buffered for channels that get no more of them are framed; see
        ``drains``.

        Args:
            edges: all out-edges of the new epoch.
            ended: whether the worker has ended.
        """
        self._divide_all(self._edges)
        before = self._channels
        self._connect(edges)
        gone = {name: out for name, out in before.items() if name not in self._channels}
        fresh = [name for name in self._channels if name not in before]
        self._left.update(gone)
        self._frame([channel for channel in self._unrouted() if channel.buffer])
        if ended and fresh:
            self._sends.append(SendFrame(tuple(fresh), End()))
        elif not ended and gone:
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
        """Continue from round-robin positions of a snapshot; receivers may have had another number of workers.

        Args:
            positions: receiver to the index of its next worker.

        Raises:
            ProtocolError: the receivers are not those of this worker's rebalancing edges.
        """
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
        """Partition a batch among the channels of every edge that carries this branch, now or before it is sent.

        Raises:
            DeclarationError: the batch lacks an edge's key column, or its key column has a type that cannot be a key.
        """
        if batch.num_rows == 0:
            return
        for edge, channels in self._ways:
            if edge.branch == branch:
                self._partition(edge, channels, batch)

    def _partition(self, edge: OutEdge, channels: tuple[OutChannel, ...], batch: pa.RecordBatch) -> None:
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
        """Measure the buffers of the channels to these operators, and of no others.

        Args:
            receivers: names of operators.
            clock: returns nanoseconds since the Unix epoch.
            size: the size of buffers that were not measured so far, in bytes; 0 for no limit.
            version: the version of that size.
        """
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
        self._to_all([edge for edge in self._edges if edge.to in marker.scope], marker)

    def reassign(self, receiver: str, bins: Mapping[int, tuple[int, int]]) -> None:
        """Route the rows of these bins to their new owners from now on; rows before the last marker have been divided.

        Args:
            receiver: the operator that owns the bins; nothing happens if the worker does not send to it by key.
            bins: bin to the index of the worker that owns it before and after.
        """
        if receiver in self._tables:
            table = self._tables[receiver] = self._tables[receiver].copy()
            table[list(bins)] = [after for _, after in bins.values()]

    def broadcast(self, watermark: Watermark) -> None:
        """Append a watermark to every channel, after the buffered tuples."""
        self._to_all(self._edges, watermark)

    def end(self) -> None:
        """Append the end of the stream to every channel, after the buffered tuples."""
        self._to_all(self._edges, End())

    def _to_all(self, edges: Sequence[OutEdge], frame: Frame) -> None:
        """Sends a frame; channels with empty queues share one SendFrame, so that a host gets the frame once."""
        self._divide_all(edges)
        self._append([self._channels[name] for edge in edges for name in edge.channels], frame)

    def _append(self, channels: list[OutChannel], frame: Frame) -> None:
        free: list[ChannelId] = []
        self._frame([channel for channel in channels if channel.buffer])
        for channel in channels:
            channel.pump(self._sends)
            channel.cuts += 1
            if channel.queue:
                channel.queue.append(frame)
            else:
                free.append(channel.channel)
        if free:
            self._sends.append(SendFrame(tuple(free), frame))

    def has_settled(self, channel: ChannelId, cuts: int) -> bool:
        """Whether nothing waits or is in transit on a channel, credit included, if so many markers have arrived."""
        out = self._channels[channel]
        return out.cuts == cuts and bool(out.window) and not (out.rows or out.queue or out.outstanding)

    def credit(self, channel: ChannelId, size: int) -> None:
        """Process a grant: the first one sets the window, later ones return credit of consumed frames.

        Raises:
            ProtocolError: no such channel, or more was returned than sent.
        """
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


def output_of(wiring: Wiring, progress: ProgressGraph | Watermarks | None) -> Outbox:
    """The outbox of a worker, which counts frames if progress is tracked by tokens."""
    return Outbox(wiring.edges, WorkerCounts(progress) if isinstance(progress, ProgressGraph) else None)
