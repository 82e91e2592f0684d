"""A change that a latency constraint proposes, until it is made.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.scheduling import schedule
>>> plan = schedule("fries", Graph("chain", (Operator("S"), Operator("FM")), (Edge("S", "FM"),)), ["FM"])
>>> constraint = LatencyConstraint(("FM",), latency_ms=300)
>>> def refuse():
...     raise AssertionError
>>> print(Proposal(constraint, plan, "FM[0] takes 402 ms, at most 300 ms", refuse))
lighter function of FM, since FM[0] takes 402 ms, at most 300 ms
>>> back = Proposal(constraint, plan, "the mean was 40 ms", refuse, undoes="u1")
>>> print(back)
back to the original function of FM, which change u1 had replaced, since the mean was 40 ms
>>> back.outcome
'open'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fries_nb.changes import Change
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.scheduling import Plan

OPEN, UNDER_WAY, DONE = "open", "under way", "done"
"""Outcomes of proposals; others are those of changes that were not made."""


@dataclass(frozen=True)
class Proposal:
    """A change proposed by a latency constraint with ``on_violation="propose"``.

    Attributes:
        constraint: the constraint.
        plan: the plan of the change.
        reason: why it is proposed, in one sentence.
        undoes: id of the change that it would undo, since the original functions could return; empty for a change to
            lighter functions.
        change: the change, once the proposal was accepted.
    """

    constraint: LatencyConstraint
    plan: Plan
    reason: str
    _accept: Callable[[], Change] = field(repr=False, compare=False)
    undoes: str = ""
    change: Change | None = None

    def __str__(self) -> str:
        return f"{self.what}, since {self.reason}"

    @property
    def operators(self) -> str:
        """The names of the operators that would change, as text."""
        return ", ".join(sorted(self.plan.targets))

    @property
    def what(self) -> str:
        """What would change, as a phrase without the reason."""
        functions = "function" if len(self.plan.targets) == 1 else "functions"
        if self.undoes:
            return f"back to the original {functions} of {self.operators}, which change {self.undoes} had replaced"
        return f"lighter {functions} of {self.operators}"

    @property
    def outcome(self) -> str:
        """``open``, ``under way`` or ``done``; ``aborted`` or ``failed`` if it was accepted and the change not made."""
        if self.change is None:
            return OPEN
        return self.change.result(timeout=0).outcome if self.change.done else UNDER_WAY

    @property
    def error(self) -> str:
        """Why the accepted change was not made; empty otherwise."""
        return self.change.result(timeout=0).error if self.change is not None and self.change.done else ""

    @property
    def prediction(self) -> Any:
        """The predicted delay of the change; ``None`` if tuples do not flow."""
        return self.plan.prediction

    def accept(self) -> Change:
        """Request the change; returns at once.

        Returns:
            The handle of the change.

        Raises:
            PlanError: the proposal has been accepted or withdrawn already.
            RunError: the run has ended.
        """
        return self._accept()
