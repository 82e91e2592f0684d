"""A service of 50 ms, called for each row by a coroutine: one worker against a bare asyncio loop of as many calls.

Both call the same coroutine, which waits as a service would have it wait. With 64 calls in flight no more than 1,280
rows a second are possible. Payments are read, called and written; start-up time counts on neither side.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import fries_nb as fn
from fries_nb.experiments.bench.ours import CREDIT_BYTES, flow_seconds, job, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, PairedResult, Side, Target, pairs

LATENCY_S = 0.05
CONCURRENCY = 64
ROWS = 20_000
COLUMNS = ("TRANSACTION_ID", "CUSTOMER_ID", "TX_AMOUNT")


async def asked(row: dict[str, Any]) -> dict[str, Any]:
    """Waits for a service, and adds its answer."""
    await asyncio.sleep(LATENCY_S)
    row["ANSWER"] = row["TX_AMOUNT"] > 100
    return row


class Counting:
    """The same with a state of each customer."""

    async def process(self, row: dict[str, Any], state: dict[str, int]) -> dict[str, Any]:
        """Waits for a service, and adds its answer and the customer's number of payments."""
        made = await asked(row)
        state["n"] = made["N"] = state.get("n", 0) + 1
        return made


def asking(source: Path, target: str, function: Any, **options: Any) -> fn.Dataflow:
    """Payments, the calls of one worker, and a file."""
    flow = fn.Dataflow("asking")
    payments = flow.source("payments", fn.replay(str(source)))
    payments.map("ASK", function, workers=1, concurrency=CONCURRENCY, **options).sink("out", fn.parquet(target))
    return flow


async def _all(rows: list[dict[str, Any]]) -> None:
    free = asyncio.Semaphore(CONCURRENCY)

    async def one(row: dict[str, Any]) -> None:
        async with free:
            await asked(row)

    await asyncio.gather(*map(one, rows))


def _bare_seconds(source: Path) -> float:
    rows = pq.read_table(source).to_pylist()
    began = time.perf_counter()
    asyncio.run(_all(rows))
    return time.perf_counter() - began


def slow_services(scale: float, runs: int) -> BenchReport:
    """Rows per second of one worker over a service of 50 ms: in order, as calls end, and with a state per key."""
    rows = int(ROWS * scale)
    kinds: dict[str, dict[str, Any]] = {
        "in order": {"function": asked},
        "as calls end": {"function": asked, "ordered": False},
        "with a state of each customer": {"function": Counting(), "key": "CUSTOMER_ID", "ordered": False},
    }
    found: list[PairedResult] = []
    with spark_session() as spark:
        bare = job(_bare_seconds, rows, columns=COLUMNS)
        for name, options in kinds.items():
            ours = job(partial(flow_seconds, partial(asking, **options), spark, hosts=1), rows, columns=COLUMNS)
            sides = Side(name, ours.flowing_rate), Side("a bare asyncio loop", bare.rate)
            found.append(pairs(*sides, runs, "rows/s"))
    targets = [Target(f"rows/s, {one.a}", one.a_median, 1_000, unit="rows/s") for one in found]
    return BenchReport("slow-services", scale, tuple(found), tuple(targets), {"rows": rows}, CREDIT_BYTES)
