"""The input queues of a worker: one FIFO for each channel, read in turn; alignment may block some of them.

A source has no channel; the batches that its reader has read are queued here as well. A blocked channel keeps its
frames and does not affect the others (DESIGN, section 7).

Small frames that wait are merged. Within a loop only rows of one round can be in a frame, so frames of other rounds are
passed over: rows of different rounds may change places between two markers, those of one round do not. Otherwise rows
that enter a loop one by one would go round one by one, however many wait.

>>> import pyarrow as pa
>>> from fries_nb.protocol.messages import ChannelId, Data, WorkerId
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

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence, Set

import pyarrow as pa

from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import ChannelId, Data, FeedbackCounts, Frame
from fries_nb.worker.events import Supplied

MERGED_ROWS = 1024
"""Number of tuples up to which waiting frames are merged: a frame costs as much as hundreds of tuples."""


def owed(frames: Iterable[tuple[ChannelId, Data]]) -> dict[ChannelId, int]:
    """The credit to return for frames of these channels, in bytes; no channel is mapped to 0."""
    sizes: dict[ChannelId, int] = {}
    for channel, frame in frames:
        if frame.size:
            sizes[channel] = sizes.get(channel, 0) + frame.size
    return sizes


class Inbox:
    """The input channels of one worker.

    Attributes:
        tuples: number of tuples queued in all channels.
        bytes: size of all queues in bytes of credit.
        passes: maximum number of frames of a channel that are passed over for one merged frame.
    """

    passes = 256

    def __init__(self, channels: Sequence[ChannelId]) -> None:
        self._queues: dict[ChannelId, deque[Frame]] = {channel: deque() for channel in channels}
        self._ready: deque[ChannelId] = deque()
        self._blocked: set[ChannelId] = set()
        self._supplied: deque[Supplied] = deque()
        self._cuts: Counter[ChannelId] = Counter()
        self.tuples = 0
        self.bytes = 0

    def extend(self, channels: Iterable[ChannelId]) -> None:
        """Add channels."""
        self._queues.update((channel, deque()) for channel in channels)

    def drop(self, channel: ChannelId) -> None:
        """Remove a channel."""
        if self._queues.pop(channel):
            raise ProtocolError(f"{channel} was taken away while frames wait on it; expected it to have ended")
        self._blocked.discard(channel)

    def put(self, channel: ChannelId, frame: Frame) -> None:
        """Append a frame to its channel."""
        queue = self._queues.get(channel)
        if queue is None:
            raise ProtocolError(f"a frame came on {channel}, which is not one of this worker's channels")
        if not queue and channel not in self._blocked:
            self._ready.append(channel)
        queue.append(frame)
        if isinstance(frame, Data):
            self.tuples += frame.batch.num_rows
            self.bytes += frame.size
        else:
            self._cuts[channel] += 1

    def cuts(self, channel: ChannelId) -> int:
        """Number of markers and ends that have arrived on a channel."""
        return self._cuts[channel]

    @property
    def feedback(self) -> FeedbackCounts | None:
        """The feedback that came here, if it is the inbox of a loop's head."""
        return None

    @property
    def is_empty(self) -> bool:
        """Whether no frame and no batch of a reader is queued, not even on a blocked channel."""
        return not self._supplied and not any(self._queues.values())

    def supply(self, supplied: Supplied) -> None:
        """Append a batch from a source's reader."""
        self._supplied.append(supplied)
        self.tuples += 0 if supplied.batch is None else supplied.batch.num_rows

    @property
    def is_supplied(self) -> bool:
        """Whether a batch from a reader is queued."""
        return bool(self._supplied)

    def take_supplied(self) -> Supplied:
        """Remove the first batch from a reader."""
        supplied = self._supplied.popleft()
        self.tuples -= 0 if supplied.batch is None else supplied.batch.num_rows
        return supplied

    @property
    def is_ready(self) -> bool:
        """Whether ``take`` may return a frame."""
        return bool(self._ready)

    def take(self) -> tuple[ChannelId, Frame] | None:
        """Remove the next frame, from channels in turn, in order within each; ``None`` if all frames are blocked."""
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

    @property
    def waiting(self) -> dict[ChannelId, int]:
        """Channel to its number of queued tuples; without those that have none."""
        counts = {
            channel: sum(frame.batch.num_rows for frame in queue if isinstance(frame, Data))
            for channel, queue in self._queues.items()
        }
        return {channel: count for channel, count in counts.items() if count}

    def merged(self, channel: ChannelId, first: Data, rows: int) -> tuple[pa.RecordBatch, list[tuple[ChannelId, Data]]]:
        """Merge a small data frame with others that wait: whole ones, in order within each channel.

        They have its schema, version and rounds, come from workers of the same operator, and precede every marker of
        their channel. Frames of other rounds are passed over, and stay; so do those of blocked channels.

        Returns:
            The batch; and its frames, each with its channel.
        """
        taken = [(channel, first), *self._alike(channel.sender.operator, first, rows - first.batch.num_rows)]
        batch = first.batch if len(taken) == 1 else pa.concat_batches([frame.batch for _, frame in taken])
        return batch, taken

    def _alike(self, sender: str, first: Data, rows: int) -> list[tuple[ChannelId, Data]]:
        taken: list[tuple[ChannelId, Data]] = []
        if rows <= 0:
            return taken
        for channel in list(self._ready):
            if channel.sender.operator != sender or channel in self._blocked:
                continue
            queue = self._queues[channel]
            passed: list[Frame] = []
            while queue and isinstance(frame := queue[0], Data) and (count := frame.batch.num_rows) <= rows:
                if frame.version != first.version:
                    break
                if frame.timestamp[1:] != first.timestamp[1:]:
                    if len(passed) == self.passes:
                        break
                    passed.append(queue.popleft())
                    continue
                if not frame.batch.schema.equals(first.batch.schema):
                    break
                queue.popleft()
                taken.append((channel, frame))
                rows -= count
                self.tuples -= count
                self.bytes -= frame.size
            queue.extendleft(reversed(passed))
            if not queue:
                self._ready.remove(channel)
        return taken

    def following(self, sender: str, first: Data) -> tuple[ChannelId, Data] | None:
        """Take a frame that could be merged with one in hand, whatever its size; none ahead of a marker or an end.

        A marker at the front of a channel is not passed over, since what is in hand might never end then.
        """
        ready = [channel for channel in self._ready if channel not in self._blocked]
        if not all(isinstance(self._queues[channel][0], Data) for channel in ready):
            return None
        for channel in ready:
            frame = self._queues[channel][0]
            if channel.sender.operator != sender or not isinstance(frame, Data):
                continue
            is_alike = frame.version == first.version and frame.timestamp[1:] == first.timestamp[1:]
            if not (is_alike and frame.batch.schema.equals(first.batch.schema)):
                continue
            self._ready.remove(channel)
            self._queues[channel].popleft()
            if self._queues[channel]:
                self._ready.append(channel)  # the others are next
            self.tuples -= frame.batch.num_rows
            self.bytes -= frame.size
            return channel, frame
        return None

    def put_back(self, channel: ChannelId, frames: Sequence[Frame]) -> None:
        """Return frames to the head of a channel."""
        since = self._queues[channel]
        self._queues[channel] = deque()
        if channel in self._ready:
            self._ready.remove(channel)
        self.tuples -= sum(frame.batch.num_rows for frame in since if isinstance(frame, Data))
        self.bytes -= sum(frame.size for frame in since if isinstance(frame, Data))
        self._cuts[channel] -= sum(not isinstance(frame, Data) for frame in (*frames, *since))
        for frame in (*frames, *since):
            self.put(channel, frame)

    def block_only(self, channels: Set[ChannelId]) -> None:
        """Block these channels, and unblock the others."""
        changed: Collection[ChannelId] = self._blocked ^ channels
        if len(changed) > 1:  # not in a set's order, which differs from process to process
            changed = [channel for channel in self._queues if channel in changed]
        for channel in changed:
            if channel in channels:
                self.block(channel)
            else:
                self.unblock(channel)

    def block(self, channel: ChannelId) -> None:
        """Block a channel; idempotent."""
        self._blocked.add(channel)

    def unblock(self, channel: ChannelId) -> None:
        """Unblock a channel; idempotent."""
        if channel in self._blocked:
            self._blocked.remove(channel)
            if channel in self._ready:
                self._ready.remove(channel)
            if self._queues[channel]:
                self._ready.append(channel)
