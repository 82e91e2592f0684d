"""Figure 17: the delay of a change of J1 and J4 of W2 by the number of workers, with Fries and with Epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import pause, repeated, running, session, until_full
from fries_nb.experiments.paired_runs import Delays, delays
from fries_nb.experiments.printed_tables import Result
from fries_nb.experiments.scale import ExperimentScale
from fries_nb.experiments.table4 import FILES
from fries_nb.experiments.table7 import CHANGE, PAPER, channels
from fries_nb.workloads.tpcds import Tables, tpcds
from fries_nb.workloads.w2 import NAME, w2_flow

PAPER_S = 20.0
PAPER_BUDGET = 64 << 20
REPEATS = 3
SMALL = 0.2
"""Below this scale a change is made once with each scheduler."""
PAPER_SAYS = "both grow with the number of workers; Fries' stays below Epoch's"


def figure17(scale: ExperimentScale) -> Result:
    """Figure 17: reconfiguration delay by the number of workers."""
    most = max(4, round(400 * scale.of_paper))
    numbers = [workers for workers in PAPER if workers <= most]
    seconds, budget = scale.seconds(PAPER_S), max(1 << 20, int(PAPER_BUDGET * scale.of_paper))
    repeats = REPEATS if scale.of_paper >= SMALL else 1
    tables = tpcds()
    with session() as spark:
        found = {workers: _with(spark, tables, workers, seconds, budget, repeats) for workers in numbers}
    rows = tuple(
        {
            "workers": workers,
            **one.means(),
            "channels": channels(workers)[0],
            "in component": channels(workers)[1],
            "fries ms a worker": _growth(found, workers, "fries ms"),
            "epoch ms a worker": _growth(found, workers, "epoch ms"),
        }
        for workers, one in found.items()
    )
    parameters = {
        "flow": "W2", "change": ", ".join(CHANGE), "seconds": seconds, "budget": budget, "repeats": repeats,
        "rate": "flat out", "chaining": False, "paper": PAPER_SAYS,
    }  # fmt: skip
    return Result("figure17", "reconfiguration delay by number of workers", scale.of_paper, parameters, rows)


def _with(spark: Any, tables: Tables, workers: int, seconds: float, budget: int, repeats: int) -> Delays:
    """One run with this number of workers for each operator; changes begin after the given time, with full queues."""
    with repeated(tables.read(NAME, "Src"), FILES) as path:
        flow = w2_flow(tables, fn.memory(), workers, fn.replay(path))
        with running(flow, spark, workers=workers, budget=budget) as run:
            pause(seconds)
            change = {join: tables.read(NAME, join) for join in CHANGE}
            return delays(run, change, repeats, lambda: until_full(run, "J1"))


def _growth(found: Mapping[int, Delays], workers: int, column: str) -> float | None:
    """Growth of the delay in milliseconds for each additional worker."""
    if workers == 1:
        return None
    return float(found[workers].means()[column] - found[1].means()[column]) / (workers - 1)
