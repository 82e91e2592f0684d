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

Transfer of new functions to hosts: large ones in chunks, interleaved with other messages of the control lane.

A payload is sent to a host once, for all of its workers that need it. A few chunks are in flight at a time, and the
host requests more, so a model of gigabytes delays a fast control message by those few chunks only. The orders that it
belongs to (``Prepare``) follow the last chunk, so no worker waits for a payload.

>>> sent = []
>>> out, came = PayloadSender(lambda peer, message: sent.append(message)), PayloadReceiver()
>>> out.prepare(b"peer", WorkerId("FM", 0), Prepare("u1", bytes(CHUNK) + b"model"))
>>> for _ in range(2):
...     came.take(sent.pop(0))
...     out.took(b"peer")
>>> [(worker, order)] = came.complete(sent.pop())
>>> print(worker, order.change, len(order.payload) - CHUNK)
FM[0] u1 5

Splits messages so that no part on the wire is longer than ``PIECE``.

ZeroMQ reads a part completely before it inspects it, even from a peer that has not proved a key. The maximum part size
therefore bounds the memory that each such peer can occupy. A piece of full length is continued by the next one, so a
part always ends with a shorter piece, which may be empty.

>>> parts = [b"head", bytes(PIECE + 1), bytes(PIECE), b""]
>>> [len(piece) for piece in split(parts)] == [4, PIECE, 1, PIECE, 0, 0]
True
>>> joined(split(parts)) == parts
True
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.errors import LinkError
from fries_nb.progress.progress_graph import CountChanges
from fries_nb.protocol.checkpoints import CommittedChange, Configuration, ParkedOperator
from fries_nb.protocol.messages import Answer, Control, Prepare, WorkerId
from fries_nb.protocol.trace import (
    Began,
    Choices,
    EarlierRecords,
    Emitted,
    Matched,
    Ran,
    RanMany,
    Requeued,
    Updated,
    WorkerRecord,
    Wrote,
)


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


class PackedRequeued(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="packed_requeued"):
    """A ``Requeued`` with its transactions as little-endian 64-bit integers."""

    transactions: bytes
    operator: str
    worker: int


Packed = Ran | Updated | Choices | Wrote | Matched | PackedRun | PackedEmitted | PackedBegan | PackedRequeued


def pack(record: WorkerRecord) -> Packed:
    """The record in its compact encoding, in which it is also kept."""
    match record:
        case RanMany(transactions, operator, worker, function):
            return PackedRun(_packed(transactions), operator, worker, function)
        case Emitted(transactions, extra, operator, worker, branch):
            return PackedEmitted(_packed(transactions), extra, operator, worker, branch)
        case Began(transactions, operator, worker, function):
            return PackedBegan(_packed(transactions), operator, worker, function)
        case Requeued(transactions, operator, worker):
            return PackedRequeued(_packed(transactions), operator, worker)
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
        case PackedRequeued(transactions, operator, worker):
            return Requeued(_unpacked(transactions), operator, worker)
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
    """What the host's process uses, sent about once a second."""

    cpu_share: float  # its processor time per time since the last message; 1.0 is one core
    rss_bytes: int  # its resident memory in bytes


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
    """The host ends, since the run is over, its incarnation is superseded, or the others go on without it."""

    reason: str = ""  # the reason
    leaving: tuple[int, ...] = ()  # in the last case, all hosts that leave; else empty
    keeps: bool = False  # whether to leave copies of small states behind, to be looked at when the run is over


class Probe(msgspec.Struct, frozen=True, tag=True):
    """An empty message, by which the controller checks that the host's connection exists."""


class Farewell(msgspec.Struct, frozen=True, tag=True):
    """The answer to a goodbye: all that the host has said has arrived, so it may close its connection."""


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


class Begin(msgspec.Struct, frozen=True):
    """What workers begin with whose operators a change of the shape adds."""

    change: str  # id of the change
    additions: bytes  # what hosts need for these operators, pickled
    issued: int  # id of the last marker, which they treat as applied
    parked: dict[str, ParkedOperator] = {}  # those of them that return, with their states
    given: dict[str, bytes] = {}  # those of them that begin with states, by key and pickled
    earlier: dict[WorkerId, EarlierRecords] = {}  # the records that the trace holds of earlier workers of their index
    listeners: tuple[str, ...] = ()  # the operators whose frontiers are tracked; see ``protocol.progress_locations``
    audience: dict[str, tuple[str, ...]] = {}  # listener to the operators that are notified
    starters: dict[str, int] = {}  # added source to its number of workers, each of which has a token of the least time
    heirs: tuple[str, ...] = ()  # those of them that wait for the states of others; see ``worker.handover``


class Extend(msgspec.Struct, frozen=True, tag=True):
    """Open links and routes of the next epoch of the topology, whose channels the workers adopt next."""

    topologies: bytes  # the next topology, to a new host behind all earlier ones; without functions, pickled
    peers: dict[int, str]  # all hosts to their data addresses
    lost: tuple[WorkerId, ...] = ()  # removed workers whose hosts are gone: their channels are ended at the receivers
    asks: bool = False  # whether to answer with ``Configured``
    added: Begin | None = None  # what the workers of operators begin with that the last epoch adds, if it adds any


class AddWorkers(msgspec.Struct, frozen=True, tag=True):
    """Make the workers that the last epoch adds to operators of a running dataflow on this host.

    Each of them is answered with ``TopologyAdopted``, or with ``Failed``.
    """

    decided: tuple[CommittedChange, ...]  # all changes in effect, in order
    configurations: dict[str, Configuration]  # operator to the configuration of its other workers
    issued: int  # id of the last marker
    earlier: dict[WorkerId, EarlierRecords] = {}  # the records that the trace holds of earlier workers of their index


class TakePart(msgspec.Struct, frozen=True, tag=True):
    """To a new host, in place of ``Welcome``: make its workers of the last topology; they begin to run on ``Go``."""

    extend: Extend  # the topologies and the other hosts
    add: AddWorkers


class Go(msgspec.Struct, frozen=True, tag=True):
    """All workers have adopted this epoch of the topology; a new host starts its workers."""

    epoch: int


class HostsLeft(msgspec.Struct, frozen=True, tag=True):
    """Close the links to these hosts, which take part no more, or never did."""

    hosts: tuple[int, ...]


ControllerMessage = (
    Welcome | Refused | Leave | Probe | Farewell | ToWorker | Chunk | Shipped | Constrain | Extend | AddWorkers
    | TakePart | Go | HostsLeft
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


CHUNK = 256 * 1024
"""Size of a chunk in bytes; payloads up to this size are sent with their orders."""
LARGEST = (1 << 32) - 1
"""Maximum size of a payload in bytes, given by the msgpack encoding of decisions."""
WINDOW = 4
"""Number of chunks in flight to one host, which bounds the delay of a fast control message."""


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)


@dataclass
class _Transfer:
    """One payload to one host. ``sent`` counts its bytes; the orders are without payload."""

    payload: bytes
    orders: list[tuple[WorkerId, Prepare]] = field(default_factory=list)
    sent: int = 0
    digest: Any = field(default_factory=_digest)


@dataclass
class _Lane:
    """The transfers to one host, in order."""

    waiting: deque[_Transfer] = field(default_factory=deque)
    on_the_way: int = 0


class PayloadSender:
    """The driver's end."""

    def __init__(self, send: Callable[[bytes, Chunk | Shipped], None]) -> None:
        self._send = send  # sends a message to a peer; keeps the order
        self._lanes: dict[bytes, _Lane] = {}

    def prepare(self, peer: bytes, worker: WorkerId, order: Prepare) -> None:
        """Send an order after its payload; orders with the same payload share one transfer."""
        lane = self._lanes.setdefault(peer, _Lane())
        known = [transfer for transfer in lane.waiting if transfer.payload is order.payload]
        if not known:
            lane.waiting.append(_Transfer(order.payload))
        transfer = known[0] if known else lane.waiting[-1]
        transfer.orders.append((worker, msgspec.structs.replace(order, payload=b"")))
        self._send_chunks(peer)

    def abort(self, peer: bytes, worker: WorkerId, change: str) -> None:
        """Cancel an order, and its transfer if no other order needs it."""
        lane = self._lanes.get(peer, _Lane())
        for transfer in tuple(lane.waiting):
            transfer.orders = [(to, order) for to, order in transfer.orders if (to, order.change) != (worker, change)]
            if not transfer.orders:
                lane.waiting.remove(transfer)
                if transfer.sent:
                    self._send(peer, Shipped(b"", ()))

    def took(self, peer: bytes) -> None:
        """Process the host's acknowledgement of a chunk."""
        if peer in self._lanes:
            self._lanes[peer].on_the_way -= 1
            self._send_chunks(peer)

    def clear(self) -> None:
        """Discard all transfers, since the hosts have ended."""
        self._lanes.clear()

    def _send_chunks(self, peer: bytes) -> None:
        lane = self._lanes[peer]
        while lane.waiting and lane.on_the_way < WINDOW:
            transfer = lane.waiting[0]
            data = transfer.payload[transfer.sent : transfer.sent + CHUNK]
            transfer.digest.update(data)
            transfer.sent += len(data)
            lane.on_the_way += 1
            self._send(peer, Chunk(data))
            if transfer.sent == len(transfer.payload):
                lane.waiting.popleft()
                self._send(peer, Shipped(transfer.digest.digest(), tuple(transfer.orders)))


class PayloadReceiver:
    """A host's end."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._file, self._digest = io.BytesIO(), _digest()

    def take(self, chunk: Chunk) -> None:
        """Append a chunk to the current payload."""
        self._file.write(chunk.data)
        self._digest.update(chunk.data)

    def complete(self, shipped: Shipped) -> list[tuple[WorkerId, Prepare]]:
        """The orders of a complete transfer, with the payload, which is held once."""
        payload, digest = self._file.getvalue(), self._digest.digest()
        self._begin()
        if shipped.orders and digest != shipped.digest:
            raise LinkError(f"got {len(payload)} bytes of a function that are not those sent; likely a chunk is lost")
        return [(worker, msgspec.structs.replace(order, payload=payload)) for worker, order in shipped.orders]


PIECE = 1 << 20
"""Maximum length of a piece in bytes. Most batches are shorter and are read without a copy."""

Part = bytes | memoryview


def split(parts: Sequence[Part]) -> Sequence[Part]:
    """The parts of a message as pieces."""
    if all(len(part) < PIECE for part in parts):
        return parts
    views = [memoryview(part) for part in parts]
    return [view[at : at + PIECE] for view in views for at in range(0, len(view) + 1, PIECE)]


def joined(pieces: Sequence[Part]) -> Sequence[Part]:
    """The parts of a message, from its pieces."""
    if all(len(piece) < PIECE for piece in pieces):
        return pieces
    parts: list[Part] = []
    begun: list[Part] = []
    for piece in pieces:
        begun.append(piece)
        if len(piece) < PIECE:
            parts.append(b"".join(begun) if begun[1:] else piece)
            begun.clear()
    if begun:
        raise LinkError(f"got a message whose last part lacks its end after {sum(map(len, begun))} bytes")
    return parts
