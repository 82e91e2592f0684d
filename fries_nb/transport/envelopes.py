"""What controller and hosts send each other on the control lane, as msgpack.

A host runs several workers, so a message for or from workers travels in an envelope that also has messages of the
hosts' own. Every envelope carries the incarnation of its sender: after a failure the controller raises the
incarnation, and what survivors of the old one still say is told apart by it.

>>> from fries_nb.messages import SetRate
>>> letter = ToHost(3, ToWorker(WorkerId("FM", 1), SetRate(100.0)))
>>> decode_to_host(encode(letter)) == letter
True
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from fries_nb.errors import LinkError
from fries_nb.messages import Answer, Control, Prepare, WorkerId
from fries_nb.transport.packing import Packed

LIMIT = 1 << 30
"""Bytes above which a message, or one frame of it, is refused."""


# ---- from a host


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The first message of a host, which was started for this incarnation.

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
    """A piece of the audit trace of one worker, in that worker's order."""

    worker: WorkerId
    records: tuple[Packed, ...]


class Line(NamedTuple):
    """A line that a function of this worker printed; of a thread of the user's own, its name."""

    worker: str
    text: str


class Printed(msgspec.Struct, frozen=True, tag=True):
    """What the host's workers printed or logged since the last time."""

    lines: tuple[Line, ...]


class Took(msgspec.Struct, frozen=True, tag=True):
    """The host has taken one more ``Chunk``, and the controller may send another."""


HostMessage = Hello | Goodbye | Said | Records | Printed | Took


class FromHost(msgspec.Struct, frozen=True, array_like=True):
    """Envelope to the controller. ``incarnation`` is the one that the host has joined."""

    incarnation: int
    host: int
    message: HostMessage


# ---- to a host


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """Join the envelope's incarnation. ``peers`` maps all its hosts to their data addresses."""

    peers: dict[int, str]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The hello is not accepted; the host ends."""

    reason: str


class Leave(msgspec.Struct, frozen=True, tag=True):
    """End: the run is over, or the host survived its incarnation."""

    reason: str = ""


class Probe(msgspec.Struct, frozen=True, tag=True):
    """Asks nothing: that it can be sent shows the controller that the host's connection is still there."""


class ToWorker(msgspec.Struct, frozen=True, tag=True):
    """A control message for one worker of the host."""

    worker: WorkerId
    control: Control


class Chunk(msgspec.Struct, frozen=True, tag=True):
    """The next bytes of a change's function; see ``payloads``. Chunks of different transfers do not mingle."""

    data: bytes


class Shipped(msgspec.Struct, frozen=True, tag=True):
    """The transfer is complete: what the chunks hold is the payload of these orders, which came without theirs.

    ``digest`` is BLAKE2b over the payload. Without orders the change was given up, and the chunks are of no use.
    """

    digest: bytes
    orders: tuple[tuple[WorkerId, Prepare], ...]


ControllerMessage = Welcome | Refused | Leave | Probe | ToWorker | Chunk | Shipped


class ToHost(msgspec.Struct, frozen=True, array_like=True):
    """Envelope to a host. ``incarnation`` is the run's at the time of sending."""

    incarnation: int
    message: ControllerMessage


_Envelope = TypeVar("_Envelope", FromHost, ToHost)
_encoder = msgspec.msgpack.Encoder()
_from_host = msgspec.msgpack.Decoder(FromHost)
_to_host = msgspec.msgpack.Decoder(ToHost)


def encode(envelope: FromHost | ToHost) -> bytes:
    """The envelope as msgpack.

    Raises:
        LinkError: it is longer than ``LIMIT``.
    """
    encoded = _encoder.encode(envelope)
    if len(encoded) > LIMIT:
        kind = type(envelope.message).__name__
        raise LinkError(f"a {kind} message of {len(encoded)} bytes; expected at most {LIMIT}")
    return encoded


def decode_from_host(data: bytes | memoryview) -> FromHost:
    """A host's message.

    Raises:
        LinkError: the bytes are cut off, too many, or something else.
    """
    return _decode(_from_host, "a host's", data)


def decode_to_host(data: bytes | memoryview) -> ToHost:
    """The controller's message.

    Raises:
        LinkError: the bytes are cut off, too many, or something else.
    """
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
