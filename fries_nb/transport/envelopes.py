"""Envelopes: the messages between controller and hosts on the control lane, encoded as msgpack.

A host runs several workers, so messages for and from workers travel in envelopes, together with messages of the host
itself. Each envelope carries the incarnation of its sender: after a failure the controller increments the incarnation,
so that messages of hosts of the old one are recognised.

>>> from fries_nb.protocol.messages import SetRate
>>> letter = ToHost(3, ToWorker(WorkerId("FM", 1), SetRate(100.0)))
>>> decode_to_host(encode(letter)) == letter
True

Compact encoding of trace records on their way to the driver: the operations of a run are one block of memory.

Sources at full speed cause tens of millions of operations per second. Decoding each to a Python integer would occupy
the driver for seconds, and take five times the memory.

>>> run = RanMany((7, 8, 9), "FM", 1)
>>> packed = pack(run)
>>> len(packed.transactions), unpack(packed) == run
(24, True)
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.errors import LinkError
from fries_nb.progress.change_batch import CountChanges
from fries_nb.protocol.checkpoints import CommittedChange, Configuration
from fries_nb.protocol.messages import Answer, Control, Prepare, WorkerId
from fries_nb.protocol.trace import Began, EarlierRecords, Emitted, Matched, Ran, RanMany, Updated, WorkerRecord, Wrote


class PackedRun(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed"):
    """A ``RanMany`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    operator: str
    worker: int
    function: str | None = None


class PackedEmitted(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed_emitted"):
    """An ``Emitted`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    extra: int
    operator: str
    worker: int
    branch: int = 0


class PackedBegan(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed_began"):
    """A ``Began`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    operator: str
    worker: int
    function: str | None = None


Packed = Ran | Updated | Wrote | Matched | PackedRun | PackedEmitted | PackedBegan


def pack(record: WorkerRecord) -> Packed:
    """The record in its compact encoding, in which it is also kept."""
    match record:
        case RanMany(transactions, operator, worker, function):
            return PackedRun(_packed(transactions), operator, worker, function)
        case Emitted(transactions, extra, operator, worker, branch):
            return PackedEmitted(_packed(transactions), extra, operator, worker, branch)
        case Began(transactions, operator, worker, function):
            return PackedBegan(_packed(transactions), operator, worker, function)
    return record


def unpack(packed: Packed) -> WorkerRecord:
    """The original record."""
    match packed:
        case PackedRun(transactions, operator, worker, function):
            return RanMany(_unpacked(transactions), operator, worker, function)
        case PackedEmitted(transactions, extra, operator, worker, branch):
            return Emitted(_unpacked(transactions), extra, operator, worker, branch)
        case PackedBegan(transactions, operator, worker, function):
            return Began(_unpacked(transactions), operator, worker, function)
    return packed


def _packed(transactions: tuple[str | int, ...]) -> bytes:
    return np.array(transactions, "<i8").tobytes()


def _unpacked(transactions: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(transactions, "<i8").tolist())


LIMIT = 1 << 30
"""Maximum length in bytes of a message, and of one frame of it."""


# ---- from a host


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first message of a host that was started for this incarnation.

    Peers reach it at ``data_address``; ``pid`` and ``hostname`` are for people.
    """

    data_address: str
    pid: int
    hostname: str
    incarnation: int = 1


class Goodbye(msgspec.Struct, frozen=True, tag=True):
    """The last message of a host."""

    reason: str = ""


class Said(msgspec.Struct, frozen=True, tag=True):
    """Answers of the host's workers, in order."""

    answers: tuple[Answer, ...]


class Records(msgspec.Struct, frozen=True, tag=True):
    """Records of the audit trace of one worker, in that worker's order."""

    worker: WorkerId
    records: tuple[Packed, ...]


class Line(NamedTuple):
    """A line that the function of a worker printed; for a thread of the user's, ``worker`` is the thread's name."""

    worker: str
    text: str


class Printed(msgspec.Struct, frozen=True, tag=True):
    """Lines that the host's workers printed or logged since the last message."""

    lines: tuple[Line, ...]


class ProcessUsage(msgspec.Struct, frozen=True, tag=True):
    """What the host's process uses, sent about once a second.

    Attributes:
        cpu_share: its processor time per time since the last message; 1.0 is one core.
        rss_bytes: its resident memory in bytes.
    """

    cpu_share: float
    rss_bytes: int


class Took(msgspec.Struct, frozen=True, tag=True):
    """The host has received a ``Chunk``; the controller may send another one."""


class Judged(msgspec.Struct, frozen=True, tag=True):
    """Verdicts on the latency constraints that the host judges."""

    verdicts: tuple[ConstraintVerdict, ...]


class Pointstamps(msgspec.Struct, frozen=True, tag=True):
    """What frontiers depend on in the host's view of the whole dataflow; see ``Tracker.least_counts``."""

    counts: CountChanges


class Configured(msgspec.Struct, frozen=True, tag=True):
    """Operator to the configuration of its workers; the answer to an ``Extend`` that asks for it."""

    configurations: dict[str, Configuration]


HostMessage = Hello | Goodbye | Said | Records | Printed | Took | Judged | Pointstamps | Configured | ProcessUsage


class FromHost(msgspec.Struct, frozen=True, array_like=True):
    """An envelope to the controller. ``incarnation`` is the one that the host has joined."""

    incarnation: int
    host: int
    message: HostMessage


# ---- to a host


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Join the envelope's incarnation. ``peers`` maps all of its hosts to their data addresses."""

    peers: dict[int, str]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The hello is rejected; the host ends."""

    reason: str


class Leave(msgspec.Struct, frozen=True, tag=True):
    """The host ends, since the run is over, its incarnation is superseded, or the others go on without it.

    Attributes:
        reason: the reason.
        leaving: in the last case, all hosts that leave; else empty.
    """

    reason: str = ""
    leaving: tuple[int, ...] = ()


class Probe(msgspec.Struct, frozen=True, tag=True):
    """An empty message, by which the controller checks that the host's connection exists."""


class ToWorker(msgspec.Struct, frozen=True, tag=True):
    """A control message for one worker of the host."""

    worker: WorkerId
    control: Control


class Chunk(msgspec.Struct, frozen=True, tag=True):
    """The next bytes of a change's function; see ``payloads``. Transfers to one host are sequential."""

    data: bytes


class Shipped(msgspec.Struct, frozen=True, tag=True):
    """The end of a transfer: the chunks are the payload of these orders, which were sent without theirs.

    ``digest`` is BLAKE2b over the payload. Without orders the change was aborted, and the chunks are discarded.
    """

    digest: bytes
    orders: tuple[tuple[WorkerId, Prepare], ...]


class Constrain(msgspec.Struct, frozen=True, tag=True):
    """Measure and judge these latency constraints, and no others."""

    constraints: tuple[LatencyConstraint, ...]


class Extend(msgspec.Struct, frozen=True, tag=True):
    """Open links and routes of the next epoch of the topology, whose channels the workers adopt next.

    Attributes:
        topologies: the topologies of all epochs, without functions, pickled; the last one is the next.
        peers: all hosts to their data addresses.
        lost: removed workers whose hosts are gone: their channels are ended at the receivers.
        asks: whether to answer with ``Configured``.
        additions: what hosts need for operators that the last epoch adds, pickled; empty if it adds none.
        issued: id of the last marker, which added workers treat as applied.
    """

    topologies: bytes
    peers: dict[int, str]
    lost: tuple[WorkerId, ...] = ()
    asks: bool = False
    additions: bytes = b""
    issued: int = 0


class TakePart(msgspec.Struct, frozen=True, tag=True):
    """To a new host, in place of ``Welcome``: make its workers of the last topology; they begin to run on ``Go``.

    Each of them is answered with ``TopologyAdopted``, or with ``Failed``.

    Attributes:
        extend: the topologies and the other hosts.
        decided: all changes in effect, in order.
        configurations: operator to the configuration of its other workers.
        issued: id of the last marker.
        earlier: worker to the records that the trace holds of earlier workers of its index, if there were any.
    """

    extend: Extend
    decided: tuple[CommittedChange, ...]
    configurations: dict[str, Configuration]
    issued: int
    earlier: tuple[tuple[WorkerId, EarlierRecords], ...] = ()


class Go(msgspec.Struct, frozen=True, tag=True):
    """All workers have adopted this epoch of the topology; a new host starts its workers."""

    epoch: int


class HostsLeft(msgspec.Struct, frozen=True, tag=True):
    """Close the links to these hosts, which take part no more, or never did."""

    hosts: tuple[int, ...]


ControllerMessage = (
    Welcome | Refused | Leave | Probe | ToWorker | Chunk | Shipped | Constrain | Extend | TakePart | Go | HostsLeft
)


class ToHost(msgspec.Struct, frozen=True, array_like=True):
    """An envelope to a host. ``incarnation`` is the run's at the time of sending."""

    incarnation: int
    message: ControllerMessage


_Envelope = TypeVar("_Envelope", FromHost, ToHost)
_encoder = msgspec.msgpack.Encoder()
_from_host = msgspec.msgpack.Decoder(FromHost)
_to_host = msgspec.msgpack.Decoder(ToHost)


def encode(envelope: FromHost | ToHost) -> bytes:
    """The envelope as msgpack."""
    encoded = _encoder.encode(envelope)
    if len(encoded) > LIMIT:
        kind = type(envelope.message).__name__
        raise LinkError(f"a {kind} message of {len(encoded)} bytes; expected at most {LIMIT}")
    return encoded


def decode_from_host(data: bytes | memoryview) -> FromHost:
    """Decode a host's message."""
    return _decode(_from_host, "a host's", data)


def decode_to_host(data: bytes | memoryview) -> ToHost:
    """Decode the controller's message."""
    return _decode(_to_host, "the controller's", data)


def _decode(decoder: msgspec.msgpack.Decoder[_Envelope], whose: str, data: bytes | memoryview) -> _Envelope:
    if len(data) > LIMIT:
        raise LinkError(f"got a control message of {len(data)} bytes; expected at most {LIMIT}")
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise LinkError(
            f"got {len(data)} bytes that are not {whose} message ({error}); "
            "likely cut off on the way, or sent by another version of fries_nb"
        ) from None
