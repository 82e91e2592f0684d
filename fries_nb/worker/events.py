"""What goes into a worker and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from fries_nb.checkpoints import Position, Snapshot
from fries_nb.errors import FriesError
from fries_nb.messages import Answer, ChannelId, Control, Done, Drain, Ended, Frame, Prepare, SetRate, WorkerId
from fries_nb.operators.dry_run import DryRun, DryRunResult
from fries_nb.trace import WorkerRecord
from fries_nb.worker.outbox import SendFrame


@dataclass(frozen=True, slots=True)
class Arrived:
    """A frame came on a channel."""

    channel: ChannelId
    frame: Frame


@dataclass(frozen=True, slots=True)
class Supplied:
    """A source's reader has read these tuples; ``None`` is the end of the source.

    ``positions`` are those behind the batch, in the splits that it came from; ``None`` for a split that has ended.
    """

    batch: pa.RecordBatch | None
    positions: Mapping[int, Position | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Granted:
    """The receiver of this channel grants that many bytes."""

    channel: ChannelId
    size: int


@dataclass(frozen=True, slots=True)
class Directed:
    """The controller has something to say to one operator of this worker's chain."""

    worker: WorkerId
    control: Control


@dataclass(frozen=True, slots=True)
class WorkerTick:
    """Time to report."""


@dataclass(frozen=True, slots=True)
class SinkWidened:
    """What this operator writes to has these columns now."""

    worker: WorkerId
    columns: pa.Schema


@dataclass(frozen=True, slots=True)
class SinkFailed:
    """The worker's sink, or a place for dead letters, cannot take what it was given; nothing is closed any more."""

    error: FriesError


@dataclass(frozen=True, slots=True)
class Expected:
    """A change of this operator is being prepared; its trial was begun in the middle of a slice."""

    worker: WorkerId
    order: Prepare


Event = Arrived | Supplied | Granted | Directed | Expected | DryRunResult | WorkerTick | SinkWidened | SinkFailed


@dataclass(frozen=True, slots=True)
class Grant:
    """An instruction: give the sender of this channel that much credit."""

    channel: ChannelId
    size: int


@dataclass(frozen=True, slots=True)
class TellController:
    """An instruction: say this to the controller."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class ToReader:
    """An instruction: the source's reader shall do this (set its rate, or read no more and end)."""

    control: SetRate | Drain


@dataclass(frozen=True, slots=True)
class Write:
    """An instruction: write these rows to this operator's sink, or keep them as its dead letters."""

    worker: WorkerId
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ClosePart:
    """An instruction: close what the operator has written, if it writes, and give the answer with the parts' names."""

    answer: Done | Ended


@dataclass(frozen=True, slots=True)
class Traced:
    """An instruction: keep these records, in this order."""

    records: tuple[WorkerRecord, ...]


@dataclass(frozen=True, slots=True)
class Save:
    """An instruction: put this on disk for the checkpoint of that epoch, and say ``Saved``."""

    epoch: int
    snapshot: Snapshot


Instruction = SendFrame | Grant | TellController | DryRun | ToReader | Write | ClosePart | Traced | Save
