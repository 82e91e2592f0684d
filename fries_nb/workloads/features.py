"""The features of the learned models: eight numbers about the recent payments of a customer or a terminal.

The state of a key is a list of payments, **newest first** as everywhere in the running example; ``None`` is an unknown
payment. So ``pad_to_ten`` and ``keep_five`` transform it like the plain list of amounts. Training replays past payments
through the same functions, so models see the same features in a running dataflow as in training.

The label of a payment is only used once it is a day old, the time that card holders need to notice a fraud. (The Fraud
Detection Handbook, chapter 3, waits for a week, which requires a longer memory than ten payments.)

>>> state = []
>>> for amount, day, fraud in ((10.0, 0, 0), (200.0, 1, 1), (30.0, 3, 0)):
...     row = {"TX_AMOUNT": amount, "TX_TIME_SECONDS": day * 86_400, "TX_FRAUD": fraud}
...     remember_payment(state, row, window=5)
>>> dict(zip(FEATURES, features(state), strict=True))
{'amount': 30.0, 'of the mean': 0.292..., 'above the mean': -75.0, 'of the highest': 0.154..., 'earlier': 2.0,
 'hours since': 48.0, 'frauds': 1.0, 'share of frauds': 0.5}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fries_nb.workloads.generation import DAY_S
from fries_nb.workloads.models import AMOUNT

SECONDS = "TX_TIME_SECONDS"
FRAUD = "TX_FRAUD"
FEATURES = (
    "amount", "of the mean", "above the mean", "of the highest", "earlier", "hours since", "frauds", "share of frauds",
)  # fmt: skip
LONG_AGO_H = 48.0
NOTICED_S = DAY_S

Payment = tuple[float, int, int]
"""TX_AMOUNT, TX_TIME_SECONDS, TX_FRAUD."""
Payments = list[Payment | None]


def remember_payment(state: Payments, row: Mapping[str, Any], window: int) -> None:
    """Insert the row's payment in front, and drop payments beyond the window."""
    state.insert(0, (row[AMOUNT], row[SECONDS], row[FRAUD]))
    del state[window:]


def features(state: Sequence[Payment | None]) -> list[float]:
    """The values of ``FEATURES`` for the first payment, given those behind it; its own TX_FRAUD is not used."""
    newest, *older = (payment for payment in state if payment is not None)
    amount, now, _ = newest
    if not older:
        return [amount, 1.0, 0.0, 1.0, 0.0, LONG_AGO_H, 0.0, 0.0]
    spent = [payment[0] for payment in older]
    mean = sum(spent) / len(spent)
    known = [payment[2] for payment in older if now - payment[1] >= NOTICED_S]
    frauds = float(sum(known))
    return [
        amount,
        (amount + 1) / (mean + 1),
        amount - mean,
        (amount + 1) / (max(spent) + 1),
        float(len(older)),
        min(LONG_AGO_H, max(0, now - older[0][1]) / 3600),
        frauds,
        frauds / len(known) if known else 0.0,
    ]
