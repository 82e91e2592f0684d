"""Assembly of the workers of one host: wired, with open functions, restored state, open sinks and readers."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from fries_nb.checkpoints import Snapshot
from fries_nb.connectors.sink import OpenSinks
from fries_nb.connectors.worker_reader import WorkerReader, open_reader
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import CheckpointError, FriesError, OperatorError
from fries_nb.messages import Failed, WorkerId
from fries_nb.operators.dry_run import open_function
from fries_nb.operators.failures import failure
from fries_nb.operators.instance import Instance
from fries_nb.spark.region_spec import RegionSpec
from fries_nb.spark.threads import WorkerThread
from fries_nb.storage.snapshot_files import part_of, read_snapshots
from fries_nb.storage.spill import spilled
from fries_nb.worker.events import Instruction
from fries_nb.worker.snapshot import restore, restore_ended
from fries_nb.worker.wiring import Wiring, wirings_of_host
from fries_nb.worker.worker import Worker

SMALLEST_WINDOW = 64 * 1024


@dataclass
class Crew:
    """Threads, by each operator's worker that they run, and failures during assembly, for the controller."""

    threads: dict[WorkerId, WorkerThread] = field(default_factory=dict)
    failures: list[Failed] = field(default_factory=list)


def muster(region: RegionSpec, host: int, carry_out: Callable[[Instruction], None]) -> Crew:
    """Make all workers of a host, without starting their threads."""
    crew = Crew()
    try:
        graph = region.with_functions(f"host {host} ({socket.gethostname()})")
    except OperatorError as error:
        return Crew(failures=[Failed(WorkerId(error.operator, 0), str(error))])
    options = region.options
    wirings = list(wirings_of_host(graph, host, options.hosts, options.chaining))
    # A window may wait at each end of a channel: in front of its receiver, and for credit at its sender.
    windows = max(1, sum(len(wiring.incoming) + _out_channels(wiring) for wiring in wirings))
    window = max(SMALLEST_WINDOW, options.budget // windows)
    try:
        indices = {wiring.index for wiring in wirings}
        snapshots = read_snapshots(region.snapshots, region.restoration.checkpoint, indices)
    except CheckpointError as error:
        return Crew(failures=[Failed(wirings[0].id, str(error))])
    yard = _Yard(region, graph, window, snapshots, carry_out)
    for wiring in wirings:
        try:
            thread = yard.thread(wiring)
        except FriesError as error:
            operator = error.operator if isinstance(error, OperatorError) else ""
            details = error.details if isinstance(error, OperatorError) else ""
            worker = WorkerId(operator or wiring.id.operator, wiring.index)
            crew.failures.append(Failed(worker, str(error), details))
            continue
        crew.threads.update({instance.worker: thread for instance in thread.worker.instances})
    return crew


def _out_channels(wiring: Wiring) -> int:
    return sum(len(edge.channels) for edge in wiring.edges)


class _Yard:
    """The values that all workers of a host share."""

    def __init__(
        self,
        region: RegionSpec,
        graph: Graph,
        window: int,
        snapshots: dict[WorkerId, Snapshot],
        carry_out: Callable[[Instruction], None],
    ) -> None:
        self._region = region
        self._graph = graph
        self._window = window
        self._carry_out = carry_out
        self._checkpoint = region.restoration.checkpoint
        self._snapshots = snapshots

    def thread(self, wiring: Wiring) -> WorkerThread:
        instances = [self._instance(WorkerId(operator.name, wiring.index)) for operator in wiring.chain]
        first = wiring.chain[0]
        reader = self._reader(instances[0], first.workers) if first.traits.is_source else None
        snapshot = self._snapshots.get(instances[-1].worker)
        worker = Worker(wiring, instances, self._window, time.time_ns, snapshot, spilled)
        return WorkerThread(worker, self._carry_out, self._sinks(instances), reader)

    def _sinks(self, instances: Iterable[Instance]) -> OpenSinks:
        """The writers of a chain's operators: of a sink, and of dead letters."""
        sinks, incarnation = self._region.sinks, self._region.incarnation
        workers = [instance.worker for instance in instances if instance.worker.operator in sinks]
        return OpenSinks({worker: sinks[worker.operator].open(worker, incarnation) for worker in workers})

    def _reader(self, instance: Instance, workers: int) -> WorkerReader:
        region, worker = self._region, instance.worker
        number = region.graph.sources.index(worker.operator)
        plan = region.sources[worker.operator]
        positions = dict.fromkeys(range(len(plan.splits))) if region.had_ended(worker) else instance.positions
        return open_reader(plan, worker, workers, number, region.options.audit, positions)

    def _instance(self, worker: WorkerId) -> Instance:
        operator = self._graph.operator(worker.operator)
        payload = self._region.functions.get(operator.name)
        instance = Instance(worker, operator, None, self._region.options.audit)
        if payload is not None:
            try:
                instance.recreate = partial(pickle.loads, payload)
                instance.function = instance.recreate()
                open_function(instance.function)
            except (Exception, SystemExit) as error:
                told = failure(instance, error)
                message = f"{operator.name} failed in open(): {type(error).__name__}: {error}"
                raise OperatorError(message, operator.name, told.details) from error
        instance.has_dead_letters = not operator.traits.is_sink and operator.name in self._region.sinks
        self._restore(instance)
        return instance

    def _restore(self, instance: Instance) -> None:
        worker, decided = instance.worker, self._region.restoration.decided
        part = part_of(self._snapshots.get(worker), worker.operator)
        if part is None and self._checkpoint is not None:
            if not self._region.had_ended(worker):
                raise CheckpointError(f"the checkpoint at {self._region.snapshots.place} is damaged: it lacks {worker}")
            restore_ended(instance, self._checkpoint)
        else:
            restore(instance, part, decided)
        if columns := self._region.restoration.columns.get(worker.operator):
            instance.agree(columns)
