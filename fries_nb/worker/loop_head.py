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

>>> from fries_nb.messages import Attempt
>>> channel = ChannelId(WorkerId("B", 0), WorkerId("L", 0))
>>> observations = Observations()
>>> marker = Marker(7, frozenset("LB"), Attempt("L", 1))
>>> observations.begin(marker, [Done(7, WorkerId("L", 0))], {channel})
>>> observations.take(channel, Data(pa.RecordBatch.from_pydict({"x": [1]})))
>>> observations.came_back(channel, 7).frames, observations.came_back(channel, 7)
([(ChannelId(...), Data(...))], None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from msgspec.structs import replace

from fries_nb.checkpoints import LoggedFrame, Snapshot
from fries_nb.errors import FriesError, ProtocolError
from fries_nb.messages import Cancel, ChannelId, Control, Data, Done, EndLoop, InputEnded, Marker, WorkerId
from fries_nb.operators.instance import Instance
from fries_nb.progress.change_batch import CountChange, CountChanges
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.topology.progress_locations import Watermarks
from fries_nb.topology.wiring import Wiring
from fries_nb.worker.alignment import Alignment, forward_channels
from fries_nb.worker.events import Arrived, ClosePart, Event, Grant, Instruction, Save, TellController, Traced
from fries_nb.worker.feedback_inbox import FeedbackInbox
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.input_times import Bounds
from fries_nb.worker.versions import Spill
from fries_nb.worker.worker import Worker


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

    def answered(self) -> list[Instruction]:
        """The instructions that acknowledge the marker, with what was observed."""
        return [self._completed(answer) for answer in self.answers]

    def _completed(self, answer: Instruction) -> Instruction:
        if isinstance(answer, Save):
            *others, own = answer.snapshots
            return Save(answer.epoch, (*others, replace(own, feedback=tuple(map(_logged, self.frames)))))
        if isinstance(answer, TellController | ClosePart) and isinstance(answer.answer, Done):
            return type(answer)(replace(answer.answer, observed=len(self.frames)))
        return answer


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
        channels: all input channels.
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
        progress: ProgressGraph | Watermarks | None = None,
    ) -> None:
        self._observations = Observations()
        self._is_empty = False
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
        if is_last and not self._inbox.is_feedback(channel) and not self.ended:
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
        self.reports.withholds_trace = True

    def _answer(self, observation: Observation | None) -> None:
        if observation is not None:
            self._instructions += observation.answered()
            self._answered()

    def _answered(self) -> None:
        self.reports.withholds_trace = self._observations.under_way
        self._end_if_empty()
