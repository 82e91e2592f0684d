"""The policies of constraints over a run's queue: what is requested, when, and what ends the automatism."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from queue_setting import Desk, function

from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency
from fries_nb.constraints.remedy import RemedyPhase
from fries_nb.controller.events import Outcome
from fries_nb.dataflow import constraint_of
from fries_nb.dataflow.lighter import NONE_LIGHTER, lighter
from fries_nb.dataflow.updates import Update
from fries_nb.errors import DataflowError, PlanError, RunError
from fries_nb.messages import Report, WorkerId
from fries_nb.running.remedies import Remedies
from fries_nb.running.telemetry import Telemetry
from fries_nb.scheduling import Plan

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


def test_the_lighter_function_comes_and_goes_by_ordinary_changes() -> None:
    """The driver's thread requests nothing itself; the state is transformed there and back."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    assert (desk.orders, desk.phase, desk.said) == ([], "applying", "lighter functions of A are being applied")
    desk.later.make()
    assert desk.orders == ["0:u1"]
    (change,) = desk.queue.changes
    assert (change.constraint, change.label) == ("A -> B", "A by fries, by constraint")
    desk.end(0, "u1")
    assert (desk.phase, desk.said) == ("lighter", "lighter functions of A run by change u1")
    desk.judge(100, 100, rate=80.0)  # 0.8 of a worker's time
    assert desk.phase == "lighter"
    desk.judge(100, 100, rate=20.0)
    assert desk.phase == "returning"
    desk.later.make()
    assert desk.orders == ["0:u1", "0:u2"]
    assert desk.last is not None
    assert (desk.last.undoes, desk.said) == ("u1", "the original functions of A return")
    back = desk.queue.changes[1].updates["A"]
    assert (back.function.__name__, back.state, back.back) == ("first", tuple, list)
    desk.end(0, "u2")
    assert (desk.phase, desk.said) == ("original", "")
    labels = [(mark.change, mark.kind, mark.label) for mark in desk.telemetry.marks()]
    words = "A by fries, by constraint"
    assert labels == [("u1", "request", words), ("u1", "done", words), ("u2", "request", words), ("u2", "done", words)]
    assert desk.remedies.violations() == ()


def test_it_does_not_return_if_the_cost_of_a_row_is_unknown() -> None:
    """Whatever the latency of its batch was."""
    desk = ConstrainedDesk()
    desk.row_ms = 0.0
    desk.judge(30, 900)
    desk.later.make()
    desk.end(0, "u1")
    desk.row_ms = 10.0  # that of the lighter function
    desk.judge(200, 100, rate=20.0)
    assert desk.phase == "lighter"


def test_it_returns_below_later_changes_of_other_operators() -> None:
    """These stay in effect, and a rollback by the user undoes the newest of them."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.later.make()
    desk.end(0, "u1")
    desk.ask(B=function("b"))
    desk.end(0, "u2")
    desk.judge(100, 100, rate=20.0)
    desk.later.make()
    assert desk.last is not None
    assert (desk.last.change, desk.last.undoes, set(desk.queue.changes[2].updates)) == ("u3", "u1", {"A"})
    desk.end(0, "u3")
    assert desk.phase == "original"
    desk.roll_back()
    assert desk.last.undoes == "u2"


def test_an_automatic_change_is_not_merged_with_changes_of_the_user() -> None:
    """The way back would undo theirs."""
    desk = ConstrainedDesk()
    desk.ask(B=function("b"))
    desk.judge(30, 900)
    desk.later.make()
    desk.ask(merge=True, B=function("c"))
    assert [one.merged for one in desk.queue._known.requests] == [("u1",), ("u2",), ("u3",)]


USER = "change u{} of A was requested"


@pytest.mark.parametrize("moment", ["before", "decided", "under way", "lighter", "returning"])
def test_a_change_of_the_user_ends_the_automatism(moment: str) -> None:
    """Whenever it comes, also between the decision and the request, it is the last one."""
    desk = ConstrainedDesk()
    if moment != "before":
        desk.judge(30, 900)
    if moment not in ("before", "decided"):
        desk.later.make()
    if moment in ("lighter", "returning"):
        desk.end(0, "u1")
    if moment == "returning":
        desk.judge(100, 100, rate=20.0)
    change, _ = desk.ask(A=function("user"), B=function("user"))
    desk.later.make()
    if moment == "under way":
        desk.end(0, "u1")
    desk.end(0, change.id)
    desk.judge(2_000, 900)
    desk.judge(200, 100, rate=20.0)
    desk.later.make()
    assert (desk.phase, desk.said) == ("ended", "ended: " + USER.format(change.id[1:]))
    assert desk.queue.changes[-1] is change
    assert len(desk.remedies.violations()) == 1


def test_a_rollback_by_the_user_ends_the_automatism_as_well() -> None:
    """It is a change of the same operators."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.later.make()
    desk.end(0, "u1")
    desk.roll_back()
    assert (desk.phase, desk.said) == ("ended", "ended: " + USER.format(2))


@pytest.mark.parametrize("outcome", ["aborted", "failed"])
@pytest.mark.parametrize("way", ["there", "back"])
def test_an_automatic_change_that_is_not_done_ends_the_automatism(
    outcome: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason, which is also logged: for instance that the new columns do not fit."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.later.make()
    if way == "back":
        desk.end(0, "u1")
        desk.judge(100, 100, rate=20.0)
        desk.later.make()
    change = desk.queue.changes[-1].id
    desk.end(0, change, outcome, "FM: column p is missing")
    assert desk.said == f"ended: change {change} was {outcome}: FM: column p is missing"
    assert "no further change is made by this constraint, since change" in caplog.text
    desk.judge(2_000, 900)
    desk.later.make()
    assert desk.queue.changes[-1].id == change


def test_a_request_that_is_refused_ends_the_automatism() -> None:
    """As at the end of a run."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.over = "finished"
    desk.later.make()
    assert desk.said == "ended: run 'desk' has finished; a change needs a running dataflow"


def test_a_defect_of_a_request_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """The automatism ends, and the thread fails visibly."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    monkeypatch.setattr(desk, "ship", lambda updates: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        desk.later.make()
    assert desk.said == "ended: ZeroDivisionError: division by zero"


def test_a_violation_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """In the log and in a list; again after it was met meanwhile."""
    desk = ConstrainedDesk("tell")
    with caplog.at_level(logging.WARNING, "fries_nb"):
        desk.judge(50, 900)
        desk.judge(5, 100)
        desk.judge(50, 900)
    assert [one.reason for one in desk.remedies.violations()] == [REASON, REASON]
    assert caplog.messages == [f"A -> B: at most 300 ms over 10 s is violated: {REASON}"] * 2
    assert (desk.queue.changes, desk.later.calls) == ((), [])


def test_a_proposal_is_made_and_accepted_there_and_back() -> None:
    """It has the plan and the reason; nothing is requested without consent."""
    desk = ConstrainedDesk("propose")
    desk.judge(30, 900)
    assert desk.remedies.proposals() == ()
    desk.later.make()
    (proposal,) = desk.remedies.proposals()
    assert (proposal.plan.targets, proposal.reason, proposal.prediction) == (frozenset({"A"}), REASON, None)
    assert (desk.queue.changes, desk.said) == ((), "lighter functions of A are proposed")
    assert proposal.accept().constraint == "A -> B"
    assert desk.remedies.proposals() == ()
    desk.end(0, "u1")
    desk.judge(100, 100, rate=20.0)
    desk.later.make()
    (back,) = desk.remedies.proposals()
    assert desk.said == "lighter functions of A run by change u1; the return is proposed"
    back.accept()
    assert desk.last is not None
    assert desk.last.undoes == "u1"
    desk.end(0, "u2")
    assert desk.phase == "original"


def test_a_proposal_is_accepted_once() -> None:
    """Or withdrawn: when the constraint is met, or the user changes the operator."""
    met, changed, twice = (ConstrainedDesk("propose") for _ in range(3))
    for desk in (met, changed, twice):
        desk.judge(30, 900)
        desk.later.make()
    old = [desk.remedies.proposals()[0] for desk in (met, changed, twice)]
    met.judge(1, 100)
    changed.ask(A=function("user"))
    twice.remedies.proposals()[0].accept()
    for desk, proposal in zip((met, changed, twice), old, strict=True):
        assert desk.remedies.proposals() == ()
        with pytest.raises(
            PlanError, match=r"^the proposal to change A was accepted or withdrawn already; expected on"
        ):
            proposal.accept()
    assert (met.phase, changed.phase, twice.phase) == ("original", "ended", "applying")


def test_a_proposal_that_is_withdrawn_while_it_is_planned_is_not_shown() -> None:
    """Planning takes time in another thread."""
    desk = ConstrainedDesk("propose")
    desk.judge(30, 900)
    desk.judge(1, 100)
    desk.later.make()
    assert desk.remedies.proposals() == ()


def test_a_proposal_that_cannot_be_carried_out_says_why() -> None:
    """To the caller, and in the state."""
    desk = ConstrainedDesk("propose")
    desk.judge(30, 900)
    desk.later.make()
    desk.over = "finished"
    with pytest.raises(RunError, match="needs a running dataflow"):
        desk.remedies.proposals()[0].accept()
    assert desk.said == "ended: run 'desk' has finished; a change needs a running dataflow"


def test_declared_again_an_ended_automatism_begins_anew() -> None:
    """With the new lighter functions; one that has not ended goes on as it was."""
    desk = ConstrainedDesk()
    desk.judge(30, 900)
    desk.remedies.add(desk.constraint, desk.light)
    assert desk.phase == "applying"
    desk.ask(A=function("user"))
    desk.later.make()
    desk.remedies.add(desk.constraint, lighter({"A": function("lightest")}))
    assert desk.phase == "original"
    desk.judge(30, 900)
    desk.later.make()
    assert desk.queue.changes[-1].updates["A"].function.__name__ == "lightest"


def test_a_resumed_run_does_not_make_a_state_lighter_twice() -> None:
    """Operators that were changed before are left to the user; others are not."""
    desk = ConstrainedDesk()
    desk.remedies.resumed(["B"])
    assert desk.said == ""
    desk.remedies.resumed(["A", "B"])
    assert desk.said == "ended: A had been changed before the run was resumed"


def test_a_second_constraint_on_an_operator_that_has_lighter_functions_is_refused() -> None:
    """And is not kept."""
    desk = ConstrainedDesk()
    other = constraint_of(desk.graph, ["A"], 100, WINDOW_S, "apply")
    with pytest.raises(DataflowError, match="A has lighter functions in two constraints, on A -> B and on A, which"):
        desk.remedies.add(other, desk.light)
    assert [one.constraint for one in desk.remedies.states()] == [desk.constraint]


def test_a_change_that_others_have_replaced_is_not_rolled_back_by_name() -> None:
    """Nor is one that is undone already, or unknown."""
    desk = Desk()
    desk.ask(A=function("a1"))
    desk.ask(A=function("a2"))
    for change in ("u1", "u2"):
        desk.end(0, change)
    with pytest.raises(PlanError, match=r"^change u2 has changed A since change u1; roll that back first$"):
        desk.queue.roll_back(change="u1")
    assert desk.queue.roll_back(change="u2").id == "u3"
    with pytest.raises(PlanError, match=r"^change u2 is not in effect and cannot be rolled back$"):
        desk.queue.roll_back(change="u2")
    with pytest.raises(PlanError, match=r"^change u9 is not in effect"):
        desk.queue.roll_back(change="u9")
