"""The functions that both sides of a comparison call: the same code, so that only the runtimes differ."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from fries_nb.dataflow.operators import batched

WINDOW = 10


@batched
def in_euros(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the amount in euros."""
    return batch.append_column("EUROS", pc.multiply(batch["TX_AMOUNT"], 0.92))


@batched
def by_hour(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds the hour of the day, 0 to 23."""
    seconds = batch["TX_TIME_SECONDS"]
    days = pc.multiply(pc.divide(seconds, 86_400), 86_400)
    return batch.append_column("HOUR", pc.divide(pc.subtract(seconds, days), 3_600))


@batched
def by_risk(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Adds a risk: euros over the hour of the day, a synthetic figure."""
    return batch.append_column("RISK", pc.divide(batch["EUROS"], pc.add(pc.cast(batch["HOUR"], pa.float64()), 1.0)))


THREE = (in_euros, by_hour, by_risk)


def score_of(amount: float, state: list[float]) -> float:
    """The score of ``LastTen``, for rivals that make no dict of a row; appends the amount to ``state``.

    >>> state, same = [], []
    >>> all(score_of(x, state) == LastTen().process({"TX_AMOUNT": x}, same)["SCORE"] for x in map(float, range(20)))
    True
    """
    state.append(amount)
    if len(state) > WINDOW:
        del state[0]
    return amount * len(state) / (sum(state) or 1.0)


class LastTen:
    """W1's FD with a trivial score: a customer's last ten amounts, and the ratio of this one to their mean."""

    def initial_state(self) -> list[float]:
        """An empty list."""
        return []

    def process(self, row: dict[str, Any], state: list[float]) -> dict[str, Any]:
        """Adds ``SCORE``, the amount over the mean of the last ten, this one included."""
        amount = row["TX_AMOUNT"]
        state.append(amount)
        if len(state) > WINDOW:
            del state[0]
        row["SCORE"] = amount * len(state) / (sum(state) or 1.0)
        return row


SPIN_S = 0.025


def is_hundredth(row: dict[str, Any]) -> bool:
    """Whether this is one of the hundredth part of all payments that ``spinning`` gets."""
    return bool(row["TRANSACTION_ID"] % 100 == 0)


def spinning(row: dict[str, Any]) -> dict[str, Any]:
    """Keeps the interpreter busy for 25 ms."""
    until = time.monotonic() + SPIN_S
    while time.monotonic() < until:
        pass
    return row
