"""Card payments generated from a seed: customers, terminals near them, and three fraud scenarios.

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

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import fries_nb as fn

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

    Returns:
        The table.

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
