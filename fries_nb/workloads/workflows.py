"""The workflows W1 to W5 of Fries (section 8.1), as dataflows with the functions of their operators.

Workflow W1 (Fries, section 8.1): Src -> FD -> Sink, a fraud detector over each customer's recent payments.

Workflow W2 (Fries, section 8.1; TPC-DS query 40): Src -> J1 -> J2 -> J3 -> J4 -> Sink.

For items priced 0.99 to 1.49, the sales of a 60-day period with refunds, and the state of the warehouse. Every join is
with a primary key and partitions its input by that key, so each edge between joins has as many channels as the square
of their workers; with one worker at the sink, that makes 4p^2 + p (table 7).

Workflow W3 (Fries, section 8.1; TPC-DS query 71): {J5, J6, J7} -> U1 -> J8 -> J9 -> Sink, a source for each channel.

The sales of a manager's brands at breakfast and dinner time in November 1999, on the web, by catalog and in stores:
each channel's sales are joined with the month (J5, J6, J7), U1 unites them, J8 joins the item and J9 the time of day.

Workflow W4 (Fries, section 8.1): Src -> F1 -> U2 -> {FD1, FD2} -> F2 -> Sink, over payments grouped per user.

F1 keeps users with many payments, U2 makes a row of each payment, FD1 scores it by its customer's last 10 and FD2 by
its terminal's last 50, and F2 keeps payments that either finds unusual. U2 multiplies tuples, so a change of any
operator below it is synchronised from U2 on. Two operators replace what is one edge each in the paper's drawing: the
``Replicate(U2)`` in front of FD1 and FD2, and the union ``UN`` in front of F2.

Workflow W5 (Fries, sections 6.3 and 8.1): two copies of a payment are scored separately, and joined again.

Src -> RE; RE -> FD3 -> S1 -> F3 -> SJ and RE -> F4 -> FD4 -> SJ; SJ -> E1 -> Sink. FD3 scores by customer, and S1
compares that with recent scores at the terminal; FD4 scores by terminal. F3 and F4 drop the same payments, the small
ones, so that no copy waits for a partner that was dropped. SJ joins the copies, E1 combines their scores. RE
replicates, which is one-to-many as a whole and one-to-one along each edge, and SJ is unique per transaction: a change
of one operator therefore needs no synchronisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.workloads.payments import PAYMENTS
from fries_nb.workloads.scorer import (
    AMOUNT,
    CUSTOMER,
    TERMINAL,
    Inference,
    Scorer,
    deviation_score,
    refuse_bad,
    remember,
    wait,
)
from fries_nb.workloads.tpcds import Tables

Row = dict[str, Any]
Amounts = list[float | None]


@dataclass(frozen=True)
class FraudDetector:
    """Keeps a customer's 10 most recent amounts, newest first, and adds the column ``p``, their score.

    ``cost_ms`` is the time in milliseconds for which it waits on each tuple; the paper's model takes 25 ms. Raises
    ValueError for an invalid window or cost.

    >>> detector, state = FraudDetector(), []
    >>> [round(detector.process({"TX_AMOUNT": amount}, state)["p"], 2) for amount in (10.0, 10.0, 100.0)]
    [0.5, 0.5, 0.81]
    """

    cost_ms: float = 0.0
    window: int = 10

    def __post_init__(self) -> None:
        refuse_bad("FraudDetector", self.window, self.cost_ms)

    def initial_state(self) -> Amounts:
        """An empty list."""
        return []

    def process(self, row: Row, state: Amounts) -> Row:
        """Add the payment to the state, and score it."""
        wait(self.cost_ms)
        remember(state, row[AMOUNT], self.window)
        row["p"] = deviation_score(state)
        return row


def w1_flow(source: Any, sink: Any, workers: int | None = None, cost_ms: float = 0.0) -> fn.Dataflow:
    """Src(1) -> FD(workers) -> Sink(1), FD keyed by customer.

    Args:
        source: description of the source, such as ``fn.replay(path, rate=1_000)``; its rows have the columns
            CUSTOMER_ID and TX_AMOUNT.
        sink: description of the sink, such as ``fn.memory()``.
        workers: parallel instances of FD; the run's default if None.
        cost_ms: milliseconds for which FD waits on each tuple.
    """
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", source, workers=1)
    payments.map("FD", FraudDetector(cost_ms=cost_ms), key=CUSTOMER, workers=workers).sink("Sink", sink, workers=1)
    return flow


@dataclass(frozen=True)
class JoinedQuery:
    """A query of TPC-DS as a workflow: its name in ``Tables``, its joins, and the query over the rows ``{joined}``."""

    name: str
    joins: tuple[str, ...]
    result: str


W2 = JoinedQuery(
    "w2",
    ("J1", "J2", "J3", "J4"),
    """
select w_state, i_item_id,
  sum(case when d_date < date '2000-03-11' then cs_sales_price - coalesce(cr_refunded_cash, 0) else 0 end) sales_before,
  sum(case when d_date >= date '2000-03-11' then cs_sales_price - coalesce(cr_refunded_cash, 0) else 0 end) sales_after
from {joined} group by w_state, i_item_id order by w_state, i_item_id limit 100
""",
)
"""Query 40."""


def w2_flow(tables: Tables, sink: Any, workers: int | None = None, source: Any = None) -> fn.Dataflow:
    """The pipelined part of query 40, with one worker at the sink.

    Args:
        tables: see ``tpcds``.
        sink: a description, such as ``fn.memory()``.
        workers: of all other operators; the run's default if None.
        source: a description, in place of one replay of catalog_sales.
    """

    def table(join: str) -> str:
        return tables.read(W2.name, join)

    flow = fn.Dataflow("W2")
    sales = flow.source("Src", source or fn.replay(tables.read(W2.name, "Src")), workers=workers)
    returned = {"cs_order_number": "cr_order_number", "cs_item_sk": "cr_item_sk"}
    joined = sales.join("J1", table("J1"), returned, how="left", key=True, workers=workers)
    joined = joined.join("J2", table("J2"), {"cs_item_sk": "i_item_sk"}, key=True, workers=workers)
    joined = joined.join("J3", table("J3"), {"cs_sold_date_sk": "d_date_sk"}, key=True, workers=workers)
    joined = joined.join("J4", table("J4"), {"cs_warehouse_sk": "w_warehouse_sk"}, key=True, workers=workers)
    joined.sink("Sink", sink, workers=1)
    return flow


CHANNELS: Mapping[str, str] = {"Web": "J5", "Catalog": "J6", "Store": "J7"}
W3 = JoinedQuery(
    "w3",
    ("J5", "J6", "J7", "J8", "J9"),
    """
select brand_id, brand, t_hour, t_minute, sum(ext_price) ext_price
from {joined} group by brand, brand_id, t_hour, t_minute
order by ext_price desc nulls first, brand_id nulls first, t_hour nulls first
""",
)
"""Query 71."""


def w3_flow(
    tables: Tables, sink: Any, workers: int | None = None, sources: Mapping[str, Any] | None = None
) -> fn.Dataflow:
    """The pipelined part of query 71, with one worker at the sink.

    Args:
        tables: see ``tpcds``.
        sink: a description, such as ``fn.memory()``.
        workers: of all other operators; the run's default if None.
        sources: descriptions of Web, Catalog and Store, in place of one replay of each.
    """
    flow = fn.Dataflow("W3")
    given = sources or {name: fn.replay(tables.read(W3.name, name)) for name in CHANNELS}
    sold = []
    for channel, join in CHANNELS.items():
        sales = flow.source(channel, given[channel], workers=workers)
        month = tables.read(W3.name, join)
        sold.append(sales.join(join, month, {"sold_date_sk": "d_date_sk"}, key=True, workers=workers))
    together = sold[0].union("U1", *sold[1:], workers=workers)
    items = together.join("J8", tables.read(W3.name, "J8"), {"sold_item_sk": "i_item_sk"}, key=True, workers=workers)
    times = items.join("J9", tables.read(W3.name, "J9"), {"time_sk": "t_time_sk"}, key=True, workers=workers)
    times.sink("Sink", sink, workers=1)
    return flow


CUSTOMER_WINDOW = 10
TERMINAL_WINDOW = 50
ADDED = ("Replicate(U2)", "UN")
"""Operators that the paper does not draw."""


@dataclass(frozen=True)
class ManyPayments:
    """Whether a user has at least this many payments.

    >>> ManyPayments(2)({"payments": [1, 2]})
    True
    """

    least: int = 2

    def __call__(self, row: Row) -> bool:
        """Compare the length of the list."""
        return len(row[PAYMENTS]) >= self.least


@dataclass(frozen=True)
class EachPayment:
    """A row for each payment of a user, with the user's id; an ``unnest`` that can be replaced.

    >>> list(EachPayment()({"CUSTOMER_ID": 7, "payments": [{"TX_AMOUNT": 1.0}, {"TX_AMOUNT": 2.0}]}))
    [{'CUSTOMER_ID': 7, 'TX_AMOUNT': 1.0}, {'CUSTOMER_ID': 7, 'TX_AMOUNT': 2.0}]
    """

    def __call__(self, row: Row) -> Iterator[Row]:
        """Split the list."""
        for payment in row[PAYMENTS]:
            yield {CUSTOMER: row[CUSTOMER], **payment}


@dataclass(frozen=True)
class Flagged:
    """Whether a model found a payment unusual.

    >>> Flagged(0.5)({"p": 0.7})
    True
    """

    threshold: float = 0.6

    def __call__(self, row: Row) -> bool:
        """Compare the score with the threshold."""
        return bool(row["p"] > self.threshold)


def by_customer(scorer: Scorer, column: str = "p") -> Inference:
    """The function of FD1, and of FD3 for another column."""
    return Inference(scorer, CUSTOMER_WINDOW, column)


def by_terminal(scorer: Scorer, column: str = "p") -> Inference:
    """The function of FD2, and of FD4 for another column."""
    return Inference(scorer, TERMINAL_WINDOW, column)


def w4_flow(source: Any, sink: Any, scorer: Scorer, workers: int | None = None) -> fn.Dataflow:
    """The dataflow, with one worker for Src and Sink each.

    Args:
        source: description of the source; its rows are those of ``grouped_path()``.
        sink: description of the sink, such as ``fn.memory()``.
        scorer: the model of FD1 and FD2.
        workers: parallel instances of the other operators; the run's default if None.
    """
    flow = fn.Dataflow("W4")
    users = flow.source("Src", source, workers=1).filter("F1", ManyPayments(), workers=workers)
    payments = users.flat_map("U2", EachPayment(), workers=workers)
    first = payments.map("FD1", by_customer(scorer), key=CUSTOMER, workers=workers)
    second = payments.map("FD2", by_terminal(scorer), key=TERMINAL, workers=workers)
    flagged = first.union("UN", second, workers=workers).filter("F2", Flagged(), workers=workers)
    flagged.sink("Sink", sink, workers=1)
    return flow


IDENTITY = "TRANSACTION_ID"
SUFFIX = "_right"


@dataclass(frozen=True)
class Worthwhile:
    """Whether a payment is large enough to be scored.

    >>> Worthwhile(1.0)({"TX_AMOUNT": 0.5})
    False
    """

    least: float = 1.0

    def __call__(self, row: Row) -> bool:
        """Compare the amount."""
        return bool(row[AMOUNT] >= self.least)


@dataclass(frozen=True)
class Lately:
    """Keeps a terminal's moving average of ``p_c``, and adds the distance of this payment's score to it as ``d_c``.

    >>> lately, state = Lately(fading=0.5), []
    >>> [lately.process({"p_c": p}, state)["d_c"] for p in (0.5, 1.0, 0.75)]
    [0.0, 0.5, 0.0]
    """

    fading: float = 0.9

    def initial_state(self) -> list[float]:
        """No score yet; later one number."""
        return []

    def process(self, row: Row, state: list[float]) -> Row:
        """Compare the score, then update the average."""
        before = state[0] if state else row["p_c"]
        row["d_c"] = row["p_c"] - before
        state[:] = [self.fading * before + (1 - self.fading) * row["p_c"]]
        return row


@dataclass(frozen=True)
class Combined:
    """Computes ``p`` from the scores of the two copies, and drops duplicate columns.

    >>> Combined()({"TX_AMOUNT": 1.0, "p_c": 0.2, "TX_AMOUNT_right": 1.0, "p_m": 0.6})
    {'TX_AMOUNT': 1.0, 'p_c': 0.2, 'p_m': 0.6, 'p': 0.4}
    """

    weight: float = 0.5

    def __call__(self, row: Row) -> Row:
        """Weigh the scores."""
        once = {name: value for name, value in row.items() if not name.endswith(SUFFIX)}
        once["p"] = self.weight * row["p_c"] + (1 - self.weight) * row["p_m"]
        return once


def w5_flow(source: Any, sink: Any, scorer: Scorer, workers: int | None = None) -> fn.Dataflow:
    """The dataflow, with one worker for Src and Sink each.

    Args:
        source: description of the source; its rows are those of ``payments_path()``.
        sink: description of the sink, such as ``fn.memory()``.
        scorer: the model of FD3 and FD4.
        workers: parallel instances of the other operators; the run's default if None.
    """
    flow = fn.Dataflow("W5")
    payments = flow.source("Src", source, workers=1, identity=IDENTITY)
    one, other = payments.replicate("RE", 2, workers=workers)
    scored = one.map("FD3", by_customer(scorer, "p_c"), key=CUSTOMER, workers=workers)
    left = scored.map("S1", Lately(), key=TERMINAL, workers=workers).filter("F3", Worthwhile(), workers=workers)
    large = other.filter("F4", Worthwhile(), workers=workers)
    right = large.map("FD4", by_terminal(scorer, "p_m"), key=TERMINAL, workers=workers)
    joined = left.self_join("SJ", right, on=IDENTITY, suffix=SUFFIX, workers=workers)
    joined.map("E1", Combined(), workers=workers).sink("Sink", sink, workers=1)
    return flow
