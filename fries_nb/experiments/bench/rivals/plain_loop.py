"""A plain single-threaded Python loop doing W1: payments in from Parquet, scored by customer, out to Parquet.

As a competent programmer writes it: columns are converted to Python lists a batch at a time, rows are made by zipping
them, and the input's own columns go to the output as they came. ``--columns used`` makes row dicts of the two columns
that the score needs and is the hardest rival; ``--columns all`` makes them of every column, as code does that does not
know which of them the function reads. (A time is taken as its integer: pyarrow would make a pandas Timestamp of each.)
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.experiments.bench.functions import LastTen

USED = ["CUSTOMER_ID", "TX_AMOUNT"]


def columns_of(batch: pa.RecordBatch, names: list[str]) -> list[list[Any]]:
    """The named columns as Python lists."""
    arrays = [batch.column(name) for name in names]
    return [(a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a).to_pylist() for a in arrays]


def score_file(source: Path, target: Path, columns: str) -> int:
    """Score every payment of a Parquet file.

    Args:
        source: the payments.
        target: the Parquet file to write.
        columns: ``used`` to make row dicts of the columns in ``USED``, ``all`` to make them of every column.

    Returns:
        The number of payments.
    """
    model, states, rows = LastTen(), dict[int, list[float]](), 0
    reader = pq.ParquetFile(source)
    names = USED if columns == "used" else reader.schema_arrow.names
    with pq.ParquetWriter(target, reader.schema_arrow.append(pa.field("SCORE", pa.float64()))) as writer:
        for batch in reader.iter_batches():
            scores = []
            for values in zip(*columns_of(batch, names), strict=True):
                row = dict(zip(names, values, strict=True))
                state = states.get(row["CUSTOMER_ID"])
                if state is None:
                    state = states[row["CUSTOMER_ID"]] = model.initial_state()
                scores.append(model.process(row, state)["SCORE"])
            writer.write_batch(batch.append_column("SCORE", pa.array(scores, pa.float64())))
            rows += len(scores)
    return rows


def main() -> None:
    """Run it once and print the rows per second as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--columns", choices=["used", "all"], default="used")
    given = parser.parse_args()
    started = time.perf_counter()
    rows = score_file(given.source, given.target, given.columns)
    print(json.dumps({"rows": rows, "rows_per_second": rows / (time.perf_counter() - started)}))


if __name__ == "__main__":
    main()
