"""``python -m fries_nb demo``: the main job. The fraud dataflow under a surge, and the same change by three schedulers.

For each scheduler the dataflow runs anew: payments come at a calm rate, then at one that the merchant model FM cannot
follow, so payments queue in front of FM and behind it. Then FM is replaced by a model that looks at ten payments and
costs less, together with MC, which must weigh one probability more.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import fries_nb as fn
from fries_nb.run import Run
from fries_nb.workloads.fraud import Combine, CustomerModel, MerchantModel, keep_five, pad_to_ten
from fries_nb.workloads.payments import payments_path

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SCHEDULERS = ("fries", "epoch", "naive")
CALM, SURGE = 400, 2_400
"""Payments a second before the surge and in it; FM's two workers manage about 800 with the old model."""
CALM_S, SURGE_S, AFTER_S = 2.0, 3.0, 5.0
OLD_COST_MS, NEW_COST_MS, COMBINE_COST_MS = 2.0, 0.2, 1.8
BUDGET = 64 << 20
"""Bytes that may wait in front of a host's workers: enough that the surge queues in front of FM."""
PATIENCE_S = 120.0


@dataclasses.dataclass(frozen=True)
class Row:
    """What one scheduler did.

    Attributes:
        delay_ms: from the request to the last worker that switched; ``prepare_ms`` and ``commit_ms`` are parts of it.
        old_tuples: payments that FM and MC still processed by the old configuration after they were told to prepare.
        p99_before_ms: end-to-end latency in the surge, before the change; ``p99_after_ms`` shortly after the change.
        serializable: the audit's verdict over all payments; ``mixed`` counts those that met both configurations.
    """

    scheduler: str
    outcome: str
    delay_ms: float
    prepare_ms: float
    commit_ms: float
    old_tuples: int
    p99_before_ms: float
    p99_after_ms: float
    serializable: bool
    mixed: int
    payments: int


def add_parser(subparsers: Subparsers) -> None:
    """Registers the command."""
    parser = subparsers.add_parser(
        "demo",
        help="run the fraud dataflow on local Spark, surge the load, replace FM and MC by each scheduler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the comparison; 0 if every change was done and only naive mixed versions."""
    say = _to_stderr if args.json else print
    say("fraud: payments -> FC -> FM -> MC -> scored; the change: FM looks at 10 payments instead of 5, MC follows")
    path = payments_path(50_000)
    say(f"payments from {path}; 2 hosts, 2 workers an operator, {BUDGET >> 20} MB of credit a host; starting Spark ...")
    rows = [one_scheduler(name, path, say) for name in SCHEDULERS]
    good = all(row.outcome == "done" and (row.serializable or row.scheduler == "naive") for row in rows)
    if args.json:
        print(json.dumps({"credit_bytes": BUDGET, "rows": [dataclasses.asdict(row) for row in rows]}))
    else:
        print("\n" + table(rows))
    return 0 if good else 1


def one_scheduler(scheduler: str, path: str, say: Any) -> Row:
    """Run the dataflow once, and change it by this scheduler in the middle of the surge."""
    flow = demo_flow(path)
    run_ = flow.run(hosts=2, workers=2, audit=True, chaining=False, budget=BUDGET)
    try:
        _until_running(run_)
        _let_pass(CALM_S)
        run_.set_rate("payments", SURGE)
        _let_pass(SURGE_S)
        before = run_.metrics()
        waiting = before.operators["FM"].queued
        say(f"[{scheduler}] surge of {SURGE:,}/s: {waiting:,} payments wait in front of FM; changing")
        result = run_.reconfigure(demo_change(), scheduler=scheduler).result(PATIENCE_S)
        if result.error:
            say(f"[{scheduler}] {result.outcome}: {result.error}")
        _let_pass(AFTER_S)
        after = run_.metrics()
    finally:
        run_.stop()
    verdict = run_.audit()
    say(f"[{scheduler}] {result.outcome} after {result.delay_ms:,.1f} ms; {len(verdict.mixed):,} payments met both")
    return Row(
        scheduler,
        result.outcome,
        round(result.delay_ms, 1),
        round(result.prepare_ms, 1),
        round(result.commit_ms, 1),
        result.old_tuples,
        round(before.latency.p99_ms),
        round(after.latency.p99_ms),
        verdict.serializable,
        len(verdict.mixed),
        verdict.transactions,
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
    """FM by a lighter model over ten payments, its state transformed; MC by one with three weights."""
    merchant = MerchantModel(window=10, cost_ms=NEW_COST_MS)
    return {
        "FM": fn.Update(merchant, state=pad_to_ten, back=keep_five),
        "MC": Combine((0.4, 0.4, 0.2), cost_ms=COMBINE_COST_MS / 4, strict=False),
    }


def table(rows: list[Row]) -> str:
    """The comparison for a reader."""
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


def _let_pass(seconds: float) -> None:
    """A demonstration takes its time; Ctrl-C ends it."""
    threading.Event().wait(seconds)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
