"""The policies of latency constraints: violations are told, or a change to lighter functions is made or proposed.

For each constraint with ``on_violation="propose"`` or ``"apply"`` a ``Remedy`` decides from the verdicts; its decisions
become ordinary changes in the run's queue, and the way back is an ordinary rollback of that change. Verdicts and
outcomes arrive in the driver's thread, which must not wait for pickling, so requests are made in another thread.

    the driver's thread      judged ──▶ Remedy.observe ──▶ decision ──▶ background: request, roll_back, plan
    any thread               requested ──▶ Remedy.user_changed, if it is another change of the same operators
    the driver's thread      ended ──▶ Remedy.settled

The queue calls ``requested`` and ``ended`` under its lock; so the lock of this class is never held while the queue is
called. A request of the user may precede a decision's request; ``ChangeOrigin.check`` then refuses the latter.

A change that a latency constraint proposes, until it is made.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> from fries_nb.planning.schedulers import schedule
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

A proposal of another number of hosts, once the arithmetic of ``planning.host_demand`` has asked for it three times.

Every few seconds the totals in the reports of workers give a number of hosts. Nothing is rescaled by itself: after
``EQUAL_ANSWERS`` equal answers that differ from the present number there is a proposal, until the answer changes, a
rescale is requested, or the sources deliver nothing.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from fries_nb.changes.change import Change
from fries_nb.changes.change_queue import ChangeQueue
from fries_nb.changes.queue_entries import ChangeOrigin
from fries_nb.constraints.judgements import ConstraintState, milliseconds
from fries_nb.constraints.reactions import CALM_SHARE, CALM_WINDOWS, Remedy, RemedyDecision, RemedyPhase
from fries_nb.controller.events import Outcome
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.constraints import LatencyConstraint, check_agreement, continued
from fries_nb.dataflow.graph import Graph, ends_of
from fries_nb.dataflow.updates import Lighter, check_exclusive
from fries_nb.errors import FriesError, PlanError
from fries_nb.locks import locked
from fries_nb.planning.prediction import BUSY_SHARE, OperatorDemand, Totals, cores_needed, demands_of, hosts_needed
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.messages import Report
from fries_nb.protocol.progress_locations import is_tracked
from fries_nb.telemetry.telemetry import Telemetry
from fries_nb.words import counted

if TYPE_CHECKING:
    from fries_nb.running.rescales import Rescale  # which has an advice


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


_log = logging.getLogger("fries_nb")
SCHEDULER = "fries"
VIOLATIONS_KEPT = 1_000
"""Maximum number of reported violations that are kept."""


class RemedyShell(Protocol):
    """What remedies need of a run."""

    @property
    def queue(self) -> ChangeQueue:
        """The queue of changes."""

    @property
    def telemetry(self) -> Telemetry:
        """Receives all callbacks on changes, and has the states of constraints and the rates of operators."""

    def limit(self, constraints: tuple[LatencyConstraint, ...]) -> None:
        """Have hosts judge these constraints from now on, and no others."""

    def plan(self, targets: Iterable[str], scheduler: str, pruning: bool) -> Plan:
        """Plan a change without requesting it; see ``Run.plan``."""


class BackgroundCalls:
    """Calls that may take long, each in a thread of its own."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def start(self, call: Callable[[], None]) -> None:
        """Begin a call, and return at once."""
        self._threads = [one for one in self._threads if one.is_alive()]
        thread = threading.Thread(target=call, name="fries-remedies", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait until all calls have ended."""
        for thread in list(self._threads):
            thread.join()


@dataclass(frozen=True)
class Violation:
    """A violation of a latency constraint that neither buffers nor chains could end.

    Attributes:
        at_s: time at which it was reported, in seconds since the Unix epoch.
        constraint: the constraint.
        reason: the latencies and their cause, in one sentence.
    """

    at_s: float
    constraint: LatencyConstraint
    reason: str


@dataclass
class _Case:
    """A constraint with its remedy.

    Attributes:
        lighter: its lighter functions; without any by the policy ``tell``.
        costs_ms: operator to the time of a worker for each row by its original function, as measured at the last
            decision to replace it; infinite if it is unknown.
        applied: id of the change to the lighter functions that is in effect.
        under_way: id of the requested change that has not ended.
        proposal: the last proposal, unless it was withdrawn.
        added: whether it was added while the dataflow ran, by ``Run.constrain``.
    """

    constraint: LatencyConstraint
    lighter: Lighter
    remedy: Remedy
    costs_ms: Mapping[str, float] = field(default_factory=dict)
    applied: str = ""
    under_way: str = ""
    proposal: Proposal | None = None
    added: bool = False

    def described(self) -> str:
        """The phase of the remedy in words; empty while the original functions run."""
        names, by = self.lighter.operators, f"by change {self.under_way or self.applied}"
        return {
            RemedyPhase.ORIGINAL: "",
            RemedyPhase.PROPOSED: f"lighter functions of {names} are proposed",
            RemedyPhase.APPLYING: f"lighter functions of {names} are being applied",
            RemedyPhase.LIGHTER: f"lighter functions of {names} run {by}",
            RemedyPhase.RETURN_PROPOSED: f"lighter functions of {names} run {by}; the return is proposed",
            RemedyPhase.RETURNING: f"the original functions of {names} return",
            RemedyPhase.ENDED: f"ended: {self.remedy.reason}",
        }[self.remedy.phase]


def _case(constraint: LatencyConstraint, lighter: Lighter, added: bool = False) -> _Case:
    """A constraint at its beginning."""
    remedy = Remedy(constraint.latency_ms, constraint.window_s, constraint.on_violation)
    return _Case(constraint, lighter, remedy, added=added)


class Remedies:
    """Carries out the policies of a run's constraints. A ``ChangeListener``: forwards its callbacks to the telemetry.

    Args:
        graph: the whole dataflow.
        clock: a monotonic clock in seconds.
        background: makes calls that the driver's thread does not wait for.

    Attributes:
        lock: held by each method, except while it calls the queue.
    """

    def __init__(
        self,
        graph: Graph,
        shell: RemedyShell,
        clock: Callable[[], float] = time.monotonic,
        background: BackgroundCalls | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._graph = graph
        self._shell = shell
        self._clock = clock
        self._background = background or BackgroundCalls()
        self._cases: dict[LatencyConstraint, _Case] = {}
        self._declared: dict[frozenset[tuple[str, str]], Mapping[LatencyConstraint, Lighter]] = {}
        self._violations: tuple[Violation, ...] = ()

    # ---- declarations, and what the user sees

    @locked
    def add(self, constraint: LatencyConstraint, lighter: Lighter) -> None:
        """Add a constraint with its lighter functions; its automatism begins anew if it had ended."""
        check_exclusive({one: case.lighter for one, case in self._cases.items()} | {constraint: lighter})
        constraints = self._shell.telemetry.constraints.add(constraint)
        known = self._cases.get(constraint)
        if known is None or known.remedy.phase is RemedyPhase.ENDED:
            self._cases[constraint] = _case(constraint, lighter, added=known is None or known.added)
        self._shell.limit(constraints)

    @locked
    def expect(self, graph: Graph, declared: Mapping[LatencyConstraint, Lighter]) -> None:
        """The dataflow may take this shape, which is declared with these constraints and their lighter functions.

        Raises:
            DataflowError: one of them contradicts a constraint that was added while the dataflow runs.
        """
        both = dict(declared) | self._added(graph)
        check_agreement(both)
        check_exclusive(both)
        self._declared[frozenset(ends_of(graph))] = dict(declared)

    @locked
    def go_on(self, graph: Graph) -> None:
        """Go on with the dataflow in this shape: the constraints that are declared for it hold.

        So do those that were added while the dataflow runs, if their paths are there. A constraint that was there
        before goes on with its remedy.
        """
        known = {continued(one, graph): case for one, case in self._cases.items()}
        hold = dict(self._declared.get(frozenset(ends_of(graph)), {}))
        hold |= {one: lighter for one, lighter in self._added(graph).items() if one not in hold}
        for one in self._cases.keys() - {case.constraint for there, case in known.items() if there in hold}:
            _log.warning("%s: does not hold in the dataflow of now", one)
        self._cases = {one: known.get(one) or _case(one, lighter) for one, lighter in hold.items()}
        for one, case in self._cases.items():
            case.constraint, case.lighter = one, hold[one]
        self._graph = graph
        self._shell.telemetry.constraints.become(hold)
        self._shell.limit(tuple(hold))

    def _added(self, graph: Graph) -> dict[LatencyConstraint, Lighter]:
        """The constraints that were added while the dataflow runs, on their paths in this one, where these are."""
        added = {one: case.lighter for one, case in self._cases.items() if case.added}
        return {there: lighter for one, lighter in added.items() if (there := continued(one, graph)) is not None}

    @locked
    def limits(self, graph: Graph, declared: Iterable[LatencyConstraint]) -> list[str]:
        """What would hold beside, and no longer, in a dataflow that is declared with these constraints: a line each."""
        hold = [*declared, *self._added(graph)]
        kept = {continued(one, graph) for one in self._cases}
        gone = [one for one in self._cases if continued(one, graph) not in hold]
        return [*(f"+ {one}" for one in hold if one not in kept), *(f"- {one}" for one in gone)]

    @locked
    def resumed(self, changed: Iterable[str]) -> None:
        """End the automatism of operators that do not run their original functions, since the run was resumed.

        Their state may have the form of another function, and the way back is not known.
        """
        names = frozenset(changed)
        for case in self._cases.values():
            if both := sorted(names & case.lighter.updates.keys()):
                case.remedy.user_changed(f"{', '.join(both)} had been changed before the run was resumed")

    @locked
    def proposals(self) -> tuple[Proposal, ...]:
        """The proposals that are open, or were accepted and are not made."""
        known = [case.proposal for case in self._cases.values() if case.proposal is not None]
        return tuple(one for one in known if one.outcome != DONE)

    @locked
    def violations(self) -> tuple[Violation, ...]:
        """The violations reported so far."""
        return self._violations

    def states(self) -> tuple[ConstraintState, ...]:
        """The state of each constraint, in order of declaration, with that of its remedy."""
        chained = self._shell.telemetry.running_chains.chained
        with self.lock:
            states = self._shell.telemetry.constraints.states()
            return tuple(
                replace(state, remedy=self._cases[state.constraint].described(), chains=tuple(
                    chain for chain in chained if len({*state.constraint.path}.intersection(chain.operators)) > 1
                ))
                for state in states
            )  # fmt: skip

    # ---- events

    def judged(self) -> None:
        """Verdicts have arrived; returns at once, and begins what they lead to."""
        states = self._shell.telemetry.constraints.states()
        with self.lock:
            needs_rates = any(case.remedy.phase is RemedyPhase.LIGHTER for case in self._cases.values())
        operators = self._shell.telemetry.snapshot().operators if needs_rates else {}
        with self.lock:
            graph = self._graph
            rates = {name: one.rate / graph.operator(name).workers for name, one in operators.items() if name in graph}
            for state in states:
                if state.constraint in self._cases:  # not so if it has ended with a change of the shape meanwhile
                    self._observe(state, rates)

    def _observe(self, state: ConstraintState, rates: Mapping[str, float]) -> None:
        case = self._cases[state.constraint]
        share = _old_cost_share(case.costs_ms, rates)
        decision = case.remedy.observe(
            self._clock(), state.status, state.exhausted, state.violated_windows, state.mean_ms, share
        )
        if decision in (RemedyDecision.APPLY, RemedyDecision.PROPOSE):
            measured = {element.element: element.row_ms for element in state.elements if element.row_ms}
            tasks = case.lighter.updates.keys() & set(case.constraint.tasks)
            case.costs_ms = {name: measured.get(name, float("inf")) for name in tasks}
        match decision:
            case RemedyDecision.TELL:
                told = Violation(time.time(), state.constraint, state.reason)
                self._violations = (*self._violations[1 - VIOLATIONS_KEPT :], told)
                _log.warning("%s is violated: %s", state.constraint, state.reason)
            case RemedyDecision.APPLY:
                self._background.start(partial(self._carry_out, case, self._apply))
            case RemedyDecision.RETURN:
                self._background.start(partial(self._carry_out, case, self._roll_back))
            case RemedyDecision.PROPOSE:
                self._background.start(partial(self._propose, case, case.remedy.phase, self._apply, state.reason))
            case RemedyDecision.PROPOSE_RETURN:
                reason = _calm_because(state, share)
                self._background.start(partial(self._propose, case, case.remedy.phase, self._roll_back, reason))
            case RemedyDecision.WITHDRAW:
                case.proposal = None

    @locked
    def requested(self, change: Change) -> None:
        """Record the request of a change; that of the user ends the automatism of its operators."""
        self._shell.telemetry.mark(change.id, "request", change.label, change.requested_s)
        for case in self._cases.values():
            both = sorted(case.lighter.updates.keys() & change.plan.targets)
            if change.constraint == case.constraint.sequence:
                case.under_way = change.id
            elif both:
                case.remedy.user_changed(f"change {change.id} of {', '.join(both)} was requested")
                case.proposal = None

    @locked
    def ended(self, change: Change, outcome: Outcome) -> None:
        """Record the outcome of a change; an automatic one that is not done ends the automatism."""
        assert outcome.outcome != "rehearsed", "a trial is no change of the run"
        self._shell.telemetry.mark(change.id, outcome.outcome, change.label, change.ended_s(outcome, time.time()))
        for case in self._cases.values():
            if case.under_way == change.id:
                is_done = outcome.outcome == "done"
                case.under_way = ""
                case.applied = change.id if is_done and case.remedy.phase is RemedyPhase.APPLYING else ""
                self._settle(case, "" if is_done else f"change {change.id} was {outcome.outcome}: {outcome.error}")

    def join(self) -> None:
        """Wait until no thread of this object is left; to be called once the run has ended."""
        self._background.join()

    # ---- requests, outside of the lock

    def _apply(self, case: _Case) -> Change:
        return self._shell.queue.request(case.lighter.updates, SCHEDULER, origin=self._origin(case))

    def _roll_back(self, case: _Case) -> Change:
        return self._shell.queue.roll_back(SCHEDULER, case.applied, self._origin(case))

    def _origin(self, case: _Case) -> ChangeOrigin:
        def check() -> None:
            with self.lock:
                if case.remedy.phase is RemedyPhase.ENDED:
                    raise PlanError(f"the change of {case.lighter.operators} is not made: {case.remedy.reason}")

        return ChangeOrigin(case.constraint.sequence, check)

    def _carry_out(self, case: _Case, request: Callable[[_Case], Change]) -> None:
        """Request a change; if it is refused, the automatism ends."""
        try:
            request(case)
        except FriesError as refused:
            self._settle(case, str(refused))
        except BaseException as defect:
            self._settle(case, f"{type(defect).__name__}: {defect}")
            raise

    def _propose(self, case: _Case, proposed: RemedyPhase, request: Callable[[_Case], Change], reason: str) -> None:
        try:
            plan = self._shell.plan(case.lighter.updates, SCHEDULER, True)
        except FriesError as refused:
            self._settle(case, str(refused))
            return
        with self.lock:
            undoes = case.applied if proposed is RemedyPhase.RETURN_PROPOSED else ""
            proposal = Proposal(case.constraint, plan, reason, lambda: self._accept(case, proposal, request), undoes)
            if case.remedy.phase is proposed:  # otherwise it was withdrawn meanwhile
                case.proposal = proposal

    def _accept(self, case: _Case, proposal: Proposal, request: Callable[[_Case], Change]) -> Change:
        with self.lock:
            if case.proposal is not proposal:
                raise PlanError(
                    f"the proposal to change {case.lighter.operators} was accepted or withdrawn already; "
                    "expected one of run.proposals"
                )
            case.proposal = None
            case.remedy.accepted()
        try:
            change = request(case)
        except BaseException as refused:
            self._settle(case, str(refused))
            raise
        with self.lock:
            if case.proposal is None:  # it shows the outcome from now on
                case.proposal = replace(proposal, change=change)
        return change

    @locked
    def _settle(self, case: _Case, failure: str) -> None:
        if failure and case.remedy.phase is not RemedyPhase.ENDED:
            _log.warning("%s: no further change is made by this constraint, since %s", case.constraint, failure)
        case.remedy.settled(self._clock(), failure)


def _calm_because(state: ConstraintState, share: float) -> str:
    """Why the original functions may return."""
    limit_ms = state.constraint.latency_ms
    return (
        f"the mean of {milliseconds(state.mean_ms or 0.0)} has been below {CALM_SHARE:.0%} of the limit of "
        f"{milliseconds(limit_ms)} for {CALM_WINDOWS} windows, and the original functions would take {share:.0%} of a "
        "worker's time at the present rate"
    )


def _old_cost_share(costs_ms: Mapping[str, float], rates: Mapping[str, float]) -> float:
    """The largest share of a worker's time that an original function would need at the present rate."""
    return max((cost / 1000 * rates.get(name, 0.0) for name, cost in costs_ms.items()), default=float("inf"))


INTERVAL_S = 3.0
"""Seconds between two answers."""
EQUAL_ANSWERS = 3
"""Number of equal answers after which another number of hosts is proposed."""


class AdvisedRun(Protocol):
    """What the advice needs of a run; see ``region_runner``."""

    @property
    def status(self) -> TopologyStatus:
        """The present topology."""

    @property
    def can_rescale(self) -> bool:
        """Whether the dataflow can be rescaled."""

    def reports(self) -> tuple[Report, ...]:
        """The last report of each worker."""

    def target_rates(self) -> Mapping[str, float | None]:
        """Source to the rate that it is to deliver, ``None`` without one."""

    def request(self, hosts: int, at_once: int | None) -> Rescale:
        """Request another number of hosts."""


@dataclass(frozen=True)
class HostProposal:
    """A proposed number of hosts.

    Attributes:
        hosts: the number of hosts.
        cores: number of cores that the operators keep busy at the rates of the sources.
        rate: these rates in sum, in tuples per second.
        present: the number of hosts when it was proposed.
    """

    hosts: int
    cores: float
    rate: float
    present: int
    _accept: Callable[[HostProposal], Rescale] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return f"{counted(self.hosts, 'host')} instead of {self.present}, since {self.reason}"

    @property
    def reason(self) -> str:
        """Why it is proposed, in one sentence."""
        work = f"the operators need {self.cores:,.2f} cores at {self.rate:,.0f} tuples/s"
        return f"{work}, and a host is to use {BUSY_SHARE:.0%} of one"

    def accept(self) -> Rescale:
        """Request the rescale; returns at once.

        Raises:
            PlanError: the proposal has been accepted or withdrawn already.
            SessionError: Spark has too few free task slots; includes the numbers.
            RunError: the run has ended.
        """
        return self._accept(self)


class HostAdvice:
    """Watches what the operators of a run cost.

    Args:
        clock: a monotonic clock in seconds.

    Attributes:
        lock: held by each method, except while a rescale is requested.
    """

    def __init__(self, graph: Graph, run: AdvisedRun, clock: Callable[[], float] = time.monotonic) -> None:
        self.lock = threading.RLock()
        self._graph = graph
        self._upstream = {
            name: [edge.source for edge in graph.in_edges(name) if not edge.feedback] for name in graph.order
        }
        self._run = run
        self._clock = clock
        self._due_s = 0.0
        self._before: dict[str, Totals] = {}
        self._answer = self._equal = 0
        self._proposal: HostProposal | None = None

    @property
    def proposal(self) -> HostProposal | None:
        """The proposal, if there is one."""
        return self._proposal

    @locked
    def observe(self) -> None:
        """Workers have reported; answers anew every few seconds."""
        now_s = self._clock()
        if now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        status = self._run.status
        rates = self._run.target_rates()
        known = [rate for rate in rates.values() if rate]
        if not status.is_idle or len(known) < len(rates) or not self._run.can_rescale:
            self._forget()
            return
        before, self._before = self._before, _totals(self._run.reports())
        demands = demands_of(before, self._before, self._upstream)
        if not demands:
            self._equal, self._proposal = 0, None
            return
        rate = sum(known)
        cores = cores_needed(demands, rate)
        least = max(self._least(status), hosts_that_stay(status, demands, rate))
        self._decide(max(hosts_needed(cores), least), cores, rate, len(status.hosts))

    def _decide(self, answer: int, cores: float, rate: float, present: int) -> None:
        self._equal = self._equal + 1 if answer == self._answer else 1
        self._answer = answer
        if answer == present or self._equal < EQUAL_ANSWERS:
            if self._proposal is not None and self._proposal.hosts != answer:
                self._proposal = None
        elif self._proposal is None or self._proposal.present != present:
            self._proposal = HostProposal(answer, cores, rate, present, self._accept)

    def _least(self, status: TopologyStatus) -> int:
        """The number of hosts that cannot leave: with times, those with workers of sources, which keep their splits."""
        sources = self._graph.sources if is_tracked(self._graph) else ()
        return 1 + max((host for name in sources for host in status.workers[name]), default=0)

    def _accept(self, proposal: HostProposal) -> Rescale:
        with self.lock:
            if self._proposal is not proposal:
                raise PlanError("this proposal was accepted or withdrawn already; expected run.host_proposal")
            self._forget()
        return self._run.request(proposal.hosts, None)

    def _forget(self) -> None:
        self._before, self._answer, self._equal, self._proposal = {}, 0, 0, None


def hosts_that_stay(status: TopologyStatus, demands: Iterable[OperatorDemand], rate: float) -> int:
    """The number of the present hosts whose workers suffice for functions that wait; the last ones leave first.

    More hosts than there are is never the answer: waits of busy processors look alike.
    """
    present, stay = len(status.hosts), 1
    for demand in demands:
        homes = sorted(status.workers.get(demand.operator, ()))
        needed = math.ceil(demand.workers_needed(rate) - 1e-9)
        if needed > 0 and homes:
            stay = max(stay, 1 + homes[min(needed, len(homes)) - 1])
    return min(stay, present)


def _totals(reports: Iterable[Report]) -> dict[str, Totals]:
    """Operator to the totals of its workers."""
    totals: dict[str, Totals] = {}
    for report in reports:
        name = report.worker.operator
        here = report.processed, report.processed + report.queued_tuples, report.useful_ns, report.busy_ns
        totals[name] = Totals(*(one + more for one, more in zip(totals.get(name, (0, 0, 0, 0)), here, strict=True)))
    return totals
