"""The promises of a Kafka sink, against a mock cluster in another process, and what belongs to it alone."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from mock_kafka import ADD_PARTITIONS, END_TXN, PRODUCE, Broker, broker
from patience import PATIENCE_S, looks
from sink_contract import CHECKS, Check, Target

from fries_nb.connectors import kafka_sink, kafka_source
from fries_nb.connectors.kafka_sink import COMMITS, CommitRecord, KafkaSink, TransactionalTopic
from fries_nb.connectors.kafka_source import KafkaCluster
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId

QUICK = {"fetch.wait.max.ms": 5}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    """A cluster with the topic of commits, which the mock cannot create by request."""
    with broker() as started:
        if started.is_mock:
            started.topic(1, COMMITS)
        yield started


def target(kafka: Broker, path: Path, partitions: int = 2, **more: Any) -> Target:
    """A topic of its own; each start is of the same run."""
    topic = kafka.topic(partitions)

    def sink() -> KafkaSink:
        one = KafkaSink("scored", KafkaCluster(kafka.servers, QUICK), topic, str(path), **more)
        one.claim("flow", f"r1{topic}")
        return one

    return Target(sink, lambda: kafka.rows(topic, partitions), takes_back=False)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_topic_keeps_the_promises_of_a_sink(check: Check, kafka: Broker, tmp_path: Path) -> None:
    """Each promise."""
    check(target(kafka, tmp_path))


def closed(sink: Any, rows: list[dict[str, Any]], index: int = 0, incarnation: int = 1) -> tuple[str, ...]:
    """The parts of a worker on another machine."""
    writer = pickle.loads(pickle.dumps(sink)).open(WorkerId("scored", index), incarnation)
    writer.write(pa.RecordBatch.from_pylist(rows))
    parts: tuple[str, ...] = writer.close_part()
    return parts


COORDINATOR_LOADING, NOT_COORDINATOR, CONCURRENT = 14, 16, 51
UNKNOWN_PRODUCER, TOO_LARGE, TIMED_OUT = 59, 10, 7


@pytest.mark.parametrize(
    ("request_", "errors", "aborts"),
    [
        (END_TXN, [COORDINATOR_LOADING, NOT_COORDINATOR, CONCURRENT], False),
        (ADD_PARTITIONS, [CONCURRENT, COORDINATOR_LOADING], False),
        (PRODUCE, [TIMED_OUT, TIMED_OUT], False),
        (PRODUCE, [UNKNOWN_PRODUCER], True),
        (END_TXN, [TIMED_OUT], True),
    ],
)
def test_what_brokers_refuse_for_a_while_is_tried_again(
    request_: int, errors: list[int], aborts: bool, kafka: Broker, tmp_path: Path
) -> None:
    """The commit is made once; the mock cluster shows what was aborted, too."""
    if not kafka.is_mock:
        pytest.skip("breaks the mock cluster")
    one = target(kafka, tmp_path)
    sink = one.sink()
    parts = closed(sink, [{"n": 1}, {"n": 2}])
    sink.prepare(parts)
    kafka.tell("errors", request_, *errors)
    sink.commit(1, parts)
    assert [row["n"] for row in one.seen()] == [1, 2] or (aborts and {row["n"] for row in one.seen()} == {1, 2})
    assert one.sink()._target.record.number == 1


def test_a_transaction_that_has_to_be_aborted_before_all_is_sent_is_tried_again(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client then takes no further message, and does not say why."""
    if not kafka.is_mock:
        pytest.skip("breaks the mock cluster")
    one = target(kafka, tmp_path)
    sink = one.sink()
    parts = closed(sink, [{"n": 1}])
    sink.prepare(parts)
    kafka.tell("errors", PRODUCE, UNKNOWN_PRODUCER)
    send, refusals = TransactionalTopic._send, []

    def send_late(topic: TransactionalTopic, name: str, *more: Any, **how: Any) -> None:
        for _ in looks() if name == COMMITS and not refusals else ():
            try:
                topic._producer.produce(topic._topic, b'{"n": 1}')
            except kafka_source.package().KafkaException as error:
                refusals.append(error.args[0].name())
                break
        send(topic, name, *more, **how)

    monkeypatch.setattr(TransactionalTopic, "_send", send_late)
    sink.commit(1, parts)
    assert refusals == ["_STATE"]
    assert {row["n"] for row in one.seen()} == {1}
    assert one.sink()._target.record.number == 1


def test_a_commit_that_no_broker_takes_fails_in_words(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is made by the next process."""
    if not kafka.is_mock:
        pytest.skip("stops the broker of the mock cluster")
    one = target(kafka, tmp_path)
    sink = one.sink()
    parts = closed(sink, [{"n": 1}])
    sink.prepare(parts)
    monkeypatch.setattr(kafka_sink, "WAIT_S", 1.0)
    failure = r"commit 1 to topic '\w+' of .* was not confirmed within 1 s: .* is resumed"
    with kafka.down(), pytest.raises(SinkError, match=failure):
        sink.commit(1, parts)
    monkeypatch.undo()
    one.sink().recover(1, parts)
    assert one.seen() == [{"n": 1}]


class SilentClient:
    """A producer whose commits are not confirmed."""

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None

    def commit_transaction(self, timeout_s: float) -> None:
        """As librdkafka, which has no limit if the number is negative."""
        assert timeout_s >= 0, "waits for ever"
        self.timeouts.append(timeout_s)
        raise kafka_source.package().KafkaException(kafka_source.package().KafkaError(-185, retriable=True))


def test_a_commit_waits_for_the_time_that_is_left(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never for a negative number of seconds, however far the clock goes on between two looks at it."""
    one, client, looks = target(kafka, tmp_path), SilentClient(), itertools.count()
    sink = one.sink()
    parts = closed(sink, [{"n": 1}])
    sink.prepare(parts)
    monkeypatch.setattr(sink._target, "_producer", client)
    monkeypatch.setattr(kafka_sink, "time", SimpleNamespace(monotonic=lambda: 0.45 * 60 * next(looks)))
    with pytest.raises(SinkError, match="was not confirmed within 60 s"):
        sink.commit(1, parts)
    assert client.timeouts == pytest.approx([60, 33, 6])


def test_rows_are_json_and_keys_choose_partitions(kafka: Broker, tmp_path: Path) -> None:
    """Times as text, decimals too; rows of one key are in one partition, in order."""
    one = target(kafka, tmp_path, key="key")
    rows = [{"key": f"k{n % 5}", "n": n} for n in range(50)]
    one.commit(1, one.closed(*rows))
    messages = kafka.consumed(topic_name(one), 2)
    where: dict[bytes, set[int]] = {}
    for message in messages:
        where.setdefault(message.key(), set()).add(message.partition())
    assert {key: len(there) for key, there in where.items()} == {b"k%d" % n: 1 for n in range(5)}
    for key in where:
        found = [json.loads(message.value())["n"] for message in messages if message.key() == key]
        assert found == sorted(found)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    one.commit(2, one.closed({"key": 7, "at": at, "d": Decimal("1.50"), "none": None, "b": b"x"}, index=1))
    [message] = [message for message in kafka.consumed(topic_name(one), 2) if message.key() == b"7"]
    assert json.loads(message.value()) == {
        "key": 7, "at": "2026-01-02T03:04:05Z", "d": "1.50", "none": None, "b": "eA=="
    }  # fmt: skip


def test_nanoseconds_are_text(kafka: Broker, tmp_path: Path) -> None:
    """As all times are."""
    one = target(kafka, tmp_path)
    sink = one.sink()
    writer = sink.open(WorkerId("scored", 0), 1)
    writer.write(pa.record_batch({"at": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))}))
    one.commit(1, writer.close_part())
    assert one.seen() == [{"at": "2023-11-14T22:13:20.123456789"}]


def shown(row: dict[str, Any]) -> bytes:
    """A format of one's own."""
    return json.dumps({"was": row["n"]}).encode()


def text(row: dict[str, Any]) -> Any:
    """No format at all."""
    return "text"


def test_a_function_encodes(kafka: Broker, tmp_path: Path) -> None:
    """What it raises, and what is not bytes, is said."""
    one = target(kafka, tmp_path, encode=shown)
    one.commit(1, one.closed({"n": 1}))
    assert one.seen() == [{"was": 1}]
    with pytest.raises(SinkError, match=r"sink 'scored' cannot encode \{'x': 1\}: KeyError: 'n'"):
        one.closed({"x": 1}, index=1)
    with pytest.raises(SinkError, match="encode= of sink 'scored' gave 'text'; expected bytes"):
        target(kafka, tmp_path, encode=text).closed({"n": 1}, index=2)
    keyed = target(kafka, tmp_path, key="id")
    with pytest.raises(SinkError, match="sink 'scored' has key='id', and rows have n"):
        keyed.closed({"n": 1}, index=3)


def test_a_message_that_is_too_large_fails_the_commit(kafka: Broker, tmp_path: Path) -> None:
    """With its reason, at once, and nothing of the commit is output."""
    one = target(kafka, tmp_path)
    sink = one.sink()
    parts = closed(sink, [{"n": "x" * 3_000_000}])
    sink.prepare(parts)
    with pytest.raises(SinkError, match=r"commit 1 to topic .* failed: .*[Mm]essage size too large"):
        sink.commit(1, parts)
    assert one.seen() == []


def test_no_broker_and_no_topic_are_told_when_the_topic_is_claimed(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything runs."""
    for servers, reach_s, said in (
        (kafka.servers, PATIENCE_S, "no topic 'nowhere'"), ("127.0.0.1:1", 1.0, "no broker of '127.0.0.1:1' answers"),
    ):  # fmt: skip
        monkeypatch.setattr(kafka_source, "REACH_S", reach_s)
        with pytest.raises(SinkError, match=said):
            KafkaSink("scored", KafkaCluster(servers), "nowhere", str(tmp_path)).claim("flow", "r1")


def test_runs_and_sinks_have_records_of_their_own(kafka: Broker, tmp_path: Path) -> None:
    """Each finds its own among those of all others."""
    topic = kafka.topic()
    for number, (name, run) in enumerate([("a", "r1"), ("b", "r1"), ("a", "r2")], 1):
        sink = KafkaSink(name, KafkaCluster(kafka.servers, QUICK), topic, str(tmp_path / str(number)))
        sink.claim(topic, run)
        assert sink._claimed.record == CommitRecord()
        parts = closed(sink, [{"n": number}])
        sink.commit(number, parts)
    for number, (name, run) in enumerate([("a", "r1"), ("b", "r1"), ("a", "r2")], 1):
        sink = KafkaSink(name, KafkaCluster(kafka.servers, QUICK), topic, str(tmp_path / str(number)))
        sink.claim(topic, run)
        assert sink._claimed.record.number == number
    assert sorted(row["n"] for row in kafka.rows(topic)) == [1, 2, 3]


def topic_name(one: Target) -> str:
    """Where a target writes."""
    return str(one.sink()._topic)


def test_a_commit_may_have_more_messages_than_the_client_holds(kafka: Broker, tmp_path: Path) -> None:
    """It waits until some were sent."""
    topic = kafka.topic(2)
    sink = KafkaSink("scored", KafkaCluster(kafka.servers, {"queue.buffering.max.messages": 7}), topic, str(tmp_path))
    sink.claim("flow", topic)
    parts = closed(sink, [{"n": n} for n in range(200)])
    sink.prepare(parts)
    sink.commit(1, parts)
    assert sorted(row["n"] for row in kafka.rows(topic, 2)) == list(range(200))
