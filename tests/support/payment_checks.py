"""A check of payments that goes round until it is decided: each round brings more evidence, at most so many of them.

The evidence of a round stands for an answer that the bank or the customer has to be asked for: a number
from 0 (harmless) to 1 (fraud) that depends on the payment and the round only. The check decides when the mean of what
it knows is further from a half than a margin that shrinks with every round, and at the last round in any case.

A payment that goes round again is checked by the function of that time. So the check may be replaced inside of the
loop, by one with another margin or more rounds, and the audit shows whether any payment met both.

>>> row, check = entered({"TRANSACTION_ID": 7, "TX_AMOUNT": 80.0}), Check()
>>> while not row["decided"]:
...     row = check(row)
>>> row["round"], row["fraud"], row["checked_by"]
(7, True, 1)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.workloads.scorer import AMOUNT, wait

Row = dict[str, Any]

IDENTITY = "TRANSACTION_ID"
LARGE = 100.0
"""Amount from which on a payment is suspected before anything else is known."""
MOST_ROUNDS = 8


def evidence(payment: int, number: int) -> float:
    """The evidence of a round, from 0 to 1."""
    return hashlib.blake2b(f"{payment} {number}".encode(), digest_size=1).digest()[0] / 255


def entered(row: Row) -> Row:
    """A payment in front of its first round; its amount is the evidence so far."""
    row["round"] = 0
    row["evidence"] = row[AMOUNT] / (row[AMOUNT] + LARGE)
    row["decided"] = row["fraud"] = False
    row["checked_by"] = 0
    return row


@dataclass(frozen=True)
class Check:
    """Adds the evidence of another round, and decides.

    Attributes:
        margin: distance of the mean from a half that decides in the first round; in round n it is divided by n.
    """

    margin: float = 0.4
    most: int = MOST_ROUNDS  # number of rounds after which it decides in any case
    version: int = 1  # column ``checked_by`` of a payment that it has checked
    cost_ms: float = 0.0  # milliseconds for which it waits on each payment

    def __post_init__(self) -> None:
        if not self.margin >= 0 or self.most < 1:
            raise ValueError(f"{self}: expected a margin of 0 or more, and at least one round")

    def __call__(self, row: Row) -> Row:
        """Check a payment."""
        wait(self.cost_ms)
        number = row["round"] + 1
        total = row["evidence"] + evidence(row[IDENTITY], number)
        mean = total / (number + 1)
        row["round"], row["evidence"] = number, total
        row["decided"] = number >= self.most or abs(mean - 0.5) >= self.margin / number
        row["fraud"] = mean > 0.5
        row["checked_by"] = self.version
        return row


def is_decided(row: Row) -> bool:
    """Whether a payment leaves the loop."""
    return bool(row["decided"])


def checks_flow(source: Any, sink: Any, check: Check | None = None, workers: int | None = None) -> fn.Dataflow:
    """The dataflow payments -> Enter -> Rounds -> verdicts; in the loop are Check and Decided.

    Args:
        source: description of the source; its rows have the columns TRANSACTION_ID and TX_AMOUNT.
        sink: description of the sink, such as ``fn.memory()``.
        check: the function of Check; ``Check()`` by default.
        workers: parallel instances of each operator; the run's default if None.
    """
    first = check or Check()

    def body(payments: Any) -> Any:
        checked = payments.map("Check", first, workers=workers)
        return checked.split("Decided", is_decided, workers=workers)

    flow = fn.Dataflow("checks")
    payments = flow.source("payments", source, identity=IDENTITY).map("Enter", entered, workers=workers)
    payments.iterate("Rounds", body, workers=workers, one_to_one=True).sink("verdicts", sink)
    return flow
