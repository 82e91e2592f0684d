"""bytewax 0.21 doing W1: each process reads its share of the row groups, scores by customer, writes Parquet.

Started once for each process as ``python -m fries_nb.experiments.bench.rivals.bytewax_w1 SOURCE TARGET I ADDRESSES``.
Each prints when it took its first batch and when it closed its file, by a clock that the processes share; the rate is
rows over the time from the first of the one to the last of the other, so that starting up counts for nobody.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from fries_nb.experiments.bench.functions import LastTen

Row = dict[str, Any]
BATCH = 1_000
WRITTEN_AT_ONCE = 65_536


def note(event: str) -> None:
    """Prints when an event came, in nanoseconds of the machine's monotonic clock, which all processes share."""
    print(json.dumps({event: time.monotonic_ns()}), flush=True)


def rows_of(source: Path, share: int, shares: int) -> Iterator[list[Row]]:
    """The rows of every ``shares``-th row group, in lists of ``BATCH``."""
    note("first_ns")
    reader = pq.ParquetFile(source)
    names = reader.schema_arrow.names
    for batch in reader.iter_batches(BATCH, row_groups=list(range(share, reader.num_row_groups, shares))):
        arrays = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in batch.columns]
        columns = [array.to_pylist() for array in arrays]
        yield [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class Share(StatelessSourcePartition):
    """One worker's share of the payments."""

    def __init__(self, batches: Iterator[list[Row]]) -> None:
        self._batches = batches

    def next_batch(self) -> list[Row]:
        """The next rows; bytewax takes StopIteration for the end."""
        return next(self._batches)


class Payments(DynamicSource):
    """The payments of a Parquet file, a share to each worker."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Share:
        """This worker's share."""
        return Share(rows_of(self._source, worker_index, worker_count))


class Scored(StatelessSinkPartition):
    """A Parquet file of scored payments."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, list[Row]()
        self._writer: pq.ParquetWriter | None = None

    def write_batch(self, items: list[tuple[str, Row]]) -> None:
        """Takes rows, and writes them when there are enough for a row group."""
        self._rows += [row for _, row in items]
        if len(self._rows) >= WRITTEN_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Writes what is left and closes the file."""
        if self._rows:
            self._flush()
        if self._writer is not None:
            self._writer.close()
        note("last_ns")

    def _flush(self) -> None:
        batch = pa.RecordBatch.from_pylist(self._rows)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, batch.schema)
        self._writer.write_batch(batch)
        self._rows = []


class Files(DynamicSink):
    """A directory with one file of scored payments for each worker."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Scored:
        """This worker's file."""
        return Scored(self._directory / f"{worker_index}.parquet")


def dataflow(source: Path, target: Path) -> Any:
    """The bytewax dataflow: source, key by customer, stateful score, Parquet."""
    model = LastTen()

    def score(state: list[float] | None, row: Row) -> tuple[list[float], Row]:
        state = model.initial_state() if state is None else state
        return state, model.process(row, state)

    flow = Dataflow("w1")
    payments = op.input("payments", flow, Payments(source))
    keyed = op.key_on("by_customer", payments, lambda row: str(row["CUSTOMER_ID"]))
    op.output("scored", op.stateful_map("FD", keyed, score), Files(target))
    return flow


def main() -> None:
    """Runs one process of the dataflow; prints its times as lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("process", type=int)
    parser.add_argument("addresses", help="host:port of every process, with ';' between")
    given = parser.parse_args()
    addresses = given.addresses.split(";")
    apart = len(addresses) > 1
    cli_main(
        dataflow(given.source, given.target),
        process_id=given.process if apart else None,
        addresses=addresses if apart else None,
    )


if __name__ == "__main__":
    main()
