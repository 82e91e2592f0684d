"""Kafka as a source, against a bare consumer loop, and as a sink, against one of Parquet files.

The cluster is librdkafka's mock cluster in another process: it is as fast as a broker without disks and network, so
what is measured is what clients do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.connectors.kafka_client import KafkaCluster
from fries_nb.connectors.kafka_sink import COMMITS, KafkaSink
from fries_nb.connectors.parquet_sink import ParquetSink
from fries_nb.connectors.sink import RuntimeSink
from fries_nb.experiments.bench.apart import kafka_loop, mock_cluster
from fries_nb.experiments.bench.maps import LastTen
from fries_nb.experiments.bench.ours import CREDIT_BYTES, Job, flow_seconds, payments_file, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs
from fries_nb.protocol.messages import WorkerId

ROWS = 400_000
PARTITIONS = 16
"""The mock cluster keeps 5 MB of each."""
COMMITTED = (1_000, 10_000)
"""Numbers of rows of a commit."""
COMMITS_A_PAIR = 10


def kafka(scale: float, runs: int) -> BenchReport:
    """Compare W1 from a topic with a bare consumer loop that calls the same function, and writes nothing.

    Then compare commits of some rows to a topic with those to a directory of Parquet files. Start-up time counts on
    neither side.
    """
    rows = int(ROWS * scale)
    with mock_cluster({"payments": PARTITIONS, "one": 1, "scored": 4, COMMITS: 1}) as servers:
        _produce(servers, "payments", rows)
        _produce(servers, "one", 1)
        with spark_session(1) as spark:
            start = median(_seconds(spark, servers, "one") for _ in range(3))
            ours = Job(rows, lambda: _seconds(spark, servers, "payments"), start)
            read = pairs(
                Side("fries_nb, 1 host", ours.flowing_rate),
                Side("bare consumer loop", lambda: kafka_loop(servers, "payments")),
                runs,
                unit="rows/s",
            )
        commits = [_commits(servers, count, runs) for count in COMMITTED]
    added = [commit.a_median - commit.b_median for commit in commits]
    targets = (
        Target("rows/s from a topic, of a bare consumer loop", read.ratio_median, 0.8, unit="times"),
        *(
            Target(f"added to a commit of {count:,} rows", ms, 50.0, at_least=False, unit="ms")
            for count, ms in zip(COMMITTED, added, strict=True)
        ),
    )
    facts = {"rows": rows, "partitions": PARTITIONS, "seconds with one row": start, "cluster": "librdkafka's mock"}
    return BenchReport("kafka", scale, (read, *commits), targets, facts, CREDIT_BYTES)


def _seconds(spark: Any, servers: str, topic: str) -> float:
    def declared(_: object, target: str) -> fn.Dataflow:
        flow = fn.Dataflow("W1")
        payments = flow.source("Src", fn.kafka(servers, topic, until="latest"))
        payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
        return flow

    return flow_seconds(declared, spark, payments_file(1), hosts=1)


def _produce(servers: str, topic: str, rows: int) -> None:
    """Payments as JSON, in batches as large as they may be, since the mock cluster gives a batch at a time."""
    producer = KafkaCluster(servers).producer(linger_ms=20, queue_buffering_max_messages=1_000_000)
    partitions, number = (PARTITIONS if rows > 1 else 1), 0
    for batch in pq.ParquetFile(payments_file(rows)).iter_batches():
        for row in batch.to_pylist():
            producer.produce(topic, msgspec.json.encode(row), partition=number * partitions // rows)
            number += 1
            if number % 10_000 == 0:
                producer.flush()
    producer.flush()


def _commits(servers: str, rows: int, runs: int) -> PairedResult:
    """Milliseconds of one commit, the mean of ``COMMITS_A_PAIR``, prepared parts included."""
    batch = next(pq.ParquetFile(payments_file(rows)).iter_batches(rows))
    with tempfile.TemporaryDirectory(prefix="fries-bench-") as directory:
        topic = KafkaSink("out", KafkaCluster(servers), "scored", f"{directory}/topic", key="CUSTOMER_ID")
        files = ParquetSink(f"{directory}/files")
        sinks: Sequence[RuntimeSink] = (topic, files)
        for sink in sinks:
            sink.claim("bench", f"r{rows}")
        sides = [Side(name, _Committing(sink, batch)) for name, sink in zip(("topic", "files"), sinks, strict=True)]
        return pairs(
            Side(f"commit of {rows:,} rows to a topic", sides[0].measure),
            Side("to Parquet files", sides[1].measure),
            runs,
            unit="ms",
        )


class _Committing:
    """Commits the same rows again and again, and returns the mean time of a commit in milliseconds."""

    def __init__(self, sink: RuntimeSink, batch: pa.RecordBatch) -> None:
        self._sink, self._batch, self._number = sink, batch, 0
        self._writer = sink.open(WorkerId("out", 0), 1)

    def __call__(self) -> float:
        spent = 0.0
        for _ in range(COMMITS_A_PAIR):
            self._writer.write(self._batch)
            parts = self._writer.close_part()
            self._number += 1
            started = time.perf_counter()
            self._sink.prepare(parts)
            self._sink.commit(self._number, parts)
            spent += time.perf_counter() - started
        return spent / COMMITS_A_PAIR * 1e3
