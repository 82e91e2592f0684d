"""The replay of a change that has ended, as a value, which notebooks and reports draw: its steps, one at a time.

Steps are in the order of the switches' measured times, as far as the dataflow allows; where nothing is measured, they
follow the dataflow. A time is that of a worker's answer at the controller. What a step says is what its scheduler does:
with ``multiversion`` operators run both versions between the tags of the sources and the marker, ``minibatch`` empties
the dataflow first, ``restart`` takes a checkpoint, and ``naive`` sends no marker.

>>> from fries_nb.controller.events import WorkerOutcome
>>> from fries_nb.dataflow.graph import Edge, Operator
>>> from fries_nb.protocol.messages import WorkerId
>>> from fries_nb.planning.schedulers import schedule
>>> graph = Graph("f", tuple(map(Operator, ("S", "FM", "MC"))), (Edge("S", "FM"), Edge("FM", "MC")))
>>> workers = {WorkerId("FM", 0): WorkerOutcome(1.2, 3), WorkerId("MC", 0): WorkerOutcome(1.9, 12)}
>>> times = {"plan_ms": 0.2, "prepare_ms": 1.0, "commit_ms": 0.9, "delay_ms": 2.1}
>>> result = Outcome("u1", "fries", "done", components=(("FM", "MC"),), per_worker=workers, **times)
>>> replay = ChangeReplay.of(graph, schedule("fries", graph, ["FM", "MC"]), result)
>>> replay
1. The message leaves the controller for FM, past all queued tuples.
2. FM takes it between two tuples; FM switches 1.4 ms after the request, 3 tuples with the old function meanwhile.
3. The marker from FM reaches MC; MC switches 2.1 ms after the request, 12 tuples with the old function meanwhile.
4. Done 2.1 ms after the request.
>>> replay._repr_html_().count("<svg")
4
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from fries_nb.controller.events import Outcome, WorkerOutcome
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.loops import loops_in
from fries_nb.displays import Displayed
from fries_nb.planning.schedulers import Ends, MarkerStep, MarkerStepKind, Plan, Stage, StageAction, marker_steps
from fries_nb.protocol.messages import WorkerId
from fries_nb.protocol.trace import Ran, RanMany, Record, Updated
from fries_nb.words import counted, milliseconds

Counts = Mapping[str, tuple[int, int]]
"""Operator to the number of its data operations in the trace before and after its switch."""
NO_COUNTS: Counts = MappingProxyType({})


class ReplayKind(StrEnum):
    """What a step of a replay shows."""

    SENT = "sent"
    """Messages leave the controller."""
    PASSED = "passed"
    """Operators that are not changed take the message or the marker."""
    SWITCHED = "switched"
    """Targets run their new functions from now on, and no longer the old ones."""
    RETURNED = "returned"
    """A marker comes back to the head of a loop."""
    ENDED = "ended"
    """The change has ended, with any outcome."""


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """A step of a replay.

    Attributes:
        kind: what happens.
        operators: where it happens; all operators that a marker merely passes in a row share a step.
        edges: the edges that the marker travels in this step, in the order of its way.
        travelled: the edges that it has travelled by the end of this step.
        versions: target to ``old``, ``new`` or ``both`` at the end of this step.
        words: the step in words.
        at_ms: time of the last switch in this step, in milliseconds from the request; ``None`` if it is unknown.
    """

    kind: ReplayKind
    operators: tuple[str, ...]
    edges: tuple[Ends, ...]
    travelled: tuple[Ends, ...]
    versions: Mapping[str, str]
    words: str
    at_ms: float | None = None

    @property
    def states(self) -> dict[str, str]:
        """Operator to its states in the picture, words of ``old new both here``."""
        names = dict.fromkeys([*self.versions, *self.operators])
        here = dict.fromkeys(self.operators, "here")
        return {name: " ".join(filter(None, (self.versions.get(name, ""), here.get(name, "")))) for name in names}


def replay_steps(graph: Graph, plan: Plan, result: Outcome, counts: Counts = NO_COUNTS) -> tuple[ReplayStep, ...]:
    """The steps of a change, with the operations of targets in the trace, where there is one.

    If the change is done, each target whose workers had not ended switches in exactly one step, every edge in the scope
    of a marker is travelled once, and no target goes back to its old function.

    The last step tells the outcome. A change that was aborted, or failed, has no other.
    """
    return tuple(_Replay(graph, plan, result, counts).steps())


@dataclass
class _Replay:
    """A replay on its way: the versions of targets, and the edges that were travelled so far."""

    graph: Graph
    plan: Plan
    result: Outcome
    counts: Counts
    versions: dict[str, str] = field(default_factory=dict)
    travelled: list[Ends] = field(default_factory=list)
    shown: list[ReplayStep] = field(default_factory=list)

    def steps(self) -> list[ReplayStep]:
        """All steps."""
        targets = [name for name in self.graph.order if name in self.plan.targets]
        self.versions = dict.fromkeys(targets, "old")
        if self.result.outcome in ("aborted", "failed"):
            self._switch(self._times())
            return [self._step(ReplayKind.ENDED, targets, (), _unfinished(self.result))]
        if not (self.result.per_worker or self.result.components):
            words = "Nothing had to switch: the change that it rolls back had not begun, and was withdrawn."
            return [self._step(ReplayKind.ENDED, (), (), words)]
        at_start = self._at_start(targets)
        plan = _without(self.plan, at_start)
        for step in marker_steps(self.graph, plan, self._times()):
            self._take(step)
        self._end()
        return self.shown

    # ---- steps

    def _at_start(self, targets: Sequence[str]) -> frozenset[str]:
        """The targets whose region began with the change: no marker was sent to them."""
        components = {name for component in self.result.components for name in component}
        begun = tuple(name for name in targets if name not in components)
        if begun:
            self._switch(begun)
            verb = "runs its new function" if len(begun) == 1 else "run their new functions"
            words = f"{_names(begun)} {verb} from the first tuple on: the change came before it."
            self._add(ReplayKind.SWITCHED, begun, (), words, 0.0)
        return frozenset(begun)

    def _take(self, step: MarkerStep) -> None:
        match step.kind:
            case MarkerStepKind.SENT:
                loops = loops_in(self.graph, self.plan.scope) if self.plan.scheduler == "fries" else ()
                emptied = f" Loop {_names(loops)} was emptied first: no row entered meanwhile." if loops else ""
                self._add(ReplayKind.SENT, step.operators, (), _sent_words(step) + emptied)
            case MarkerStepKind.REACHED:
                self._reach(step)
            case MarkerStepKind.RETURNED:
                [(source, head)] = step.edges
                words = f"The marker comes back from {source} to {head}, which has passed it on before."
                self._add(ReplayKind.RETURNED, step.operators, step.edges, words)
            case MarkerStepKind.COMPLETED:
                self._complete(step)

    def _reach(self, step: MarkerStep) -> None:
        """An operator takes the message, or the marker has come on all of its inputs."""
        [name] = step.operators
        switches = step.does in (StageAction.SWITCH, StageAction.TAG) and name in self.versions
        workers = {worker.index: outcome for worker, outcome in self._workers().items() if worker.operator == name}
        is_live = not all(outcome.ended for outcome in workers.values())
        if switches and is_live:
            self._switch([name])
            switch = _switch_words(name, step.does, workers.values(), self._since, self.counts.get(name))
            words = f"{_arrival(step)}; {switch}."
            self._add(ReplayKind.SWITCHED, (name,), step.edges, words, self._times().get(name))
            return
        if step.does is StageAction.TAG and not step.edges:
            self.versions |= {target: "both" for target, version in self.versions.items() if version == "old"}
        last = self.shown[-1]
        follows = len(step.edges) == 1 and last.kind is ReplayKind.PASSED and last.operators[-1:] == (step.edges[0][0],)
        if follows and last.edges:
            self.shown.pop()
            way = (*last.operators, name)
            self._add(ReplayKind.PASSED, way, step.edges, f"The marker passes {' → '.join(way)}.", along=last.edges)
        else:
            self._add(ReplayKind.PASSED, (name,), step.edges, _passed_words(step, bool(workers) and not is_live))

    def _complete(self, step: MarkerStep) -> None:
        """The end of a stage, where something follows from it."""
        if step.does is StageAction.HOLD:
            self._add(ReplayKind.PASSED, (), (), "No tuple is on its way any more.")
        elif step.does is StageAction.FREEZE:
            words = "The highest positions of all answers are the cut: tuples above it are new, wherever they come."
            self._add(ReplayKind.PASSED, (), (), words)
        elif step.does is StageAction.RESTART:
            targets = tuple(self.versions)
            self._switch(targets)
            verb = "runs its new function" if len(targets) == 1 else "run their new functions"
            words = f"The checkpoint is complete. The job ends and starts again from it; {_names(targets)} {verb}."
            self._add(ReplayKind.SWITCHED, targets, (), words, self.result.delay_ms)

    def _end(self) -> None:
        words = f"Done {milliseconds(self.result.delay_ms)} {self._since}."
        self._add(ReplayKind.ENDED, (), (), words, self.result.delay_ms)
        if self.result.outcome == "rolled_back":
            self.versions = dict.fromkeys(self.versions, "old")
            words = f"Later its guard has restored the old functions: {self.result.error}."
            self._add(ReplayKind.ENDED, tuple(self.versions), (), words)

    # ---- values

    @property
    def _since(self) -> str:
        """From when times are counted."""
        return "after tuples flowed" if self.result.waited_ms else "after the request"

    def _workers(self) -> dict[WorkerId, WorkerOutcome]:
        """The outcomes of the workers, with times that are counted as that of the change is: with planning."""
        more = 0.0 if self.result.waited_ms else self.result.plan_ms
        return {worker: replace(one, delay_ms=one.delay_ms + more) for worker, one in self.result.per_worker.items()}

    def _times(self) -> dict[str, float]:
        """Target to the time at which the last of its workers switched, in milliseconds."""
        times: dict[str, float] = {}
        for worker, one in self._workers().items():
            if not one.ended:
                times[str(worker.operator)] = max(times.get(str(worker.operator), 0.0), one.delay_ms)
        return times

    def _switch(self, names: Iterable[str]) -> None:
        self.versions = self.versions | dict.fromkeys(names, "new")

    def _add(
        self, kind: ReplayKind, operators: Collection[str], edges: tuple[Ends, ...], words: str,
        at_ms: float | None = None, along: tuple[Ends, ...] = (),
    ) -> None:  # fmt: skip
        self.travelled += edges
        self.shown.append(self._step(kind, operators, (*along, *edges), words, at_ms))

    def _step(
        self, kind: ReplayKind, operators: Collection[str], edges: tuple[Ends, ...], words: str,
        at_ms: float | None = None,
    ) -> ReplayStep:  # fmt: skip
        return ReplayStep(kind, tuple(operators), edges, tuple(self.travelled), dict(self.versions), words, at_ms)


def _without(plan: Plan, begun: frozenset[str]) -> Plan:
    """The plan without the stages of regions that began with the change."""

    def is_left(stage: Stage) -> bool:
        touched = stage.awaits.union(*(send.scope for send in stage.sends))
        return touched.isdisjoint(begun)

    return Plan(plan.scheduler, plan.targets, tuple(filter(is_left, plan.stages)), plan.covering) if begun else plan


def _unfinished(result: Outcome) -> str:
    if result.outcome == "aborted":
        return f"Aborted before any message was sent, so nothing changed: {result.error}."
    live = [str(worker) for worker, one in result.per_worker.items() if not one.ended]
    reached = f"; {_names(live)} had switched by then" if live else ""
    return f"The run failed while the change was carried out{reached}: {result.error}."


def _sent_words(step: MarkerStep) -> str:
    names = _names(step.operators)
    match step.does:
        case StageAction.FREEZE:
            message = "A message leaves" if len(step.operators) == 1 else "Messages leave"
            return f"{message} the controller for {names}: begin no tuple, and say how far you are."
        case StageAction.HOLD:
            return f"A message leaves the controller for {names}: stop reading."
        case StageAction.RELEASE:
            return f"A message leaves the controller for {names}: continue to read."
        case _:
            message = "The message leaves" if len(step.operators) == 1 else "Messages leave"
            return f"{message} the controller for {names}, past all queued tuples."


def _arrival(step: MarkerStep) -> str:
    """How the message or the marker has come to an operator."""
    [name] = step.operators
    sources = list(dict.fromkeys(source for source, _ in step.edges))
    if not sources:
        return f"{name} takes it between two tuples"
    if len(sources) == 1:
        return f"The marker from {sources[0]} reaches {name}"
    return f"The marker has reached {name} from {_names(sources)}, on each input behind the tuples sent before it"


def _switch_words(
    name: str, does: StageAction, workers: Collection[WorkerOutcome], since: str, counts: tuple[int, int] | None
) -> str:
    """The switch of a target: when, and what it still processed with its old function."""
    live = [worker for worker in workers if not worker.ended]
    times = list(dict.fromkeys(milliseconds(at) for at in sorted(one.delay_ms for one in live)))
    when = f" {times[-1]} {since}" if times else ""
    first = f" (its {counted(len(live), 'worker')} from {times[0]} on)" if len(times) > 1 else ""
    old = sum(one.old_tuples for one in live)
    meanwhile = f", {counted(old, 'tuple')} with the old function meanwhile" if live else ""
    traced = "" if counts is None else f"; the trace has {counts[0]:,} operations before and {counts[1]:,} after"
    if does is StageAction.TAG:
        drops = f"no tuple with the old tag is left there, and {name} drops its old function"
        return f"{drops}{when}{first}{meanwhile}{traced}"
    return f"{name} switches{when}{first}{meanwhile}{traced}"


def _passed_words(step: MarkerStep, has_ended: bool) -> str:
    """An operator takes the message or the marker, and does not switch."""
    [name] = step.operators
    if has_ended and step.does in (StageAction.SWITCH, StageAction.TAG):
        return f"{_arrival(step)}; {name} had ended before, and does not switch."
    if step.edges:
        return f"{_arrival(step)} and passes on." if len(step.edges) > 1 else f"The marker passes {name}."
    match step.does:
        case StageAction.TAG:
            return f"{name} tags the tuples that it reads from now on as new: both versions run, by the tag of a tuple."
        case StageAction.FREEZE:
            return f"{name} begins no tuple, and says how far it is."
        case StageAction.HOLD:
            return f"{name} stops reading, and sends a marker behind the tuples that it has sent."
        case StageAction.RELEASE:
            return f"{name} continues to read."
        case StageAction.RESTART:
            return f"{name} takes it, and sends the marker of a checkpoint behind the tuples that it has sent."
        case _:
            return f"{_arrival(step)}, and sends a marker behind the tuples that it has sent."


def _names(names: Iterable[str]) -> str:
    """Names in a sentence.

    >>> _names(["A"]), _names("ABC")
    ('A', 'A, B and C')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def row_versions(graph: Graph, steps: Sequence[ReplayStep], number: int) -> dict[Ends, str]:
    """The version of the rows on each edge at the end of a step: ``old``, ``new``, ``both``; ``waits`` above targets.

    The rows behind a target are of the version that it runs, and so are theirs. On the way of a marker that has not
    come to the end of an edge yet, the rows ahead of it are old and those behind it new, hence ``both``.
    """
    step, way = steps[number], set(steps[-1].travelled) - set(steps[number].travelled)
    found: dict[Ends, str] = {}
    for name in graph.order:
        before = {found[edge.source, name] for edge in graph.in_edges(name) if (edge.source, name) in found} - {"waits"}
        passed = next(iter(before)) if len(before) == 1 else "both" if before else "waits"
        version = step.versions.get(name, passed)
        # An operator that is no target gives old rows until the marker has come, though new ones are behind it.
        ahead = {"new": "both"} if name in step.versions else {"new": "both", "both": "old"}
        for edge in graph.out_edges(name):
            ends = (name, edge.to)
            found[ends] = ahead.get(version, version) if ends in way else version
    return found


@dataclass(frozen=True, repr=False)
class ChangeReplay(Displayed):
    """The replay of a change. A notebook shows it as pictures to step through.

    Attributes:
        change: id of the change.
        graph: the dataflow.
        steps: the steps in order.
    """

    change: str
    graph: Graph
    steps: tuple[ReplayStep, ...]

    @staticmethod
    def of(graph: Graph, plan: Plan, result: Outcome, counts: Counts = NO_COUNTS) -> ChangeReplay:
        """The replay of a change; see ``replay_steps``."""
        return ChangeReplay(result.change, graph, replay_steps(graph, plan, result, counts))

    def __repr__(self) -> str:
        return "\n".join(f"{number}. {step.words}" for number, step in enumerate(self.steps, start=1))


def operations_around(records: Iterable[Record], change: str) -> Counts:
    """Of each operator the data operations of its workers that switched to a change, before and after their switch.

    Operators with a worker that switched to it twice, as after a recovery, are omitted.
    """
    counts: dict[tuple[str, int], list[int]] = {}
    switches: dict[tuple[str, int], int] = {}
    for record in records:
        if isinstance(record, (Ran, RanMany)):
            worker = (record.operator, record.worker)
            number = len(record.transactions) if isinstance(record, RanMany) else 1
            counts.setdefault(worker, [0, 0])[worker in switches] += number
        elif isinstance(record, Updated) and record.id == change:
            worker = (record.operator, record.worker)
            switches[worker] = switches.get(worker, 0) + 1
    twice = {operator for (operator, _), times in switches.items() if times > 1}
    found: dict[str, tuple[int, int]] = {}
    for worker in (worker for worker in switches if worker[0] not in twice):
        before, after = counts.get(worker, [0, 0])
        was = found.get(worker[0], (0, 0))
        found[worker[0]] = (was[0] + before, was[1] + after)
    return found
