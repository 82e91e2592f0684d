"""The source of payments: the user's file, the public data set beside the checkout, or a generated month.

The same payments grouped by user, one row with a list of payments for each, are the paper's dataset 2 (Fries, table 3).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.workloads.cache import kept
from fries_nb.workloads.generation import DAY_S, SCHEMA, payments
from fries_nb.workloads.models import AMOUNT, CUSTOMER, TERMINAL

__all__ = ["PAYMENTS", "grouped", "grouped_path", "payments", "payments_path"]

VARIABLE = "FRIES_PAYMENTS"
OTHERWISE = f", or {VARIABLE} to a file of payments"
BESIDE = Path("shared", "data", "payments-2018-04.parquet")
MONTH = 288_062  # payments in the public file, and in the one made in its place
ROW_GROUP = 32_768
GROUPED_ROW_GROUP = 256
PAYMENTS = "payments"
SECONDS = "TX_TIME_SECONDS"


def payments_path(rows: int | None = None) -> str:
    """A Parquet file of payments, with at least ``rows`` of them.

    The first of these is used: the file in the environment variable FRIES_PAYMENTS;
    ``shared/data/payments-2018-04.parquet`` beside the checkout or further up; a month generated from seed 0. If it has
    too few rows it is repeated, with later times and new transaction numbers. Generated files are kept in the user's
    cache directory (``fries_nb`` in XDG_CACHE_HOME or ``~/.cache``), in row groups of 32,768 rows, so that several
    hosts can share them.

    Args:
        rows: minimum number of payments.

    Returns:
        The path.

    Raises:
        SourceError: FRIES_PAYMENTS names no Parquet file of payments; too many rows for TX_TIME_SECONDS; the cache
            directory cannot be written.
    """
    month = _found() or _kept(f"payments-v1-{MONTH}-rows.parquet", lambda: [payments(MONTH)])
    if rows is None or rows <= _rows_of(month):
        return str(month)
    status = month.stat()
    name = f"{month.stem}-{status.st_size}-{status.st_mtime_ns}-{rows}-rows.parquet"
    return str(_kept(name, lambda: _repeated(month, rows)))


def grouped_path(longest: int = 1_000) -> str:
    """A Parquet file of the grouped payments of ``payments_path``; generated once, in row groups that hosts can share.

    Raises:
        SourceError: see ``payments_path``.
    """
    source = Path(payments_path())
    status = source.stat()

    def write(path: Path) -> None:
        table = grouped(pq.read_table(source, columns=[CUSTOMER, TERMINAL, AMOUNT, SECONDS]), longest)
        pq.write_table(table, path, row_group_size=GROUPED_ROW_GROUP)

    name = f"{source.stem}-{status.st_size}-{status.st_mtime_ns}-by-user-{longest}.parquet"
    return str(kept(name, "grouped payments", write, OTHERWISE))


def grouped(table: pa.Table, longest: int) -> pa.Table:
    """One row for each user, or for ``longest`` payments of one: CUSTOMER_ID, and ``payments``, a list of structs.

    Rows are in the order of users' first payments.

    >>> n = [1, 2, 3, 4]
    >>> table = pa.table({CUSTOMER: [7, 8, 7, 7], TERMINAL: n, AMOUNT: [1.0, 2, 3, 4], SECONDS: n})
    >>> [(row[CUSTOMER], [one[AMOUNT] for one in row[PAYMENTS]]) for row in grouped(table, 2).to_pylist()]
    [(7, [1.0, 3.0]), (7, [4.0]), (8, [2.0])]
    """
    _, first, user = np.unique(table[CUSTOMER].to_numpy(), return_index=True, return_inverse=True)
    in_order = np.argsort(first[user], kind="stable")  # a user's payments stay in the order of their time
    table = table.take(in_order)
    key = table[CUSTOMER].to_numpy()
    begins = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    number = np.arange(len(key)) - np.repeat(begins, np.diff(np.r_[begins, len(key)]))
    cuts = np.flatnonzero(number % longest == 0)
    columns = [table[name].combine_chunks() for name in (TERMINAL, AMOUNT, SECONDS)]
    inside = pa.StructArray.from_arrays(columns, names=[TERMINAL, AMOUNT, SECONDS])
    lists = pa.ListArray.from_arrays(pa.array(np.r_[cuts, len(key)], pa.int32()), inside)
    return pa.table({CUSTOMER: pa.array(key[cuts]), PAYMENTS: lists})


def _found() -> Path | None:
    if named := os.environ.get(VARIABLE):
        _rows_of(Path(named))
        return Path(named)
    checkout = Path(__file__).resolve().parents[2]
    return next((above / BESIDE for above in checkout.parents if (above / BESIDE).is_file()), None)


def _rows_of(path: Path) -> int:
    """Number of payments in a file; refuses files of other content."""
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise fn.SourceError(f"cannot read payments from {str(path)!r}: {str(error).splitlines()[0]}") from None
    with file:
        missing = [name for name in SCHEMA.names if name not in file.schema_arrow.names]
        if missing or not file.metadata.num_rows:
            lacks = f"column {missing[0]}" if missing else "any row"
            raise fn.SourceError(f"{str(path)!r} is no file of payments: it is without {lacks}; is {VARIABLE} meant?")
        return int(file.metadata.num_rows)


def _repeated(path: Path, rows: int) -> Iterator[pa.Table]:
    """The file's payments, repeated with a shift of whole days until there are ``rows``."""
    month = pq.read_table(path, columns=SCHEMA.names).cast(SCHEMA)
    days = pc.max(month["TX_TIME_DAYS"]).as_py() + 1
    further = pc.max(month["TRANSACTION_ID"]).as_py() + 1
    if days * DAY_S * -(-rows // month.num_rows) >= 2**31:
        raise fn.SourceError(f"payments_path(rows={rows:,}): these last longer than TX_TIME_SECONDS can say")
    shifts = {
        "TRANSACTION_ID": pa.scalar(further, pa.int64()),
        "TX_DATETIME": pa.scalar(days * DAY_S * 10**9, pa.duration("ns")),
        "TX_TIME_SECONDS": pa.scalar(days * DAY_S, pa.int32()),
        "TX_TIME_DAYS": pa.scalar(days, pa.int32()),
    }
    while rows > 0:
        yield month.slice(0, rows)
        rows -= month.num_rows
        shifted = [pc.add(month[name], shifts[name]) if name in shifts else month[name] for name in SCHEMA.names]
        month = pa.table(shifted, schema=SCHEMA)


def _kept(name: str, tables: Callable[[], Iterable[pa.Table]]) -> Path:
    """A cached file, written if it does not exist."""

    def write(path: Path) -> None:
        with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
            for table in tables():
                writer.write_table(table, row_group_size=ROW_GROUP)

    return kept(name, "payments", write, OTHERWISE)
