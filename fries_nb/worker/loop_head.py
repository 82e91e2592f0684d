"""The worker of a loop's head: markers go around the loop, and come back.

A head aligns a marker over its forward channels only, since no marker comes on a feedback channel before the head has
passed it on. Having done so, it *observes* each feedback channel until the marker comes back on it, or its end: the
frames that it takes meanwhile were inside the loop, in front of the marker. Only then does it acknowledge the marker.

    marker of                      what the head has observed
    a checkpoint                   is added to its snapshot; a restored head takes these frames first
    an attempt to end the loop     is counted; the loop is empty only if all its heads have observed nothing

With several workers a marker may come back from the worker next to it before this one has passed it on. The channel is
then blocked until it has: what follows the marker there must not precede it here.

Behind the marker of a multi-version change, which has no target inside the loop, old tuples still come back. From then
on the head processes them as tuples of the version that it has reached, and so does everything behind it: for what the
change has below the loop, their transaction follows the change. (Targets above the loop and below it are one component,
which holds the loop; such a change is drained or refused.)

When every forward channel has ended, the head reports it. The controller then makes attempts, and tells the head to end
when the loop is empty (see ``controller.loop_attempts``).

>>> from fries_nb.protocol.messages import Attempt
>>> channel = ChannelId(WorkerId("B", 0), WorkerId("L", 0))
>>> observations = Observations()
>>> marker = Marker(7, frozenset("LB"), Attempt("L", 1))
>>> observations.begin(marker, [Done(7, WorkerId("L", 0))], {channel})
>>> observations.take(channel, Data(pa.RecordBatch.from_pydict({"x": [1]})))
>>> observations.came_back(channel, 7).frames, observations.came_back(channel, 7)
([(ChannelId(...), Data(...))], None)

The inbox of a loop's head: forward channels, and feedback channels on which the rows of further rounds come back.

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

>>> from fries_nb.protocol.messages import WorkerId
>>> a, b = (ChannelId(WorkerId(name, 0), WorkerId("L", 0)) for name in "AB")
>>> inbox = FeedbackInbox([a, b], frozenset("B"), budget=40, spill=list)
>>> rows = pa.RecordBatch.from_pydict({"x": [1]})
>>> for channel in [a] * 4 + [b] * 16:
...     inbox.put(channel, Data(rows, size=4))
>>> "".join(inbox.take()[0].sender.operator for _ in range(20))  # three units, two, two, one
'ABBBABBABBABBBBBBBBB'
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import replace

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.errors import FriesError, ProtocolError, RunError
from fries_nb.operators.instance import Instance
from fries_nb.progress.progress_graph import CountChange, CountChanges, ProgressGraph
from fries_nb.protocol.checkpoints import LoggedFrame, Snapshot
from fries_nb.protocol.messages import (
    Cancel,
    ChannelId,
    Commit,
    Control,
    Data,
    Done,
    EndLoop,
    FeedbackCounts,
    Frame,
    InputEnded,
    Marker,
    WorkerId,
)
from fries_nb.protocol.partitioning import identities
from fries_nb.protocol.rollout import lowest, lowest_of
from fries_nb.protocol.topology import BODY_WINDOW, Wiring
from fries_nb.worker.alignment import Alignment, forward_channels
from fries_nb.worker.events import Arrived, ClosePart, Event, Grant, Instruction, TellController, Traced
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.input_times import Bounds
from fries_nb.worker.versions import Spill
from fries_nb.worker.worker import Worker

MOST_RATIO = 16
"""Maximum number of bytes of feedback frames that precede a byte of a forward frame."""


class FeedbackInbox(Inbox):
    """The input channels of a loop's head; see the module.

    Args:
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
        """Append a frame to its channel, and spill feedback frames if too many are in memory."""
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
                channel: [
                    dataclasses.replace(frame, batch=next(spilled)) if isinstance(frame, Data) else frame
                    for frame in end
                ]
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
        return dataclasses.replace(frame, size=0)

    def merged(self, channel: ChannelId, first: Data, rows: int) -> tuple[pa.RecordBatch, list[tuple[ChannelId, Data]]]:
        """Merge a small data frame with others that wait; see ``Inbox.merged``."""
        batch, frames = super().merged(channel, first, rows)
        taken = [(other, self._taken(other, frame)) for other, frame in frames[1:]]
        return batch, [frames[0], *((other, frame) for other, frame in taken if isinstance(frame, Data))]


@dataclass
class Observation:
    """A marker that a head has passed on, and that has not come back on all feedback channels.

    Attributes:
        marker: the marker.
        answers: the instructions that acknowledge it.
        channels: the feedback channels on which it has not come back.
        frames: the frames taken from them, each with its channel.
    """

    marker: Marker
    answers: list[Instruction]
    channels: set[ChannelId]
    frames: list[tuple[ChannelId, Data]] = field(default_factory=list)

    def logged(self) -> tuple[LoggedFrame, ...]:
        """The frames, for a checkpoint."""
        return tuple(map(_logged, self.frames))

    def answered(self) -> list[Instruction]:
        """The instructions that acknowledge the marker, with what was observed."""
        return [self._completed(answer) for answer in self.answers]

    def _completed(self, answer: Instruction) -> Instruction:
        if isinstance(answer, TellController | ClosePart) and isinstance(answer.answer, Done):
            inside = lowest(lowest_of(identities(frame.batch)) for _, frame in self.frames if _is_identified(frame))
            return type(answer)(replace(answer.answer, observed=len(self.frames), inside=inside))
        return answer


def _is_identified(frame: Data) -> bool:
    return bool(frame.batch.schema.get_field_index(TRANSACTION) >= 0)


def _logged(taken: tuple[ChannelId, Data]) -> LoggedFrame:
    channel, frame = taken
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, frame.batch.schema) as stream:
        stream.write_batch(frame.batch)
    return LoggedFrame(channel.sender.operator, sink.getvalue().to_pybytes(), frame.timestamp, frame.version)


def _restored(frame: LoggedFrame) -> Data:
    [batch] = pa.ipc.open_stream(frame.rows)
    return Data(batch, frame.timestamp, max(1, batch.nbytes), frame.version)


class Observations:
    """The observations of a head; usually there is one at most."""

    def __init__(self) -> None:
        self._by_marker: dict[int, Observation] = {}

    @property
    def under_way(self) -> bool:
        """Whether the head observes anything."""
        return bool(self._by_marker)

    def begin(self, marker: Marker, answers: Iterable[Instruction], channels: Iterable[ChannelId]) -> None:
        """Begin to observe these channels, since the head has passed a marker on."""
        self._by_marker[marker.id] = Observation(marker, list(answers), set(channels))

    def take(self, channel: ChannelId, frame: Data) -> None:
        """Observe a frame that is taken from a channel."""
        for observation in self._by_marker.values():
            if channel in observation.channels:
                observation.frames.append((channel, frame))

    def came_back(self, channel: ChannelId, marker: int) -> Observation | None:
        """Record that a marker has come back on a channel; returns the observation if it is complete."""
        observation = self._by_marker.get(marker)
        if observation is None:
            return None
        observation.channels.discard(channel)
        return None if observation.channels else self._by_marker.pop(marker)

    def ended(self, channel: ChannelId) -> list[Observation]:
        """Record the end of a channel, which counts as the return of all markers; returns what is complete."""
        complete = [self.came_back(channel, marker) for marker in list(self._by_marker)]
        return [observation for observation in complete if observation is not None]

    def cancel(self, marker: int) -> None:
        """Discard a marker permanently; idempotent."""
        self._by_marker.pop(marker, None)


class HeadAlignment(Alignment):
    """Alignment over the forward channels of a head.

    Args:
        feedback: the operators from which channels are feedback channels.
        issued: see ``Alignment``.
    """

    def __init__(self, channels: Iterable[ChannelId], feedback: frozenset[str], issued: int = 0) -> None:
        super().__init__(forward_channels(channels, feedback), issued)
        self._ahead: dict[int, set[ChannelId]] = {}

    def came_ahead(self, marker: Marker, channel: ChannelId) -> None:
        """Block a feedback channel on which a marker has come that this worker has not passed on yet."""
        self._ahead.setdefault(marker.id, set()).add(channel)
        self._holding[channel] = marker.id

    def take_ahead(self, marker_id: int) -> set[ChannelId]:
        """The feedback channels on which a marker had come when it was passed on; called once."""
        return self._ahead.pop(marker_id, set())


class HeadWorker(Worker):
    """The worker of a loop's head; see the module, and ``Worker``."""

    _inbox: FeedbackInbox
    _alignment: HeadAlignment

    def __init__(
        self,
        wiring: Wiring,
        instances: Sequence[Instance],
        window: int,
        clock: Callable[[], int],
        snapshot: Snapshot | None = None,
        spill: Spill = list,
        issued: int = 0,
        progress: ProgressGraph | None = None,
    ) -> None:
        self._observations = Observations()
        self._is_empty, self._is_fed = False, True
        super().__init__(wiring, instances, window, clock, snapshot, spill, issued, progress)
        self._inbox.on_taken = self._observations.take
        self._restored = snapshot.feedback if snapshot is not None else ()
        for frame in self._restored:
            channel = next(each for each in wiring.incoming if each.sender.operator == frame.sender)
            self._inbox.put(channel, _restored(frame))

    def _input(self, issued: int) -> tuple[Inbox, Alignment]:
        channels, feedback = self.wiring.incoming, self.wiring.feedback
        budget = self._window * max(1, len(channels))
        return FeedbackInbox(channels, feedback, budget, self._spill), HeadAlignment(channels, feedback, issued)

    def introduce(self, bounds: Bounds, ahead: int | None = None) -> CountChanges:
        """See ``Worker``; the frames that it was restored with are counted as well."""
        taken = [(self._times.location(frame.sender), (frame.version, *frame.timestamp)) for frame in self._restored]
        return (*super().introduce(bounds, ahead), *(CountChange(location, time, 1) for location, time in taken))

    def _version_of(self, frame: Data) -> int:
        return max(frame.version, self.version)

    # ---- events

    def handle(self, event: Event) -> None:
        """Process one event; see ``Worker.handle``. The credit of a feedback frame is returned at once."""
        if not isinstance(event, Arrived) or not self._inbox.is_feedback(event.channel):
            super().handle(event)
            return
        try:
            self._inbox.put(event.channel, event.frame)
        except FriesError as error:
            if not self.failed:
                self._fail(error)
        if isinstance(event.frame, Data) and event.frame.size:
            self._instructions += Grant.of({event.channel: event.frame.size})

    def _direct(self, worker: WorkerId, control: Control) -> None:
        if isinstance(control, EndLoop):
            self._is_empty = True
            self._end_if_empty()
            return
        super()._direct(worker, control)
        if isinstance(control, Cancel):
            self._observations.cancel(control.marker)
            self._alignment.take_ahead(control.marker)
            self._answered()

    def _end_if_empty(self) -> None:
        """End the loop, if the controller has found it empty, and no marker has still to come back."""
        if not self._is_empty or self.ended or self._observations.under_way:
            return
        if self._in_hand or self._inbox.tuples:
            raise ProtocolError(f"{self.wiring.id} was told that its loop is empty, and has rows; expected none")
        self._finish()

    # ---- markers and ends

    def _arrived(self, marker: Marker, channel: ChannelId) -> None:
        if not self._inbox.is_feedback(channel):
            super()._arrived(marker, channel)
        elif self._alignment.passed(marker.id):
            self._answer(self._observations.came_back(channel, marker.id))
        else:
            self._alignment.came_ahead(marker, channel)
            self._inbox.block_only(self._alignment.blocked)

    def _end_of(self, channel: ChannelId) -> None:
        super()._end_of(channel)
        for observation in self._observations.ended(channel):
            self._answer(observation)
        is_last = not forward_channels(self._open, self.wiring.feedback)
        if is_last and self._is_fed and not self._inbox.is_feedback(channel) and not self.ended:
            self._is_fed = False  # a channel of a change of the shape that is withdrawn ends as well
            self._tell(InputEnded(self.wiring.id))

    def _apply(self, marker: Marker, start: int) -> None:
        """Pass a marker on, and observe the feedback channels until it has come back; then acknowledge it."""
        before = len(self._instructions)
        super()._apply(marker, start)
        self._inbox.block_only(self._alignment.blocked)
        since = self._instructions[before:]
        ahead = self._alignment.take_ahead(marker.id)
        channels = {
            channel
            for channel in self._open - ahead
            if self._inbox.is_feedback(channel) and channel.sender.operator in marker.scope
        }
        if self.ended or not channels:
            return
        self._instructions[before:] = [instruction for instruction in since if isinstance(instruction, Traced)]
        answers = [instruction for instruction in since if not isinstance(instruction, Traced)]
        self._observations.begin(marker, answers, channels)
        if isinstance(marker.action, Commit):
            self.states.await_feedback(marker.action.epoch)
        self.reports.withholds_trace = True

    def _answer(self, observation: Observation | None) -> None:
        if observation is not None:
            self._instructions += observation.answered()
            if isinstance(action := observation.marker.action, Commit):
                self.states.add_feedback(action.epoch, observation.logged())
            self._answered()

    def _answered(self) -> None:
        self.reports.withholds_trace = self._observations.under_way
        self._end_if_empty()
