"""The events and instructions of a worker.

event         effect
Arrived       the frame is added to the inbox
Supplied      the batch of a source's reader is added to the inbox
Granted       frames that wait in the outbox are sent against the credit
Rewired       channels of added workers are opened, and those of removed workers closed
Directed      an FCM's marker is applied, as at a head of its scope; Prepare, Abort, Cancel take effect
Expected      a change is recorded as being prepared; the shell began its dry run within a slice
DryRunResult  the prepared function is kept until the marker arrives; the shell has sent the answer to the controller
SinkWidened   the columns of the sink are recorded for reports and dry runs; SinkFailed: the worker fails
WorkerTick    the worker reports its measurements
Observe       the worker measures tasks, channels and buffers for latency constraints (see ``ElementMeter``)
Measure       it tells these measurements; Resize: an output buffer has another size
FrontierAdvanced   what can no longer arrive at an operator is known: rows that waited for it become due
StatesLost    the next snapshot of an operator has all of its states
BinsArrived   state that has moved here is installed (see ``bin_transfer``)
Stalled       the worker sends what it has buffered, and takes no tuple until it is released (see ``chaining``)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from fries_nb.errors import FriesError
from fries_nb.operators.dry_run import DryRun, DryRunResult
from fries_nb.progress.progress_graph import CountChanges, ProgressGraph
from fries_nb.progress.times import Antichain
from fries_nb.protocol.checkpoints import PARKED, Position, Reading, Snapshot
from fries_nb.protocol.messages import (
    AdoptSplits,
    Answer,
    ChannelId,
    Control,
    Done,
    Drain,
    Ended,
    Frame,
    Measured,
    MovedBins,
    Parked,
    Prepare,
    Saved,
    SetRate,
    WorkerId,
)
from fries_nb.protocol.topology import Wiring
from fries_nb.protocol.trace import WorkerRecord
from fries_nb.worker.outbox import SendFrame


@dataclass(frozen=True, slots=True)
class Arrived:
    """A frame arrived on a channel."""

    channel: ChannelId
    frame: Frame


@dataclass(frozen=True, slots=True)
class Supplied:
    """A source's reader has read this batch; ``None`` is the end of the source.

    ``positions`` maps the splits that it was read from to the positions after the batch; ``None`` is a split's end.
    If rows have times, ``bounds`` maps splits that have not ended to lower bounds of the times of their unread rows,
    and ``least`` is the least time of the batch, if the bounds before it do not tell it. ``letters`` writes dead
    letters for what was read before the positions and is no row.
    """

    batch: pa.RecordBatch | None
    positions: Mapping[int, Position | None] = field(default_factory=dict)
    bounds: Mapping[int, int] = field(default_factory=dict)
    least: int | None = None
    letters: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class FrontierAdvanced:
    """The frontier of an operator has advanced to this one."""

    operator: str
    frontier: Antichain


@dataclass(frozen=True, slots=True)
class Granted:
    """The receiver of this channel grants this many bytes of credit."""

    channel: ChannelId
    size: int


@dataclass(frozen=True, slots=True)
class Directed:
    """A control message for one operator of this worker's chain."""

    worker: WorkerId
    control: Control


@dataclass(frozen=True, slots=True)
class WorkerTick:
    """A report of the worker's measurements is due; ``reading`` is how far its reader is, if it is a source's."""

    reading: Reading | None = None


@dataclass(frozen=True, slots=True)
class Stalled:
    """The worker is about to be joined with the one that it feeds; or is released, with ``stalled`` false."""

    stalled: bool


@dataclass(frozen=True, slots=True)
class SinkWidened:
    """The columns of this operator's sink have changed to these."""

    worker: WorkerId
    columns: pa.Schema


@dataclass(frozen=True, slots=True)
class SinkFailed:
    """The worker's sink, or its sink of dead letters, cannot write; no further part is closed."""

    error: FriesError


@dataclass(frozen=True, slots=True)
class Expected:
    """A change of this operator is being prepared; the shell began its dry run within a slice (see ``versions``)."""

    worker: WorkerId
    order: Prepare


@dataclass(frozen=True, slots=True)
class Rewired:
    """The topology has a new epoch, in which the worker has this wiring; told to each ``member`` of its chain.

    Attributes:
        after: its wiring from its switch on, if the epoch is one of a change of the shape that concerns it.
        is_removed: whether the change removes the member.
        progress: the dataflows before and after the change as progress sees them, if it is tracked.
    """

    epoch: int
    wiring: Wiring
    member: WorkerId
    after: Wiring | None = None
    is_removed: bool = False
    progress: ProgressGraph | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """All workers have adopted the epoch, so that senders know the channels on which credit was held back."""


@dataclass(frozen=True, slots=True)
class Observe:
    """An event: measure these elements from now on, and no others.

    Attributes:
        senders: operators from which channels are measured.
        receivers: operators to which channels are measured: their buffers.
        tasks: operators whose latency is measured.
        size: size in bytes with which a buffer that was not measured so far begins; 0 for no limit.
        version: version of that size, larger than those of earlier buffers of the channel.
        fills_buffers: whether buffers are sent only when they are full.
    """

    senders: frozenset[str]
    receivers: frozenset[str]
    tasks: frozenset[str]
    size: int = 0
    version: int = 0
    fills_buffers: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """The interval at which constraints are measured has ended."""


@dataclass(frozen=True, slots=True)
class Resize:
    """The output buffer of this channel has another size in bytes; see ``BufferMeter.resize``."""

    channel: ChannelId
    size: int
    version: int


@dataclass(frozen=True, slots=True)
class BinsArrived:
    """State of bins that this worker owns now has come from the worker that owned them before."""

    bins: MovedBins


@dataclass(frozen=True, slots=True)
class StatesLost:
    """What was to be stored of an operator's states has not been, so that the next snapshot has to have everything."""

    worker: WorkerId


Event = (
    Arrived | BinsArrived | Rewired | Connected | Supplied | Granted | Directed | Expected | DryRunResult | WorkerTick
    | Stalled | SinkWidened | SinkFailed | Observe | Measure | Resize | FrontierAdvanced | StatesLost
)


@dataclass(frozen=True, slots=True)
class Grant:
    """An instruction: grant the senders of these channels so many bytes of credit each."""

    sizes: Mapping[ChannelId, int]

    @classmethod
    def of(cls, sizes: Mapping[ChannelId, int]) -> list[Grant]:
        """The instruction to grant these sizes; none if there are none."""
        return [cls(sizes)] if sizes else []


@dataclass(frozen=True, slots=True)
class TellController:
    """An instruction: send this to the controller."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class TellMeasured:
    """An instruction: send these measurements to the hosts that judge constraints on them."""

    measured: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class GiveUpSplits:
    """For a source's reader: read these splits no more."""

    splits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToReader:
    """An instruction for the source's reader: set its rate, give up splits, read others, or stop reading and end."""

    control: SetRate | Drain | GiveUpSplits | AdoptSplits


@dataclass(frozen=True, slots=True)
class Write:
    """An instruction: write these rows to this operator's sink, or to its sink of dead letters."""

    worker: WorkerId
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ClosePart:
    """An instruction: close the operator's current part, if it has a sink; send the answer with the parts' names."""

    answer: Done | Ended


@dataclass(frozen=True, slots=True)
class Traced:
    """An instruction: append these records to the trace, in order."""

    records: tuple[WorkerRecord, ...]


@dataclass(frozen=True, slots=True)
class Save:
    """An instruction: store these snapshots for the checkpoint with this number, and send ``Saved`` for each."""

    epoch: int
    snapshots: tuple[Snapshot, ...]

    @property
    def place(self) -> str:
        """The name of the directory, within an incarnation."""
        return str(self.epoch)

    @property
    def number(self) -> int:
        """The number by which the next snapshots name these; see ``Snapshot.since``."""
        return self.epoch

    def written(self, snapshot: Snapshot, name: str, size: int, earlier: tuple[str, ...]) -> Saved:
        """The answer for a worker whose snapshot is stored, in a file that needs these earlier ones."""
        worker = WorkerId(snapshot.operator, snapshot.index)
        return Saved(self.epoch, worker, name, size, needs=snapshot.needs, earlier=earlier)

    def failed(self, worker: WorkerId, error: str) -> Saved:
        """The answer if the file could not be written."""
        return Saved(self.epoch, worker, error=error)


@dataclass(frozen=True, slots=True)
class Park:
    """An instruction: store the state of a worker that is removed in this epoch of the topology; send ``Parked``."""

    epoch: int
    snapshots: tuple[Snapshot, ...]

    @property
    def place(self) -> str:
        """See ``Save``."""
        return f"{PARKED}{self.epoch}"

    @property
    def number(self) -> int:
        """None follows: it has all states, and needs no earlier file."""
        return 0

    def written(self, snapshot: Snapshot, name: str, size: int, earlier: tuple[str, ...]) -> Parked:
        """See ``Save``."""
        return Parked(self.epoch, WorkerId(snapshot.operator, snapshot.index), name, needs=snapshot.needs)

    def failed(self, worker: WorkerId, error: str) -> Parked:
        """See ``Save``."""
        return Parked(self.epoch, worker, error=error)


@dataclass(frozen=True, slots=True)
class Counted:
    """An instruction: record these changes of the counts of pointstamps, a whole step (see ``progress.exchange``)."""

    changes: CountChanges

    @classmethod
    def of(cls, changes: CountChanges) -> list[Counted]:
        """The instruction to record these changes; none if there are none."""
        return [cls(changes)] if changes else []


@dataclass(frozen=True, slots=True)
class Warned:
    """An instruction: show the user this warning about an operator."""

    worker: WorkerId
    text: str


@dataclass(frozen=True, slots=True)
class Ship:
    """An instruction: send this state to the worker that owns it now, as ``BinsArrived``; in order to each worker."""

    bins: MovedBins


Instruction = (
    SendFrame | Ship | Grant | TellController | TellMeasured | DryRun | ToReader | Write | ClosePart | Traced | Save
    | Park | Counted | Warned
)
