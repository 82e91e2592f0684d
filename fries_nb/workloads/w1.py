"""Workflow W1 (Fries, section 8.1): Src -> FD -> Sink, a fraud detector over each customer's recent payments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER, deviation_score, refuse_bad, remember, wait

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
