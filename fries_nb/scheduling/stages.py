"""What a scheduler answers: who is sent a marker, with which scope, and what ends the stage.

The controller carries out any plan alike and knows no scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fries_nb.planning import Covering, Prediction


class StageAction(StrEnum):
    """What the markers of a stage do where they are applied."""

    SWITCH = "switch"
    """Targets switch to what was prepared."""
    TAG = "tag"
    """Sources tag what they read from now on; targets run both versions until the old one has drained."""
    HOLD = "hold"
    """Sources hold; when the stage is over, nothing is under way."""
    RELEASE = "release"
    """Sources go on."""
    RESTART = "restart"
    """A checkpoint is taken; when it is complete, the run starts again from it with the new functions."""


@dataclass(frozen=True)
class Send:
    """An FCM to every worker of ``operator``, with a marker for ``scope``; sends of equal scope share the marker."""

    operator: str
    scope: frozenset[str]


@dataclass(frozen=True)
class Stage:
    """Messages sent together. The stage ends when every worker of the operators in ``awaits`` is done."""

    sends: tuple[Send, ...]
    awaits: frozenset[str]
    does: StageAction = StageAction.SWITCH


@dataclass(frozen=True)
class Plan:
    """How a change of ``targets`` is carried out, stage by stage.

    ``covering`` is the synchronisation that the change needs, whether or not the scheduler keeps to it. ``prediction``
    says how long the change would take, if it was asked of a dataflow that runs; the plan is the same without.
    """

    scheduler: str
    targets: frozenset[str]
    stages: tuple[Stage, ...]
    covering: Covering
    prediction: Prediction | None = field(default=None, compare=False)
