"""A dataflow that can be run, and what runs: ``Dataflow`` declares, ``Run`` is the handle that a notebook holds."""

from __future__ import annotations

import os
from dataclasses import replace
from os import PathLike
from typing import Any

from fries_nb.dataflow import builder
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.runnable import check_runnable
from fries_nb.errors import CheckpointError
from fries_nb.running.handle import Run
from fries_nb.spark.region_spec import Options
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.seals import secret
from fries_nb.transport.sockets import SILENCE_S

__all__ = ["Dataflow", "Run"]

BUDGET = 64 << 20
"""Bytes that may wait in front of one host's workers, all channels together."""
COMMIT_INTERVAL_S = 5.0


class Dataflow(builder.DataflowBuilder):
    """A dataflow that can be run; see ``fries_nb.dataflow.builder.DataflowBuilder`` for how to declare one."""

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
        checkpoint: str | PathLike[str] = "",
        key: bytes | str | None = None,
    ) -> Run:
        """Run it on Spark, in the background.

        Args:
            spark: a SparkSession; by default the active one, or an embedded one that is started.
            hosts: Spark tasks that share the workers; as many slots and two more must be free.
            workers: parallel instances of each operator that was declared without a number.
            audit: record every data operation, for ``run.audit()``.
            chaining: let operators on forward edges share a thread.
            budget: bytes that may wait on a host, in front of its workers and for credit behind them.
            commit_interval_s: seconds between commits of the sinks; ``None`` commits at the end only.
            port: of the controller; 0 for any free one.
            silence_s: seconds after which a machine that does not answer on the network, or a process that has been
                stopped, counts as lost. Python code that is busy for longer, on a host or in the notebook, is no loss.
            checkpoint: a directory or URI that the driver and all hosts reach. With it every commit is a checkpoint, a
                lost host is recovered from, and ``resume`` goes on after the driver has ended. On a local disk only
                you can read it.
            key: bytes or text that signs the checkpoint, so that ``resume`` with the same key takes no other; keep it
                elsewhere than the checkpoint. Sinks' output is not signed.

        Raises:
            DataflowError: nothing to run, or a function that cannot be pickled.
            SessionError: no Java, or a session that cannot serve.
            SourceError, SinkError: an end of the flow that cannot be read or written.
            CheckpointError: the place holds something already, or cannot be written.
        """
        graph = self.graph(workers)
        check_runnable(graph)
        options = Options(hosts, budget, audit, chaining, commit_interval_s, silence_s, port)
        if key is not None and not checkpoint:
            raise CheckpointError("key= signs a checkpoint; expected its place as well, as in checkpoint='a/path'")
        return Run(graph, spark, options, _place(checkpoint), key=secret(key))

    def resume(
        self,
        path: str | PathLike[str],
        spark: Any = None,
        hosts: int = 2,
        *,
        audit: bool = False,
        chaining: bool = True,
        budget: int = BUDGET,
        commit_interval_s: float | None = COMMIT_INTERVAL_S,
        port: int = 0,
        silence_s: float = SILENCE_S,
        key: bytes | str | None = None,
    ) -> Run:
        """Go on with a run of this dataflow from the last checkpoint that ``run(checkpoint=path)`` has kept.

        Operators have as many workers as then, and the changes that were decided then are in effect; a rollback
        reaches back to those of the new run only. The other arguments are those of ``run``.

        A checkpoint holds pickled state and functions, and loading a pickle runs code: resume only what you, or
        somebody whom you would let run code as you, has written. With ``key`` anything that was not signed with it is
        refused before it is unpickled; it does not tell an older checkpoint of the same run that was put back.

        If the newest checkpoint is damaged, the one before it is taken, with a warning; what the newer one had made
        output is taken out of it again, and computed anew.

        Raises:
            PlaceHeldError: the run goes on in another process of this machine, or is being resumed there; says which.
            CheckpointError: there is none, it is damaged, another dataflow's, or not signed with the key.
            DataflowError, SessionError, SourceError, SinkError: see ``run``.
        """
        place = _place(path)
        signing = secret(key)
        workers = CheckpointStore.load(place, signing)[0].workers
        graph = self.graph()
        graph = Graph(
            graph.name,
            tuple(replace(one, workers=workers.get(one.name, one.workers)) for one in graph.operators),
            graph.edges,
        )
        check_runnable(graph)
        options = Options(hosts, budget, audit, chaining, commit_interval_s, silence_s, port)
        return Run(graph, spark, options, place, resumed=True, key=signing)


def _place(path: object) -> str:
    """A checkpoint's place as text; empty without one."""
    text = os.fspath(path) if isinstance(path, (str, PathLike)) else None
    if not isinstance(text, str):
        raise CheckpointError(f"a checkpoint is kept in a directory; expected its path or URI, got {path!r}")
    return text
