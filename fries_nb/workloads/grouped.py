"""Dataset 2 of the paper: payments grouped by user, one row with a list of payments for each (Fries, table 3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.workloads.cache import kept
from fries_nb.workloads.models import AMOUNT, CUSTOMER, TERMINAL
from fries_nb.workloads.payments import OTHERWISE, payments_path

PAYMENTS = "payments"
SECONDS = "TX_TIME_SECONDS"
ROW_GROUP = 256


def grouped(payments: pa.Table, longest: int) -> pa.Table:
    """One row for each user, or for ``longest`` payments of one: CUSTOMER_ID, and ``payments``, a list of structs.

    Rows are in the order of users' first payments.

    >>> n = [1, 2, 3, 4]
    >>> table = pa.table({CUSTOMER: [7, 8, 7, 7], TERMINAL: n, AMOUNT: [1.0, 2, 3, 4], SECONDS: n})
    >>> [(row[CUSTOMER], [one[AMOUNT] for one in row[PAYMENTS]]) for row in grouped(table, 2).to_pylist()]
    [(7, [1.0, 3.0]), (7, [4.0]), (8, [2.0])]
    """
    _, first, user = np.unique(payments[CUSTOMER].to_numpy(), return_index=True, return_inverse=True)
    in_order = np.argsort(first[user], kind="stable")  # a user's payments stay in the order of their time
    table = payments.take(in_order)
    key = table[CUSTOMER].to_numpy()
    begins = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    number = np.arange(len(key)) - np.repeat(begins, np.diff(np.r_[begins, len(key)]))
    cuts = np.flatnonzero(number % longest == 0)
    columns = [table[name].combine_chunks() for name in (TERMINAL, AMOUNT, SECONDS)]
    inside = pa.StructArray.from_arrays(columns, names=[TERMINAL, AMOUNT, SECONDS])
    lists = pa.ListArray.from_arrays(pa.array(np.r_[cuts, len(key)], pa.int32()), inside)
    return pa.table({CUSTOMER: pa.array(key[cuts]), PAYMENTS: lists})


def grouped_path(longest: int = 1_000) -> str:
    """A Parquet file of the grouped payments of ``payments_path``; generated once, in row groups that hosts can share.

    Raises:
        SourceError: see ``payments_path``.
    """
    source = Path(payments_path())
    status = source.stat()

    def write(path: Path) -> None:
        table = grouped(pq.read_table(source, columns=[CUSTOMER, TERMINAL, AMOUNT, SECONDS]), longest)
        pq.write_table(table, path, row_group_size=ROW_GROUP)

    name = f"{source.stem}-{status.st_size}-{status.st_mtime_ns}-by-user-{longest}.parquet"
    return str(kept(name, "grouped payments", write, OTHERWISE))
