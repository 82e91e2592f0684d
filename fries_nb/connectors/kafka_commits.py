"""Commits to a Kafka topic: one transaction has the messages of a commit and the record that it was made.

Kafka cannot resume a transaction that another process has prepared. So nothing is sent before the commit: the messages
wait in files, and one transaction has all messages of a commit and a record with its number, which goes to the
compacted topic ``fries-commits``. The next process that takes over first ends the transaction of the last one, by
which that one is fenced, and then reads the record: so it knows which commits were made.

>>> record = CommitRecord(3, 2, {"out-0-1": 7})
>>> record.holds(PartName("r1", "out", 0, 2, 7, "c0ffee00")), record.holds(PartName("r1", "out", 0, 2, 8, "c0ffee00"))
(True, False)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from fries_nb.connectors.kafka_client import REACH_S, KafkaCluster, is_end, package, reason
from fries_nb.errors import SinkError, SourceError
from fries_nb.storage.part_files import PartName

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
    """The last commit of a run to a topic.

    Attributes:
        number: number of the commit.
        incarnation: the newest incarnation of its parts.
        serials: writer to the serial of its last part that was committed, of this incarnation.
    """

    number: int = 0
    incarnation: int = 0
    serials: dict[str, int] = {}

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

    Args:
        cluster: the cluster.
        topic: name of the topic.
        name: name of the run and its sink, in the id of transactions and as the key of records.

    Attributes:
        record: the last commit.

    Raises:
        SinkError: no broker answers, there is no such topic, or the records cannot be read.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, name: str) -> None:
        self._topic = topic
        self._said = f"topic {topic!r} of {cluster.servers}"
        self._name = name
        cluster.partitions(topic, SinkError)
        self._producer = cluster.producer(
            transactional_id=f"fries-{name}", transaction_timeout_ms=TRANSACTION_MS, partitioner="murmur2_random",
            linger_ms=1,
        )  # fmt: skip
        try:
            _make_commits(cluster)
            self._producer.init_transactions(WAIT_S)
            self.record = _last_record(cluster, name)
        except (package().KafkaException, SourceError) as error:
            raise SinkError(f"cannot use {self._said} as a sink: {reason(error)}") from error

    def commit(self, record: CommitRecord, messages: Messages) -> None:
        """Commit messages and the record of them, all or none.

        Args:
            record: the record.
            messages: the messages.

        Raises:
            SinkError: they could not be committed, or another process has taken over.
        """
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
        """Abort the transaction, so that it can be tried again.

        Raises:
            SinkError: that is not possible.
        """
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
    """The last record under a name, of all that were written before now.

    Raises:
        SinkError: a transaction of another run stays open.
    """
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
    asked = [
        admin.list_offsets({partition: spec}, isolation_level=every, request_timeout=WAIT_S)[partition]
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    first, end = (one.result().offset for one in asked)
    return first, end
