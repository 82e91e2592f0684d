"""Figure 16: the delay of a change of W1 by the cost of FD, with Fries and with Epoch.

FD passes a customer's last 10 to 50 amounts to its model, a real network whose cost grows with their number; at the
paper's size a wait replaces it, 25 ms at 10 amounts. Before each change a surge fills the queue in front of FD with the
same number of payments, whatever their cost.
"""

from __future__ import annotations

import time
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import HOSTS, running, session, surge
from fries_nb.experiments.paired_runs import Delays, delays
from fries_nb.experiments.printed_tables import Result
from fries_nb.experiments.scale import PAPER_WORKERS, ExperimentScale
from fries_nb.workloads.models import CUSTOMER
from fries_nb.workloads.payments import payments_path
from fries_nb.workloads.scorer import Inference, Network, Scorer, Waits

WINDOWS = (10, 20, 30, 40, 50)
WAITING = 4_000
"""Payments queued in front of each of FD's workers, at the paper's size."""
PAPER_MS_AN_AMOUNT = 2.5
WIDTH = 256
REPEATS = 3
PAPER = "Epoch's delay grows from 10 to 50 amounts with the operator's cost; Fries' much slower"


def figure16(scale: ExperimentScale) -> Result:
    """Figure 16: reconfiguration delay by the cost of the operator, a queue of 10 to 50 payments a user."""
    is_paper = scale.of_paper == 1
    workers = PAPER_WORKERS if is_paper else HOSTS
    payments = workers * round(scale.seconds(WAITING))
    scorers: dict[int, Scorer] = {n: Waits(PAPER_MS_AN_AMOUNT * n) if is_paper else Network(WIDTH) for n in WINDOWS}
    costs = {n: _cost_ms(scorer, n) for n, scorer in scorers.items()}
    with session() as spark:
        found = {n: _at(spark, Inference(scorer, n), payments, workers) for n, scorer in scorers.items()}
    rows = tuple({"amounts": n, "cost ms": costs[n], **one.means()} for n, one in found.items())
    parameters = {
        "flow": "W1", "workers": workers, "payments waiting": payments, "repeats": REPEATS, "chaining": False,
        "model": "a wait" if is_paper else f"network of width {WIDTH}", "paper": PAPER,
    }  # fmt: skip
    return Result("figure16", "reconfiguration delay by operator cost", scale.of_paper, parameters, rows)


def _cost_ms(scorer: Scorer, window: int) -> float:
    """The mean duration of one score on this machine in milliseconds."""
    scorer.open(window)
    amounts, times = [float(n + 1) for n in range(window)], 20
    began = time.perf_counter()
    for _ in range(times):
        scorer.score(amounts)
    return (time.perf_counter() - began) * 1000 / times


def _at(spark: Any, inference: Inference, payments: int, workers: int) -> Delays:
    """One run with this model; before each change the source fills the queue, and pauses afterwards."""
    flow = fn.Dataflow("W1")
    source = flow.source("Src", fn.replay(payments_path(), rate=1), workers=1)
    source.map("FD", inference, key=CUSTOMER, workers=workers).sink("Sink", fn.memory(), workers=1)
    with running(flow, spark, workers=workers) as run:
        again = {"FD": Inference(inference.scorer, inference.window)}
        return delays(run, again, REPEATS, lambda: surge(run, "Src", "FD", payments))
