"""Running a dataflow: what ``Dataflow.run`` returns, and what a notebook holds.

A run works in the background: every method here returns at once, but those that say that they wait.
"""

from __future__ import annotations

import atexit
import shutil
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

import networkx as nx

from fries_nb import audit as auditing
from fries_nb.changes import Change, undone
from fries_nb.controller.events import (
    Answered,
    ChangeRequested,
    DrainRequested,
    Outcome,
    RateRequested,
    StopRequested,
)
from fries_nb.controller.history import History, Mark, Point
from fries_nb.controller.metrics import Metrics, Snapshot
from fries_nb.dataflow import builder
from fries_nb.dataflow.graph import Graph, Kind
from fries_nb.dataflow.runnable import check_runnable
from fries_nb.dataflow.updates import Update, as_updates, check_updates
from fries_nb.errors import DataflowError, PlanError, RunError, unknown
from fries_nb.messages import Report
from fries_nb.report import Place, Story, run_page, write_page
from fries_nb.scheduling import Plan, schedule
from fries_nb.spark.envelopes import Line
from fries_nb.spark.launch import Launched, launch, pickled
from fries_nb.spark.output import output
from fries_nb.spark.packing import unpack
from fries_nb.spark.region import Options
from fries_nb.spark.staging import remove_scratch
from fries_nb.trace import Record

BUDGET = 64 << 20
"""Bytes that may wait in front of one host's workers, all channels together."""
COMMIT_INTERVAL_S = 5.0
SILENCE_S = 10.0
PRINTED = 1_000
"""Lines kept of what operators print."""


class Run:
    """A dataflow that runs; made by ``Dataflow.run``.

    Attributes:
        graph: what runs, as declared and expanded.
        error: why it failed, empty otherwise; ``details`` is the traceback from the user's frame on.
        lines_printed: how many lines operators have printed; ``printed()`` has the last of them.
    """

    def __init__(self, graph: Graph, spark: Any, options: Options) -> None:
        self.graph = graph
        self.error = ""
        self.details = ""
        self._options = options
        self._began_s = time.time()
        self._metrics = Metrics(graph.by_name)
        self._history = History()
        self.lines_printed = 0
        self._printed: deque[Line] = deque(maxlen=PRINTED)
        self._changes: dict[str, Change] = {}
        self._in_effect: list[Change] = []  # in order; a rolled back change is no more in it
        self._rolls_back: dict[str, Change] = {}
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._ended = threading.Event()
        self._state = ""
        self._launched: Launched = launch(graph, spark, options, self)
        weakref.finalize(self, remove_scratch, self._launched.scratch)
        weakref.finalize(self, shutil.rmtree, self._launched.journal, ignore_errors=True)
        _live.add(self)

    def __repr__(self) -> str:
        return f"Run({self.graph.name!r}, {self.state})"

    @property
    def state(self) -> str:
        """``joining``, ``running``, ``draining``, and in the end ``finished``, ``stopped`` or ``failed``."""
        return self._state or str(self._launched.driver.controller.state)

    @property
    def scratch(self) -> str:
        """The directory, or URI of one, that holds what the run writes for itself; deleted with this object."""
        return self._launched.scratch

    # ---- what the driver says

    def answered(self, event: Answered) -> None:
        """Called by the driver."""
        self._flowing.set()
        if isinstance(event.answer, Report):
            self._metrics.add(event.answer, time.monotonic())
            self._history.add(event.answer, time.time())

    def heard(self, lines: tuple[Line, ...]) -> None:
        """Called by the driver."""
        self._printed.extend(lines)
        self.lines_printed += len(lines)

    def resolved(self, outcome: Outcome) -> None:
        """Called by the driver."""
        change = self._changes[outcome.change]
        self._history.mark(change.id, outcome.outcome, change.label, change.ended_s(outcome, time.time()))
        if outcome.outcome == "done":
            undone_one = self._rolls_back.get(change.id)
            if undone_one is None:
                self._in_effect.append(change)
            elif undone_one in self._in_effect:
                self._in_effect.remove(undone_one)
        change.resolve(outcome)

    def over(self, state: str, error: str, details: str) -> None:
        """Called by the driver when the run is decided."""
        self.error, self.details, self._state = error, details, state
        self._flowing.set()

    def closed(self) -> None:
        """Called by the driver when nothing of the run is left."""
        with self._lock:
            self._ended.set()
            left = [change for change in self._changes.values() if not change.done]
        for change in left:
            change.resolve(Outcome(change.id, change.plan.scheduler, "aborted", f"the run has {self._state}"))
        _live.discard(self)

    # ---- what the user asks

    def plan(self, change: Mapping[str, Any] | Iterable[str], scheduler: str = "fries", pruning: bool = True) -> Plan:
        """What a change would do, without doing it.

        Raises:
            PlanError, DataflowError: see ``reconfigure``.
        """
        if isinstance(change, Mapping):
            check_updates(self.graph, as_updates(change))
        targets = (change,) if isinstance(change, str) else tuple(change)
        return schedule(scheduler, self.graph, targets, pruning)

    def reconfigure(self, change: Mapping[str, Any], scheduler: str = "fries", pruning: bool = True) -> Change:
        """Change operators while the dataflow runs; returns at once.

        Args:
            change: operator name to its new function, or to an ``Update`` that also transforms its state.
            scheduler: ``fries``, ``epoch`` or ``naive``.
            pruning: whether one-to-many operators that need no synchronisation are left out.

        Raises:
            PlanError: unknown operator or scheduler, an empty change, a change of a source or a sink.
            DataflowError: a function that cannot run there or cannot be pickled.
            RunError: the run is over.
        """
        return self._request(as_updates(change), scheduler, pruning)

    def rollback(self, scheduler: str = "fries") -> Change:
        """Undo the last change that is in effect, by a change back; returns at once.

        Raises:
            PlanError: no change is in effect, or its state transformation has no way back (``Update(..., back=...)``).
            RunError: the run is over.
        """
        if not self._in_effect:
            raise PlanError("no change is in effect that could be rolled back")
        last = self._in_effect[-1]
        before = {name: self.graph.operator(name).function for name in last.updates}
        for earlier in self._in_effect[:-1]:
            before.update({name: update.function for name, update in earlier.updates.items() if name in before})
        back = self._request(undone(last, before), scheduler, True)
        self._rolls_back[back.id] = last
        return back

    def _request(self, updates: dict[str, Update], scheduler: str, pruning: bool) -> Change:
        began, requested_s = time.perf_counter(), time.time()
        self._refuse_if_over("a change needs a running dataflow")
        check_updates(self.graph, updates)
        plan = schedule(scheduler, self.graph, updates, pruning)
        payloads = {name: pickled(name, update) for name, update in updates.items()}
        with self._lock:
            self._refuse_if_over("a change needs a running dataflow")
            plan_ms = (time.perf_counter() - began) * 1000
            known = Change(f"u{len(self._changes) + 1}", plan, updates, plan_ms, requested_s)
            self._changes[known.id] = known
        self._history.mark(known.id, "request", known.label, requested_s)
        self._post(ChangeRequested(known.id, plan, payloads, self._rehearsable(plan)))
        return known

    def _rehearsable(self, plan: Plan) -> frozenset[str]:
        """Targets below no other target: what they get does not change, so a recent tuple is a fair trial."""
        below = {name for target in plan.targets for name in nx.descendants(self.graph.digraph, target)}
        return frozenset(plan.targets - below)

    def set_rate(self, source: str, rate: float) -> None:
        """Let a source emit ``rate`` tuples a second from now on, all its workers together; 0 pauses it.

        Raises:
            DataflowError: no such source; PlanError: a negative rate; RunError: the run is over.
        """
        sources = [name for name, operator in self.graph.by_name.items() if operator.kind is Kind.SOURCE]
        if source not in sources:
            raise DataflowError(unknown("source", source, sources))
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 <= rate < float("inf"):
            raise PlanError(f"a rate is a number of tuples a second, 0 or more; got {rate!r}")
        self._refuse_if_over("a rate is set while the dataflow runs")
        self._post(RateRequested(source, float(rate)))

    def metrics(self) -> Snapshot:
        """Latency, rates and queues as last reported (about four times a second)."""
        return self._metrics.snapshot()

    def history(self) -> tuple[Point, ...]:
        """Latency and throughput at the sinks over time, about four points a second."""
        return self._history.points()

    def marks(self) -> tuple[Mark, ...]:
        """When changes were requested and when they came to their end."""
        return self._history.marks()

    def printed(self) -> tuple[Line, ...]:
        """What operators printed or logged on their hosts: the last 1,000 lines, each with its worker."""
        return tuple(self._printed)

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes of the run, in order of request."""
        return tuple(self._changes.values())

    def reads(self, operator: str) -> tuple[str, ...]:
        """Columns that the operator has looked at so far, as last reported.

        Raises:
            DataflowError: no such operator.
        """
        self.graph.operator(operator)
        return self._metrics.reads(operator)

    @property
    def host_processes(self) -> dict[int, int]:
        """Host number to the id of its process on its machine, for the hosts that have joined."""
        return {host: hello.pid for host, hello in self._launched.driver.hosts.items()}

    def records(self) -> list[Record]:
        """The trace so far, each worker's records in its order.

        Raises:
            RunError: the run was not started with ``audit=True``.
        """
        if not self._options.audit:
            raise RunError("this run keeps no trace; start it with audit=True")
        return [unpack(record) for record in list(self._launched.driver.records)]

    def audit(self) -> auditing.Verdict:
        """Whether what happened so far is conflict-serializable, and who mixed versions if not.

        Raises:
            RunError: the run was not started with ``audit=True``.
        """
        decided = [change for change in self._changes.values() if change.decided]
        return auditing.judge(self.records(), [(one.id, target) for one in decided for target in one.plan.targets])

    def report(self, path: str | PathLike[str]) -> str:
        """Write what happened so far as one HTML page that needs no network; returns the path.

        Raises:
            RunError: it cannot be written there.
        """
        story = Story(
            graph=self.graph,
            place=Place(self._began_s, self._options.hosts, self._options.budget),
            state=self.state,
            error=self.error,
            details=self.details,
            points=self.history(),
            marks=self.marks(),
            changes=self.changes,
            snapshot=self.metrics(),
            verdict=self.audit() if self._options.audit else None,
        )
        return write_page(path, run_page(story))

    def stop(self, drain: bool = False, timeout: float | None = 60.0) -> None:
        """End the run and wait until no host, thread or socket of it is left; does nothing if it has ended.

        Args:
            drain: first process what the sources have read, and commit it.
            timeout: seconds to wait.

        Raises:
            TimeoutError: it has not ended by then; it goes on ending.
        """
        if not self._ended.is_set():
            self._post(DrainRequested() if drain else StopRequested())
            self.wait(timeout)

    def wait_flowing(self, timeout: float | None = None) -> bool:
        """Wait until its workers are at work (or it has failed before); false if they are not after so many seconds."""
        return self._flowing.wait(timeout)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the run has ended; returns its state.

        Raises:
            TimeoutError: it has not ended after so many seconds.
        """
        if not self._ended.wait(timeout):
            raise TimeoutError(f"run {self.graph.name!r} is still {self.state}")
        self._launched.driver.join()  # it has closed all it had, and ends in this moment
        return self.state

    def output(self, sink: str | None = None) -> Any:
        """What was committed so far at a sink, as a Spark DataFrame; the sink may be left out if there is but one.

        Raises:
            DataflowError: no such sink, or several and none named.
        """
        sinks = self._launched.sinks
        if sink is None and len(sinks) == 1:
            sink = next(iter(sinks))
        if sink is None:
            raise DataflowError(f"this run has the sinks {', '.join(sinks)}; expected the name of one of them")
        if sink not in sinks:
            raise DataflowError(unknown("sink", sink, sinks))
        return output(self._launched.session.spark, sinks[sink], self._launched.run)

    def _refuse_if_over(self, why: str) -> None:
        if self.state in ("finished", "stopped", "failed"):
            reason = f": {self.error}" if self.error else ""
            raise RunError(f"run {self.graph.name!r} has {self.state}{reason}; {why}")

    def _post(self, event: ChangeRequested | RateRequested | DrainRequested | StopRequested) -> None:
        self._launched.driver.post(event)


_live: weakref.WeakSet[Run] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """An interpreter that ends takes its runs along, so that no host outlives it."""
    for run in list(_live):
        run.stop()


class Dataflow(builder.Dataflow):
    """A dataflow that can be run; see ``fries_nb.dataflow.builder.Dataflow`` for how to declare one."""

    def run(
        self,
        spark: Any = None,
        hosts: int = 2,
        workers: int = 2,
        *,
        audit: bool = False,
        chaining: bool = True,
        budget: int = BUDGET,
        commit_interval_s: float | None = COMMIT_INTERVAL_S,
        port: int = 0,
        silence_s: float = SILENCE_S,
    ) -> Run:
        """Run it on Spark, in the background.

        Args:
            spark: a SparkSession; by default the active one, or an embedded one that is started.
            hosts: Spark tasks that share the workers; as many slots and two more must be free.
            workers: parallel instances of each operator that was declared without a number.
            audit: record every data operation, for ``run.audit()``.
            chaining: let operators on forward edges share a thread.
            budget: bytes that may wait in front of a host's workers.
            commit_interval_s: seconds between commits of the sinks; ``None`` commits at the end only.
            port: of the controller; 0 for any free one.
            silence_s: seconds after which a silent host counts as lost, and a host without a controller leaves.

        Raises:
            DataflowError: nothing to run, or a function that cannot be pickled.
            SessionError: no Java, or a session that cannot serve.
            SourceError, SinkError: an end of the flow that cannot be read or written.
        """
        graph = self.graph(workers)
        check_runnable(graph)
        return Run(graph, spark, Options(hosts, budget, audit, chaining, commit_interval_s, silence_s, port))
