"""Plans: stages of messages, each with the receivers, the scope of the marker, and the workers whose answer ends it.

The controller carries out every plan in the same way, whatever scheduler made it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from fries_nb.planning import Covering, Prediction


class StageAction(StrEnum):
    """The action of a stage's markers."""

    SWITCH = "switch"
    """Targets switch to the prepared functions."""
    TAG = "tag"
    """Sources tag the tuples that they read from now on; targets run both versions until the old one has drained."""
    HOLD = "hold"
    """Sources stop reading; when the stage ends, no tuple is in transit."""
    RELEASE = "release"
    """Sources continue to read."""
    RESTART = "restart"
    """A checkpoint is taken; when it is complete, the run restarts from it with the new functions."""


@dataclass(frozen=True)
class Send:
    """An FCM to every worker of ``operator``, with a marker for ``scope``; sends of equal scope share one marker."""

    operator: str
    scope: frozenset[str]


@dataclass(frozen=True)
class Stage:
    """Messages that are sent together. The stage ends when every worker of the operators in ``awaits`` is done."""

    sends: tuple[Send, ...]
    awaits: frozenset[str]
    does: StageAction = StageAction.SWITCH


@dataclass(frozen=True)
class Plan:
    """The stages of a change of ``targets``.

    ``covering`` is the synchronisation that the change needs, whether or not the scheduler provides it. ``prediction``
    is the predicted delay if the plan was made for a run with flowing data; it does not influence the stages.
    """

    scheduler: str
    targets: frozenset[str]
    stages: tuple[Stage, ...]
    covering: Covering
    prediction: Prediction | None = field(default=None, compare=False)

    @property
    def scope(self) -> frozenset[str]:
        """The operators that the plan changes or whose workers its markers pass."""
        return self.targets.union(*(send.scope for stage in self.stages for send in stage.sends))
