"""The inbox of a loop's head: forward channels, and feedback channels on which the rows of further rounds come back.

The credit of a feedback frame returns on arrival, so no operator of the body ever waits for the head, and the loop
cannot block itself. What waits for the head is then bounded by memory and disk instead: feedback frames beyond its
share of memory, the *budget*, are spilled.

    feedback frames that wait        the next frame
    less than a unit                 from all channels in turn
    n units                          n bytes of feedback frames to each byte of a forward frame, 16 at most
    cannot be spilled (full disk)    feedback frames only, as far as there are any
    twice the budget in memory       the worker fails

A unit is a window of the loop's body, or half the budget if that is less. So rows that enter wait in front of the loop,
not within it: if a row comes back n times on average, about n units wait at the head, however fast rows arrive, and a
change that touches the loop soon has what is inside behind it. Yet rows enter even if those inside never leave, so that
no marker behind them waits forever.

A marker or an end at the front of any channel precedes all frames. ``on_taken`` is told each feedback frame that is
taken.

>>> from fries_nb.messages import WorkerId
>>> a, b = (ChannelId(WorkerId(name, 0), WorkerId("L", 0)) for name in "AB")
>>> inbox = FeedbackInbox([a, b], frozenset("B"), budget=40, spill=list)
>>> rows = pa.RecordBatch.from_pydict({"x": [1]})
>>> for channel in [a] * 4 + [b] * 16:
...     inbox.put(channel, Data(rows, size=4))
>>> "".join(inbox.take()[0].sender.operator for _ in range(20))  # three units, two, two, one
'ABBBABBABBABBBBBBBBB'
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from fries_nb.errors import RunError
from fries_nb.messages import ChannelId, Data, FeedbackCounts, Frame
from fries_nb.topology.wiring import BODY_WINDOW
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.versions import Spill

MOST_RATIO = 16
"""Maximum number of bytes of feedback frames that precede a byte of a forward frame."""


class FeedbackInbox(Inbox):
    """The input channels of a loop's head; see the module.

    Args:
        channels: all input channels.
        feedback: the operators from which channels are feedback channels.
        budget: number of bytes of feedback frames that may wait in memory.
        spill: moves batches out of memory; returns the same rows, loaded on access.

    Attributes:
        on_taken: called with each feedback frame that is taken.
    """

    passes = 0  # a head calls no function, so it gains little; and it counts the frames at the front that are spilled

    def __init__(self, channels: Sequence[ChannelId], feedback: frozenset[str], budget: int, spill: Spill) -> None:
        super().__init__(channels)
        self.on_taken: Callable[[ChannelId, Data], None] = lambda channel, frame: None
        self._feedback = feedback
        self._budget = budget
        self._spill = spill
        self._unit = max(1, min(BODY_WINDOW, budget // 2))
        self._waiting = self._in_memory = self._due = 0  # due: feedback that precedes the next forward frame
        self._behind: Counter[ChannelId] = Counter()  # frames at the front of a queue that are not in memory
        self._is_full = False
        self._round = self._frames = self._rows = self._waiting_rows = self._spilled = 0

    @property
    def feedback(self) -> FeedbackCounts:
        """The feedback so far."""
        return FeedbackCounts(self._round, self._frames, self._rows, self._waiting_rows, self._spilled)

    def is_feedback(self, channel: ChannelId) -> bool:
        """Whether the channel is a feedback channel."""
        return channel.sender.operator in self._feedback

    def put(self, channel: ChannelId, frame: Frame) -> None:
        """Append a frame to its channel, and spill feedback frames if too many are in memory.

        Raises:
            ProtocolError: the worker has no such channel.
            RunError: they cannot be spilled, and use twice the budget.
        """
        super().put(channel, frame)
        if isinstance(frame, Data) and self.is_feedback(channel):
            self._count(frame)
            self._waiting += frame.size
            self._in_memory += frame.size
            if self._in_memory > self._budget:
                self._move_out()

    def _count(self, frame: Data) -> None:
        self._round = max((self._round, *frame.timestamp[-1:]))
        self._frames += 1
        self._rows += frame.batch.num_rows
        self._waiting_rows += frame.batch.num_rows

    def _move_out(self) -> None:
        """Replace the feedback frames that are in memory, at the ends of the queues, by spilled ones."""
        ends = {
            channel: [queue.pop() for _ in range(len(queue) - self._behind[channel])][::-1]
            for channel, queue in self._queues.items()
            if self.is_feedback(channel)
        }
        frames = [frame for end in ends.values() for frame in end if isinstance(frame, Data)]
        try:
            spilled = iter(self._spill([frame.batch for frame in frames]))
            ends = {
                channel: [replace(frame, batch=next(spilled)) if isinstance(frame, Data) else frame for frame in end]
                for channel, end in ends.items()
            }
            self._behind.update({channel: len(end) for channel, end in ends.items()})
            self._spilled += self._in_memory
            self._in_memory, self._is_full = 0, False
        except RunError as error:
            self._is_full = True
            if self._in_memory > 2 * self._budget:
                loop = next(iter(ends)).receiver.operator
                words = f"{self._in_memory} bytes of rows wait in memory for the head of a loop, {loop}, and more come"
                raise RunError(f"{words}: {error}") from error
        finally:
            for channel, end in ends.items():
                self._queues[channel].extend(end)

    def take(self) -> tuple[ChannelId, Frame] | None:
        """Remove the next frame; see the module. The credit of a feedback frame was returned, so its size is 0."""
        chosen = self._choose()
        if chosen is not None:
            self._ready.remove(chosen)
            self._ready.appendleft(chosen)
        taken = super().take()
        return None if taken is None else (taken[0], self._taken(*taken))

    def _choose(self) -> ChannelId | None:
        able = [channel for channel in self._ready if channel not in self._blocked]
        cuts = (channel for channel in able if not isinstance(self._queues[channel][0], Data))
        if (cut := next(cuts, None)) is not None:
            return cut
        back = next(filter(self.is_feedback, able), None)
        forward = next((channel for channel in able if not self.is_feedback(channel)), None)
        if back is None or forward is None:
            return back or forward
        return back if self._is_full or self._due > 0 else able[0]

    def _taken(self, channel: ChannelId, frame: Frame) -> Frame:
        if not self.is_feedback(channel):
            if isinstance(frame, Data):  # several may be merged
                ratio = min(self._waiting // self._unit, MOST_RATIO)
                self._due = max(0, self._due) + frame.size * ratio
            return frame
        is_behind = self._behind[channel] > 0
        self._behind[channel] -= is_behind
        if not isinstance(frame, Data):
            return frame
        self._due -= frame.size
        self._waiting -= frame.size
        self._waiting_rows -= frame.batch.num_rows
        self._in_memory -= 0 if is_behind else frame.size
        self._is_full = self._is_full and self._in_memory > self._budget
        self.on_taken(channel, frame)
        return replace(frame, size=0)

    def merged(self, channel: ChannelId, first: Data, rows: int) -> tuple[pa.RecordBatch, list[tuple[ChannelId, Data]]]:
        """Merge a small data frame with others that wait; see ``Inbox.merged``."""
        batch, frames = super().merged(channel, first, rows)
        taken = [(other, self._taken(other, frame)) for other, frame in frames[1:]]
        return batch, [frames[0], *((other, frame) for other, frame in taken if isinstance(frame, Data))]
