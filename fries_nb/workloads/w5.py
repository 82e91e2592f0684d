"""Workflow W5 (Fries, sections 6.3 and 8.1): two copies of a payment are scored separately, and joined again.

Src -> RE; RE -> FD3 -> S1 -> F3 -> SJ and RE -> F4 -> FD4 -> SJ; SJ -> E1 -> Sink. FD3 scores by customer, and S1
compares that with recent scores at the terminal; FD4 scores by terminal. F3 and F4 drop the same payments, the small
ones, so that no copy waits for a partner that was dropped. SJ joins the copies, E1 combines their scores. RE
replicates, which is one-to-many as a whole and one-to-one along each edge, and SJ is unique per transaction: a change
of one operator therefore needs no synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fries_nb as fn
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER, TERMINAL, Inference, Scorer

Row = dict[str, Any]

IDENTITY = "TRANSACTION_ID"
CUSTOMER_WINDOW = 10
TERMINAL_WINDOW = 50
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


def by_customer(scorer: Scorer) -> Inference:
    """The function of FD3."""
    return Inference(scorer, CUSTOMER_WINDOW, "p_c")


def by_terminal(scorer: Scorer) -> Inference:
    """The function of FD4."""
    return Inference(scorer, TERMINAL_WINDOW, "p_m")


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
    scored = one.map("FD3", by_customer(scorer), key=CUSTOMER, workers=workers)
    left = scored.map("S1", Lately(), key=TERMINAL, workers=workers).filter("F3", Worthwhile(), workers=workers)
    large = other.filter("F4", Worthwhile(), workers=workers)
    right = large.map("FD4", by_terminal(scorer), key=TERMINAL, workers=workers)
    joined = left.self_join("SJ", right, on=IDENTITY, suffix=SUFFIX, workers=workers)
    joined.map("E1", Combined(), workers=workers).sink("Sink", sink, workers=1)
    return flow
