"""What the handle of a change asks, where no run is behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pandas import DataFrame, Index, MultiIndex

from fries_nb.changes.arm_comparison import ARMS, ArmCounts
from fries_nb.changes.canary_gates import ArmsLook, CanaryStatus
from fries_nb.changes.change import Change, FunctionPairs
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.controller.event_log import Timeline
from fries_nb.controller.states import ChangeProgress
from fries_nb.dataflow.masking import MASK
from fries_nb.running.shadows import Shadow, ShadowComparison


@dataclass
class StandInCanaries:
    """Canaries whose share is what was asked for; both versions have made what a page must escape, or mask."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    waits: str = ""

    def status(self, change: str) -> CanaryStatus | None:
        """As asked for."""
        if change not in self.shares:
            return None
        old, new = ArmCounts(95, 0, 0.2), ArmCounts(5, 0, 0.4)
        looks = tuple(ArmsLook(at_s, old, replace(new, failures=int(at_s > 4))) for at_s in range(9))
        return CanaryStatus(self.shares[change], 0.0, old, new, self.waits, history=looks)

    def compare(self, by: str | None) -> DataFrame:
        """Of few rows."""
        figures = {"<b> mean": [0.5, 0.75], "<b> p50": [0.5, 0.7], "card mean": [4000.0, 4001.0]}
        if by is None:
            table = DataFrame({"rows": [95, 5], "failures": [0, 0]} | figures, index=Index(ARMS, name="arm"))
        else:
            table = DataFrame(figures, index=MultiIndex.from_tuples([(7, arm) for arm in ARMS], names=[by, "arm"]))
        table.attrs["hidden_columns"] = ["card"]
        return table


FOUND = ShadowComparison(
    990, 12, {"<b>": 12}, 1, 0, 3, {"FM": 4}, {"numbers": 5}, {"FM": (0.2, 0.4)},
    ((("numbers", 0, 7), {"<b>": 0.5, "card": MASK}, {"<b>": 0.75, "card": MASK}), (("numbers", 0, 9), {"n": 1}, None)),
)  # fmt: skip
"""As a run's, hidden columns masked; with what a page must escape."""


class StandInShadow(Shadow):
    """A shadow that has found ``FOUND``, and ends with the next change."""

    request: Callable[[], Change]

    def _look(self, timeout: float) -> ShadowComparison:
        return FOUND

    def _end(self, words: tuple[str, str], *_: Any) -> Change:
        self._ending = (words, self.request())
        return self._ending[1]


@dataclass
class ChangesAsked:
    """Answers as told."""

    pairs: Callable[[str], FunctionPairs] = lambda change: {}
    steps: Callable[[Change], ChangeReplay] | None = None
    far: Callable[[str], ChangeProgress | None] = lambda change: None
    blocked: Callable[[str], str | None] = lambda change: None
    cancelled: Callable[[str], None] = lambda change: None
    canaries: StandInCanaries = field(default_factory=StandInCanaries)
    begin: Callable[[str, float], Change] | None = None

    def cancel(self, change: str) -> None:
        """As told."""
        self.cancelled(change)

    def share(self, change: str) -> float:
        """As asked for."""
        return self.canaries.shares.get(change, 1.0)

    def canary(self, change: str) -> CanaryStatus | None:
        """As asked for."""
        return self.canaries.status(change)

    def compare(self, change: Change, by: str | None, timeout: float) -> DataFrame:
        """Of few rows."""
        return self.canaries.compare(by)

    def step(self, change: str, share: float) -> Change:
        """Is done."""
        assert self.begin is not None
        return self.begin(change, share)

    def roll_back(self, scheduler: str = "fries", change: str = "") -> Change:
        """Is done."""
        return self.step(change, 0.0)

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
