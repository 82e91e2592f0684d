"""A single-threaded loop over Arrow batches: payments in from Parquet, three vectorised functions, out to Parquet.

It has no queues, no rows, no other process, so whatever a runtime adds shows beside it; on a second core a runtime may
be up to twice as fast. In place of the exchange of ``bench exchange`` it exchanges nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pyarrow.parquet as pq

from fries_nb.experiments.bench.maps import THREE

BATCH_ROWS = 65_536


def apply_to_file(source: Path, target: Path, functions: int) -> int:
    """Apply the first functions of ``THREE`` to every payment of a Parquet file."""
    rows, writer = 0, None
    for batch in pq.ParquetFile(source).iter_batches(batch_size=BATCH_ROWS):
        for function in THREE[:functions]:
            batch = function(batch)
        writer = writer or pq.ParquetWriter(target, batch.schema)
        writer.write_batch(batch)
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    return rows


def main() -> None:
    """Run it once and print the rows per second as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--functions", type=int, choices=[2, 3], default=3)
    given = parser.parse_args()
    started = time.perf_counter()
    rows = apply_to_file(given.source, given.target, given.functions)
    print(json.dumps({"rows": rows, "rows_per_second": rows / (time.perf_counter() - started)}))


if __name__ == "__main__":
    main()
