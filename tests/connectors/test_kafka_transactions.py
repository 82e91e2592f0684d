"""Exactly once, by what Kafka promises of transactions; the model stands in for what the mock cluster does not do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from sink_contract import CHECKS, Check, Target

from fries_nb.connectors import kafka_sink
from fries_nb.connectors.kafka_sink import ATTEMPTS, COMMITS, CommitRecord, KafkaSink
from fries_nb.connectors.kafka_source import KafkaCluster
from fries_nb.errors import SinkError
from fries_nb.protocol.messages import WorkerId

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


# ---- the tests


class Died(BaseException):
    """The driver's process has ended here."""


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ModelledKafka:
    """A modelled cluster."""
    monkeypatch.setattr(kafka_sink, "_make_commits", lambda cluster: None)
    monkeypatch.setattr(kafka_sink, "_last_record", lambda cluster, name: cluster.last_record(name))
    return ModelledKafka()


def started(kafka: ModelledKafka, path: Path) -> KafkaSink:
    """The sink in a process of its own."""
    sink = KafkaSink("scored", kafka, "out", str(path))
    sink.claim("flow", "r1")
    return sink


def closed(sink: KafkaSink, *rows: dict[str, Any], index: int = 0, incarnation: int = 1) -> tuple[str, ...]:
    """The parts of a worker on another machine."""
    writer = pickle.loads(pickle.dumps(sink)).open(WorkerId("scored", index), incarnation)
    writer.write(pa.RecordBatch.from_pylist(list(rows)))
    parts: tuple[str, ...] = writer.close_part()
    return parts


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_promises_of_a_sink_hold(check: Check, kafka: ModelledKafka, tmp_path: Path) -> None:
    """Each."""
    check(Target(lambda: started(kafka, tmp_path), kafka.values, takes_back=False))


def test_a_driver_that_dies_at_any_step_leaves_a_commit_that_is_made_once(tmp_path: Path, kafka: ModelledKafka) -> None:
    """In front of each call of the broker, and behind it, before the answer; the next one finishes it."""
    steps = 0
    for death in range(100):
        path, names = tmp_path / str(death), []
        for when in ("before", "after"):
            cluster = ModelledKafka()
            sink = started(cluster, path / when)
            first, second = closed(sink, {"n": 1}), closed(sink, {"n": 2}, {"n": 3}, index=1)
            sink.prepare(first)
            sink.commit(1, first)
            seen: list[str] = []

            def die(step: str, seen: list[str] = seen, death: int = death) -> None:
                seen.append(step)
                if len(seen) == death + 1:
                    raise Died

            cluster.call(**{when: die})
            sink.prepare(second)
            try:
                sink.commit(2, second)
            except Died:
                steps += 1
            cluster.forget()
            assert len(cluster.values()) in (1, 3)
            for _ in range(2):
                started(cluster, path / when).recover(2, second)
                assert sorted(row["n"] for row in cluster.values()) == [1, 2, 3]
            assert not list((path / when).rglob("*.parquet"))
            names.append(seen)
        if death >= len(names[0]):
            assert names[0] == ["begin_transaction", "produce", "produce", "produce", "commit_transaction"]
            assert steps == 2 * len(names[0])
            return
    raise AssertionError("a commit does not come to its end")


def test_a_driver_whose_run_was_taken_over_commits_no_more(tmp_path: Path, kafka: ModelledKafka) -> None:
    """Not even if it has begun to."""
    old = started(kafka, tmp_path)
    parts = closed(old, {"n": 1})
    old.prepare(parts)
    taken: list[KafkaSink] = []
    kafka.call(before=lambda step: taken.append(started(kafka, tmp_path)) if step == "commit_transaction" else None)
    with pytest.raises(SinkError, match="the run was resumed by another process, which commits from now on"):
        old.commit(1, parts)
    kafka.forget()
    assert kafka.values() == []
    taken[0].recover(1, parts)
    assert kafka.values() == [{"n": 1}]


@pytest.mark.parametrize("step", ["begin_transaction", "produce", "commit_transaction"])
def test_a_transaction_that_brokers_make_us_abort_is_tried_again(
    step: str, tmp_path: Path, kafka: ModelledKafka
) -> None:
    """A number of times; then the commit fails, and the next process makes it."""
    sink = started(kafka, tmp_path)
    parts = closed(sink, {"n": 1}, {"n": 2})
    left = [ATTEMPTS - 1]

    def refuse(now: str) -> None:
        if now == step and left[0]:
            left[0] -= 1
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_PRODUCER_ID, "unknown", False, False, True))

    kafka.call(before=refuse)
    sink.commit(1, parts)
    assert kafka.values() == [{"n": 1}, {"n": 2}]
    more = closed(sink, {"n": 3}, index=1)
    left[0] = ATTEMPTS
    with pytest.raises(SinkError, match="commit 2 to topic 'out' of modelled failed: unknown"):
        sink.commit(2, more)
    kafka.forget()
    assert kafka.values() == [{"n": 1}, {"n": 2}]
    started(kafka, tmp_path).recover(2, more)
    assert kafka.values() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_commit_that_is_not_confirmed_is_asked_for_again(tmp_path: Path, kafka: ModelledKafka) -> None:
    """It may have been made; it is not made twice."""
    sink = started(kafka, tmp_path)
    parts = closed(sink, {"n": 1})
    left = [3]

    def time_out(step: str) -> None:
        if step == "commit_transaction" and left[0]:
            left[0] -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", False, True, False))

    kafka.call(after=time_out)
    sink.commit(1, parts)
    assert left == [0]
    assert kafka.values() == [{"n": 1}]


def test_an_error_that_is_not_of_the_transaction_fails_the_commit_at_once(
    tmp_path: Path, kafka: ModelledKafka
) -> None:
    """It is aborted once, so that nothing of it is seen."""
    sink = started(kafka, tmp_path)
    parts = closed(sink, {"n": 1})
    steps: list[str] = []

    def refuse(step: str) -> None:
        steps.append(step)
        if step == "produce":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"))

    kafka.call(before=refuse)
    with pytest.raises(SinkError, match="failed: too large"):
        sink.commit(1, parts)
    assert steps == ["begin_transaction", "produce", "abort_transaction"]
    assert kafka.values() == []
