"""A Kafka source for checks that do not wait: its readers wait themselves until a message has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from mock_kafka import Broker
from patience import until

from fries_nb.connectors.kafka_source import KafkaCluster, KafkaReader, KafkaSource, KafkaTopic
from fries_nb.connectors.source import Position, RuntimeReader, RuntimeSource, Split, Undecoded

QUICK = {"fetch.wait.max.ms": 5, "metadata.request.timeout.ms": 5_000}
"""So that a partition is fetched soon after it was assigned."""


def topic_of(broker: Broker, name: str, **more: Any) -> KafkaTopic:
    """A topic of a test's cluster."""
    return KafkaTopic(KafkaCluster(broker.servers, QUICK), name, **more)


class PatientReader(RuntimeReader):
    """Returns nothing only when its reader has made its way without a row."""

    def __init__(self, reader: KafkaReader) -> None:
        self._reader = reader

    @property
    def position(self) -> Position | None:
        return self._reader.position

    def read(self, limit: int, now_ns: int) -> pa.RecordBatch | None:
        """The next rows, once there are some."""
        before, found = self._reader.position, []

        def has_read() -> bool:
            found.append(self._reader.read(limit, now_ns))
            return found[-1] is not None or self._reader.position != before

        until(has_read, "a message")
        return found[-1]

    def take_undecoded(self) -> list[Undecoded]:
        return self._reader.take_undecoded()

    def close(self) -> None:
        self._reader.close()


class PatientSource(RuntimeSource):
    """A Kafka source with such readers."""

    def __init__(self, topic: KafkaTopic) -> None:
        self._source = KafkaSource(topic)

    def __copy__(self) -> PatientSource:
        return PatientSource(self._source._topic)

    def splits(self, count: int) -> Sequence[Split]:
        return self._source.splits(count)

    def open(self, split: Split, position: Position) -> PatientReader:
        return PatientReader(self._source.open(split, position))
