"""Whether the state of an operator grows without a bound, from what its workers report.

Workers report the numbers of keys of which they keep a state. Each minute one number of an operator is kept, and those
of the last ten minutes are compared. A state grows without a bound, as far as can be seen, if there were more keys in
each of these minutes, and the second half has added at least half as many as the first: where keys come back, fewer and
fewer are new.

>>> growth = StateGrowth()
>>> for minute in range(11):
...     growth.add({"FM": 1_000 * minute, "FC": 50_000 - 50_000 // 2**minute, "FD": 7}, 60.0 * minute)
>>> print(*growth.growing.values())
FM keeps the states of 10,000 keys, and 1,000 more each minute for 10 minutes, without a bound in sight; expected ...

States that grow while their number of keys does not, as lists to which each row is added, are not seen here; for these
``Run.state_sizes`` measures a sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

STEP_S = 60.0
"""Seconds between two numbers that are kept."""
STEPS = 10
"""Number of steps in each of which keys have come if a state grows."""
LEAST_KEYS = 1_000
"""Number of keys below which a state does not count as one that grows."""


@dataclass(frozen=True)
class Growth:
    """A state that grows.

    Attributes:
        operator: the operator.
        keys: its number of keys.
        per_minute: number of keys that have come in a minute, over the last ten minutes.
    """

    operator: str
    keys: int
    per_minute: float

    def __str__(self) -> str:
        more = f"and {self.per_minute:,.0f} more each minute for {STEPS * STEP_S / 60:g} minutes"
        advice = "expected keys that come back, or windows, whose states end with them"
        return f"{self.operator} keeps the states of {self.keys:,} keys, {more}, without a bound in sight; {advice}"


class StateGrowth:
    """The numbers of keys of operators over the last minutes.

    Attributes:
        growing: the operators whose state grows without a bound, as far as can be seen.
    """

    def __init__(self) -> None:
        self.growing: dict[str, Growth] = {}
        self._seen: deque[tuple[float, dict[str, int]]] = deque(maxlen=STEPS + 1)

    def is_due(self, at_s: float) -> bool:
        """Whether the next numbers are to be added at this time, in seconds of any clock."""
        return not self._seen or not 0 <= at_s - self._seen[-1][0] < STEP_S  # also if the clock was set back

    def add(self, keys: Mapping[str, int], at_s: float) -> None:
        """Add the number of keys of each operator."""
        if self._seen and at_s < self._seen[-1][0]:
            self._seen.clear()
        self._seen.append((at_s, dict(keys)))
        found = {name: self._growth(name) for name, count in keys.items() if count >= LEAST_KEYS}
        self.growing = {name: growth for name, growth in found.items() if growth is not None}

    def _growth(self, operator: str) -> Growth | None:
        if len(self._seen) <= STEPS:
            return None
        counts = [keys.get(operator, 0) for _, keys in self._seen]
        steps = [later - earlier for earlier, later in pairwise(counts)]
        half = len(steps) // 2
        if min(steps) <= 0 or 2 * sum(steps[half:]) < sum(steps[:half]):
            return None
        minutes = (self._seen[-1][0] - self._seen[0][0]) / 60
        return Growth(operator, counts[-1], sum(steps) / minutes)
