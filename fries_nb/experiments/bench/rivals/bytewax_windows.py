"""bytewax 0.21 counting payments of each terminal and minute, on the clock of the payments.

Started once for each process as ``python -m fries_nb.experiments.bench.rivals.bytewax_windows SOURCE TARGET I
ADDRESSES``; what is read, written and printed is as in ``bytewax_w1``. Only the used columns are read, and an item is a
tuple of them.

A window of bytewax waits for rows by the clock of its own key. One process reads the payments in order, so that it need
not wait; several read different row groups, and rows of a key come out of order between them by as much.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
from bytewax._bytewax import cli_main
from bytewax.dataflow import Dataflow

from fries_nb.experiments.bench.rivals.bytewax_w1 import Files, Form, Item, Payments

READ = ["TERMINAL_ID", "TX_DATETIME", "TX_AMOUNT"]
WRITTEN = ["TERMINAL_ID", "TIME", "COUNT", "AMOUNT"]
MINUTE = timedelta(seconds=60)
OUT_OF_ORDER = timedelta(days=31)
START = datetime(2018, 1, 1, tzinfo=UTC)

State = tuple[int, float]


def payments(batch: pa.RecordBatch) -> list[Item]:
    """A tuple of the used columns for each row; bytewax wants times with a zone."""
    zoned = [
        column.cast(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(column.type) else column
        for column in (batch.column(name) for name in READ)
    ]
    return list(zip(*(column.to_pylist() for column in zoned), strict=True))


def batch_of(items: list[Item]) -> pa.RecordBatch:
    """A batch of the results."""
    rows = [(key, START + window * MINUTE, *state) for key, (window, state) in items]
    return pa.RecordBatch.from_arrays([pa.array(values) for values in zip(*rows, strict=True)], names=WRITTEN)


FORM = Form(READ, payments, lambda item: str(item[0]), lambda state, item: (state or [], item), batch_of)


def dataflow(source: Path, target: Path, processes: int) -> Any:
    """The bytewax dataflow: source, key by terminal, windows, Parquet."""
    flow = Dataflow("windows")
    keyed = op.key_on("by_terminal", op.input("payments", flow, Payments(source, FORM)), FORM.customer)
    late = timedelta(0) if processes == 1 else OUT_OF_ORDER
    windows = win.fold_window(
        "minutes",
        keyed,
        win.EventClock(lambda item: item[1], late),
        win.TumblingWindower(MINUTE, START),
        lambda: (0, 0.0),
        lambda state, item: (state[0] + 1, state[1] + item[2]),
        lambda one, other: (one[0] + other[0], one[1] + other[1]),
    )
    named = op.map("named", windows.down, lambda result: (result[0], result))
    op.output("counted", named, Files(target, FORM))
    return flow


def main() -> None:
    """Run one process of the dataflow; print its times as lines of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("process", type=int)
    parser.add_argument("addresses", help="host:port of every process, with ';' between")
    given = parser.parse_args()
    addresses = given.addresses.split(";")
    apart = len(addresses) > 1
    cli_main(
        dataflow(given.source, given.target, len(addresses)),
        process_id=given.process if apart else None,
        addresses=addresses if apart else None,
    )


if __name__ == "__main__":
    main()
