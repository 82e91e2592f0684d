"""Shared parts of the models: a cheap score over recent amounts, and a wait in place of an expensive one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

AMOUNT = "TX_AMOUNT"
CUSTOMER = "CUSTOMER_ID"
TERMINAL = "TERMINAL_ID"


def remember(amounts: list[float | None], newest: float, window: int) -> None:
    """Insert the newest amount in front, and drop amounts beyond the window.

    >>> kept = [30.0, 20.0, 10.0]
    >>> remember(kept, 40.0, window=3)
    >>> kept
    [40.0, 30.0, 20.0]
    """
    amounts.insert(0, newest)
    del amounts[window:]


def deviation_score(amounts: Sequence[float | None]) -> float:
    """How unusual the first of these amounts is: 0.5 if it equals their mean, approaching 1 far above it.

    The logistic function of the deviation, in units of the mean's size plus one; ``None`` is an unknown amount.

    >>> deviation_score([10.0, 10.0, None])
    0.5
    >>> round(deviation_score([100.0, 10.0, 10.0, None, None]), 3)
    0.812
    """
    known = [amount for amount in amounts if amount is not None]
    mean = math.fsum(known) / len(known)
    # The logistic function by way of tanh, which cannot overflow.
    return 0.5 + 0.5 * math.tanh((known[0] - mean) / (abs(mean) + 1) / 2)


def wait(cost_ms: float) -> None:
    """Wait as long as an expensive model would take, without a processor, so that many models can share few cores."""
    if cost_ms:
        time.sleep(cost_ms / 1000)


def refuse_bad(model: str, window: int, cost_ms: float) -> None:
    """Check a window, a whole number of at least 1, and a cost, which must not be negative.

    Raises:
        ValueError: one is invalid.
    """
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise ValueError(f"{model}(window={window!r}): expected a whole number of payments, 1 or more")
    if not cost_ms >= 0:
        raise ValueError(f"{model}(cost_ms={cost_ms!r}): expected milliseconds, 0 or more")
