"""Workflow W4 (Fries, section 8.1): Src -> F1 -> U2 -> {FD1, FD2} -> F2 -> Sink, over payments grouped per user.

F1 keeps users with many payments, U2 makes a row of each payment, FD1 scores it by its customer's last 10 and FD2 by
its terminal's last 50, and F2 keeps payments that either finds unusual. U2 multiplies tuples, so a change of any
operator below it is synchronised from U2 on. Two operators replace what is one edge each in the paper's drawing: the
``Replicate(U2)`` in front of FD1 and FD2, and the union ``UN`` in front of F2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.workloads.payments import PAYMENTS
from fries_nb.workloads.scorer import CUSTOMER, TERMINAL, Inference, Scorer

Row = dict[str, Any]

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


def by_customer(scorer: Scorer) -> Inference:
    """The function of FD1."""
    return Inference(scorer, CUSTOMER_WINDOW)


def by_terminal(scorer: Scorer) -> Inference:
    """The function of FD2."""
    return Inference(scorer, TERMINAL_WINDOW)


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
