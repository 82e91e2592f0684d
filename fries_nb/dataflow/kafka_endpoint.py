"""The description of a Kafka topic, as a source or as a sink; ``connectors`` reads and writes what it describes.

>>> kafka("broker:9092", "payments").topic
'payments'
>>> kafka("broker:9092", "payments", start="lastest")
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: kafka got start='lastest'; expected 'earliest', 'latest' or a datetime; did ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from fries_nb.errors import DataflowError, SinkError, SourceError, close_match

STARTS = ("earliest", "latest")
OF_SOURCES = ("start", "until", "schema", "decode", "metadata", "on_error")
OF_SINKS = ("key", "encode")
OURS = {
    "group.id", "isolation.level", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof",
    "auto.offset.reset", "transactional.id", "enable.idempotence", "bootstrap.servers",
}  # fmt: skip
"""Settings of librdkafka on which exactly-once depends."""


@dataclass(frozen=True)
class Kafka:
    """A Kafka topic; made by ``kafka``.

    Attributes:
        servers: addresses of brokers, ``host:port``, separated by commas.
        topic: name of the topic.
        start: where a new run begins to read: ``earliest``, ``latest``, or milliseconds since the Unix epoch.
        until: ``latest`` to end at what the topic holds when the run starts; ``None`` for an endless source.
        schema: the columns of the messages; ``None`` to infer them.
        decode: from the bytes of a message to a row; ``None`` for JSON.
        metadata: whether rows get columns with the key, the partition, the offset and the time of their message.
        on_error: ``fail``, or the sink that receives messages that do not decode.
        key: the column with the key of a row's message; ``None`` for no key.
        encode: from a row to the bytes of its message; ``None`` for JSON.
        config: further settings of librdkafka.
    """

    servers: str
    topic: str
    start: str | int = "earliest"
    until: str | None = None
    schema: pa.Schema | None = None
    decode: Callable[[bytes], Mapping[str, Any]] | None = None
    metadata: bool = False
    on_error: Any = "fail"
    key: str | None = None
    encode: Callable[[dict[str, Any]], bytes] | None = None
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)  # may hold a password

    def __str__(self) -> str:
        return f"topic {self.topic!r} of {self.servers}"


def kafka(
    servers: str,
    topic: str,
    *,
    start: str | datetime = "earliest",
    until: str | None = None,
    schema: pa.Schema | None = None,
    decode: Callable[[bytes], Mapping[str, Any]] | None = None,
    metadata: bool = False,
    on_error: Any = "fail",
    key: str | None = None,
    encode: Callable[[dict[str, Any]], bytes] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Kafka:
    """A Kafka topic as a source or as a sink (extra ``kafka``).

    As a source: each partition is a split, so a topic needs at least as many partitions as the source has workers. Only
    committed messages are read. A run's first start decides where it begins; from then on checkpoints hold the offsets,
    and no consumer group is used. Partitions that are added to the topic later are found within a minute, and read from
    their first message on.

    As a sink: the rows of a checkpoint become messages in one transaction, which also writes the number of the commit
    to the compacted topic ``fries-commits``, so that consumers with ``isolation.level=read_committed`` get each row
    exactly once, whatever dies when. Rows wait in files beside the checkpoint until they are committed; without
    checkpoints that is at each ``commit_interval_s``.

    Args:
        servers: addresses of brokers, ``host:port``, separated by commas.
        topic: name of the topic, which must exist.
        start: of a source, where a new run begins: ``earliest``, ``latest``, or a time, from whose first message on. A
            datetime without a time zone is in UTC.
        until: of a source, ``latest`` to end with the last message that the topic holds when the run starts; by default
            it is endless.
        schema: of a source, the columns of the messages; others are ignored, and missing ones are null. By default
            columns are inferred from up to 1,000 messages, and further columns and integers that become floats are
            accepted as they come. Text remains text, so columns of times need a schema.
        decode: of a source, a function from the bytes of a message to a row (a dict), for Avro, Protobuf and others;
            by default a message is a JSON object.
        metadata: of a source, whether each row also gets ``kafka_key`` (bytes), ``kafka_partition``, ``kafka_offset``
            and ``kafka_timestamp`` (to the millisecond, in UTC), which may be the ``time=`` of the source.
        on_error: of a source, what happens if a message does not decode: ``fail``, or a sink such as ``fn.memory()``
            that receives it as a dead letter; see ``run.dead_letters``.
        key: of a sink, the column whose values become the keys of messages; rows of one key go to one partition, the
            one that Java's clients choose, too. By default partitions are chosen at random.
        encode: of a sink, a function from a row (a dict) to the bytes of its message; by default JSON.
        config: further settings of librdkafka by name, as ``{"security.protocol": "SASL_SSL", ...}``.

    Returns:
        A description for ``Dataflow.source`` or ``Stream.sink``.

    Raises:
        SourceError: an argument of a source is not of its kind.
        SinkError: an argument of a sink is not of its kind.
    """
    for name, value in (("servers", servers), ("topic", topic)):
        if not isinstance(value, str) or not value.strip():
            raise SourceError(f"kafka got {name}={value!r}; expected kafka('host:9092', 'topic')")
    if until not in (None, "latest"):
        raise SourceError(f"kafka got until={until!r}; expected 'latest', or None for an endless source")
    if schema is not None and not isinstance(schema, pa.Schema):
        raise SourceError(f"kafka got schema={schema!r}; expected a pyarrow.Schema")
    if decode is not None and not callable(decode):
        raise SourceError(f"kafka got decode={decode!r}; expected a function from the bytes of a message to a dict")
    if key is not None and (not isinstance(key, str) or not key):
        raise SinkError(f"kafka got key={key!r}; expected the name of one column")
    if encode is not None and not callable(encode):
        raise SinkError(f"kafka got encode={encode!r}; expected a function from a row to the bytes of its message")
    return Kafka(
        servers, topic, _checked_start(start), until, schema, decode, bool(metadata), on_error, key, encode,
        _checked_config(config or {}),
    )  # fmt: skip


def check_role(what: str, given: Kafka, role: str) -> None:
    """Refuse arguments that are of the other role.

    Args:
        what: where it was given, the beginning of the message of an error.
        given: the description.
        role: ``source`` or ``sink``.

    Raises:
        DataflowError: an argument is set that has no effect there.
    """
    others, other = (OF_SINKS, "sink") if role == "source" else (OF_SOURCES, "source")
    plain = Kafka(given.servers, given.topic)
    for argument in others:
        if getattr(given, argument) != getattr(plain, argument):
            raise DataflowError(f"{what}kafka(..., {argument}=...), which is for a {other}; leave it out")


def _checked_start(start: object) -> str | int:
    """``earliest``, ``latest``, or milliseconds since the Unix epoch."""
    if isinstance(start, datetime):
        return round((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() * 1_000)
    if isinstance(start, str) and start in STARTS:
        return start
    likely = close_match(start, STARTS) if isinstance(start, str) else ""
    raise SourceError(f"kafka got start={start!r}; expected 'earliest', 'latest' or a datetime{likely}")


def _checked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    if ours := sorted(OURS & config.keys()):
        raise SourceError(f"kafka got config={{{ours[0]!r}: ...}}, which fries_nb sets itself; leave it out")
    return dict(config)
