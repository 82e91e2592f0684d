"""The handle of a run, returned by ``Dataflow.run``.

A run executes in the background: methods return at once, except those that say that they wait.
"""

from __future__ import annotations

import functools
import pickle
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fries_nb.changes.canary_gates import checked_gates
from fries_nb.changes.change import Change
from fries_nb.changes.change_examples import Examples
from fries_nb.changes.queue_entries import ChangeOrigin
from fries_nb.changes.rollbacks import functions_of
from fries_nb.dataflow.arguments import Tuples, checked_canary, checked_limit, checked_timeout
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.constraints import WINDOW_S, Element, LatencyConstraint, constraint_of
from fries_nb.dataflow.endpoints import check_readable
from fries_nb.dataflow.graph import Graph, check_runnable, resized, without_shadows
from fries_nb.dataflow.regions import regions
from fries_nb.dataflow.updates import Lighter, Update, as_updates, check_lighter
from fries_nb.displays import progress_of, used
from fries_nb.errors import DataflowError, PlanError, RunError, unknown
from fries_nb.host.region_spec import Options
from fries_nb.planning.difference import Difference
from fries_nb.planning.shape import ExplainedPlan, PlannedDifference, refuse_unsupported, shape_plan, with_plan
from fries_nb.protocol.messages import EXAMPLES
from fries_nb.protocol.topology import chains
from fries_nb.running.key_states import given_states
from fries_nb.running.region_runner import RegionRunner
from fries_nb.running.rescales import Rescale
from fries_nb.running.run_checkpoints import CheckpointLayout
from fries_nb.running.run_end import live, warn_of
from fries_nb.running.run_monitor import RunMonitor
from fries_nb.running.run_requeues import Requeue, refuse_without_letters
from fries_nb.running.shadows import Shadow, begin_shadow, open_shadow, refuse_in_shadows
from fries_nb.spark.launch import Begun, pickled_functions
from fries_nb.storage.durable import NO_KEY
from fries_nb.storage.flow_shape import refuse_other_targets
from fries_nb.telemetry.telemetry import Telemetry


class Run(RunMonitor):
    """A running dataflow; made by ``Dataflow.run``, ``Dataflow.resume`` and ``Dataflow.fork``."""

    def __init__(
        self,
        graph: Graph,
        spark: Any,
        options: Options,
        checkpoint: str = "",
        resumed: bool = False,
        key: bytes = NO_KEY,
        lighters: Mapping[LatencyConstraint, Lighter] | None = None,
        drop: Collection[str] = (),
        begun: Begun | None = None,
    ) -> None:
        self._options = options
        self._began_s = time.time()
        cut = regions(graph)
        chained = [chain for region in cut for chain in chains(region.graph, options.chaining)]
        self._telemetry = Telemetry(graph, constraints=options.constraints, chains=chained)
        places = CheckpointLayout(checkpoint, graph, len(cut), resumed, key, drop, begun)
        try:
            decided = places.decided()
            self._runner = RegionRunner(graph, cut, places, options, self._telemetry, self._closed, decided)
            self._runner.remedies.expect(graph, lighters or {})
            self._runner.remedies.go_on(graph)
            self._runner.remedies.resumed(functions_of(decided, graph))
            live.add(self)
            self._runner.start(spark)
        except BaseException:
            live.discard(self)
            places.abandon()
            raise

    def __repr__(self) -> str:
        return f"Run({self.graph.name!r}, {self.state})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return used().bundle(self)

    def _closed(self) -> None:
        live.discard(self)

    def checkpoint(self, timeout: float = 60.0) -> str:
        """Take a checkpoint now and wait until it is complete.

        Args:
            timeout: seconds to wait.

        Returns:
            The checkpoint directory; without ``checkpoint=`` it is in the run's scratch directory, and deleted with it.

        Raises:
            RunError: the run has ended, or the checkpoint was aborted; includes the reason.
            TimeoutError: it is not complete in time; it continues.
        """
        with progress_of(f"taking a checkpoint of {self.graph.name!r}"):
            return self._runner.checkpoint(timeout)

    # ---- changes

    def reconfigure(
        self, change: Mapping[str, Any], scheduler: str = "fries", pruning: bool = True, *, merge: bool = False,
        guard: float | Tuples | None = None, rehearse: bool = True, timeout: float | None = None,
        force: bool = False, canary: float | None = None, steps: Sequence[float] | None = None,
        every: float | Tuples | None = None, promote_when: Callable[[Any], bool] | None = None, tolerate: int = 0,
    ) -> Change:  # fmt: skip
        """Change operators while the dataflow runs, in one transaction; returns at once.

        One change is carried out at a time, and others wait in order. A change of operators below an aggregate or a
        sort whose region has not begun applies when it begins, before its first tuple.

        Args:
            change: operator to its new function (for a join a table), or to an ``fn.Update`` that also transforms its
                state.
            scheduler: ``fries``, ``epoch``, ``naive``, ``multiversion``, ``cut``, ``minibatch`` or ``restart``; or
                ``auto``: ``cut`` if the markers of ``fries`` would begin above the operators that change, or a loop
                would have to be empty first, and it can be taken, otherwise ``fries``; ``change.plan`` says which, and
                why. ``cut`` needs a run with ``identities=True`` or ``audit=True``, and is refused with a guard, with a
                transformation of state that has no way back, and below a timed operator.
            pruning: whether one-to-many operators that need no synchronisation are left out.
            merge: merge it with the changes that wait and have not begun (back to the last rollback) into one change by
                this scheduler. If two change the same operator, the later update applies. All have the same outcome.
                The fix of a paused operator is not merged, and precedes them.
            guard: roll the change back automatically if its new configuration fails within this number of seconds, or
                of tuples (``fn.tuples(number)``), after the last worker's switch. The old configuration then processes
                the failing tuple and all later ones: in place if no other changed operator has processed the tuple,
                otherwise by a restart from the last checkpoint, if there is one. If neither is possible, ``on_error``
                applies. ``change.guard`` describes the coverage, and ``change.settled()`` returns the final outcome.
            rehearse: whether to try the change on recent tuples first. A keyed function is given the state of one key,
                as it is after these tuples. A change is ``aborted``, and ``result().needs_force``, if every one of
                these tuples is dropped, by a new function or below it, and not so without the change; or if a new
                function takes 100 times as long for a row as the present one, and at least a millisecond.
            timeout: seconds within which a loop that the change touches must have emptied, once no row enters it any
                more, and within which no row that is old for a change by the cut may be left; otherwise the change is
                aborted. ``None`` for no limit; ``change.cancel()`` ends the wait as well.
            force: whether to make it even if the rehearsal shows that it drops every tuple, or is so much slower. (One
                that fails there is not made.)
            canary: let the new functions process this share of the rows only, by the identity of each row's source
                tuple, or by the column that its source names as ``cohort=``; ``change.ramp``, ``promote`` and
                ``rollback`` go on. Until then a failure of a new function, or below it, restarts the run from its last
                checkpoint without the change, and other changes wait. Needs ``flow.run(identities=True)``; the
                scheduler is ``cut``.
            steps: shares to which a canary goes on by itself, as [0.05, 0.25, 1].
            every: how long it stays at each of them: a number of rows of the new version, ``fn.tuples(number)``, or of
                seconds.
            promote_when: a function that is called here then, with what ``change.compare()`` returns, and answers
                whether the canary goes on; if not it is asked again after as much. If it raises, or gives no boolean,
                the canary is rolled back, as ``change.canary`` says.
            tolerate: number of rows that may become dead letters of the new version; with more the canary is rolled
                back, a moment later. (Where failures are no dead letters, see ``canary``.)

        Returns:
            The handle of the change.

        Raises:
            PlanError: unknown operator or scheduler, an invalid guard, an empty change, a change of a source, a sink
                or an operator that has finished, or one that cannot be made by the cut.
            DataflowError: a function that cannot run there or cannot be pickled.
            RunError: the run has ended.
        """
        updates, limit = as_updates(change), checked_limit(guard)
        refuse_in_shadows(self.graph, updates)
        limit_s, share = checked_timeout(timeout), 1.0 if canary is None else checked_canary(canary, merge, scheduler)
        gates = checked_gates(None if canary is None else share, steps, every, promote_when, tolerate)
        requested = self._runner.queue.request(
            updates, scheduler if canary is None else "cut", pruning, merge=merge, limit=limit, rehearse=rehearse,
            timeout_s=limit_s, force=force, share=share,
        )  # fmt: skip
        if gates is not None:
            self._runner.canaries.begin(requested, gates)
        return requested

    def examples(
        self, change: Mapping[str, Any] | DataflowBuilder, n: int = EXAMPLES, *, timeout: float = 30.0
    ) -> Examples:  # fmt: skip
        """What a change would make of recent rows, beside what is made of them now; the change is not made.

        The functions are shipped, prepared and rehearsed at the workers as those of a change, in turn with changes, and
        forgotten: nothing is decided, states and results are as before, and the run has no change more. At most two
        seconds of the rehearsal are for examples; a change that is requested meanwhile waits for its end.

        Args:
            change: see ``reconfigure``; or the dataflow as ``apply`` would get it, if only functions differ.
            n: the number of rows at most that come to an operator, 1 to 50; of each worker those that are in memory.
            timeout: seconds to wait.

        Returns:
            The rows side by side; see ``Change.examples``. ``.refusal`` says why the change would be refused.

        Raises:
            PlanError: see ``reconfigure``; or the shape differs, or ``n`` is not such a number.
            DataflowError: see ``reconfigure`` and ``diff``.
            ReconfigurationError: the functions cannot be prepared, for the reason that is given.
            RunError: the run has ended, its region has not begun, no row has come yet, or values cannot be shown here.
            TimeoutError: it was not rehearsed in time, since a change is under way, or an operator is paused.
        """
        updates = self._functions_of(change) if isinstance(change, DataflowBuilder) else as_updates(change)
        return self._runner.queue.try_out(updates, n, timeout)

    def _functions_of(self, flow: DataflowBuilder) -> dict[str, Update]:
        """The functions that ``apply`` would change; raises a PlanError if there are none, or the shape changes."""
        found, _ = self._difference(flow)
        if found.has_new_shape or not found.functions:
            what = "another shape" if found.has_new_shape else "no other function"
            raise PlanError(f"{flow.name!r} has {what}; examples are of changed functions")
        return as_updates(found.functions)

    def diff(
        self, flow: DataflowBuilder, *, state: Mapping[str, Any] | None = None
    ) -> PlannedDifference:  # fmt: skip
        """What tells a dataflow from what runs: operators, functions, edges, and what becomes of each state.

        The plan of the change that ``apply`` would make is part of it: which operators take part and why, and the
        predicted delay while tuples flow.

        Operators are matched by name. A function is the same if its code, closure, defaults, attributes and the globals
        that it names are; what cannot be compared counts as changed.

        Args:
            flow: the dataflow, declared anew under the same name. What it does not declare, as ``workers=``, counts as
                in the run.
            state: see ``apply``.

        Returns:
            The difference, which is false if there is none. ``planned`` is the plan, ``unordered`` that of
            ``order=False`` if the shape changes, and ``refused`` says why this version does not apply it. A notebook
            shows it as ``%fries_diff`` does.

        Raises:
            DataflowError: it is no dataflow, or of another name; or a function of it cannot be pickled; see also
                ``apply`` for ``state``.
            PlanError: see ``apply`` for ``state``.
        """
        found, _ = self._difference(flow)
        found = found.giving(given_states(found.before, found.after, state))
        functions = functools.partial(self._runner.plan, found.functions, "fries", True)
        check = functools.partial(self._check_numbers, found, flow.fixed)
        limits = self._runner.remedies.limits(found.after, flow.lighters())
        return with_plan(found, functions, functools.partial(self._planned_shape, found), check, limits)

    def _difference(self, flow: DataflowBuilder) -> tuple[Difference, dict[str, bytes]]:
        """What tells a dataflow from what runs, and its functions as they would be shipped; raises as ``diff`` does."""
        if not isinstance(flow, DataflowBuilder):
            raise DataflowError(f"expected an fn.Dataflow to compare with; got a {type(flow).__name__}")
        if flow.name != self.graph.name:
            raise DataflowError(
                f"dataflow {flow.name!r} is another one than {self.graph.name!r}, which runs; expected one of that name"
            )
        before = resized(without_shadows(self.graph), self._runner.rescales.sizes)
        after = flow.graph_like(before)
        payloads = pickled_functions(after)
        shipped = {name: pickle.loads(payload) for name, payload in payloads.items() if name in self.graph}
        return Difference.of(before, after, self._runner.functions_now(), shipped), payloads

    def _check_numbers(self, found: Difference, declared: Collection[str]) -> None:
        """Check that the dataflow can have the numbers of workers that are declared; raises as ``rescale`` does."""
        if found.workers:
            asked = {name: found.after.operator(name).workers for name in found.before if name in declared}
            self._runner.rescales.check(asked, found.after if found.has_new_shape else None)

    def _planned_shape(self, found: Difference) -> tuple[ExplainedPlan, ExplainedPlan]:
        """The plans of a change of the shape by which all lost states may be lost; raises as ``apply`` does."""
        self._limit_of_shape("fries", None)
        self._refuse_unsupported(found, found.lost)
        check_runnable(found.after)
        ordered, unordered = (shape_plan(self.graph, found.after, [*found.functions], one) for one in (True, False))
        return self._runner.foretold(ordered, unordered)

    def apply(
        self, flow: DataflowBuilder, scheduler: str = "fries", *, guard: float | Tuples | None = None,
        force: bool = False, drop: Sequence[str] = (), order: bool = True, state: Mapping[str, Any] | None = None,
    ) -> Change | Rescale:  # fmt: skip
        """Make the run what a dataflow declares, in one transaction while it runs; returns at once.

        Functions, operators, edges, sources and sinks may differ. Each source tuple is processed wholly by the earlier
        or wholly by the new dataflow. Operators are matched by name; those of both keep their states, new ones begin
        empty or with the states that they are given, new sources begin when all others have switched, and a removed
        sink keeps what was committed.

        In this version the shape does not change inside of loops, nor with aggregates or sorts; a loop that takes part
        is emptied first, while sources read nothing. In a dataflow with times or loops an added source leads to what is
        added with it; operators that work by time get no rows of others, and one that was removed with something open
        does not come back. The latency constraints that ``flow`` declares hold behind the change, beside those that
        were added by ``constrain`` and whose paths are there. Recent tuples of the operators that are rerouted or
        changed go through the new shape first, down to its sinks and without effects; what fails there, and not so in
        the earlier dataflow, is not applied. A change of functions only is ``reconfigure``. Numbers of workers have no
        effect on results: where declared ones differ, the operators are rescaled, behind the change if there is one
        (``run.rescaling`` is that rescale).

        Args:
            flow: see ``diff``.
            scheduler: see ``reconfigure``; a change of the shape is always scheduled by ``fries``.
            guard: see ``reconfigure``. For a change of the shape a number of seconds: if an operator fails that it has
                added or changed, or one below, the run goes back to its last checkpoint and on with the earlier
                dataflow, in which removed operators have their states. Rows that the new one has committed stay.
            force: see ``reconfigure``.
            drop: the operators that ``flow`` lacks and whose state may be lost, windows that are open among it.
            order: whether rows of a key keep their order where old and new ways meet; without, fewer operators wait.
            state: added operator to the states with which it begins, before its first row: a mapping from keys to
                states, a tuple for a key of several columns; or a table as ``run.state`` gives it, with the columns of
                the key and of the state's parts. States are of the type that ``initial_state()`` makes, a dict without
                it; other keys begin as always. They are part of the decision on disk, of 256 MB at most in sum, and
                gone after a rollback.

        Returns:
            The handle of the change; that of the rescale, if only numbers of workers differ.

        Raises:
            PlanError: there is no difference, or one that this version does not apply; another change is open while the
                shape changes; see also ``reconfigure``. Or a state is given to an operator that runs already, or works
                by time, or it is of a form that cannot be kept.
            DataflowError: see ``diff`` and ``reconfigure``. Or a state is given to an operator that is not there or
                keeps none, to what can be no key of it, cannot be pickled, or is too large.
            SourceError: an added source cannot be read.
            SinkError: an added sink cannot be written.
            RunError: the run has ended.
        """
        (found, payloads), remedies, constrained = self._difference(flow), self._runner.remedies, flow.lighters()
        states = given_states(found.before, found.after, state)
        if not found:
            others = ", but for its latency constraints" if remedies.limits(found.after, constrained) else ""
            meant = "run.constrain(...) for these" if others else "a difference to apply"
            raise PlanError(f"{flow.name!r} declares what runs already{others}; expected {meant}")
        self._check_numbers(found, flow.fixed)
        remedies.expect(found.after, constrained)
        if found.has_new_shape:
            limit = self._limit_of_shape(scheduler, guard)
            change = self._reshape(found, payloads, limit, force, drop, order, states)
        elif found.functions:
            change = self.reconfigure(found.functions, scheduler, guard=guard, force=force)
            remedies.go_on(self.graph)
        else:
            remedies.go_on(self.graph)
            return self._runner.rescales.request(None, workers=found.workers)
        self._runner.rescales.declare(flow.fixed)
        if found.workers:
            self._runner.rescales.behind(change, found.workers)
        return change

    def _reshape(
        self, found: Difference, payloads: Mapping[str, bytes], limit: float | None, force: bool, drop: Sequence[str],
        order: bool, states: Mapping[str, Mapping[Any, Any]],
    ) -> Change:  # fmt: skip
        """Request a change of the shape, with functions beside; see ``apply``."""
        self._refuse_unsupported(found, drop)
        check_runnable(found.after)
        updates = as_updates(found.functions) if found.functions else {}
        after = resized(found.after, self.graph.sizes)  # with the numbers of the beginning, as ``self.graph``
        planned = shape_plan(self.graph, after, list(updates), order)
        return self._runner.reshape(after, payloads, planned.plan, updates, limit, force, states)

    def _refuse_unsupported(self, found: Difference, drop: Sequence[str]) -> None:
        """Refuse what this version does not apply, with regard to earlier changes of the run."""
        gone = [name for name in self._runner.removed if self._runner.queue.has_changed(name)]
        refuse_unsupported(found, drop, gone, self._runner.past)
        removed = self._runner.removed.values()
        refuse_other_targets(found.after, [one for one in removed if one.name not in found.before])

    def _limit_of_shape(self, scheduler: str, guard: float | Tuples | None) -> float | None:
        """The seconds of a guard; raises a PlanError for what a change of the shape does not go with yet."""
        if scheduler not in ("fries", "auto"):
            raise PlanError(f"scheduler={scheduler!r} changes functions only; the shape is changed by 'fries'")
        if shadowed := open_shadow(self.graph):
            words = "expected its promote() or drop() before the shape is changed"
            raise PlanError(f"{shadowed} has a shadow, which the declaration does not have; {words}")
        if isinstance(limit := checked_limit(guard), Tuples):
            raise PlanError(f"guard={limit}: the shape is changed under a guard of some seconds; expected a number")
        return limit

    def shadow(self, change: Mapping[str, Any], *, share: float = 1.0, bytes: int = 1 << 20) -> Shadow:
        """Let a change process all rows beside what runs, for a comparison alone; returns at once.

        Copies of the operators, and of those between them, get the rows that these get, and begin with a copy of their
        states. What they give goes to a comparison alone: no sink, constraint or guard sees it. A row on which a copy
        fails is left out there, and counted. A shadow that is slower than the run is left behind: rows beyond its
        budget are left out, and counted, and so is what a commit would have to wait for longer than a second.

        Args:
            change: operator to its new function, or an ``fn.Update`` without a transformation of its state.
            share: the share of the cohorts of which it gets the rows, above 0 and up to 1.
            bytes: number of bytes of rows that may wait on each channel to it.

        Returns:
            The shadow: ``compare()``, ``promote()``, ``drop()``; its ``change.result()`` waits until it gets rows.

        Raises:
            PlanError: rows carry no identities; a source, a sink or a join, an operator that has a shadow, or one from
                which rows leave on several streams; a dataflow with times, loops, aggregates or sorts; an invalid
                argument; or another change is open.
            DataflowError: no such operator; or a function that cannot run there or cannot be pickled.
            RunError: the run has ended, or its tuples do not flow yet.
        """
        shadow = begin_shadow(self._runner, change, share, bytes)
        self._runner.shadows.append(shadow)
        return shadow

    @property
    def shadows(self) -> Sequence[Shadow]:
        """The shadows that were requested in this process, in order, those that have ended as well."""
        return tuple(self._runner.shadows)

    def set_state(self, operator: str, states: Mapping[Any, Any], *, timeout: float = 30.0) -> Change:
        """Set the states of some keys of an operator, in one transaction between two tuples; returns at once.

        For the key that a defect has spoiled. It is a change like any other: decided on disk, in the audit, and undone
        by ``rollback``, which sets these keys to the states that they had when this was requested.

        Args:
            operator: its name.
            states: key to its new state; a tuple of several columns. Each has a state already.
            timeout: seconds to wait for the states of now.

        Returns:
            The handle of the change.

        Raises:
            DataflowError: no such operator, or one that keeps no state; a state cannot be pickled.
            PlanError: a key has no state, the operator works by time or runs no function of yours, or another change of
                it is under way; nothing is set.
            RunError: the run has ended.
            TimeoutError: a worker has not answered in time.
        """
        self._runner.refuse_if_over("a state is set while the dataflow runs")
        queue = self._runner.queue
        last = queue.last_of(self._runner.operator(operator).name)
        update = self._runner.looks.edited(operator, states, timeout)  # to the function that it runs
        unchanged = ChangeOrigin(check=functools.partial(queue.refuse_if_changed, operator, last))
        return queue.request({operator: update}, rehearse=False, origin=unchanged)

    def rollback(self, change: Change | str | None = None, scheduler: str = "fries") -> Change:
        """Undo a change that is in effect or under way, by a change back; returns at once.

        A change that waits and has not begun is withdrawn: its outcome is ``aborted``. Merged changes are undone
        together. The last change of the shape is undone with its functions: operators that it removed come back in the
        states in which they were removed, and sources read on from there.

        Args:
            change: the change, or its id; ``None`` for the last one. An earlier one can be undone as long as each of
                its operators runs the function that it installed: see ``Change.blocked_by``.
            scheduler: see ``reconfigure``.

        Returns:
            The handle of the change back.

        Raises:
            PlanError: no change is in effect, or not this one, or a later one has changed its operators, or the shape;
                or its guard is rolling it back; its state transformation has no inverse (``Update(..., back=...)``);
                or its operators have finished.
            RunError: the run has ended.
        """
        return self._runner.queue.roll_back(scheduler, "" if change is None else self._id_of(change))

    def set_rate(self, source: str, rate: float | None) -> None:
        """Set the rate of a source, until it is set again.

        Args:
            source: name of the source.
            rate: tuples per second over all of its workers; 0 pauses it. ``None`` takes back what was set: the source
                has the rate with which it was declared, or reads as fast as the dataflow takes its rows if it was
                declared without one.

        Raises:
            DataflowError: no such source.
            PlanError: the rate is not a number of at least 0.
            RunError: the run has ended.
        """
        sources = [name for name, operator in self.graph.by_name.items() if operator.traits.is_source]
        if source not in sources:
            raise DataflowError(unknown("source", source, sources))
        is_number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
        if rate is not None and not (is_number and 0 <= rate <= sys.float_info.max):
            expected = "a number of tuples a second, 0 or more, or None for the source's own"
            raise PlanError(f"a rate is {expected}; got {rate!r}")
        self._runner.refuse_if_over("a rate is set while the dataflow runs")
        self._runner.set_rate(source, None if rate is None else float(rate))

    def rescale(
        self, hosts: int | None = None, at_once: int | None = None, *, workers: Mapping[str, int] | None = None
    ) -> Rescale:
        """Change the number of hosts, or of workers of operators, while the dataflow runs; returns at once.

        Requests are carried out in order. New hosts bring workers of every operator whose number of workers was not
        declared: as many as each host had in the beginning. Rows are dealt to them when all hosts have the new
        channels; until then the loss of a new host has no effect. Then the state of keyed operators moves to them, bin
        by bin (there are 1,024 of each), while rows flow. The last hosts leave first, when their state has moved to the
        others and their workers have processed what was routed to them. Changes and checkpoints wait for the
        milliseconds of each step, and a rescale waits for those under way.

        Sources with ``workers=None`` take part: their splits (16 for each worker of the beginning) are dealt anew, in
        one step of milliseconds, to the workers that there are then, each of which has the share of its splits of the
        source's rate. Other operators with a declared number of workers get none on new hosts; neither do sources of
        dataflows with times, whose open windows, calls and tokens move with the state of their keys.

        ``workers={"FM": 4}`` changes the number of workers of one operator on the hosts of now, in the same steps; each
        new one is made on the host that has the fewest of its operator. Operators on its forward edges get as many. Its
        number counts as declared from then on.

        Args:
            hosts: the number of hosts.
            at_once: maximum number of bins that move in one step: 1 for the least delay of each row (fluid), 1,024 for
                the shortest rescale (all at once). ``None`` adapts it, so that the state of a step is pickled
                and unpickled in about 25 ms.
            workers: operator to its number of workers, in place of a number of hosts.

        Returns:
            The handle of the rescale.

        Raises:
            PlanError: not a number of hosts or of workers; unknown operator; no operator could get another worker; or
                the dataflow cannot be rescaled yet: it has a loop or several regions.
            SessionError: Spark has too few free task slots; includes the numbers.
            RunError: the run has ended.
        """
        return self._runner.rescales.request(hosts, at_once, workers)

    def constrain(
        self, sequence: Sequence[Element], latency_ms: float, window_s: float = WINDOW_S, on_violation: str = "tell",
        lighter: Lighter | None = None,
    ) -> LatencyConstraint:  # fmt: skip
        """Limit the mean latency of a sequence of operators and edges while the dataflow runs.

        If a change by the user has ended the automatism of a constraint, declaring it again begins it anew.

        Args:
            sequence: see ``Dataflow.constrain``.
            latency_ms: the limit in milliseconds.
            window_s: the window over which latencies are averaged, in seconds.
            on_violation: see ``Dataflow.constrain``.
            lighter: see ``Dataflow.constrain``.

        Returns:
            The constraint; ``run.constraints()`` tells whether it is met.

        Raises:
            DataflowError: see ``Dataflow.constrain``.
            RunError: the run has ended.
        """
        constraint = constraint_of(self.graph, sequence, latency_ms, window_s, on_violation)
        self._runner.constrain(constraint, check_lighter(self.graph, constraint, lighter))
        return constraint

    def stop(self, drain: bool = True, timeout: float | None = 60.0) -> None:
        """End the run when all that was read is processed and committed, and wait for that end.

        Its sources, endless ones too, read nothing more; later regions are run as well. Afterwards no host, thread or
        socket of the run is left. Does nothing if the run has ended.

        Args:
            drain: whether to process and commit what was read; without, this is ``cancel``.
            timeout: seconds to wait; ``None`` waits indefinitely.

        Raises:
            TimeoutError: the run has not ended in time; it continues to end, also after an interrupt (Ctrl-C), and
                ``cancel()`` ends it at once.
        """
        self._end(drain, timeout)

    def cancel(self, timeout: float | None = 60.0) -> None:
        """End the run at once, and wait until no host, thread or socket of it is left; nothing if it has ended.

        If tuples are missing from the output, as those read since the last commit are, an ``UncommittedWarning`` gives
        their number; see ``uncommitted``.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Raises:
            TimeoutError: the run has not ended in time; it continues to end, also after an interrupt (Ctrl-C).
        """
        self._end(False, timeout)

    def request_stop(self, drain: bool = True) -> None:
        """Request the end of the run, as ``stop`` does, and return at once; ``wait`` waits for it. Does not warn.

        Args:
            drain: see ``stop``.
        """
        if not self._runner.ended.is_set():
            self._runner.stop(drain)

    def _end(self, drain: bool, timeout: float | None) -> None:
        if self._runner.ended.is_set() and self.state != "failed":
            return
        self.request_stop(drain)
        on = "draining; cancel() ends it at once, without what still waits" if drain else "ending"
        try:
            self._runner.ended.wait(timeout)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"run {self.graph.name!r} goes on {on}") from None
        if not self._runner.ended.is_set():
            what = f"has not ended after {timeout:g} s and goes on {on}"
            raise TimeoutError(f"run {self.graph.name!r} {what}{self._unfinished()}")
        self._runner.join()
        warn_of(self.graph.name, self.error, self.uncommitted, depth=2)

    def suspend(self, timeout: float = 60.0) -> None:
        """Pause the sources, take a checkpoint, and end the run; ``resume`` continues from the checkpoint.

        After ``stop()``, in contrast, nothing is left to resume. Tuples that a source has read after the
        checkpoint's marker are ``uncommitted``; ``resume`` reads them again.

        Args:
            timeout: seconds to wait.

        Raises:
            RunError: the run keeps no checkpoints or has ended, or the checkpoint was aborted; the sources then stay
                paused.
            TimeoutError: the checkpoint, or the end of the run, was not reached in time; the sources stay paused.
        """
        if not self.resumable:
            raise RunError(f"run {self.graph.name!r} keeps no checkpoints; expected stop(), or checkpoint=")
        until_s = time.monotonic() + timeout
        for source in self.graph.sources:
            self.set_rate(source, 0)
        self.checkpoint(timeout)
        self.request_stop(drain=False)
        self.wait(max(0.0, until_s - time.monotonic()))

    def wait_flowing(self, timeout: float | None = None) -> bool:
        """Wait until the run's workers process tuples; a run that has finished has processed them.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Returns:
            Whether they did in time.

        Raises:
            RunError: the run has failed, for the reason that is included, or has been stopped.
        """
        return self._runner.wait_flowing(timeout)

    def wait(self, timeout: float | None = None) -> str:
        """Wait until the run has ended.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Returns:
            Its final state.

        Raises:
            TimeoutError: it has not ended in time.
        """
        try:
            self._runner.ended.wait(timeout)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"run {self.graph.name!r} goes on; stop() ends it") from None
        if not self._runner.ended.is_set():
            raise TimeoutError(f"run {self.graph.name!r} is still {self.state}{self._unfinished()}")
        self._runner.join()
        return self.state

    def output(self, sink: str | None = None) -> Any:
        """The rows committed so far at a sink.

        If nothing was committed, the frame has no rows, and the columns written at the sink so far. For a failed run,
        an ``UncommittedWarning`` gives the number of missing tuples.

        Args:
            sink: name of the sink; ``None`` if there is only one.

        Returns:
            A Spark DataFrame.

        Raises:
            DataflowError: no such sink, several and none named, or your own, which only you can read.
            SinkError: a committed file is missing; or the sink is a Delta table that others have rewritten.
        """
        operators = {**self._runner.removed, **self.graph.by_name}
        sinks = [name for name, operator in operators.items() if operator.traits.is_sink]
        if sink is None and len(sinks) == 1:
            sink = sinks[0]
        if sink is None:
            raise DataflowError(f"this run has the sinks {', '.join(sinks)}; expected the name of one of them")
        if sink not in sinks:
            raise DataflowError(unknown("sink", sink, sinks))
        return self._rows(sink)

    def dead_letters(self, operator: str) -> Any:
        """The tuples on which an operator failed, as far as committed; warns as ``output`` does.

        Args:
            operator: name of the operator, declared with a sink as ``on_error``.

        Returns:
            A Spark DataFrame with the columns ``operator``, ``worker``, ``error``, ``traceback``, ``tuple`` (JSON),
            ``version`` (the change whose function failed; empty for the first one), ``tries`` (how often the operator
            has failed on the row), ``letter`` (an id) and ``requeued`` (the request that has given the row back; null
            for an open letter).

        Raises:
            DataflowError: no such operator, or one without dead letters.
        """
        known = self._runner.removed.get(operator) if isinstance(operator, str) else None
        refuse_without_letters(known or self.graph.operator(operator))
        if self.state == "failed":
            warn_of(self.graph.name, self.error, self.uncommitted, depth=1)
        return self._runner.requeues.letters(operator)

    def requeue(
        self, operator: str, where: Callable[[Mapping[str, Any]], Any] | None = None, limit: int | None = None,
        per_second: float | None = None,
    ) -> Requeue:  # fmt: skip
        """Give the rows of an operator's open dead letters back to it, each exactly once; returns at once.

        They are transactions of their own, processed by the function of now: after a fix, say. What fails again is a
        dead letter again, which counts the tries. Only committed letters are open, and they are chosen now; a letter
        counts as requeued when the next commit includes what has become of its row.

        Args:
            operator: name of the operator, declared with a sink as ``on_error`` that can be read.
            where: a condition on rows, which get ``_error``, ``_version``, ``_tries`` and ``_worker`` beside their own
                columns; ``None`` for all.
            limit: number of rows at most; ``None`` for all.
            per_second: number of rows in a second at most, for a service that should not be overrun.

        Returns:
            The handle: ``.rows``, ``.result()``, ``.cancel()``.

        Raises:
            DataflowError: no such operator, one without dead letters that can be read, or a letter that was damaged.
            PlanError: an invalid argument; ``where`` raises on a row; the dataflow has times or loops.
            RunError: the run has ended.
        """
        return self._runner.requeues.request(operator, where, limit, per_second)

    def _rows(self, of: str) -> Any:
        given = self._runner.removed.get(of) or self.graph.operator(of)
        check_readable(of, given.function if given.traits.is_sink else given.on_error)
        if self.state == "failed":
            warn_of(self.graph.name, self.error, self.uncommitted, depth=2)
        return self._runner.output(of)
