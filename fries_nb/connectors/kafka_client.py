"""Clients of a Kafka cluster, whose errors are said in words. Needs the extra ``kafka``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fries_nb.errors import FriesError, SourceError, unknown

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
    """A cluster.

    Attributes:
        servers: addresses of brokers.
        config: further settings of librdkafka.
    """

    servers: str
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

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
    """Whether it is no message, but says that all messages of its partition were read.

    Connections that are lost are made again by the client, and are no errors here.
    """
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
