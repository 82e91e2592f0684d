"""A Kafka topic as a sink: rows are encoded by the workers, wait in files, and are sent at the commit.

See ``kafka_commits`` for why that is exactly-once. The files are Parquet with the columns ``key`` and ``value``.

Commits to a Kafka topic: one transaction has the messages of a commit and the record that it was made.

Kafka cannot resume a transaction that another process has prepared. So nothing is sent before the commit: the messages
wait in files, and one transaction has all messages of a commit and a record with its number, which goes to the
compacted topic ``fries-commits``. The next process that takes over first ends the transaction of the last one, by
which that one is fenced, and then reads the record: so it knows which commits were made.

>>> record = CommitRecord(3, 2, {"out-0-1": 7})
>>> record.holds(PartName("r1", "out", 0, 2, 7, "c0ffee00")), record.holds(PartName("r1", "out", 0, 2, 8, "c0ffee00"))
(True, False)
"""

from __future__ import annotations

import datetime
import posixpath
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.connectors.kafka_source import REACH_S, KafkaCluster, is_end, package, reason
from fries_nb.connectors.parquet_sink import PartWriter
from fries_nb.connectors.sink import RuntimeSink, WrittenColumns, of_user
from fries_nb.dataflow.columns import HeldBy, NotHeldError, converted_batch, held_columns
from fries_nb.errors import SinkError, SourceError, exception_text
from fries_nb.protocol.messages import WorkerId
from fries_nb.storage import manifest
from fries_nb.storage.durable import locate, see_durable
from fries_nb.storage.part_files import PartName, pending

COMMITS = "fries-commits"
"""The topic with the records of commits."""
TRANSACTION_MS = 900_000
"""Maximum duration of a transaction, which is the highest that brokers allow by default."""
ATTEMPTS = 5
"""Number of times that a transaction is tried that a broker makes us abort."""
WAIT_S = 60.0
"""Time in seconds that one step of a transaction may take."""

BY_KEY = -1
"""Instead of a partition: the one that the key chooses, or a random one."""

Messages = Callable[[], Iterator[tuple[bytes | None, bytes]]]
"""Makes the keys and values of messages; called anew if a transaction is tried again."""


class CommitRecord(msgspec.Struct, frozen=True):
    """The last commit of a run to a topic."""

    number: int = 0  # number of the commit
    incarnation: int = 0  # the newest incarnation of its parts
    serials: dict[str, int] = {}  # writer to the serial of its last part that was committed, of this incarnation

    def holds(self, part: PartName) -> bool:
        """Whether a part was committed; parts of earlier incarnations count as committed."""
        if part.incarnation != self.incarnation:
            return part.incarnation < self.incarnation
        return part.serial <= self.serials.get(_writer(part), 0)

    def after(self, number: int, parts: Iterable[PartName]) -> CommitRecord:
        """The record of the next commit."""
        parts = list(parts)
        incarnation = max(part.incarnation for part in parts)
        serials = dict(self.serials) if incarnation == self.incarnation else {}
        for part in parts:
            serials[_writer(part)] = max(part.serial, serials.get(_writer(part), 0))
        return CommitRecord(number, incarnation, serials)


class TransactionalTopic:
    """A topic to which one run commits.

    Raises:
        SinkError: no broker answers, there is no such topic, or the records cannot be read.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, name: str) -> None:
        self._topic = topic
        self._said = f"topic {topic!r} of {cluster.servers}"
        self._name = name  # name of the run and its sink, in the id of transactions and as the key of records
        cluster.partitions(topic, SinkError)
        self._producer = cluster.producer(
            transactional_id=f"fries-{name}", transaction_timeout_ms=TRANSACTION_MS, partitioner="murmur2_random",
            linger_ms=1,
        )  # fmt: skip
        try:
            _make_commits(cluster)
            self._producer.init_transactions(WAIT_S)
            self.record = _last_record(cluster, name)  # the last commit
        except (package().KafkaException, SourceError) as error:
            raise SinkError(f"cannot use {self._said} as a sink: {reason(error)}") from error

    def commit(self, record: CommitRecord, messages: Messages) -> None:
        """Commit messages and the record of them, all or none."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._transact(record, messages)
            except package().KafkaException as error:
                self._abort(self._cause(error.args[0]), record.number, attempt)
            else:
                self.record = record
                return

    def _transact(self, record: CommitRecord, messages: Messages) -> None:
        self._producer.begin_transaction()
        self._send(self._topic, messages())
        self._send(COMMITS, [(self._name.encode(), msgspec.json.encode(record))], partition=0)
        left_s, deadline = WAIT_S, time.monotonic() + WAIT_S
        while True:
            try:
                self._producer.commit_transaction(left_s)
            except package().KafkaException as error:
                if not error.args[0].retriable():
                    raise
                left_s = deadline - time.monotonic()
                if left_s <= 0:  # the client takes a negative number for no limit
                    raise SinkError(
                        f"commit {record.number} to {self._said} was not confirmed within {WAIT_S:g} s: "
                        f"{reason(error)}; whether it was made is known once the run is resumed"
                    ) from error
            else:
                return

    def _send(self, topic: str, messages: Iterable[tuple[bytes | None, bytes]], partition: int = BY_KEY) -> None:
        send = self._producer.produce
        for key, value in messages:
            while True:
                try:
                    send(topic, value, key, partition)  # by keyword it takes twice as long
                    break
                except BufferError:  # the client's queue is full
                    self._producer.poll(0.1)

    def _cause(self, error: Any) -> Any:
        """Why the transaction has to be aborted, where a message was refused for the client's state alone."""
        if error.name() != "_STATE":
            return error
        try:
            self._producer.begin_transaction()  # which answers with what has put the client into this state
        except package().KafkaException as refused:
            return refused.args[0]
        return error

    def _abort(self, error: Any, number: int, attempt: int) -> None:
        """Abort the transaction, so that it can be tried again."""
        failed = f"commit {number} to {self._said} failed: {error.str()}"
        if error.name() == "_FENCED":
            raise SinkError(f"{failed}; the run was resumed by another process, which commits from now on")
        if error.fatal():
            raise SinkError(failed)
        try:
            self._producer.abort_transaction(WAIT_S)
        except package().KafkaException as unaborted:
            raise SinkError(f"{failed}; nor could it be aborted: {reason(unaborted)}") from unaborted
        if attempt == ATTEMPTS or not (error.txn_requires_abort() or error.name() == "_STATE"):
            raise SinkError(failed)


def _writer(part: PartName) -> str:
    return f"{part.sink}-{part.worker}-{part.epoch}"


def _make_commits(cluster: KafkaCluster) -> None:
    """Create the topic with the records, unless it is there."""
    from confluent_kafka.admin import NewTopic

    admin = cluster.admin()
    if COMMITS in admin.list_topics(timeout=REACH_S).topics:
        return
    made = admin.create_topics([NewTopic(COMMITS, 1, config={"cleanup.policy": "compact"})], request_timeout=WAIT_S)
    try:
        made[COMMITS].result()
    except package().KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise


def _last_record(cluster: KafkaCluster, name: str) -> CommitRecord:
    """The last record under a name, of all that were written before now."""
    record, first, end = CommitRecord(), *_bounds(cluster)
    consumer = cluster.consumer("fries-commits")
    try:
        consumer.assign([package().TopicPartition(COMMITS, 0, first)])
        deadline = time.monotonic() + WAIT_S
        while first < end:
            if time.monotonic() > deadline:
                raise SinkError(
                    f"the topic {COMMITS!r} of {cluster.servers} cannot be read to its end within {WAIT_S:g} s, since "
                    "a transaction of another run is open; try again when that run has committed or its time is over"
                )
            for message in consumer.consume(1_000, 0.02):
                if is_end(message):
                    first = max(first, message.offset())
                    continue
                first = message.offset() + 1
                if message.key() == name.encode() and (value := message.value()) is not None:
                    record = msgspec.json.decode(value, type=CommitRecord)
    finally:
        consumer.close()
    return record


def _bounds(cluster: KafkaCluster) -> tuple[int, int]:
    """The first offset of the records, and the one behind the last, though a transaction before that may be open."""
    from confluent_kafka.admin import OffsetSpec

    partition, admin = package().TopicPartition(COMMITS, 0), cluster.admin()
    every = package().IsolationLevel.READ_UNCOMMITTED

    # One after the other: while two were open, the client has crashed its process once; why is not known.
    first, end = (
        admin.list_offsets({partition: spec}, isolation_level=every, request_timeout=WAIT_S)[partition].result().offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    return first, end


Encode = Callable[[dict[str, Any]], bytes]
MESSAGE = pa.schema({"key": pa.binary(), "value": pa.binary()})
"""Columns of the files in which messages wait."""


class KafkaSink(RuntimeSink):
    """The messages of a topic; see ``Sink``."""

    def __init__(
        self,
        name: str,
        cluster: KafkaCluster,
        topic: str,
        path: str,
        key: str | None = None,
        encode: Encode | None = None,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._topic = topic
        self._path = path  # the directory in which messages wait, local or a URI that the driver and all hosts reach
        # ``encode``: from a row to its message; ``None`` for JSON
        # ``key``: the column with the keys of messages; ``None`` for no keys
        self._encoder = MessageEncoder(name, key, encode)
        self._run = ""  # until it is claimed
        self._target: TransactionalTopic | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_target": None}  # hosts do not commit

    def claim(self, flow: str, run: str) -> None:
        """Take over the commits of this run from its earlier processes; see ``Sink``."""
        self._run = run
        self._target = TransactionalTopic(self._cluster, self._topic, f"{flow}/{run}/{self._name}")

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> KafkaWriter:
        """Open a writer of files with messages; see ``Sink``."""
        return KafkaWriter(PartWriter(self._path, worker, incarnation, self._run, epoch), self._encoder)

    def prepare(self, parts: Sequence[str]) -> None:
        """Check that the messages are on disk; see ``Sink``."""
        self._see_there([part for part in map(PartName.read, parts) if not self._claimed.record.holds(part)])

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Send the messages in one transaction, then delete the files; see ``Sink``."""
        if not parts:
            return
        named = [PartName.read(part) for part in parts]
        record = self._claimed.record
        if number > record.number:
            self._check_new(named)
            self._see_there(named)
            self._claimed.commit(record.after(number, named), lambda: self._messages(named))
        elif not all(map(record.holds, named)):
            raise SinkError(f"epoch {number} of run {self._run} is committed in topic {self._topic!r} with other files")
        self._delete(named)

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Commit what the checkpoint records; see ``Sink``. Messages cannot be taken back."""
        if (last := self._claimed.record.number) > number:
            raise SinkError(
                f"the topic {self._topic!r} has the messages of epoch {last} of run {self._run}, whose checkpoint is "
                f"damaged; going on from epoch {number} would add them again, and Kafka takes no message back: start a "
                "new run behind them, with start= a time"
            )
        self.commit(number, parts)

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """Delete the messages of the run that were not committed; see ``Sink``."""
        manifest.sweep(self._path, self._run, incarnation, frozenset(spared))

    @property
    def _claimed(self) -> TransactionalTopic:
        assert self._target is not None, "a sink is claimed before it commits"
        return self._target

    def _check_new(self, parts: Sequence[PartName]) -> None:
        record = self._claimed.record
        granted = max(record.incarnation, *(part.incarnation for part in parts))
        for part in parts:
            if part.incarnation < granted:
                raise SinkError(
                    f"{part} is of incarnation {part.incarnation}, and topic {self._topic!r} is at {granted}: "
                    "a host of an attempt that is over handed it in"
                )
            if record.holds(part):
                raise SinkError(f"{part} is committed in topic {self._topic!r} by epoch {record.number} or before")

    def _file(self, part: PartName) -> tuple[fs.FileSystem, str]:
        filesystem, directory = locate(pending(self._path))
        return filesystem, posixpath.join(directory, str(part))

    def _see_there(self, parts: Sequence[PartName]) -> None:
        """Check that parts are on disk, durably."""
        for part in parts:
            filesystem, file = self._file(part)
            if filesystem.get_file_info(file).type != fs.FileType.File:
                raise SinkError(f"the part {file} has gone; its messages cannot be sent")
            see_durable(filesystem, file)
        if parts:
            see_durable(filesystem, posixpath.dirname(file))

    def _messages(self, parts: Sequence[PartName]) -> Iterator[tuple[bytes | None, bytes]]:
        for part in parts:
            filesystem, file = self._file(part)
            with filesystem.open_input_file(file) as stream:
                for batch in pq.ParquetFile(stream).iter_batches():
                    yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)

    def _delete(self, parts: Sequence[PartName]) -> None:
        for filesystem, file in map(self._file, parts):
            if filesystem.get_file_info(file).type == fs.FileType.File:
                filesystem.delete_file(file)


class MessageEncoder:
    """Encodes rows."""

    def __init__(self, name: str, key: str | None, encode: Encode | None) -> None:
        self._name = name  # name of the sink, for the message of an error
        self._key = key  # the column with the keys; ``None`` for no keys
        self._encode = encode  # from a row to its message; ``None`` for JSON

    def encoded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of rows."""
        if self._key is not None and self._key not in rows.schema.names:
            raise SinkError(f"sink {self._name!r} has key={self._key!r}, and rows have {', '.join(rows.schema.names)}")
        keys: list[bytes | None] = [None] * rows.num_rows
        encode, values = self._encode or msgspec.json.Encoder(enc_hook=_plain).encode, []
        try:
            if self._encode is None:
                rows = converted_batch(rows, held_columns(rows.schema, HeldBy.MESSAGES))
            if self._key is not None:
                keys = [_key(value) for value in rows.column(self._key).to_pylist()]
            came = rows.to_pylist()
        except NotHeldError as error:
            raise SinkError(f"sink {self._name!r} got {error} in an operator") from None
        except (pa.ArrowException, ValueError, OverflowError) as error:  # as a time behind the year 9999
            raise SinkError(f"sink {self._name!r} got rows without Python values: {exception_text(error)}") from error
        for row in came:
            try:
                values.append(encode(row))
            except Exception as error:
                text = str(row) if len(str(row)) <= 200 else f"{str(row)[:200].rpartition(', ')[0]}, ..."
                refused = SinkError(f"sink {self._name!r} cannot encode {text}: {exception_text(error)}")
                refused.mentions = row
                raise refused from error
        if others := [value for value in values if not isinstance(value, bytes)]:
            raise SinkError(f"encode= of sink {self._name!r} gave {others[0]!r}; expected bytes")
        return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=MESSAGE)


class KafkaWriter:
    """Writes the messages of one worker to files; see ``SinkWriter``."""

    def __init__(self, parts: PartWriter, encoder: MessageEncoder) -> None:
        self._columns = WrittenColumns()
        self._parts = parts
        self._encoder = encoder

    @property
    def columns(self) -> pa.Schema:
        """All columns of rows written so far."""
        return self._columns.schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the messages of rows to the current part."""
        if not batch.num_rows:
            return
        batch = of_user(batch)
        self._columns.note(batch.schema)
        self._parts.write(self._encoder.encoded(batch))

    def close_part(self) -> tuple[str, ...]:
        """Close the parts with all messages since the last call."""
        return self._parts.close_part()


def _key(value: Any) -> bytes | None:
    """The key of a message: bytes and text as they are, other values as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """A value that JSON has no form for."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
