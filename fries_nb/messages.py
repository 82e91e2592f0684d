"""All that the controller and the workers say to each other, as typed values.

Three lanes. *Control*, controller to worker, is never blocked by data: an ``Fcm`` on it is the paper's fast control
message (Fries, definition 4.1). *Answers* go from a worker to the controller. *Frames* travel worker to worker on a
FIFO channel, data and markers in one order; credit flows against them.

A marker is ``(id, scope, action)``. Alignment looks at id and scope only, so that all actions share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import pyarrow as pa


class WorkerId(NamedTuple):
    """One parallel instance of an operator; prints as ``FM[1]``."""

    operator: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]"


class ChannelId(NamedTuple):
    """A FIFO from one worker to another."""

    sender: WorkerId
    receiver: WorkerId

    def __str__(self) -> str:
        return f"{self.sender}->{self.receiver}"


class Reconfigure(msgspec.Struct, frozen=True, tag=True):
    """Switch the target operators to what was prepared under this change id.

    ``tagged``: by versions side by side. From the marker on, sources tag what they read as new; a worker runs old and
    new configuration beside each other, by tag, until the marker has come on all its channels, and blocks none.

    ``before`` names a change that is ordered behind this one: a worker that has applied it already skips this one.
    """

    change: str
    targets: frozenset[str]
    tagged: bool = False
    before: str = ""


class Commit(msgspec.Struct, frozen=True, tag=True):
    """Close what the sinks have written so far, to be committed as this epoch.

    ``checkpoint``: every worker hands over a snapshot of itself as well.
    """

    epoch: int
    checkpoint: bool = False


class Hold(msgspec.Struct, frozen=True, tag=True):
    """A source takes no further tuple until ``Release``; all others let the marker pass: behind it nothing is left."""

    change: str


class Release(msgspec.Struct, frozen=True, tag=True):
    """A source that is held goes on."""

    change: str


Action = Reconfigure | Commit | Hold | Release


class Marker(msgspec.Struct, frozen=True, tag=True):
    """In-band control frame. ``scope`` holds operator names: an edge is in the scope if both its ends are."""

    id: int
    scope: frozenset[str]
    action: Action


# ---- frames, worker to worker


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of tuples; hidden columns (see ``HIDDEN``) travel with the user's.

    ``timestamp`` is progress time. ``size`` is what the frame costs in credit, in bytes: measured once, by the sender,
    and given back by the receiver as it stands (the same batch may measure otherwise after a journey). ``version`` is
    the number of tagged changes that the source had behind it when it took these tuples.
    """

    batch: pa.RecordBatch
    timestamp: int = 0
    size: int = 0
    version: int = 0


class End(msgspec.Struct, frozen=True, tag=True):
    """No frame follows on this channel; it counts as every later marker."""


Frame = Data | Marker | End

DUE = "_fries_due"
"""Hidden int64 column: when the source tuple was due, in nanoseconds since the Unix epoch."""
TRANSACTION = "_fries_transaction"
"""Hidden int64 column, present under audit: the source tuple's identity."""
HIDDEN = (DUE, TRANSACTION)


# ---- control, controller to worker


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Get a new function ready off the data path. ``payload`` is a cloudpickled ``fries_nb.Update``.

    ``rehearse``: hand over recent tuples for the rehearsal of the change. ``tagged``: the change will come by versions;
    tuples of the next version are for this function, even before the marker. ``before`` names a change, prepared and
    not yet applied everywhere, that is ordered behind this one. ``guard`` is the id of the rollback for which the
    worker keeps what it runs now, from its switch on; or empty.
    """

    change: str
    payload: bytes
    rehearse: bool = True
    tagged: bool = False
    before: str = ""
    guard: str = ""


class Rehearse(msgspec.Struct, frozen=True, tag=True):
    """To a worker's host: run copies of all that is at or below a change's targets on recent tuples.

    ``samples`` holds, for the targets below no other target, tuples as ``Prepared`` brought them.
    """

    change: str
    samples: dict[str, tuple[bytes, ...]]


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Forget what was prepared under this change."""

    change: str


class Fcm(msgspec.Struct, frozen=True, tag=True):
    """Fast control message: apply this marker between two tuples, as a head of its scope."""

    marker: Marker


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Forget this marker; drop it where it arrives later."""

    marker: int


class Unguard(msgspec.Struct, frozen=True, tag=True):
    """The guard of this change is over: failures follow the operator's own policy, also that of the tuple in hand.

    ``keeps``: what the worker ran before is kept all the same, for a rollback that may come.
    """

    change: str
    keeps: bool = False


class SetRate(msgspec.Struct, frozen=True, tag=True):
    """To a source worker: tuples per second from now on, for this worker; 0 pauses it."""

    rate: float


class Drain(msgspec.Struct, frozen=True, tag=True):
    """To a source worker: read no more, end the stream."""


Control = Prepare | Rehearse | Abort | Fcm | Cancel | Unguard | SetRate | Drain


# ---- answers, worker to controller


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The worker is ready to switch, or says why it is not (``error``, with the user's traceback in ``details``).

    ``samples`` are recent tuples as they came to it, where ``Prepare`` asked for them; only a host can load them.
    """

    change: str
    worker: WorkerId
    error: str = ""
    details: str = ""
    samples: tuple[bytes, ...] = ()


class Rehearsed(msgspec.Struct, frozen=True, tag=True):
    """How the rehearsal of a change went at the host of this worker.

    Attributes:
        error: why the change must not be made, in one sentence; ``details`` is the traceback from the user's frame on.
        tuples: recent tuples that counted, which are those that the present configuration gets past.
        tried: operators whose copies ran.
        spared: operators that did not run because they are costly, and get columns of the same types as now.
        unreached: operators and sinks below the targets to which no tuple of the rehearsal came.
        writes: for the operators that ran, the columns that they wrote and their Arrow type names.
        arriving: for each sink, the different Arrow schemas (serialised) in which rows came to it.
        taken: for each of these sinks, the schema that its worker at this host has taken so far.
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
        ended: the worker had ended before, and acknowledges for nothing.
        switched: it was a target and now runs the new function.
        old_tuples: tuples that it processed by the old function since the change was prepared.
        files: what a sink closed at a commit marker.
        read: of a source at a commit marker: the tuples that it has read in front of it.
    """

    marker: int
    worker: WorkerId
    ended: bool = False
    switched: bool = False
    old_tuples: int = 0
    files: tuple[str, ...] = ()
    read: int = 0


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The worker has processed its last tuple and ended its out-channels."""

    worker: WorkerId
    files: tuple[str, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The worker stopped on an error of the operator; ``details`` is the traceback from the user's frame on.

    ``column`` names the column that came to a sink in another type than before, if that was it, and ``columns`` is what
    came before, as a serialized Arrow schema.
    """

    worker: WorkerId
    error: str
    details: str = ""
    column: str = ""
    columns: bytes = b""


class Saved(msgspec.Struct, frozen=True, tag=True):
    """The worker's snapshot for this checkpoint is on disk as ``name``, or could not be written (``error``)."""

    epoch: int
    worker: WorkerId
    name: str = ""
    size: int = 0
    error: str = ""


class Paused(msgspec.Struct, frozen=True, tag=True):
    """The worker stands in front of a tuple on which its operator failed, and retries it after the next fix.

    ``row`` is the tuple as JSON (what JSON cannot say, as text); ``details`` the traceback from the user's frame on.
    ``change`` is the guarded change whose configuration failed, where the worker waits for its rollback instead.
    """

    worker: WorkerId
    error: str
    details: str = ""
    row: str = ""
    change: str = ""


class Resumed(msgspec.Struct, frozen=True, tag=True):
    """A paused worker has got past its tuple."""

    worker: WorkerId


class Report(msgspec.Struct, frozen=True, tag=True):
    """A worker's measurements since its last report.

    Attributes:
        processed: tuples taken from the inbox since the start.
        queued: bytes waiting in its inbox now.
        queued_tuples: tuples waiting in its inbox now.
        reads: input columns that its function has looked at so far.
        writes: columns of its output and their Arrow type names, as last seen.
        latency: a sink's end-to-end latencies since the last report: (milliseconds, count) pairs.
        held: bytes of new-tagged tuples set aside until the old ones have drained (at most, since the last report).
        columns: of a sink: the columns that it has written so far, as a serialized Arrow schema, if there are new ones
            since the last report.
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


Answer = Prepared | Rehearsed | Done | Ended | Failed | Saved | Paused | Resumed | Report
