"""A run's queue with a constraint, whose verdicts a test gives, and its remedies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from queue_setting import Desk, function

from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency, RemedyPhase
from fries_nb.controller.events import Outcome
from fries_nb.dataflow import LatencyConstraint, constraint_of
from fries_nb.dataflow.updates import NONE_LIGHTER, Update, lighter
from fries_nb.errors import RunError
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.running.remedies import Remedies
from fries_nb.telemetry.telemetry import Telemetry

WINDOW_S = 10.0
REASON = "A[0] -> B[0] takes 900 ms, at most 300 ms"


class Deferred:
    """Calls in the background, made when a test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def start(self, call: Callable[[], None]) -> None:
        """Keep it."""
        self.calls.append(call)

    def join(self) -> None:
        """None runs by itself."""

    def make(self) -> None:
        """Make all calls."""
        while self.calls:
            self.calls.pop(0)()


class ConstrainedDesk(Desk):
    """A queue with a constraint on A -> B, whose verdicts the test gives; A is to become lighter."""

    def __init__(self, policy: str = "apply") -> None:
        super().__init__()
        self.telemetry = Telemetry(self.graph, clock=lambda: self.now_s)
        self.judged: tuple[LatencyConstraint, ...] = ()
        self.later = Deferred()
        self.remedies = Remedies(self.graph, self, lambda: self.now_s, self.later)
        self.constraint = constraint_of(self.graph, ["A", "B"], 300, WINDOW_S, policy)
        self.light = lighter({"A": Update(function("light"), state=list, back=tuple)})
        self.remedies.add(self.constraint, NONE_LIGHTER if policy == "tell" else self.light)
        self.over = ""
        self.row_ms = 10.0

    def requested(self, change: Any) -> None:
        """To the remedies as well."""
        self.remedies.requested(change)

    def ended(self, change: Any, outcome: Outcome) -> None:
        """To the remedies as well."""
        super().ended(change, outcome)
        self.remedies.ended(change, outcome)

    def limit(self, constraints: tuple[LatencyConstraint, ...]) -> None:
        """What hosts judge from now on."""
        self.judged = constraints

    def refuse_if_over(self, why: str) -> None:
        """Once the test says so."""
        if self.over:
            raise RunError(f"run 'desk' has {self.over}; {why}")

    def plan(self, targets: Iterable[str], scheduler: str, pruning: bool) -> Plan:
        """As a run's."""
        return self.queue.plan(targets, scheduler, pruning, None)

    def judge(self, seconds: float, mean_ms: float, rate: float = 50.0) -> None:
        """For so long the mean is this, at a rate of rows per second; A takes 10 ms for a row, in batches of 16."""
        violated_s = 0.0
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += 1
            is_violated = mean_ms > 300
            violated_s += is_violated
            status = ConstraintStatus.VIOLATED if is_violated else ConstraintStatus.MET
            elements = (
                ElementLatency("A", 160.0, 160.0, row_ms=self.row_ms),
                ElementLatency("A -> B", mean_ms - 160, mean_ms - 160),
            )
            verdict = ConstraintVerdict(
                self.constraint.sequence, 300, WINDOW_S, 0, int(self.now_s * 1e9), status, REASON, mean_ms, mean_ms,
                elements=elements, rows=1, violated_windows=int(violated_s // WINDOW_S), exhausted=is_violated,
            )  # fmt: skip
            region = self.queue._regions[0]
            self.telemetry.report(region, Report(WorkerId("A", 0), int(rate * self.now_s), 0))
            self.telemetry.constraints.judge([verdict])
            self.remedies.judged()

    @property
    def phase(self) -> RemedyPhase:
        """That of the remedy."""
        return self.remedies._cases[self.constraint].remedy.phase

    @property
    def said(self) -> str:
        """What ``run.constraints()`` says of the remedy."""
        return self.remedies.states()[0].remedy
