"""Figures 15 to 17 and tables 4 to 7 of Fries: delays of changes by Fries and by Epoch.

Figure 15: the delay of a change of W1 by the rate of the source, with Fries and with Epoch.

FD's workers process 1,600 payments per second at the paper's size. Above that rate payments queue in front of FD, and
Epoch's markers with them.

Figure 16: the delay of a change of W1 by the cost of FD, with Fries and with Epoch.

FD passes a customer's last 10 to 50 amounts to its model, a real network whose cost grows with their number; at the
paper's size a wait replaces it, 25 ms at 10 amounts. Before each change a surge fills the queue in front of FD with the
same number of payments, whatever their cost.

Figure 17: the delay of a change of J1 and J4 of W2 by the number of workers, with Fries and with Epoch.

Table 4: the delay of changes of W2 and W3, joins of TPC-DS, with Fries and with Epoch.

The sources are as fast as the joins take their rows, so queues are as long as credit allows. Joins are changed to equal
tables.

Table 5: the delay of changes of W4, where U2 makes many payments of one user, with Fries and with Epoch.

The source is as fast as the flow takes it, so queues are as long as credit allows, in front of FD1 and FD2, which wait
for each payment, and in front of F1, by back-pressure. F1 and U2 share a thread, as they are fused in the paper.

Table 6: the effect of pruning. The same changes of W5 with Fries, with pruning and without, at full queues.

FD3 and FD4 wait for each tuple, and a surge queues the same amount of work in front of both. With pruning, a change of
one operator overtakes it; without, its marker starts at RE and waits behind it.

Table 7: the number of data channels of W2, in all and in the component of J1 and J4; computed by the planner.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import (
    HOSTS,
    PAPER_WORKERS,
    Delays,
    ExperimentScale,
    Result,
    changed,
    delays,
    fill,
    pause,
    per_workers,
    repeated,
    running,
    session,
    surge,
    until_full,
)
from fries_nb.planning import cover
from fries_nb.protocol.topology import channel_count
from fries_nb.run import Run
from fries_nb.workloads import w2, w3
from fries_nb.workloads.payments import grouped_path, payments_path
from fries_nb.workloads.scorer import CUSTOMER, Inference, Network, Scorer, Waits
from fries_nb.workloads.tpcds import Tables, tpcds
from fries_nb.workloads.w1 import FraudDetector, w1_flow
from fries_nb.workloads.w2 import NAME, w2_flow
from fries_nb.workloads.w4 import EachPayment, Flagged, ManyPayments, by_customer, w4_flow
from fries_nb.workloads.w5 import Combined, Worthwhile, by_terminal, w5_flow
from fries_nb.workloads.w5 import by_customer as each_customer

RATES = (500, 1_000, 1_500, 2_000, 2_500)
FIGURE15_S = 120.0
COST_MS = 25.0
REPEATS = 3
FIGURE15 = "log scale: Epoch from about 0.1 s at 500/s to tens of seconds at 2,500/s; Fries stays far below"


def figure15(scale: ExperimentScale) -> Result:
    """Figure 15: reconfiguration delay by the rate of the source."""
    workers, seconds = scale.workers(), scale.seconds(FIGURE15_S, 1.0)
    with session() as spark:
        found = {rate: _at(spark, per_workers(rate, workers), workers, seconds) for rate in RATES}
    rows = tuple(
        {"paper's rate": rate, "rate": per_workers(rate, workers), **one.means()} for rate, one in found.items()
    )
    parameters = {
        "flow": "W1", "workers": workers, "cost ms": COST_MS, "seconds": seconds, "repeats": REPEATS,
        "chaining": False, "paper": FIGURE15,
    }  # fmt: skip
    return Result("figure15", "reconfiguration delay by ingestion rate", scale.of_paper, parameters, rows)


def _at(spark: Any, rate: float, workers: int, seconds: float) -> Delays:
    """One run at this rate; its changes begin after the given time."""
    flow = w1_flow(fn.replay(payments_path(), rate=rate), fn.memory(), workers, COST_MS)
    with running(flow, spark, workers=workers) as run:
        pause(seconds)
        return delays(run, {"FD": FraudDetector(COST_MS)}, REPEATS, lambda: None)


WINDOWS = (10, 20, 30, 40, 50)
WAITING = 4_000
"""Payments queued in front of each of FD's workers, at the paper's size."""
PAPER_MS_AN_AMOUNT = 2.5
WIDTH = 256
FIGURE16 = "Epoch's delay grows from 10 to 50 amounts with the operator's cost; Fries' much slower"


def figure16(scale: ExperimentScale) -> Result:
    """Figure 16: reconfiguration delay by the cost of the operator, a queue of 10 to 50 payments a user."""
    is_paper = scale.of_paper == 1
    workers = PAPER_WORKERS if is_paper else HOSTS
    payments = workers * round(scale.seconds(WAITING))
    scorers: dict[int, Scorer] = {n: Waits(PAPER_MS_AN_AMOUNT * n) if is_paper else Network(WIDTH) for n in WINDOWS}
    costs = {n: _cost_ms(scorer, n) for n, scorer in scorers.items()}
    with session() as spark:
        found = {n: _at_cost(spark, Inference(scorer, n), payments, workers) for n, scorer in scorers.items()}
    rows = tuple({"amounts": n, "cost ms": costs[n], **one.means()} for n, one in found.items())
    parameters = {
        "flow": "W1", "workers": workers, "payments waiting": payments, "repeats": REPEATS, "chaining": False,
        "model": "a wait" if is_paper else f"network of width {WIDTH}", "paper": FIGURE16,
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


def _at_cost(spark: Any, inference: Inference, payments: int, workers: int) -> Delays:
    """One run with this model; before each change the source fills the queue, and pauses afterwards."""
    flow = fn.Dataflow("W1")
    source = flow.source("Src", fn.replay(payments_path(), rate=1), workers=1)
    source.map("FD", inference, key=CUSTOMER, workers=workers).sink("Sink", fn.memory(), workers=1)
    with running(flow, spark, workers=workers) as run:
        again = {"FD": Inference(inference.scorer, inference.window)}
        return delays(run, again, REPEATS, lambda: surge(run, "Src", "FD", payments))


FIGURE17_S = 20.0
PAPER_BUDGET = 64 << 20
SMALL = 0.2
"""Below this scale a change is made once with each scheduler."""
PAPER_SAYS = "both grow with the number of workers; Fries' stays below Epoch's"


def figure17(scale: ExperimentScale) -> Result:
    """Figure 17: reconfiguration delay by the number of workers."""
    most = max(4, round(400 * scale.of_paper))
    numbers = [workers for workers in TABLE7 if workers <= most]
    seconds, budget = scale.seconds(FIGURE17_S), max(1 << 20, int(PAPER_BUDGET * scale.of_paper))
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
    with repeated(tables.read(NAME, "Src"), TABLE4_FILES) as path:
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


TABLE4_MS = {
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
TABLE4_BUDGET, LARGEST_BUDGET = 960 << 20, 48 << 20
"""Byte budget of a host at full size, and its maximum: ten seconds of work for two workers a join."""
TABLE4_FILES = 400
"""Number of times that a table is replayed, enough for slow machines."""
TABLE4_REPEATS = 1


def table4(scale: ExperimentScale) -> Result:
    """Table 4: the delay of changes of W2 and W3 with Fries and with Epoch."""
    workers, budget = scale.workers(), min(LARGEST_BUDGET, int(TABLE4_BUDGET * scale.of_paper))
    tables = tpcds()
    with session() as spark:
        found = {**_w2(spark, tables, workers, budget), **_w3(spark, tables, workers, budget)}
    rows = tuple(
        {
            "flow": flow,
            "change": change,
            **one.row(),
            "longest path": longest,
            "paper fries ms": TABLE4_MS[flow, change][0],
            "paper epoch ms": TABLE4_MS[flow, change][1],
        }
        for (flow, change), (one, longest) in found.items()
    )
    parameters = {"workers": workers, "budget": budget, "tpcds scale": 0.05, "rate": "flat out", "chaining": False}
    return Result("table4", "reconfiguration delay in W2 and W3", scale.of_paper, parameters, rows)


Found = dict[tuple[str, str], tuple[Delays, int]]


def _w2(spark: Any, tables: Tables, workers: int, budget: int) -> Found:
    with repeated(tables.read(w2.NAME, "Src"), TABLE4_FILES) as path:
        flow = w2.w2_flow(tables, fn.memory(), workers, fn.replay(path))
        return _delays(spark, flow, tables, w2.NAME, ["J1"], workers, budget)


def _w3(spark: Any, tables: Tables, workers: int, budget: int) -> Found:
    with ExitStack() as open_:
        paths = {
            name: open_.enter_context(repeated(tables.read(w3.NAME, name), TABLE4_FILES)) for name in w3.CHANNELS
        }  # fmt: skip
        flow = w3.w3_flow(tables, fn.memory(), workers, {name: fn.replay(path) for name, path in paths.items()})
        return _delays(spark, flow, tables, w3.NAME, list(w3.CHANNELS.values()), workers, budget)


def _delays(
    spark: Any, flow: fn.Dataflow, tables: Tables, name: str, first: list[str], workers: int, budget: int
) -> Found:
    """The delays of the table's changes of one flow, made once the queues of its first joins are full."""
    changes = [change for flow_, change in TABLE4_MS if flow_ == flow.name]
    found: Found = {}
    with running(flow, spark, workers=workers, budget=budget) as run:
        for change in changes:
            targets = {join: tables.read(name, join) for join in change.split(", ")}
            measured = delays(run, targets, TABLE4_REPEATS, lambda: until_full(run, *first))
            found[flow.name, change] = measured, cover(run.graph, targets).longest_path
    return found


PAPER_COST_MS = 25.0
TABLE5_MS = {"F1, U2": (69, 151), "FD1": (47_892, 131_103), "F2": (221_353, 236_153)}
"""Delays in the paper in milliseconds: Fries, Epoch."""
TABLE5_BUDGET = 1
"""Byte budget of a host: each channel has the minimum credit, 64 KB."""
LEAST, LONGEST = 10, 50
"""Most payments in one row, in the smallest and in large experiments; users with more have several rows."""
FULL = 0.05
"""Size, relative to the paper's, from which on rows have ``LONGEST`` payments."""
TABLE5_FILES = 40


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
    with repeated(grouped_path(longest), TABLE5_FILES) as path, session() as spark:
        flow = w4_flow(fn.replay(path), fn.memory(), scorer, workers)
        with running(flow, spark, workers=workers, budget=TABLE5_BUDGET, chaining=True) as run:
            found = {name: delays(run, change, 1, lambda: until_full(run, "F1")) for name, change in changes.items()}
    rows = tuple(
        {"change": name, **one.row(), "paper fries ms": TABLE5_MS[name][0], "paper epoch ms": TABLE5_MS[name][1]}
        for name, one in found.items()
    )
    parameters = {
        "flow": "W4", "workers": workers, "cost ms": cost_ms, "payments a row": longest, "budget a channel KiB": 64,
        "chaining": True,
    }  # fmt: skip
    return Result("table5", "reconfiguration delay in W4", scale.of_paper, parameters, rows)


PAPER_QUEUE_S = 400.0
"""Approximate waiting time of FD4's markers in the paper, in seconds."""
TABLE6_MS = {
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
        "FD3, FD4": {"FD3": each_customer(scorer), "FD4": by_terminal(scorer)},
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
            "paper pruned ms": TABLE6_MS[name][0],
            "paper unpruned ms": TABLE6_MS[name][1],
        }
        for name in changes
    )
    parameters = {"flow": "W5", "workers": workers, "cost ms": COST_MS, "work waiting s": queue_s, "chaining": True}
    return Result("table6", "what pruning saves", scale.of_paper, parameters, rows)


TABLE7 = {1: (5, 3), 4: (68, 48), 12: (588, 432), 20: (1_620, 1_200), 40: (6_440, 4_800)}
"""Workers of an operator to the number of channels in all, and in the component."""
CHANGE = ("J1", "J4")


def table7(scale: ExperimentScale) -> Result:
    """Table 7: data channels of W2 by the number of workers, in all and in a component; from the planner."""
    rows = tuple(
        {"workers": workers, "all": ours[0], "component": ours[1], "paper all": paper[0], "paper component": paper[1]}
        for workers, paper in TABLE7.items()
        for ours in [channels(workers)]
    )
    parameters = {"flow": "W2", "change": ", ".join(CHANGE)}
    return Result("table7", "number of data channels by number of workers", scale.of_paper, parameters, rows)


def channels(workers: int) -> tuple[int, int]:
    """Number of channels of W2 with this number of workers for each operator, in all and inside the component."""
    graph = w2_flow(Tables(Path()), fn.memory(), workers=workers).graph()
    [component] = cover(graph, CHANGE).components
    inside = [edge for edge in graph.edges if (edge.source, edge.to) in component.edges]
    return channel_count(graph, graph.edges), channel_count(graph, inside)
