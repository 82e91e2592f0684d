"""Figure 15: the delay of a change of W1 by the rate of the source, with Fries and with Epoch.

FD's workers process 1,600 payments per second at the paper's size. Above that rate payments queue in front of FD, and
Epoch's markers with them.
"""

from __future__ import annotations

from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import pause, running, session
from fries_nb.experiments.paired_runs import Delays, delays
from fries_nb.experiments.printed_tables import Result
from fries_nb.experiments.scale import ExperimentScale, per_workers
from fries_nb.workloads.payments import payments_path
from fries_nb.workloads.w1 import FraudDetector, w1_flow

RATES = (500, 1_000, 1_500, 2_000, 2_500)
PAPER_S = 120.0
COST_MS = 25.0
REPEATS = 3
PAPER = "log scale: Epoch from about 0.1 s at 500/s to tens of seconds at 2,500/s; Fries stays far below"


def figure15(scale: ExperimentScale) -> Result:
    """Figure 15: reconfiguration delay by the rate of the source."""
    workers, seconds = scale.workers(), scale.seconds(PAPER_S, 1.0)
    with session() as spark:
        found = {rate: _at(spark, per_workers(rate, workers), workers, seconds) for rate in RATES}
    rows = tuple(
        {"paper's rate": rate, "rate": per_workers(rate, workers), **one.means()} for rate, one in found.items()
    )
    parameters = {
        "flow": "W1", "workers": workers, "cost ms": COST_MS, "seconds": seconds, "repeats": REPEATS,
        "chaining": False, "paper": PAPER,
    }  # fmt: skip
    return Result("figure15", "reconfiguration delay by ingestion rate", scale.of_paper, parameters, rows)


def _at(spark: Any, rate: float, workers: int, seconds: float) -> Delays:
    """One run at this rate; its changes begin after the given time."""
    flow = w1_flow(fn.replay(payments_path(), rate=rate), fn.memory(), workers, COST_MS)
    with running(flow, spark, workers=workers) as run:
        pause(seconds)
        return delays(run, {"FD": FraudDetector(COST_MS)}, REPEATS, lambda: None)
