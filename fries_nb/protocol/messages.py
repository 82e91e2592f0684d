"""The messages between controller and workers, and the measurements that hosts send each other, as typed values.

**Measurements** of tasks, channels and output buffers are what constraints are judged by. Each host measures once an
interval and sends a bundle to every host that judges a constraint on the measured elements
(Nephele Streaming, section 3.3); it sends none without measurements. Times are of the host's clock, in nanoseconds
since the Unix epoch. A channel is measured where it is received, its buffer where it is sent.

>>> from fries_nb.protocol.messages import WorkerId
>>> channel = ChannelId(WorkerId("FC", 0), WorkerId("FM", 1))
>>> bundle = Measurements(time_ns=5_000, measured=(ChannelMeasured(channel, 12.5, 3), QueueMeasured(channel, 40, 0.0)))
>>> msgspec.msgpack.decode(msgspec.msgpack.encode(bundle), type=Measurements) == bundle
True

**Messages.** *Control* messages, from controller to worker, are never blocked by data; an ``Fcm`` is the paper's fast
control message
(Fries, definition 4.1). *Answers* go from workers to the controller. The names of ``frames`` can be imported from here.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from fries_nb.protocol.checkpoints import FeedbackCounts, Position, Reading
from fries_nb.protocol.frames import (
    Action,
    ApplyDeferred,
    Attempt,
    BlockEntries,
    ChannelId,
    CloseCuts,
    Commit,
    Data,
    End,
    Frame,
    Freeze,
    Hold,
    Marker,
    Move,
    MovedBins,
    MovedTimes,
    MoveSplits,
    Reconfigure,
    Release,
    RequeuedRow,
    ReturnRows,
    Tag,
    WorkerId,
)  # fmt: skip


class ChannelMeasured(msgspec.Struct, frozen=True, tag=True):
    """The latency of a channel, from the result in the sender's buffer to the receiver's function.

    Attributes:
        channel: the channel.
        latency_ms: mean over the tagged rows, in milliseconds.
        samples: number of tagged rows.
    """

    channel: ChannelId
    latency_ms: float
    samples: int


class QueueMeasured(msgspec.Struct, frozen=True, tag=True):
    """Rows of a channel wait at its receiver, and no tagged row was processed in the interval.

    Attributes:
        channel: the channel.
        rows: number of rows that wait.
        rate: rows of the channel that were processed per second; 0 if it is stalled.
    """

    channel: ChannelId
    rows: int
    rate: float


class BufferMeasured(msgspec.Struct, frozen=True, tag=True):
    """The output buffer of a channel, at its sender.

    If the size changed during the interval, time and rows are those since the last change.

    Attributes:
        channel: the channel.
        buffer_ms: exact mean time for which rows waited in the buffer, in milliseconds.
        rows: number of rows that left the buffer.
        size: size of the buffer in bytes.
        version: number of changes of the size so far.
    """

    channel: ChannelId
    buffer_ms: float
    rows: int
    size: int
    version: int


class TaskMeasured(msgspec.Struct, frozen=True, tag=True):
    """The latency of a task, from a row's entry into the user's function to its result.

    Attributes:
        worker: the worker.
        latency_ms: mean over the measured rows, in milliseconds.
        samples: number of measured rows.
        processor: share of a core that the task used, 0 to 1.
        row_ms: time of the worker, with all tasks of its chain, for each row that the task took in. Less than the
            latency, which is that of the slice, or of the batch, in which the row was processed.
        rows: number of rows that the task took in.
    """

    worker: WorkerId
    latency_ms: float
    samples: int
    processor: float
    row_ms: float = 0.0
    rows: int = 0


class ChainMeasured(msgspec.Struct, frozen=True, tag=True):
    """The operators of which worker ``index`` runs as one chain; sent when chains change.

    Attributes:
        operators: names of the operators in order; a single one after a split.
        index: index of the parallel instance.
    """

    operators: tuple[str, ...]
    index: int


Measured = ChannelMeasured | QueueMeasured | BufferMeasured | TaskMeasured | ChainMeasured


class Measurements(msgspec.Struct, frozen=True, tag=True):
    """The measurements of one host over one interval.

    Attributes:
        time_ns: end of the interval, in nanoseconds since the Unix epoch by the host's clock.
        measured: the measurements.
        clock_error_ms: bound of the difference between this host's clock and those of the hosts that send to it; 0
            between processes of one machine.
    """

    time_ns: int
    measured: tuple[Measured, ...]
    clock_error_ms: float = 0.0


__all__ = [
    "Action", "ApplyDeferred", "Attempt", "BlockEntries", "ChannelId", "CloseCuts", "Commit", "Data", "End",
    "FeedbackCounts", "Frame", "Freeze", "Hold", "Marker", "Move", "MoveSplits", "MovedBins", "MovedTimes",
    "Reconfigure", "Release", "RequeuedRow", "ReturnRows", "Tag", "WorkerId",
]  # fmt: skip

# ---- control, controller to worker


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Prepare a new function while the old one processes tuples.

    Attributes:
        change: id of the change.
        payload: a cloudpickled ``fries_nb.Update``; empty if the operator keeps its function, and only its out-edges
            change.
        rehearse: whether to return recent tuples for the rehearsal of the change.
        tagged: whether it is a multi-version change; the new function processes tuples of the next version, even before
            the marker.
        before: id of a change in flight that is ordered after this one; empty for none.
        guard: id of the rollback for which the worker keeps its current configuration after its switch; empty for none.
        examples: number of recent tuples to return, if that is more than a rehearsal needs and so many are in memory.
    """

    change: str
    payload: bytes
    rehearse: bool = True
    tagged: bool = False
    before: str = ""
    guard: str = ""
    examples: int = 0


EXAMPLES = 10
"""Number of tuples of which each rehearsal tells what became of them."""
MOST_EXAMPLES = 50
"""The same at most, where a user asks for them."""


class Rehearse(msgspec.Struct, frozen=True, tag=True):
    """To a worker's host: run copies of a change's targets and of all operators downstream of them on recent tuples.

    ``samples`` maps targets without another target upstream to their recent tuples, as returned by ``Prepared``. With
    ``compares`` the result is compared with that of the current functions, if it gives reason to. ``added`` are the
    operators that a change of the shape adds, whose edges are then those after it; ``None`` for other changes. With
    ``examples`` above 0, ``Compared`` follows on ``Rehearsed``, about so many tuples at most; ``only`` says that the
    change is to be rehearsed and not made, so that there is time for all of them.
    """

    change: str
    samples: dict[str, tuple[bytes, ...]]
    compares: bool = True
    added: frozenset[str] | None = None
    examples: int = 0
    only: bool = False


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Discard what was prepared for this change."""

    change: str


class Fcm(msgspec.Struct, frozen=True, tag=True):
    """Fast control message: apply this marker between two tuples, as a head of its scope."""

    marker: Marker


class AdoptTopology(msgspec.Struct, frozen=True, tag=True):
    """Switch to the channels of this epoch of the topology, which the host knows; answer with ``TopologyAdopted``."""

    epoch: int


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Discard this marker, and drop it if it arrives later."""

    marker: int


class Unguard(msgspec.Struct, frozen=True, tag=True):
    """The guard of this change has ended: the operator's error policy applies, also to the current tuple.

    If ``keeps`` is set, the worker keeps its earlier configuration, for a possible rollback.
    """

    change: str
    keeps: bool = False


class Settle(msgspec.Struct, frozen=True, tag=True):
    """No row that is old for this change, which is decided row by row, will come; drop the function before it."""

    change: str


class SetRate(msgspec.Struct, frozen=True, tag=True):
    """To a source worker: the source's rate in tuples per second from now on; 0 pauses it, infinity is no limit.

    The worker has the share of its splits.
    """

    rate: float


class AdoptSplits(msgspec.Struct, frozen=True, tag=True):
    """To a source worker: read these splits as well; answer with ``Installed``.

    Attributes:
        marker: id of the marker with which their earlier readers have given them up.
        positions: split to the position to continue from; ``None`` if it was read completely.
        rate: the source's rate in tuples per second, if it was set while the dataflow runs.
    """

    marker: int
    positions: dict[int, Position | None]
    rate: float | None = None


class Drain(msgspec.Struct, frozen=True, tag=True):
    """To a source worker: stop reading, and end the stream, since no split is left or the source is to end."""


class EndLoop(msgspec.Struct, frozen=True, tag=True):
    """To a worker of a loop's head, which has no forward input any more: the loop is empty, so end its body."""


class OpenEntries(msgspec.Struct, frozen=True, tag=True):
    """Rows may enter the worker's operator again; see ``BlockEntries``."""


class SetChain(msgspec.Struct, frozen=True, tag=True):
    """To an operator's worker: from it on, run these operators as one chain. Answered with ``Chained``."""

    operators: tuple[str, ...]


UNASKED = 0
"""In place of the number of a question, for copies that hosts leave behind when the run is over."""


class LookAtState(msgspec.Struct, frozen=True, tag=True):
    """Copy some of the worker's state, between tuples and in short pieces; each is answered with ``StateSeen``.

    Attributes:
        number: that of the question, which its answers repeat.
        most: the number of keys at most, the newest ones; without ``keys``.
        keys: the keys, pickled as a list; empty if the newest ones are meant.
        spread: whether keys from everywhere are meant, evenly, in place of the newest ones.
        limit: refuse if the copies would have about as many bytes or more; 0 for no limit.
    """

    number: int
    most: int
    keys: bytes = b""
    spread: bool = False
    limit: int = 0


class LookAtRows(msgspec.Struct, frozen=True, tag=True):
    """Answer with ``RowsSeen``, between two tuples: once, or as a tap whenever rows are found, until it ends.

    Attributes:
        number: that of the question, which its answers repeat.
        most: the number of rows at most, of those that came in and of those that went out.
        where: of a tap, the pickled condition on a row; a tap that the worker has already goes on.
        lasts_ns: nanoseconds after which a tap ends by itself.
        branch: the output on which rows go out that are meant; ``None`` for all rows, those that came in as well.
        identity: of a source tuple, if only those rows are meant that are or derive from it, of all that are kept.
        side: ``in`` or ``out`` if only those are meant.
        before: id of a change; of those that went out, the newest ones from before the worker switched to it are meant.
    """

    number: int
    most: int
    where: bytes = b""
    lasts_ns: int = 0
    branch: int | None = None
    identity: int | None = None
    side: str = ""
    before: str = ""


class LookAtArms(msgspec.Struct, frozen=True, tag=True):
    """Answer with ``ArmsSeen``, between two tuples.

    Attributes:
        number: that of the question, which its answers repeat.
        change: the canary.
        samples: whether rows that it has made are meant as well.
    """

    number: int
    change: str
    samples: bool = True


class EndTap(msgspec.Struct, frozen=True, tag=True):
    """End a tap, which is answered with its last ``RowsSeen`` unless it has ended before.

    Attributes:
        number: that of its question.
    """

    number: int


Control = (
    Prepare | Rehearse | Abort | Fcm | Cancel | Unguard | Settle | SetRate | Drain | EndLoop | OpenEntries
    | AdoptTopology | SetChain | AdoptSplits | LookAtState | LookAtRows | LookAtArms | EndTap
)  # fmt: skip


# ---- answers, worker to controller


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """The worker is ready to switch, or its preparation failed.

    Attributes:
        change: id of the change.
        worker: the worker.
        error: why it cannot switch, in one sentence; empty if it can.
        details: the traceback of the error from the user's first frame on.
        samples: recent input tuples, if ``Prepare`` requested them; they can be decoded on a host only.
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
        doubt: why the change should not be made unless it is forced, in one sentence; empty if there is no reason.
        tuples: number of recent tuples that counted: those that the current configuration processes without an error.
        tried: operators whose copies ran.
        spared: costly operators that did not run, since the types of their input are unchanged.
        unreached: operators and sinks downstream of the targets that no tuple of the rehearsal reached.
        writes: operator to the columns that its copy wrote and their Arrow type names.
        arriving: sink to the distinct Arrow schemas (serialized) in which rows arrived.
        taken: sink to the schema that its worker on this host has accepted so far.
    """

    change: str
    worker: WorkerId
    error: str = ""
    details: str = ""
    doubt: str = ""
    tuples: int = 0
    tried: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()
    unreached: frozenset[str] = frozenset()
    writes: dict[str, dict[str, str]] = {}
    arriving: dict[str, tuple[bytes, ...]] = {}
    taken: dict[str, bytes] = {}


class Compared(msgspec.Struct, frozen=True, tag=True):
    """What became of recent tuples in a rehearsal, with the new functions and with the present ones.

    Attributes:
        change: id of the change.
        worker: the worker on whose host it was rehearsed.
        pickled: ``side_by_side.ComparedTuple``, each pickled by itself.
        cut: number of those that were left out, since all together would be too large.
        uncopied: number of those that were left out, since they cannot be pickled.
        error: why there are no more, in one sentence; empty if there is no reason.
    """

    change: str
    worker: WorkerId
    pickled: tuple[bytes, ...] = ()
    cut: int = 0
    uncopied: int = 0
    error: str = ""


class Done(msgspec.Struct, frozen=True, tag=True):
    """The worker has applied the marker and sent it on its channels in scope; to a loop's head it has come back.

    Attributes:
        marker: id of the marker.
        worker: the worker.
        ended: whether the worker had ended before, so that the marker had no effect on it.
        switched: whether it was a target and now runs the new function.
        old_tuples: number of tuples that it processed with the old function since the change was prepared.
        files: parts that a sink closed at a commit marker.
        read: number of tuples that a source has read before a commit marker.
        busy: whether it held tuples when it applied an attempt's marker; ``Settled`` follows, unless it ends.
        observed: number of frames that a loop's head took from feedback channels until the marker came back on them.
        positions: splits that a source's worker has given up, with the positions to continue from.
        begun: of a frozen worker, the highest position of each origin that it has begun; see ``rollout``.
        inside: of a loop's head, the lowest position of each origin in the frames that it ``observed``.
    """

    marker: int
    worker: WorkerId
    ended: bool = False
    switched: bool = False
    old_tuples: int = 0
    files: tuple[str, ...] = ()
    read: int = 0
    busy: bool = False
    observed: int = 0
    positions: dict[int, Position | None] = {}
    begun: dict[int, int] = {}
    inside: dict[int, int] = {}


class SplitsRead(msgspec.Struct, frozen=True, tag=True):
    """The source worker has read its splits completely; it ends on ``Drain``, since it may get others until then."""

    worker: WorkerId


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The worker has processed its last tuple and ended its output channels.

    Attributes:
        worker: the worker.
        files: a sink's remaining parts.
        begun: the highest position of each origin that it has begun; empty if rows have no identities. See ``rollout``.
    """

    worker: WorkerId
    files: tuple[str, ...] = ()
    begun: dict[int, int] = {}


class InputEnded(msgspec.Struct, frozen=True, tag=True):
    """The worker, of a loop's head, has taken the end of every forward channel; more rows come from the body alone."""

    worker: WorkerId


class Settled(msgspec.Struct, frozen=True, tag=True):
    """The worker, which was busy when it applied the marker of an attempt, holds no tuples now."""

    worker: WorkerId
    marker: int


class TopologyAdopted(msgspec.Struct, frozen=True, tag=True):
    """The worker has switched to the channels of this epoch of the topology."""

    epoch: int
    worker: WorkerId


class Installed(msgspec.Struct, frozen=True, tag=True):
    """The worker has all that a marker moves to it: splits, or ``size`` bytes of state, (un)pickled in ``took_ns``."""

    marker: int
    worker: WorkerId
    size: int = 0
    took_ns: int = 0


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The worker has stopped because its operator failed.

    Attributes:
        worker: the worker.
        error: the error in one sentence.
        details: its traceback from the user's first frame on.
        column: name of a column that arrived at a sink in an incompatible type, if that is the cause; empty otherwise.
        columns: the schema that the sink had accepted before, as a serialized Arrow schema.
    """

    worker: WorkerId
    error: str
    details: str = ""
    column: str = ""
    columns: bytes = b""


class Saved(msgspec.Struct, frozen=True, tag=True):
    """The worker's snapshot for a checkpoint is stored, or could not be written.

    Attributes:
        epoch: number of the checkpoint.
        worker: the worker.
        name: name of the file; workers of one chain may share a file.
        size: size of the file in bytes, reported by the first worker of a chain; 0 for the others.
        error: why it could not be written; empty if it is stored.
        needs: see ``checkpoints.Snapshot``.
        earlier: the files of earlier snapshots that the file needs.
    """

    epoch: int
    worker: WorkerId
    name: str = ""
    size: int = 0
    error: str = ""
    needs: tuple[tuple[str, str], ...] = ()
    earlier: tuple[str, ...] = ()


class Parked(msgspec.Struct, frozen=True, tag=True):
    """The worker, which a change of the shape removes, has ended; its state is stored in case the operator returns.

    Attributes:
        epoch: the epoch of the topology in which it is removed.
        worker: the worker.
        name: name of the file; empty if it has no state.
        error: why the state could not be written; empty if it is stored.
        needs: see ``checkpoints.Snapshot``.
    """

    epoch: int
    worker: WorkerId
    name: str = ""
    error: str = ""
    needs: tuple[tuple[str, str], ...] = ()


class Paused(msgspec.Struct, frozen=True, tag=True):
    """The worker is paused on a tuple on which its operator failed, and retries it after the next fix.

    Attributes:
        worker: the worker.
        error: the error in one sentence.
        details: its traceback from the user's first frame on.
        row: the tuple as JSON; values without a JSON type as text.
        change: id of the guarded change whose configuration failed, if the worker waits for its rollback; else empty.
        chain: the operators that retry the tuple together, in order: those of the worker's chain.
        before: id of the change, decided row by row, for which the tuple is old, so that a fix of it comes before that;
            empty if there is none.
    """

    worker: WorkerId
    error: str
    details: str = ""
    row: str = ""
    change: str = ""
    chain: tuple[str, ...] = ()
    before: str = ""


class Resumed(msgspec.Struct, frozen=True, tag=True):
    """A paused worker has processed its tuple."""

    worker: WorkerId


class Report(msgspec.Struct, frozen=True, tag=True):
    """A worker's measurements since its last report.

    Attributes:
        worker: the worker.
        processed: number of tuples taken from the inbox since the start.
        queued, queued_tuples: bytes, and number of tuples, in its inbox.
        reads: input columns that its function has read so far.
        writes: columns of its output and their Arrow type names, as last seen.
        latency: end-to-end latencies at a sink since the last report: (milliseconds, count) pairs.
        held: maximum number of bytes of new-tagged tuples that were set aside since then.
        columns: the columns that a sink has written, as a serialized Arrow schema, if new ones were added since then.
        feedback: the feedback of a loop, at its head.
        useful_ns, busy_ns: processor time of a chain, at its first operator; duration of its turns while it is slow.
        reading: how far a source's worker has read; ``None`` for others, and when all has been read.
        turn_ns: duration of the worker's turns since the last report, of one that has not ended as well; operators of a
            chain share a worker.
        blocked_ns: time since the last report in which the worker took no tuple, since its output waited for credit.
        failed, given: number of tuples that became dead letters, and of rows that it gave (for a sink, has written),
            since the worker was started or restored; inside a chain, rows given since the start.
        keys: number of keys of which it keeps a state.
        left_out: number of rows that were left out in front of a shadow, since its budget was used up.
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
    feedback: FeedbackCounts | None = None
    useful_ns: int = 0
    busy_ns: int = 0
    reading: Reading | None = None
    turn_ns: int = 0
    blocked_ns: int = 0
    failed: int = 0
    given: int = 0
    keys: int = 0
    left_out: int = 0


class Chained(msgspec.Struct, frozen=True, tag=True):
    """The chain of this worker, empty if its host does not run it; ``error`` says why it is not the requested one."""

    worker: WorkerId
    operators: tuple[str, ...]
    error: str = ""


class StateSeen(msgspec.Struct, frozen=True, tag=True):
    """Copies of the states of some keys of a worker.

    Attributes:
        number: that of the question.
        worker: the worker.
        total: the number of its keys.
        pickled: pairs of key and state, each pickled by itself, one after the other.
        ends: where each of them ends.
        is_last: whether it is the last part of the worker's answer.
        error: why the rest is missing, in a sentence; empty if all is there.
        longest_ns: the longest time for which the worker's tuples have waited, so far, while some of it was copied.
        on_disk: the numbers of those keys, and of their bytes, whose states are not in memory.
    """

    number: int
    worker: WorkerId
    total: int
    pickled: bytes = b""
    ends: tuple[int, ...] = ()
    is_last: bool = False
    error: str = ""
    longest_ns: int = 0
    on_disk: tuple[int, int] = (0, 0)

    @property
    def pieces(self) -> list[bytes]:
        """The pairs, each pickled by itself."""
        return [self.pickled[start:end] for start, end in pairwise((0, *self.ends))]


class TapCounts(msgspec.Struct, frozen=True):
    """What a tap has done.

    Attributes:
        came, went: the numbers of rows found, of those that came in and of those that went out.
        seen: the number of rows that have passed, of both.
        dropped: how many of them were not tried, since its time was used up or they were not kept.
        judged: how many of them the condition has accepted or not.
    """

    came: int = 0
    went: int = 0
    seen: int = 0
    dropped: int = 0
    judged: int = 0


class RowsSeen(msgspec.Struct, frozen=True, tag=True):
    """Copies of the newest rows at a worker, or those that a tap has found since its last answer.

    Attributes:
        number: that of the question.
        worker: the worker.
        came, went: those that came in and those that went out: a pickled list of batches with hidden columns, and of
            rows, where rows are no batches. Without a tap the newest come first.
        version: the change that the worker has switched to last; empty if to none.
        error: why they cannot be told, in a sentence; empty if they are.
        is_last: whether the worker has no further answer.
        counts: of a tap, since its last answer.
        lacked: of a tap whose condition reads a column that no row has had, in its last answer: the sentence.
        row: of a tap whose condition has raised: the row, pickled.
        columns: of a tap, in its last answer: the columns of the rows that it has tried.
        branches: the output on which each batch of those went out, unless only one was asked for, or there is one.
    """

    number: int
    worker: WorkerId
    came: bytes = b""
    went: bytes = b""
    version: str = ""
    error: str = ""
    is_last: bool = True
    counts: TapCounts = TapCounts()
    lacked: str = ""
    row: bytes = b""
    columns: tuple[str, ...] = ()
    branches: tuple[int, ...] = ()


class ArmSeen(msgspec.Struct, frozen=True):
    """What one arm of a canary has done at a worker; see ``operators.arms.Arm``.

    Attributes:
        taken, failed: its counts.
        timed_ns: the times of single rows.
        sampled: its sample, a pickled ``Sampled``; empty if none was asked for.
    """

    taken: int = 0
    failed: int = 0
    timed_ns: tuple[int, ...] = ()
    sampled: bytes = b""


class ArmsSeen(msgspec.Struct, frozen=True, tag=True):
    """What both arms of a canary have done at a worker.

    Attributes:
        number: that of the question.
        worker: the worker.
        change: the last canary that it has begun; empty if there is none.
        old, new: its arms.
        of: the operator that has made the rows of the samples: the last one of the worker's chain.
        error: why they cannot be told, in a sentence; empty if they are.
    """

    number: int
    worker: WorkerId
    change: str = ""
    old: ArmSeen = ArmSeen()
    new: ArmSeen = ArmSeen()
    of: str = ""
    error: str = ""

    @property
    def is_last(self) -> bool:
        """It is the whole answer of the worker."""
        return True


Answer = (
    Prepared | Rehearsed | Compared | Done | Ended | InputEnded | Settled | TopologyAdopted | Failed | Saved | Parked
    | Paused | Resumed | Report | Chained | Installed | SplitsRead | StateSeen | RowsSeen
    | ArmsSeen
)  # fmt: skip
