"""What waits in front of a worker: one FIFO a channel, taken in turn, some of them blocked by alignment.

A source has no channel; what its reader has read waits here as well.

A blocked channel keeps its frames; the others neither wait nor notice (DESIGN, section 7).

>>> import pyarrow as pa
>>> from fries_nb.messages import ChannelId, Data, WorkerId
>>> a, b = (ChannelId(WorkerId(name, 0), WorkerId("U", 0)) for name in "AB")
>>> inbox = Inbox([a, b])
>>> for channel in (a, a, b):
...     inbox.put(channel, Data(pa.RecordBatch.from_pydict({"x": [1]})))
>>> inbox.block(a)
>>> [inbox.take()[0].sender.operator, inbox.take()]
['B', None]
>>> inbox.unblock(a)
>>> inbox.take()[0].sender.operator, inbox.tuples
('A', 1)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from fries_nb.checkpoints import Position
from fries_nb.errors import ProtocolError
from fries_nb.messages import ChannelId, Data, Frame


class Inbox:
    """The in-channels of one worker.

    Attributes:
        tuples: tuples waiting in all channels.
        bytes: what waits in all channels, in bytes of credit.
    """

    def __init__(self, channels: Sequence[ChannelId]) -> None:
        self._queues: dict[ChannelId, deque[Frame]] = {channel: deque() for channel in channels}
        self._ready: deque[ChannelId] = deque()
        self._blocked: set[ChannelId] = set()
        self._supplied: deque[tuple[pa.RecordBatch | None, Mapping[int, Position | None]]] = deque()
        self.tuples = 0
        self.bytes = 0

    def put(self, channel: ChannelId, frame: Frame) -> None:
        """A frame arrived.

        Raises:
            ProtocolError: the worker has no such channel.
        """
        queue = self._queues.get(channel)
        if queue is None:
            raise ProtocolError(f"a frame came on {channel}, which is not one of this worker's channels")
        if not queue and channel not in self._blocked:
            self._ready.append(channel)
        queue.append(frame)
        if isinstance(frame, Data):
            self.tuples += frame.batch.num_rows
            self.bytes += frame.size

    def supply(self, batch: pa.RecordBatch | None, positions: Mapping[int, Position | None]) -> None:
        """A source's reader has read this batch, and has come to these positions; ``None`` is the source's end."""
        self._supplied.append((batch, positions))
        self.tuples += 0 if batch is None else batch.num_rows

    @property
    def is_supplied(self) -> bool:
        """Whether something waits that a reader has read."""
        return bool(self._supplied)

    def take_supplied(self) -> tuple[pa.RecordBatch | None, Mapping[int, Position | None]]:
        """What a reader has read first of what waits, as it was supplied.

        Raises:
            IndexError: nothing waits; see ``is_supplied``.
        """
        batch, positions = self._supplied.popleft()
        self.tuples -= 0 if batch is None else batch.num_rows
        return batch, positions

    def take(self) -> tuple[ChannelId, Frame] | None:
        """The next frame: channels in turn, order kept within each; ``None`` if nothing unblocked waits."""
        while self._ready:
            channel = self._ready.popleft()
            if channel in self._blocked:
                continue
            queue = self._queues[channel]
            frame = queue.popleft()
            if queue:
                self._ready.append(channel)
            if isinstance(frame, Data):
                self.tuples -= frame.batch.num_rows
                self.bytes -= frame.size
            return channel, frame
        return None

    def put_back(self, channel: ChannelId, frames: Sequence[Frame]) -> None:
        """Frames that were taken from a channel wait again, in front of what has come on it since."""
        since = self._queues[channel]
        self._queues[channel] = deque()
        if channel in self._ready:
            self._ready.remove(channel)
        self.tuples -= sum(frame.batch.num_rows for frame in since if isinstance(frame, Data))
        self.bytes -= sum(frame.size for frame in since if isinstance(frame, Data))
        for frame in (*frames, *since):
            self.put(channel, frame)

    def block_only(self, channels: Collection[ChannelId]) -> None:
        """Block these channels, and unblock the others."""
        for channel in self._queues:  # not in a set's order, which differs from process to process
            if channel in channels:
                self.block(channel)
            else:
                self.unblock(channel)

    def block(self, channel: ChannelId) -> None:
        """Keep this channel's further frames until it is unblocked; idempotent."""
        self._blocked.add(channel)

    def unblock(self, channel: ChannelId) -> None:
        """Take this channel's frames again; idempotent."""
        if channel in self._blocked:
            self._blocked.remove(channel)
            if channel in self._ready:
                self._ready.remove(channel)
            if self._queues[channel]:
                self._ready.append(channel)
