"""A Kafka cluster for tests: librdkafka's mock cluster in a process of its own; see ``rivals.mock_cluster``.

With ``FRIES_KAFKA`` set to the address of a broker, tests use that one, except those that break it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fries_nb.experiments.rivals import mock_cluster

PRODUCE, END_TXN, ADD_PARTITIONS = 0, 26, 24
"""Numbers of Kafka's requests."""


class Broker:
    """A cluster for tests: topics with names of their own, and what they hold.

    Args:
        servers: its address.
        process: the process of a mock cluster.
    """

    def __init__(self, servers: str, process: subprocess.Popen[str] | None = None) -> None:
        self.servers = servers
        self._process = process

    @property
    def is_mock(self) -> bool:
        """Whether it can be broken."""
        return self._process is not None

    def topic(self, partitions: int = 1, name: str = "", compact: bool = False) -> str:
        """A new topic; returns its name."""
        name = name or f"t{uuid.uuid4().hex[:8]}"
        if self.is_mock:
            self.tell("create", name, partitions)
        else:
            from confluent_kafka.admin import AdminClient, NewTopic

            config = {"cleanup.policy": "compact"} if compact else {}
            admin = AdminClient({"bootstrap.servers": self.servers})
            for made in admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values():
                made.result(30)
        return name

    def produce(self, topic: str, values: Sequence[Any], partitions: int = 1, **more: Any) -> None:
        """Messages in turn over the partitions: bytes as they are, all else as JSON."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1, "log_level": 0})
        for number, value in enumerate(values):
            content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(topic, content, partition=number % partitions, **more)
            producer.poll(0)
        assert producer.flush(60) == 0

    def consumed(self, topic: str, partitions: int = 1) -> list[Any]:
        """All committed messages of a topic."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({
            "bootstrap.servers": self.servers, "group.id": "seen", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0, "fetch.wait.max.ms": 10,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        messages, left = [], set(range(partitions))
        while left:
            for message in consumer.consume(1_000, 0.02):
                if message.error() is None:
                    messages.append(message)
                else:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    left.discard(message.partition())
        consumer.close()
        return messages

    def rows(self, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
        """The values of all committed messages."""
        return [json.loads(message.value()) for message in self.consumed(topic, partitions)]

    def tell(self, *command: Any) -> None:
        """Tell the mock cluster something: ``create``, ``errors``, ``down``, ``up`` or ``delay``."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert answer == 0, f"{command}: {answer}"

    @contextmanager
    def down(self) -> Iterator[None]:
        """The mock cluster's first broker is down within the block."""
        self.tell("down", 1)
        try:
            yield
        finally:
            self.tell("up", 1)


@contextmanager
def broker(brokers: int = 1) -> Iterator[Broker]:
    """A mock cluster, or the cluster of ``FRIES_KAFKA``."""
    if given := os.environ.get("FRIES_KAFKA"):
        yield Broker(given)
        return
    with mock_broker(brokers) as mock:
        yield mock


@contextmanager
def mock_broker(brokers: int = 1) -> Iterator[Broker]:
    """A mock cluster in a process, which ends with the block."""
    command = [sys.executable, mock_cluster.__file__, str(brokers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Broker(json.loads(process.stdout.readline()), process)
        finally:
            process.kill()
