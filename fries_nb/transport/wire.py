"""Encoding of frames between two hosts; without sockets or clocks.

A message is a list of parts. The first, the head, is msgpack: sender, incarnation, sequence number of the message, and
a list of frames. A frame names all of its channels, so a marker to many workers of one host travels once. Each large
Arrow batch follows as a part of its own and is read without a copy; a small batch is embedded in the head, since a part
costs more than copying a few kilobytes. A schema is sent once, with a small number to which later batches refer.

Channels are encoded as numbers: sender and receiver number the same channels in the same order (``Routes``). The head
carries a checksum of that order, so that a disagreement is an error and not a misdelivery. Sequence numbers detect lost
messages, as when a connection breaks and is made again.

>>> from fries_nb.protocol.messages import WorkerId
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

from fries_nb.constraints.reactions import ChainOperators, ResizeBuffer
from fries_nb.errors import LinkError
from fries_nb.progress.exchange import ProgressFrame, ProgressState
from fries_nb.protocol.frames import Bundle
from fries_nb.protocol.messages import ChannelId, Data, End, Marker, Measurements, MovedBins, Tag
from fries_nb.transport.envelopes import LIMIT, Part

INLINE = 8192
"""Size in bytes up to which batches are embedded in the head. ZeroMQ shares its receive buffer (8 KiB) among parts that
fit it and delivers them unaligned, which Arrow reads slowly; larger parts are separate, aligned allocations."""

MERGED = 1 << 20
"""Size in bytes after which further frames go into another message: a receiver sees a message only when it is complete,
and the sender's thread processes control between two messages."""

SMALL = 64
"""Assumed size in bytes of a frame without a batch."""

SCHEMAS = 64
"""Number of schemas after which a sender reuses numbers."""

SELF_DESCRIBED = -1
"""In place of a schema's number: the body is an Arrow IPC stream with its schema and dictionaries."""


class Credit(msgspec.Struct, frozen=True, tag=True):
    """Sent against the stream: the receivers of the channels allow their senders to send so many bytes more, each."""

    sizes: tuple[int, ...]


LatencyNotice = Measurements | ResizeBuffer | ChainOperators
"""A message from host to host about latency constraints."""
Notice = LatencyNotice | ProgressFrame | ProgressState | MovedBins
"""A message from host to host, on no channel."""
Payload = Data | Bundle | Marker | End | Credit | Notice


class Arrival(NamedTuple):
    """A frame from another host, and all channels that it arrived on (a credit goes to their senders)."""

    channels: tuple[ChannelId, ...]
    frame: Payload


class DataFrame(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """A data frame. ``definition`` holds the schema if its number is new; ``body`` is None if the batch is a part."""

    channels: tuple[int, ...]
    timestamp: tuple[int, ...]
    size: int
    schema: int
    definition: bytes
    body: bytes | None
    version: int = 0
    tag: Tag | None = None


class BundleFrame(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A bundle, with the schema and the body as in a data frame, the tags of those frames that have one, and times."""

    channels: tuple[int, ...]
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    schema: int
    definition: bytes
    body: bytes | None
    version: int
    tags: dict[int, Tag]
    timestamps: tuple[tuple[int, ...], ...] = ()


class OtherFrame(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A frame without a batch."""

    channels: tuple[int, ...]
    payload: Marker | End | Credit | Notice


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The first part of a message."""

    incarnation: int  # that of the sender
    sender: int  # index of the sending host
    number: int  # sequence number of the message, from this sender in this incarnation
    epoch: int  # epoch of the sender's routes
    routes: int  # checksum of the sender's routes in that epoch
    frames: tuple[DataFrame | BundleFrame | OtherFrame, ...]  # the frames, in order


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Head)


def read_head(part: Part, limit: int = LIMIT) -> Head:
    """Decode the head of a message."""
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
    """The numbering of channels, equal on all hosts that list the same channels in the same order.

    Channels of later epochs of the topology are appended, and none loses its number: a message of an earlier epoch is
    decoded as before.

    >>> from fries_nb.protocol.messages import WorkerId
    >>> ab, ac = (ChannelId(WorkerId("A", 0), WorkerId(name, 0)) for name in "BC")
    >>> routes = Routes([ab])
    >>> routes.extend([ac, ab])
    >>> routes.epoch, routes.numbers([ab, ac])
    (2, (0, 1))
    """

    def __init__(self, channels: Iterable[ChannelId]) -> None:
        self.epoch = 0  # the number of times that channels were listed
        self.checksums: dict[int, int] = {}  # epoch to the checksum of the list up to it
        # all channels of the first epoch
        self._channels: list[ChannelId] = []
        self._numbers: dict[ChannelId, int] = {}
        self.extend(channels)

    def extend(self, channels: Iterable[ChannelId]) -> None:
        """Begin the next epoch, with these channels; those that are new get the next numbers, in order."""
        for channel in channels:
            if channel not in self._numbers:
                self._numbers[channel] = len(self._channels)
                self._channels.append(channel)
        self.epoch += 1
        self.checksums[self.epoch] = zlib.crc32("\n".join(map(str, self._channels)).encode())

    def numbers(self, channels: Iterable[ChannelId]) -> tuple[int, ...]:
        """The numbers of channels."""
        try:
            return tuple([self._numbers[channel] for channel in channels])
        except KeyError as error:
            raise LinkError(f"no channel {error.args[0]}; expected one of the {len(self._channels)} agreed") from None

    def channels(self, numbers: Iterable[int]) -> tuple[ChannelId, ...]:
        """The channels with these numbers."""
        known = len(self._channels)
        found = []
        for number in numbers:
            if not 0 <= number < known:
                raise LinkError(f"got channel number {number}; expected 0 to {known - 1}")
            found.append(self._channels[number])
        return tuple(found)


class Packer:
    """Encodes frames to one host in one incarnation as messages; counts messages and remembers schemas."""

    def __init__(self, routes: Routes, sender: int, incarnation: int, limit: int = LIMIT) -> None:
        self._routes = routes
        self._sender = sender
        self._incarnation = incarnation
        self._limit = limit
        self._number = 0
        self._schemas: list[pa.Schema] = []
        self._defined = 0

    def pack(self, waiting: deque[tuple[tuple[int, ...], Payload]]) -> list[Part]:
        """Encode the first waiting frames as one message, and remove them; the tuples contain channel numbers."""
        frames: list[DataFrame | BundleFrame | OtherFrame] = []
        bodies: list[Part] = []
        size = 0
        while waiting and size < MERGED:
            numbers, payload = waiting.popleft()
            if isinstance(payload, Data | Bundle):
                frame, body = self._with_batch(numbers, payload)
                frames.append(frame)
                size += len(body)
                if frame.body is None:
                    bodies.append(body)
            else:
                frames.append(OtherFrame(numbers, payload))
                size += payload.size if isinstance(payload, MovedBins) else SMALL
        return self._message(frames, bodies)

    def _message(self, frames: list[DataFrame | BundleFrame | OtherFrame], bodies: list[Part]) -> list[Part]:
        epoch = self._routes.epoch
        checksum = self._routes.checksums[epoch]
        head = Head(self._incarnation, self._sender, self._number, epoch, checksum, tuple(frames))
        self._number += 1
        return [_encoder.encode(head), *bodies]

    def _with_batch(self, numbers: tuple[int, ...], frame: Data | Bundle) -> tuple[DataFrame | BundleFrame, Part]:
        schema, definition = self._schema(frame.batch.schema)
        buffer = _stream(frame.batch) if schema == SELF_DESCRIBED else frame.batch.serialize()
        _check_size(buffer.size, self._limit)
        inline = buffer.to_pybytes() if buffer.size <= INLINE else None
        body = memoryview(buffer) if inline is None else inline
        if isinstance(frame, Bundle):
            tags = dict(frame.tags)
            return BundleFrame(
                numbers, frame.rows, frame.sizes, schema, definition, inline, frame.version, tags, frame.timestamps
            ), body
        return DataFrame(
            numbers, frame.timestamp, frame.size, schema, definition, inline, frame.version, frame.tag
        ), body

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
    """Whether batches of this type are preceded by dictionaries."""
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class Unpacker:
    """Decodes messages from one host in one incarnation, in order, of epochs that the routes have reached."""

    def __init__(self, routes: Routes, sender: int, limit: int = LIMIT) -> None:
        self._routes = routes
        self._sender = sender
        self._limit = limit
        self._number = 0
        self._schemas: dict[int, pa.Schema] = {}

    def unpack(self, head: Head, parts: Sequence[Part]) -> list[Arrival]:
        """The frames of a message. ``parts`` are those after the head; large batches keep them alive."""
        self._check(head, parts)
        bodies = iter(parts)
        arrivals = []
        for frame in head.frames:
            channels = self._routes.channels(frame.channels)
            if isinstance(frame, OtherFrame):
                if isinstance(frame.payload, Credit):
                    self._check_each("credits", len(frame.payload.sizes), channels)
                arrivals.append(Arrival(channels, frame.payload))
            else:
                batch = self._batch(frame, next(bodies) if frame.body is None else frame.body)
                arrivals.append(Arrival(channels, self._with_batch(frame, batch, channels)))
        return arrivals

    def _with_batch(
        self, frame: DataFrame | BundleFrame, batch: pa.RecordBatch, channels: tuple[ChannelId, ...]
    ) -> Data | Bundle:
        if isinstance(frame, DataFrame):
            return Data(batch, frame.timestamp, frame.size, frame.version, frame.tag)
        self._check_each("sizes", len(frame.sizes), channels)
        self._check_each("numbers of rows", len(frame.rows), channels)
        if min(frame.rows, default=0) < 0 or sum(frame.rows) != batch.num_rows:
            raise LinkError(
                f"got a bundle of {batch.num_rows} rows from host {self._sender}; its frame announced {frame.rows}"
            )
        if frame.timestamps:
            self._check_each("timestamps", len(frame.timestamps), channels)
        return Bundle(batch, frame.rows, frame.sizes, frame.version, frame.tags, frame.timestamps)

    def _check_each(self, what: str, count: int, channels: tuple[ChannelId, ...]) -> None:
        if count != len(channels):
            raise LinkError(
                f"got {count} {what} for {len(channels)} channels from host {self._sender}; expected one for each; "
                "likely sent by another version of fries_nb"
            )

    def _check(self, head: Head, parts: Sequence[Part]) -> None:
        if head.routes != self._routes.checksums.get(head.epoch):
            raise LinkError(f"host {head.sender} lists other channels than this host, or lists them in another order")
        if head.number != self._number:
            raise LinkError(
                f"got message {head.number} of host {self._sender}; expected message {self._number}; "
                "likely the connection broke and frames were lost"
            )
        self._number += 1
        expected = sum(not isinstance(frame, OtherFrame) and frame.body is None for frame in head.frames)
        if len(parts) != expected:
            raise LinkError(f"got {len(parts)} batches from host {self._sender}; its head announced {expected}")
        for part in parts:
            _check_size(len(part), self._limit)

    def _batch(self, frame: DataFrame | BundleFrame, body: Part) -> pa.RecordBatch:
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
