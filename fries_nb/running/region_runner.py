"""Runs the regions of a dataflow one after another, with Spark's blocking operators in between.

The first region is launched by the thread that starts the run, which therefore raises errors of the launch. Each
further region is launched by a separate thread when the one before it is closed; in that thread Spark computes the
blocking operators.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
import traceback
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from fries_nb.changes.canary_gates import CanaryStatus, Gates
from fries_nb.changes.change import Change
from fries_nb.changes.change_effect import ChangeEffect
from fries_nb.changes.change_queue import ChangeQueue
from fries_nb.changes.queue_entries import QueueShell, has_finished
from fries_nb.controller import events
from fries_nb.controller.commits import NOTHING_INHERITED
from fries_nb.controller.event_log import Timeline
from fries_nb.controller.states import ChangeProgress, RunState
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.endpoints import rate_of
from fries_nb.dataflow.graph import Graph, Operator, ends_of, resized
from fries_nb.dataflow.regions import Kept, Region, regions
from fries_nb.dataflow.updates import Lighter, Update, check_updates
from fries_nb.driver.driver import Driver
from fries_nb.driver.driver_core import Closed, ConstraintsChanged, HostsRestarted, Told, Used
from fries_nb.driver.open_questions import Looked
from fries_nb.errors import CheckpointError, DataflowError, FriesError, PlanError, RunError, in_one_line, unknown
from fries_nb.host.region_spec import Options
from fries_nb.operators.dead_letters import LETTER
from fries_nb.planning.schedulers import Plan
from fries_nb.planning.shape import ExplainedPlan, refuse_in_time
from fries_nb.protocol.checkpoints import CommittedChange
from fries_nb.protocol.messages import ArmsSeen, Chained, Compared, Failed, Report
from fries_nb.protocol.trace import ROW_BITS, SPLIT_BITS, Record, identity_of, place_of
from fries_nb.running.canaries import Canaries
from fries_nb.running.change_records import ChangeRecords
from fries_nb.running.checkpoint_view import CheckpointView, checkpoint_at
from fries_nb.running.key_states import RunLooks, not_begun
from fries_nb.running.remedies import Remedies
from fries_nb.running.rescales import Rescales
from fries_nb.running.results import Part, RunTrace
from fries_nb.running.run_checkpoints import CheckpointLayout, CheckpointRequests, with_functions
from fries_nb.running.run_end import HeldCommits, UncommittedCheck
from fries_nb.running.run_requeues import RunRequeues
from fries_nb.spark import blocking_operators as blocking
from fries_nb.spark.catalog import output
from fries_nb.spark.launch import Launched, added_to, launch, pickled_functions
from fries_nb.spark.session import start_or_find
from fries_nb.spark.staging import remove_scratch
from fries_nb.storage.durable import join
from fries_nb.telemetry.telemetry import Telemetry
from fries_nb.transport.envelopes import Judged, Pointstamps, Printed

if TYPE_CHECKING:
    from fries_nb.running.shadows import Shadow

_CANCEL_INTERVAL_S = 0.2
OVER = frozenset(str(state) for state in RunState if state.over)
FLOWING = frozenset(str(state) for state in RunState if state.flows)

_log = logging.getLogger("fries_nb")


class RegionRunner(QueueShell):
    """The execution of a run.

    Args:
        graph: the whole dataflow.
        telemetry: receives the telemetry of the run.
        closed: called once, when all resources of the run are released.
        before: the changes that were decided before the run was resumed.

    Attributes:
        queue: the changes of the run.
        remedies: the policies of its latency constraints.
        looks: the questions of users for what workers hold.
        requeues: the requests to give rows of dead letters back.
        records_of_changes: what was seen when changes began.
        canaries: those that are followed.
        shadows: those that were requested, in order.
        rescales: the requests for other numbers of hosts.
        telemetry: the telemetry of the run.
        launched: the regions launched so far.
        without_checkpoints: why the run goes on without checkpoints to go back to; empty if it has them, or needs none.
        commits: what keeps the run from committing.
        uncommitted: the source tuples missing from the output, if the run was stopped or failed.
        error: why the run failed; empty otherwise.
        details: the traceback of the failure from the user's first frame on.
        graph: the dataflow, as it is now.
        removed: the operators that changes of the shape have removed.
        past: the ends of the edges that the dataflow had before the last one.
        flowing: set when the first workers process tuples, or the run has ended.
        ended: set when all resources of the run are released.
        options, rates: the options of the run; source to its rate in tuples per second, where one was set.
    """

    def __init__(
        self, graph: Graph, regions: tuple[Region, ...], places: CheckpointLayout, options: Options,
        telemetry: Telemetry, closed: Callable[[], None], before: Sequence[CommittedChange] = (),
    ) -> None:  # fmt: skip
        self.launched: list[Launched] = []
        self.uncommitted: UncommittedCheck | None = None
        self.error = self.details = ""
        self.commits = HeldCommits(graph.name)
        self.flowing = threading.Event()
        self.ended = threading.Event()
        self.graph = graph
        self.removed: dict[str, Operator] = {}
        self.past: set[tuple[str, str]] = set()
        self._regions = regions
        self._places = places
        self.options = options
        self.telemetry = telemetry
        self.rescales = Rescales(regions, self)
        self.remedies = Remedies(graph, self)
        self.looks = RunLooks(self)
        self.requeues = RunRequeues(self, before)
        self.records_of_changes = ChangeRecords(self, self.looks)
        self.canaries = Canaries(self)
        self.shadows: list[Shadow] = []
        self.queue = ChangeQueue(graph, regions, self, self.remedies, before=before)
        self._lock = threading.RLock()
        self._closed = closed
        self._state = ""
        self._stopped = self._draining = False
        self._open = False  # whether the region launched last is running
        self._group = f"fries-sql-{uuid.uuid4().hex[:8]}"
        self._next_launch: threading.Thread | None = None
        self._cancelling: threading.Thread | None = None
        self.rates: dict[str, float] = {}
        self._flowing_regions: set[int] = set()  # regions whose workers process tuples
        self._checkpoint_requests = CheckpointRequests()
        self.without_checkpoints = ""  # why a checkpoint that the run could do without has failed

    @property
    def chaining(self) -> bool:
        """Whether hosts chain operators."""
        return self.options.chaining

    @property
    def resumable(self) -> bool:
        """Whether checkpoints are kept in a directory given by the user."""
        return self._places.path != ""

    @property
    def recovers(self) -> bool:
        """Whether the run can go back to a checkpoint of any place."""
        return self.resumable or (self.options.recover and not self.without_checkpoints)

    @property
    def identifies(self) -> bool:
        """Whether rows carry the identity of their source tuple."""
        return self.options.identities

    @property
    def state(self) -> str:
        """The state of the run; between two regions it is ``joining``.

        A region whose controller has ended may still have to commit its last rows, and to release its checkpoint
        directory. Until then the run counts as ``draining``: after its end another run can begin from what it has left.
        """
        if self.ended.is_set():
            return self._state
        if self._state or not self._open:
            return "draining" if self._state else "joining"
        region = self.launched[-1].driver.controller.state
        if not region.over:
            return str(region)
        return "joining" if region == "finished" and len(self.launched) < len(self._regions) else "draining"

    def start(self, spark: Any) -> None:
        """Launch the first region."""
        for canary in self.queue.changes:  # of an earlier process; its gates were those of that one
            self.canaries.begin(canary, Gates((canary.share,)))
        queries = [operator for operator in self.graph.operators if operator.blocking]
        if not queries:
            self._launch(0, spark)
            return
        session = start_or_find(self.options.hosts, spark)
        try:
            for operator in queries:
                blocking.check_query(session.spark, operator)
            self._launch(0, session.spark)
        finally:
            session.release()  # the region has its own lease

    def post(self, event: events.Event) -> None:
        """Pass an event to the controller of the running region."""
        self.launched[-1].driver.post(event)

    def refuse_if_over(self, why: str) -> None:
        """Check that the run accepts requests."""
        if self._state:
            reason = f": {self.error}" if self.error else ""
            goes_on = self.resumable and self._state in ("failed", "stopped")
            again = f"; flow.resume({self._places.path!r}) lets it go on" if goes_on else ""
            raise RunError(f"run {self.graph.name!r} has {_VERBS[self._state]}{reason}; {why}{again}")

    def refuse_if_ended(self, operator: str, why: str) -> None:
        """Check that the operator's region has not ended before others."""
        region = self._region_of(operator)
        if region < len(self.launched) and self.launched[region].driver.is_closed:
            raise PlanError(f"{has_finished([operator], region, len(self._regions))}; {why}")

    def operator(self, name: str) -> Operator:
        """The operator of that name; raises a DataflowError that says so if a change has removed it."""
        if name not in self.graph and isinstance(name, str) and name in self.removed:
            words = f"{name!r} has been removed by a change of the shape; expected one of {', '.join(self.graph)}"
            raise DataflowError(f"{words}, or rollback() of that change")
        return self.graph.operator(name)

    def ship(self, updates: Mapping[str, Update]) -> dict[str, bytes]:
        """Validate and pickle the updates of a change, by operator.

        Raises:
            RunError: the run has ended.
            DataflowError: an update cannot be pickled, or a join's table lacks the columns to join on.
            SourceError: a join's new table cannot be read or computed.
        """
        self.refuse_if_over("a change needs a running dataflow")
        check_updates(self.graph, updates)
        return {name: self.launched[0].payload(self.graph.operator(name), one) for name, one in updates.items()}

    def first_table(self, join: str) -> Any:
        """The table of a join as it was stored when the run began; ``None`` if its region has not begun."""
        specs = (launched.driver.core.region for launched in tuple(self.launched))
        stored = next((spec.functions[join] for spec in specs if join in spec.functions), None)
        return None if stored is None else pickle.loads(stored)

    def plan(self, targets: Iterable[str], scheduler: str, pruning: bool) -> Plan:
        """Plan a change without requesting it, with a prediction if tuples flow; see ``Run.plan``."""
        measured = self.telemetry.snapshot().operators if self.state in FLOWING else None
        return self.queue.plan(targets, scheduler, pruning, measured)

    def foretold(self, ordered: ExplainedPlan, unordered: ExplainedPlan) -> tuple[ExplainedPlan, ExplainedPlan]:
        """Two plans of a change of the shape with their predicted delays, from the same queues, if tuples flow."""
        if self.state not in FLOWING:
            return ordered, unordered
        measured = self.telemetry.snapshot().operators
        first, second = (self.queue.foretell(one.plan, measured) for one in (ordered, unordered))
        return replace(ordered, plan=first), replace(unordered, plan=second)

    def reshape(
        self, after: Graph, functions: Mapping[str, bytes], plan: Plan, updates: Mapping[str, Update],
        limit: float | None, force: bool, states: Mapping[str, Mapping[Any, Any]],
        inherits: Mapping[str, str] = NOTHING_INHERITED,
    ) -> Change:  # fmt: skip
        """Request a change of the shape, with functions that change beside; see ``Run.apply``.

        Args:
            after: what the dataflow is to become.
            functions: operator to its pickled function there.
            plan: see ``ChangeQueue.reshape``, also for the others.
            updates: the functions that change beside.
            limit: the duration of its guard.
            force: whether a doubt is ignored.
            states: added operator to the states by key with which it begins.
            inherits: operator to the one with whose state at the marker it begins, or goes on; not rehearsed then.

        Raises:
            PlanError: another change is open.
            RunError: the run has ended, or its tuples do not flow yet.
            DataflowError: something cannot be pickled, or the states are too large.
            SourceError: an added source cannot be read.
            SinkError: an added sink cannot be written.
        """
        payloads = self.ship(updates)
        if not self.launched or self.state not in FLOWING:
            raise RunError(f"run {self.graph.name!r} is {self.state}; expected a dataflow whose tuples flow")
        shape = self.launched[0].shape_change(self.graph, after, functions, states=states)
        shape = replace(shape, inherits=dict(inherits))
        return self.queue.reshape(shape, plan, updates, payloads, self._graph_beside(after), limit, force)

    def _graph_beside(self, after: Graph) -> Graph:
        """The dataflow of now, in which the operators that ``after`` lacks have the functions that they run."""
        if not self.graph.by_name.keys() - after.by_name.keys():
            return self.graph
        ran = {name: function for name, function in self.functions_now().items() if name not in after}
        kept = tuple(replace(one, function=ran.get(one.name, one.function)) for one in self.graph.operators)
        return Graph(self.graph.name, kept, self.graph.edges)

    def shape_back(self, before: Graph) -> events.ShapeChange:
        """What makes the dataflow again what it was, with as many workers of each operator as now.

        Raises:
            PlanError: a frontier would go back, as where a source returns.
        """
        refuse_in_time(self.graph, before, self.past)
        after = resized(before, self.graph.sizes)
        functions = pickled_functions(added_to(self.graph, after))
        return self.launched[0].shape_change(self.graph, after, functions, returns=True)

    def go_on(self, graph: Graph) -> None:
        """Go on with the dataflow after a change of its shape, before the change is told to have ended."""
        self.removed = {**self.removed, **{name: one for name, one in self.graph.by_name.items() if name not in graph}}
        self.past |= ends_of(self.graph)
        self.graph, self._regions = graph, regions(graph)
        for name in set(self.rates).difference(graph):  # one of the same name that is added later has its own rate
            self.rates.pop(name, None)
        self.rescales.go_on(self._regions)
        self.telemetry.go_on(graph)
        self.remedies.go_on(graph)

    def set_rate(self, source: str, rate: float | None) -> None:
        """Set the rate of a source in tuples per second, now or when its region starts; ``None`` for its own."""
        region = next(number for number, region in enumerate(self._regions) if source in region.own)
        with self._lock:
            self.rates.pop(source, None)
            if rate is not None:
                self.rates[source] = rate
            elif (rate := rate_of(self.graph.operator(source).function)) is None:
                rate = inf
            if region < len(self.launched):
                self.launched[region].driver.post(events.RateRequested(source, rate))

    def constrain(self, constraint: LatencyConstraint, lighter: Lighter) -> None:
        """Add a latency constraint, for this region and later ones; see ``Run.constrain``."""
        with self._lock:
            self.refuse_if_over("a latency is limited while the dataflow runs")
            self.remedies.add(constraint, lighter)

    def limit(self, constraints: tuple[LatencyConstraint, ...]) -> None:
        """Have hosts judge these constraints from now on, and no others; called in order, under a lock."""
        self.options = replace(self.options, constraints=constraints)
        for launched in tuple(self.launched):
            launched.driver.post(ConstraintsChanged(constraints))

    def carry_out(self, region: int, event: events.ChangeRequested | events.ChangeCancelled) -> None:
        """Pass an event to a region's controller; called by the queue, under its lock."""
        driver = self.launched[region].driver
        driver.post(event)
        if isinstance(event, events.ChangeRequested):
            self.records_of_changes.begins(event, driver)

    def effect(
        self, change: Change, carried_out: str, window: float, timeout: float, since: Sequence[str]
    ) -> ChangeEffect:  # fmt: skip
        """What a change has altered; see ``ChangeRecords.effect``."""
        return self.records_of_changes.effect(change, carried_out, window, timeout, since)

    def arms(self, change: Change, samples: bool, timeout: float) -> Sequence[ArmsSeen]:
        """What the workers of a canary's targets tell of both arms."""
        return self.looks.arms(change, samples, timeout)

    def canary(self, change: str) -> CanaryStatus | None:
        """How far a canary is; see ``Canaries.status``."""
        return self.canaries.status(change)

    def stop(self, drain: bool) -> None:
        """Request the end of the run; returns at once."""
        with self._lock:
            self._stopped = self._stopped or not drain
            self._draining = self._draining or drain
            if self._open:
                self.post(self._drained(len(self.launched) - 1) if drain else events.StopRequested())
            elif self._stopped and self.launched and self._cancelling is None:
                self._cancelling = threading.Thread(target=self._cancel, name="fries-cancel", daemon=True)
                self._cancelling.start()

    def checkpoint(self, timeout: float) -> str:
        """Take a checkpoint and wait until it is complete; see ``Run.checkpoint``."""
        with self._lock:
            self.refuse_if_over("a checkpoint needs a running dataflow")
            request, launched = self._checkpoint_requests.new(), self.launched[-1]
            launched.driver.post(events.CheckpointRequested(request))
            if not self._open:
                self._checkpoint_requests.answer([request], "no region runs at this moment; the next one begins soon")
        try:
            reason = self._checkpoint_requests.wait(request, timeout)
        except TimeoutError:
            words = f"the checkpoint of {self.graph.name!r} is still under way after {timeout:g} s"
            if paused := ", ".join(sorted(self.telemetry.paused)):
                words += f": no marker passes {paused}, which is paused on a tuple until it is changed"
            raise TimeoutError(words) from None
        if reason:
            raise RunError(f"no checkpoint of {self.graph.name!r} was taken: {reason}")
        return launched.place.path

    def wait_flowing(self, timeout: float | None) -> bool:
        """Wait until the first workers process tuples; see ``Run.wait_flowing``."""
        in_time = self.flowing.wait(timeout)
        if self._state in ("failed", "stopped"):
            verb, reason = _VERBS[self._state], f": {self.error}" if self.error else ""
            raise RunError(f"run {self.graph.name!r} has {verb}{reason}; no tuple is processed any more")
        return in_time

    def output(self, sink: str) -> Any:
        """The rows committed so far at a sink, or of an operator's dead letters, as a Spark DataFrame."""
        first = self.launched[0]
        with self._lock:
            behind = [one for one in self.launched if sink in one.sinks]
        columns = self.telemetry.columns(sink) if self._is_sink(sink) else LETTER
        if not behind:  # the region of the sink has not begun, so the output is empty
            columns = pa.schema([]) if self._is_sink(sink) else LETTER
            return output(first.session.spark, join(first.scratch, "sinks", sink), first.run, columns)
        return output(first.session.spark, behind[0].sinks[sink], behind[0].run, columns)

    def _is_sink(self, operator: str) -> bool:
        known = self.removed.get(operator) or self.graph.operator(operator)
        return bool(known.traits.is_sink)

    def trace(self) -> RunTrace:
        """The trace so far; identities of source tuples of later regions are prefixed with the region's number."""
        if not self.options.audit:
            raise RunError("this run keeps no trace; start it with audit=True")
        parts = [
            Part(region, driver.records, one.resumed, one.before, driver.has_finished, driver.workers, driver.shapes)
            for region, one in zip(self._regions, list(self.launched), strict=False)
            for driver in (one.driver,)
        ]
        return RunTrace(tuple(parts))

    def driver_of(self, operator: str) -> Driver | None:
        """The driver of an operator's region; ``None`` if the region has not begun."""
        region = self._region_of(operator)
        with self._lock:
            return self.launched[region].driver if region < len(self.launched) else None

    def _region_of(self, operator: str) -> int:
        """The region that runs an operator, or that passes rows to it, if Spark computes it."""
        return next((at for at, one in enumerate(self._regions) if operator in one.own or operator in one.kept), 0)

    def source_of(self, identity: int, operator: str) -> tuple[str, int, int] | None:
        """The source, split and row that the identity of a tuple at an operator stands for; ``None`` for no source.

        What time brings out, such as the result of a window, derives from no single source tuple.
        """
        source, split, row = place_of(identity)
        read = self.launched[self._region_of(operator)].sources
        return (read[source][0], split, row) if 0 <= source < len(read) else None

    @property
    def hide(self) -> frozenset[str]:
        """The columns whose values are not to be shown."""
        return self.options.hide

    def identity(self, source: Any) -> tuple[int, frozenset[str]]:
        """The identity of a source tuple, and the operators of its region; see ``LookedRun``."""
        name = self.graph.name
        if not self.options.identities:
            lacking = f"source={source!r}: the rows of {name!r} have no identities"
            raise PlanError(f"{lacking}; expected flow.run(..., identities=True), or audit=True")
        launched = tuple(self.launched)
        read = {name: (one, number) for one in launched for number, (name, _) in enumerate(one.sources)}
        names = [*read]
        given = [*source] if isinstance(source, tuple | list) else []
        if len(given) == 2 and len(names) == 1:
            given = [names[0], *given]
        if len(given) != 3 or any(type(one) is not int or one < 0 for one in given[1:]):
            example = f"({names[0]!r}, 0, 2506)" + ("" if len(names) > 1 else " or (0, 2506)")
            raise PlanError(f"source={source!r}; expected source, split and row, as in source={example}")
        if given[0] not in names:
            if given[0] in self.graph.sources:
                raise RunError(not_begun(given[0]))
            raise DataflowError(unknown("source", given[0], names))
        if given[1] >> SPLIT_BITS or given[2] >> ROW_BITS:
            raise PlanError(f"source={source!r}; expected fewer than {1 << SPLIT_BITS:,} splits and 2**{ROW_BITS} rows")
        region, number = read[given[0]]
        return identity_of(number, *given[1:]), frozenset(region.driver.core.region.graph)

    def checkpointed(self, timeout: float) -> CheckpointView:
        """A checkpoint of the region that runs, taken now."""
        return checkpoint_at(self.checkpoint(timeout), self._places.key)

    def shown_time(self, ticks: int) -> Any:
        """A time in states of operators with windows, as users see it: a ``datetime``, or the same number."""
        return self.telemetry.shown_time(ticks)

    def functions_now(self) -> dict[str, Any]:
        """Operator to a copy of what it runs now, as hosts have it."""
        regions = [launched.driver.core.region for launched in tuple(self.launched)]
        return self.queue.functions_now({name: code for region in regions for name, code in region.functions.items()})

    def records(self) -> Sequence[Record]:
        """The trace so far, for replays of changes; empty without an audit."""
        return list(self.trace()) if self.options.audit else ()

    def progress(self, change: str) -> ChangeProgress | None:
        """How far a change is in the first region in which it has not ended; see ``Change.progress``."""
        controllers = (launched.driver.controller for launched in tuple(self.launched))
        return next((one for one in (each.progress_of(change) for each in controllers) if one is not None), None)

    def story(self) -> Timeline:
        """What has happened in all regions, in words; see ``Run.story``."""
        began_s = time.time() - time.monotonic_ns() / 1e9
        with self._lock:
            launched = list(self.launched)
        return Timeline(tuple(chain.from_iterable(one.driver.noted for one in launched)), began_s)

    def join(self) -> None:
        """Join all threads of the run; to be called once ``ended`` is set."""
        self.remedies.join()
        self.requeues.join()
        for launched in self.launched:
            launched.driver.join()
        for thread in (self._next_launch, self._cancelling):
            if thread is not None:
                thread.join()

    # ---- running region

    def _launch(self, number: int, spark: Any) -> None:
        region = self._regions[number]
        sources = {
            name: blocking.source_of(spark, rows, lambda kept: self._read(spark, kept))
            for name, rows in region.inputs.items()
        }
        applied = self.queue.starting(number)
        graph, resumed = self._places.begin(number, with_functions(region.graph, sources), applied)
        place, key = self._places.of(number), self._places.key
        has_launched = threading.Event()
        tell = partial(self.take, number, has_launched)
        drop, begun = self._places.drop, self._places.begun
        launched = launch(graph, spark, self.options, tell, place, resumed, key=key, drop=drop, begun=begun)
        with ExitStack() as ready, self._lock:
            ready.callback(has_launched.set)
            self.launched.append(launched)
            weakref.finalize(self, remove_scratch, launched.scratch)
            self._open = True
            for source in self.rates.keys() & set(region.own):
                self.post(events.RateRequested(source, self.rates[source]))
            self.queue.started(number, applied)
            if self._draining:
                self.post(self._drained(number))
            if self._stopped:
                self.post(events.StopRequested())

    def _drained(self, number: int) -> events.DrainRequested:
        """The request to end the region's sources, except inputs from earlier regions, which are processed fully."""
        return events.DrainRequested(spared=frozenset(self._regions[number].inputs))

    def _read(self, spark: Any, kept: Kept) -> Any:
        launched = self.launched[kept.region]
        return output(spark, launched.sinks[kept.sink], launched.run, self.telemetry.columns(kept.sink))

    # ---- what the driver of a region tells, in its thread

    def take(self, number: int, has_launched: threading.Event, event: Told) -> None:
        """Record what the driver of a region tells; ``has_launched`` is set when its launch has returned."""
        match event:
            case events.Answered():
                self._answered(number, event)
                if isinstance(event.answer, Report) and has_launched.is_set():
                    self.rescales.advice.observe()
            case events.Outcome():
                self.records_of_changes.ends(event)
                self.queue.resolved(number, event)
            case events.GuardFired():
                self.queue.guard_fired(number, event)
            case events.GuardEnded():
                self.queue.guard_ended(number, event)
            case events.RescaleEnded():
                self.rescales.ended(event)
            case events.CheckpointEnded():
                self._checkpointed(number, event)
            case events.RequeueEnded():
                self.requeues.told(event)
            case events.CommitsHeld():
                self.commits.tell(event, _wall_clock(event.since_ns))
            case events.RunEnded():
                self._over(number, event)
            case Closed():
                has_launched.wait()  # a region may end before its launch has returned
                self.rescales.closed()
                self._region_closed(number)
            case _:
                self._measured(number, event)

    def _measured(self, number: int, event: Told) -> None:
        """Record what concerns the telemetry of the run."""
        match event:
            case Printed():
                self.telemetry.hear(event.lines)
            case Used():
                self.telemetry.used(event.host, event.usage)
            case events.Recover():
                self.telemetry.recovering(event)
            case HostsRestarted():
                self.telemetry.recovered()
            case events.OperatorPaused():
                self.telemetry.pause(event)
                self.queue.pause(number, event.operator, bool(event.paused))
            case Pointstamps():
                self.telemetry.outstanding(number, event.counts)
            case Looked():
                self.looks.told(event)
            case Compared():
                self.queue.heard.hear(event)
            case Judged():
                self.telemetry.constraints.judge(event.verdicts)
                self.remedies.judged()  # begins the changes that the verdicts lead to

    def _answered(self, number: int, event: events.Answered) -> None:
        """Process an answer of a worker of the region."""
        self.flowing.set()
        if number not in self._flowing_regions:
            self._flowing_regions.add(number)
            self.queue.flows(number)
        if isinstance(event.answer, Report):
            self.telemetry.report(self._regions[number], event.answer)
        elif isinstance(event.answer, Chained):
            self.telemetry.chain(event.answer)
        elif isinstance(event.answer, Failed):
            self.telemetry.fail(event.answer.worker.operator)

    def _over(self, number: int, ended: events.RunEnded) -> None:
        """Record the outcome of the region, which is that of the run unless another region follows."""
        if ended.state == "finished":
            self.commits.tell(events.CommitsHeld(), 0.0)  # the last commit of a region includes the rest
            self.telemetry.outstanding(number, ())  # hosts report now and then, and so not the last step
        if ended.state != "finished" or number + 1 == len(self._regions):
            self._decide(ended.state, ended.error, ended.details)

    def _region_closed(self, number: int) -> None:
        """Launch the next region, or end the run, since all resources of this region are released."""
        with self._lock:
            self._open = False
            self._checkpoint_requests.refuse("the dataflow, or this region of it, has ended")
            if not self._state and self._stopped:
                self._decide("stopped")
            if self._state in ("stopped", "failed"):
                self.uncommitted = self._uncommitted(self.launched[number])
            ends = bool(self._state)  # read under the lock: the next region may fail and end the run at once
            if not ends:
                self.telemetry.rest(self._regions[number].graph)
                self.queue.over(number, f"region {number + 1} of {len(self._regions)} had finished")
                self._next_launch = threading.Thread(
                    target=self._go_on, args=[number + 1], name="fries-regions", daemon=True
                )
                self._next_launch.start()
        if ends:
            self._end()

    def _checkpointed(self, number: int, event: events.CheckpointEnded) -> None:
        """Record that a checkpoint of the region is complete, or was aborted."""
        self.telemetry.kept(number, event)
        if event.reason and not event.requests and self.recovers and not self.resumable:
            self.without_checkpoints = event.reason
            _log.warning("%r goes on without checkpoints to go back to: %s", self.graph.name, event.reason)
        self._checkpoint_requests.answer(event.requests, event.reason)

    def _uncommitted(self, launched: Launched) -> UncommittedCheck | None:
        """The source tuples that the region has read and not committed; earlier regions have committed all."""
        left = launched.driver.controller.uncommitted
        check = UncommittedCheck(
            left.tuples, _wall_clock(left.since_ns), left.first, self.resumable, self.commits.reason
        )
        return check if left.tuples else None

    # ---- next region, end of the run

    def _go_on(self, number: int) -> None:
        spark = self.launched[0].session.spark
        error, details = "", ""
        try:
            with blocking.job_group(spark, self._group):
                self._launch(number, spark)
        except FriesError as refused:
            error = str(refused)
        except Exception as defect:  # noqa: BLE001 - an internal error must fail the run, not leave it hanging
            error = f"region {number + 1} could not start: {type(defect).__name__}: {defect}"
            details = "".join(traceback.format_exception(defect))
        if error:
            with self._lock:
                self._decide("stopped") if self._stopped else self._decide("failed", *in_one_line(error, details))
            self._end()

    def _cancel(self) -> None:
        """Cancel Spark's jobs between two regions, repeatedly, since one query submits several jobs in sequence."""
        spark = self.launched[0].session.spark
        while not self.ended.is_set():
            blocking.cancel(spark, self._group)
            self.ended.wait(_CANCEL_INTERVAL_S)

    def _decide(self, state: str, error: str = "", details: str = "") -> None:
        self.error, self.details, self._state = error, details, state
        self.flowing.set()

    def _end(self) -> None:
        for number in range(len(self._regions)):
            self.queue.over(number, f"the run has {_VERBS[self._state]}")
        try:
            self._places.release()
        except CheckpointError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=1)
        self.ended.set()
        self._closed()


def _wall_clock(monotonic_ns: int) -> float:
    """A time of the controller's clock in seconds since the Unix epoch."""
    return time.time() - (time.monotonic_ns() - monotonic_ns) / 1e9


_VERBS = {"finished": "finished", "stopped": "been stopped", "failed": "failed"}
