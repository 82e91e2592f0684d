"""What can be observed of a run's changes: plans, results, functions before and after, the trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fries_nb.changes import Change, FunctionPairs
from fries_nb.controller.states import ChangeProgress
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import targets_of
from fries_nb.errors import PlanError
from fries_nb.host.region_spec import Options
from fries_nb.protocol.trace import Record
from fries_nb.running.change_replay import ChangeReplay, operations_around
from fries_nb.running.operator_monitor import OperatorMonitor
from fries_nb.running.queue_entries import CHANGES_KEPT
from fries_nb.running.results import DataflowPlan
from fries_nb.telemetry.history import PlotMark
from fries_nb.telemetry.run_tables import changes_frame

NAMED = 10
"""Number of changes that an error lists."""


class ChangeMonitor(OperatorMonitor):
    """The changes of a run; see ``fries_nb.running.handle.Run``.

    Attributes:
        graph: the dataflow, as declared and expanded.
    """

    graph: Graph
    _options: Options

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of the run in order of request: the last 1,000, and older ones that are still open."""
        return self._runner.queue.changes

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

    def revertible(self, change: Change | str) -> str:
        """Why ``rollback(change=...)`` would be refused now.

        Args:
            change: a change of this run, or its id.

        Returns:
            The reason in words, which names the later change and the operator if there is one; empty if the change can
            be undone.

        Raises:
            PlanError: it is no change of this run.
        """
        return self._runner.queue.irrevertible(self._id_of(change))

    def change_progress(self, change: Change | str) -> ChangeProgress | None:
        """How far a change is: how many of its workers have prepared it, and how many have switched.

        Args:
            change: a change of this run, or its id.

        Returns:
            The progress in the first region in which it has not ended; that of all changes with which it was merged.
            ``None`` if no controller has it: it waits for another change or for its region, or has ended.

        Raises:
            PlanError: it is no change of this run.
        """
        known_as = self._runner.queue.carried_out_as(self._id_of(change))
        controllers = (launched.driver.controller for launched in tuple(self._runner.launched))
        return next((one for one in (each.progress_of(known_as) for each in controllers) if one is not None), None)

    def function_changes(self, change: Change | str) -> FunctionPairs:
        """The functions that a change replaces, and its new ones. Superseded functions are read from disk.

        Args:
            change: a change of this run, or its id. One that was merged has the functions of all that it was merged
                with.

        Returns:
            Operator to the function that it ran when the change was begun, and the new one, whether or not it was
            installed. Empty if the change was withdrawn before it was begun.

        Raises:
            PlanError: it is no change of this run.
        """
        return self._runner.queue.functions(self._id_of(change))

    def replay(self, change: Change | str) -> ChangeReplay:
        """A change that has ended, step by step: messages, switches, and the way of its marker.

        Args:
            change: a change of this run, or its id.

        Returns:
            The steps, in words and pictures; with ``audit=True`` also the operations in the trace before and after each
            switch, except for changes that were merged into a later one. A notebook shows pictures to step through.

        Raises:
            PlanError: it is no change of this run, or has not ended yet.
        """
        name = self._id_of(change)
        [asked] = (one for one in self.changes if one.id == name)
        if not asked.done:
            raise PlanError(f"change {name} is still under way; expected one that has ended; its result() waits")
        [replay] = self._replays([asked])
        return replay

    def changes_frame(self) -> Any:
        """All changes of the run, in order of request.

        Returns:
            A pandas DataFrame with a row for each: ``change`` (its id), ``targets``, ``scheduler``, ``origin``,
            ``outcome``, the times ``delay_ms``, ``plan_ms``, ``prepare_ms`` and ``commit_ms``, ``old_tuples`` and
            ``error``.
        """
        return changes_frame(self.changes)

    def marks(self) -> tuple[PlotMark, ...]:
        """The times at which changes were requested and ended, for plots.

        Returns:
            The marks, oldest first.
        """
        return self._telemetry.marks()

    def records(self) -> list[Record]:
        """The trace so far.

        Returns:
            The description of the dataflow, then each worker's records in order.

        Raises:
            RunError: the run was not started with ``audit=True``.
        """
        return list(self._runner.trace())

    def _replays(self, changes: Iterable[Change]) -> tuple[ChangeReplay, ...]:
        """The replays of changes that have ended; the trace is read once."""
        records = self.records() if self._options.audit else []
        return tuple(
            ChangeReplay.of(self.graph, one.plan, one.result(0), operations_around(records, one.id)) for one in changes
        )

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
