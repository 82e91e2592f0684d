"""A live topic through a dataflow to a topic, on real Spark; the mock cluster is in another process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import kafka_flow
import pytest
from dying_driver import see_die
from kafka_flow import Numbered, check_once, from_topic_to_topic, messages
from mock_kafka import Broker, broker
from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.connectors import kafka_source
from fries_nb.connectors.kafka_sink import COMMITS
from fries_nb.errors import DataflowError, SinkError, SourceError


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    """A cluster."""
    with broker() as started:
        if started.is_mock:
            started.topic(1, COMMITS)
        yield started


def test_a_live_topic_through_a_change_and_a_lost_host(spark: SparkSession, kafka: Broker, tmp_path: Path) -> None:
    """Messages come all the while: each is output once, counted once, and processed by one version of each operator."""
    source, out = kafka.topic(4), kafka.topic(2)
    kafka.produce(source, messages(0, 500), 4)
    with ended_runs() as runs:
        flow = from_topic_to_topic(kafka.servers, source, out)
        run = flow.run(spark, hosts=1, workers=2, checkpoint=tmp_path / "c", commit_interval_s=0.2, audit=True)
        runs.append(run)
        until(lambda: len(kafka.rows(out, 2)) == 500, run)
        kafka.produce(source, [b"{broken", *messages(500, 1_000)], 4)
        until(lambda: len(kafka.rows(out, 2)) > 500, run)
        assert run.reconfigure({"N": Numbered(2)}).result(PATIENCE_S).outcome == "done"
        kafka.produce(source, messages(1_000, 1_500), 4)
        until(lambda: len(kafka.rows(out, 2)) > 1_000, run)
        os.kill(run.host_processes[0], signal.SIGKILL)
        kafka.produce(source, messages(1_500, 2_000), 4)
        until(lambda: len(kafka.rows(out, 2)) == 2_000, run)
        assert len(run.recoveries) == 1
        until(lambda: "partition 0, offset 501" in str(run.explain()), run)  # hosts report it some time later
        run.stop()
        assert run.audit().serializable
        rows = kafka.rows(out, 2)
        check_once(rows, 2_000)
        assert {row["version"] for row in rows if row["value"] >= 1_000} == {2}
        [letter] = run.dead_letters("pay").collect()
        assert "offset 125 of partition 0" in letter["error"]
        assert letter["tuple"] == '{"message": "{broken"}'
        with pytest.raises(DataflowError, match=f"the rows of 'out' are messages of topic '{out}'"):
            run.output()


def test_a_driver_that_dies_at_a_commit_leaves_each_message_once(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    """Before it has heard of the commit; all other steps are tried by the sink's contract and on a modelled broker."""
    source, out, place = kafka.topic(4), kafka.topic(2), str(tmp_path / "c")
    count = 0

    def produce() -> None:  # a commit has messages only if some come
        nonlocal count
        kafka.produce(source, messages(count, count + 50), 4)
        count += 50

    see_die(kafka_flow.__file__, kafka.servers, source, out, place, meanwhile=produce)
    with ended_runs() as runs:
        run = from_topic_to_topic(kafka.servers, source, out).resume(place, spark, hosts=1, commit_interval_s=0.2)
        runs.append(run)
        until(lambda: len(kafka.rows(out, 2)) >= count, run)
        run.stop()
    check_once(kafka.rows(out, 2), count)


def test_a_run_without_a_broker_or_a_topic_is_not_started(
    spark: SparkSession, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told in a sentence, and the directory of the checkpoints stays free."""
    topic = kafka.topic()
    kafka.produce(topic, messages(0, 10))
    for servers, source, out, error in (
        ("127.0.0.1:1", topic, topic, SourceError), (kafka.servers, "nowhere", topic, SourceError),
        (kafka.servers, topic, "nowhere", SinkError),
    ):  # fmt: skip
        monkeypatch.setattr(kafka_source, "REACH_S", PATIENCE_S if servers == kafka.servers else 1.0)
        with pytest.raises(error, match=r"no broker of '127.0.0.1:1' answers|no topic 'nowhere'; expected one of"):
            from_topic_to_topic(servers, source, out).run(spark, hosts=1, checkpoint=tmp_path / "c")
    with ended_runs() as runs:
        flow = fn.Dataflow("ends")
        flow.source("pay", fn.kafka(kafka.servers, topic, until="latest")).sink("out", fn.memory())
        runs.append(flow.run(spark, hosts=1, checkpoint=tmp_path / "c"))
        assert runs[0].wait(PATIENCE_S) == "finished", runs[0].error
        assert runs[0].output().count() == 10


def test_a_message_that_does_not_decode_fails_the_run_in_words(spark: SparkSession, kafka: Broker) -> None:
    """Where it is, and how to go on."""
    topic = kafka.topic()
    kafka.produce(topic, [{"value": 1}, b"{broken"])
    with ended_runs() as runs:
        flow = fn.Dataflow("broken")
        flow.source("pay", fn.kafka(kafka.servers, topic)).sink("out", fn.memory())
        runs.append(flow.run(spark, hosts=1))
        assert runs[0].wait(PATIENCE_S) == "failed"
        assert "the message at offset 1 of partition 0 of topic" in str(runs[0].error)
