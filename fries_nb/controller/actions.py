"""What the markers of a change make workers do, by what its plan says of a stage."""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.errors import ProtocolError
from fries_nb.messages import Action, Hold, Reconfigure, Release
from fries_nb.scheduling.stages import Stage, StageAction


def tags(stages: Iterable[Stage]) -> bool:
    """Whether the change comes by versions: workers then tell its tuples by their tag, so two such do not overlap."""
    return any(stage.does is StageAction.TAG for stage in stages)


def action_of(stage: Stage, change: str, targets: frozenset[str], before: str) -> Action:
    """The action of a stage's markers; ``before`` is a change that this one, a fix, is ordered ahead of.

    Raises:
        ProtocolError: the stage has none (a restart).
    """
    match stage.does:
        case StageAction.SWITCH:
            return Reconfigure(change, targets, before=before)
        case StageAction.TAG:
            return Reconfigure(change, targets, tagged=True)
        case StageAction.HOLD:
            return Hold(change)
        case StageAction.RELEASE:
            return Release(change)
        case _:
            raise ProtocolError(f"a stage that does {stage.does} has no marker")
