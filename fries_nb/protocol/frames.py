"""Frames between workers: data, markers with their actions, ends; and the names of workers and channels.

Frames travel on FIFO channels. The alignment of a marker, ``(id, scope, action)``, depends on id and scope only, so it
is the same for all actions. State that moves goes from worker to worker on no channel.

>>> channel = ChannelId(WorkerId("FC", 0), WorkerId("FM", 1))
>>> str(channel), Marker(7, frozenset({"FC", "FM"}), Commit(3)).action.epoch
('FC[0]->FM[1]', 3)

Bundles: small data frames of one sender to several workers of one host, which travel together as one batch.

>>> from fries_nb.protocol.messages import WorkerId
>>> channels = [ChannelId(WorkerId("A", 0), WorkerId("B", index)) for index in range(2)]
>>> bundle = Bundle(pa.RecordBatch.from_pydict({"x": [1, 2, 3]}), rows=(2, 1), sizes=(16, 8))
>>> [(str(channel), frame.batch["x"].to_pylist(), frame.size) for channel, frame in deliveries(channels, bundle)]
[('A[0]->B[0]', [1, 2], 16), ('A[0]->B[1]', [3], 8)]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pyarrow as pa

from fries_nb.progress.times import Time
from fries_nb.progress.tokens import SavedTokens
from fries_nb.protocol.rollout import RolloutStep


class WorkerId(NamedTuple):
    """A parallel instance of an operator; prints as ``FM[1]``."""

    operator: str
    index: int  # type: ignore[assignment]  # hides tuple.index

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]"


class ChannelId(NamedTuple):
    """A FIFO channel from one worker to another; ``epoch`` is that of the topology that created it."""

    sender: WorkerId
    receiver: WorkerId
    epoch: int = 1

    def __str__(self) -> str:
        return f"{self.sender}->{self.receiver}"


class Reconfigure(msgspec.Struct, frozen=True, tag=True):
    """Action: switch the target operators to the configuration that was prepared for this change.

    Attributes:
        change: id of the change.
        targets: the target operators.
        tagged: whether it is a multi-version change. From the marker on, sources tag the tuples that they read as new.
            Until the marker has arrived on all of its channels, a worker runs both configurations, chosen by tag, and
            blocks no channel.
        before: id of a change that is ordered after this one: a worker that has applied it skips this one. Empty for
            none.
        epoch: epoch of the topology in which workers have switched to the dataflow after the change, if it is one of
            the shape; else 0. Every member of the scope is told, and waits for the others that send to it.
        rerouted: the operators of which only the out-edges change; those of a target may change as well.
        steps: all steps of a change that is decided row by row, see ``rollout``; empty for any other.
        step_of: id of the change whose step it is, if it is not its first one.
        inherits: operators, each with the one with whose state at the marker it begins or goes on; see the module
            ``worker.handover``.
    """

    change: str
    targets: frozenset[str]
    tagged: bool = False
    before: str = ""
    epoch: int = 0
    rerouted: frozenset[str] = frozenset()
    steps: tuple[RolloutStep, ...] = ()
    step_of: str = ""
    inherits: tuple[tuple[str, str], ...] = ()


class Freeze(msgspec.Struct, frozen=True, tag=True):
    """Action: the targets of a change begin no tuple until it is decided or aborted, and say how far they are."""

    change: str


class CloseCuts(msgspec.Struct, frozen=True, tag=True):
    """Action: say how far rows have come, as at a commit, so that changes are closed that are decided row by row.

    Attributes:
        number: of the attempt; rows of before a change may still come behind one.
        beyond: all that time brings out behind the marker has positions beyond this one; see ``rollout``.
    """

    number: int
    beyond: int = -1


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Action: sinks close the parts that they have written, for the commit numbered ``epoch``.

    If ``checkpoint`` is set, every worker also takes a snapshot; ``beyond`` is as in ``CloseCuts``.
    """

    epoch: int
    checkpoint: bool = False
    beyond: int = -1


class Hold(msgspec.Struct, frozen=True, tag=True):
    """Action: sources stop until ``Release``; other workers forward the marker, and no tuple follows it until then."""

    change: str


class Release(msgspec.Struct, frozen=True, tag=True):
    """Action: held sources continue."""

    change: str


class Attempt(msgspec.Struct, frozen=True, tag=True):
    """Action: find out whether a loop is empty; or the loops that a change touches, with all operators around them.

    ``subject`` is the loop's head, or the id of the change; ``number`` counts its attempts.
    """

    subject: str
    number: int


class BlockEntries(msgspec.Struct, frozen=True, tag=True):
    """Action: until ``OpenEntries`` no row enters these operators from others or is read, and nothing becomes due."""

    operators: frozenset[str]


class Move(msgspec.Struct, frozen=True, tag=True):
    """Action: bins of a keyed operator get other owners; its senders route their rows to these from the marker on.

    Attributes:
        operator: the operator.
        bins: bin to the index of the worker that owns it before and after.
    """

    operator: str
    bins: dict[int, tuple[int, int]]


class MoveSplits(msgspec.Struct, frozen=True, tag=True):
    """Action: splits of a source get other readers; the earlier ones give them up between two batches.

    Attributes:
        source: the source.
        splits: split to the index of the worker that reads it before and after.
    """

    source: str
    splits: dict[int, tuple[int, int]]


class ApplyDeferred(msgspec.Struct, frozen=True, tag=True):
    """Action: targets apply the changes that were deferred when they were restored."""

    changes: tuple[str, ...]


class RequeuedRow(msgspec.Struct, frozen=True):
    """A row of a dead letter, which goes back to the operator that failed on it.

    Attributes:
        letter: id of the dead letter.
        bin: the bin of its key, by which it finds its worker; any bin if the operator has no key.
        tries: how often the operator has failed on it.
        row: the row as an Arrow IPC stream, without hidden columns.
    """

    letter: str
    bin: int
    tries: int
    row: bytes


class ReturnRows(msgspec.Struct, frozen=True, tag=True):
    """Action: the workers of an operator process these rows, ahead of all that has not reached them.

    Attributes:
        requeue: id of the request.
        operator: the operator.
        rows: the rows.
        owners: the index of the worker of each of them.
    """

    requeue: str
    operator: str
    rows: tuple[RequeuedRow, ...]
    owners: tuple[int, ...]


Action = (
    Reconfigure | Freeze | CloseCuts | Commit | Hold | Release | Attempt | BlockEntries | ApplyDeferred | Move
    | MoveSplits | ReturnRows
)  # fmt: skip


class Marker(msgspec.Struct, frozen=True, tag=True):
    """An in-band control frame. ``scope`` holds operator names; it includes an edge if it includes both of its ends."""

    id: int
    scope: frozenset[str]
    action: Action


class Tag(NamedTuple):
    """A row of a frame, and when it was added to its sender's output buffer, in nanoseconds since the Unix epoch."""

    row: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of tuples, with hidden columns (see ``columns.HIDDEN``) in addition to the user's.

    Attributes:
        batch: the tuples.
        timestamp: a lower bound of the rows' own times, then the exact rounds of the loops around the receiver; empty
            in a dataflow without times and loops. With the version it is the time of the frame (see ``progress``).
        size: cost in bytes of credit; the receiver returns it unchanged, since a transfer may change a batch's size.
        version: number of tagged changes that the source had applied when it read these tuples.
        tag: a row by which the latency of the channel is measured, if any.
    """

    batch: pa.RecordBatch
    timestamp: tuple[int, ...] = ()
    size: int = 0
    version: int = 0
    tag: Tag | None = None


class End(msgspec.Struct, frozen=True, tag=True):
    """The last frame of a channel; it counts as every later marker."""


Frame = Data | Marker | End


# ---- bins that move


class MovedTimes(msgspec.Struct, frozen=True):
    """What a timed operator holds for some bins that move; the fields are those of ``Snapshot``.

    Attributes:
        agenda: bin to its pickled entries, and the keys that hold tokens.
        tokens: bin to its tokens.
        fired: bin to how far its entries have fired.
        brought_out: bin to the position of the last row that time has brought out.
        came: the columns of the last rows that came to the old owner, serialized; empty before the first.
        reached: the frontier of which keys that hold tokens have been told; ``None`` if not all have been.
    """

    agenda: dict[int, bytes]
    tokens: dict[int, SavedTokens]
    fired: dict[int, tuple[tuple[int, ...], ...]]
    came: bytes = b""
    reached: tuple[Time, ...] | None = None
    brought_out: dict[int, int] = {}


class MovedBins(msgspec.Struct, frozen=True, tag=True):
    """The state of some bins, from the worker that owned them to the one that does now.

    Attributes:
        to: the worker that owns them now.
        marker: id of the marker that moves them.
        applied: the changes that their states have gone through, in order.
        states: bin to the pickled dict from key to state; empty if it has no keys.
        unfinished: the last of them, if more of its keys follow; ``None`` if all of them are complete.
        times: what a timed operator holds for the complete ones; ``None`` for others.
        took_ns: nanoseconds in which the states were pickled.
        pieces: if it is a copy for another operator, in how many pieces the worker gets it; 0 for bins that move.
    """

    to: WorkerId
    marker: int
    applied: tuple[str, ...]
    states: dict[int, bytes]
    unfinished: int | None = None
    times: MovedTimes | None = None
    took_ns: int = 0
    pieces: int = 0

    @property
    def complete(self) -> list[int]:
        """The bins of which nothing follows."""
        return [bin for bin in self.states if bin != self.unfinished]

    @property
    def size(self) -> int:
        """The size of the pickled states in bytes."""
        return sum(map(len, self.states.values()))


@dataclass(frozen=True, slots=True)
class Bundle:
    """A data frame for each of several channels: consecutive rows of one batch, in the order of the channels.

    Attributes:
        batch: the tuples of all frames.
        rows: the number of rows of each frame.
        sizes: the cost of each frame in bytes of credit.
        version: that of all frames.
        tags: position of a frame to its tag, for those that have one.
        timestamps: the timestamp of each frame; empty if none has one.
    """

    batch: pa.RecordBatch
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    version: int = 0
    tags: Mapping[int, Tag] = field(default_factory=dict)
    timestamps: tuple[tuple[int, ...], ...] = ()

    def frames(self) -> Iterator[Data]:
        """The frames, in the order of the channels; each keeps the whole batch alive."""
        first = 0
        for position, (rows, size) in enumerate(zip(self.rows, self.sizes, strict=True)):
            timestamp = self.timestamps[position] if self.timestamps else ()
            yield Data(self.batch.slice(first, rows), timestamp, size, self.version, self.tags.get(position))
            first += rows


def deliveries(channels: Iterable[ChannelId], frame: Frame | Bundle) -> Iterable[tuple[ChannelId, Frame]]:
    """The channels, each with its frame: of a bundle its own, otherwise the same for all."""
    if isinstance(frame, Bundle):
        return zip(channels, frame.frames(), strict=True)
    return ((channel, frame) for channel in channels)
