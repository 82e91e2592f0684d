"""The Kafka messages that the consumer of one worker has fetched, and the number of partitions that it knows."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from fries_nb.connectors.kafka_client import KafkaCluster, is_end, package

if TYPE_CHECKING:
    from confluent_kafka import Message


class PartitionCount:
    """The number of partitions of a topic, from a client's statistics.

    >>> count = PartitionCount("t")
    >>> count('{"topics": {"t": {"partitions": {"-1": {}, "0": {}, "1": {}}}}}')
    >>> count.known
    2

    Args:
        topic: the topic.

    Attributes:
        known: the number; it does not decrease.
    """

    def __init__(self, topic: str) -> None:
        self.known = 0
        self._topic = topic

    def __call__(self, statistics: str) -> None:
        """Take in what the client says, as JSON."""
        found = msgspec.json.decode(statistics)["topics"].get(self._topic, {}).get("partitions", {})
        self.known = max([self.known, *(int(number) + 1 for number in found)])


class FetchedMessages:
    """What the consumer of one worker has fetched and its splits have not read.

    Args:
        cluster: the cluster.
        topic: the topic.

    """

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
        """Take the next messages of a partition; those that have come, without waiting.

        Raises:
            SourceError: a partition cannot be read.
        """
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
