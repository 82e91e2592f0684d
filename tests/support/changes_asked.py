"""What the handle of a change asks, where no run is behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fries_nb.changes.change import Change, FunctionPairs
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.controller.event_log import Timeline
from fries_nb.controller.states import ChangeProgress


@dataclass
class ChangesAsked:
    """Answers as told."""

    pairs: Callable[[str], FunctionPairs] = lambda change: {}
    steps: Callable[[Change], ChangeReplay] | None = None
    far: Callable[[str], ChangeProgress | None] = lambda change: None
    blocked: Callable[[str], str | None] = lambda change: None
    cancelled: Callable[[str], None] = lambda change: None

    def cancel(self, change: str) -> None:
        """As told."""
        self.cancelled(change)

    def functions(self, change: str) -> FunctionPairs:
        """As told."""
        return self.pairs(change)

    def progress(self, change: str) -> ChangeProgress | None:
        """As told."""
        return self.far(change)

    def story(self, change: str) -> Timeline:
        """Nothing has happened."""
        return Timeline(())

    def replay(self, change: Change, traced: bool) -> ChangeReplay:
        """As told."""
        assert self.steps is not None
        return self.steps(change)

    def blocked_by(self, change: str) -> str | None:
        """As told."""
        return self.blocked(change)
