"""Transfer of new functions to hosts: large ones in chunks, interleaved with other messages of the control lane.

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
from typing import Any

import msgspec

from fries_nb.errors import LinkError
from fries_nb.protocol.messages import Prepare, WorkerId
from fries_nb.transport.envelopes import Chunk, Shipped

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
    """The driver's end.

    Args:
        send: sends a message to a peer; keeps the order.
    """

    def __init__(self, send: Callable[[bytes, Chunk | Shipped], None]) -> None:
        self._send = send
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
