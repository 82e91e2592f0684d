"""How long a branch of two operators and a sink takes to its first row, behind ten seconds of queued work.

W1, whose FD waits 2 ms for each tuple and has two workers. Its input comes at their rate, with ten seconds of work in
front of them. Measured is the time from the request to the first row that is written at the new sink:

    run.apply             the branch is added behind FD while tuples flow
    suspended, resumed    the run is suspended, which takes a checkpoint, and resumed with the branch

Both sides run with checkpoints at the same interval: the marker of one is nearly always in the queue.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import fries_nb as fn
from fries_nb.connectors.sink import Sink
from fries_nb.controller.events import Outcome
from fries_nb.errors import RunError
from fries_nb.experiments.bench.delay import COST_MS, RATE, WAITING_S, fill
from fries_nb.experiments.bench.ours import CREDIT_BYTES, HOSTS, spark_session
from fries_nb.experiments.bench.pairs import BenchReport, Side, Target, pairs
from fries_nb.experiments.measuring import until
from fries_nb.run import Run
from fries_nb.workloads.scorer import AMOUNT, CUSTOMER
from fries_nb.workloads.workflows import w1_flow

CUSTOMERS, INTERVAL_S = 1_000, 1.0
MOST_MS = 50.0
_PATIENCE_S = 180.0


@dataclass(frozen=True)
class FirstRow(Sink):
    """Keeps the time of its first row only: the first line of a file for each writer."""

    path: str

    def claim(self, flow: str, run: str) -> None:
        """Make the directory."""
        Path(self.path).mkdir(parents=True, exist_ok=True)

    def open(self, writer_id: str) -> FirstRowWriter:
        """A writer with a file of its own."""
        return FirstRowWriter(Path(self.path, writer_id))

    def prepare(self, parts: Any) -> None:
        """There are no parts."""

    def commit(self, number: int, parts: Any) -> None:
        """There are no parts."""

    def discard(self, spared: Any) -> None:
        """There are no parts."""

    @property
    def at_ns(self) -> int:
        """Nanoseconds since the Unix epoch at which the first row was written; 0 if none was."""
        written = [path.read_text() for path in Path(self.path).glob("*") if not path.name.endswith(".draft")]
        return min(map(int, written), default=0)


class FirstRowWriter:
    """The writer of one worker; see ``FirstRow``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_written = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Note the time, if it is the first call."""
        if not self._is_written:
            self._is_written, at_ns = True, time.time_ns()
            draft = self._path.with_suffix(".draft")
            draft.write_text(str(at_ns))
            draft.rename(self._path)

    def close_part(self) -> tuple[str, ...]:
        """Nothing is output."""
        return ()


def _payment(value: int) -> dict[str, Any]:
    return {CUSTOMER: value % CUSTOMERS, AMOUNT: float(value % 97)}


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {CUSTOMER: row[CUSTOMER], "p": round(row["p"], 3)}


def _labelled(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"is_high": row["p"] > 0.9}


def _declared(branch: FirstRow | None = None) -> fn.Dataflow:
    flow = w1_flow(fn.rate(RATE, row=_payment), fn.memory(), cost_ms=COST_MS)
    if branch is not None:
        flow.stream("FD").map("Rounded", _rounded).map("Labelled", _labelled).sink("New", branch)
    return flow


class FirstRows:
    """Measures both sides on runs of their own."""

    def __init__(self, spark: Any, waiting_s: float) -> None:
        self.outcomes: list[Outcome] = []  # those of the changes
        self.returned_ms: list[float] = []  # the time after which ``run.apply`` had returned
        self._spark = spark
        self._waiting_s = waiting_s

    def applied(self) -> float:
        """Milliseconds from ``run.apply`` to the first row."""
        with self._filled() as (run, place):
            first = FirstRow(str(place / "new"))
            flow, asked_ns = _declared(first), time.time_ns()
            change = run.apply(flow)
            self.returned_ms.append((time.time_ns() - asked_ns) / 1e6)
            outcome = change.result(_PATIENCE_S)
            if not isinstance(outcome, Outcome) or outcome.outcome != "done":
                raise RunError(f"a change of the benchmark was {outcome.outcome}: {outcome.error}")
            self.outcomes.append(outcome)
            return self._since(run, first, asked_ns)

    def resumed(self) -> float:
        """Milliseconds from ``run.suspend`` to the first row of the run that is resumed with the branch."""
        with self._filled() as (run, place):
            first = FirstRow(str(place / "new"))
            flow, asked_ns = _declared(first), time.time_ns()
            run.suspend(_PATIENCE_S)
            again = flow.resume(str(place / "checkpoints"), self._spark, HOSTS, HOSTS, commit_interval_s=INTERVAL_S)
            try:
                return self._since(again, first, asked_ns)
            finally:
                _ended(again)

    @contextmanager
    def _filled(self) -> Iterator[tuple[Run, Path]]:
        with tempfile.TemporaryDirectory(prefix="fries-bench-") as place:
            run = _declared().run(
                self._spark, HOSTS, HOSTS, checkpoint=str(Path(place, "checkpoints")), commit_interval_s=INTERVAL_S
            )
            try:
                fill(run, self._waiting_s)
                yield run, Path(place)
            finally:
                _ended(run)

    def _since(self, run: Run, first: FirstRow, asked_ns: int) -> float:
        until(run, lambda: first.at_ns > 0, "the first row at the new sink", _PATIENCE_S, look_s=0.05)
        return (first.at_ns - asked_ns) / 1e6


def _ended(run: Run) -> None:
    run.request_stop(drain=False)  # its output is not looked at
    run.wait()


def reshape(scale: float, runs: int) -> BenchReport:
    """A branch added while tuples flow, against a run resumed with it; ``scale`` multiplies the queued work."""
    with spark_session(HOSTS) as spark:
        first = FirstRows(spark, WAITING_S * scale)
        sides = Side("run.apply", first.applied), Side("suspended, resumed", first.resumed)
        result = pairs(*sides, runs, unit="ms")
    target = Target("request to the first row at the new sink", result.a_median, MOST_MS, at_least=False, unit="ms")
    facts = {
        "work waiting, s": WAITING_S * scale,
        "least and most, ms": f"{min(result.a_figures):.0f} to {max(result.a_figures):.0f}",
        "of which run.apply() until it returned, ms": median(first.returned_ms),
        "to the last switch, ms": median(one.delay_ms for one in first.outcomes),
        "of which from the first control message on, ms": median(one.commit_ms for one in first.outcomes),
        "checkpoint every, s": INTERVAL_S,
    }
    return BenchReport("reshape", scale, (result,), (target,), facts, CREDIT_BYTES)
