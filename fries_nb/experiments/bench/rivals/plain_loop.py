"""A plain single-threaded Python loop doing W1: payments in from Parquet, scored by customer, out to Parquet.

As a competent programmer writes it: columns are converted to Python lists a batch at a time, and the input's own
columns go to the output as they came. ``--columns used`` makes row dicts of the two columns that the score needs, by a
literal; over a file with no other columns it is the hardest rival. ``--columns all`` makes dicts of every column by
zipping, as code does that does not know which of them the function reads. (A time is taken as its integer: pyarrow
would make a pandas Timestamp of each.)
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.experiments.bench.maps import LastTen

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


def main() -> None:
    """Run it once and print the rows per second as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--columns", choices=[*FORMS], default="used")
    given = parser.parse_args()
    started = time.perf_counter()
    rows = score_file(given.source, given.target, given.columns)
    print(json.dumps({"rows": rows, "rows_per_second": rows / (time.perf_counter() - started)}))


if __name__ == "__main__":
    main()
