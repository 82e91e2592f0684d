"""``python -m fries_nb demo``: the fraud dataflow under a surge of load, and the same change by three schedulers.

For each scheduler the dataflow runs anew. Payments first arrive at a low rate, then faster than the merchant model FM
processes them, so that queues build up in front of FM and behind it. FM is then replaced by a cheaper model over ten
payments, together with MC, which has to weigh one more probability. Afterwards the rate falls to twice the low rate.
The report compares the three runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import fries_nb as fn
from fries_nb.audit import Verdict
from fries_nb.changes import ChangeResult
from fries_nb.controller.metrics import MetricsSnapshot
from fries_nb.report import (
    SETTLED_MS,
    Comparison,
    ComparisonRow,
    Place,
    SchedulerTrial,
    comparison_page,
    writable,
    write_page,
)
from fries_nb.run import Run
from fries_nb.scheduling import schedule
from fries_nb.workloads.fraud import Combine, CustomerModel, MerchantModel, keep_five, pad_to_ten
from fries_nb.workloads.payments import payments_path

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SCHEDULERS = ("fries", "epoch", "naive")
CALM, SURGE, BUSY = 400, 2_400, 800
"""Payments a second before the surge, in it and after; FM's two workers manage about 800 with the old model."""
CALM_S, SURGE_S = 2.0, 3.0
SETTLING_S = 20.0
"""Seconds after the change within which the latency has to settle; then the run ends."""
OLD_COST_MS, NEW_COST_MS, COMBINE_COST_MS = 2.0, 0.2, 1.8
BUDGET = 64 << 20
"""Byte budget of a host: large enough for the surge to queue in front of FM."""
PATIENCE_S = 120.0
HOSTS, WORKERS = 2, 2
REPORT = "fries_nb-demo.html"
SETTING = (
    f"Card payments flow through three operators that score them for fraud: FC by customer, FM by merchant, MC by "
    f"both. {CALM:,} payments a second arrive for {CALM_S:g} s, then {SURGE:,} a second, more than FM can process, so "
    f"payments queue up in front of it. {SURGE_S:g} s later FM is replaced by a cheaper model that uses ten payments "
    "instead of five, with its state carried over, and MC by one that weighs three probabilities instead of two. Then "
    f"the rate falls to {BUSY:,} payments a second. The two must change together: a payment scored by the old version "
    "of one and the new version of the other is scored wrongly. Each scheduler was measured once, in a run of its own."
)


def add_parser(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "demo",
        help="run the fraud dataflow on local Spark, surge the load, replace FM and MC by each scheduler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as one JSON object")
    parser.add_argument("--report", metavar="PATH", default=REPORT, help=f"the HTML report (default: {REPORT} here)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the comparison.

    Returns:
        Exit code 0 if every change was done and only naive mixed versions, else 1.

    Raises:
        RunError: the report cannot be written; raised before anything runs.
    """
    writable(args.report)
    say = _to_stderr if args.json else print
    say("fraud: payments -> FC -> FM -> MC -> scored; the change: FM looks at 10 payments instead of 5, MC follows")
    path = payments_path(50_000)
    size = f"{HOSTS} hosts, {WORKERS} workers an operator, {BUDGET >> 20} MB of credit a host"
    say(f"payments from {path}; {size}; starting Spark ...")
    place = Place(time.time(), HOSTS, BUDGET)
    trials = [trial(name, path, say) for name in SCHEDULERS]
    rows = [one.row for one in trials]
    if args.json:
        print(json.dumps({"credit_bytes": BUDGET, "rows": [dataclasses.asdict(row) for row in rows]}))
    else:
        print("\n" + table(rows))
    say(f"report: {write_page(args.report, comparison_page(comparison(place, trials, path)))}")
    good = all(row.outcome == "done" and (row.serializable or row.scheduler == "naive") for row in rows)
    return 0 if good else 1


def comparison(place: Place, trials: list[SchedulerTrial], path: str) -> Comparison:
    """The data of the report."""
    graph = demo_flow(path).graph(WORKERS)
    plan = schedule(SCHEDULERS[0], graph, demo_change())
    return Comparison("One change under load, by three schedulers", SETTING, place, graph, plan, trials)


def trial(scheduler: str, path: str, say: Any) -> SchedulerTrial:
    """Run the dataflow once, and change it by this scheduler in the middle of the surge."""
    run_ = demo_flow(path).run(hosts=HOSTS, workers=WORKERS, audit=True, chaining=False, budget=BUDGET)
    try:
        _until_running(run_)
        _let_pass(CALM_S)
        run_.set_rate("payments", SURGE)
        _let_pass(SURGE_S)
        before = run_.metrics()
        say(f"[{scheduler}] surge: {before.operators['FM'].queued:,} payments wait in front of FM; changing")
        change = run_.reconfigure(demo_change(), scheduler=scheduler)
        run_.set_rate("payments", BUSY)
        result = change.result(PATIENCE_S)
        _until_settled(run_)
        after = run_.metrics()
    finally:
        run_.stop()
    verdict = run_.audit()
    why = f": {result.error}" if result.error else f" after {result.delay_ms:,.1f} ms"
    say(f"[{scheduler}] {result.outcome}{why}; {len(verdict.mixed):,} payments met both")
    row = _row(result, before, after, verdict)
    return SchedulerTrial(row, result.error, run_.history(), run_.marks(), verdict)


def _row(result: ChangeResult, before: MetricsSnapshot, after: MetricsSnapshot, verdict: Verdict) -> ComparisonRow:
    return ComparisonRow(
        scheduler=result.scheduler,
        outcome=result.outcome,
        delay_ms=round(result.delay_ms, 1),
        prepare_ms=round(result.prepare_ms, 1),
        commit_ms=round(result.commit_ms, 1),
        waiting=before.operators["FM"].queued,
        old_tuples=result.old_tuples,
        p99_before_ms=round(before.latency.p99_ms, 1),
        p99_after_ms=round(after.latency.p99_ms, 1),
        serializable=verdict.serializable,
        mixed=len(verdict.mixed),
        payments=verdict.transactions,
    )


def demo_flow(path: str) -> fn.Dataflow:
    """The running example with models that wait: FM is the bottleneck, and MC marks rows of mixed configurations."""
    flow = fn.Dataflow("fraud")
    payments = flow.source("payments", fn.replay(path, rate=CALM))
    customers = payments.map("FC", CustomerModel(window=5), key="CUSTOMER_ID")
    merchants = customers.map("FM", MerchantModel(window=5, cost_ms=OLD_COST_MS), key="TERMINAL_ID")
    merchants.map("MC", Combine((0.4, 0.6), cost_ms=COMBINE_COST_MS, strict=False)).sink("scored", fn.memory())
    return flow


def demo_change() -> dict[str, Any]:
    """The change: a cheaper FM over ten payments with its state transformed, and MC with three weights."""
    merchant = MerchantModel(window=10, cost_ms=NEW_COST_MS)
    return {
        "FM": fn.Update(merchant, state=pad_to_ten, back=keep_five),
        "MC": Combine((0.4, 0.4, 0.2), cost_ms=COMBINE_COST_MS / 4, strict=False),
    }


def table(rows: list[ComparisonRow]) -> str:
    """The comparison as a table of text."""
    heads = f"{'delay':>12} {'of it commit':>13} {'old tuples':>11} {'p99 before':>11} {'p99 after':>10}  audit"
    lines = [f"{'scheduler':<10} {heads}"]
    for row in rows:
        verdict = "serializable" if row.serializable else f"NOT serializable: {row.mixed:,} of {row.payments:,} mixed"
        lines.append(
            f"{row.scheduler:<10} {row.delay_ms:>9,.1f} ms {row.commit_ms:>10,.1f} ms {row.old_tuples:>11,} "
            f"{row.p99_before_ms:>8,.0f} ms {row.p99_after_ms:>7,.0f} ms  {verdict}"
        )
    lines.append("old tuples: payments that FM and MC still processed by the old configuration after the request")
    return "\n".join(lines)


def _until_running(run_: Run) -> None:
    while run_.state == "joining":
        _let_pass(0.02)


def _until_settled(run_: Run) -> None:
    """Wait until the queues of the surge are worked off."""
    patience = time.monotonic() + SETTLING_S
    while run_.metrics().latency.p99_ms > SETTLED_MS and time.monotonic() < patience:
        _let_pass(0.1)


def _let_pass(seconds: float) -> None:
    """Wait; Ctrl-C ends the demonstration."""
    threading.Event().wait(seconds)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
