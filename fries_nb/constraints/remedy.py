"""The last remedy of one latency constraint: a change to lighter functions, and the way back, without oscillation.

Verdicts go in, at most one decision comes out. The remedy is decided after two violated windows that buffers and
chains could not end. The original functions return when the lighter ones have kept the mean below half the limit for
four windows, *and* their own cost, as measured before, would leave room at the present rate. Since a load near the
threshold would still make it alternate, the least time between two flips doubles with each flip, up to 16 minutes. A
change of the same operators by the user, or an automatic change that fails, ends the automatism: only ``TELL`` is
decided from then on.

>>> remedy = Remedy(latency_ms=300, window_s=15, policy=OnViolation.APPLY)
>>> seen = {"exhausted": True, "mean_ms": 900.0, "old_cost_share": 3.0}
>>> remedy.observe(now_s=15, status=ConstraintStatus.VIOLATED, violated_windows=1, **seen)
>>> remedy.observe(now_s=30, status=ConstraintStatus.VIOLATED, violated_windows=2, **seen).value
'apply'
>>> remedy.settled(now_s=31), remedy.phase.value, remedy.dwell_s
(None, 'lighter', 60.0)
>>> calm = {"status": ConstraintStatus.MET, "exhausted": False, "violated_windows": 0, "mean_ms": 100.0}
>>> decisions = {t: remedy.observe(now_s=t, **calm, old_cost_share=0.9 if t < 150 else 0.6) for t in range(32, 151)}
>>> [(t, decision.value) for t, decision in decisions.items() if decision]
[(150, 'return')]
>>> remedy.settled(151, failure="change u2 was aborted: a host was lost"), remedy.phase.value, remedy.reason
(None, 'ended', 'change u2 was aborted: a host was lost')
"""

from __future__ import annotations

from enum import StrEnum

from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.dataflow.constraints import OnViolation
from fries_nb.transitions import Moves, moved

VIOLATED_WINDOWS = 2
"""Number of whole windows of violation before the remedy."""
CALM_WINDOWS = 4
"""Number of windows for which the mean must have been low before the way back."""
CALM_SHARE = 0.5
"""Share of the limit below which a mean is low."""
COST_SHARE = 0.7
"""Share of a worker's time below which the original functions may return."""
SHORTEST_DWELL_S = 60.0
LONGEST_DWELL_S = 960.0


class RemedyPhase(StrEnum):
    """Phase of a remedy."""

    ORIGINAL = "original"
    """The original functions run."""
    PROPOSED = "proposed"
    """The change to the lighter ones awaits the user's consent."""
    APPLYING = "applying"
    LIGHTER = "lighter"
    """The lighter functions run."""
    RETURN_PROPOSED = "return proposed"
    RETURNING = "returning"
    ENDED = "ended"
    """No change is decided any more."""


class RemedyDecision(StrEnum):
    """What is to be done about a constraint."""

    TELL = "tell"
    """Report the violation; decided once a violation."""
    PROPOSE = "propose"
    """Propose the change to the lighter functions."""
    APPLY = "apply"
    PROPOSE_RETURN = "propose return"
    """Propose the change back."""
    RETURN = "return"
    WITHDRAW = "withdraw"
    """Withdraw the open proposal, since its reason has passed."""


_P = RemedyPhase
REMEDY_MOVES: Moves[RemedyPhase] = {
    _P.ORIGINAL: frozenset({_P.PROPOSED, _P.APPLYING, _P.ENDED}),
    _P.PROPOSED: frozenset({_P.APPLYING, _P.ORIGINAL, _P.ENDED}),
    _P.APPLYING: frozenset({_P.LIGHTER, _P.ENDED}),
    _P.LIGHTER: frozenset({_P.RETURN_PROPOSED, _P.RETURNING, _P.ENDED}),
    _P.RETURN_PROPOSED: frozenset({_P.RETURNING, _P.LIGHTER, _P.ENDED}),
    _P.RETURNING: frozenset({_P.ORIGINAL, _P.ENDED}),
    _P.ENDED: frozenset(),
}
_ACCEPTED = {_P.PROPOSED: _P.APPLYING, _P.RETURN_PROPOSED: _P.RETURNING}
_DONE = {_P.APPLYING: _P.LIGHTER, _P.RETURNING: _P.ORIGINAL}
_WITHDRAWN = {_P.PROPOSED: _P.ORIGINAL, _P.RETURN_PROPOSED: _P.LIGHTER}


class Remedy:
    """The remedy of one constraint."""

    def __init__(self, latency_ms: float, window_s: float, policy: OnViolation) -> None:
        self.phase = RemedyPhase.ORIGINAL  # the current phase
        self.reason = ""  # why the automatism has ended; empty before
        self._latency_ms = latency_ms  # the limit in milliseconds
        self._window_s = window_s  # the window in seconds
        self._policy = policy  # whether changes are made, proposed, or neither
        self._flips = 0
        self._flipped_s = 0.0
        self._calm_since_s: float | None = None
        self._is_told = False

    @property
    def dwell_s(self) -> float:
        """Shortest time from the last flip to the next one, in seconds; 0 before the first flip."""
        return min(SHORTEST_DWELL_S * 2 ** (self._flips - 1), LONGEST_DWELL_S) if self._flips else 0.0

    def observe(
        self,
        now_s: float,
        status: ConstraintStatus,
        exhausted: bool,
        violated_windows: int,
        mean_ms: float | None,
        old_cost_share: float,
    ) -> RemedyDecision | None:
        """What is to be done, ``None`` for nothing; a decision other than ``TELL`` also moves the machine."""
        self._note_calm(now_s, status, mean_ms)
        if status is ConstraintStatus.MET:
            self._is_told = False
        is_lasting = exhausted and self._is_lasting(now_s, status, violated_windows)
        if self._is_outdated(status):
            self._move(_WITHDRAWN[self.phase])
            return RemedyDecision.WITHDRAW
        if is_lasting and self.phase is RemedyPhase.ORIGINAL and self._may_flip(now_s):
            return self._remedy()
        if self.phase is RemedyPhase.LIGHTER and self._may_return(now_s, old_cost_share):
            return self._way_back()
        return self._tell() if is_lasting else None

    def accepted(self) -> None:
        """The user accepts the open proposal."""
        self._move(_ACCEPTED.get(self.phase, self.phase))

    def settled(self, now_s: float, failure: str = "") -> None:
        """The change that was decided or accepted has ended."""
        if self.phase is RemedyPhase.ENDED:
            return  # the change under way was begun before the end
        if failure:
            self._end(failure)
            return
        self._move(_DONE.get(self.phase, self.phase))
        self._flips += 1
        self._flipped_s = now_s
        self._calm_since_s = None

    def user_changed(self, what: str) -> None:
        """The user has requested a change of the same operators, which ends the automatism."""
        if self.phase is not RemedyPhase.ENDED:
            self._end(what)

    def _remedy(self) -> RemedyDecision | None:
        match self._policy:
            case OnViolation.APPLY:
                self._move(RemedyPhase.APPLYING)
                return RemedyDecision.APPLY
            case OnViolation.PROPOSE:
                self._move(RemedyPhase.PROPOSED)
                return RemedyDecision.PROPOSE
            case OnViolation.TELL:
                return self._tell()

    def _way_back(self) -> RemedyDecision:
        if self._policy is OnViolation.APPLY:
            self._move(RemedyPhase.RETURNING)
            return RemedyDecision.RETURN
        self._move(RemedyPhase.RETURN_PROPOSED)
        return RemedyDecision.PROPOSE_RETURN

    def _tell(self) -> RemedyDecision | None:
        """Report a violation once, unless a change that may end it is under way or proposed."""
        if self._is_told or self.phase in _DONE or self.phase in _ACCEPTED:
            return None
        self._is_told = True
        return RemedyDecision.TELL

    def _is_outdated(self, status: ConstraintStatus) -> bool:
        """Whether the reason of the open proposal has passed."""
        if self.phase is RemedyPhase.PROPOSED:
            return status is ConstraintStatus.MET
        return self.phase is RemedyPhase.RETURN_PROPOSED and status is ConstraintStatus.VIOLATED

    def _is_lasting(self, now_s: float, status: ConstraintStatus, violated_windows: int) -> bool:
        """Whether it has been violated for long enough, by the functions that run now."""
        running_s = now_s - self._flipped_s if self._flips else float("inf")
        windows = min(violated_windows, running_s / self._window_s)
        return status is ConstraintStatus.VIOLATED and windows >= VIOLATED_WINDOWS

    def _may_flip(self, now_s: float) -> bool:
        return not self._flips or now_s - self._flipped_s >= self.dwell_s

    def _may_return(self, now_s: float, old_cost_share: float) -> bool:
        is_calm = self._calm_since_s is not None and now_s - self._calm_since_s >= CALM_WINDOWS * self._window_s
        return is_calm and old_cost_share < COST_SHARE and self._may_flip(now_s)

    def _note_calm(self, now_s: float, status: ConstraintStatus, mean_ms: float | None) -> None:
        is_low = status is ConstraintStatus.MET and mean_ms is not None and mean_ms < CALM_SHARE * self._latency_ms
        if not is_low:
            self._calm_since_s = None
        elif self._calm_since_s is None:
            self._calm_since_s = now_s

    def _move(self, to: RemedyPhase) -> None:
        self.phase = moved(REMEDY_MOVES, self.phase, to, "the remedy")

    def _end(self, reason: str) -> None:
        self._move(RemedyPhase.ENDED)
        self.reason = reason
