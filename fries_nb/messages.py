"""The messages between controller and workers, as typed values.

There are three lanes. *Control*, from controller to worker, is never blocked by data: an ``Fcm`` on it is the paper's
fast control message (Fries, definition 4.1). *Answers* go from a worker to the controller. *Frames* travel between
workers on FIFO channels, data and markers in one order; credit flows in the opposite direction.

A marker is ``(id, scope, action)``. Alignment depends on id and scope only, so all actions share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa


class WorkerId(NamedTuple):
    """A parallel instance of an operator; prints as ``FM[1]``."""

    operator: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]"


class ChannelId(NamedTuple):
    """A FIFO channel from one worker to another; ``epoch`` is that of the topology in which it was made."""

    sender: WorkerId
    receiver: WorkerId
    epoch: int = 1

    def __str__(self) -> str:
        return f"{self.sender}->{self.receiver}"


class Reconfigure(msgspec.Struct, frozen=True, tag=True):
    """Action: switch the target operators to the configuration that was prepared for this change.

    ``tagged``: a multi-version change. From the marker on, sources tag the tuples that they read as new; a worker runs
    the old and the new configuration side by side, by tag, until the marker has arrived on all channels, and blocks
    none.

    ``before`` names a change that is ordered after this one: a worker that has applied it already skips this one.
    """

    change: str
    targets: frozenset[str]
    tagged: bool = False
    before: str = ""


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Action: close the parts that the sinks have written, to be committed with this number.

    ``checkpoint``: every worker takes a snapshot as well.
    """

    epoch: int
    checkpoint: bool = False


class Hold(msgspec.Struct, frozen=True, tag=True):
    """Action: sources stop until ``Release``; other workers pass the marker on. Behind it the dataflow is empty."""

    change: str


class Release(msgspec.Struct, frozen=True, tag=True):
    """Action: held sources continue."""

    change: str


Action = Reconfigure | Commit | Hold | Release


class Marker(msgspec.Struct, frozen=True, tag=True):
    """An in-band control frame. ``scope`` holds operator names; an edge is in the scope if both of its ends are."""

    id: int
    scope: frozenset[str]
    action: Action


# ---- frames, worker to worker


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of tuples; hidden columns (see ``HIDDEN``) travel with the user's.

    ``timestamp`` is progress time. ``size`` is the cost of the frame in credit, in bytes: measured once by the sender,
    and returned unchanged by the receiver (the same batch may have another size after a transfer). ``version`` is the
    number of tagged changes that the source had applied when it read these tuples.
    """

    batch: pa.RecordBatch
    timestamp: int = 0
    size: int = 0
    version: int = 0


class End(msgspec.Struct, frozen=True, tag=True):
    """The last frame of a channel; it counts as every later marker."""


Frame = Data | Marker | End

DUE = "_fries_due"
"""Hidden int64 column: the time at which the source tuple was due, in nanoseconds since the Unix epoch."""
TRANSACTION = "_fries_transaction"
"""Hidden int64 column, present under audit: the identity of the source tuple."""
HIDDEN = (DUE, TRANSACTION)


# ---- control, controller to worker


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Prepare a new function off the data path. ``payload`` is a cloudpickled ``fries_nb.Update``.

    ``rehearse``: return recent tuples for the rehearsal of the change. ``tagged``: a multi-version change; tuples of
    the next version are for this function, even before the marker. ``before`` names a change, prepared and not yet
    applied everywhere, that is ordered after this one. ``guard`` is the id of the rollback for which the worker keeps
    its current configuration from its switch on; empty for none.
    """

    change: str
    payload: bytes
    rehearse: bool = True
    tagged: bool = False
    before: str = ""
    guard: str = ""


class Rehearse(msgspec.Struct, frozen=True, tag=True):
    """To a worker's host: run copies of a change's targets and of all operators below them on recent tuples.

    ``samples`` holds tuples from ``Prepared``, for the targets below no other target.
    """

    change: str
    samples: dict[str, tuple[bytes, ...]]


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Discard what was prepared for this change."""

    change: str


class Fcm(msgspec.Struct, frozen=True, tag=True):
    """Fast control message: apply this marker between two tuples, as a head of its scope."""

    marker: Marker


class AdoptTopology(msgspec.Struct, frozen=True, tag=True):
    """Have the channels of this epoch of the topology, which the worker's host knows, and say ``TopologyAdopted``."""

    epoch: int


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Discard this marker, and drop it if it arrives later."""

    marker: int


class Unguard(msgspec.Struct, frozen=True, tag=True):
    """The guard of this change has ended: failures follow the operator's error policy, also for the current tuple.

    ``keeps``: the worker keeps its earlier configuration nevertheless, for a possible rollback.
    """

    change: str
    keeps: bool = False


class SetRate(msgspec.Struct, frozen=True, tag=True):
    """To a source worker: its rate in tuples per second from now on; 0 pauses it."""

    rate: float


class Drain(msgspec.Struct, frozen=True, tag=True):
    """To a source worker: stop reading, and end the stream."""


Control = Prepare | Rehearse | Abort | Fcm | Cancel | Unguard | SetRate | Drain | AdoptTopology


# ---- answers, worker to controller


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The worker is ready to switch; or ``error`` says why not, with the user's traceback in ``details``.

    ``samples`` are recent input tuples, if ``Prepare`` requested them; they can only be decoded on a host.
    """

    change: str
    worker: WorkerId
    error: str = ""
    details: str = ""
    samples: tuple[bytes, ...] = ()


class Rehearsed(msgspec.Struct, frozen=True, tag=True):
    """The result of a change's rehearsal on the host of this worker.

    Attributes:
        change: id of the change.
        worker: the worker.
        error: why the change must not be made, in one sentence; empty if it may.
        details: the traceback of the error from the user's first frame on.
        tuples: number of recent tuples that count, which are those that the current configuration processes.
        tried: operators whose copies ran.
        spared: operators that did not run because they are costly, and whose input types are unchanged.
        unreached: operators and sinks below the targets that no tuple of the rehearsal reached.
        writes: operator to the columns that its copy wrote and their Arrow type names.
        arriving: sink to the distinct Arrow schemas (serialized) in which rows arrived.
        taken: sink to the schema that its worker on this host has accepted so far.
    """

    change: str
    worker: WorkerId
    error: str = ""
    details: str = ""
    tuples: int = 0
    tried: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()
    unreached: frozenset[str] = frozenset()
    writes: dict[str, dict[str, str]] = {}
    arriving: dict[str, tuple[bytes, ...]] = {}
    taken: dict[str, bytes] = {}


class Done(msgspec.Struct, frozen=True, tag=True):
    """The worker has applied the marker and put it into its channels in scope.

    Attributes:
        marker: id of the marker.
        worker: the worker.
        ended: whether the worker had ended before, in which case it only acknowledges.
        switched: whether it was a target and now runs the new function.
        old_tuples: number of tuples that it processed with the old function since the change was prepared.
        files: parts that a sink closed at a commit marker.
        read: number of tuples that a source has read before a commit marker.
    """

    marker: int
    worker: WorkerId
    ended: bool = False
    switched: bool = False
    old_tuples: int = 0
    files: tuple[str, ...] = ()
    read: int = 0


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The worker has processed its last tuple and ended its output channels."""

    worker: WorkerId
    files: tuple[str, ...] = ()


class TopologyAdopted(msgspec.Struct, frozen=True, tag=True):
    """The worker has the channels of this epoch of the topology, and no others."""

    epoch: int
    worker: WorkerId


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The worker stopped because its operator failed; ``details`` is the traceback from the user's first frame on.

    If the cause is a column that arrived at a sink in an incompatible type, ``column`` names it, and ``columns`` is the
    earlier schema, as a serialized Arrow schema.
    """

    worker: WorkerId
    error: str
    details: str = ""
    column: str = ""
    columns: bytes = b""


class Saved(msgspec.Struct, frozen=True, tag=True):
    """The worker's snapshot for this checkpoint is stored, or could not be written (``error``).

    ``name`` is of the file, ``size`` its bytes. Workers of one chain may share a file, whose size the first one tells.
    """

    epoch: int
    worker: WorkerId
    name: str = ""
    size: int = 0
    error: str = ""


class Paused(msgspec.Struct, frozen=True, tag=True):
    """The worker is paused on a tuple on which its operator failed, and retries it after the next fix.

    ``row`` is the tuple as JSON (other values as text); ``details`` the traceback from the user's first frame on.
    ``change`` is the guarded change whose configuration failed, if the worker waits for its rollback instead.
    """

    worker: WorkerId
    error: str
    details: str = ""
    row: str = ""
    change: str = ""


class Resumed(msgspec.Struct, frozen=True, tag=True):
    """A paused worker has processed its tuple."""

    worker: WorkerId


class Report(msgspec.Struct, frozen=True, tag=True):
    """A worker's measurements since its last report.

    Attributes:
        worker: the worker.
        processed: number of tuples taken from the inbox since the start.
        queued: bytes waiting in its inbox.
        queued_tuples: tuples waiting in its inbox.
        reads: input columns that its function has read so far.
        writes: columns of its output and their Arrow type names, as last seen.
        latency: end-to-end latencies at a sink since the last report: (milliseconds, count) pairs.
        held: maximum number of bytes of new-tagged tuples that were set aside since the last report.
        columns: the columns that a sink has written so far, as a serialized Arrow schema, if new ones were added since
            the last report.
    """

    worker: WorkerId
    processed: int
    queued: int
    queued_tuples: int = 0
    reads: tuple[str, ...] = ()
    writes: dict[str, str] = {}
    latency: tuple[tuple[float, int], ...] = ()
    held: int = 0
    columns: bytes = b""


Answer = Prepared | Rehearsed | Done | Ended | TopologyAdopted | Failed | Saved | Paused | Resumed | Report
