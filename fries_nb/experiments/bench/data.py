"""The payments of the benchmarks, in a form that both sides can read.

Spark refuses Parquet timestamps in nanoseconds, and distributes a file by row groups; so the file has microseconds, and
row groups small enough for an even distribution.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.experiments.bench.results import DIRECTORY
from fries_nb.workloads.payments import payments_path

ROW_GROUP = 31_250


def payments_file(rows: int, directory: Path = DIRECTORY / "data") -> Path:
    """A Parquet file of exactly ``rows`` payments; created once and kept in ``directory``."""
    path = directory / f"payments-{rows}.parquet"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        table = pq.read_table(payments_path(rows)).slice(0, rows).replace_schema_metadata(None)
        at = table.schema.get_field_index("TX_DATETIME")
        table = table.set_column(at, "TX_DATETIME", table["TX_DATETIME"].cast(pa.timestamp("us")))
        unfinished = path.with_suffix(".unfinished")
        pq.write_table(table, unfinished, row_group_size=ROW_GROUP)
        unfinished.rename(path)
    return path
