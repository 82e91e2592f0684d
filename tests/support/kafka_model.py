"""What Kafka promises of transactions, in memory: what the mock cluster does not do.

A transaction is visible once it is committed, and then whole. A producer that begins under an id ends the transaction
of the last one with that id, which is fenced from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException

from fries_nb.connectors.kafka_sink import COMMITS, CommitRecord
from fries_nb.connectors.kafka_source import KafkaCluster

Message = tuple[str, Any, Any]


class ModelledKafka(KafkaCluster):
    """A cluster of one topic; pickled as one that has nothing.

    Attributes:
        committed: topic, key and value of all committed messages.
        before: called in front of each step of a transaction, with its name.
        after: called behind each, before its caller hears of it.
    """

    committed: list[Message]
    before: Callable[[str], None]
    after: Callable[[str], None]
    epochs: dict[str, int]

    def __init__(self) -> None:
        super().__init__("modelled")
        self.forget()
        object.__setattr__(self, "committed", [])
        object.__setattr__(self, "epochs", {})

    def __reduce__(self) -> Any:
        return KafkaCluster, ("modelled",)

    def forget(self) -> None:
        """Call nothing any more."""
        self.call(before=lambda step: None, after=lambda step: None)

    def call(self, **calls: Callable[[str], None]) -> None:
        """Set ``before`` or ``after``."""
        for name, called in calls.items():
            object.__setattr__(self, name, called)

    def partitions(self, topic: str, kind: Any = None) -> list[int]:
        return [0]

    def producer(self, **settings: Any) -> Any:
        return ModelledProducer(self, settings["transactional_id"])

    def last_record(self, name: str) -> CommitRecord:
        """As ``kafka_commits`` reads it."""
        found = [value for topic, key, value in self.committed if (topic, key) == (COMMITS, name.encode())]
        return msgspec.json.decode(found[-1], type=CommitRecord) if found else CommitRecord()

    def values(self) -> list[Any]:
        """The committed messages, without records."""
        return [msgspec.json.decode(value) for topic, _, value in self.committed if topic != COMMITS]


class ModelledProducer:
    """A transactional producer."""

    def __init__(self, kafka: ModelledKafka, identity: str) -> None:
        self._kafka, self._id, self._epoch = kafka, identity, 0
        self._open: list[Message] | None = None

    def _step(self, name: str, act: Callable[[], None]) -> None:
        self._kafka.before(name)
        if self._kafka.epochs.get(self._id) != self._epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))
        act()
        self._kafka.after(name)

    def init_transactions(self, timeout: float) -> None:
        self._epoch = self._kafka.epochs.get(self._id, 0) + 1
        self._kafka.epochs[self._id] = self._epoch

    def begin_transaction(self) -> None:
        assert self._open is None
        self._step("begin_transaction", lambda: setattr(self, "_open", []))

    def produce(self, topic: str, value: bytes, key: bytes | None, partition: int) -> None:
        assert self._open is not None
        self._step("produce", lambda: self._open.append((topic, key, value)))  # type: ignore[union-attr]

    def poll(self, timeout: float) -> int:
        return 0

    def commit_transaction(self, timeout: float) -> None:
        def act() -> None:
            if self._open is not None:  # called again after it was made
                self._kafka.committed.extend(self._open)
                self._open = None

        self._step("commit_transaction", act)

    def abort_transaction(self, timeout: float) -> None:
        self._step("abort_transaction", lambda: setattr(self, "_open", None))
