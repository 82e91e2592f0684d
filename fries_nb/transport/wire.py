"""Frames between two hosts as bytes: no socket, no clock.

A message is a list of parts. The first, the head, is msgpack: who sends, in which incarnation, the how-manieth message
this is, and a list of frames. A frame names all its channels, so a marker to many workers of one host travels once.
Each large Arrow batch follows as a part of its own and is read where it lies, without a copy; a small one lies within
the head, since a part costs more than the copying of a few kilobytes. A schema travels once, under a small number that
later batches refer to.

Channels travel as numbers: sender and receiver count the same channels in the same order (``Routes``), and the head
carries a checksum of that order, so a disagreement is an error and not a misdelivery. The count of messages tells of
one that was lost, as when a connection breaks and is made again.

>>> from fries_nb.messages import WorkerId
>>> ab = ChannelId(WorkerId("A", 0), WorkerId("B", 1))
>>> routes = Routes([ab])
>>> packer, unpacker = Packer(routes, sender=0, incarnation=1), Unpacker(routes, sender=0)
>>> batch = pa.RecordBatch.from_pydict({"x": [1, 2]})
>>> parts = packer.pack(deque([(routes.numbers([ab]), Data(batch)), (routes.numbers([ab]), End())]))
>>> [(str(*channels), type(frame).__name__) for channels, frame in unpacker.unpack(read_head(parts[0]), parts[1:])]
[('A[0]->B[1]', 'Data'), ('A[0]->B[1]', 'End')]
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from fries_nb.errors import LinkError
from fries_nb.messages import ChannelId, Data, End, Marker
from fries_nb.transport.envelopes import LIMIT
from fries_nb.transport.pieces import Part

INLINE = 8192
"""Batches up to this many bytes lie within the head. ZeroMQ shares its receive buffer (8 KiB) among parts that fit it,
and so delivers those at odd addresses, where Arrow would read slowly; larger parts are its own allocations, aligned."""

MERGED = 1 << 20
"""Bytes after which further frames go into another message: a receiver sees a message when all of it has come, and the
sender's thread hears control between two messages."""

SMALL = 64
"""Bytes for which a frame without a batch counts."""

SCHEMAS = 64
"""Schemas a sender numbers before it uses a number again."""

SELF_DESCRIBED = -1
"""In place of a schema's number: the body is an Arrow IPC stream with its schema and its dictionaries."""


class Credit(msgspec.Struct, frozen=True, tag=True):
    """Against the stream: the receiver of the channel lets its sender send so many bytes more."""

    size: int


Payload = Data | Marker | End | Credit


class Arrival(NamedTuple):
    """A frame that came from another host, and all channels that it came on (a credit goes to their senders)."""

    channels: tuple[ChannelId, ...]
    frame: Payload


class DataFrame(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """``definition`` holds the schema where its number is new; ``body`` is None where the batch is a part."""

    channels: tuple[int, ...]
    timestamp: int
    size: int
    schema: int
    definition: bytes
    body: bytes | None
    version: int = 0


class OtherFrame(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A frame without a batch."""

    channels: tuple[int, ...]
    payload: Marker | End | Credit


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The first part of a message. ``number`` counts the messages from this sender in this incarnation."""

    incarnation: int
    sender: int
    number: int
    routes: int
    frames: tuple[DataFrame | OtherFrame, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Head)


def read_head(part: Part, limit: int = LIMIT) -> Head:
    """The head of a message.

    Raises:
        LinkError: it is cut off, too long, or something else.
    """
    _check_size(len(part), limit)
    try:
        return _decoder.decode(part)
    except msgspec.MsgspecError as error:
        raise LinkError(
            f"got {len(part)} bytes that are not the head of a frame message ({error}); "
            "likely cut off on the way, or sent by another version of fries_nb"
        ) from None


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise LinkError(f"got a frame of {size} bytes; expected at most {limit}; send smaller batches")


class Routes:
    """Numbers for channels: the same on all hosts that list the same channels in the same order."""

    def __init__(self, channels: Iterable[ChannelId]) -> None:
        self._channels = tuple(channels)
        self._numbers = {channel: number for number, channel in enumerate(self._channels)}
        self.checksum = zlib.crc32("\n".join(map(str, self._channels)).encode())

    def numbers(self, channels: Iterable[ChannelId]) -> tuple[int, ...]:
        """The channels' numbers.

        Raises:
            LinkError: a channel is not in the list.
        """
        try:
            return tuple([self._numbers[channel] for channel in channels])
        except KeyError as error:
            raise LinkError(f"no channel {error.args[0]}; expected one of the {len(self._channels)} agreed") from None

    def channels(self, numbers: Iterable[int]) -> tuple[ChannelId, ...]:
        """The channels of these numbers.

        Raises:
            LinkError: there is no channel of this number.
        """
        known = len(self._channels)
        found = []
        for number in numbers:
            if not 0 <= number < known:
                raise LinkError(f"got channel number {number}; expected 0 to {known - 1}")
            found.append(self._channels[number])
        return tuple(found)


class Packer:
    """Frames to one host in one incarnation, merged into messages. Counts messages and remembers schemas."""

    def __init__(self, routes: Routes, sender: int, incarnation: int, limit: int = LIMIT) -> None:
        self._routes = routes
        self._sender = sender
        self._incarnation = incarnation
        self._limit = limit
        self._number = 0
        self._schemas: list[pa.Schema] = []
        self._defined = 0

    def pack(self, waiting: deque[tuple[tuple[int, ...], Payload]]) -> list[Part]:
        """One message of the first frames that wait, which it takes; the tuples are channel numbers.

        Raises:
            LinkError: a frame is larger than the limit.
        """
        frames: list[DataFrame | OtherFrame] = []
        bodies: list[Part] = []
        size = 0
        while waiting and size < MERGED:
            numbers, payload = waiting.popleft()
            if isinstance(payload, Data):
                frame, body = self._data(numbers, payload)
                frames.append(frame)
                size += len(body)
                if frame.body is None:
                    bodies.append(body)
            else:
                frames.append(OtherFrame(numbers, payload))
                size += SMALL
        return self._message(frames, bodies)

    def _message(self, frames: list[DataFrame | OtherFrame], bodies: list[Part]) -> list[Part]:
        head = Head(self._incarnation, self._sender, self._number, self._routes.checksum, tuple(frames))
        self._number += 1
        return [_encoder.encode(head), *bodies]

    def _data(self, numbers: tuple[int, ...], data: Data) -> tuple[DataFrame, Part]:
        schema, definition = self._schema(data.batch.schema)
        buffer = _stream(data.batch) if schema == SELF_DESCRIBED else data.batch.serialize()
        _check_size(buffer.size, self._limit)
        if buffer.size > INLINE:
            return self._frame(numbers, data, schema, definition, None), memoryview(buffer)
        body = buffer.to_pybytes()
        return self._frame(numbers, data, schema, definition, body), body

    @staticmethod
    def _frame(numbers: tuple[int, ...], data: Data, schema: int, definition: bytes, body: bytes | None) -> DataFrame:
        return DataFrame(numbers, data.timestamp, data.size, schema, definition, body, data.version)

    def _schema(self, schema: pa.Schema) -> tuple[int, bytes]:
        for number, known in enumerate(self._schemas):
            if known.equals(schema, check_metadata=True):
                return number, b""
        if any(_has_dictionary(field.type) for field in schema):
            return SELF_DESCRIBED, b""
        number = self._defined % SCHEMAS
        self._schemas[number : number + 1] = [schema]
        self._defined += 1
        return number, schema.serialize().to_pybytes()


def _has_dictionary(kind: pa.DataType) -> bool:
    """Whether batches of this type need dictionaries sent before them."""
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class Unpacker:
    """The other end: messages from one host in one incarnation, in their order."""

    def __init__(self, routes: Routes, sender: int, limit: int = LIMIT) -> None:
        self._routes = routes
        self._sender = sender
        self._limit = limit
        self._number = 0
        self._schemas: dict[int, pa.Schema] = {}

    def unpack(self, head: Head, parts: Sequence[Part]) -> list[Arrival]:
        """The frames of a message; ``parts`` are those after the head, and large batches keep them alive.

        Raises:
            LinkError: a message is missing before this one, or this one is malformed.
        """
        self._check(head, parts)
        bodies = iter(parts)
        arrivals = []
        for frame in head.frames:
            channels = self._routes.channels(frame.channels)
            if isinstance(frame, DataFrame):
                body = next(bodies) if frame.body is None else frame.body
                data = Data(self._batch(frame, body), frame.timestamp, frame.size, frame.version)
                arrivals.append(Arrival(channels, data))
            else:
                arrivals.append(Arrival(channels, frame.payload))
        return arrivals

    def _check(self, head: Head, parts: Sequence[Part]) -> None:
        if head.routes != self._routes.checksum:
            raise LinkError(f"host {head.sender} lists other channels than this host, or lists them in another order")
        if head.number != self._number:
            raise LinkError(
                f"got message {head.number} of host {self._sender}; expected message {self._number}; "
                "likely the connection broke and frames were lost"
            )
        self._number += 1
        expected = sum(isinstance(frame, DataFrame) and frame.body is None for frame in head.frames)
        if len(parts) != expected:
            raise LinkError(f"got {len(parts)} batches from host {self._sender}; its head announced {expected}")
        for part in parts:
            _check_size(len(part), self._limit)

    def _batch(self, frame: DataFrame, body: Part) -> pa.RecordBatch:
        try:
            if frame.definition:
                self._schemas[frame.schema] = pa.ipc.read_schema(pa.py_buffer(frame.definition))
            if frame.schema == SELF_DESCRIBED:
                return pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
            if frame.schema not in self._schemas:
                raise LinkError(
                    f"got a batch of schema {frame.schema} from host {self._sender}; "
                    f"it has defined {sorted(self._schemas) or 'none'}"
                )
            return pa.ipc.read_record_batch(pa.py_buffer(body), self._schemas[frame.schema])
        except (pa.ArrowException, OSError, EOFError, StopIteration) as error:
            raise LinkError(
                f"got {len(body)} bytes from host {self._sender} that are not an Arrow batch ({error}); "
                "likely cut off on the way"
            ) from None
