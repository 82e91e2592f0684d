"""bytewax 0.21 doing W1: each process reads its share of the row groups, scores by customer, writes Parquet.

Started once for each process as ``python -m fries_nb.experiments.bench.rivals.bytewax_w1 SOURCE TARGET I ADDRESSES``.
Each prints when it read its first batch and when it closed its file, on a clock that the processes share; the rate is
rows over the time from the earliest of the former to the latest of the latter, so start-up time does not count.

It is written in two forms. ``--columns used`` is the harder rival: it reads three columns, and an item is a tuple of
their values. ``--columns all`` makes a dict of every column for each row, as code does that does not know which of them
the function reads.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from fries_nb.experiments.bench.maps import LastTen, score_of

Item = Any
Amounts = list[float]
BATCH = 1_000
WRITTEN_AT_ONCE = 65_536
USED = ["TRANSACTION_ID", "CUSTOMER_ID", "TX_AMOUNT"]
SCORED = [*USED, "SCORE"]


@dataclass(frozen=True)
class Form:
    """How a payment is represented as a bytewax item.

    Attributes:
        columns: the columns to read; ``None`` for all of them.
        items: the payments of a batch as items.
        customer: the key of an item.
        score: from the state of the key (``None`` at first) and an item to the new state and the scored item.
        batch: scored items as a batch for Parquet.
    """

    columns: list[str] | None
    items: Callable[[pa.RecordBatch], list[Item]]
    customer: Callable[[Item], str]
    score: Callable[[Amounts | None, Item], tuple[Amounts, Item]]
    batch: Callable[[list[Item]], pa.RecordBatch]


def dicts(batch: pa.RecordBatch) -> list[Item]:
    """A dict for each row, with all columns; a time is taken as its integer."""
    arrays = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in batch.columns]
    columns = [array.to_pylist() for array in arrays]
    return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def score_dict(state: Amounts | None, row: Item) -> tuple[Amounts, Item]:
    """Score a row with the class that both sides of the comparison run."""
    model = LastTen()
    state = model.initial_state() if state is None else state
    return state, model.process(row, state)


def tuples(batch: pa.RecordBatch) -> list[Item]:
    """A tuple of the used columns for each row."""
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def score_tuple(state: Amounts | None, payment: Item) -> tuple[Amounts, Item]:
    """Score a tuple with the same arithmetic."""
    state = [] if state is None else state
    number, customer, amount = payment
    return state, (number, customer, amount, score_of(amount, state))


def batch_of_tuples(scored: list[Item]) -> pa.RecordBatch:
    """A batch whose columns are the positions of the tuples."""
    return pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*scored, strict=True)], names=SCORED)


FORMS = {
    "used": Form(USED, tuples, lambda payment: str(payment[1]), score_tuple, batch_of_tuples),
    "all": Form(None, dicts, lambda row: str(row["CUSTOMER_ID"]), score_dict, pa.RecordBatch.from_pylist),
}


def note(event: str) -> None:
    """Print the time of an event, in nanoseconds of the machine's monotonic clock, which all processes share."""
    print(json.dumps({event: time.monotonic_ns()}), flush=True)


def shared_batches(source: Path, share: int, shares: int, form: Form) -> Iterator[list[Item]]:
    """The payments of every ``shares``-th row group from ``share`` on, as items, in lists of ``BATCH``."""
    note("first_ns")
    reader = pq.ParquetFile(source)
    groups = list(range(share, reader.num_row_groups, shares))
    yield from map(form.items, reader.iter_batches(BATCH, row_groups=groups, columns=form.columns))


class Share(StatelessSourcePartition):
    """One worker's share of the payments."""

    def __init__(self, batches: Iterator[list[Item]]) -> None:
        self._batches = batches

    def next_batch(self) -> list[Item]:
        """The next items; bytewax takes StopIteration for the end."""
        return next(self._batches)


class Payments(DynamicSource):
    """The payments of a Parquet file, a share for each worker."""

    def __init__(self, source: Path, form: Form) -> None:
        self._source = source
        self._form = form

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Share:
        """This worker's share."""
        return Share(shared_batches(self._source, worker_index, worker_count, self._form))


class Scored(StatelessSinkPartition):
    """A Parquet file of scored payments."""

    def __init__(self, path: Path, form: Form) -> None:
        self._path, self._form, self._items = path, form, list[Item]()
        self._writer: pq.ParquetWriter | None = None

    def write_batch(self, items: list[tuple[str, Item]]) -> None:
        """Take items; write them as soon as they fill a row group."""
        self._items += [item for _, item in items]
        if len(self._items) >= WRITTEN_AT_ONCE:
            self._flush()

    def close(self) -> None:
        """Write the rest and close the file."""
        if self._items:
            self._flush()
        if self._writer is not None:
            self._writer.close()
        note("last_ns")

    def _flush(self) -> None:
        batch = self._form.batch(self._items)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, batch.schema)
        self._writer.write_batch(batch)
        self._items = []


class Files(DynamicSink):
    """A directory with one file of scored payments for each worker."""

    def __init__(self, directory: Path, form: Form) -> None:
        self._directory = directory
        self._form = form

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Scored:
        """This worker's file."""
        return Scored(self._directory / f"{worker_index}.parquet", self._form)


def dataflow(source: Path, target: Path, form: Form) -> Any:
    """The bytewax dataflow: source, key by customer, stateful score, Parquet."""
    flow = Dataflow("w1")
    payments = op.input("payments", flow, Payments(source, form))
    keyed = op.key_on("by_customer", payments, form.customer)
    op.output("scored", op.stateful_map("FD", keyed, form.score), Files(target, form))
    return flow


def main() -> None:
    """Run one process of the dataflow; print its times as lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("process", type=int)
    parser.add_argument("addresses", help="host:port of every process, with ';' between")
    parser.add_argument("--columns", choices=list(FORMS), default="used")
    given = parser.parse_args()
    addresses = given.addresses.split(";")
    apart = len(addresses) > 1
    cli_main(
        dataflow(given.source, given.target, FORMS[given.columns]),
        process_id=given.process if apart else None,
        addresses=addresses if apart else None,
    )


if __name__ == "__main__":
    main()
