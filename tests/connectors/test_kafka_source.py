"""The promises of a Kafka source, against a mock cluster in another process, and what belongs to it alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from mock_kafka import Broker, broker
from patience import PATIENCE_S, until
from source_contract import CHECKS, Check, kept

import fries_nb as fn
from fries_nb.connectors import kafka_source
from fries_nb.connectors.kafka_source import KafkaCluster, KafkaReader, KafkaSource, KafkaTopic, PartitionSpan, _parts
from fries_nb.connectors.source import Position, RuntimeReader, RuntimeSource, Split, Undecoded
from fries_nb.connectors.worker_reader import open_reader, planned
from fries_nb.dataflow.columns import TIME
from fries_nb.dataflow.starts import AtRow, SourceStart
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import SourceError
from fries_nb.progress.times import EARLIEST
from fries_nb.protocol.messages import WorkerId
from fries_nb.spark.staging import plan_source

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


# ---- the tests


ROWS = 40


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    """A cluster."""
    with broker() as started:
        yield started


@pytest.fixture(scope="module")
def numbers(kafka: Broker) -> str:
    """A topic of four partitions with the numbers from 0 up."""
    topic = kafka.topic(4)
    kafka.produce(topic, [{"value": value} for value in range(ROWS)], 4)
    return topic


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_topic_keeps_the_promises_of_a_source(check: Check, kafka: Broker, numbers: str) -> None:
    """Each promise, of a topic that is read up to its present end."""
    check(PatientSource(topic_of(kafka, numbers, ends=True)), ROWS)


def rows_of(source: PatientSource) -> list[dict[str, Any]]:
    """The rows of all splits, one after another, up to the end."""
    rows: list[dict[str, Any]] = []
    for split in source.splits(16):
        reader = source.open(split, Position())
        while reader.position is not None:
            batch = reader.read(10, 0)
            rows += batch.to_pylist() if batch is not None else []
        reader.close()
    return rows


def test_a_source_begins_where_it_is_told(kafka: Broker) -> None:
    """At the beginning or behind what is there; the splits say so, so that a resumed run does the same."""
    topic = kafka.topic()
    kafka.produce(topic, [{"value": value} for value in range(3)])
    splits = [KafkaSource(topic_of(kafka, topic, start=start)).splits(4)[0] for start in ("earliest", "latest")]
    kafka.produce(topic, [{"value": 3}])
    for split, expected in zip(splits, ([0, 1, 2, 3], [3]), strict=True):
        reader, read = PatientSource(topic_of(kafka, topic)).open(split, Position()), []
        while len(read) < len(expected):
            read += reader.read(10, 0)["value"].to_pylist()
        assert read == expected


def values_of(reader: PatientReader, count: int) -> list[int]:
    """So many values, sorted."""
    values: list[int] = []
    while len(values) < count:
        batch = reader.read(count - len(values), 0)
        values += [] if batch is None else batch["value"].to_pylist()
    return sorted(values)


class TimedOffsets:
    """Answers as a consumer does where messages can be looked up by time, which the mock cluster cannot."""

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 10, 20

    def offsets_for_times(self, partitions: list[Any], timeout: float) -> list[Any]:
        for one in partitions:
            assert one.offset == 1_500
            one.offset = -1 if one.partition else 13
        return partitions


def test_a_source_begins_at_a_time(kafka: Broker) -> None:
    """With the first message of that time or later; behind the last one, where there is none."""
    found = _parts(TimedOffsets(), topic_of(kafka, "any", start=1_500), [0, 1])
    assert found == [PartitionSpan(0, 13, 20), PartitionSpan(1, 20, 20)]


def test_a_run_begins_at_a_time_or_where_another_one_was(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time of ``flow.run(start=)`` is that of ``fn.kafka(start=)``; positions are the offsets of a checkpoint."""
    description, time = fn.kafka(kafka.servers, "any"), SourceStart(time=datetime(2026, 11, 1))
    with monkeypatch.context() as patch:
        patch.setattr(kafka_source.KafkaSource, "splits", lambda source, count: [Split(0, source._topic.start)])
        asked = plan_source(description, None, "", "S", 1, start=time)
    assert asked.splits == (Split(0, datetime(2026, 11, 1, tzinfo=UTC).timestamp() * 1_000),)
    topic = kafka.topic()
    kafka.produce(topic, [{"value": value} for value in range(5)])
    source = KafkaSource(topic_of(kafka, topic))
    plan = planned(source, 1, None)
    reader = PatientSource(source._topic).open(plan.splits[0], Position())
    assert values_of(reader, 2) == [0, 1]
    at = AtRow(reader.position.row, reader.position.at)
    reader.close()
    begun = plan.beginning_at(SourceStart(places=dict.fromkeys((one.number for one in plan.splits), at)), "S")
    assert values_of(PatientSource(source._topic).open(begun.splits[0], begun.splits[0].start), 3) == [2, 3, 4]
    with pytest.raises(SourceError, match="whose rows are not found by their numbers"):
        plan.beginning_at(SourceStart(places=dict.fromkeys((one.number for one in plan.splits), 2)), "S")


def test_offsets_have_gaps_and_rows_have_not(kafka: Broker) -> None:
    """Marks of transactions have offsets; the end is found, though the last offset is one."""
    from confluent_kafka import Producer

    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(60)
    for number in range(3):
        producer.begin_transaction()
        for value in range(2):
            producer.produce(topic, b'{"value": %d}' % (2 * number + value), partition=0)
        producer.commit_transaction(60)
    source = PatientSource(topic_of(kafka, topic, ends=True, metadata=True))
    [split] = source.splits(1)
    reader, places, rows = source.open(split, Position()), [], []
    while reader.position is not None:
        places.append(reader.position)
        batch = reader.read(2, 0)
        rows += [] if batch is None else batch.to_pylist()
    assert [row["value"] for row in rows] == list(range(6))
    assert [row["kafka_offset"] for row in rows] == [0, 1, 3, 4, 6, 7]
    for place in places:
        again, rest = source.open(split, place), []
        while again.position is not None:
            batch = again.read(5, 0)
            rest += [] if batch is None else batch["value"].to_pylist()
        assert rest == list(range(place.row, 6))


def test_the_columns_of_the_message_itself(kafka: Broker) -> None:
    """Key, partition, offset and time; a column of that name in the messages is refused."""
    topic = kafka.topic(2)
    kafka.produce(topic, [{"value": 1}, {"value": 2}], 2, key=b"k", timestamp=1_700_000_000_123)
    rows = rows_of(PatientSource(topic_of(kafka, topic, ends=True, metadata=True)))
    at = datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
    assert rows == [
        {"value": 1, "kafka_key": b"k", "kafka_partition": 0, "kafka_offset": 0, "kafka_timestamp": at},
        {"value": 2, "kafka_key": b"k", "kafka_partition": 1, "kafka_offset": 0, "kafka_timestamp": at},
    ]
    kafka.produce(topic, [{"kafka_key": 1}])
    with pytest.raises(SourceError, match="messages have a column 'kafka_key' of their own"):
        rows_of(PatientSource(topic_of(kafka, topic, ends=True, metadata=True)))


def test_the_time_of_messages_can_be_that_of_rows(kafka: Broker) -> None:
    """A partition without messages holds time back, and those that have none at present do not wait for each other."""
    topic = kafka.topic(2)
    kafka.produce(topic, [{"value": 1}], timestamp=5_000)
    time = EventTime("kafka_timestamp", carried=True)
    plan = planned(PatientSource(topic_of(kafka, topic, ends=True, metadata=True)), 1, None, time, "S")
    reader = open_reader(plan, WorkerId("S", 0), 1, 0, identities=False)
    assert sorted(reader.bounds.values()) == [EARLIEST]
    batch, _ = reader.read(0, 10)
    assert batch is not None
    assert batch[TIME].to_pylist() == [datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)]


def test_a_message_that_does_not_decode_fails_the_source(kafka: Broker) -> None:
    """Where it is and why it is no row is said, and how to go on."""
    topic = kafka.topic()
    kafka.produce(topic, [{"value": 1}, b"{broken", {"value": 2}])
    with pytest.raises(SourceError, match=r"the message at offset 1 of partition 0 of topic '\w+' does not decode: .*"
                       r"expected a JSON object, or on_error=fn.memory\(\) to set such messages aside"):  # fmt: skip
        rows_of(PatientSource(topic_of(kafka, topic, ends=True)))


def test_messages_that_do_not_decode_are_set_aside(kafka: Broker) -> None:
    """Each once, with what it was; positions go on behind them, also if there is nothing else."""
    topic = kafka.topic()
    kafka.produce(topic, [b"{broken", {"value": 1}, b"17", {"value": 2}, None])
    plan = planned(PatientSource(topic_of(kafka, topic, ends=True, letters=True)), 1, None)
    reader = open_reader(plan, WorkerId("S", 0), 1, 0, identities=False)
    rows, undecoded, places = [], [], []
    while not reader.exhausted:
        batch, _ = reader.read(0, 1)
        rows += [] if batch is None else batch["value"].to_pylist()
        undecoded += reader.take_undecoded()
        places += [one for one in reader.moved.values() if one is not None]
    assert rows == [1, 2]
    assert [one.row["message"] for one in undecoded] == ["{broken", "17", ""]
    assert "offset 2 of partition 0" in undecoded[1].error
    assert [(one.row, one.at) for one in places] == [(0, [1]), (1, [2]), (1, [3]), (2, [4])]


def test_a_topic_without_messages_has_columns_as_they_come(kafka: Broker) -> None:
    """Nothing is known of it at the plan, and that is no error."""
    topic = kafka.topic()
    source = PatientSource(topic_of(kafka, topic))
    [split] = source.splits(1)
    kafka.produce(topic, [{"value": 1}])
    assert source.open(split, Position()).read(10, 0).to_pylist() == [{"value": 1}]


def test_all_workers_begin_with_the_columns_of_the_sample(kafka: Broker) -> None:
    """Though a partition has fewer of them."""
    topic = kafka.topic(2)
    kafka.produce(topic, [{"value": 1}, {"value": 2.5, "name": "x"}], 2)
    rows = rows_of(PatientSource(topic_of(kafka, topic, ends=True)))
    assert rows == [{"value": 1.0, "name": None}, {"value": 2.5, "name": "x"}]
    assert isinstance(rows[0]["value"], float)


def test_what_the_topic_does_not_keep_any_more_is_missed(kafka: Broker) -> None:
    """A resumed run whose messages were deleted is told so."""
    if not kafka.is_mock:
        pytest.skip("deletes messages of the mock cluster")
    topic = kafka.topic()
    source = PatientSource(topic_of(kafka, topic))
    [split] = source.splits(1)
    kafka.produce(topic, [{"value": value} for value in range(5)])
    kafka.tell("trim", topic, 0, 3)
    with pytest.raises(SourceError, match=r"partition 0 of topic .* no longer holds the next message"):
        source.open(split, Position(1, [1])).read(10, 0)


def test_no_broker_and_no_topic_are_told_before_anything_runs(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the likely name of the topic, and why no connection was made, in less than ten seconds."""
    assert kafka_source.REACH_S < 10
    topic = kafka.topic(1)
    monkeypatch.setattr(kafka_source, "REACH_S", PATIENCE_S)
    with pytest.raises(SourceError, match=f"no topic '{topic}s'; expected one of .*did you mean '{topic}'"):
        KafkaSource(topic_of(kafka, f"{topic}s")).splits(1)
    with pytest.raises(SourceError, match="no topic"):
        KafkaSource(topic_of(kafka, f"{topic}s")).check()
    monkeypatch.setattr(kafka_source, "REACH_S", 2.0)
    nowhere = KafkaTopic(KafkaCluster("127.0.0.1:1"), topic)
    with pytest.raises(SourceError, match=r"no broker of '127.0.0.1:1' answers: .*refused.*; expected the"):
        KafkaSource(nowhere).splits(1)
    with pytest.raises(SourceError, match="no broker of"):
        KafkaSource(nowhere).check()


def test_lag_is_told(kafka: Broker) -> None:
    """How many messages were not read, where the next one is, and for how long it has waited."""
    topic = kafka.topic()
    source = PatientSource(topic_of(kafka, topic))
    [split] = source.splits(1)
    kafka.produce(topic, [{"value": value} for value in range(1_500)], timestamp=1_000)
    reader = source.open(split, Position())
    batch = reader.read(1_000, 0)
    inner = reader._reader
    assert inner.place == f"partition 0, offset {batch.num_rows:,}"
    assert inner.behind(3_000_000_000) in ((1_500 - batch.num_rows, 2_000_000_000), (1_500 - batch.num_rows, None))


def test_messages_after_a_lost_broker_are_read(kafka: Broker) -> None:
    """The client connects again; nothing is an error in between."""
    if not kafka.is_mock:
        pytest.skip("stops the broker of the mock cluster")
    topic = kafka.topic()
    source = PatientSource(topic_of(kafka, topic))
    [split] = source.splits(1)
    kafka.produce(topic, [{"value": 1}])
    reader = source.open(split, Position())
    assert reader.read(10, 0)["value"].to_pylist() == [1]
    with kafka.down():
        assert [reader._reader.read(10, 0) for _ in range(50)] == [None] * 50
    kafka.produce(topic, [{"value": 2}])
    assert reader.read(10, 0)["value"].to_pylist() == [2]


def test_partitions_that_are_added_are_read(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """From their first message on, each by one split; positions have them, also for a split that is opened again.

    The mock cluster adds none, so the source is planned as if two of five partitions were there.
    """
    topic = kafka.topic(5)
    source = PatientSource(topic_of(kafka, topic))
    monkeypatch.setitem(kafka_source.COUNTS, "statistics.interval.ms", 20)
    kafka.produce(topic, [{"value": value} for value in range(10)], 5)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaCluster, "partitions", lambda self, topic: [0, 1])
        splits, [ending] = source.splits(16), PatientSource(topic_of(kafka, topic, ends=True)).splits(1)
    readers = [source.open(split, Position()) for split in splits]
    for reader, mine in zip(readers, ([0, 2, 4], [1, 3]), strict=True):
        assert values_of(reader, 2 * len(mine)) == sorted([*mine, *(5 + number for number in mine)])
        assert reader.position == Position(2 * len(mine), [2] * len(mine))
    kafka.produce(topic, [{"value": value} for value in range(10, 15)], 5)
    again = source.open(splits[0], readers[0].position)
    assert values_of(again, 3) == [10, 12, 14]
    assert again.position == Position(9, [3, 3, 3])
    ends = PatientSource(topic_of(kafka, topic, ends=True))
    reader = ends.open(ending, Position())
    ends._source._fetched._count.known = 5
    assert values_of(reader, 4) == [0, 1, 5, 6]
    assert reader.position is None


def test_a_source_that_ends_reads_what_there_was(kafka: Broker) -> None:
    """Not what came after it was planned, though that is fetched together with the rest."""
    topic = kafka.topic()
    kafka.produce(topic, [{"value": 1}, {"value": 2}])
    source = PatientSource(topic_of(kafka, topic, ends=True))
    [split] = source.splits(1)
    kafka.produce(topic, [{"value": 3}])
    reader = source.open(split, Position())
    assert reader.read(10, 0)["value"].to_pylist() == [1, 2]
    assert reader.position is None


def test_messages_that_are_no_rows_do_not_advance_time(kafka: Broker) -> None:
    """The times of another partition, read in the same call, say nothing about theirs."""
    topic = kafka.topic(2)
    kafka.produce(topic, [b"{broken", {"value": 5}], 2)
    plan = planned(PatientSource(topic_of(kafka, topic, letters=True)), 1, None, EventTime("value"), "S")
    reader = open_reader(plan, WorkerId("S", 0), 1, 0, identities=False)
    batch, _ = reader.read(0, 10)
    assert batch is not None
    assert len(reader.take_undecoded()) == 1
    assert reader.bounds == {0: EARLIEST, 1: 5}


def read_some(reader: PatientReader, count: int) -> list[pa.RecordBatch]:
    """So many rows, in batches."""
    batches: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in batches) < count:
        batches += [batch] if (batch := reader.read(1, 0)) is not None else []
    return batches


def test_columns_that_were_learned_are_kept_in_positions(kafka: Broker) -> None:
    """A run that goes on from one has them, with their types and in their order; one that refuses further ones, too."""
    topic = kafka.topic()
    kafka.produce(topic, [{"n": 1}])
    source = PatientSource(topic_of(kafka, topic))
    [split] = source.splits(1)
    kafka.produce(topic, [{"n": 2, "tax": 1}, {"n": 3, "fee": "x"}, {"n": 4, "tax": 2.5}, {"n": 5}, {"tax": "x"}])
    reader, places = source.open(split, Position()), []
    for _ in range(4):
        places.append(reader.position)
        read_some(reader, 1)
    assert [place.at for place in places[:2]] == [[0], [1]], "nothing more than the split has is known"
    for place in (kept(reader.position), kept(places[3])):
        again = PatientSource(source._source._topic).open(split, place)
        assert again.position == place
        last = read_some(again, 5 - place.row)[-1]
        wanted = pa.schema({"n": pa.int64(), "tax": pa.float64(), "fee": pa.string()})
        assert (last.schema, last.to_pylist()) == (wanted, [{"n": 5, "tax": None, "fee": None}])
        with pytest.raises(SourceError, match=r"column 'tax' was double and is now string"):
            read_some(again, 1)
    refusing = [PatientSource(topic_of(kafka, topic, adds_columns=False)) for _ in range(2)]
    assert read_some(refusing[0].open(split, places[3]), 2)[1].to_pylist() == [{"n": 5, "tax": None, "fee": None}]
    with pytest.raises(SourceError, match=r"it has a column 'tax', which messages before lack"):
        read_some(refusing[1].open(split, Position(1, [1])), 1)


def test_partitions_that_have_learned_a_column_in_two_types_are_not_read_together(kafka: Broker) -> None:
    """Which one worker reads from now on: numbers widen, and others are refused, by the column's name."""
    topic = kafka.topic(3)
    source = PatientSource(topic_of(kafka, topic))
    splits = source.splits(3)
    kafka.produce(topic, [{"n": 1, "tax": 1}, {"n": 2, "tax": 2.5}, {"n": 3, "tax": "x"}], 3)
    places = []
    for split in splits:  # each by a worker of its own
        reader = PatientSource(source._source._topic).open(split, Position())
        read_some(reader, 1)
        places.append(kept(reader.position))
    kafka.produce(topic, [{"n": 4, "tax": 4}], 3)
    both = PatientSource(source._source._topic)
    reader, _ = [both.open(splits[number], places[number]) for number in (0, 1)]
    [batch] = read_some(reader, 1)
    assert (batch.to_pylist(), str(batch.schema.field("tax").type)) == ([{"n": 4, "tax": 4.0}], "double")
    with pytest.raises(SourceError, match=r"split 2 has learned column 'tax' as string, and another one .* as double"):
        both.open(splits[2], places[2])
