"""The running example with trained models: a random forest, and the logistic regression that replaces it.

``ForestMerchant`` evaluates a hundred trees for every payment, ``LogisticMerchant`` sums eight products; both are about
as good (``training.learned(...).auc``: 0.91 and 0.92 on the public payments). With its state, a payment costs the
forest some 1,200 times what it costs the regression: 5.9 ms against 5 microseconds on one core of a small machine. They
keep the same state and add the same column, so either can replace the other while the dataflow runs; with ``window=10``
the cheap one provides the running example's three probabilities (``lighter_change``).

Models are trained, or unpickled if they were trained before, by ``open()``, off the data path; ``process`` only scores.
There is no vectorised variant, since a payment is compared with the state of its own key, one payment at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import fries_nb as fn
from fries_nb.workloads.features import Payments, features, remember_payment
from fries_nb.workloads.fraud import LONG, NEW_WEIGHTS, SHORT, Combine, keep_five, pad_to_ten
from fries_nb.workloads.models import CUSTOMER, TERMINAL, refuse_bad
from fries_nb.workloads.training import Learner, Score, learned

Row = dict[str, Any]


@dataclass
class _Scoring:
    """Keeps the last ``window`` payments of a key, newest first, and scores the newest in each of its windows."""

    learner: ClassVar[Learner]
    key: ClassVar[str]
    column: ClassVar[str]

    window: int = SHORT
    _scores: dict[int, Score] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        refuse_bad(type(self).__name__, self.window, 0.0)

    def initial_state(self) -> Payments:
        """An empty list."""
        return []

    def open(self) -> None:
        """Load a model for each window, or train it: some three seconds for a forest, one for a regression."""
        self._scores = {window: learned(self.learner, self.key, window).score() for window in self.windows()}

    def windows(self) -> tuple[int, ...]:
        """The lengths of the scored windows, longest first."""
        return (self.window,)

    def process(self, row: Row, state: Payments) -> Row:
        """Add the payment to the state, and add the score of each window to the row."""
        remember_payment(state, row, self.window)
        for window, score in self._scores.items():
            row[self.column.format(window)] = score(features(state[:window]))
        return row


@dataclass
class _Merchant(_Scoring):
    """Scores a terminal's payments in its own window and, if that is longer, in the newest five as well."""

    key: ClassVar[str] = TERMINAL
    column: ClassVar[str] = "p_m{}"

    def windows(self) -> tuple[int, ...]:
        """The lengths of the scored windows, longest first."""
        return (self.window, SHORT) if self.window > SHORT else (self.window,)


class ForestMerchant(_Merchant):
    """Adds ``p_m<window>``, and ``p_m5`` with a window above 5, by random forests (expensive); keyed by TERMINAL_ID.

    Raises ValueError for an invalid window; ``open`` raises what ``training.learned`` raises.
    """

    learner = Learner.FOREST


class LogisticMerchant(_Merchant):
    """Adds ``p_m<window>``, and ``p_m5`` with a window above 5, by logistic regression (cheap); keyed by TERMINAL_ID.

    Raises ValueError for an invalid window; ``open`` raises what ``training.learned`` raises.
    """

    learner = Learner.LOGISTIC


class LogisticCustomer(_Scoring):
    """Adds ``p_c``, a customer's score, by logistic regression (cheap); keyed by CUSTOMER_ID.

    Raises ValueError for an invalid window; ``open`` raises what ``training.learned`` raises.
    """

    learner = Learner.LOGISTIC
    key = CUSTOMER
    column = "p_c"


def lighter_change(strict: bool = True) -> dict[str, Any]:
    """The change from the expensive FM to the cheap one over ten payments, with an MC of three weights."""
    return {
        "FM": fn.Update(LogisticMerchant(window=LONG), state=pad_to_ten, back=keep_five),
        "MC": Combine(NEW_WEIGHTS, strict=strict),
    }
