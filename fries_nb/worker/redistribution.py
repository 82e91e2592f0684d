"""Redistribution of a checkpoint's snapshots when a run is resumed with another number of workers.

A checkpoint holds a snapshot of every worker of every operator. If an operator's workers and its routing table are
unchanged, each worker is restored from its own snapshot. Otherwise the state is redistributed: a worker takes the bins
that the new routing table assigns to it from the snapshots of all workers of its operator; a source's worker gets the
positions of all splits and uses those of its own splits (see ``connectors.worker_reader``); frames on feedback channels
are divided among the workers of a loop's head, since any of them may take any row. Invariants: every bin of the
checkpoint is restored by exactly one worker, and that worker receives the rows of the bin's keys; so is every logged
frame.

>>> from fries_nb.checkpoints import Checkpoint, Snapshot
>>> from fries_nb.dataflow.graph import Operator
>>> record = Checkpoint("r", 3, 1, {"FM[0]": "a", "FM[1]": "b"}, workers={"FM": 2})
>>> parts = Snapshot("FM", 0, 20, bins={5: b"x"}), Snapshot("FM", 1, 30, bins={900: b"y"})
>>> held = {WorkerId("FM", part.index): part for part in parts}
>>> shrunk = Redistribution(record, Graph("w1", (Operator("FM"),), ()))
>>> [str(worker) for worker in shrunk.read_from(WorkerId("FM", 0))]
['FM[0]', 'FM[1]']
>>> shrunk.snapshot(WorkerId("FM", 0), held).bins
{5: b'x', 900: b'y'}
>>> grown = Redistribution(record, Graph("w1", (Operator("FM", workers=3),), ()))
>>> [list(grown.snapshot(WorkerId("FM", index), held).bins) for index in range(3)]
[[5], [], [900]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from fries_nb.checkpoints import EVERY_BIN, Checkpoint, Snapshot
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import CheckpointError
from fries_nb.messages import WorkerId
from fries_nb.topology.partitioning import Bins, routing_table
from fries_nb.topology.routing_table import RoutingTable

NO_TABLES: Mapping[str, bytes] = {}


class Redistribution:
    """The snapshots of a checkpoint, divided among the workers of the resumed run.

    Args:
        checkpoint: the checkpoint; ``None`` if the run starts from the beginning.
        graph: the dataflow, with the current number of workers of each operator.
        tables: keyed operator to its packed routing table, if its bins are not dealt evenly now.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, graph: Graph, tables: Mapping[str, bytes] = NO_TABLES
    ) -> None:  # fmt: skip
        self._checkpoint = checkpoint
        self._tables = dict(tables)
        self._workers = {operator.name: operator.workers for operator in graph.operators}

    def had_ended(self, worker: WorkerId) -> bool:
        """Whether the checkpoint records this worker as finished (if rescaled: all workers of its operator)."""
        workers = self._workers[worker.operator]
        return self._checkpoint is not None and self._checkpoint.had_ended(worker.operator, worker.index, workers)

    def read_from(self, worker: WorkerId) -> Sequence[WorkerId]:
        """The workers whose snapshots are needed to restore this worker."""
        if self._checkpoint is None or self.had_ended(worker):
            return ()
        known = self._checkpoint.snapshots
        if self._is_unchanged(worker.operator):
            return [worker] if str(worker) in known else []
        return [each for each in self._workers_in_checkpoint(worker.operator) if str(each) in known]

    def snapshot(self, worker: WorkerId, snapshots: Mapping[WorkerId, Snapshot]) -> Snapshot | None:
        """The snapshot that the worker is restored from; ``None`` without a checkpoint, and if it had ended.

        Args:
            worker: a worker of the resumed run.
            snapshots: at least the snapshots of the workers in ``read_from``.

        Raises:
            CheckpointError: the checkpoint lacks a snapshot; or several workers have a state for the same bin, since
                the operator's state is not divided by key.
        """
        if self._checkpoint is None or self.had_ended(worker):
            return None
        sources = self.read_from(worker)
        if not sources or any(each not in snapshots for each in sources):
            raise CheckpointError(f"checkpoint {self._checkpoint.epoch} lacks the snapshot of {worker}")
        if self._is_unchanged(worker.operator):
            return snapshots[worker]
        return self._divided(worker, [snapshots[each] for each in sources])

    def _divided(self, worker: WorkerId, parts: Sequence[Snapshot]) -> Snapshot:
        """The worker's bins of all snapshots, with the counts of the worker's own snapshot if there is one."""
        base = next((part for part in parts if part.index == worker.index), None)
        base = base or replace(parts[0], index=worker.index, processed=0, traced=(0, 0, 0), round_robin_positions={})
        owner = self._owners(worker.operator)
        bins: dict[int, bytes] = {}
        for part in parts:
            for number, state in part.bins.items():
                if owner[number] != worker.index:
                    continue
                if number in bins:
                    raise CheckpointError(
                        f"the state of {worker.operator} is not divided by a key: it can be restored at "
                        f"{len(self._workers_in_checkpoint(worker.operator))} workers only, as then"
                    )
                bins[number] = state
        timed = self._divided_times(worker, parts)
        positions = {split: position for part in parts for split, position in part.positions.items()}
        bounds = {split: bound for part in parts for split, bound in part.bounds.items()}
        logged = [frame for part in parts for frame in part.feedback][worker.index :: self._workers[worker.operator]]
        version, feedback = max(part.version for part in parts), tuple(logged)
        return replace(
            base, bins=bins, version=version, positions=positions, bounds=bounds, feedback=feedback, **timed
        )  # fmt: skip

    def _divided_times(self, worker: WorkerId, parts: Sequence[Snapshot]) -> dict[str, Any]:
        """The agenda and the tokens of the worker's bins."""
        mine = {bin for bin, owner in enumerate(self._owners(worker.operator)) if owner == worker.index}
        before = self._owners_then(worker.operator)
        fired = {part.index: part.fired for part in parts}
        then = {bin: fired.get(int(before[bin]), {}) for bin in mine}
        found = {bin: of.get(bin, of.get(EVERY_BIN, ())) for bin, of in then.items()}
        return {
            "agenda": {bin: held for part in parts for bin, held in part.agenda.items() if bin in mine},
            "tokens": {bin: held for part in parts for bin, held in part.tokens.items() if bin in mine},
            "fired": {bin: of for bin, of in found.items() if of},
            "came": next((part.came for part in parts if part.came), b""),
        }

    def readers_then(self, source: str) -> int:
        """The number of a source's workers to which its splits were dealt in the checkpoint: the first ones."""
        then = self.workers_then(source)
        return then if self._checkpoint is None else self._checkpoint.readers.get(source, then)

    def workers_then(self, operator: str) -> int:
        """The operator's number of workers in the checkpoint; without a checkpoint, its current number."""
        return self._workers[operator] if self._checkpoint is None else self._checkpoint.workers[operator]

    def ended(self, operator: str) -> list[int]:
        """The indices of the operator's workers that the checkpoint records as finished."""
        known = self._checkpoint.ended if self._checkpoint is not None else ()
        return [worker.index for worker in self._workers_in_checkpoint(operator) if str(worker) in known]

    def _is_unchanged(self, operator: str) -> bool:
        if self.workers_then(operator) != self._workers[operator]:
            return False
        if self.readers_then(operator) != self._workers[operator]:
            return False
        then = {} if self._checkpoint is None else self._checkpoint.tables
        unmoved = operator not in then and operator not in self._tables
        return unmoved or bool((self._owners_then(operator) == self._owners(operator)).all())

    def _owners(self, operator: str) -> Bins:
        return _owners(self._tables.get(operator), self._workers[operator])

    def _owners_then(self, operator: str) -> Bins:
        then = {} if self._checkpoint is None else self._checkpoint.tables
        return _owners(then.get(operator), self.workers_then(operator))

    def _workers_in_checkpoint(self, operator: str) -> list[WorkerId]:
        return [WorkerId(operator, index) for index in range(self.workers_then(operator))]


def _owners(packed: bytes | None, workers: int) -> Bins:
    return routing_table(workers) if packed is None else RoutingTable(packed).owners
