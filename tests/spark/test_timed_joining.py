"""Hosts join a dataflow of windows on real Spark, and leave it: each window has all of its rows, and closes once."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from patience import PATIENCE_S
from pyspark.sql import SparkSession
from run_setting import until

import fries_nb as fn

KEYS = 97
SIZE = 250


class Spent:
    """The number of a customer's payments in a window, and their sum; says by which process it was closed."""

    def __init__(self, version: int = 1) -> None:
        self.version = version

    def initial_state(self) -> list[int]:
        """Nothing yet."""
        return [0, 0]

    def process(self, row: dict[str, Any], state: list[int]) -> None:
        """Add a payment."""
        state[0] += 1
        state[1] += row["value"]

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The result of a window."""
        return {"customer": key, "end": time, "count": state[0], "sum": state[1], "pid": os.getpid()}


def spending(rate: float = 1_000) -> fn.Dataflow:
    """Payments whose time is their number, in windows by customer."""
    flow = fn.Dataflow("spending")
    row = lambda value: {"value": value, "customer": value % KEYS}  # noqa: E731
    payments = flow.source("payments", fn.rate(rate, row=row), time="value")
    payments.map("tag", dict).window("W", Spent(), fn.tumbling(SIZE), key="customer").sink("spent", fn.memory())
    return flow


def expected(count: int) -> Counter[tuple[int, int, int, int]]:
    """Customer, end, count and sum of each window of the first rows, by the definition."""
    counts: Counter[tuple[int, int]] = Counter()
    amounts: Counter[tuple[int, int]] = Counter()
    for value in range(count):
        place = value % KEYS, value // SIZE * SIZE + SIZE
        counts[place] += 1
        amounts[place] += value
    return Counter((*place, count, amounts[place]) for place, count in counts.items())


def check(run: fn.Run) -> list[dict[str, Any]]:
    """The windows are those of plain Python, each once; returns them."""
    rows = [row.asDict() for row in run.output().collect()]
    found = Counter((row["customer"], row["end"], row["count"], row["sum"]) for row in rows)
    assert found == expected(sum(row["count"] for row in rows))
    return rows


def wait_for_windows(run: fn.Run, count: int) -> None:
    """Until so many more windows have been closed."""
    before = run.metrics().operators["spent"].processed
    until(lambda: run.metrics().operators["spent"].processed >= before + count, run)


def test_windows_move_to_a_second_host_and_back(spark: SparkSession) -> None:
    """Both hosts close windows while there are two; a change in between; nothing is counted twice, late, or held."""
    run = spending().run(spark, hosts=1, workers=1, audit=True)
    try:
        wait_for_windows(run, KEYS)
        assert run.rescale(2).result(timeout=PATIENCE_S).outcome == "done"
        assert {owner: len(bins) for owner, bins in run.topology().bins("W").items()} == {0: 512, 1: 512}
        joined = run.host_processes[1]
        assert run.reconfigure({"W": Spent(2)}).result(timeout=PATIENCE_S).outcome == "done"
        wait_for_windows(run, 3 * KEYS)
        assert run.rescale(1).result(timeout=PATIENCE_S).outcome == "done"
        wait_for_windows(run, 2 * KEYS)
        run.stop()
    finally:
        run.cancel()
    assert {row["pid"] for row in check(run)} > {joined}
    assert run.audit().serializable
