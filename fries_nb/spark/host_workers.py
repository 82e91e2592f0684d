"""Assembly of the workers of one host: wired, with open functions, restored state, open sinks and readers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fries_nb.assembly.workers import Assembly
from fries_nb.checkpoints import Snapshot
from fries_nb.connectors.sink import OpenSinks
from fries_nb.connectors.source import restored_positions
from fries_nb.connectors.worker_reader import WorkerReader, open_reader
from fries_nb.errors import CheckpointError, FriesError, OperatorError
from fries_nb.messages import Failed, WorkerId
from fries_nb.operators.state import Definitions
from fries_nb.spark.hosted_worker import HostedWorker
from fries_nb.spark.region_spec import RegionSpec
from fries_nb.storage.snapshot_files import read_snapshots, spilled
from fries_nb.topology.topology import Topology, Wiring, wirings_of
from fries_nb.transport.envelopes import TakePart
from fries_nb.worker.events import Instruction
from fries_nb.worker.worker import Worker

SMALLEST_WINDOW = 64 * 1024
"""Minimum credit window of a channel in bytes, even if all windows together then exceed the host's budget."""


@dataclass
class HostWorkers:
    """The workers of one host.

    Attributes:
        topology: the topology, with the host's own copies of functions.
        workers: operator's worker to the worker that runs it; those of a chain are one.
        failures: the workers that could not be made, for the controller.
        definitions: see ``RegionSpec.definitions``; found by name as long as this refers to them.
    """

    topology: Topology
    workers: dict[WorkerId, HostedWorker] = field(default_factory=dict)
    failures: list[Failed] = field(default_factory=list)
    definitions: Definitions = field(default_factory=dict)


def build_workers(region: RegionSpec, host: int, carry_out: Callable[[Instruction], None]) -> HostWorkers:
    """Make all workers of a host, without running them.

    Args:
        region: the specification of the region.
        host: index of the host.
        carry_out: carries out instructions of workers that concern neither readers nor sinks.
    """
    try:
        graph = region.with_functions(f"host {host} ({socket.gethostname()})")
        definitions = region.definitions()
    except OperatorError as error:
        return HostWorkers(region.topology, failures=[Failed(WorkerId(error.operator, 0), str(error))])
    built = HostWorkers(region.topology.with_graph(graph), definitions=definitions)
    wirings = list(wirings_of(built.topology, host))
    window = _window(region, wirings)
    try:
        snapshots = _snapshots(region, [worker for wiring in wirings for worker in wiring.workers])
    except CheckpointError as error:
        return HostWorkers(built.topology, failures=[Failed(wirings[0].id, str(error))])
    assembly = _assembly(region, window, snapshots)
    _host(built, region, built.topology, wirings, assembly.worker, _reader, carry_out)
    return built


def add_workers(
    built: HostWorkers,
    region: RegionSpec,
    topology: Topology,
    host: int,
    order: TakePart,
    carry_out: Callable[[Instruction], None],
) -> None:
    """Make the workers of a host that joins a running dataflow, idle, without running them.

    Args:
        built: receives them.
        region: the specification of the region, as it began.
        topology: the topology in which the host takes part, with the host's own copies of functions.
        host: index of the host.
        order: the configuration of the running dataflow.
        carry_out: see ``build_workers``.
    """
    wirings = list(wirings_of(topology, host))
    assembly = replace(_assembly(region, _window(region, wirings), {}), earlier=dict(order.earlier))

    def newcomer(wiring: Wiring) -> Worker:
        return assembly.newcomer(wiring, order.configurations, order.decided, order.issued)

    _host(built, region, topology, wirings, newcomer, _idle_reader, carry_out)


def _window(region: RegionSpec, wirings: Sequence[Wiring]) -> int:
    """The credit window of a channel: each may buffer so much at both ends, in the receiver's inbox and its outbox."""
    windows = max(1, sum(len(wiring.incoming) + _out_channels(wiring) for wiring in wirings))
    return max(SMALLEST_WINDOW, region.options.budget // windows)


def _host(
    built: HostWorkers,
    region: RegionSpec,
    topology: Topology,
    wirings: Sequence[Wiring],
    make: Callable[[Wiring], Worker],
    read: Callable[[RegionSpec, Worker], WorkerReader],
    carry_out: Callable[[Instruction], None],
) -> None:
    """Make the workers of these wirings, with their readers and sinks."""
    for wiring in wirings:
        try:
            worker = make(wiring)
            reader = read(region, worker) if wiring.chain[0].traits.is_source else None
            hosted = HostedWorker(worker, carry_out, _sinks(region, worker, topology), reader)
        except FriesError as error:
            operator = error.operator if isinstance(error, OperatorError) else ""
            details = error.details if isinstance(error, OperatorError) else ""
            failed = WorkerId(operator or wiring.id.operator, wiring.index)
            built.failures.append(Failed(failed, str(error), details))
            continue
        built.workers.update({instance.worker: hosted for instance in hosted.worker.instances})


def _out_channels(wiring: Wiring) -> int:
    return sum(len(edge.channels) for edge in wiring.edges)


def _snapshots(region: RegionSpec, workers: Sequence[WorkerId]) -> dict[WorkerId, Snapshot | None]:
    """Worker to the snapshot from which it is restored; ``None`` without one.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """
    redistribution = region.redistribution
    needed = dict.fromkeys(each for worker in workers for each in redistribution.read_from(worker))
    held = read_snapshots(region.snapshots, region.restoration.checkpoint, needed)
    return {worker: redistribution.snapshot(worker, held) for worker in workers}


def _assembly(region: RegionSpec, window: int, snapshots: Mapping[WorkerId, Snapshot | None]) -> Assembly:
    return Assembly(
        restoration=region.restoration,
        snapshots=snapshots,
        payloads=region.functions,
        letters=region.sinks.keys() - set(region.graph.sinks),
        window=window,
        clock=time.time_ns,
        audit=region.options.audit,
        spill=spilled,
        progress=region.progress,
        earlier=region.earlier,
    )


def _sinks(region: RegionSpec, worker: Worker, topology: Topology) -> OpenSinks:
    """The open sinks of a worker thread: that of a sink operator, and those of dead letters."""
    sinks = region.sinks
    writing = [instance.worker for instance in worker.instances if instance.worker.operator in sinks]
    epochs = {one: topology.added.get(one, 1) for one in writing}
    return OpenSinks({one: sinks[one.operator].open(one, region.incarnation, epochs[one]) for one in writing})


def _reader(region: RegionSpec, worker: Worker) -> WorkerReader:
    """The reader of a source's worker, at the positions of the checkpoint."""
    [instance] = worker.instances
    id_, workers, redistribution = instance.worker, instance.operator.workers, region.redistribution
    plan, ended = region.sources[id_.operator], redistribution.ended(id_.operator)
    known, then = instance.positions, redistribution.readers_then(id_.operator)
    instance.positions = restored_positions(plan.splits, id_.index, workers, known, ended, then)
    number = region.graph.sources.index(id_.operator)
    return open_reader(plan, id_, workers, number, region.options.audit, instance.positions, instance.bounds)


def _idle_reader(region: RegionSpec, worker: Worker) -> WorkerReader:
    """The reader of a source's worker that joins a running dataflow, and has no splits yet."""
    id_ = worker.wiring.id
    number = region.graph.sources.index(id_.operator)
    return open_reader(region.sources[id_.operator], id_, 0, number, region.options.audit)
