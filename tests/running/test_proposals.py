"""Proposals of constraints: what they say, and what becomes of them once they are accepted, or withdrawn."""

from __future__ import annotations

import pytest
from queue_setting import function
from remedy_setting import REASON, ConstrainedDesk

from fries_nb.errors import PlanError, RunError


def test_a_proposal_is_made_and_accepted_there_and_back() -> None:
    """It has the plan and the reason; nothing is requested without consent."""
    desk = ConstrainedDesk("propose")
    desk.judge(30, 900)
    assert desk.remedies.proposals() == ()
    desk.later.make()
    (proposal,) = desk.remedies.proposals()
    assert (proposal.plan.targets, proposal.reason, proposal.prediction) == (frozenset({"A"}), REASON, None)
    assert (desk.queue.changes, desk.said) == ((), "lighter functions of A are proposed")
    assert (str(proposal), proposal.outcome) == (f"lighter function of A, since {REASON}", "open")
    assert proposal.accept().constraint == "A -> B"
    assert [one.outcome for one in desk.remedies.proposals()] == ["under way"]
    desk.end(0, "u1")
    assert desk.remedies.proposals() == ()
    desk.judge(100, 100, rate=20.0)
    desk.later.make()
    (back,) = desk.remedies.proposals()
    assert str(back) == (
        "back to the original function of A, which change u1 had replaced, since the mean of 100 ms has been below 50% "
        "of the limit of 300 ms for 4 windows, and the original functions would take 20% of a worker's time at the "
        "present rate"
    )
    assert desk.said == "lighter functions of A run by change u1; the return is proposed"
    back.accept()
    assert desk.last is not None
    assert desk.last.undoes == "u1"
    desk.end(0, "u2")
    assert desk.phase == "original"


@pytest.mark.parametrize("way", ["there", "back"])
def test_a_proposal_whose_change_is_not_made_says_why(way: str) -> None:
    """It stays, with the outcome and the error, until the user changes the operator or declares anew."""
    desk = ConstrainedDesk("propose")
    desk.judge(30, 900)
    desk.later.make()
    if way == "back":
        desk.remedies.proposals()[0].accept()
        desk.end(0, "u1")
        desk.judge(100, 100, rate=20.0)
        desk.later.make()
    change = desk.remedies.proposals()[0].accept()
    desk.end(0, change.id, "aborted", "A[0]: open() raised OSError: no model")
    (proposal,) = desk.remedies.proposals()
    assert (proposal.outcome, proposal.error) == ("aborted", "A[0]: open() raised OSError: no model")
    assert proposal.change is change
    with pytest.raises(PlanError, match="accepted or withdrawn already"):
        proposal.accept()
    desk.judge(2_000, 900)
    assert desk.remedies.proposals() == (proposal,)
    desk.ask(A=function("user"))
    assert desk.remedies.proposals() == ()


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
        assert proposal not in desk.remedies.proposals()
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
