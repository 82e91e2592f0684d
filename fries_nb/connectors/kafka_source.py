"""A Kafka topic as a source, and the clients of a cluster. Needs the extra ``kafka``.

Partitions are splits, offsets positions. A worker reads all of its partitions with one consumer, to which they are
assigned at the offsets of their positions; no consumer group is used. A split whose turn it is takes what the consumer
has fetched for its partitions. Offsets have gaps, of transactions and of compaction, so a position has the number of
rows before it and the next offsets, and the columns that messages had which those of the plan lack.

Partitions that are added to the topic while it is read are dealt to the splits in turn, and read from their first
message on; the offsets in them follow the others in a position. The client counts partitions every ten seconds.

If a topic has more partitions than a source may have splits, a split has several. Of these it reads what the topic held
at the plan partition by partition, so that these rows have the same numbers in every attempt, and then what comes.

Decodes messages to rows with columns of stable types, and says which messages are no rows.

JSON is parsed by Arrow as long as messages have the known columns. A batch with a new column, a wider value or a broken
message is parsed object by object; if it cannot be made into columns it is halved, until the broken ones are alone.

>>> decoder = MessageDecoder()
>>> batch, failures = decoder.batch([b'{"n": 1}', b'{"n": ', b'{"n": 2.5, "name": "x"}'])
>>> batch.to_pylist()
[{'n': 1.0, 'name': None}, {'n': 2.5, 'name': 'x'}]
>>> failures
{1: 'Input data was truncated'}
>>> decoder.batch([b'{"n": 3}', b'{"n": "many"}'])[1]
{1: "column 'n' was double and is now string; a column keeps its type, ..."}

The Kafka messages that the consumer of one worker has fetched, and the number of partitions that it knows.
"""

from __future__ import annotations

import io
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import json as arrow_json

from fries_nb.connectors.source import Position, RuntimeReader, RuntimeSource, Split, Undecoded
from fries_nb.dataflow.columns import HIDDEN, clash
from fries_nb.errors import ColumnError, FriesError, SourceError, exception_text, unknown
from fries_nb.operators.conversion import NOT_ARROW, to_arrow
from fries_nb.storage.part_files import unified

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer


REACH_S = 8.0
"""Time in seconds in which a broker must answer before anything is started."""
_QUIET = {"log_level": 0}  # librdkafka would write to stderr, for each attempt to connect
_READS = {
    "enable.auto.commit": False, "enable.auto.offset.store": False, "isolation.level": "read_committed",
    "auto.offset.reset": "error", "enable.partition.eof": True, "allow.auto.create.topics": False,
}  # fmt: skip


COUNTS = {"statistics.interval.ms": 10_000, "topic.metadata.refresh.interval.ms": 30_000}
"""How often the client counts the partitions of a topic, and asks the brokers for them."""


@dataclass(frozen=True)
class KafkaCluster:
    """A cluster."""

    servers: str  # addresses of brokers
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)  # further settings of librdkafka

    def consumer(
        self, group: str, failures: list[str] | None = None, counted: Callable[[str], None] | None = None
    ) -> Consumer:
        """A consumer to which partitions are assigned by hand."""
        counts = {} if counted is None else {**COUNTS, "stats_cb": counted}
        return package().Consumer({**counts, **self._settings(failures), **_READS, "group.id": group})

    def producer(self, **settings: Any) -> Producer:
        """A producer."""
        given = {name.replace("_", "."): value for name, value in settings.items()}
        return package().Producer({**self._settings(), **given})

    def admin(self) -> Any:
        """A client that creates topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient(self._settings())

    def partitions(self, topic: str, kind: type[FriesError] = SourceError) -> list[int]:
        """The partitions of a topic."""
        failures: list[str] = []
        consumer = self.consumer("fries-topics", failures)
        try:
            topics = consumer.list_topics(timeout=REACH_S).topics
        except package().KafkaException as error:
            consumer.poll(0)  # reports the failures
            reasons = "; ".join(dict.fromkeys(failures[-3:])) or reason(error)
            raise kind(
                f"no broker of {self.servers!r} answers: {reasons}; expected the addresses of Kafka brokers, host:port"
            ) from error
        finally:
            consumer.close()
        if topic not in topics:
            known = [name for name in topics if not name.startswith("__")]
            there = unknown("topic", topic, known) if known else f"no topic {topic!r}, nor any other"
            raise kind(f"{self.servers} has {there}")
        return sorted(topics[topic].partitions)

    def _settings(self, failures: list[str] | None = None) -> dict[str, Any]:
        def failed(error: Any) -> None:
            if failures is not None:
                failures.append(error.str())

        return {**_QUIET, **self.config, "bootstrap.servers": self.servers, "error_cb": failed}


def package() -> Any:
    """The package confluent_kafka."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise SourceError("kafka(...) needs the package confluent-kafka: pip install 'fries_nb[kafka]'") from error
    return confluent_kafka


def reason(error: BaseException) -> str:
    """What a KafkaException says, in one line."""
    said = error.args[0] if error.args else error
    return str(said.str() if hasattr(said, "str") else said).splitlines()[0]


def is_end(message: Message) -> bool:
    """Whether it is no message, but says that all messages of its partition were read."""
    # Connections that are lost are made again by the client, and are no errors here.
    error = message.error()
    if error is None:
        return False
    if error.name() == "_PARTITION_EOF":
        return True
    where = f"partition {message.partition()} of topic {message.topic()!r}"
    if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        raise SourceError(
            f"{where} no longer holds the next message: {error.str()}; the topic keeps messages for a shorter time "
            "than the source was behind"
        )
    raise SourceError(f"{where} cannot be read: {error.str()}")


Decode = Callable[[bytes], Mapping[str, Any]]
Failures = dict[int, str]
"""Index of a message to why it is no row."""


_SHORT = 6
"""Shorter ones may be objects without fields, which Arrow would make rows of nulls."""


class UndecodedError(Exception):
    """A message is no row, or several have no common columns."""


class MessageDecoder:
    """Decodes messages."""

    def __init__(
        self, decode: Decode | None = None, schema: pa.Schema | None = None, adds_columns: bool = True
    ) -> None:
        # ``schema``: the columns of all rows; ``None`` to infer them
        self.columns = pa.schema([]) if schema is None else schema  # the columns so far; with ``schema`` these
        self._decode = decode  # from a message to its row; ``None`` for JSON
        self._is_fixed = schema is not None
        self._adds_columns = adds_columns  # whether messages may add to columns that are known

    def learn(self, columns: bytes, of: str) -> None:
        """Go on with columns that others have learned, as an earlier attempt; ``of`` says which, for an error."""
        learned = pa.ipc.read_schema(pa.py_buffer(columns))
        try:
            self.columns = unified(self.columns, learned)
        except ColumnError as error:
            refused = clash(self.columns, learned)
            assert refused is not None, "they do not go together"
            raise SourceError(
                f"{of} has learned column {error.column!r} as {refused[2]}, and another one read beside it as "
                f"{refused[1]}; expected one type, or schema= with a type that holds the values of all messages"
            ) from error

    def batch(self, values: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Failures]:
        """Decode messages; returns the rows, and why the other messages are none."""
        failures: Failures = {}
        batches = self._halved(values, 0, failures)
        if len(batches) == 1:
            return batches[0], failures
        table = pa.concat_tables(
            [pa.Table.from_batches([batch]) for batch in batches] or [self.columns.empty_table()],
            promote_options="permissive",
        )
        return table.combine_chunks().to_batches()[0] if table.num_rows else _empty(self.columns), failures

    def _halved(self, values: Sequence[bytes | None], first: int, failures: Failures) -> list[pa.RecordBatch]:
        if not values:
            return []
        try:
            return [self._rows(values)]
        except UndecodedError as error:
            if len(values) == 1:
                failures[first] = str(error)
                return []
        half = len(values) // 2
        return self._halved(values[:half], first, failures) + self._halved(values[half:], first + half, failures)

    def _rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """All messages as rows."""
        if None in values:
            raise UndecodedError("it has no value")
        if self._decode is None and self.columns.names and (parsed := self._parsed(values)) is not None:  # type: ignore[arg-type]
            return parsed
        rows = [self._row(value) for value in values]  # type: ignore[arg-type]
        if self._is_fixed and self._decode is None:
            parsed = self._parsed([msgspec.json.encode(row) for row in rows])
            if parsed is None:
                raise UndecodedError(self._misfit(rows))
            return parsed
        return self._with_columns(rows)

    def _parsed(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        """The rows of JSON objects with known columns, by Arrow; ``None`` if they are something else."""
        # Each begins an object, so there are as many rows as messages only if each has one.
        text = b"\n".join(values)
        if any(value[:1] != b"{" or len(value) < _SHORT for value in values):
            return None
        others = "ignore" if self._is_fixed else "error"
        parse = arrow_json.ParseOptions(explicit_schema=self.columns, unexpected_field_behavior=others)
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = arrow_json.read_json(io.BytesIO(text), read, parse)
        except NOT_ARROW:
            return None
        if table.num_rows != len(values):
            return None
        return table.combine_chunks().to_batches()[0]

    def _row(self, value: bytes) -> dict[str, Any]:
        try:
            row = (self._decode or msgspec.json.decode)(value)
        except msgspec.DecodeError as error:
            raise UndecodedError(str(error)) from error
        except Exception as error:
            raise UndecodedError(exception_text(error)) from error
        if not isinstance(row, Mapping):
            what = "is JSON, but not an object" if self._decode is None else "was decoded, but not to a dict"
            raise UndecodedError(f"it {what}: {str(row)[:80]}")
        if not self._is_fixed and not row:
            raise UndecodedError("it has no columns")
        if reserved := row.keys() & set(HIDDEN):
            raise UndecodedError(f"it has a column {min(reserved)!r}, a name of the runtime's own")
        return dict(row)

    def _with_columns(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Rows as columns of the known types, or of wider ones if these are inferred."""
        known = {field.name: field.type for field in self.columns}
        try:
            if self._is_fixed:
                return pa.record_batch(
                    {name: pa.array([row.get(name) for row in rows], kind) for name, kind in known.items()},
                    schema=self.columns,
                )
            names = known | dict.fromkeys(chain.from_iterable(rows))
            arrays = {name: to_arrow([row.get(name) for row in rows], known.get(name)) for name in names}
            batch = pa.record_batch(arrays)
            wider = unified(self.columns, batch.schema)
            if not self._adds_columns and self.columns.names and len(wider) > len(self.columns):
                raise UndecodedError(
                    f"it has a column {wider.names[len(self.columns)]!r}, which messages before lack; expected the "
                    "same columns by new_columns='refuse': say new_columns='add', or schema= with the columns to read"
                )
            batch = pa.record_batch([batch.column(field.name).cast(field.type) for field in wider], schema=wider)
        except ColumnError as error:
            raise UndecodedError(str(error)) from error
        except NOT_ARROW as error:
            raise UndecodedError(str(error).splitlines()[0]) from error
        self.columns = wider
        return batch

    def _misfit(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Why an object has not the columns of the schema."""
        for column in self.columns:
            for row in rows:
                alone = MessageDecoder(None, pa.schema([column]))
                name = column.name
                if name in row and alone._parsed([msgspec.json.encode({name: row[name]})]) is None:
                    return f"its {name!r} is {row[name]!r}; expected {column.type}"
        return f"it does not fit the schema {self.columns}"


def _empty(columns: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=columns)


class PartitionCount:
    """The number of partitions of a topic, from a client's statistics.

    >>> count = PartitionCount("t")
    >>> count('{"topics": {"t": {"partitions": {"-1": {}, "0": {}, "1": {}}}}}')
    >>> count.known
    2
    """

    def __init__(self, topic: str) -> None:
        self.known = 0  # the number; it does not decrease
        self._topic = topic

    def __call__(self, statistics: str) -> None:
        """Take in what the client says, as JSON."""
        found = msgspec.json.decode(statistics)["topics"].get(self._topic, {}).get("partitions", {})
        self.known = max([self.known, *(int(number) + 1 for number in found)])


class FetchedMessages:
    """What the consumer of one worker has fetched and its splits have not read."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self._count = PartitionCount(topic)
        self._consumer = cluster.consumer("fries-source", counted=self._count)
        self._topic = topic
        self._messages: dict[int, deque[Message]] = {}
        self._ends: dict[int, int] = {}

    @property
    def partitions(self) -> int:
        """Number of the topic's partitions, as far as the client has counted them; 0 before."""
        return self._count.known

    def begin(self, partition: int, offset: int) -> None:
        """Fetch a partition from an offset on."""
        self.end(partition)
        self._consumer.incremental_assign([package().TopicPartition(self._topic, partition, offset)])
        self._messages[partition] = deque()

    def end(self, partition: int) -> None:
        """Fetch a partition no more."""
        if self._messages.pop(partition, None) is not None:
            self._ends.pop(partition, None)
            self._consumer.incremental_unassign([package().TopicPartition(self._topic, partition)])

    def is_read(self, partition: int, end: int) -> bool:
        """Whether all messages before an offset were taken, though there may be none at the last offsets."""
        return not self._messages[partition] and self._ends.get(partition, -1) >= end

    def behind(self, partition: int, offset: int, now_ns: int) -> tuple[int | None, int | None]:
        """Number of messages from an offset on, as far as the consumer knows, and how long the first has waited."""
        known = self._consumer.get_watermark_offsets(package().TopicPartition(self._topic, partition), cached=True)
        rows = max(0, known[1] - offset) if known is not None and known[1] >= 0 else None
        waiting = self._messages[partition]
        since = now_ns - waiting[0].timestamp()[1] * 1_000_000 if waiting else None
        return rows, since

    def take(self, partition: int, limit: int) -> list[Message]:
        """Take the next messages of a partition; those that have come, without waiting."""
        waiting = self._messages[partition]
        if not waiting:
            for message in self._consumer.consume(limit, 0):
                partition = message.partition()
                if partition not in self._messages:
                    continue
                if message.error() is None or not is_end(message):
                    self._messages[partition].append(message)
                else:
                    self._ends[partition] = message.offset()
        return [waiting.popleft() for _ in range(min(limit, len(waiting)))]


SAMPLE = 1_000
"""Maximum number of messages from which the columns are inferred before the run."""
METADATA = ("kafka_key", "kafka_partition", "kafka_offset", "kafka_timestamp")
LETTER_BYTES = 2_000
"""Maximum number of bytes of a message that a dead letter shows."""


@dataclass(frozen=True)
class KafkaTopic:
    """What is read, and how."""

    cluster: KafkaCluster
    name: str  # name of the topic
    start: str | int = "earliest"  # ``earliest``, ``latest``, or milliseconds since the Unix epoch
    ends: bool = False  # whether the source ends with the last message that the topic holds at the plan
    schema: pa.Schema | None = None  # the columns of messages; ``None`` to infer them
    decode: Decode | None = None  # from a message to its row; ``None`` for JSON
    metadata: bool = False  # whether rows get the columns ``METADATA``
    letters: bool = False  # whether messages that are no rows become dead letters, instead of an error
    adds_columns: bool = True  # whether messages may have columns that those before lack


class KafkaSource(RuntimeSource):
    """The messages of a topic; see ``Source``."""

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
        """Check that the topic can be reached, as a resumed run does."""
        self._topic.cluster.partitions(self._topic.name)

    def open(self, split: Split, position: Position) -> KafkaReader:
        """Begin to fetch the messages of a split; see ``Source``."""
        topic = self._topic
        columns, parts, added, step = split.content
        place = _KafkaPlace.of(position)
        if self._fetched is None:
            self._fetched = FetchedMessages(topic.cluster, topic.name)
        if self._decoder is None:
            self._decoder = MessageDecoder(topic.decode, topic.schema, topic.adds_columns)
            if topic.schema is None and columns is not None:
                self._decoder.columns = pa.ipc.read_schema(pa.py_buffer(columns))
        if topic.schema is None and place.columns is not None:
            self._decoder.learn(place.columns, f"{self!r}, split {split.number}")
        spans = [PartitionSpan(*part) for part in parts]
        numbers = itertools.count(added, step)
        return KafkaReader(topic, spans, position.row, place, self._fetched, self._decoder, columns, numbers)


class PartitionSpan(NamedTuple):
    """A partition, the offset from which it is read, and the one behind the last message at the plan."""

    partition: int
    first: int
    end: int


class _KafkaPlace(NamedTuple):
    """What a position has beside the number of its row."""

    offsets: list[int] | None  # of the next messages; ``None`` at the beginning
    columns: bytes | None = None  # those that were learned from messages, as a serialized Arrow schema

    @classmethod
    def of(cls, position: Position) -> _KafkaPlace:
        """The place of a position: offsets alone, if no more was known than the split has."""
        at = position.at
        return cls(*at) if at and isinstance(at[0], list) else cls(at)


class KafkaReader(RuntimeReader):
    """Reads the partitions of one split; see ``SplitReader``."""

    def __init__(
        self,
        topic: KafkaTopic,
        parts: Sequence[PartitionSpan],
        row: int,
        place: _KafkaPlace,
        fetched: FetchedMessages,
        decoder: MessageDecoder,
        columns: bytes | None,
        added: Iterator[int],
    ) -> None:
        self.undecoded: list[Undecoded] = []  # the messages that were no rows; taken by the caller
        self._topic = topic
        self._fetched = fetched
        self._decoder = decoder
        offsets = [part.first for part in parts] if place.offsets is None else place.offsets
        # ``columns``: those of the split, which positions need not have
        self._packed_columns = decoder.columns, place.columns if place.columns != columns else None
        self._split_columns = columns
        known = itertools.islice(added, len(offsets) - len(parts))
        parts = [*parts, *(PartitionSpan(number, 0, 0) for number in known)]
        # ``added``: the numbers of partitions of the split that may be added to the topic
        self._added, self._next = added, next(added)
        self._parts = dict(enumerate(parts))
        self._offsets = list(offsets)
        self._turn = 0
        self.position = self._at(row)  # position of the next row; at first of the first one to read
        for index, part in enumerate(parts):
            fetched.begin(part.partition, offsets[index])
            self._end_if_read(index)
        if not self._parts:
            self.position = None

    @property
    def place(self) -> str:
        """The partitions with their next offsets."""
        return ", ".join(
            f"partition {part.partition}, offset {self._offsets[index]:,}" for index, part in self._parts.items()
        )

    def behind(self, now_ns: int) -> tuple[int | None, int | None]:
        """The messages that were not read."""
        found = [
            self._fetched.behind(part.partition, self._offsets[index], now_ns) for index, part in self._parts.items()
        ]
        rows, since = [one for one, _ in found if one is not None], [one for _, one in found if one is not None]
        return sum(rows) if rows else None, max(since, default=None)

    def take_undecoded(self) -> list[Undecoded]:
        """The messages that were no rows."""
        taken, self.undecoded = self.undecoded, []
        return taken

    def close(self) -> None:
        """Fetch the partitions no more."""
        for part in self._parts.values():
            self._fetched.end(part.partition)
        self._parts = {}

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """Read the next rows, of one partition; see ``SplitReader``."""
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
        self.position = self._at(row) if self._parts else None
        return batch

    def _at(self, row: int) -> Position:
        """A position: with the columns, if others than those of the split, since they decide what may come."""
        schema, packed = self._packed_columns
        if self._decoder.columns is not schema:
            now = self._decoder.columns.serialize().to_pybytes()
            packed = now if now != self._split_columns else None
            self._packed_columns = self._decoder.columns, packed
        return Position(row, list(self._offsets) if packed is None else [list(self._offsets), packed])

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
        offsets = {found_offset.partition: found_offset.offset for found_offset in found}
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
