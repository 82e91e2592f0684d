"""``Dataflow`` declares a dataflow and runs it; ``Run`` is the handle of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from fries_nb.dataflow import builder
from fries_nb.dataflow.endpoints import Sink
from fries_nb.dataflow.graph import Graph, check_runnable
from fries_nb.dataflow.masking import checked_hide
from fries_nb.dataflow.starts import checked_starts
from fries_nb.dataflow.updates import targets_of
from fries_nb.errors import CheckpointError
from fries_nb.host.region_spec import Options
from fries_nb.planning.schedulers import schedule
from fries_nb.running.checkpoint_view import CheckpointView
from fries_nb.running.forks import start_fork, with_sinks
from fries_nb.running.handle import Run
from fries_nb.running.results import DataflowPlan
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.durable import absolute, secret
from fries_nb.storage.flow_shape import check_drop
from fries_nb.storage.stored_checkpoint import ForkOrigin
from fries_nb.transport.sockets import SILENCE_S

__all__ = ["Dataflow", "Run"]

BUFFER_BUDGET_BYTES = 64 << 20
"""Default byte budget of a host, over all of its channels."""
COMMIT_INTERVAL_S = 5.0


class Dataflow(builder.DataflowBuilder):
    """A dataflow that can be run.

    Declare it with ``source`` and with the methods of the streams that this returns.

    Args:
        name: identifies the dataflow in messages, in the notebook and in checkpoints.

    Raises:
        DataflowError: the name is not a non-empty string.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._buffers: dict[str, Any] = {}

    def plan(
        self, change: Mapping[str, Any] | Iterable[str], scheduler: str = "fries", pruning: bool = True
    ) -> DataflowPlan:
        """Plan a change of a run of this dataflow, without running it.

        Args:
            change: operator to new function, as for ``Run.reconfigure``, or only the names of the operators.
            scheduler: see ``Run.reconfigure``.
            pruning: see ``Run.reconfigure``.

        Returns:
            The plan, without a predicted delay. A notebook shows it as ``%fries_plan`` does.

        Raises:
            PlanError: see ``Run.reconfigure``.
            DataflowError: see ``Run.reconfigure``.
        """
        graph = self.graph()
        return DataflowPlan.of(graph, schedule(scheduler, graph, targets_of(graph, change), pruning))

    def run(
        self,
        spark: Any = None,
        hosts: int = 2,
        workers: int = 2,
        *,
        audit: bool = False,
        identities: bool = False,
        chaining: bool = True,
        buffer_budget_bytes: int = BUFFER_BUDGET_BYTES,
        state_bytes: int | None = None,
        commit_interval_s: float | None = COMMIT_INTERVAL_S,
        port: int = 0,
        heartbeat_timeout_s: float = SILENCE_S,
        checkpoint: str | PathLike[str] | None = "",
        signing_key: bytes | str | None = None,
        recover: bool = False,
        on_error: str = "fail",
        start: Mapping[str, Any] | None = None,
        hide: Iterable[str] = (),
    ) -> Run:
        """Run the dataflow on Spark, in the background.

        Args:
            spark: a SparkSession; by default the active one, or else an embedded one that is started.
            hosts: number of Spark tasks that share the workers; ``hosts + 2`` task slots must be free.
            workers: parallel instances of each operator that was declared without a number.
            audit: record every data operation, for ``run.audit()``.
            identities: let every row carry the identity of the source row that it is or derives from, by which
                ``run.rows(source=)`` follows one (8 bytes), and its cohort if a source names a column of cohorts (2
                bytes). ``audit`` implies it.
            chaining: run operators connected by forward edges in one thread.
            buffer_budget_bytes: bytes that a host may buffer, in input queues and output that waits for credit; by
                default 64 MiB.
            state_bytes: bytes of keyed states, pickled, that a host may have in memory, at least 1 MiB; those that have
                not been touched for longest are moved to its own disk, and come back with the next row of their key.
                By default all are in memory.
            commit_interval_s: seconds between commits of the sinks, 5 by default; ``None`` commits once, at the end.
            port: TCP port of the controller; 0 for any free one.
            heartbeat_timeout_s: seconds without a heartbeat on the network after which a machine or process counts as
                lost; 10 by default. Python code that is busy for longer, on a host or in the notebook, does not cause a
                loss.
            checkpoint: directory or URI that the driver and all hosts reach. With it every commit is a checkpoint, the
                run recovers from lost hosts, and ``resume`` continues it after the driver has ended. On a local disk
                only the current user can read it.
            signing_key: bytes or text that signs the checkpoint; ``resume`` with the same key accepts no other
                checkpoint. Keep it elsewhere than the checkpoint. The output of sinks is not signed.
            recover: without ``checkpoint``, make every commit a checkpoint all the same, in the run's scratch
                directory, which is deleted with the run: it recovers from lost hosts, and guards cover what is below a
                change. If one fails, as for a state that cannot be pickled, the run goes on without; the log says so.
            on_error: the policy of operators that were declared without one: ``fail`` or ``pause``.
            start: source to where it begins to read, for those that do not begin at their beginning. A time (a
                ``datetime``, or text as ``"2026-11-01T00:00"``; in UTC if it has no offset, unless the column of times
                has no zone): of a replay, a table or a query with ``time=`` the first row of each split that is not
                earlier, of a directory the files that were not changed before, of a topic the first messages since, of
                your own source what its ``find(time)`` gives. A whole number: such a time, if ``time=`` is a column
                of integers, otherwise the number of a row of a replay, table, query or rate, from 0. Or positions of
                all splits, as ``fn.checkpoint(path).positions()``, ``{split: row}`` or ``{split: fn.Position}``.
            hide: columns whose values are masked in all that is shown: tables, rows in errors and of paused operators,
                reports, saved notebooks. What functions, sinks and the values of ``run.rows`` have is not changed.

        Returns:
            The handle of the run. Hosts may still be starting; ``run.wait_flowing()`` waits for them.

        Raises:
            DataflowError: the dataflow cannot be run, an option is invalid, or a function cannot be pickled.
            SessionError: there is no Java, or the session cannot run barrier tasks or lacks task slots.
            SourceError: a source cannot be read, or not from where ``start`` says.
            SinkError: a sink cannot be written.
            CheckpointError: the checkpoint directory is not empty, or cannot be written.
        """
        graph = self.graph(workers, on_error)
        check_runnable(graph)
        options = Options(
            hosts, buffer_budget_bytes, audit, chaining, commit_interval_s, heartbeat_timeout_s, port,
            self.constraints(), fixed=self.fixed, recover=recover, starts=checked_starts(start, graph.sources),
            hide=checked_hide(hide), identities=identities, state_bytes=state_bytes, **self._buffers,
        )  # fmt: skip
        if signing_key is not None and not checkpoint:
            raise CheckpointError(
                "signing_key= signs a checkpoint; expected its place as well, as in checkpoint='a/path'"
            )
        place = "" if checkpoint is None else _place(checkpoint)
        return Run(graph, spark, options, place, key=secret(signing_key), lighters=self.lighters())

    def resume(
        self,
        path: str | PathLike[str],
        spark: Any = None,
        hosts: int = 2,
        workers: int | None = None,
        *,
        audit: bool = False,
        identities: bool = False,
        chaining: bool = True,
        buffer_budget_bytes: int = BUFFER_BUDGET_BYTES,
        state_bytes: int | None = None,
        commit_interval_s: float | None = COMMIT_INTERVAL_S,
        port: int = 0,
        heartbeat_timeout_s: float = SILENCE_S,
        signing_key: bytes | str | None = None,
        on_error: str = "fail",
        drop: Iterable[str] = (),
        hide: Iterable[str] = (),
    ) -> Run:
        """Resume a run of this dataflow from its last checkpoint.

        All changes that the earlier run decided are in effect; only changes of the new run can be rolled back. The
        numbers of hosts and workers, and the chaining, may differ: state is redistributed by key.

        So may the shape. Operators are matched by name: those that both dataflows have go on with their states,
        whatever the edges between them are, and new ones start empty; a new source begins at its start. A sink that is
        not there any more keeps what was committed. An operator of the same name must be of the same kind, with the
        same key, and a sink the same target. A dataflow with aggregates or sorts goes on in its own shape only.

        A checkpoint holds pickled state and functions, and loading a pickle executes code: resume only checkpoints
        written by you, or by a person you trust to execute code as you. With ``signing_key``, files that were not
        signed with it are refused before they are unpickled; the replay of an older checkpoint of the same run is not
        detected.

        If the newest checkpoint is damaged, the previous one is used, with a warning; output that was committed after
        it is removed and computed again.

        Args:
            path: directory or URI that was ``checkpoint=`` of the earlier run.
            spark: see ``run``.
            hosts: see ``run``.
            workers: parallel instances of each operator that was declared without a number; by default every operator
                has the same number as in the earlier run.
            audit: see ``run``.
            identities: see ``run``.
            chaining: see ``run``.
            buffer_budget_bytes: see ``run``.
            state_bytes: see ``run``.
            commit_interval_s: seconds between checkpoints.
            port: see ``run``.
            heartbeat_timeout_s: see ``run``.
            signing_key: the key of the earlier run, if it had one.
            on_error: see ``run``.
            drop: the operators that this dataflow lacks, and whose state in the checkpoint may be lost: an operator
                with state is not left out without being named here.
            hide: see ``run``; that of the earlier run is not kept.

        Returns:
            The handle of the new run.

        Raises:
            PlaceHeldError: another process of this machine runs or resumes the dataflow; names the process.
            CheckpointError: there is no checkpoint, or it is damaged, of another dataflow, or not signed with the key;
                or this dataflow lacks an operator with state that ``drop`` does not name.
            DataflowError: see ``run``.
            SessionError: see ``run``.
            SourceError: see ``run``.
            SinkError: see ``run``.
        """
        place = _place(path)
        key = secret(signing_key)
        graph = self._graph_as(CheckpointStore.load(place, key)[0].workers, workers, on_error)
        dropped = check_drop(drop, graph)
        options = Options(
            hosts, buffer_budget_bytes, audit, chaining, commit_interval_s, heartbeat_timeout_s, port,
            self.constraints(), fixed=self.fixed, hide=checked_hide(hide), identities=identities,
            state_bytes=state_bytes, **self._buffers,
        )  # fmt: skip
        return Run(graph, spark, options, place, resumed=True, key=key, lighters=self.lighters(), drop=dropped)

    def fork(
        self,
        origin: CheckpointView | str | PathLike[str],
        sinks: Mapping[str, Sink],
        spark: Any = None,
        hosts: int = 2,
        workers: int | None = None,
        *,
        audit: bool = False,
        identities: bool = False,
        chaining: bool = True,
        buffer_budget_bytes: int = BUFFER_BUDGET_BYTES,
        state_bytes: int | None = None,
        commit_interval_s: float | None = COMMIT_INTERVAL_S,
        port: int = 0,
        heartbeat_timeout_s: float = SILENCE_S,
        checkpoint: str | PathLike[str] | None = "",
        signing_key: bytes | str | None = None,
        recover: bool = False,
        on_error: str = "fail",
        drop: Iterable[str] = (),
        hide: Iterable[str] = (),
    ) -> Run:
        """Start a second run of this dataflow from a checkpoint of another run, which keeps its directory and goes on.

        The origin may run, have failed, or be over. In its directory nothing is claimed, written or deleted. The fork
        is a run of its own: it begins with a copy of states and positions, and with the changes that had been decided
        by then, reads the sources on from there, and writes to other sinks, whose commits begin anew.

        The dataflow is declared as for ``resume``, with the sinks of the origin. Numbers of hosts and workers, and the
        shape, may differ as there. A dataflow with aggregates or sorts is not forked in this version. Rows that the
        origin has staged (a DataFrame or a query) are copied with the checkpoint. As for ``resume``, loading a
        checkpoint executes code: fork only from checkpoints written by you, or by a person you trust.

        Args:
            origin: directory or URI that is ``checkpoint=`` of the origin, for its newest checkpoint, or
                ``fn.checkpoint(path)``, for exactly that one.
            sinks: the targets of the fork, one for each sink by name (that of late rows is ``<operator>.late``), and
                for each operator with dead letters: ``{"scored": fn.memory(), "FM": fn.parquet(path)}``.
            spark: see ``run``.
            hosts: see ``run``.
            workers: see ``resume``.
            audit: see ``run``.
            identities: see ``run``.
            chaining: see ``run``.
            buffer_budget_bytes: see ``run``.
            state_bytes: see ``run``.
            commit_interval_s: see ``run``.
            port: see ``run``.
            heartbeat_timeout_s: see ``run``.
            checkpoint: the fork's own checkpoint directory; see ``run``.
            signing_key: the key that signs the fork's checkpoint, and that of the origin if its path is given.
            recover: see ``run``.
            on_error: see ``run``.
            drop: see ``resume``.
            hide: see ``resume``.

        Returns:
            The handle of the fork.

        Raises:
            CheckpointError: there is no such checkpoint, it is damaged, of another dataflow, not signed with the key,
                or was replaced by newer ones before it was copied; or ``checkpoint`` cannot be used.
            DataflowError: ``sinks`` lacks a sink, has an unknown one, or one with a target of the origin; or see
                ``run``.
            SessionError: see ``run``.
            SourceError: see ``run``.
            SinkError: see ``run``.
        """
        key = secret(signing_key)
        source = origin.as_origin if isinstance(origin, CheckpointView) else ForkOrigin(absolute(_place(origin)), key)
        place = "" if checkpoint is None else _place(checkpoint)
        declared = self._graph_as(source.flow().workers, workers, on_error)
        graph, dropped = with_sinks(declared, sinks, source.path), check_drop(drop, declared)
        options = Options(
            hosts, buffer_budget_bytes, audit, chaining, commit_interval_s, heartbeat_timeout_s, port,
            self.constraints(), fixed=self.fixed, recover=recover, hide=checked_hide(hide),
            identities=identities, state_bytes=state_bytes, **self._buffers,
        )  # fmt: skip
        return start_fork(source, declared, graph, spark, options, place, key, self.lighters(), dropped)

    def _graph_as(self, then: Mapping[str, int], workers: int | None, on_error: str) -> Graph:
        """The dataflow that goes on from a checkpoint, with the numbers of workers there if none is given."""
        graph = self.graph(on_error=on_error) if workers is None else self.graph(workers, on_error)
        kept = [
            replace(operator, workers=then.get(operator.name, operator.workers)) if workers is None else operator
            for operator in graph.operators
        ]
        graph = Graph(graph.name, tuple(kept), graph.edges)
        check_runnable(graph)
        return graph


def with_buffers(flow: Dataflow, buffer_bytes: int = 0, adapt: bool = True) -> Dataflow:
    """Set how runs of a dataflow send output, for experiments: they compare with systems made for throughput.

    Args:
        flow: the dataflow.
        buffer_bytes: size of output buffers that are sent only when they are full; 0: when a host would wait.
        adapt: adapt output buffers and chains to keep latency constraints. Otherwise constraints are judged, and
            ``on_violation`` applies after two violated windows, without an attempt of buffers and chains.

    Returns:
        The same dataflow.
    """
    flow._buffers = {"buffer_bytes": buffer_bytes, "adapt": adapt}
    return flow


def _place(path: object) -> str:
    """The path of a checkpoint as text; empty if there is none."""
    text = os.fspath(path) if isinstance(path, (str, PathLike)) else None
    if not isinstance(text, str):
        raise CheckpointError(f"a checkpoint is kept in a directory; expected its path or URI, got {path!r}")
    return text
