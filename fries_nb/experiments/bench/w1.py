"""W1 flat out: keyed by customer, ten amounts of state, a trivial score, Parquet in and out, against what others do."""

from __future__ import annotations

from fries_nb.experiments.bench.apart import bytewax, plain_loop
from fries_nb.experiments.bench.data import payments_file
from fries_nb.experiments.bench.pairs import Side, pairs
from fries_nb.experiments.bench.results import Report

ROWS = 1_000_000
PROCESSES = 2


def w1(scale: float, runs: int) -> Report:
    """The plain loop in both its forms, and bytewax."""
    rows = int(ROWS * scale)
    path = payments_file(rows)
    loops = pairs(
        Side("plain loop, rows of all columns", lambda: plain_loop(path, "all")),
        Side("plain loop, rows of the used columns", lambda: plain_loop(path, "used")),
        runs,
        unit="rows/s",
    )
    waxes = pairs(
        Side("bytewax, 1 process", lambda: bytewax(path, rows, 1)),
        Side(f"bytewax, {PROCESSES} processes", lambda: bytewax(path, rows, PROCESSES)),
        runs,
        unit="rows/s",
    )
    return Report("w1", scale, (loops, waxes), (), {"rows": rows})
