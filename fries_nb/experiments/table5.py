"""Table 5: the delay of changes of W4, where U2 makes many payments of one user, with Fries and with Epoch.

The source is as fast as the flow takes it, so queues are as long as credit allows, in front of FD1 and FD2, which wait
for each payment, and in front of F1, by back-pressure. F1 and U2 share a thread, as they are fused in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import repeated, running, session, until_full
from fries_nb.experiments.paired_runs import delays
from fries_nb.experiments.printed_tables import Result
from fries_nb.experiments.scale import ExperimentScale
from fries_nb.workloads.payments import grouped_path
from fries_nb.workloads.scorer import Waits
from fries_nb.workloads.w4 import EachPayment, Flagged, ManyPayments, by_customer, w4_flow

PAPER_COST_MS = 25.0
PAPER_MS = {"F1, U2": (69, 151), "FD1": (47_892, 131_103), "F2": (221_353, 236_153)}
"""Delays in the paper in milliseconds: Fries, Epoch."""
BUDGET = 1
"""Byte budget of a host: each channel has the minimum credit, 64 KB."""
LEAST, LONGEST = 10, 50
"""Most payments in one row, in the smallest and in large experiments; users with more have several rows."""
FULL = 0.05
"""Size, relative to the paper's, from which on rows have ``LONGEST`` payments."""
FILES = 40


def table5(scale: ExperimentScale) -> Result:
    """Table 5: the delay of changes of W4 with Fries and with Epoch."""
    workers = scale.workers(least=1)
    cost_ms = scale.seconds(PAPER_COST_MS, 0.02)
    longest = min(LONGEST, max(LEAST, round(LONGEST * scale.of_paper / FULL)))
    scorer = Waits(cost_ms)
    changes: Mapping[str, Mapping[str, Any]] = {
        "F1, U2": {"F1": ManyPayments(), "U2": EachPayment()},
        "FD1": {"FD1": by_customer(scorer)},
        "F2": {"F2": Flagged()},
    }
    with repeated(grouped_path(longest), FILES) as path, session() as spark:
        flow = w4_flow(fn.replay(path), fn.memory(), scorer, workers)
        with running(flow, spark, workers=workers, budget=BUDGET, chaining=True) as run:
            found = {name: delays(run, change, 1, lambda: until_full(run, "F1")) for name, change in changes.items()}
    rows = tuple(
        {"change": name, **one.row(), "paper fries ms": PAPER_MS[name][0], "paper epoch ms": PAPER_MS[name][1]}
        for name, one in found.items()
    )
    parameters = {
        "flow": "W4", "workers": workers, "cost ms": cost_ms, "payments a row": longest, "budget a channel KiB": 64,
        "chaining": True,
    }  # fmt: skip
    return Result("table5", "reconfiguration delay in W4", scale.of_paper, parameters, rows)
