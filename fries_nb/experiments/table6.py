"""Table 6: the effect of pruning. The same changes of W5 with Fries, with pruning and without, at full queues.

FD3 and FD4 wait for each tuple, and a surge queues the same amount of work in front of both. With pruning, a change of
one operator overtakes it; without, its marker starts at RE and waits behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import changed, fill, running, session
from fries_nb.experiments.printed_tables import Result
from fries_nb.experiments.scale import ExperimentScale
from fries_nb.run import Run
from fries_nb.workloads.payments import payments_path
from fries_nb.workloads.scorer import Waits
from fries_nb.workloads.w5 import Combined, Worthwhile, by_customer, by_terminal, w5_flow

COST_MS = 25.0
PAPER_QUEUE_S = 400.0
"""Approximate waiting time of FD4's markers in the paper, in seconds."""
PAPER_MS = {
    "FD4": (158, 450_149), "F3": (94, 383_781), "F4": (10, 446), "FD3, FD4": (661_892, 663_460), "E1": (85, 1_122_686),
}  # fmt: skip
"""With pruning, without."""
QUEUED = ("FD3", "FD4")


def table6(scale: ExperimentScale) -> Result:
    """Table 6: the delay of changes of W5 with pruning and without it."""
    workers, queue_s = scale.workers(), scale.seconds(PAPER_QUEUE_S, 1.0)
    pace = workers * 1000 / COST_MS
    scorer = Waits(COST_MS)
    changes: Mapping[str, Mapping[str, Any]] = {
        "FD4": {"FD4": by_terminal(scorer)},
        "F3": {"F3": Worthwhile()},
        "F4": {"F4": Worthwhile()},
        "FD3, FD4": {"FD3": by_customer(scorer), "FD4": by_terminal(scorer)},
        "E1": {"E1": Combined()},
    }
    flow = w5_flow(fn.replay(payments_path(), rate=pace), fn.memory(), scorer, workers)

    def delay_ms(run: Run, name: str, pruning: bool) -> float:
        fill(run, "Src", dict.fromkeys(QUEUED, queue_s * pace), pace)
        return changed(run, changes[name], "fries", pruning).delay_ms

    with session() as spark, running(flow, spark, workers=workers, chaining=True) as run:
        # Those that leave the queues as they are first, so that the surge comes but once for them.
        pruned = {name: delay_ms(run, name, True) for name in changes}
        whole = {name: delay_ms(run, name, False) for name in changes}
    rows = tuple(
        {
            "change": name,
            "pruned ms": pruned[name],
            "unpruned ms": whole[name],
            "times": whole[name] / pruned[name],
            "paper pruned ms": PAPER_MS[name][0],
            "paper unpruned ms": PAPER_MS[name][1],
        }
        for name in changes
    )
    parameters = {"flow": "W5", "workers": workers, "cost ms": COST_MS, "work waiting s": queue_s, "chaining": True}
    return Result("table6", "what pruning saves", scale.of_paper, parameters, rows)
