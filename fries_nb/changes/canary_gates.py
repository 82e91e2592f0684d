"""The gates of a canary: when it goes on to its next share, and when it goes back.

At each share it waits for ``every``, a number of rows of the new version or of seconds, and then asks ``promote_when``:

    more than ``tolerate`` rows of the new version have failed    back to the old version, whatever it waits for
    not enough rows, or seconds, at this share                    wait
    ``promote_when`` answers true, or there is none               on to the next share, or the end
    ``promote_when`` answers false                                wait for as much again
    ``promote_when`` raises, or answers neither                   back to the old version

>>> gates = checked_gates(0.05, [0.05, 0.25, 1], Tuples(100), lambda arms: arms["good"], 0)
>>> progress = GateProgress(gates, 0.05, now_s=0)
>>> progress.judge(ArmCounts(40), now_s=1, compare=dict), progress.words
(None, 'goes on to 25% after 100 rows of the new version at 5%, 40 so far')
>>> progress.judge(ArmCounts(100), now_s=2, compare=lambda: {"good": False}), progress.words
(None, 'promote_when has not accepted; goes on to 25% after 100 further rows of the new version at 5%, 0 so far')
>>> progress.judge(ArmCounts(210), now_s=3, compare=lambda: {"good": True})
GateDecision(share=0.25, reason='promote_when has accepted')
>>> GateProgress(gates, 0.25, now_s=4, taken=210).judge(ArmCounts(211, failures=1), now_s=5, compare=dict)
GateDecision(share=0.0, reason='1 row has failed in the new version, and tolerate=0')
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from fries_nb.changes.arm_comparison import NONE_YET, ArmCounts
from fries_nb.dataflow.arguments import Limit, Tuples, is_duration
from fries_nb.errors import PlanError, exception_text


@dataclass(frozen=True)
class Gates:
    """How a canary goes on by itself.

    Attributes:
        shares: the shares of its steps, the first one included, in order; one only if it does not go on by itself.
        every: how long it stays at each, in rows of the new version at all targets, or in seconds.
        promote_when: is asked then, with the comparison of both arms; ``None`` to go on unasked.
        tolerate: number of rows on which the new version may fail.
    """

    shares: tuple[float, ...]
    every: Limit | None = None
    promote_when: Callable[[Any], Any] | None = None
    tolerate: int = 0

    def after(self, share: float) -> float | None:
        """The next share; ``None`` if there is none, as behind a rollback."""
        return next((one for one in self.shares if 0 < share < one), None)


def checked_gates(canary: Any, steps: Any, every: Any, promote_when: Any, tolerate: Any) -> Gates | None:
    """The validated values of what says how a canary goes on; ``None`` if there is no canary.

    Raises:
        PlanError: one of them is invalid, or makes no sense without another one.
    """
    given = {"steps": steps, "every": every, "promote_when": promote_when}
    present = [name for name, value in given.items() if value is not None]
    if canary is None:
        if named := present + ["tolerate"] * bool(tolerate):
            raise PlanError(f"{named[0]}= is of a canary; expected canary= as well, as in canary=0.05")
        return None
    if isinstance(tolerate, bool) or not isinstance(tolerate, int) or tolerate < 0:
        raise PlanError(f"tolerate={tolerate!r}: expected the number of rows that may fail, 0 or more")
    if not present:
        return Gates((canary,), tolerate=tolerate)
    if steps is None or every is None:
        missing = "steps=[0.05, 0.25, 1]" if steps is None else "every=fn.tuples(10_000), or seconds"
        raise PlanError(f"got {' and '.join(f'{name}=' for name in present)} of a canary; expected {missing} as well")
    if promote_when is not None and not callable(promote_when):
        raise PlanError(f"promote_when={promote_when!r}: expected a function of the comparison of both versions")
    if not isinstance(every, Tuples) and not is_duration(every):
        raise PlanError(f"every={every!r}: expected fn.tuples(number), or seconds, more than 0 and at most a year")
    return Gates(_checked_shares(canary, steps), every if isinstance(every, Tuples) else float(every),
                 promote_when, tolerate)  # fmt: skip


def _checked_shares(canary: float, steps: Any) -> tuple[float, ...]:
    is_list = isinstance(steps, Sequence) and not isinstance(steps, str)
    shares = list(steps) if is_list else []
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) and 0 < one <= 1 for one in shares)
    if not shares or not numbers or any(low >= high for low, high in pairwise(shares)):
        raise PlanError(f"steps={steps!r}: expected shares that rise, more than 0 and at most 1, as [0.05, 0.25, 1]")
    if shares[0] != canary and not canary < shares[0]:
        raise PlanError(f"steps={steps!r} of canary={canary:g}: expected steps that begin with {canary:g}, or go on")
    return tuple(map(float, shares)) if shares[0] == canary else (canary, *map(float, shares))


@dataclass(frozen=True)
class GateDecision:
    """What is to be done with a canary.

    Attributes:
        share: the share to which it goes on; 0 if it goes back.
        reason: why, in a sentence.
    """

    share: float
    reason: str


class GateProgress:
    """A canary at one of its shares.

    Args:
        gates: how it goes on.
        share: the share.
        now_s: when it has got it, in seconds of any clock.
        taken: number of rows that the new version had processed by then.

    Attributes:
        words: what it waits for, in a sentence; empty if it does not go on by itself.
    """

    def __init__(self, gates: Gates, share: float, now_s: float, taken: int = 0) -> None:
        self._gates, self.share = gates, share
        self._since_s, self._taken = now_s, taken
        self._was_refused = False
        self.words = ""
        self._wait(taken, now_s)

    def judge(self, new: ArmCounts, now_s: float, compare: Callable[[], Any]) -> GateDecision | None:
        """What is to be done now; ``None`` to wait.

        Args:
            new: what the new version has done so far.
            now_s: seconds of the same clock.
            compare: makes what ``promote_when`` gets.
        """
        gates = self._gates
        if new.failures > gates.tolerate:
            rows = "1 row has" if new.failures == 1 else f"{new.failures:,} rows have"
            return GateDecision(0.0, f"{rows} failed in the new version, and tolerate={gates.tolerate}")
        self._taken = min(self._taken, new.rows)  # workers that were restored count from 0 again
        following = gates.after(self.share)
        if following is not None and self._is_due(new.rows, now_s):
            if (decision := self._asked(following, compare)) is not None:
                return decision
            self._taken, self._since_s, self._was_refused = new.rows, now_s, True
        self._wait(new.rows, now_s)
        return None

    def _is_due(self, taken: int, now_s: float) -> bool:
        every = self._gates.every
        assert every is not None, "it has further shares"
        return taken - self._taken >= every.count if isinstance(every, Tuples) else now_s - self._since_s >= every

    def _asked(self, following: float, compare: Callable[[], Any]) -> GateDecision | None:
        """The answer of ``promote_when``; ``None`` if it does not accept yet."""
        ask = self._gates.promote_when
        if ask is None:
            return GateDecision(following, f"it has had {_limit(self._gates.every, '')} at {self.share:.0%}")
        try:
            answer = ask(compare())
        except Exception as error:  # noqa: BLE001 (whatever the user's function raises rolls back)
            return GateDecision(0.0, f"promote_when raised {exception_text(error)}")
        if not isinstance(answer, bool | np.bool_):
            return GateDecision(0.0, f"promote_when returned {answer!r}; expected True or False")
        return GateDecision(following, "promote_when has accepted") if answer else None

    def _wait(self, taken: int, now_s: float) -> None:
        """Say what it waits for."""
        every, following = self._gates.every, self._gates.after(self.share)
        if following is None:
            return
        so_far = f"{taken - self._taken:,}" if isinstance(every, Tuples) else f"{now_s - self._since_s:.0f} s"
        refused = "promote_when has not accepted; " if self._was_refused else ""
        further = " further" if self._was_refused else ""
        self.words = (
            f"{refused}goes on to {following:.0%} after {_limit(every, further)} at {self.share:.0%}, {so_far} so far"
        )


def _limit(every: Limit | None, further: str) -> str:
    assert every is not None, "it has further shares"
    return f"{every.count:,}{further} rows of the new version" if isinstance(every, Tuples) else f"{every:g}{further} s"


MOST_LOOKS = 600
"""Number of looks at both arms that are kept: of a long canary every second one, then every fourth, and so on."""


@dataclass(frozen=True)
class ArmsLook:
    """What both arms had done at a time, in seconds since the Unix epoch."""

    at_s: float
    old: ArmCounts
    new: ArmCounts


@dataclass(frozen=True)
class CanaryStatus:
    """How far a canary is.

    Attributes:
        share: the share of cohorts that are new, as last requested.
        since_s: when it was, in seconds since the Unix epoch.
        old: what the versions before it have done since it began.
        new: what its own has done.
        waits: the next step and what it waits for, in a sentence; empty if it does not go on by itself.
        reason: why the last step was made, in a sentence; empty if by the user.
        history: what both had done over time: at most ``MOST_LOOKS`` looks, evenly, from its begin on.
    """

    share: float
    since_s: float
    old: ArmCounts = NONE_YET
    new: ArmCounts = NONE_YET
    waits: str = ""
    reason: str = ""
    history: tuple[ArmsLook, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(self.since_s))
        kind = {0.0: "rolled back", 1.0: "promoted"}.get(self.share, f"{self.share:.0%} of the cohorts")
        arms = [f"{arm.rows:,} rows by the {name} version, {arm.failures:,} failed"
                for name, arm in (("new", self.new), ("old", self.old))]  # fmt: skip
        because = f" ({self.reason})" if self.reason else ""
        return "; ".join([f"{kind} since {at}{because}: {arms[0]}", arms[1], *([self.waits] if self.waits else [])])
