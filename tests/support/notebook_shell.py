"""A real IPython shell for tests, and runs that need no Spark."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from changes_asked import ChangesAsked, StandInCanaries, StandInShadow
from IPython.core.interactiveshell import InteractiveShell
from pandas import DataFrame
from traitlets.config import Config

from fries_nb.audit import Verdict, judge
from fries_nb.changes.change import Change, all_recorded
from fries_nb.changes.change_examples import Example, Examples
from fries_nb.changes.change_replay import ChangeReplay
from fries_nb.changes.function_versions import RunningFunction
from fries_nb.constraints.judgements import ConstraintState
from fries_nb.controller.events import Outcome, RescaleCancelled
from fries_nb.controller.states import ChangeProgress
from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.dataflow.constraints import Element, LatencyConstraint, constraint_of
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import Lighter, as_updates, check_lighter, check_updates
from fries_nb.errors import PlanError, RunError, TraceError, see
from fries_nb.notebook.waits import PROGRESS
from fries_nb.planning import Prediction
from fries_nb.planning.difference import Difference
from fries_nb.planning.schedulers import Plan, schedule
from fries_nb.planning.shape import ExplainedPlan, PlannedDifference, refuse_unsupported, shape_plan, with_plan
from fries_nb.protocol.messages import Paused, Report, WorkerId
from fries_nb.protocol.running_chains import ChainChange, ChainedOperators
from fries_nb.protocol.topology import Topology
from fries_nb.protocol.trace import Ran
from fries_nb.run import Dataflow, Run
from fries_nb.running.key_states import StateOfRun
from fries_nb.running.remedies import HostProposal, Proposal
from fries_nb.running.rescales import Rescale, RescaleResult
from fries_nb.running.run_end import UncommittedCheck
from fries_nb.running.run_requeues import Requeue
from fries_nb.telemetry.frontiers import LoopState, OperatorFrontier, TimeHolder
from fries_nb.telemetry.history import PlotMark, Point, QueuePoint, WaitingPoint
from fries_nb.telemetry.metrics import HostLoad, Metrics, MetricsSnapshot, PlacedWorker, Recorded, placed_workers
from fries_nb.telemetry.run_states import ConstraintStates, Explanation, source_states
from fries_nb.telemetry.telemetry import RecoveryTime
from fries_nb.transport.envelopes import Line

FRAUD = """%%fries_dataflow fraud
class Score:
    def __init__(self, version): self.version = version
    def process(self, row, state):
        state["seen"] = state.get("seen", 0) + 1
        return row | {"version": self.version, "seen": state["seen"]}
numbers = flow.source("numbers", fn.rate(2_000))
merchants = numbers.map("FM", Score(1), key="value")
scored = merchants.map("MC", lambda row: row | {"after": row["version"]}, key="timestamp")
scored.sink("out", fn.memory())
"""


@contextmanager
def ipython(directory: Path) -> Iterator[InteractiveShell]:
    """A shell with the extension, which keeps its files in the directory and leaves the process as it was."""
    main = sys.modules["__main__"]
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config, ipython_dir=str(directory))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(directory / "cache"))
            shell.run_line_magic("load_ext", "fries_nb")
        yield shell
    finally:
        shell.run_line_magic("unload_ext", "fries_nb")
        InteractiveShell.clear_instance()
        shell.restore_sys_module_state()
        sys.modules["__main__"] = main


def told(shell: InteractiveShell, cell: str) -> str:
    """What a cell shows as its result."""
    result = shell.run_cell(cell)
    result.raise_error()
    return repr(result.result)


def refused(shell: InteractiveShell, cell: str, capsys: pytest.CaptureFixture[str]) -> BaseException:
    """The error of a cell, after a look at what IPython shows of it: one line, that on its page, and no result.

    An error of syntax has two lines more: that of the source, and a mark in it.

    How a start gets on is not shown meanwhile, which on a busy machine takes long enough for a line of its own.
    """
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PROGRESS, "0")
        result = shell.run_cell(cell)
    shown = "".join(capsys.readouterr())
    assert result.error_in_exec is not None, result.result
    assert result.result is None
    _, *page = shown.strip().splitlines()
    page = page[2 * bool(re.search(r"\n +\^$", str(result.error_in_exec))) :]
    assert page == list(filter(None, [see(result.error_in_exec)])), shown
    assert str(result.error_in_exec) in shown
    return result.error_in_exec


def show_tab(view: Any, name: str) -> None:
    """Click a tab of a live view's drawer."""
    view.tabs.selected_index = view.tabs.titles.index(name)


def replace_runs(patch: pytest.MonkeyPatch) -> list[StandIn]:
    """Lets flows start stand-ins in place of runs, and collects them."""
    started: list[StandIn] = []

    def start(flow: Dataflow, **options: Any) -> StandIn:
        started.append(StandIn(flow.graph(options["workers"]), **options))
        return started[-1]

    patch.setattr(Dataflow, "run", start)
    return started


class StandInLooks:
    """In place of what workers hold: one key."""

    def table(self, operator: str, keys: Any, n: Any, timeout: float) -> DataFrame:
        """As a run's."""
        return DataFrame({"key": [7], "operator": [operator]})


class StandIn:
    """In place of a run: plans a change as a run does, and ends it as ``outcome`` says, or never if that is None."""

    def __init__(self, graph: Graph, **options: Any) -> None:
        self.graph = graph
        self.options = options
        self.state = "running"
        self.error = ""
        self._runner = SimpleNamespace(remedies=SimpleNamespace(limits=lambda *_: []))
        self.outcome: str | None = "done"
        self.doubt = ""
        self.why_aborted = "FM[0]: open() raised OSError: no model"
        self.asked: dict[str, Any] = {}
        self.made: tuple[Change, ...] = ()
        self.canaries = StandInCanaries()
        self.shadows: tuple[StandInShadow, ...] = ()
        self.tried: list[tuple[Any, int]] = []
        self.no_examples = ""
        self.cancelled: list[str] = []
        self.rates: dict[str, float] = {}
        self.scratch = ""
        self.host_processes: dict[int, int] = {}
        self.lines: tuple[Line, ...] = ()
        self.details = ""
        self.reported, self.reporting = Metrics(graph.by_name), threading.Lock()
        self.paused: dict[str, tuple[Paused, ...]] = {}
        self.failed_at = ""
        self.progress: ChangeProgress | None = None
        self.recoveries: tuple[RecoveryTime, ...] = ()
        self.prediction: Prediction | None = None
        self.drains = self.resumable = False
        self.uncommitted: UncommittedCheck | None = None
        self.judged = ConstraintStates()
        self.rechained: tuple[ChainChange, ...] = ()
        self.chained: tuple[ChainedOperators, ...] = ()
        self.proposed: tuple[Proposal, ...] = ()
        self.reached: tuple[OperatorFrontier, ...] = ()
        self.placed: TopologyStatus | None = None
        self.topologies: tuple[HostCount, ...] = ()
        self.rescaling: Rescale
        self.advised: HostProposal | None = None
        self.gone_round: tuple[LoopState, ...] = ()
        self.judged_as: Verdict | TraceError | None = None

    def end(self, change: Change, outcome: str, delay_ms: float, error: str = "") -> None:
        """End a change that is under way."""
        change.resolve(Outcome(change.id, change.plan.scheduler, outcome, delay_ms=delay_ms - 1.0, error=error))

    def explain(self) -> Explanation:
        """By what was reported."""
        return Explanation(source_states(self.graph, self.reported.reports, False, self.rates))

    def set_rate(self, source: str, rate: float | None) -> None:
        """Refuses what a run refuses."""
        if rate is not None and rate < 0:
            raise PlanError(f"a rate is a number of tuples a second, 0 or more; got {rate!r}")
        self.rates.pop(source, None)
        if rate is not None:
            self.rates[source] = rate

    def plan(self, change: Iterable[str], scheduler: str = "fries", pruning: bool = True) -> Plan:
        """What a scheduler says of the whole graph, and ``prediction``."""
        return replace(schedule(scheduler, self.graph, change, pruning), prediction=self.prediction)

    def reconfigure(
        self,
        change: dict[str, Any],
        scheduler: str = "fries",
        pruning: bool = True,
        *,
        merge: bool = False,
        guard: float | None = None,
        force: bool = False,
        canary: float | None = None,
        **gates: Any,
    ) -> Change:
        """Refuses what a run refuses; a change that is doubted is aborted unless it is forced."""
        updates = as_updates(change)
        check_updates(self.graph, updates)
        plan = schedule(scheduler, self.graph, updates, pruning)
        self.asked, self.guard = change, guard
        pairs = {name: (self.graph.operator(name).function, one.function) for name, one in updates.items()}
        far, cancelled = (lambda _: self.progress), self.cancelled.append
        canaries = self.canaries
        known = ChangesAsked(lambda _: pairs, self._replayed, far, self._blocked, cancelled, canaries, self._step)
        asked = Change(f"u{len(self.made) + 1}", plan, updates, 1.0, run=known)
        if canary is not None:
            canaries.asked.append({"canary": canary, **gates})
            canaries.shares[asked.id] = canary
        doubted = self.doubt if not force else ""
        if self.outcome is not None:
            outcome = "aborted" if doubted else self.outcome
            error = "" if outcome == "done" else doubted or self.why_aborted
            parts = tuple(tuple(sorted(part.operators)) for part in plan.covering.components)
            asked.resolve(Outcome(asked.id, scheduler, outcome, error, components=parts, needs_force=bool(doubted)))
        self.made = (*self.made, asked)
        return asked

    def shadow(self, change: dict[str, Any], **limits: Any) -> StandInShadow:
        """By a change of these functions, and ended by another one."""
        made = self.reconfigure(change)
        shadow = StandInShadow(None, made, made.updates, [*change])  # type: ignore[arg-type]
        self.asked, shadow.request = limits, lambda: self.reconfigure(change)
        self.shadows = (*self.shadows, shadow)
        return shadow

    def _step(self, change: str, share: float) -> Change:
        """The same functions again."""
        self.canaries.shares[change] = share
        return self.reconfigure(dict(next(one for one in self.made if one.id == change).updates))

    @property
    def changes(self) -> Recorded[Change]:
        """As requested."""
        return all_recorded(self.made)

    def _replayed(self, change: Change) -> ChangeReplay:
        """Of its plan, without times."""
        return ChangeReplay.of(self.graph, change.plan, change.result(0))

    def _blocked(self, change: str) -> str | None:
        """The last one is not."""
        return None if change == self.made[-1].id else f"change {self.made[-1].id} is later"

    def diff(self, flow: Dataflow) -> PlannedDifference:
        """To what was declared: no change is remembered."""
        found, _ = self._difference(flow)

        def shaped() -> tuple[ExplainedPlan, ...]:
            refuse_unsupported(found, found.lost)
            return tuple(shape_plan(found.before, found.after, [*found.functions], order) for order in (True, False))

        return with_plan(found, lambda: self.plan(found.functions), shaped)

    @property
    def state(self) -> StateOfRun:
        """As a run's."""
        return StateOfRun.of(self._state, self.looks)  # type: ignore[arg-type]

    @state.setter
    def state(self, state: str) -> None:
        self._state = state

    looks = StandInLooks()

    def state_sizes(self, timeout: float = 30.0) -> DataFrame:
        """As a run's."""
        return DataFrame({"operator": ["FM"], "keys": [1]})

    def rows(
        self, operator: Any = None, n: int = 20, *, where: Any = None, source: Any = None, timeout: float = 30.0
    ) -> DataFrame:  # fmt: skip
        """As a run's: one row, if it satisfies the condition."""
        rows = [row for row in ({"TX_AMOUNT": 300, "operator": operator},) if where is None or where(row)]
        return DataFrame(rows[:n])

    def requeue(self, operator: str, where: Any, limit: int | None, per_second: float | None) -> Requeue:
        """As a run's: two open letters of FM, of which one may satisfy the condition; some wait for the next second."""
        letters = [{"TX_AMOUNT": amount, "_error": "no score"} for amount in (100, 300) if operator == "FM"]
        rows = [row for row in letters if where is None or where(row)][:limit]
        requeue = Requeue(operator, len(rows))
        requeue.note(len(rows))
        if per_second is None or per_second >= len(rows):
            requeue.end()
        return requeue

    def examples(self, change: Any, n: int = 10, *, timeout: float = 30.0) -> Examples:
        """As a run's: one row that differs, or why there are none; keeps what was asked."""
        self.tried.append((change, n))
        if self.no_examples:
            raise TimeoutError(self.no_examples)
        return Examples("", (Example("FM", 0, {"n": 1}, {"p": 0.5}, {"p": 0.25}, "differs", ("p",)),))

    def _difference(self, flow: Dataflow) -> tuple[Difference, dict[str, bytes]]:
        return Difference.of(self.graph, flow.graph_like(self.graph)), {}

    def apply(self, flow: Dataflow, scheduler: str = "fries", **options: Any) -> Change | Rescale:
        """As a run does; a change of the shape ends as ``outcome`` says, or never if that is None."""
        found = self.diff(flow)
        if not found:
            return Run.apply(self, flow, scheduler, **options)  # type: ignore[arg-type]
        if not (found.has_new_shape or found.functions):
            return self.rescale(workers=found.workers)
        if found.workers:
            self.rescale(workers=found.workers)
        if not found.has_new_shape:
            options = {name: options[name] for name in ("guard", "force") if name in options}
            return self.reconfigure(found.functions, scheduler, **options)
        refuse_unsupported(found, options.get("drop", ()))
        assert found.planned is not None
        self.asked, self.guard = {"drop": tuple(options.get("drop", ()))}, options.get("guard")
        self.asked |= {"state": states} if (states := options.get("state")) else {}
        change = Change(f"u{len(self.made) + 1}", found.planned.plan, {}, 1.0, run=ChangesAsked())
        self.made = (*self.made, change)
        if self.outcome is not None:
            self.graph = found.after if self.outcome == "done" else self.graph
            error = "" if self.outcome == "done" else self.why_aborted
            change.resolve(Outcome(change.id, scheduler, self.outcome, error))
        return change

    def wait_flowing(self, timeout: float) -> bool:
        """It flows from the first."""
        return True

    def rollback(self, change: Change | None = None, scheduler: str = "fries") -> Change:
        """The first functions again."""
        last = (change or self.made[-1]).updates
        return self.reconfigure({name: self.graph.operator(name).function for name in last}, scheduler)

    def hear(self, operator: str, processed: int, milliseconds: float, now_s: float) -> None:
        """What its first worker of an operator would have reported."""
        report = Report(WorkerId(operator, 0), processed, 0, latency=((milliseconds, 1),))
        with self.reporting:
            self.reported.add(report, now_s)

    def metrics(self) -> MetricsSnapshot:
        """Of what was reported."""
        with self.reporting:
            return self.reported.snapshot()

    @property
    def history(self) -> SimpleNamespace:
        """Two points, one request, and what was told."""
        points = (Point(100.0, 2.0, 9.0, 50.0), Point(100.25, 3.0, 8.0, 60.0))
        return SimpleNamespace(
            latency=Recorded.of(Point, points),
            marks=(PlotMark(100.1, "u1", "request", "FM by fries"),),
            queues=Recorded.of(QueuePoint, ()),
            waiting=(WaitingPoint(100.0, 5), WaitingPoint(100.25, 7)),
            constraints=self.judged.points(),
            buffers=self.judged.sizes(),
            chains=self.rechained,
            hosts=self.topologies,
        )

    def constrain(
        self,
        sequence: Sequence[Element],
        latency_ms: float,
        window_s: float,
        on_violation: str,
        lighter: Lighter | None = None,
    ) -> LatencyConstraint:
        """Refuses what a run refuses."""
        constraint = constraint_of(self.graph, sequence, latency_ms, window_s, on_violation)
        check_lighter(self.graph, constraint, lighter)
        self.judged.add(constraint)
        return constraint

    def constraints(self) -> Recorded[ConstraintState]:
        """As told to ``judged``."""
        return Recorded(self.judged.states(), {"sequence": None, "limit_ms": None}, lambda state: ())

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """As told."""
        return self.proposed

    def chains(self) -> tuple[ChainedOperators, ...]:
        """As told."""
        return self.chained

    def frontiers(self) -> tuple[OperatorFrontier, ...]:
        """As told."""
        return self.reached

    def holding(self, operator: str) -> tuple[TimeHolder, ...]:
        """As told, of an operator that there is."""
        name = self.graph.operator(operator).name
        return next((one.holders for one in self.reached if one.operator == name), ())

    def loops(self) -> tuple[LoopState, ...]:
        """As told."""
        return self.gone_round

    def topology(self) -> TopologyStatus:
        """As told, or else of two hosts."""
        self.placed = self.placed or TopologyStatus.of(Topology.dealt(self.graph, 2), (0, 1))
        return self.placed

    def workers(self) -> Recorded[PlacedWorker]:
        """By what was reported."""
        return placed_workers(self.topology(), {}, self.reported.reports)

    def host_rates(self) -> dict[int, float]:
        """None flows."""
        return dict.fromkeys(self.topology().hosts, 0.0)

    def host_loads(self) -> dict[int, HostLoad]:
        """Of the first one."""
        return {0: HostLoad(0.5, 200_000_000, 0)}

    @property
    def host_proposal(self) -> HostProposal | None:
        """As told."""
        return self.advised

    def rescale(
        self, hosts: int | None = None, at_once: int | None = None, *, workers: Mapping[str, int] | None = None
    ) -> Rescale:
        """Refuses nothing; ends as ``outcome`` says, or never if that is None."""
        self.rescaling = rescale = Rescale(f"r{hosts}", hosts, self, workers or {})  # type: ignore[arg-type]
        self.asked = {"hosts": hosts, "at_once": at_once} | ({} if workers is None else {"workers": dict(workers)})
        if self.outcome is not None:
            error = "" if self.outcome == "done" else "host 2 was lost (its process died); nothing changed"
            rescale.resolve(RescaleResult(self.outcome, hosts or 2, error, 1_250.0))  # type: ignore[arg-type]
        return rescale

    def post(self, event: object) -> None:
        """A rescale is cancelled."""
        assert isinstance(event, RescaleCancelled)
        self.rescaling.resolve(RescaleResult("aborted", 2, "it was cancelled; nothing changed"))

    def functions(self) -> dict[str, RunningFunction]:
        """What was declared, or by the last change that is done."""
        done = [one for one in self.made if one.done and one.result(0).outcome == "done"]
        by = {name: one.id for one in done for name in one.updates}
        names = self.graph.by_name
        return {name: RunningFunction(name, "Score(1)", by.get(name, ""), 100.0) for name in names}

    @property
    def printed(self) -> tuple[Line, ...]:
        """As told."""
        return self.lines

    @property
    def lines_printed(self) -> int:
        """As many."""
        return len(self.lines)

    def audit(self) -> Verdict:
        """Of a trace of one record, unless ``judged_as`` says another."""
        if isinstance(self.judged_as, TraceError):
            raise self.judged_as
        if self.judged_as is not None:
            return self.judged_as
        if not self.options["audit"]:
            raise RunError("this run keeps no trace; start it with audit=True")
        return judge([Ran("t", "FM")])

    def report(self, path: str) -> str:
        """Of nothing."""
        Path(path).write_text("<html>")
        return path

    def request_stop(self, drain: bool = True) -> None:
        """Ends at once, unless it ``drains`` for long."""
        self.state = "stopped" if not drain else "draining" if self.drains else "finished"

    def wait(self, timeout: float | None = None) -> str:
        """As far as it has ended."""
        if self.state == "draining" and timeout is not None:
            raise TimeoutError
        return self.state
