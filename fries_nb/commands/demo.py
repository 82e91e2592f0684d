"""``python -m fries_nb demo``: the fraud dataflow under a surge of load, and the same change by three schedulers.

For each scheduler the dataflow runs anew. Payments first arrive at a low rate, then faster than the merchant model FM
processes them, so that a queue builds up in front of FM. Output buffers are sent when they are full, as in systems made
for throughput, so hundreds of payments are on their way from FM to MC at any time. FM is then replaced by a cheaper
model over ten payments, together with MC, which has to weigh one more probability, and the rate falls. The report
compares the three runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import fries_nb as fn
from fries_nb.compared_runs import compare
from fries_nb.report import Comparison, writable
from fries_nb.run import with_buffers
from fries_nb.workloads.fraud import Combine, CustomerModel, MerchantModel, keep_five, pad_to_ten
from fries_nb.workloads.payments import payments_path

SCHEDULERS = ("fries", "epoch", "naive")
CALM, SURGE, BUSY = 400, 2_400, 1_200
"""Payments a second before the surge, in it and after; FM's four workers manage about 800 with the old model."""
CALM_S, SURGE_S = 2.0, 3.0
SETTLING_S = 12.0
"""Seconds after the change within which the queues are worked off; then the run ends."""
OLD_COST_MS, NEW_COST_MS = 4.0, 0.4
BUFFER = 12 << 10
"""Bytes of an output buffer, which is sent when it is full: a good hundred payments from each worker of FM."""
BUDGET = 64 << 20
"""Byte budget of a host: large enough for the surge to queue in front of FM."""
HOSTS, WORKERS = 2, 4
REPORT = "fries_nb-demo.html"
TITLE = "One change under load, by three schedulers"
SETTING = (
    f"Card payments flow through three operators that score them for fraud: FC by customer, FM by merchant, MC by "
    f"both. Payments are sent on in buffers of {BUFFER >> 10} KiB, when these are full, as in systems for throughput. "
    f"{CALM:,} payments a second arrive for {CALM_S:g} s, then {SURGE:,} a second, more than FM can process, so "
    f"payments queue up in front of it. {SURGE_S:g} s later FM is replaced by a cheaper model that uses ten payments "
    "instead of five, with its state carried over, and MC by one that weighs three probabilities instead of two. Then "
    f"the rate falls to {BUSY:,} payments a second. The two must change together: a payment scored by the old version "
    "of one and the new version of the other is scored wrongly. Each scheduler was measured once, in a run of its own."
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    """Run the comparison; returns exit code 0 if every change was done and only naive mixed versions, else 1."""
    writable(args.report)
    say = _to_stderr if args.json else print
    say("fraud: payments -> FC -> FM -> MC -> scored; the change: FM looks at 10 payments instead of 5, MC follows")
    path = payments_path(50_000)
    size = f"{HOSTS} hosts, {WORKERS} workers an operator, {BUDGET >> 20} MB of credit a host"
    say(f"payments from {path}; {size}, buffers of {BUFFER >> 10} KiB; starting Spark ...")
    found = dataclasses.replace(compared(path, say), title=TITLE, setting=SETTING)
    rows = [trial.row for trial in found.trials]
    if args.json:
        print(json.dumps({"credit_bytes": BUDGET, "rows": [dataclasses.asdict(row) for row in rows]}))
    else:
        print(f"\n{found}")
    say(f"report: {found.report(args.report)}")
    good = all(row.outcome == "done" and (row.serializable or row.scheduler == "naive") for row in rows)
    return 0 if good else 1


def compared(path: str, say: Callable[[str], object]) -> Comparison:
    """The change by each scheduler in the middle of the surge; credit is large, so that queues build up."""
    return compare(
        with_buffers(demo_flow(path), BUFFER), demo_change(), SCHEDULERS, surge={"payments": SURGE},
        after={"payments": BUSY}, calm_s=CALM_S, surge_s=SURGE_S, settle_s=SETTLING_S, hosts=HOSTS, workers=WORKERS,
        buffer_budget_bytes=BUDGET, say=say,
    )  # fmt: skip


def demo_flow(path: str) -> fn.Dataflow:
    """The running example with models that wait: FM is the bottleneck, and MC marks rows of mixed configurations."""
    flow = fn.Dataflow("fraud")
    payments = flow.source("payments", fn.replay(path, rate=CALM))
    customers = payments.map("FC", CustomerModel(window=5), key="CUSTOMER_ID", workers=1)
    merchants = customers.map("FM", MerchantModel(window=5, cost_ms=OLD_COST_MS), key="TERMINAL_ID", chain=False)
    merchants.map("MC", Combine((0.4, 0.6), strict=False)).sink("scored", fn.memory())
    return flow


def demo_change() -> dict[str, Any]:
    """The change: a cheaper FM over ten payments with its state transformed, and MC with three weights."""
    merchant = MerchantModel(window=10, cost_ms=NEW_COST_MS)
    return {
        "FM": fn.Update(merchant, state=pad_to_ten, back=keep_five),
        "MC": Combine((0.4, 0.4, 0.2), strict=False),
    }


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
