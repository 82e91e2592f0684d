"""The read-only part of a run's handle: its state, measurements, changes and trace. Every member returns at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, fields
from os import PathLike
from typing import Any

from fries_nb import audit as auditing
from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState, LatencyParts
from fries_nb.controller.states import LoopPhase
from fries_nb.displays import used
from fries_nb.errors import DataflowError, TraceError
from fries_nb.protocol.messages import Paused
from fries_nb.running.change_monitor import ChangeMonitor
from fries_nb.running.region_runner import OVER
from fries_nb.running.remedies import Proposal, Violation
from fries_nb.running.results import MOST_REPLAYS, Place, RunVerdict, Story
from fries_nb.running.run_end import UncommittedCheck
from fries_nb.telemetry.frontiers import NOT_BEGUN, PHASES, LoopState, OperatorFrontier, TimeHolder
from fries_nb.telemetry.history import Point
from fries_nb.telemetry.run_tables import history_frame
from fries_nb.telemetry.source_states import Explanation, source_states
from fries_nb.telemetry.telemetry import KeptCheckpoint, RecoveryTime
from fries_nb.transport.envelopes import Line


class RunMonitor(ChangeMonitor):
    """What can be observed of a run; see ``fries_nb.running.handle.Run``.

    Attributes:
        graph: the dataflow, as declared and expanded.
    """

    _began_s: float

    @property
    def state(self) -> str:
        """``joining``, ``running``, ``draining`` or ``recovering``; finally ``finished``, ``stopped`` or ``failed``."""
        return self._runner.state

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

        What is wrong with the run, if anything is, comes last; see ``error``.

        A source is behind if rows are due by its rate, or known to be there, as in a log or a directory that grows, and
        have not been read.

        Returns:
            The states of the sources, of some moment of the last second.
        """
        over = self.state in OVER
        lost = self._runner.without_checkpoints
        wrong = self.error or (f"it goes on without checkpoints to go back to: {lost}" if lost and not over else "")
        return Explanation(source_states(self.graph, self._telemetry.reports(), over), wrong)

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
        """What a run waits for that has not ended in time, as far as loops and tokens are concerned, for an error."""
        frontiers, words = self._telemetry.frontiers(), ""
        for loop in self.loops():
            if loop.phase in (NOT_BEGUN, PHASES[LoopPhase.FED], PHASES[LoopPhase.ENDING]):
                continue
            holders = () if frontiers is None else frontiers.holding(loop.name)
            held = f", held by {holders[0]}" if holders and loop.phase == PHASES[LoopPhase.WAITING] else ""
            words += f"; loop {loop.name!r} is {loop.phase} after {loop.rounds}{held}"
        if frontiers is not None and any(one.time and one.time.ahead is not None for one in self.graph.operators):
            sinks = [one.name for one in self.graph.operators if one.traits.is_sink]
            found = dict.fromkeys(one for name in sinks for one in frontiers.holding(name)[:1])
            slow = [one for one in found if not one.to and one.operator not in self.graph.sources]
            words += "".join(f"; sources with ahead= wait, held by {one}" for one in slow)
        return words

    def constraints(self) -> tuple[ConstraintState, ...]:
        """The latency constraints and whether they are met, as last judged (about once a second).

        Returns:
            For each constraint its status, the reason, the latency of each operator and edge in milliseconds, and
            whether lighter functions run.
        """
        return self._runner.remedies.states()

    def proposals(self) -> tuple[Proposal, ...]:
        """The changes proposed by constraints with ``on_violation="propose"``; ``accept()`` makes one.

        A proposal is withdrawn when its reason has passed, or when the user changes the operators. One that was
        accepted stays until its change is done: if it was not made, ``outcome`` and ``error`` say why.

        Returns:
            The proposals that are open or not made, in order of declaration of their constraints.
        """
        return self._runner.remedies.proposals()

    def violations(self) -> tuple[Violation, ...]:
        """The violations of constraints that no remedy could end, as reported: each once, and in the log ``fries_nb``.

        Returns:
            The violations, oldest first.
        """
        return self._runner.remedies.violations()

    def constraint_history(self) -> tuple[ConstraintPoint, ...]:
        """Mean and worst latency of the constrained sequences over time.

        Returns:
            About one point a second of each constraint, oldest first; ``pandas.DataFrame`` accepts them.
        """
        return self._telemetry.constraints.points()

    def buffer_history(self) -> tuple[BufferSize, ...]:
        """The sizes of output buffers of the constrained edges over time.

        Returns:
            The sizes of an edge whenever they have changed, oldest first; ``pandas.DataFrame`` accepts them.
        """
        return self._telemetry.constraints.sizes()

    def constraints_frame(self) -> Any:
        """The constrained sequences by element, as last judged.

        Returns:
            A pandas DataFrame with a row for each operator and edge, in order: its mean latency in milliseconds as
            ``task_ms``, ``buffer_ms`` (output buffers) and ``transport_ms`` (transport and input queue), its
            ``worst_ms``, the sizes of its output buffers as ``smallest_bytes`` and ``largest_bytes``, its ``chain`` as
            in ``FM + MC``, and ``sequence``, ``limit_ms`` and ``status`` of the constraint. A constraint without
            measurements has no rows.
        """
        from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

        columns = ("sequence", "limit_ms", "status", *(field.name for field in fields(LatencyParts)))
        rows = [
            (state.constraint.sequence, state.constraint.latency_ms, str(state.status), *astuple(parts))
            for state in self.constraints()
            for parts in state.parts
        ]
        return DataFrame(rows, columns=columns)

    def history(self) -> tuple[Point, ...]:
        """Latency and throughput at the sinks over time.

        Returns:
            About four points a second, oldest first.
        """
        return self._telemetry.points()

    def history_frame(self) -> Any:
        """Latency and throughput at the sinks over time, as ``history()``.

        Returns:
            A pandas DataFrame with ``p50_ms``, ``p99_ms`` and ``rate`` (tuples per second), by ``at`` in UTC.
        """
        return history_frame(self.history())

    @property
    def lines_printed(self) -> int:
        """Number of lines that operators have printed; ``printed()`` returns the last ones."""
        return self._telemetry.lines_printed

    def printed(self) -> tuple[Line, ...]:
        """The output of operators on their hosts, printed or logged.

        Returns:
            The last 1,000 lines, each with its worker.
        """
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
        return Story(
            graph=self.graph,
            place=Place(self._began_s, self._options.hosts, self._options.budget),
            state=self.state,
            error=self.error,
            details=self.details,
            points=self.history(),
            marks=self.marks(),
            changes=self.changes,
            snapshot=self.metrics(),
            verdict=self._judged() if self._options.audit else None,
            constraints=self.constraints(),
            judged=self.constraint_history(),
            sizes=self.buffer_history(),
            chains=self.chain_history(),
            frontiers=self.frontiers(),
            loops=self.loops(),
            topology=self.topology(),
            topologies=self.topology_history(),
            replays=self._replays([change for change in self.changes if change.done][-MOST_REPLAYS :]),
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
