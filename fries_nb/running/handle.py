"""The handle of a run: what ``Dataflow.run`` returns, and what a notebook holds.

A run works in the background: every method here returns at once, but those that say that they wait.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

from fries_nb import audit as auditing
from fries_nb import report as reporting
from fries_nb.changes import Change
from fries_nb.controller.history import PlotMark, Point
from fries_nb.controller.metrics import MetricsSnapshot
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.limits import Tuples, checked_limit
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import DataflowError, PlanError, RunError, unknown
from fries_nb.messages import Paused
from fries_nb.report import Story, run_page, write_page
from fries_nb.running.region_runner import RegionRunner
from fries_nb.running.run_checkpoints import CheckpointLayout
from fries_nb.running.run_end import UncommittedCheck, live, warn_of
from fries_nb.running.telemetry import KeptCheckpoint, RecoveryTime, Telemetry
from fries_nb.scheduling import Plan
from fries_nb.spark.region_spec import Options
from fries_nb.storage.seals import NO_KEY
from fries_nb.trace import Record
from fries_nb.transport.envelopes import Line


class Run:
    """A dataflow that runs; made by ``Dataflow.run``.

    Attributes:
        graph: what runs, as declared and expanded.
    """

    def __init__(
        self,
        graph: Graph,
        spark: Any,
        options: Options,
        checkpoint: str = "",
        resumed: bool = False,
        key: bytes = NO_KEY,
    ) -> None:
        self.graph = graph
        self._options = options
        self._began_s = time.time()
        cut = regions(graph)
        self._seen = Telemetry(graph)
        places = CheckpointLayout(checkpoint, graph, len(cut), resumed, key)
        try:
            self._course = RegionRunner(graph, cut, places, options, self._seen, self._closed, places.decided())
            live.add(self)
            self._course.start(spark)
        except BaseException:
            live.discard(self)
            places.abandon()
            raise

    def __repr__(self) -> str:
        return f"Run({self.graph.name!r}, {self.state})"

    def _closed(self) -> None:
        live.discard(self)

    @property
    def state(self) -> str:
        """``joining``, ``running``, ``draining``, ``recovering``; then ``finished``, ``stopped`` or ``failed``."""
        return self._course.state

    @property
    def error(self) -> str:
        """Why it failed, empty otherwise."""
        return self._course.error

    @property
    def details(self) -> str:
        """The traceback of its failure from the user's frame on, if there is one."""
        return self._course.details

    @property
    def scratch(self) -> str:
        """The directory, or URI of one, that holds what the run writes for itself; deleted with this object."""
        return self._course.launched[0].scratch

    @property
    def checkpoints(self) -> tuple[KeptCheckpoint, ...]:
        """The checkpoints that are complete, in order; the last two of a region are still there."""
        return self._seen.checkpoints

    @property
    def recoveries(self) -> tuple[RecoveryTime, ...]:
        """When hosts were started again, and why."""
        return self._seen.recoveries

    @property
    def paused(self) -> Mapping[str, tuple[Paused, ...]]:
        """Operators that are paused on a tuple on which they failed (``on_error="pause"``), with their workers.

        Each ``Paused`` has ``worker``, ``error``, ``details`` (the traceback) and ``row``, the tuple as JSON. A change
        of the operator makes it try the tuple again.
        """
        return self._seen.paused

    @property
    def standing(self) -> Mapping[str, tuple[Paused, ...]]:
        """The earlier name of ``paused``; it goes in the next version."""
        warnings.warn("Run.standing is now called Run.paused; it goes in the next version", FutureWarning, stacklevel=2)
        return self.paused

    def checkpoint(self, timeout: float = 60.0) -> str:
        """Take a checkpoint now and wait until it is complete; returns its place.

        Without ``checkpoint=`` that is in the run's scratch space, and goes with it.

        Raises:
            RunError: the run is over, or the checkpoint has come to nothing; says why.
            TimeoutError: it is not complete after so many seconds; it goes on.
        """
        return self._course.checkpoint(timeout)

    # ---- changes

    def plan(self, change: Mapping[str, Any] | Iterable[str], scheduler: str = "fries", pruning: bool = True) -> Plan:
        """What a change would do, without doing it; ``prediction``, while tuples flow, how long that would take.

        Raises:
            PlanError, DataflowError: see ``reconfigure``.
        """
        if isinstance(change, Mapping):
            check_updates(self.graph, as_updates(change))
        targets = (change,) if isinstance(change, str) else tuple(change)
        return self._course.plan(targets, scheduler, pruning)

    def reconfigure(
        self, change: Mapping[str, Any], scheduler: str = "fries", pruning: bool = True, *, merge: bool = False,
        guard: float | Tuples | None = None, rehearse: bool = True,
    ) -> Change:  # fmt: skip
        """Change operators while the dataflow runs; returns at once.

        One change is carried out at a time, and others wait in order. A change of operators behind an aggregate or a
        sort that have not begun to run applies when they do, before their first tuple.

        Args:
            change: operator name to its new function (a join's table), or to an ``Update`` that also transforms its
                state.
            scheduler: ``fries``, ``epoch``, ``naive``, ``multiversion``, ``minibatch`` or ``restart``.
            pruning: whether one-to-many operators that need no synchronisation are left out.
            merge: make it one change with those that wait and have not begun (up to the last rollback), by the
                scheduler given here. Where two change the same operator, the later update counts. All end alike. The
                fix of an operator that is paused goes alone, ahead of them.
            guard: roll the change back by itself if its new configuration fails within so many seconds, or
                ``fn.tuples(number)``, of the last worker's switch. The tuple is processed by the old configuration with
                all behind it: in place if it has met no other changed operator before, else from the last checkpoint,
                if the run keeps any. Where neither is possible, ``on_error`` decides; ``change.guard`` says beforehand
                what is covered, ``change.settled()`` what came of it.
            rehearse: try it on recent tuples first. Keyed state is some key's there, as it is behind these tuples.

        Raises:
            PlanError: unknown operator or scheduler, a guard that is none, an empty change, a change of a source, a
                sink or an operator that has finished.
            DataflowError: a function that cannot run there or cannot be pickled.
            RunError: the run is over.
        """
        updates, limit = as_updates(change), checked_limit(guard)
        return self._course.queue.request(updates, scheduler, pruning, merge=merge, limit=limit, rehearse=rehearse)

    def rollback(self, scheduler: str = "fries") -> Change:
        """Undo the last change that is in effect or on its way, by a change back; returns at once.

        One that waits and has not begun is withdrawn: it ends ``aborted``. What was merged is undone together.

        Raises:
            PlanError: no change is in effect, or its guard is rolling it back; or its state transformation has no way
                back (``Update(..., back=...)``); or its operators have finished.
            RunError: the run is over.
        """
        return self._course.queue.roll_back(scheduler)

    def set_rate(self, source: str, rate: float) -> None:
        """Let a source emit ``rate`` tuples a second from now on, all its workers together; 0 pauses it.

        Raises:
            DataflowError: no such source; PlanError: a negative rate; RunError: the run is over.
        """
        sources = [name for name, operator in self.graph.by_name.items() if operator.traits.is_source]
        if source not in sources:
            raise DataflowError(unknown("source", source, sources))
        if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 <= rate < float("inf"):
            raise PlanError(f"a rate is a number of tuples a second, 0 or more; got {rate!r}")
        self._course.refuse_if_over("a rate is set while the dataflow runs")
        self._course.set_rate(source, float(rate))

    def metrics(self) -> MetricsSnapshot:
        """Latency, rates and queues as last reported (about four times a second)."""
        return self._seen.snapshot()

    def history(self) -> tuple[Point, ...]:
        """Latency and throughput at the sinks over time, about four points a second."""
        return self._seen.points()

    def marks(self) -> tuple[PlotMark, ...]:
        """When changes were requested and when they came to their end."""
        return self._seen.marks()

    @property
    def lines_printed(self) -> int:
        """How many lines operators have printed; ``printed()`` has the last of them."""
        return self._seen.lines_printed

    def printed(self) -> tuple[Line, ...]:
        """What operators printed or logged on their hosts: the last 1,000 lines, each with its worker."""
        return self._seen.printed()

    @property
    def changes(self) -> tuple[Change, ...]:
        """All changes of the run, in order of request."""
        return self._course.queue.changes

    def reads(self, operator: str) -> tuple[str, ...]:
        """Columns that the operator has looked at so far, as last reported.

        Raises:
            DataflowError: no such operator.
        """
        self.graph.operator(operator)
        return self._seen.reads(operator)

    @property
    def host_processes(self) -> dict[int, int]:
        """Host number to the id of its process on its machine, for the hosts that have joined."""
        return {host: hello.pid for host, hello in self._course.launched[-1].driver.hosts.items()}

    def records(self) -> list[Record]:
        """The trace so far: what ran, then each worker's records in its order.

        Raises:
            RunError: the run was not started with ``audit=True``.
        """
        return list(self._course.trace())

    def audit(self) -> auditing.Verdict:
        """Whether what happened so far is conflict-serializable, and what mixed versions, was lost or doubled if not.

        Raises:
            RunError: the run was not started with ``audit=True``.
            TraceError: nothing has happened so far, or records of a worker are missing.
        """
        return auditing.judge(self._course.trace(), self._course.queue.executed())

    def report(self, path: str | PathLike[str]) -> str:
        """Write what happened so far as one HTML page that needs no network; returns the path.

        Raises:
            RunError: it cannot be written there.
        """
        story = Story(
            graph=self.graph,
            place=reporting.Place(self._began_s, self._options.hosts, self._options.budget),
            state=self.state,
            error=self.error,
            details=self.details,
            points=self.history(),
            marks=self.marks(),
            changes=self.changes,
            snapshot=self.metrics(),
            verdict=reporting.judged(self.audit) if self._options.audit else None,
        )
        return write_page(path, run_page(story))

    def stop(self, drain: bool = False, timeout: float | None = 60.0) -> None:
        """End the run and wait until no host, thread or socket of it is left; a run that has ended is left as it is.

        What is not in the output, after this stop or since the run failed, is said by an ``UncommittedWarning``.

        Args:
            drain: end the sources, endless ones as well, then process what they have read, and commit it; through the
                regions behind, too. Without it, tuples read since the last commit are not in the output;
                ``uncommitted`` says how many.
            timeout: seconds to wait.

        Raises:
            TimeoutError: it has not ended by then; it goes on ending. So it does behind an interrupt (Ctrl-C), and
                ``stop()`` ends at once what is being drained.
        """
        if self._course.ended.is_set() and self.state != "failed":
            return
        self.request_stop(drain)
        on = "draining; stop() ends it at once, without what still waits" if drain else "ending"
        try:
            self._course.ended.wait(timeout)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"run {self.graph.name!r} goes on {on}") from None
        if not self._course.ended.is_set():
            raise TimeoutError(f"run {self.graph.name!r} has not ended after {timeout:g} s and goes on {on}")
        self._course.join()
        warn_of(self.graph.name, self.error, self.uncommitted)

    def request_stop(self, drain: bool = False) -> None:
        """Ask for the end, as ``stop`` does, and return at once; ``wait`` waits for it. Never warns."""
        if not self._course.ended.is_set():
            self._course.stop(drain)

    def suspend(self, timeout: float = 60.0) -> None:
        """Pause the sources, take a checkpoint, and end there: ``resume`` goes on from it.

        Unlike ``stop(drain=True)``, after which nothing is left to resume. Tuples of a batch that a source had in hand
        behind the checkpoint's marker are ``uncommitted``, and ``resume`` reads them again.

        Args:
            timeout: seconds to wait.

        Raises:
            RunError: the run keeps no checkpoints, or is over, or none could be taken; then its sources stay paused.
            TimeoutError: the checkpoint, or the end, has not come by then; the sources stay paused.
        """
        if not self.resumable:
            raise RunError(f"run {self.graph.name!r} keeps no checkpoints; expected stop(drain=True), or checkpoint=")
        until_s = time.monotonic() + timeout
        for source in self.graph.sources:
            self.set_rate(source, 0)
        self.checkpoint(timeout)
        self.request_stop()
        self.wait(max(0.0, until_s - time.monotonic()))

    @property
    def resumable(self) -> bool:
        """Whether it keeps checkpoints from which ``resume`` goes on."""
        return self._course.resumable

    @property
    def uncommitted(self) -> UncommittedCheck | None:
        """What was read and is not in the output, once the run has been stopped or has failed; ``None`` for nothing."""
        return self._course.uncommitted

    def wait_flowing(self, timeout: float | None = None) -> bool:
        """Wait until its workers are at work (or it has failed before); false if they are not after so many seconds."""
        return self._course.flowing.wait(timeout)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the run has ended; returns its state.

        Raises:
            TimeoutError: it has not ended after so many seconds.
        """
        if not self._course.ended.wait(timeout):
            raise TimeoutError(f"run {self.graph.name!r} is still {self.state}")
        self._course.join()
        return self.state

    def output(self, sink: str | None = None) -> Any:
        """What was committed so far at a sink, as a Spark DataFrame; the sink may be left out if there is but one.

        Where nothing was committed it has no rows, and the columns that were written at the sink, as far as any were.
        What that of a failed run lacks is said by an ``UncommittedWarning``.

        Raises:
            DataflowError: no such sink, or several and none named.
            SinkError: a committed file has gone; or the sink is a Delta table, and others have rewritten it.
        """
        sinks = [name for name, operator in self.graph.by_name.items() if operator.traits.is_sink]
        if sink is None and len(sinks) == 1:
            sink = sinks[0]
        if sink is None:
            raise DataflowError(f"this run has the sinks {', '.join(sinks)}; expected the name of one of them")
        if sink not in sinks:
            raise DataflowError(unknown("sink", sink, sinks))
        return self._rows(sink)

    def dead_letters(self, operator: str) -> Any:
        """The tuples on which the operator failed, as far as committed: a Spark DataFrame; warns as ``output`` does.

        Its columns are ``operator``, ``worker``, ``error``, ``traceback`` and ``tuple`` (JSON).

        Raises:
            DataflowError: no such operator, or one that keeps no dead letters.
        """
        policy = self.graph.operator(operator).on_error
        if isinstance(policy, str):
            raise DataflowError(
                f"operator {operator!r} keeps no dead letters (on_error={policy!r}); declare it with "
                "on_error=memory() or parquet(path)"
            )
        return self._rows(operator)

    def _rows(self, of: str) -> Any:
        if self.state == "failed":
            warn_of(self.graph.name, self.error, self.uncommitted, depth=2)
        return self._course.output(of)
