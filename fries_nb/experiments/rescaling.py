"""Latency while a host joins and keyed state moves to it, by the number of bins that a step moves (Megaphone's figure).

Rows keep their rate; each of them goes to another account, so all bins have rows all the time. The accounts are filled
first; rows that were held back meanwhile are waited for. Then the run is measured in spans, a row belonging to the span
in which it was due:

    steady      one host
    joining     from the request to the first step of the moves
    moving      until the rescale is over; half of the state has moved then
    after       two hosts

    none         the host does not join; the spans are as long as the steady one
    fluid        a bin a step
    batched      ``BATCH`` bins a step
    adaptive     as many as take about 25 ms, which is what ``run.rescale(hosts)`` does
    all at once  one step

At scale 1 the accounts keep 1 GB, and a tenth of it in the smaller size: 10 KB each, which is what two processes and
their copies of what travels leave room for in 24 GB with all five modes in a few minutes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fries_nb as fn
from fries_nb.controller.states import RescalePhase
from fries_nb.errors import RunError
from fries_nb.experiments.measuring import PATIENCE_S, ExperimentScale, Result, Row, pause, running, session, until
from fries_nb.protocol.partitioning import BINS
from fries_nb.workloads.accounts import accounts_flow, wrong_rows

BATCH = 16
MODES: Mapping[str, int | None] = {"none": 0, "fluid": 1, "batched": BATCH, "adaptive": None, "all at once": BINS}
"""Mode to the number of bins a step, as ``run.rescale`` takes it; 0 if the host does not join."""
TOTAL_BYTES, STATE_BYTES = 1_000_000_000, 10_000
SIZES = (0.1, 1.0)
RATE, FILLING_RATE, SETTLED_MS = 1_000.0, 10_000.0, 100.0
PAPER_S, SHORTEST_S = 8.0, 0.5
POINT_S = 0.1
_LOOK_S = 0.002

Column = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Migration:
    """One run."""

    due_s: Column  # when each row was due, in seconds from the beginning of the steady span
    latency_ms: Column  # milliseconds from then until its account was booked
    spans: Mapping[str, tuple[float, float]]  # name to (beginning, end) in seconds; see the module
    wrong: int  # number of rows that were lost, doubled, or met another state

    def within(self, span: str) -> Column:
        """The latencies of the rows that were due in a span, in milliseconds."""
        since, until_s = self.spans[span]
        return self.latency_ms[(self.due_s >= since) & (self.due_s < until_s)]

    def p99_ms(self, span: str) -> float:
        """Their 99th percentile in milliseconds; 0 if there are none."""
        found = self.within(span)
        return float(np.percentile(found, 99)) if found.size else 0.0

    @property
    def gap_ms(self) -> float:
        """The longest time without a row booked, in milliseconds, from the request on."""
        booked_s = np.sort(self.due_s + self.latency_ms / 1000)
        booked_s = booked_s[booked_s >= self.spans["joining"][0]]
        return float(1000 * np.diff(booked_s).max(initial=0.0))

    def row(self) -> Row:
        """The figures of the table."""
        steady, moving, after = (self.p99_ms(span) for span in ("steady", "moving", "after"))
        since, until_s = self.spans["moving"]
        return {
            "steady p99 ms": steady,
            "joining p99 ms": self.p99_ms("joining"),
            "moving p99 ms": moving,
            "after p99 ms": after,
            "times steady": moving / steady if steady else None,
            "times after": moving / after if after else None,
            "worst ms": float(max(self.within("moving"), default=0.0)),
            "joining s": since - self.spans["joining"][0],
            "moving s": until_s - since,
            "lost or doubled": self.wrong,
        }

    def curve(self) -> list[Row]:
        """Median, 99th percentile and maximum in each tenth of a second."""
        at = np.floor(self.due_s / POINT_S)
        points = [(point * POINT_S, self.latency_ms[at == point]) for point in np.unique(at[at >= 0])]
        return [
            {
                "at_s": float(at_s), "p50_ms": float(np.median(found)), "p99_ms": float(np.percentile(found, 99)),
                "worst_ms": float(found.max()),
            }
            for at_s, found in points
        ]  # fmt: skip


def rescaling(scale: ExperimentScale) -> Result:
    """Rescaling: latency while a host joins and state moves, by the number of bins a step."""
    rows, curves, marks = list[Row](), list[Row](), list[Row]()
    seconds = scale.seconds(PAPER_S, SHORTEST_S)
    with session() as spark:
        for size in SIZES:
            accounts = max(BINS, int(TOTAL_BYTES / STATE_BYTES * size * scale.of_paper))
            for mode, at_once in MODES.items():
                found = measured(spark, at_once, accounts, STATE_BYTES, seconds)
                state = {"state MB": accounts * STATE_BYTES / 1e6, "moves": mode}
                rows.append({**state, **found.row()})
                curves += [{**state, **point} for point in found.curve()]
                marks += [{**state, "at_s": since, "kind": span} for span, (since, _) in found.spans.items()]
    parameters = {"hosts": "1 to 2", "rows/s": RATE, "bytes a key": STATE_BYTES, "steady s": seconds}
    title = "latency while a host joins and keyed state moves"
    return Result("rescaling", title, scale.of_paper, parameters, tuple(rows), tuple(curves), tuple(marks))


def measured(spark: Any, at_once: int | None, accounts: int, state_bytes: int, seconds: float) -> Migration:
    """Fill the accounts, wait, let a host join, wait."""
    flow = accounts_flow(FILLING_RATE, accounts, state_bytes)
    with running(flow, spark, workers=1, hosts=1, commit_interval_s=None) as run:
        until(run, lambda: run.metrics().operators["Book"].processed >= accounts, "all accounts", look_s=0.2)
        run.set_rate("Src", RATE)
        until(run, lambda: _is_settled(run), "rows that are not late", PATIENCE_S, look_s=0.2)
        pause(seconds / 4)
        spans = _spans(run, at_once, seconds)
        run.stop()
        table = run.output().select("value", "nth", "timestamp", "booked_ns").toArrow()
    value, nth, due_ns, booked_ns = (column.to_numpy() for column in table.columns)
    began_ns = spans["steady"][0] * 1e9
    from_start = {name: (since - began_ns / 1e9, to - began_ns / 1e9) for name, (since, to) in spans.items()}
    latency_ms = (booked_ns - due_ns) / 1e6
    wrong = wrong_rows(value.tolist(), nth.tolist(), accounts)
    return Migration((due_ns - began_ns) / 1e9, latency_ms, from_start, wrong)


def _is_settled(run: fn.Run) -> bool:
    points = run.history.latency
    return bool(points) and points[-1].p50_ms < SETTLED_MS


def _spans(run: fn.Run, at_once: int | None, seconds: float) -> dict[str, tuple[float, float]]:
    """The spans of a run, in seconds since 1970."""
    began_s = time.time()
    pause(seconds)
    requested_s = moving_s = time.time()
    if at_once == 0:
        pause(seconds)
    else:
        rescale = run.rescale(2, at_once)

        def moves() -> bool:
            return run.topology().phase == RescalePhase.BALANCING or bool(rescale.outcome)

        until(run, moves, "the moves", PATIENCE_S, look_s=_LOOK_S)
        moving_s = time.time()
        if (result := rescale.result(PATIENCE_S)).outcome != "done":
            raise RunError(f"the rescale of an experiment was {result.outcome}: {result.error}")
    over_s = time.time()
    pause(seconds)
    return {
        "steady": (began_s, requested_s),
        "joining": (requested_s, moving_s),
        "moving": (moving_s, over_s),
        "after": (over_s, time.time()),
    }
