"""The source of payments: the user's file, the public data set beside the checkout, or a generated month.

The same payments grouped by user, one row with a list of payments for each, are the paper's dataset 2 (Fries, table 3).

The user's cache directory, for files that are generated once.

Card payments generated from a seed: customers, terminals near them, and three fraud scenarios.

The columns and the model are those of the public simulated data set of the Fraud Detection Handbook (Le Borgne et al.,
"Reproducible machine learning for credit card fraud detection", chapter 3): every customer has a mean amount, a place
and a level of activity, and pays at terminals nearby. A payment is a fraud by scenario

1. if its amount is above 220;
2. if its terminal is compromised: two more every day, for 28 days;
3. if its customer's card is stolen: three more every day, for 14 days; a third of their payments then grow fivefold.

Generation is vectorised: ten million payments take seconds, in chronological order.

>>> table = payments(1000, seed=7)
>>> table.num_rows, table.column_names[:5]
(1000, ['TRANSACTION_ID', 'TX_DATETIME', 'CUSTOMER_ID', 'TERMINAL_ID', 'TX_AMOUNT'])
>>> table.equals(payments(1000, seed=7))
True
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER, TERMINAL


def cache_directory() -> Path:
    """The directory: ``fries_nb`` in XDG_CACHE_HOME or ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fries_nb"


def unwritable(what: str, cache: Path, error: OSError, otherwise: str = "") -> fn.SourceError:
    """The error for a cache directory that cannot be written; ``otherwise`` names an alternative for the user."""
    return fn.SourceError(
        f"cannot keep {what} in {str(cache)!r}: {error.strerror or error}; "
        f"set XDG_CACHE_HOME to a directory that can be written{otherwise}"
    )


def kept(name: str, what: str, make: Callable[[Path], None], otherwise: str = "") -> Path:
    """A cached file or directory; generated if it does not exist.

    Args:
        name: its name in the cache.
        what: its content, for error messages.
        make: writes it at the given path.
        otherwise: an alternative for the user, for error messages.

    Raises:
        SourceError: the cache directory cannot be written.
    """
    cache = cache_directory()
    if (cache / name).exists():
        return cache / name
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # Written to a temporary directory and moved into place, so that concurrent readers and writers see whole files.
        with tempfile.TemporaryDirectory(dir=cache) as aside:
            make(Path(aside, name))
            _move(Path(aside, name), cache / name)
    except OSError as error:
        raise unwritable(what, cache, error, otherwise) from None
    return cache / name


def _move(made: Path, place: Path) -> None:
    """Move the result into place; if another process has put an equal directory there, it is kept."""
    try:
        made.replace(place)
    except OSError:
        if not place.is_dir():
            raise


SCHEMA = pa.schema(
    [
        ("TRANSACTION_ID", pa.int64()),
        ("TX_DATETIME", pa.timestamp("ns")),
        ("CUSTOMER_ID", pa.int32()),
        ("TERMINAL_ID", pa.int32()),
        ("TX_AMOUNT", pa.float64()),
        ("TX_TIME_SECONDS", pa.int32()),
        ("TX_TIME_DAYS", pa.int32()),
        ("TX_FRAUD", pa.int32()),
        ("TX_FRAUD_SCENARIO", pa.int32()),
    ]
)
FIRST_DAY = np.datetime64("2018-04-01", "ns")
DAY_S = 86_400
PAYMENTS_A_DAY = 1.92  # of a customer, on average; that of the public data

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def payments(rows: int, seed: int = 0, customers: int = 5_000, terminals: int = 10_000) -> pa.Table:
    """A table of payments in chronological order; equal for equal arguments.

    Args:
        rows: number of payments; they span as many days as these customers need for them.
        seed: a whole number of at least 0.
        customers: number of customers; CUSTOMER_ID runs from 0.
        terminals: number of terminals; TERMINAL_ID runs from 0.

    Raises:
        SourceError: a number is out of range.
    """
    _refuse_bad(rows, customers, terminals)
    rng = np.random.default_rng([seed, customers, terminals])
    days = max(1, round(rows / (PAYMENTS_A_DAY * customers)))
    seconds = _times(rng, rows, days)
    day = seconds // DAY_S
    mean = rng.uniform(5, 100, customers)
    customer = _by_activity(rng, rows, customers)
    terminal = _nearby(rng, customer, customers, terminals)
    amount = _amounts(rng, mean[customer])
    stolen = _taken(rng, customer, day, customers, a_day=3, lasting=14) & (rng.random(rows) < 1 / 3)
    amount[stolen] *= 5
    scenario = np.zeros(rows, np.int32)
    scenario[amount > 220] = 1
    scenario[_taken(rng, terminal, day, terminals, a_day=2, lasting=28)] = 2
    scenario[stolen] = 3
    columns = [
        np.arange(rows, dtype=np.int64),
        FIRST_DAY + seconds.astype("timedelta64[s]").astype("timedelta64[ns]"),
        customer.astype(np.int32),
        terminal.astype(np.int32),
        np.round(amount, 2),
        seconds.astype(np.int32),
        day.astype(np.int32),
        (scenario > 0).astype(np.int32),
        scenario,
    ]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


def _refuse_bad(rows: int, customers: int, terminals: int) -> None:
    for name, number, least in (("rows", rows, 0), ("customers", customers, 1), ("terminals", terminals, 1)):
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number < 2**31:
            raise fn.SourceError(f"payments(...): {name}={number!r}; expected a whole number from {least} on")
    if rows / (PAYMENTS_A_DAY * customers) * DAY_S >= 2**31 - DAY_S:
        raise fn.SourceError(
            f"payments(...): {rows:,} rows of {customers:,} customers last longer than TX_TIME_SECONDS can say; "
            f"expected at least {int(rows / (PAYMENTS_A_DAY * 24_000)) + 1:,} customers"
        )


def _times(rng: np.random.Generator, rows: int, days: int) -> Ints:
    """Seconds since the first day, ascending; most payments are around noon."""
    second = rng.normal(DAY_S / 2, 20_000, rows).astype(np.int64)
    outside = (second < 0) | (second >= DAY_S)
    second[outside] = rng.integers(0, DAY_S, int(outside.sum()))
    times: Ints = rng.integers(0, days, rows) * DAY_S + second
    times.sort()
    return times


def _by_activity(rng: np.random.Generator, rows: int, customers: int) -> Ints:
    """The customer of each payment: customers make from none to four payments a day, each at an individual rate."""
    share = np.cumsum(rng.uniform(0, 4, customers))
    chosen: Ints = np.searchsorted(share, rng.random(rows) * share[-1], side="right")
    return np.minimum(chosen, customers - 1)


def _nearby(rng: np.random.Generator, customer: Ints, customers: int, terminals: int) -> Ints:
    """The terminal of each payment: the map is a grid of squares with some 40 terminals; customers stay in one."""
    squares = max(1, int((terminals / 40) ** 0.5)) ** 2
    square_of = np.sort(rng.integers(0, squares, terminals))
    in_order = rng.permutation(terminals)
    first = np.searchsorted(square_of, np.arange(squares + 1))
    home = rng.integers(0, squares, customers)[customer]
    # A square without terminals borrows the next one's first.
    place = first[home] + (rng.random(len(customer)) * (first[home + 1] - first[home])).astype(np.int64)
    chosen: Ints = in_order[np.minimum(place, terminals - 1)]
    return chosen


def _amounts(rng: np.random.Generator, mean: Floats) -> Floats:
    """Normally distributed with half the mean as deviation; negative values are redrawn, up to twice the mean."""
    amount = rng.normal(mean, mean / 2)
    negative = amount < 0
    amount[negative] = rng.uniform(0, 2 * mean[negative])
    return amount


def _taken(rng: np.random.Generator, who: Ints, day: Ints, population: int, a_day: int, lasting: int) -> Bools:
    """Whether a card or terminal is compromised on a day.

    Each is compromised once in a period, long enough that ``a_day`` start every day, with an individual phase. In a
    small population the period is stretched, so that most are honest at any time.
    """
    period = max(population // a_day, 10 * lasting)
    phase = rng.integers(0, period, population)
    taken: Bools = (day - phase[who]) % period < lasting
    return taken


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
