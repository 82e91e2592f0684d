"""Plain single-threaded loops: no queues, no other process, so whatever a runtime adds shows beside them.

``rows`` does W1 from Parquet to Parquet, as a competent programmer writes it: columns are converted to Python lists a
batch at a time, and the input's own columns go to the output as they came. ``--columns used`` makes row dicts of the
two columns that the score needs, by a literal; over a file with no other columns it is the hardest rival. ``--columns
all`` makes dicts of every column by zipping, as code does that does not know which of them the function reads. (A time
is taken as its integer: pyarrow would make a pandas Timestamp of each.)

``batches`` applies three vectorised functions to Arrow batches, from Parquet to Parquet. On a second core a runtime may
be up to twice as fast. In place of the exchange of ``bench exchange`` it exchanges nothing. Most of its time is that of
writing; ``--small-dictionaries`` writes as our sinks do, which is the hardest rival.

``messages`` does W1 from a topic of Kafka, as JSON, and writes nothing: as confluent-kafka's documentation shows it,
with batches instead of single messages, which is faster. It reads what the topic held when it started, and counts from
the first message on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.connectors.parquet_sink import DICTIONARY_BYTES
from fries_nb.experiments.bench.maps import THREE, LastTen

States = dict[int, list[float]]


def of_used_columns(batch: pa.RecordBatch, model: LastTen, states: States) -> list[float]:
    """The scores of a batch, with a dict of two columns for each row. No generator: it would cost a few per cent."""
    scores = []
    customers, amounts = batch.column("CUSTOMER_ID").to_pylist(), batch.column("TX_AMOUNT").to_pylist()
    for customer, amount in zip(customers, amounts, strict=True):
        state = states.get(customer)
        if state is None:
            state = states[customer] = model.initial_state()
        scores.append(model.process({"CUSTOMER_ID": customer, "TX_AMOUNT": amount}, state)["SCORE"])
    return scores


def of_all_columns(batch: pa.RecordBatch, model: LastTen, states: States) -> list[float]:
    """The scores of a batch, with a dict of every column for each row."""
    scores, names = [], batch.schema.names
    columns = [(a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a).to_pylist() for a in batch.columns]
    for values in zip(*columns, strict=True):
        row = dict(zip(names, values, strict=True))
        state = states.get(row["CUSTOMER_ID"])
        if state is None:
            state = states[row["CUSTOMER_ID"]] = model.initial_state()
        scores.append(model.process(row, state)["SCORE"])
    return scores


FORMS = {"used": of_used_columns, "all": of_all_columns}


def score_file(source: Path, target: Path, columns: str) -> int:
    """Score every payment of a Parquet file."""
    model, states, rows = LastTen(), States(), 0
    reader = pq.ParquetFile(source)
    with pq.ParquetWriter(target, reader.schema_arrow.append(pa.field("SCORE", pa.float64()))) as writer:
        for batch in reader.iter_batches():
            scores = FORMS[columns](batch, model, states)
            writer.write_batch(batch.append_column("SCORE", pa.array(scores, pa.float64())))
            rows += len(scores)
    return rows


BATCH_ROWS = 65_536


def apply_to_file(source: Path, target: Path, dictionary_bytes: int | None = None) -> int:
    """Apply ``THREE`` to every payment of a Parquet file; with a limit of dictionaries, or pyarrow's own."""
    rows, writer = 0, None
    options = {} if dictionary_bytes is None else {"dictionary_pagesize_limit": dictionary_bytes}
    for batch in pq.ParquetFile(source).iter_batches(batch_size=BATCH_ROWS):
        for function in THREE:
            batch = function(batch)
        writer = writer or pq.ParquetWriter(target, batch.schema, **options)
        writer.write_batch(batch)
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    return rows


MESSAGES = 10_000


def score_topic(servers: str, topic: str) -> tuple[int, float]:
    """Score every payment of a topic; the number of payments, and the seconds from the first one on."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "loop", "enable.auto.commit": False})
    parts = [TopicPartition(topic, number, 0) for number in consumer.list_topics(topic).topics[topic].partitions]
    left = sum(consumer.get_watermark_offsets(part)[1] for part in parts)
    consumer.assign(parts)
    model, states, rows, started = LastTen(), dict[int, list[float]](), 0, 0.0
    while rows < left:
        for message in consumer.consume(MESSAGES, 0.1):
            started = started or time.perf_counter()
            row = json.loads(message.value())
            state = states.get(row["CUSTOMER_ID"])
            if state is None:
                state = states[row["CUSTOMER_ID"]] = model.initial_state()
            model.process(row, state)
            rows += 1
    return rows, time.perf_counter() - started


def _measured(given: argparse.Namespace) -> tuple[int, float]:
    """The rows of a loop, and its seconds."""
    if given.loop == "messages":
        return score_topic(given.servers, given.topic)
    started = time.perf_counter()
    if given.loop == "rows":
        rows = score_file(given.source, given.target, given.columns)
    else:
        small = DICTIONARY_BYTES if given.small_dictionaries else None
        rows = apply_to_file(given.source, given.target, small)
    return rows, time.perf_counter() - started


def main() -> None:
    """Run a loop once and print the rows per second as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    loops = parser.add_subparsers(dest="loop", required=True)
    by_row, by_batch, by_message = (loops.add_parser(name) for name in ("rows", "batches", "messages"))
    for loop in (by_row, by_batch):
        loop.add_argument("source", type=Path)
        loop.add_argument("target", type=Path)
    by_row.add_argument("--columns", choices=[*FORMS], default="used")
    by_batch.add_argument("--small-dictionaries", action="store_true")
    by_message.add_argument("servers")
    by_message.add_argument("topic")
    rows, seconds = _measured(parser.parse_args())
    print(json.dumps({"rows": rows, "rows_per_second": rows / seconds}))


if __name__ == "__main__":
    main()
