"""What can be observed of a run. Every member returns at once.

A property is what the run keeps: its state, its end, and what was recorded of it. A method asks: it takes measurements,
counts, judges or reads, or asks about what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from os import PathLike
from typing import Any

from fries_nb import audit as auditing
from fries_nb.changes.change import Change, all_recorded
from fries_nb.changes.function_versions import RunningFunction
from fries_nb.changes.queue_entries import CHANGES_KEPT
from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState, LatencyParts
from fries_nb.controller.event_log import Timeline
from fries_nb.controller.states import LoopPhase
from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.dataflow.constraints import EdgeElement
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import targets_of
from fries_nb.displays import used
from fries_nb.errors import DataflowError, PlanError, RunError, TraceError
from fries_nb.host.region_spec import Options
from fries_nb.protocol.messages import Paused
from fries_nb.protocol.running_chains import ChainChange, ChainedOperators
from fries_nb.protocol.trace import Record
from fries_nb.running.key_states import StateOfRun
from fries_nb.running.region_runner import OVER, RegionRunner
from fries_nb.running.remedies import HostProposal, Proposal, Violation
from fries_nb.running.rescales import Rescale
from fries_nb.running.results import MOST_REPLAYS, DataflowPlan, Place, RunVerdict, Story
from fries_nb.running.run_end import UncommittedCheck
from fries_nb.telemetry.frontiers import NOT_BEGUN, PHASES, LoopState, OperatorFrontier, TimeHolder
from fries_nb.telemetry.history import PlotMark, Point, QueuePoint, WaitingPoint
from fries_nb.telemetry.metrics import HostLoad, MetricsSnapshot, PlacedWorker, Recorded, placed_workers, rates_by_host
from fries_nb.telemetry.run_states import Explanation, source_states
from fries_nb.telemetry.telemetry import KeptCheckpoint, RecoveryTime, Telemetry
from fries_nb.transport.envelopes import Line


class RunHistory:
    """The measurements and events of a run over time; each property is a tuple as of now, with ``to_pandas()``.

    All of it is bounded: of a long run the oldest points are dropped, or, of latency and queues, merged.

    Args:
        telemetry: the telemetry of the run.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def __repr__(self) -> str:
        parts = ("latency", "queues", "waiting", "hosts", "buffers", "constraints", "chains", "marks")
        return f"RunHistory({', '.join(f'{part}: {len(getattr(self, part)):,}' for part in parts)})"

    @property
    def latency(self) -> Recorded[Point]:
        """Latency and throughput at the sinks: ``p50_ms``, ``p99_ms`` and ``rate``.

        The points of the last ten minutes are about a quarter of a second apart, older ones up to a six-hundredth of
        their age. A point of such a longer interval has the highest p99 of the intervals for which it stands, the mean
        of their medians, weighted by tuples, and the rate of all of it.
        """
        return Recorded.of(Point, self._telemetry.points())

    @property
    def queues(self) -> Recorded[QueuePoint]:
        """The input queues and the rate of each operator: ``queued`` (tuples), ``queued_bytes`` and ``rate``.

        The points of the last minute are a quarter of a second apart, older ones up to a sixtieth of their age: 24
        hours have less than 1,000 for each operator. A point of a longer interval has its longest queue and mean rate.
        """
        return Recorded.of(QueuePoint, self._telemetry.queue_points())

    @property
    def waiting(self) -> Recorded[WaitingPoint]:
        """The tuples in the input queues of all operators together, ``queued``, at the times of ``queues``."""
        return Recorded.of(WaitingPoint, self._telemetry.waiting())

    @property
    def hosts(self) -> Recorded[HostCount]:
        """The number of hosts before the first rescale and after each one; empty without a rescale.

        The ``topology`` of each is where the workers were from then on.
        """
        return Recorded.of(HostCount, self._telemetry.topologies)

    @property
    def buffers(self) -> Recorded[BufferSize]:
        """The sizes of output buffers of the constrained edges, whenever those of an edge have changed."""
        return Recorded.of(BufferSize, self._telemetry.constraints.sizes())

    @property
    def constraints(self) -> Recorded[ConstraintPoint]:
        """Mean and worst latency of the constrained sequences, about one point a second of each constraint."""
        return Recorded.of(ConstraintPoint, self._telemetry.constraints.points())

    @property
    def chains(self) -> Recorded[ChainChange]:
        """When chains were made or split, with the chains of at least two operators from then on."""
        return Recorded.of(ChainChange, self._telemetry.chain_changes)

    @property
    def marks(self) -> Recorded[PlotMark]:
        """When changes and rescales were requested and ended, checkpoints were kept, and hosts recovered, for plots."""
        return Recorded.of(PlotMark, self._telemetry.marks())


NAMED = 10
"""Number of changes that an error lists."""


_CONSTRAINT_COLUMNS = ("sequence", "limit_ms", "status", *(field.name for field in fields(LatencyParts)))


def _constraint_rows(state: ConstraintState) -> list[dict[str, Any]]:
    of = {"sequence": state.constraint.sequence, "limit_ms": state.constraint.latency_ms, "status": str(state.status)}
    return [of | asdict(parts) for parts in state.parts]


class RunMonitor:
    """What can be observed of a run; see ``fries_nb.running.handle.Run``."""

    _began_s: float
    _options: Options
    _telemetry: Telemetry
    _runner: RegionRunner

    @property
    def graph(self) -> Graph:
        """The dataflow, as it runs now."""
        return self._runner.graph

    @property
    def state(self) -> StateOfRun:
        """``joining``, ``running``, ``draining`` or ``recovering``; finally ``finished``, ``stopped`` or ``failed``.

        Called with the name of an operator, as in ``run.state("FM")``, it gives the states of that operator's keys; see
        ``StateOfRun``.
        """
        return StateOfRun.of(self._runner.state, self._runner.looks)

    def rows(
        self, operator: str | EdgeElement | None = None, n: int = 20, *,
        where: Callable[[Mapping[str, Any]], Any] | None = None,
        source: tuple[int, int] | tuple[str, int, int] | None = None, timeout: float = 30.0,
    ) -> Any:  # fmt: skip
        """The newest rows that have come into an operator, and that have gone out of it; or the next ones.

        They are copied by its workers between two tuples; nothing is kept for that but the last batches, by reference,
        and a few rows between functions that share a worker. Of a run that is over, what its hosts have left is shown.

        With ``where`` it is a tap: the condition is sent to the workers, which try it on the rows that are kept, and on
        those that pass, between two tuples. That takes at most 2 % of the time of a worker; rows that pass while it is
        used up are not tried. The tap ends once a side has ``n`` rows, after ``timeout``, or if its operator or edge is
        removed, with what was found.

        With ``source`` it is the way of one source row: the rows that are it or derive from it, of all that are kept,
        operator by operator in the order of the dataflow.

        Args:
            operator: its name; or an edge, as in ``fn.edge("FC", "FM")``, for the rows that pass along it. With
                ``source`` it may be left out, for all operators.
            n: the number of rows at most, of each side.
            where: a condition on the row as a dict; only rows are given that satisfy it. A row that lacks a column that
                it reads does not.
            source: split and row of a source row, or source, split and row, as ``_source`` has them; needs a run
                with identities.
            timeout: seconds to wait for the workers, or for such rows.

        Returns:
            A pandas DataFrame with the columns of the rows, and ``_side`` (``in``, ``out``); ``_version``, the change
            that the worker had switched to last; ``_worker``; ``_time``, the row's own time, or when its source's row
            was due; and ``_source`` in a run with identities: source, split and row that it derives from. With
            ``source`` it has ``_operator`` as well. With ``where`` its ``attrs`` have ``rows_seen``, that have passed,
            and ``rows_dropped``, that were not tried.

        Raises:
            DataflowError: no such operator or edge, or ``where`` cannot be pickled.
            PlanError: ``n`` or ``timeout`` is not a positive number; ``operator`` is missing, or an edge at which Spark
                computes the rows; ``source`` is given with
                ``where``, or though rows have no identities; ``where`` is no function, or reads a column that no row
                has, and those that are there are named.
            RunError: the operator has not begun, its rows cannot be copied, no worker is there to answer, as those of
                hosts that were gone before the end, or ``where`` has raised on the row that the error has as JSON.
            TimeoutError: a worker has not answered in time; not with ``where``.
        """
        if source is not None:
            if where is not None:
                raise PlanError("source= follows one row, where= waits for others; expected one of them")
            return self._runner.looks.way(operator, source, n, timeout)
        if operator is None:
            raise PlanError('run.rows() has no operator; expected one, as in run.rows("FM"), or source=(0, 2506)')
        return self._runner.looks.rows(operator, n, where, timeout)

    def state_sizes(self, timeout: float = 30.0) -> Any:
        """How much state each operator keeps, that with the most first.

        Args:
            timeout: seconds to wait for the workers.

        Returns:
            A pandas DataFrame with a row for each operator that keeps a state: ``operator``, ``keys``, ``bytes`` (of
            keys and states, pickled; estimated by at most 1,000 keys of each worker), ``largest_key`` and
            ``largest_bytes`` of these; ``disk_keys`` and ``disk_bytes`` of the states that ``state_bytes=`` keeps out
            of memory.

        Raises:
            RunError: a state cannot be copied, or was not left behind by a run that is over.
            TimeoutError: a worker has not answered in time.
        """
        return self._runner.looks.size_table(timeout)

    @property
    def error(self) -> str:
        """What is wrong in one sentence; empty if nothing is.

        Why the run has failed; or, while it runs, why nothing is committed: the last checkpoint failed, or there was no
        commit for a minute and three commit intervals. Both are logged, in ``fries_nb``, and so is the end of it.
        """
        return self._runner.error or ("" if self.state in OVER else self._runner.commits.words)

    @property
    def details(self) -> str:
        """The traceback of a failure from the user's first frame on; empty if there is none."""
        return self._runner.details

    @property
    def failed_at(self) -> str:
        """The operator whose failure has ended the run; empty if none has."""
        return self._telemetry.failed_at if self.state == "failed" else ""

    @property
    def scratch(self) -> str:
        """The directory, or URI of one, that holds the run's temporary files; deleted with this object."""
        return self._runner.launched[0].scratch

    def explain(self) -> Explanation:
        """What each source reads, where it is, and how far it is behind; printed as text, ``.sources`` are values.

        Operators whose state has grown for ten minutes without a bound in sight follow (``.growing``). What is wrong
        with the run, if anything is, comes last; see ``error``.

        A source is behind if rows are due by its rate, or known to be there, as in a log or a directory that grows, and
        have not been read. ``rate`` is the rate at which it is to read.

        Returns:
            The states of the sources, of some moment of the last second.
        """
        over = self.state in OVER
        lost = self._runner.without_checkpoints
        wrong = self.error or (f"it goes on without checkpoints to go back to: {lost}" if lost and not over else "")
        growing = () if over else self.metrics().growing.values()
        sources = source_states(self.graph, self._telemetry.reports(), over, self._runner.rates)
        return Explanation(sources, wrong, growing)

    @property
    def checkpoints(self) -> tuple[KeptCheckpoint, ...]:
        """The complete checkpoints in order; only the last two of each region still exist."""
        return self._telemetry.checkpoints

    @property
    def recoveries(self) -> tuple[RecoveryTime, ...]:
        """The restarts of hosts, with their times and reasons."""
        return self._telemetry.recoveries

    @property
    def paused(self) -> Mapping[str, tuple[Paused, ...]]:
        """Operators that are paused on a tuple on which they failed (``on_error="pause"``), with their workers.

        Each ``Paused`` has ``worker``, ``error``, ``details`` (the traceback) and ``row``, the tuple as JSON. A change
        of the operator makes it retry the tuple.
        """
        return self._telemetry.paused

    def holding(self, operator: str) -> tuple[TimeHolder, ...]:
        """What keeps an operator's frontier, ``metrics().frontier``, from advancing, as last reported.

        Args:
            operator: name of the operator.

        Returns:
            The holders, the earliest first: operators with tokens, and frames on their way. Empty if nothing can
            arrive.

        Raises:
            DataflowError: no such operator, or rows have no times.
        """
        self.graph.operator(operator)
        if all(one.time is None for one in self.graph.operators):
            raise DataflowError(
                f"rows of {self.graph.name!r} have no times, so nothing holds {operator!r} back; expected "
                "source(..., time=<column>)"
            )
        frontiers = self._telemetry.frontiers()
        return () if frontiers is None else frontiers.holding(operator)

    def frontiers(self) -> tuple[OperatorFrontier, ...]:
        """The frontiers of all operators behind a source, and what keeps them from advancing, as last reported.

        Returns:
            The operators in the order of the dataflow; empty if rows have no times, and until the first row was read.
        """
        frontiers = self._telemetry.frontiers()
        return () if frontiers is None else frontiers.operators()

    def loops(self) -> tuple[LoopState, ...]:
        """The loops of the dataflow: their phases, rounds, and rows that wait, as last reported.

        Returns:
            The loops in the order of declaration; empty without any.
        """
        begun = [launched.driver.controller.loops for launched in tuple(self._runner.launched)]
        return self._telemetry.loops({name: loop for loops in begun for name, loop in loops.items()})

    def _unfinished(self) -> str:
        """What a run waits for that has not ended in time: paused operators, loops and tokens; for an error."""
        frontiers, words = self._telemetry.frontiers(), ""
        if self.paused:
            words = f"; {', '.join(sorted(self.paused))} is paused on a tuple on which it failed, until it is changed"
        for loop in self.loops():
            if loop.phase in (NOT_BEGUN, PHASES[LoopPhase.FED], PHASES[LoopPhase.ENDING]):
                continue
            holders = () if frontiers is None else frontiers.holding(loop.name)
            held = f", held by {holders[0]}" if holders and loop.phase == PHASES[LoopPhase.WAITING] else ""
            words += f"; loop {loop.name!r} is {loop.phase} after {loop.rounds}{held}"
        if frontiers is not None and any(one.time and one.time.ahead is not None for one in self.graph.operators):
            sinks = [operator.name for operator in self.graph.operators if operator.traits.is_sink]
            found = dict.fromkeys(one for name in sinks for one in frontiers.holding(name)[:1])
            slow = [one for one in found if not one.to and one.operator not in self.graph.sources]
            words += "".join(f"; sources with ahead= wait, held by {one}" for one in slow)
        return words

    def constraints(self) -> Recorded[ConstraintState]:
        """The latency constraints and whether they are met, as last judged (about once a second).

        Returns:
            For each constraint its status, the reason, the latency of each operator and edge in milliseconds, and
            whether lighter functions run. ``to_pandas()`` has a row for each operator and edge, in order: its mean
            latency in milliseconds as ``task_ms``, ``buffer_ms`` (output buffers) and ``transport_ms`` (transport and
            input queue), its ``worst_ms``, the sizes of its output buffers as ``smallest_bytes`` and ``largest_bytes``,
            its ``chain`` as in ``FM + MC``, and ``sequence``, ``limit_ms`` and ``status`` of the constraint; none of a
            constraint without measurements.
        """
        return Recorded(self._runner.remedies.states(), dict.fromkeys(_CONSTRAINT_COLUMNS), _constraint_rows)

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """The changes proposed by constraints with ``on_violation="propose"``; ``accept()`` makes one.

        Those that are open or were not made, in order of declaration of their constraints. A proposal is withdrawn when
        its reason has passed, or when the user changes the operators. One that was accepted stays until its change is
        done: if it was not made, ``outcome`` and ``error`` say why.
        """
        return self._runner.remedies.proposals()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations of constraints that no remedy could end, oldest first, each once; they are logged as well."""
        return self._runner.remedies.violations()

    @property
    def lines_printed(self) -> int:
        """Number of lines that operators have printed; ``printed`` has the last ones."""
        return self._telemetry.lines_printed

    @property
    def printed(self) -> tuple[Line, ...]:
        """The last 1,000 lines that operators have printed or logged on their hosts, each with its worker."""
        return self._telemetry.printed()

    @property
    def host_processes(self) -> dict[int, int]:
        """Host index to the process id on its machine, for the hosts that have joined."""
        return {host: hello.pid for host, hello in self._runner.launched[-1].driver.hosts.items()}

    def audit(self) -> RunVerdict:
        """Check whether the run so far is conflict-serializable.

        Returns:
            The verdict; if it is negative, with the tuples that mixed versions, were lost or duplicated. A notebook
            draws what one of them met, and the precedence cycle.

        Raises:
            RunError: the run was not started with ``audit=True``.
            TraceError: the trace is empty, or records of a worker are missing.
        """
        verdict = auditing.judge(self._runner.trace(), self._runner.queue.executed())
        return RunVerdict.of(verdict, self.graph, self.changes, self._runner.launched[0].source_row)

    def report(self, path: str | PathLike[str]) -> str:
        """Write a report of the run so far as one HTML page that needs no network.

        Args:
            path: the file to write.

        Returns:
            The path.

        Raises:
            RunError: the file cannot be written.
        """
        return used().report(path, self._story())

    def _story(self) -> Story:
        """The data of the run so far."""
        newest = [change for change in self.changes if change.done][-MOST_REPLAYS:]
        return Story(
            graph=self.graph,
            place=Place(self._began_s, self._options.hosts, self._options.budget),
            state=self.state,
            error=self.error,
            details=self.details,
            points=self.history.latency,
            marks=self.history.marks,
            changes=self.changes,
            snapshot=self.metrics(),
            verdict=self._judged() if self._options.audit else None,
            constraints=self.constraints(),
            judged=self.history.constraints,
            sizes=self.history.buffers,
            chains=self.history.chains,
            frontiers=self.frontiers(),
            loops=self.loops(),
            topology=self.topology(),
            topologies=self.history.hosts,
            replays=self._runner.queue.replays(newest),
            examples=self._runner.queue.kept_examples(newest),
            shadows=tuple(self._runner.shadows),
        )

    def _judged(self) -> RunVerdict | TraceError:
        """The verdict, or the error why there is none."""
        try:
            return self.audit()
        except TraceError as error:
            return error

    @property
    def resumable(self) -> bool:
        """Whether the run keeps checkpoints from which ``resume`` can continue."""
        return self._runner.resumable

    @property
    def uncommitted(self) -> UncommittedCheck | None:
        """Source tuples missing from the output of a run that was stopped or failed; ``None`` if there are none."""
        return self._runner.uncommitted

    # ---- changes

    @property
    def changes(self) -> Recorded[Change]:
        """The changes of the run in order of request: the last 1,000, and older ones that are still open.

        ``to_pandas()`` has a row for each: ``change`` (its id), ``targets``, ``scheduler``, ``origin``, ``outcome``,
        the times ``delay_ms``, ``plan_ms``, ``prepare_ms`` and ``commit_ms``, ``old_tuples`` and ``error``.
        """
        return all_recorded(self._runner.queue.changes)

    @property
    def history(self) -> RunHistory:
        """Latency, queues, hosts, buffers, constraints, chains and marks over time."""
        return RunHistory(self._telemetry)

    def story(self) -> Timeline:
        """What has happened so far, as its controller has seen it: hosts, changes, checkpoints, failures.

        Measurements are left out. ``change.story()`` is about one change.

        Returns:
            The last 1,000 entries of changes and of all else, of each region, shown as text; ``.entries`` are values.
        """
        return self._runner.story()

    def plan(
        self, change: Mapping[str, Any] | Iterable[str], scheduler: str = "fries", pruning: bool = True
    ) -> DataflowPlan:
        """Plan a change without making it.

        Args:
            change: operator to new function, as for ``reconfigure``, or only the names of the operators.
            scheduler: see ``reconfigure``.
            pruning: see ``reconfigure``.

        Returns:
            The plan; while tuples flow, ``prediction`` holds the predicted delay. A notebook shows it as
            ``%fries_plan`` does.

        Raises:
            PlanError: see ``reconfigure``.
            DataflowError: see ``reconfigure``.
        """
        targets = targets_of(self.graph, change)
        return DataflowPlan.of(self.graph, self._runner.plan(targets, scheduler, pruning))

    def records(self) -> list[Record]:
        """The trace so far.

        Returns:
            The description of the dataflow, then each worker's records in order.

        Raises:
            RunError: the run was not started with ``audit=True``.
        """
        return list(self._runner.trace())

    def _id_of(self, change: Change | str) -> str:
        """The id of a change of this run; ids alone are not unique among runs."""
        known = {one.id: one for one in self.changes}
        name = change.id if isinstance(change, Change) else change
        if name not in known or (isinstance(change, Change) and known[name] is not change):
            last = [*known][-NAMED:]
            ids = (f"{last[0]} to {last[-1]}" if len(known) > NAMED else ", ".join(last)) or "none yet"
            more = "" if len(known) < CHANGES_KEPT else f"; of earlier ones than {next(iter(known))} nothing is kept"
            raise PlanError(
                f"{change!r} is no change of run {self.graph.name!r}; expected one of its changes: {ids}{more}"
            )
        return name

    # ---- operators

    def metrics(self) -> MetricsSnapshot:
        """The current latency, rates and queues, as last reported (about four times a second).

        Returns:
            A snapshot: latencies in milliseconds, rates in tuples per second, queues in tuples and bytes.
        """
        return self._telemetry.snapshot()

    def functions(self) -> dict[str, RunningFunction]:
        """What each operator runs now, by which change, and since when.

        A change counts from the moment at which the last of its workers has switched; one that was aborted, or that its
        guard has rolled back, does not.

        Returns:
            Operator to its function or table, for the operators that can be changed, in the order of declaration.
        """
        return self._runner.queue.running_functions()

    def reads(self, operator: str) -> tuple[str, ...]:
        """The input columns that an operator has read so far, as last reported.

        Args:
            operator: name of the operator.

        Returns:
            Names of columns.

        Raises:
            DataflowError: no such operator.
        """
        self.graph.operator(operator)
        return self._telemetry.reads(operator)

    def chains(self) -> tuple[ChainedOperators, ...]:
        """The operators that run as chains now, in one call for each tuple.

        Returns:
            The chains of at least two operators, each with the parallel instances that it has.
        """
        return self._telemetry.running_chains.chained

    # ---- hosts

    def topology(self) -> TopologyStatus:
        """The hosts, the workers on them, and the owners of the bins of keyed operators; those of the last region.

        Returns:
            The topology now, and what a rescale that is under way does.

        Raises:
            RunError: the dataflow has not been launched yet.
        """
        if not self._runner.launched:
            raise RunError("the dataflow has not been launched, so it has no hosts yet")
        return self._runner.rescales.status

    def workers(self) -> Recorded[PlacedWorker]:
        """The workers and where they are.

        Returns:
            Each worker with its ``operator``, its index ``worker``, its ``host``, whether rows are ``routed`` to it,
            the number of ``bins`` that it owns (none without keys), its ``rate``, the tuples per second that it takes
            in, and how many are ``queued`` in front of it.

        Raises:
            RunError: the dataflow has not been launched yet.
        """
        return placed_workers(self.topology(), self._telemetry.worker_rates(), self._telemetry.reports())

    def host_rates(self) -> dict[int, float]:
        """The load of each host.

        Returns:
            Host to the tuples per second that its workers take in, over the last three seconds.
        """
        return rates_by_host(self.topology(), self._telemetry.worker_rates())

    def host_loads(self) -> dict[int, HostLoad]:
        """What each host uses, and what waits there, as last told (about once a second).

        Returns:
            Host to the processor time per time and the memory of its process, and the bytes in the input queues of its
            workers; without hosts that have not told it yet.
        """
        return self._telemetry.loads(self.topology())

    @property
    def host_proposal(self) -> HostProposal | None:
        """Another number of hosts, if the operators' cost and the rates of the sources have asked for it three times.

        ``accept()`` requests the rescale; nothing is rescaled by itself. ``None`` without one, as while a source has no
        rate.
        """
        return self._runner.rescales.advice.proposal

    @property
    def rescaling(self) -> Rescale | None:
        """The rescale that is under way, or else the last one; ``None`` if none was requested."""
        return self._runner.rescales.last
