"""Figures 13 to 17 and tables 4 to 7 of Fries, each by one function.

Figures 15 to 17 and tables 4 to 7 of Fries: delays of changes by Fries and by Epoch.

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

Table 5: the delay of changes of W4, where U2 makes many payments of one user, with Fries and with Epoch, and by the
cut, which is not the paper's.

The source is as fast as the flow takes it, so queues are as long as credit allows, in front of FD1 and FD2, which wait
for each payment, and in front of F1, by back-pressure. F1 and U2 share a thread, as they are fused in the paper.

Table 6: the effect of pruning. The same changes of W5 with Fries, with pruning and without, at full queues.

FD3 and FD4 wait for each tuple, and a surge queues the same amount of work in front of both. With pruning, a change of
one operator overtakes it; without, its marker starts at RE and waits behind it.

Table 7: the number of data channels of W2, in all and in the component of J1 and J4; computed by the planner.

Figures 13 and 14 of Fries: W1 while it is changed under load, by scheduler.

**Figure 13**: end-to-end latency through two surges, each answered by a cheaper model. FD's model takes 25 ms a
payment; at 120 s (of the paper's time) it is replaced by a cheaper one, at 220 s by an even cheaper one. Our latency
counts from the time at which a payment was due, even if the flow holds its source back. Without a change it therefore
keeps rising where the paper's, which counts from the source's output, stays at 70 s. The same flow as a Structured
Streaming query (``rivals/streaming_jobs.py``) is measured in the first surge.

**Figure 14**: payments processed in vain because the versions of the source and of FD differ. Every 50 s (of the
paper's time) the source's version rises, and 20 s later FD is changed to follow. Payments that FD processes meanwhile
are invalid. The version of a payment is that of the clock period in which it was due. A queue of 7 s of work is kept in
front of FD. That explains the paper's 67,000 for Fries: a change that overtakes the queue finds payments that were due
in the last 7 of the 20 s. And 302,000 in 250 s are 1,208 per second, hence the rate of FD there; here a payment takes
33 ms, so that 40 workers process 1,200 per second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import fries_nb as fn
from fries_nb.experiments.measuring import (
    HOSTS,
    PAPER_WORKERS,
    PATIENCE_S,
    Delays,
    ExperimentScale,
    Result,
    Row,
    VersionTimes,
    changed,
    delays,
    fill,
    pause,
    pause_until,
    per_workers,
    repeated,
    running,
    session,
    surge,
    until_full,
    version_times,
)
from fries_nb.planning import cover
from fries_nb.protocol.topology import channel_count
from fries_nb.run import Run
from fries_nb.workloads.payments import grouped_path, payments_path
from fries_nb.workloads.scorer import CUSTOMER, Inference, Network, Scorer, Waits
from fries_nb.workloads.tpcds import Tables, tpcds
from fries_nb.workloads.workflows import (
    CHANNELS,
    W2,
    W3,
    Combined,
    EachPayment,
    Flagged,
    FraudDetector,
    ManyPayments,
    Worthwhile,
    by_customer,
    by_terminal,
    w1_flow,
    w2_flow,
    w3_flow,
    w4_flow,
    w5_flow,
)

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
    with repeated(tables.read(W2.name, "Src"), TABLE4_FILES) as path:
        flow = w2_flow(tables, fn.memory(), workers, fn.replay(path))
        with running(flow, spark, workers=workers, budget=budget) as run:
            pause(seconds)
            change = {join: tables.read(W2.name, join) for join in CHANGE}
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
    with repeated(tables.read(W2.name, "Src"), TABLE4_FILES) as path:
        flow = w2_flow(tables, fn.memory(), workers, fn.replay(path))
        return _delays(spark, flow, tables, W2.name, ["J1"], workers, budget)


def _w3(spark: Any, tables: Tables, workers: int, budget: int) -> Found:
    with ExitStack() as open_:
        paths = {
            name: open_.enter_context(repeated(tables.read(W3.name, name), TABLE4_FILES)) for name in CHANNELS
        }  # fmt: skip
        flow = w3_flow(tables, fn.memory(), workers, {name: fn.replay(path) for name, path in paths.items()})
        return _delays(spark, flow, tables, W3.name, list(CHANNELS.values()), workers, budget)


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
TABLE5_BY = ("fries", "epoch", "cut")
TABLE5_BUDGET = 1
"""Byte budget of a host: each channel has the minimum credit, 64 KB."""
LEAST, LONGEST = 10, 50
"""Most payments in one row, in the smallest and in large experiments; users with more have several rows."""
FULL = 0.05
"""Size, relative to the paper's, from which on rows have ``LONGEST`` payments."""
TABLE5_FILES = 40


def table5(scale: ExperimentScale) -> Result:
    """Table 5: the delay of changes of W4 with Fries and with Epoch, and by the cut."""
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
        options: dict[str, Any] = {"budget": TABLE5_BUDGET, "chaining": True, "identities": True}
        with running(flow, spark, workers=workers, **options) as run:
            found = {
                name: version_times(run, change, TABLE5_BY, lambda: until_full(run, "F1"))
                for name, change in changes.items()
            }
    rows = tuple(_table5_row(name, by) for name, by in found.items())
    parameters = {
        "flow": "W4", "workers": workers, "cost ms": cost_ms, "payments a row": longest, "budget a channel KiB": 64,
        "chaining": True,
    }  # fmt: skip
    return Result("table5", "reconfiguration delay in W4", scale.of_paper, parameters, rows)


def _table5_row(change: str, by: Mapping[str, VersionTimes]) -> Row:
    """Delays, and behind them when the first new row and the last old one were begun."""
    fries, epoch = by["fries"].outcome, by["epoch"].outcome
    return {
        "change": change,
        "components": " ".join("{" + ", ".join(part) + "}" for part in fries.components),
        **{f"{name} ms": one.outcome.delay_ms for name, one in by.items()},
        "times": epoch.delay_ms / fries.delay_ms,
        "old tuples fries": fries.old_tuples,
        "old tuples epoch": epoch.old_tuples,
        **{f"first new {name} ms": one.first_new_ms for name, one in by.items()},
        **{f"last old {name} ms": one.last_old_ms for name, one in by.items()},
        "paper fries ms": TABLE5_MS[change][0],
        "paper epoch ms": TABLE5_MS[change][1],
    }


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
        "FD4": {"FD4": by_terminal(scorer, "p_m")},
        "F3": {"F3": Worthwhile()},
        "F4": {"F4": Worthwhile()},
        "FD3, FD4": {"FD3": by_customer(scorer, "p_c"), "FD4": by_terminal(scorer, "p_m")},
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


LENGTH_S = 300.0
SURGES = {0.0: 1_000, 100.0: 2_000, 200.0: 9_000}
"""Start time in seconds, and payments per second from then on."""
CHANGES = {120.0: 10.0, 220.0: 2.0}
"""Time in seconds, and cost of the new model in milliseconds."""
SURGE_COST_MS = 25.0
CREDIT_S = 70.0
TUPLE_BYTES = 65
"""Size of a queued payment in bytes; the credit holds CREDIT_S seconds of FD's work, as in the paper."""
SURGE_PAPER = {
    "none": "climbs from 100 s on, to 70 s",
    "epoch": "above 60 s until 135 s; stragglers of 58 s and 69 s",
    "fries": "falls at once after 120 s",
}


def figure13(scale: ExperimentScale) -> Result:
    """Figure 13: latency of W1 through two surges, without a change, by Epoch and by Fries."""
    workers = scale.workers()
    rows, curves, marks = list[Row](), list[Row](), list[Row]()
    with session() as spark:
        for scheduler in SURGE_PAPER:
            row, points, changes = _surges(spark, scheduler, scale, workers)
            rows.append(row)
            curves += points
            marks += changes
        rows += _outside(spark, scale, workers)
    parameters = {
        "flow": "W1", "workers": workers, "seconds": LENGTH_S * scale.of_paper,
        "rates": [per_workers(rate, workers) for rate in SURGES.values()], "budget": _budget(scale, workers),
        "costs ms": [SURGE_COST_MS, *CHANGES.values()], "chaining": False,
    }  # fmt: skip
    title = "end-to-end latency through two surges"
    return Result("figure13", title, scale.of_paper, parameters, tuple(rows), tuple(curves), tuple(marks))


def _budget(scale: ExperimentScale, workers: int) -> int:
    """The byte budget of a host."""
    return max(1, int(scale.seconds(CREDIT_S) * workers * 1000 / SURGE_COST_MS * TUPLE_BYTES / HOSTS))


def _surges(spark: Any, scheduler: str, scale: ExperimentScale, workers: int) -> tuple[Row, list[Row], list[Row]]:
    """One run: a row of the table, the curve, and the times of requests and ends of changes."""
    rates = {at * scale.of_paper: per_workers(rate, workers) for at, rate in SURGES.items()}
    lighter = {} if scheduler == "none" else {at * scale.of_paper: cost for at, cost in CHANGES.items()}
    flow = w1_flow(fn.replay(payments_path(1_000_000), rate=rates[0.0]), fn.memory(), workers, SURGE_COST_MS)
    with running(flow, spark, workers=workers, budget=_budget(scale, workers)) as run:
        began_s, began = time.time(), time.monotonic()
        delays: list[float] = []
        for at in sorted({*rates, *lighter}):
            pause_until(began + at)
            if at in rates:
                run.set_rate("Src", rates[at])
            else:
                delays.append(changed(run, {"FD": FraudDetector(lighter[at])}, scheduler).delay_ms)
        pause_until(began + LENGTH_S * scale.of_paper)
        curve = _curve(run, scheduler, began_s)
        marks: list[Row] = [
            {"scheduler": scheduler, "at_s": mark.at_s - began_s, "kind": mark.kind} for mark in run.history.marks
        ]  # fmt: skip
    first, second = delays or (None, None)
    row: Row = {
        "scheduler": scheduler,
        "first delay ms": first,
        "second delay ms": second,
        "highest latency s": max((point["p50_ms"] for point in curve), default=0.0) / 1000,
        "last latency s": curve[-1]["p50_ms"] / 1000 if curve else None,
        "paper": SURGE_PAPER[scheduler],
    }
    return row, curve, marks


def _curve(run: Run, scheduler: str, began_s: float) -> list[Row]:
    """Median and 99th percentile of the latency, and the rate, four times a second."""
    return [
        {
            "scheduler": scheduler,
            "at_s": point.at_s - began_s,
            "p50_ms": point.p50_ms,
            "p99_ms": point.p99_ms,
            "rate": point.rate,
        }
        for point in run.history.latency
        if point.at_s >= began_s
    ]


def _outside(spark: Any, scale: ExperimentScale, workers: int) -> list[Row]:
    """Structured Streaming in the same first surge, changed in two ways."""
    from fries_nb.experiments.rivals.streaming_jobs import by_rereading, by_restart

    rate, cost_ms = per_workers(SURGES[100.0], workers), next(iter(CHANGES.values()))
    wait_s = 20.0 * scale.of_paper
    found = {
        "streaming, restarted": by_restart(spark, rate, workers, SURGE_COST_MS, cost_ms, wait_s),
        "streaming, re-reading": by_rereading(spark, rate, workers, SURGE_COST_MS, cost_ms, wait_s),
    }
    return [
        {"scheduler": name, "first delay ms": seconds * 1000, "paper": "-"} for name, seconds in found.items()
    ]  # fmt: skip


PERIODS = 6
PERIOD_S, LATE_S, QUEUE_S = 50.0, 20.0, 7.0
LEAST_PERIOD_S = 0.8
VERSIONED_COST_MS = 100 / 3
CUSTOMERS = 4_999
INVALID_PAPER = {"none": 302_000, "epoch": 176_000, "fries": 67_000}


@dataclass(frozen=True)
class VersionedDetector:
    """The FD of this figure: waits, and returns the time and whether the versions differed."""

    version: int | None  # the version that it can process; ``None`` for all
    period_ns: int  # length of a period of the source's clock in nanoseconds
    cost_ms: float = VERSIONED_COST_MS

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Compare the version of the payment's period with its own."""
        time.sleep(self.cost_ms / 1000)
        version = row["timestamp"] // self.period_ns
        invalid = self.version is not None and version != self.version
        return {"due": row["timestamp"], "at": time.time_ns(), "invalid": invalid}


def _payment(value: int) -> Mapping[str, Any]:
    """A payment; customers take turns, so that all workers have the same load."""
    return {"CUSTOMER_ID": value % CUSTOMERS}


def figure14(scale: ExperimentScale) -> Result:
    """Figure 14: tuples processed in vain after the source's version has risen, by scheduler."""
    workers, period_s = scale.workers(), scale.seconds(PERIOD_S, LEAST_PERIOD_S)
    rows, curves = list[Row](), list[Row]()
    with session() as spark:
        for scheduler, paper in INVALID_PAPER.items():
            found = _processed(spark, scheduler, workers, period_s)
            curves += [
                {"scheduler": scheduler, "at_s": at_s, "invalid": n + 1} for n, at_s in enumerate(found.invalid_at_s)
            ]
            delays = {
                name: median(values) if values else None
                for name, values in (("delay ms", found.delays_ms), ("in effect ms", found.in_effect_ms))
            }
            counts = {"invalid": len(found.invalid_at_s), "valid": found.valid, "paper": paper}
            rows.append({"scheduler": scheduler, **counts, **delays, "longest wait ms": found.longest_wait_ms})
    most = rows[0]["invalid"] or 1
    shares = [{"of none": row["invalid"] / most, "paper of none": row["paper"] / INVALID_PAPER["none"]} for row in rows]
    table = tuple({**row, **share} for row, share in zip(rows, shares, strict=True))
    parameters = {
        "flow": "W1", "workers": workers, "cost ms": VERSIONED_COST_MS, "rate": workers * 1000 / VERSIONED_COST_MS,
        "period s": period_s, "work waiting s": QUEUE_S / PERIOD_S * period_s, "chaining": False,
    }  # fmt: skip
    return Result("figure14", "invalid tuples over time", scale.of_paper, parameters, table, tuple(curves))


@dataclass(frozen=True)
class _Processed:
    """What one run made of the payments of six periods."""

    invalid_at_s: list[float]  # when payments were processed in vain, from the start of the first period
    valid: int  # others that were due after the first rise; without a change there are none
    delays_ms: list[float]  # of the changes
    # from the rise of a version to the end of its change: one that takes longer than a period is in vain itself
    in_effect_ms: list[float]
    longest_wait_ms: float  # of a payment that was due then: one that waits for a period is processed in vain


def _processed(spark: Any, scheduler: str, workers: int, period_s: float) -> _Processed:
    """One run of six periods."""
    delays, in_effect = list[float](), list[float]()
    pace, period_ns = workers * 1000 / VERSIONED_COST_MS, int(period_s * 1e9)
    flow = fn.Dataflow("W1")
    payments = flow.source("Src", fn.rate(pace, row=_payment), workers=1)
    scored = payments.map("FD", VersionedDetector(None, period_ns), key="CUSTOMER_ID", workers=workers)
    scored.sink("Sink", fn.memory(), workers=1)
    with running(flow, spark, workers=workers) as run:
        fill(run, "Src", {"FD": QUEUE_S / PERIOD_S * period_s * pace}, pace)
        version, began_s = _next_period(run, period_s)
        for number in range(1, PERIODS):
            if scheduler != "none":
                _pause_to(began_s + (number + LATE_S / PERIOD_S) * period_s)
                made = changed(run, {"FD": VersionedDetector(version + number, period_ns)}, scheduler)
                delays.append(made.delay_ms)
                in_effect.append((time.time() - began_s - number * period_s) * 1000)
        _pause_to(began_s + PERIODS * period_s)
        run.stop(timeout=PATIENCE_S)
        found = run.output().select("due", "at", "invalid").toPandas()
    found["at_s"] = found["at"] / 1e9 - began_s
    found["due_s"] = found["due"] / 1e9 - began_s
    found = found[(found["due_s"] >= 0) & (found["due_s"] <= PERIODS * period_s)].sort_values("at_s")
    longest_ms = float((found["at_s"] - found["due_s"]).max() * 1000)
    found = found[found["at_s"] <= PERIODS * period_s]
    valid = int((~found["invalid"] & (found["due_s"] >= period_s)).sum())
    return _Processed(found["at_s"][found["invalid"]].tolist(), valid, delays, in_effect, longest_ms)


def _next_period(run: Run, period_s: float) -> tuple[int, float]:
    """Change FD to the next period's version just before it begins; returns the version and its start time."""
    # Payments that wait then are of the earlier period and do not count; the first period lets them drain.
    period_ns = int(period_s * 1e9)
    version = time.time_ns() // period_ns + 1
    _pause_to(version * period_ns / 1e9)
    changed(run, {"FD": VersionedDetector(version, period_ns)}, "fries")
    return version, version * period_ns / 1e9


def _pause_to(at_s: float) -> None:
    """Wait until a time of the clock that determines versions."""
    pause_until(time.monotonic() + at_s - time.time())
