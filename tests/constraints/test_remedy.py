"""The remedy of a constraint in a closed loop with a plant under step loads; its table; and rules that are wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise, product

import pytest

from fries_nb.constraints import reactions as rules
from fries_nb.constraints.reactions import REMEDY_MOVES, ConstraintStatus, Remedy, RemedyDecision, RemedyPhase
from fries_nb.dataflow import OnViolation
from fries_nb.errors import ProtocolError
from fries_nb.simulation.cluster import ManualClock

LIMIT_MS, WINDOW_S = 300.0, 15
ORIGINAL_MS, LIGHTER_MS = 10.0, 2.0
RATES = (10.0, 60.0, 75.0, 98.0, 150.0, 300.0)
HOURS_S = 2 * 3600
FLIPS = (RemedyDecision.APPLY, RemedyDecision.RETURN)
SEEDS = range(6)


@dataclass
class Plant:
    """One worker with a queue; its function costs a fixed time a row, and rows arrive at a rate that changes in steps.

    Attributes:
        rate: rows per second.
        cost_ms: of the function that runs.
        queued: rows that wait.
        rest_ms: latency of the other elements of the sequence.
        violated_s: seconds of uninterrupted violation.
    """

    rate: float = 0.0
    cost_ms: float = ORIGINAL_MS
    queued: float = 0.0
    rest_ms: float = 0.0
    violated_s: int = 0

    def second(self) -> float:
        """Let a second pass; returns the latency in milliseconds."""
        self.queued = max(0.0, self.queued + self.rate - 1000 / self.cost_ms)
        latency_ms = self.rest_ms + self.cost_ms * (1 + self.queued)
        self.violated_s = self.violated_s + 1 if latency_ms > LIMIT_MS else 0
        return latency_ms


@dataclass
class Loop:
    """A remedy that observes a plant and has its decisions carried out some seconds later.

    Attributes:
        flips: second of each flip, with the decision.
        low: for each second so far the mean was below half the limit, the number of seconds since it was not.
        broken: the laws that were broken.
    """

    seed: int
    user_at: int = HOURS_S
    flips: list[tuple[int, RemedyDecision]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def run(self) -> Loop:
        """Two hours, with a step of the load every one to ten minutes."""
        chance, clock, plant = random.Random(self.seed), ManualClock(), Plant()
        remedy = Remedy(LIMIT_MS, WINDOW_S, OnViolation.APPLY)
        step_at, rest_at, settles_at, low_s, waits_s = 0, 0, 0, 0, 0
        for now in range(HOURS_S):
            clock.advance(10**9)
            if now >= step_at:
                plant.rate, step_at = (
                    chance.choice((10.0, 60.0, 75.0, 98.0, 150.0, 300.0)),
                    now + chance.randint(60, 600),
                )
            if now >= rest_at:
                plant.rest_ms, rest_at = chance.choice((0.0, 200.0)), now + chance.randint(20, 200)
            if now == self.user_at:
                remedy.user_changed("change u9 of FM was requested")
            latency_ms = plant.second()
            low_s = low_s + 1 if latency_ms < LIMIT_MS / 2 else 0
            if settles_at == now and remedy.phase in (RemedyPhase.APPLYING, RemedyPhase.RETURNING):
                plant.cost_ms = LIGHTER_MS if remedy.phase is RemedyPhase.APPLYING else ORIGINAL_MS
                remedy.settled(clock() / 1e9)
            share, windows = ORIGINAL_MS / 1000 * plant.rate, plant.violated_s // WINDOW_S
            status = ConstraintStatus.VIOLATED if plant.violated_s else ConstraintStatus.MET
            decision = remedy.observe(clock() / 1e9, status, windows > 0, windows, latency_ms, share)
            if decision in FLIPS:
                self._check(now, decision, windows, low_s, share)
                settles_at = now + chance.randint(1, 3)
            is_due = plant.violated_s > 2 * WINDOW_S and plant.cost_ms == ORIGINAL_MS and now < self.user_at
            waits_s = waits_s + 1 if is_due else 0
            if waits_s > rules.LONGEST_DWELL_S + 5:
                self.broken.add("a lasting violation was left without the remedy")
        return self

    def _check(self, now: int, decision: RemedyDecision, windows: int, low_s: int, share: float) -> None:
        if now >= self.user_at:
            self.broken.add("a change after the user's")
        dwell_s = min(60 * 2 ** (len(self.flips) - 1), 960) if self.flips else 0
        if self.flips and now - self.flips[-1][0] < dwell_s:
            self.broken.add("two flips within a dwell")
        if decision is RemedyDecision.APPLY and windows < 2:
            self.broken.add("before two violated windows")
        if decision is RemedyDecision.RETURN and low_s < 4 * WINDOW_S:
            self.broken.add("back although the latency was not low for four windows")
        if decision is RemedyDecision.RETURN and share >= 0.7:
            self.broken.add("back although the original function cannot keep up")
        self.flips.append((now, decision))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_load_in_steps_flips_at_most_once_a_dwell(seed: int) -> None:
    """There and back in turn, as often as the load demands and the dwell permits."""
    loop = Loop(seed).run()
    assert loop.broken == set()
    assert len(loop.flips) >= 5, "hardly any flip, so that little was shown"
    assert all(before[1] is not after[1] for before, after in pairwise(loop.flips))


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_the_user_ends_the_automatism_at_any_time(seed: int) -> None:
    """Also while a change is under way; no flip is decided afterwards."""
    whole = Loop(seed).run().flips
    for second, _ in (whole[0], whole[1]):
        for later in (0, 1, 70):
            loop = Loop(seed, user_at=second + later).run()
            assert loop.broken == set()
            assert loop.flips == [flip for flip in whole if flip[0] < second + later]


MUTANTS = {
    "no dwell": ("SHORTEST_DWELL_S", 0.0, "two flips within a dwell"),
    "a dwell that does not double": ("LONGEST_DWELL_S", 60.0, "two flips within a dwell"),
    "back at once": ("CALM_WINDOWS", 0, "back although the latency was not low for four windows"),
    "back from any latency": ("CALM_SHARE", 1.0, "back although the latency was not low for four windows"),
    "the cost ignored": ("COST_SHARE", float("inf"), "back although the original function cannot keep up"),
    "at once": ("VIOLATED_WINDOWS", 1, "before two violated windows"),
    "never": ("VIOLATED_WINDOWS", 10**6, "a lasting violation was left without the remedy"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_rule_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the law that it breaks."""
    rule, value, law = MUTANTS[mutant]
    monkeypatch.setattr(rules, rule, value)
    loops = [Loop(seed).run() for seed in SEEDS]
    assert any(law in loop.broken for loop in loops)


def test_a_remedy_that_ignores_the_user_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on to flip."""
    monkeypatch.setattr(Remedy, "user_changed", lambda self, what: None)
    assert any("a change after the user's" in Loop(seed, user_at=1_800).run().broken for seed in SEEDS)


# ---- single steps


VIOLATED = {"status": ConstraintStatus.VIOLATED, "exhausted": True, "violated_windows": 2, "mean_ms": 900.0}
CALM = {"status": ConstraintStatus.MET, "exhausted": False, "violated_windows": 0, "mean_ms": 100.0}


def remedy_in(phase: RemedyPhase, policy: OnViolation = OnViolation.PROPOSE) -> Remedy:
    """A remedy that has come to this phase by legal moves."""
    remedy = Remedy(LIMIT_MS, WINDOW_S, policy)
    steps = {
        RemedyPhase.PROPOSED: lambda: remedy.observe(0, **VIOLATED, old_cost_share=0.1),
        RemedyPhase.APPLYING: remedy.accepted,
        RemedyPhase.LIGHTER: lambda: remedy.settled(0),
        RemedyPhase.RETURN_PROPOSED: lambda: [remedy.observe(t, **CALM, old_cost_share=0.1) for t in (1, 61)],
        RemedyPhase.RETURNING: remedy.accepted,
    }
    if phase is RemedyPhase.ENDED:
        remedy.user_changed("change u9 of FM was requested")
        return remedy
    for reached, step in steps.items():
        if remedy.phase is phase:
            return remedy
        step()
        assert remedy.phase is reached
    assert remedy.phase is phase
    return remedy


CALLS = {
    "accepted": lambda remedy: remedy.accepted(),
    "settled": lambda remedy: remedy.settled(70),
    "failed": lambda remedy: remedy.settled(70, "change u1 was aborted: no"),
    "user": lambda remedy: remedy.user_changed("change u9 of FM was requested"),
}
NEXT = {
    ("accepted", RemedyPhase.PROPOSED): RemedyPhase.APPLYING,
    ("accepted", RemedyPhase.RETURN_PROPOSED): RemedyPhase.RETURNING,
    ("settled", RemedyPhase.APPLYING): RemedyPhase.LIGHTER,
    ("settled", RemedyPhase.RETURNING): RemedyPhase.ORIGINAL,
    ("settled", RemedyPhase.ENDED): RemedyPhase.ENDED,
    **{(call, phase): RemedyPhase.ENDED for call in ("failed", "user") for phase in RemedyPhase},
}


@pytest.mark.parametrize(("call", "phase"), list(product(CALLS, RemedyPhase)))
def test_calls_that_a_phase_does_not_have_are_refused(call: str, phase: RemedyPhase) -> None:
    """Every call in every phase."""
    remedy = remedy_in(phase)
    if (call, phase) in NEXT:
        CALLS[call](remedy)
        assert remedy.phase is NEXT[call, phase]
    else:
        with pytest.raises(ProtocolError, match=f"the remedy is {phase} and cannot be {phase}; next is "):
            CALLS[call](remedy)
        assert remedy.phase is phase


def test_every_move_of_the_table_is_made() -> None:
    """None is there for nothing: by a call, or by an observation."""
    made = {(phase, after) for (_, phase), after in NEXT.items()}
    for phase, seen, policy in product(RemedyPhase, (VIOLATED, CALM), (OnViolation.APPLY, OnViolation.PROPOSE)):
        for later in (70, 200):
            remedy = remedy_in(phase)
            remedy._policy = policy
            remedy.observe(later - 60, **seen, old_cost_share=0.1)
            before = remedy.phase
            made.add((phase, before))
            remedy.observe(later, **seen, old_cost_share=0.1)
            made.add((before, remedy.phase))
    table = {(phase, after) for phase, ahead in REMEDY_MOVES.items() for after in ahead}
    assert {(before, after) for before, after in made if before is not after} == table


@pytest.mark.parametrize("policy", OnViolation)
def test_a_violation_is_told_once_if_nothing_else_is_done_about_it(policy: OnViolation) -> None:
    """At once by ``tell``; by the others once the automatism has ended."""
    remedy = Remedy(LIMIT_MS, WINDOW_S, policy)
    if policy is not OnViolation.TELL:
        remedy.user_changed("change u9 of FM was requested")
    early = {**VIOLATED, "violated_windows": 1}
    seen = [early, VIOLATED, VIOLATED, CALM, early, VIOLATED, VIOLATED]
    told = [remedy.observe(now, **one, old_cost_share=0.0) for now, one in enumerate(seen)]
    assert [now for now, decision in enumerate(told) if decision is RemedyDecision.TELL] == [1, 5]
    assert set(told) == {None, RemedyDecision.TELL}


def test_a_violation_that_buffers_or_chains_may_end_waits_for_them() -> None:
    """However long it has lasted."""
    remedy = Remedy(LIMIT_MS, WINDOW_S, OnViolation.APPLY)
    assert remedy.observe(0, **{**VIOLATED, "exhausted": False, "violated_windows": 9}, old_cost_share=0.0) is None


def test_a_violation_by_the_lighter_functions_is_told() -> None:
    """There is no further remedy; nor is there a way back."""
    remedy = remedy_in(RemedyPhase.LIGHTER)
    assert remedy.observe(500, **VIOLATED, old_cost_share=0.1) is RemedyDecision.TELL
    assert remedy.phase is RemedyPhase.LIGHTER


def test_a_violation_that_began_before_the_change_is_counted_anew() -> None:
    """The rows that waited for the original function are no fault of the lighter one."""
    remedy = remedy_in(RemedyPhase.LIGHTER)
    long = {**VIOLATED, "violated_windows": 40}
    told = {t: remedy.observe(t, **long, old_cost_share=0.1) for t in range(60)}
    assert [t for t, decision in told.items() if decision] == [2 * WINDOW_S]


def test_calm_windows_are_those_of_the_lighter_functions() -> None:
    """The load may fall while the change is still under way."""
    remedy = Remedy(LIMIT_MS, 60, OnViolation.APPLY)
    remedy.observe(0, **VIOLATED, old_cost_share=0.1)
    for t in range(1, 300):
        remedy.observe(t, **CALM, old_cost_share=0.1)
    remedy.settled(300)
    decisions = {t: remedy.observe(t, **CALM, old_cost_share=0.1) for t in range(301, 600)}
    assert [t for t, decision in decisions.items() if decision] == [301 + 4 * 60]


@pytest.mark.parametrize(
    ("phase", "seen", "back"),
    [
        (RemedyPhase.PROPOSED, CALM, RemedyPhase.ORIGINAL),
        (RemedyPhase.RETURN_PROPOSED, VIOLATED, RemedyPhase.LIGHTER),
    ],
)
def test_a_proposal_whose_reason_has_passed_is_withdrawn(phase: RemedyPhase, seen: dict, back: RemedyPhase) -> None:
    """It stays as long as the reason does."""
    remedy = remedy_in(phase)
    other = CALM if seen is VIOLATED else VIOLATED
    assert remedy.observe(62, **other, old_cost_share=0.1) is None
    assert remedy.observe(63, **seen, old_cost_share=0.1) is RemedyDecision.WITHDRAW
    assert remedy.phase is back


@pytest.mark.parametrize("unknown", [{"mean_ms": None}, {"status": ConstraintStatus.NOT_YET_JUDGED}])
def test_what_is_not_known_is_not_calm(unknown: dict) -> None:
    """Four windows are counted anew after it."""
    remedy = remedy_in(RemedyPhase.LIGHTER, OnViolation.PROPOSE)
    seen = [(t, CALM) for t in range(10, 200)]
    seen[100] = (110, {**CALM, **unknown})
    decisions = {t: remedy.observe(t, **one, old_cost_share=0.8 if t < 110 else 0.1) for t, one in seen}
    assert min(t for t, decision in decisions.items() if decision) == 111 + 4 * WINDOW_S


@pytest.mark.parametrize("share", [float("inf"), float("nan"), 0.7])
def test_an_unknown_cost_keeps_the_lighter_functions(share: float) -> None:
    """And so does one at the threshold."""
    remedy = remedy_in(RemedyPhase.LIGHTER)
    assert [remedy.observe(t, **CALM, old_cost_share=share) for t in range(0, 2_000, 50)] == [None] * 40
