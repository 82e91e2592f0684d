"""Construction of a host's workers: functions are unpickled and opened, and state is restored.

Both shells make workers here, and pass in what differs between them: the clock, and where waiting batches are spilled.

>>> import cloudpickle
>>> from fries_nb.dataflow.graph import Graph, Operator
>>> from fries_nb.topology.topology import Topology
>>> from fries_nb.topology.topology import wirings_of
>>> topology = Topology.dealt(Graph("one", (Operator("A", function=dict),), ()), hosts=1)
>>> assembly = Assembly(Restoration(None), {}, {"A": cloudpickle.dumps(dict)}, letters=(), window=1000, clock=lambda: 0)
>>> [worker] = [assembly.worker(wiring) for wiring in wirings_of(topology, host=0)]
>>> worker.instances[0].worker, worker.instances[0].function
(WorkerId(operator='A', index=0), <class 'dict'>)
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from fries_nb.checkpoints import CommittedChange, Configuration, Restoration, Snapshot
from fries_nb.dataflow.graph import Operator
from fries_nb.errors import OperatorError, exception_text
from fries_nb.messages import WorkerId
from fries_nb.operators.dry_run import open_function
from fries_nb.operators.failures import FAILURES, failure
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import Recipe, gathered
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.topology.progress_locations import Watermarks
from fries_nb.topology.topology import Wiring
from fries_nb.trace import EarlierRecords
from fries_nb.worker.loop_head import HeadWorker
from fries_nb.worker.snapshot import restore, restore_ended
from fries_nb.worker.versions import Spill
from fries_nb.worker.worker import Worker


@dataclass(frozen=True)
class Assembly:
    """Makes the workers of one host in one incarnation.

    Attributes:
        restoration: the state from which the incarnation starts.
        snapshots: operator worker to its snapshot; ``None`` for a worker that had ended.
        payloads: operator to its pickled function, for operators that have one.
        letters: the operators that write dead letters.
        window: maximum number of bytes in transit to a worker on each channel.
        clock: returns nanoseconds since the Unix epoch.
        audit: whether every data operation is recorded.
        spill: moves batches that wait for a tagged change out of memory.
        earlier: worker to the records that the trace holds of earlier workers of its index, if there were any.
        progress: the dataflow as progress sees it; or how watermarks are made, if times travel in-band; ``None`` if
            progress is not tracked.
    """

    restoration: Restoration
    snapshots: Mapping[WorkerId, Snapshot | None]
    payloads: Mapping[str, bytes]
    letters: Collection[str]
    window: int
    clock: Callable[[], int]
    audit: bool = False
    spill: Spill = list
    progress: ProgressGraph | Watermarks | None = None
    earlier: Mapping[WorkerId, EarlierRecords] = field(default_factory=dict)

    def worker(self, wiring: Wiring) -> Worker:
        """Make a worker, restored from its snapshots.

        Raises:
            OperatorError: the user's code failed: a function cannot be unpickled or opened, a state cannot be restored.
        """
        instances = [self._instance(operator, wiring.index) for operator in wiring.chain]
        for instance in instances:
            self._restore(instance)
        return self._connected(wiring, instances, self.snapshots.get(instances[-1].worker), 0)

    def newcomer(
        self,
        wiring: Wiring,
        running: Mapping[str, Configuration],
        decided: Sequence[CommittedChange],
        issued: int,
    ) -> Worker:
        """Make an idle worker that is added to a running dataflow: without state, with the current functions.

        Args:
            wiring: the new worker's wiring.
            running: operator to the configuration of its other workers.
            decided: all changes in effect, in order.
            issued: id of the last marker that was issued.

        Raises:
            OperatorError: see ``worker``.
        """
        instances = [self._instance(operator, wiring.index) for operator in wiring.chain]
        for instance in instances:
            name = instance.worker.operator
            snapshot = Snapshot(name, wiring.index, 0, running[name].applied, version=running[name].version)
            restore(instance, self._continued(instance, snapshot), decided)
            self._agree(instance)
            self._log_switches(instance, running[name].applied, decided)
        return self._connected(wiring, instances, snapshot, issued)

    def _connected(
        self, wiring: Wiring, instances: Sequence[Instance], snapshot: Snapshot | None, issued: int
    ) -> Worker:
        made = HeadWorker if wiring.feedback else Worker
        worker = made(wiring, instances, self.window, self.clock, snapshot, self.spill, issued, self.progress)
        if wiring.id.operator in self.restoration.closed:
            worker.close(self.restoration.closed)
        return worker

    def _instance(self, operator: Operator, index: int) -> Instance:
        instance = Instance(WorkerId(operator.name, index), operator, None, self.audit)
        if (payload := self.payloads.get(operator.name)) is not None:
            try:
                with gathered() as definitions:
                    instance.function = pickle.loads(payload)
                instance.recreate = Recipe(partial(pickle.loads, payload), definitions)
                open_function(instance.function)
            except FAILURES as error:
                told = failure(instance, error)
                message = f"{operator.name} failed in open(): {exception_text(error)}"
                raise OperatorError(message, operator.name, told.details) from error
        instance.has_dead_letters = operator.name in self.letters
        return instance

    def _restore(self, instance: Instance) -> None:
        snapshot, checkpoint = self.snapshots.get(instance.worker), self.restoration.checkpoint
        if snapshot is None and checkpoint is not None:
            restore_ended(instance, checkpoint)
        else:
            deferred = self.restoration.deferred if instance.worker.operator in self.restoration.closed else ()
            restore(instance, self._continued(instance, snapshot), self.restoration.decided, deferred)
            if snapshot is not None and not any(snapshot.traced):  # it has the bins of others, and no records
                self._log_switches(instance, snapshot.applied, self.restoration.decided)
        self._agree(instance)

    def _log_switches(
        self, instance: Instance, applied: Collection[str], decided: Sequence[CommittedChange]
    ) -> None:
        """Log that a worker without records has switched to those of the applied changes that are its operator's."""
        if self.audit:
            instance.log.began_with(_switches(instance.worker.operator, applied, decided))

    def _continued(self, instance: Instance, snapshot: Snapshot | None) -> Snapshot | None:
        """The snapshot, with the record counts at which the instance continues the records of earlier workers."""
        if (earlier := self.earlier.get(instance.worker)) is None:
            return snapshot
        instance.log.known = frozenset(earlier.updated)
        return replace(snapshot or Snapshot(*instance.worker, processed=0), traced=earlier.counts)

    def _agree(self, instance: Instance) -> None:
        if columns := self.restoration.columns.get(instance.worker.operator):
            instance.agree(columns)


def _switches(operator: str, applied: Collection[str], decided: Sequence[CommittedChange]) -> list[str]:
    """Those of the applied changes that have replaced the function of an operator, in order.

    Decisions that no restart needs are forgotten; what a worker has applied of them, it has switched to.
    """
    replaced = {change.change for change in decided if operator in change.targets}
    replaced |= {change.change for change in decided if change.undoes in replaced}
    others = {change.change for change in decided} - replaced
    return [change for change in applied if change not in others]


def configuration_of(worker: Worker) -> dict[str, Configuration]:
    """Operator to its configuration, for all operators of a worker; no change is under way."""
    return {one.worker.operator: Configuration(one.applied, worker.version) for one in worker.instances}
