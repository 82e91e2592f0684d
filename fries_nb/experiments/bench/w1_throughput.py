"""W1 flat out: keyed by customer, ten amounts of state a key, a trivial score, Parquet in and out.

``w1`` compares it with a plain loop and with bytewax, ``checkpoint`` with the same flow that takes checkpoints, and
``constraints`` with the same flow under a latency constraint. ``files`` reads a directory that may grow, against a
replay of the same Parquet files. ``identities`` compares it, and the exchange of ``maps``, with the same flow whose
rows carry no identities.

``kafka`` reads a topic, against a bare consumer loop, and writes one, against Parquet files. The cluster is
librdkafka's mock cluster in another process: it is as fast as a broker without disks and network, so what is measured
is what clients do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.connectors.kafka_sink import COMMITS, KafkaSink
from fries_nb.connectors.kafka_source import KafkaCluster
from fries_nb.connectors.parquet_sink import ParquetSink
from fries_nb.connectors.sink import RuntimeSink
from fries_nb.experiments.bench.apart import bytewax, kafka_loop, mock_cluster, plain_loop
from fries_nb.experiments.bench.maps import LastTen, three_apart
from fries_nb.experiments.bench.ours import (
    CREDIT_BYTES,
    HOSTS,
    ROW_GROUP,
    Job,
    flow_seconds,
    job,
    payments_file,
    spark_session,
)
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs
from fries_nb.protocol.messages import WorkerId
from fries_nb.run import with_buffers

ROWS = 1_000_000
LEAN_ROWS = 10_000_000
"""For the hardest rival; of a million rows the start is a third of the time, and ratios differ by a factor of two."""
LEAN = "TRANSACTION_ID", "CUSTOMER_ID", "TX_AMOUNT"
"""Columns of the file for the hardest rival."""
PROCESSES = 2
CHECKPOINT_ROWS = 12_000_000
"""Half a minute on two cores: several checkpoints fall into a run."""
INTERVAL_S = 5.0
CONSTRAINED_ROWS = 4_000_000
LIMIT_MS = 300.0


def scored(source: Path, target: str) -> fn.Dataflow:
    """The dataflow: payments, scored by customer."""
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.replay(str(source)))
    payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


def w1(scale: float, runs: int) -> BenchReport:
    """Compare W1 with a plain Python loop on one host, and with bytewax on as many processes as hosts."""
    # The hardest rival comes first: a plain loop over a file that has no columns but those that the function uses, and
    # an identity. Then the harder form of each: the one that reads only these columns. Start-up time counts on neither
    # side.
    rows, many = int(ROWS * scale), int(LEAN_ROWS * scale)
    path, lean = payments_file(rows), payments_file(many, columns=LEAN)
    with spark_session(PROCESSES) as spark:

        def side(hosts: int, columns: Sequence[str] = ()) -> Side:
            once = partial(flow_seconds, scored, spark, hosts=hosts)
            run = job(once, many if columns else rows, columns)
            return Side(f"fries_nb, {hosts} host{'s' if hosts > 1 else ''}", run.flowing_rate)

        one, two = side(1), side(PROCESSES)
        sides = (
            (side(1, LEAN), Side("plain loop, file of three columns", lambda: plain_loop(lean, "used"))),
            (side(PROCESSES, LEAN), Side("plain loop, file of three columns", lambda: plain_loop(lean, "used"))),
            (one, Side("plain loop, rows of the used columns", lambda: plain_loop(path, "used"))),
            (one, Side("bytewax, 1 process, tuples of three columns", lambda: bytewax(path, rows, 1, "used"))),
            (two, Side("bytewax, 2 processes, tuples of three columns", lambda: bytewax(path, rows, 2, "used"))),
            (one, Side("plain loop, rows of all columns", lambda: plain_loop(path, "all"))),
            (one, Side("bytewax, 1 process, dicts of all columns", lambda: bytewax(path, rows, 1, "all"))),
            (two, Side("bytewax, 2 processes, dicts of all columns", lambda: bytewax(path, rows, 2, "all"))),
        )
        results = tuple(pairs(ours, theirs, runs, unit="rows/s") for ours, theirs in sides)
    targets = (
        Target("rows/s of one host, of a plain loop over three columns", results[0].ratio_median, 1.0, unit="times"),
        Target("rows/s of two hosts, of a plain loop over three columns", results[1].ratio_median, 1.7, unit="times"),
        Target("rows/s, of bytewax with one process", results[3].ratio_median, 1.0, unit="times"),
        Target("rows/s, of bytewax with as many processes", results[4].ratio_median, 1.0, unit="times"),
    )
    return BenchReport("w1", scale, results, targets, {"rows": rows, "of three columns": many}, CREDIT_BYTES)


def checkpoint(scale: float, runs: int) -> BenchReport:
    """Compare the throughput of W1 with a checkpoint every ``INTERVAL_S`` seconds with that without any."""
    # The side without checkpoints commits once, at its end, so the cost of commits is part of the result.
    rows = int(CHECKPOINT_ROWS * scale)
    with spark_session() as spark:
        kept = job(lambda source: flow_seconds(scored, spark, source, checkpoints_s=INTERVAL_S), rows)
        bare = job(lambda source: flow_seconds(scored, spark, source), rows)
        result = pairs(
            Side(f"a checkpoint every {INTERVAL_S:g} s", kept.flowing_rate),
            Side("none", bare.flowing_rate),
            runs,
            unit="rows/s",
        )
    target = Target("throughput with checkpoints, of that without", result.ratio_median, 0.95, unit="times")
    facts = {"rows": rows, "hosts": HOSTS, "seconds without": rows / result.b_median, "state": "ten amounts a customer"}
    return BenchReport("checkpoint", scale, (result,), (target,), facts, CREDIT_BYTES)


def constrained(source: Path, target: str) -> fn.Dataflow:
    """The same under a constraint on all but reading and writing."""
    flow = scored(source, target)
    flow.constrain([fn.edge("Src", "FD"), "FD", fn.edge("FD", "Sink")], latency_ms=LIMIT_MS)
    return flow


def judged(source: Path, target: str) -> fn.Dataflow:
    """The same under a constraint that is measured only."""
    return with_buffers(constrained(source, target), adapt=False)


def constraints(scale: float, runs: int) -> BenchReport:
    """Compare W1 under a constraint that is measured only, and under one that is kept, with W1 without any."""
    # Flat out the queues in front of an operator are as long as credit allows, and no size of a buffer shortens them:
    # the constraint is violated all the time, so all buffers shrink as far as they may.
    rows = int(CONSTRAINED_ROWS * scale)
    with spark_session() as spark:
        bare = job(lambda source: flow_seconds(scored, spark, source), rows)
        measured = job(lambda source: flow_seconds(judged, spark, source), rows)
        kept = job(lambda source: flow_seconds(constrained, spark, source), rows)
        none = Side("none", bare.flowing_rate)
        results = tuple(
            pairs(Side(f"a constraint that is {name}", one.flowing_rate), none, runs, unit="rows/s")
            for name, one in (("measured", measured), ("kept", kept))
        )
    targets = (
        Target("throughput while latencies are measured, of that without", results[0].ratio_median, 0.99, unit="times"),
        Target("throughput under a constraint, of that without", results[1].ratio_median, 0.9, unit="times"),
    )
    facts = {"rows": rows, "hosts": HOSTS, "limit, ms": LIMIT_MS, "seconds without": rows / results[0].b_median}
    return BenchReport("constraints", scale, results, targets, facts, CREDIT_BYTES)


def identities(scale: float, runs: int) -> BenchReport:
    """Compare rows with identities, with cohorts as well, and without, in W1 and in an exchange of batches."""
    # Both sides have the same start, measured once: its scatter is larger than what is looked for.
    rows = int(CONSTRAINED_ROWS * scale)
    results = []
    with spark_session() as spark:
        for name, declare, plain in (
            ("W1 with identities", scored, scored),
            ("W1 with cohorts", in_cohorts, scored),
            ("the exchange with identities", three_apart, three_apart),
        ):
            off = job(partial(flow_seconds, plain, spark), rows)
            on = replace(off, seconds=partial(flow_seconds, declare, spark, payments_file(rows), identities=True))
            on.seconds()
            sides = Side(name, on.flowing_rate), Side("the same without", off.flowing_rate)
            results.append(pairs(*sides, n=runs, unit="rows/s"))
    targets = tuple(Target(f"rows/s of {one.a}, of those without", one.ratio_median, 0.95) for one in results)
    return BenchReport("identities", scale, tuple(results), targets, {"rows": rows, "hosts": HOSTS}, CREDIT_BYTES)


def in_cohorts(source: Path, target: str) -> fn.Dataflow:
    """W1 with the cohorts of customers."""
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.replay(str(source)), cohort="CUSTOMER_ID")
    payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


FILE_ROWS = 4_000_000
FILES = 32
MARKER = "_END"


def files(scale: float, runs: int) -> BenchReport:
    """Compare W1 that reads a directory of Parquet files by ``fn.files`` with W1 that replays them."""
    # Both sides read the same files with one worker, so the difference is that of looking for files, telling whether
    # they are complete, and reading several at a time.
    rows = int(FILE_ROWS * scale)
    with spark_session() as spark:
        growing = job(lambda path: flow_seconds(partial(scored_from, _growing), spark, _divided(path)), rows)
        replayed = job(lambda path: flow_seconds(partial(scored_from, fn.replay), spark, _divided(path)), rows)
        sides = Side("files", growing.flowing_rate), Side("replay", replayed.flowing_rate)
        result = pairs(*sides, n=runs, unit="rows/s, rows flowing")
    target = Target("throughput of files, of that of a replay", result.ratio_median, 0.95)
    facts = {"rows": rows, "files": FILES, "hosts": HOSTS, "seconds with one row": growing.start}
    return BenchReport("files", scale, (result,), (target,), facts, CREDIT_BYTES)


def scored_from(read: Callable[[str], Any], source: Path, target: str) -> fn.Dataflow:
    """W1 over a source."""
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", read(str(source)))
    payments.map("FD", LastTen(), key="CUSTOMER_ID").sink("Sink", fn.parquet(target))
    return flow


def _growing(directory: str) -> Any:
    return fn.files(directory, "parquet", until=MARKER)


def _divided(path: Path) -> Path:
    """A directory with the rows of a file in ``FILES`` files, or one if there are few rows; made once."""
    directory = path.with_suffix(".files")
    if not (directory / MARKER).exists():
        directory.mkdir(parents=True, exist_ok=True)
        table = pq.read_table(path)
        each = -(-table.num_rows // FILES)
        for number, first in enumerate(range(0, table.num_rows, each)):
            pq.write_table(table.slice(first, each), directory / f"{number:03}.parquet", row_group_size=ROW_GROUP)
        (directory / MARKER).touch()
    return directory


KAFKA_ROWS = 400_000
PARTITIONS = 16
"""The mock cluster keeps 5 MB of each."""
COMMITTED = (1_000, 10_000)
"""Numbers of rows of a commit."""
COMMITS_A_PAIR = 10


def kafka(scale: float, runs: int) -> BenchReport:
    """Compare W1 from a topic with a bare consumer loop that calls the same function, and writes nothing."""
    # Then compare commits of some rows to a topic with those to a directory of Parquet files. Start-up time counts on
    # neither side.
    rows = int(KAFKA_ROWS * scale)
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
