"""A Kafka topic as a source: partitions are splits, offsets positions. Needs the extra ``kafka``.

A worker reads all of its partitions with one consumer, to which they are assigned at the offsets of their positions; no
consumer group is used. A split whose turn it is takes what the consumer has fetched for its partitions. Offsets have
gaps, of transactions and of compaction, so a position has the number of rows before it and the next offsets.

Partitions that are added to the topic while it is read are dealt to the splits in turn, and read from their first
message on; the offsets in them follow the others in a position. The client counts partitions every ten seconds.

If a topic has more partitions than a source may have splits, a split has several. Of these it reads what the topic held
at the plan partition by partition, so that these rows have the same numbers in every attempt, and then what comes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from fries_nb.connectors.fetched_messages import FetchedMessages
from fries_nb.connectors.kafka_client import REACH_S, KafkaCluster, is_end, package, reason
from fries_nb.connectors.message_decoder import Decode, Failures, MessageDecoder
from fries_nb.connectors.source import Position, Split, Undecoded
from fries_nb.errors import SourceError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

SAMPLE = 1_000
"""Maximum number of messages from which the columns are inferred before the run."""
METADATA = ("kafka_key", "kafka_partition", "kafka_offset", "kafka_timestamp")
LETTER_BYTES = 2_000
"""Maximum number of bytes of a message that a dead letter shows."""


@dataclass(frozen=True)
class KafkaTopic:
    """What is read, and how.

    Attributes:
        cluster: the cluster.
        name: name of the topic.
        start: ``earliest``, ``latest``, or milliseconds since the Unix epoch.
        ends: whether the source ends with the last message that the topic holds at the plan.
        schema: the columns of messages; ``None`` to infer them.
        decode: from a message to its row; ``None`` for JSON.
        metadata: whether rows get the columns ``METADATA``.
        letters: whether messages that are no rows become dead letters, instead of an error.
    """

    cluster: KafkaCluster
    name: str
    start: str | int = "earliest"
    ends: bool = False
    schema: pa.Schema | None = None
    decode: Decode | None = None
    metadata: bool = False
    letters: bool = False


class KafkaSource:
    """The messages of a topic; see ``Source``.

    Args:
        topic: what is read.
    """

    def __init__(self, topic: KafkaTopic) -> None:
        self._topic = topic
        self._fetched: FetchedMessages | None = None
        self._decoder: MessageDecoder | None = None

    def __reduce__(self) -> tuple[type[KafkaSource], tuple[KafkaTopic]]:
        return KafkaSource, (self._topic,)  # consumers are neither pickled nor copied

    def __repr__(self) -> str:
        return f"the topic {self._topic.name!r} of {self._topic.cluster.servers}"

    def splits(self, count: int) -> list[Split]:
        """Divide the partitions among splits, and infer the columns; see ``Source``."""
        topic = self._topic
        partitions = topic.cluster.partitions(topic.name)
        consumer = topic.cluster.consumer("fries-plan")
        try:
            parts = _parts(consumer, topic, partitions)
            columns = _columns(consumer, topic, parts)
        except package().KafkaException as error:
            raise SourceError(f"{self!r} cannot be read: {reason(error)}") from error
        finally:
            consumer.close()
        content = None if columns is None else columns.serialize().to_pybytes()
        count = min(count, len(parts))
        dealt = [[list(part) for part in parts[number::count]] for number in range(count)]
        return [Split(number, [content, mine, len(parts) + number, count]) for number, mine in enumerate(dealt)]

    def check(self) -> None:
        """Check that the topic can be reached, as a resumed run does.

        Raises:
            SourceError: it cannot.
        """
        self._topic.cluster.partitions(self._topic.name)

    def open(self, split: Split, position: Position) -> KafkaReader:
        """Begin to fetch the messages of a split; see ``Source``."""
        topic = self._topic
        columns, parts, added, step = split.content
        if self._fetched is None:
            self._fetched = FetchedMessages(topic.cluster, topic.name)
        if self._decoder is None:
            self._decoder = MessageDecoder(topic.decode, topic.schema)
            if topic.schema is None and columns is not None:
                self._decoder.columns = pa.ipc.read_schema(pa.py_buffer(columns))
        spans = [PartitionSpan(*part) for part in parts]
        return KafkaReader(topic, spans, position, self._fetched, self._decoder, itertools.count(added, step))


class PartitionSpan(NamedTuple):
    """A partition, the offset from which it is read, and the one behind the last message at the plan."""

    partition: int
    first: int
    end: int


class KafkaReader:
    """Reads the partitions of one split; see ``SplitReader``.

    Args:
        topic: what is read.
        parts: the partitions of the split.
        position: position of the first row to read.
        fetched: the messages of the worker.
        decoder: the decoder of the worker.
        added: the numbers of partitions of the split that may be added to the topic.

    Attributes:
        position: position of the next row.
        undecoded: the messages that were no rows; taken by the caller.
    """

    def __init__(
        self,
        topic: KafkaTopic,
        parts: Sequence[PartitionSpan],
        position: Position,
        fetched: FetchedMessages,
        decoder: MessageDecoder,
        added: Iterator[int],
    ) -> None:
        self.undecoded: list[Undecoded] = []
        self._topic = topic
        self._fetched = fetched
        self._decoder = decoder
        offsets = [part.first for part in parts] if position.at is None else position.at
        known = itertools.islice(added, len(offsets) - len(parts))
        parts = [*parts, *(PartitionSpan(number, 0, 0) for number in known)]
        self._added, self._next = added, next(added)
        self._parts = dict(enumerate(parts))
        self._offsets = list(offsets)
        self._turn = 0
        self.position: Position | None = Position(position.row, list(offsets))
        for index, part in enumerate(parts):
            fetched.begin(part.partition, offsets[index])
            self._end_if_read(index)
        if not self._parts:
            self.position = None

    @property
    def place(self) -> str:
        """The partitions with their next offsets; see ``ObservedReader``."""
        return ", ".join(
            f"partition {part.partition}, offset {self._offsets[index]:,}" for index, part in self._parts.items()
        )

    def behind(self, now_ns: int) -> tuple[int | None, int | None]:
        """The messages that were not read; see ``ObservedReader``."""
        found = [
            self._fetched.behind(part.partition, self._offsets[index], now_ns) for index, part in self._parts.items()
        ]
        rows, since = [one for one, _ in found if one is not None], [one for _, one in found if one is not None]
        return sum(rows) if rows else None, max(since, default=None)

    def close(self) -> None:
        """Fetch the partitions no more."""
        for part in self._parts.values():
            self._fetched.end(part.partition)
        self._parts = {}

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """Read the next rows, of one partition; see ``SplitReader``.

        Raises:
            SourceError: the partition cannot be read, or a message is no row and there are no dead letters.
        """
        assert self.position is not None, "a split is not read at its end"
        row, batch = self.position.row, None
        self._begin_added()
        for index in self._order():
            messages = self._taken(index, limit)
            if messages:
                batch = self._batch(messages)
                self._offsets[index] = messages[-1].offset() + 1
            self._end_if_read(index)
            if messages:
                break
        row += 0 if batch is None else batch.num_rows
        self.position = Position(row, list(self._offsets)) if self._parts else None
        return batch

    def _begin_added(self) -> None:
        while not self._topic.ends and self._next < self._fetched.partitions:
            self._parts[len(self._offsets)] = PartitionSpan(self._next, 0, 0)
            self._offsets.append(0)
            self._fetched.begin(self._next, 0)
            self._next = next(self._added)

    def _order(self) -> Iterator[int]:
        """The partitions to try: the first that is behind its end at the plan, else all of them in turn."""
        for index, part in list(self._parts.items()):
            if self._offsets[index] < part.end and not self._fetched.is_read(part.partition, part.end):
                yield index
                if index in self._parts:
                    return
        indices = list(self._parts)
        self._turn += 1
        for turn in range(len(indices)):
            yield indices[(self._turn + turn) % len(indices)]

    def _taken(self, index: int, limit: int) -> list[Message]:
        part = self._parts[index]
        messages = self._fetched.take(part.partition, limit)
        if self._topic.ends:
            return [message for message in messages if message.offset() < part.end]
        return messages

    def _end_if_read(self, index: int) -> None:
        """At the end of a source that ends, read a partition no more."""
        part = self._parts[index]
        if self._topic.ends and (
            self._offsets[index] >= part.end or self._fetched.is_read(part.partition, part.end)
        ):
            del self._parts[index]
            self._fetched.end(part.partition)

    def _batch(self, messages: list[Message]) -> pa.RecordBatch | None:
        values = [message.value() for message in messages]
        batch, failures = self._decoder.batch(values)
        if failures:
            self._set_aside(messages, failures)
            messages = [message for index, message in enumerate(messages) if index not in failures]
        if not messages:
            return None
        return _with_metadata(batch, messages) if self._topic.metadata else batch

    def _set_aside(self, messages: list[Message], failures: Failures) -> None:
        for index, why in failures.items():
            message = messages[index]
            where = f"offset {message.offset()} of partition {message.partition()} of topic {message.topic()!r}"
            if not self._topic.letters:
                expected = "what decode= takes" if self._topic.decode else "a JSON object"
                raise SourceError(
                    f"the message at {where} does not decode: {why}; expected {expected}, or on_error=fn.memory() to "
                    "set such messages aside"
                )
            shown = (message.value() or b"")[:LETTER_BYTES].decode(errors="backslashreplace")
            self.undecoded.append(Undecoded(f"the message at {where} does not decode: {why}", {"message": shown}))


def _parts(consumer: Consumer, topic: KafkaTopic, partitions: Sequence[int]) -> list[PartitionSpan]:
    """Each partition with the offset at which the source starts, and the present end."""
    make = package().TopicPartition
    bounds = [
        consumer.get_watermark_offsets(make(topic.name, partition), timeout=REACH_S) for partition in partitions
    ]
    if isinstance(topic.start, int):
        asked = [make(topic.name, partition, topic.start) for partition in partitions]
        found = consumer.offsets_for_times(asked, timeout=REACH_S)
        offsets = {one.partition: one.offset for one in found}
    parts = []
    for partition, (low, high) in zip(partitions, bounds, strict=True):
        if isinstance(topic.start, int):
            first = offsets[partition] if offsets[partition] >= 0 else high  # -1: no message is as late
        else:
            first = low if topic.start == "earliest" else high
        parts.append(PartitionSpan(partition, first, high))
    return parts


def _columns(consumer: Consumer, topic: KafkaTopic, parts: Sequence[PartitionSpan]) -> pa.Schema | None:
    """The columns of a sample of the messages; ``None`` if they are stated, or there is no message."""
    if topic.schema is not None:
        return None
    make, each = package().TopicPartition, -(-SAMPLE // len(parts))
    low = {part.partition: consumer.get_watermark_offsets(make(topic.name, part.partition))[0] for part in parts}
    begin = {part.partition: max(min(part.first, part.end - each), low[part.partition]) for part in parts}
    left = {part.partition: part.end for part in parts if begin[part.partition] < part.end}
    consumer.assign([make(topic.name, partition, begin[partition]) for partition in left])
    values: list[bytes | None] = []
    deadline = time.monotonic() + REACH_S
    while left and len(values) < SAMPLE and time.monotonic() < deadline:
        for message in consumer.consume(SAMPLE, 0.05):
            if is_end(message) or message.offset() >= left.get(message.partition(), 0) - 1:
                left.pop(message.partition(), None)
            if message.error() is None:
                values.append(message.value())
    consumer.unassign()
    decoder = MessageDecoder(topic.decode)
    decoder.batch(values[:SAMPLE])
    return decoder.columns


def _with_metadata(batch: pa.RecordBatch, messages: Sequence[Message]) -> pa.RecordBatch:
    if taken := [name for name in METADATA if name in batch.schema.names]:
        raise SourceError(f"messages have a column {taken[0]!r} of their own; expected metadata=False, or another name")
    columns: tuple[pa.Array, ...] = (
        pa.array([_bytes(message.key()) for message in messages], pa.binary()),
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", "UTC")),
    )
    for name, column in zip(METADATA, columns, strict=True):
        batch = batch.append_column(name, column)
    return batch


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
