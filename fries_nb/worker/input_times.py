"""The times of a worker's input: of the frames in hand, of a source's unread rows, of rows that time brings out.

What a worker has *in hand* gives it the right to emit rows of this time or later. It is used up when all of its rows
have been processed and their results are in the outbox. A source has a token for each of its splits, at a lower bound
of the times of the rows that it has not read (see ``WorkerReader.bounds``).

>>> import pyarrow as pa
>>> from fries_nb.protocol.messages import WorkerId
>>> from fries_nb.progress.progress_graph import FlowEdge
>>> flow = ProgressGraph({"Src": (), "FM": ()}, (FlowEdge("Src", "FM"),))
>>> times, changes = TrackedTimes("FM", flow), ChangeBatch()
>>> channel = ChannelId(WorkerId("Src", 0), WorkerId("FM", 0))
>>> rows = pa.RecordBatch.from_pydict({"x": [1]})
>>> times.take_frames([(channel, Data(rows, timestamp=(7,))), (channel, Data(rows, timestamp=(4,)))], 0)
>>> times.stamp                                                   # two small frames that were merged
(0, 4)
>>> times.use_up(changes)
>>> [(str(change.location), change.time, change.delta) for change in changes]
[('Src->FM', (0, 7), -1), ('Src->FM', (0, 4), -1)]

A source that has read up to 9 in its split:

>>> source, changes = TrackedTimes("Src", flow), ChangeBatch()
>>> source.introduce({3: 5}, ahead=None)
(CountChange(location=GraphLocation(operator='Src', to='', branch=0), time=(0, 5), delta=1),)
>>> source.take_rows(0, [3], {3: 9})
>>> source.stamp, source.use_up(changes), source.next_time
((0, 5), None, 9)
>>> [(change.time, change.delta) for change in changes]
[((0, 9), 1), ((0, 5), -1)]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fries_nb.progress.progress_graph import ChangeBatch, CountChange, CountChanges, GraphLocation, ProgressGraph
from fries_nb.progress.times import EARLIEST, Antichain, Time, earlier, moment, start_time
from fries_nb.protocol.messages import ChannelId, Data
from fries_nb.protocol.topology import Wiring

Bounds = Mapping[int, int]
"""Split number to a lower bound of the times of its unread rows; splits that have ended are missing."""


ALL_SPLITS = -1
"""In place of a split: the token that a source without times has until it ends."""


def time_of(frame: Data) -> Time:
    """The time of a frame: its version, a lower bound of its rows' times, its rounds."""
    return (frame.version, *frame.timestamp)


class InputTimes:
    """The times of one worker's input, where progress is not tracked: there are none, and nothing is counted.

    Attributes:
        stamp: the time of what is in hand.
    """

    stamp: Time = ()

    def take_frames(self, frames: Sequence[tuple[ChannelId, Data]], version: int) -> None:
        """Take these frames in hand, each with its channel, at this version; they share theirs, and their rounds."""

    def take_more(self, frame: tuple[ChannelId, Data], version: int) -> None:
        """Take a further frame in hand, of the same version and rounds."""

    def use_up_first(self, frames: int, changes: ChangeBatch) -> None:
        """Count the first frames in hand, so many, as used up, while others are left."""

    def take_rows(self, version: int, splits: Iterable[int], bounds: Bounds, least: int | None = None) -> None:
        """Take rows of a source in hand."""

    def location(self, sender: str) -> GraphLocation:
        """Where frames from this operator are counted."""
        return GraphLocation(sender)

    def divide(self, channel: ChannelId, frame: Data, changes: ChangeBatch) -> None:
        """Count a frame once more, since some of its rows are set aside as a frame of their own."""

    def take_fired(self, stamp: Time) -> None:
        """Take rows in hand that time has brought out; their pointstamp is that of the operator's agenda."""

    def use_up(self, changes: ChangeBatch) -> None:
        """Count what was in hand as used up."""

    def introduce(self, bounds: Bounds, ahead: int | None) -> CountChanges:
        """Begin; returns the first counts."""
        return ()

    def start(self) -> None:
        """If it is a source, it is added: it begins with the token of the least time that every host has counted."""

    def extend(self, graph: ProgressGraph) -> None:
        """Frames come on the in-edges of another graph as well."""

    def limit_ahead(self, ahead: int | None) -> None:
        """Change how far a source may read ahead of the sinks; ``None`` for no limit."""

    def turn_to(self, version: int, changes: ChangeBatch) -> None:
        """Downgrade the tokens of a source to a later version, since it has applied a tagged change."""

    def end(self, changes: ChangeBatch) -> None:
        """Drop the tokens of a source, since it reads no more rows."""

    def advance(self, operator: str, frontier: Antichain) -> None:
        """The frontier of this worker's first operator, or of a sink below its source, has advanced."""

    is_far_ahead = False
    """Whether a source has read so far ahead of the sinks that it waits for them."""

    def frontier(self, operator: str) -> Antichain | None:
        """The frontier of an operator, as far as is known; ``None`` before the first."""
        return None


class TrackedTimes(InputTimes):
    """The times of one worker's input, where progress is tracked.

    Args:
        operator: the worker's first operator.
        version: number of tagged changes that the worker has applied.
        has_times: whether it is a source whose rows have times, so that it holds nothing without splits.
    """

    def __init__(self, operator: str, graph: ProgressGraph, version: int = 0, has_times: bool = False) -> None:
        self._output = GraphLocation(operator)
        self._edges = {edge.source: edge.location for edge in graph.edges if edge.to == operator}
        self._version = version
        self._is_source, self._has_times = not self._edges, has_times
        self._holds_all = False
        self._bounds: dict[int, int] = {}
        self._next: dict[int, int] | None = None
        self._frames: list[tuple[GraphLocation, Time]] = []
        self._ahead: int | None = None
        self._frontiers: dict[str, Antichain] = {}
        self.stamp = start_time(len(graph.loops[operator]))

    # ---- what is in hand

    def take_frames(self, frames: Sequence[tuple[ChannelId, Data]], version: int) -> None:
        self._frames = [(self._edges[channel.sender.operator], time_of(frame)) for channel, frame in frames]
        self._stamp_earliest(version)

    def _stamp_earliest(self, version: int) -> None:
        self.stamp = self._frames[0][1]
        for _, time in self._frames:
            self.stamp = earlier(self.stamp, time)
        self.stamp = (version, *self.stamp[1:])

    def take_more(self, frame: tuple[ChannelId, Data], version: int) -> None:
        self._frames.append((self._edges[frame[0].sender.operator], time_of(frame[1])))
        self._stamp_earliest(version)

    def use_up_first(self, frames: int, changes: ChangeBatch) -> None:
        for edge, time in self._frames[:frames]:
            changes.update(edge, time, -1)
        self._frames = self._frames[frames:]
        if self._frames:
            self._stamp_earliest(self.stamp[0])

    def take_rows(self, version: int, splits: Iterable[int], bounds: Bounds, least: int | None = None) -> None:
        known = [self._bounds[split] for split in splits if split in self._bounds]
        bound = min(known, default=self.next_time)
        self.stamp = (version, bound if least is None else max(bound, least))
        self._next = None if self._holds_all else dict(bounds)

    def location(self, sender: str) -> GraphLocation:
        return self._edges[sender]

    def divide(self, channel: ChannelId, frame: Data, changes: ChangeBatch) -> None:
        changes.update(self._edges[channel.sender.operator], time_of(frame), +1)

    def take_fired(self, stamp: Time) -> None:
        self.stamp = stamp

    def use_up(self, changes: ChangeBatch) -> None:
        for edge, time in self._frames:
            changes.update(edge, time, -1)
        self._frames = []
        if self._next is not None:
            self._hold(changes, self._version, self._next)
            self._next = None

    # ---- the tokens of a source

    def introduce(self, bounds: Bounds, ahead: int | None) -> CountChanges:
        self._holds_all = self._is_source and not (bounds or self._has_times)
        self._bounds, self._ahead = {ALL_SPLITS: EARLIEST} if self._holds_all else dict(bounds), ahead
        return tuple(CountChange(self._output, (self._version, bound), 1) for bound in self._bounds.values())

    def start(self) -> None:
        if self._is_source:
            self._holds_all = not self._has_times
            self._bounds, self._version = {ALL_SPLITS: EARLIEST}, 0

    def extend(self, graph: ProgressGraph) -> None:
        operator = self._output.operator
        self._edges.update((edge.source, edge.location) for edge in graph.edges if edge.to == operator)

    def limit_ahead(self, ahead: int | None) -> None:
        self._ahead = ahead

    def turn_to(self, version: int, changes: ChangeBatch) -> None:
        self._hold(changes, version, self._bounds)

    def end(self, changes: ChangeBatch) -> None:
        self._hold(changes, self._version, {})

    def _hold(self, changes: ChangeBatch, version: int, bounds: Bounds) -> None:
        for split in {**self._bounds, **bounds}:
            before, after = self._bounds.get(split), bounds.get(split)
            if before == after and version == self._version:
                continue
            if after is not None:
                changes.update(self._output, (version, after), +1)
            if before is not None:
                changes.update(self._output, (self._version, before), -1)
        self._bounds, self._version = dict(bounds), version

    @property
    def next_time(self) -> int:
        """The bound of all unread rows of a source."""
        return min(self._bounds.values(), default=EARLIEST)

    # ---- frontiers

    def advance(self, operator: str, frontier: Antichain) -> None:
        self._frontiers[operator] = frontier

    @property
    def is_far_ahead(self) -> bool:  # type: ignore[override]
        if self._ahead is None or not self._bounds:
            return False
        reached = [moment(time) for frontier in self._frontiers.values() for time in frontier]
        return self.next_time > min(reached, default=EARLIEST) + self._ahead

    def frontier(self, operator: str) -> Antichain | None:
        return self._frontiers.get(operator)


def input_times(wiring: Wiring, progress: ProgressGraph | None, version: int) -> InputTimes:
    """The times of a worker's input; the arguments are those of ``Worker`` and the version that it has applied."""
    if progress is None:
        return InputTimes()
    first = wiring.chain[0]
    return TrackedTimes(first.name, progress, version, first.time is not None)
