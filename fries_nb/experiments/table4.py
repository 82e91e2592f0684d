"""Table 4: the delay of changes of W2 and W3, joins of TPC-DS, with Fries and with Epoch.

The sources are as fast as the joins take their rows, so queues are as long as credit allows. Joins are changed to equal
tables.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import repeated, running, session, until_full
from fries_nb.experiments.paired_runs import Delays, delays
from fries_nb.experiments.printed_tables import Result
from fries_nb.experiments.scale import ExperimentScale
from fries_nb.planning import cover
from fries_nb.workloads import w2, w3
from fries_nb.workloads.tpcds import Tables, tpcds

PAPER_MS = {
    ("W2", "J1"): (46, 11_432),
    ("W2", "J2"): (44, 11_709),
    ("W2", "J1, J3"): (1_664, 12_339),
    ("W2", "J1, J4"): (1_702, 12_361),
    ("W2", "J3, J4"): (387, 13_767),
    ("W3", "J5"): (87, 4_127),
    ("W3", "J5, J6"): (127, 8_352),
    ("W3", "J5, J6, J7, J8"): (447, 19_608),
    ("W3", "J5, J6, J7, J9"): (526, 19_717),
    ("W3", "J7, J8, J9"): (1_340, 20_532),
}
"""By flow and change: Fries, Epoch."""
BUDGET, LARGEST_BUDGET = 960 << 20, 48 << 20
"""Byte budget of a host at full size, and its maximum: ten seconds of work for two workers a join."""
FILES = 400
"""Number of times that a table is replayed, enough for slow machines."""
REPEATS = 1


def table4(scale: ExperimentScale) -> Result:
    """Table 4: the delay of changes of W2 and W3 with Fries and with Epoch."""
    workers, budget = scale.workers(), min(LARGEST_BUDGET, int(BUDGET * scale.of_paper))
    tables = tpcds()
    with session() as spark:
        found = {**_w2(spark, tables, workers, budget), **_w3(spark, tables, workers, budget)}
    rows = tuple(
        {
            "flow": flow,
            "change": change,
            **one.row(),
            "longest path": longest,
            "paper fries ms": PAPER_MS[flow, change][0],
            "paper epoch ms": PAPER_MS[flow, change][1],
        }
        for (flow, change), (one, longest) in found.items()
    )
    parameters = {"workers": workers, "budget": budget, "tpcds scale": 0.05, "rate": "flat out", "chaining": False}
    return Result("table4", "reconfiguration delay in W2 and W3", scale.of_paper, parameters, rows)


Found = dict[tuple[str, str], tuple[Delays, int]]


def _w2(spark: Any, tables: Tables, workers: int, budget: int) -> Found:
    with repeated(tables.read(w2.NAME, "Src"), FILES) as path:
        flow = w2.w2_flow(tables, fn.memory(), workers, fn.replay(path))
        return _delays(spark, flow, tables, w2.NAME, ["J1"], workers, budget)


def _w3(spark: Any, tables: Tables, workers: int, budget: int) -> Found:
    with ExitStack() as open_:
        paths = {
            name: open_.enter_context(repeated(tables.read(w3.NAME, name), FILES)) for name in w3.CHANNELS
        }  # fmt: skip
        flow = w3.w3_flow(tables, fn.memory(), workers, {name: fn.replay(path) for name, path in paths.items()})
        return _delays(spark, flow, tables, w3.NAME, list(w3.CHANNELS.values()), workers, budget)


def _delays(
    spark: Any, flow: fn.Dataflow, tables: Tables, name: str, first: list[str], workers: int, budget: int
) -> Found:
    """The delays of the table's changes of one flow, made once the queues of its first joins are full."""
    changes = [change for flow_, change in PAPER_MS if flow_ == flow.name]
    found: Found = {}
    with running(flow, spark, workers=workers, budget=budget) as run:
        for change in changes:
            targets = {join: tables.read(name, join) for join in change.split(", ")}
            found[flow.name, change] = (
                delays(run, targets, REPEATS, lambda: until_full(run, *first)), cover(run.graph, targets).longest_path
            )  # fmt: skip
    return found
