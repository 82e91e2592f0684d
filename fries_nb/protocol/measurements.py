"""Measurements of tasks, channels and output buffers, which constraints are judged by.

Each host measures once an interval and sends a bundle to every host that judges a constraint on the measured elements
(Nephele Streaming, section 3.3); it sends none without measurements. Times are of the host's clock, in nanoseconds
since the Unix epoch. A channel is measured where it is received, its buffer where it is sent.

>>> from fries_nb.protocol.messages import WorkerId
>>> channel = ChannelId(WorkerId("FC", 0), WorkerId("FM", 1))
>>> bundle = Measurements(time_ns=5_000, measured=(ChannelMeasured(channel, 12.5, 3), QueueMeasured(channel, 40, 0.0)))
>>> msgspec.msgpack.decode(msgspec.msgpack.encode(bundle), type=Measurements) == bundle
True
"""

from __future__ import annotations

import msgspec

from fries_nb.protocol.messages import ChannelId, WorkerId


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
