"""Construction of a host's workers: functions are unpickled and opened, and state is restored.

Both shells make workers here, and pass in what differs between them: the clock, and where waiting batches are spilled.

>>> import cloudpickle
>>> from fries_nb.dataflow.graph import Graph, Operator
>>> from fries_nb.protocol.topology import Topology
>>> from fries_nb.protocol.topology import wirings_of
>>> topology = Topology.dealt(Graph("one", (Operator("A", function=dict),), ()), hosts=1)
>>> assembly = Assembly(Restoration(None), {}, {"A": cloudpickle.dumps(dict)}, letters=(), window=1000, clock=lambda: 0)
>>> [worker] = [assembly.worker(wiring) for wiring in wirings_of(topology, host=0)]
>>> worker.instances[0].worker, worker.instances[0].function
(WorkerId(operator='A', index=0), <class 'dict'>)

Assembly of the workers of one host: wired, with open functions, restored state, open sinks and readers.
"""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from fries_nb.connectors.sink import OpenSinks
from fries_nb.connectors.source import restored_positions
from fries_nb.connectors.worker_reader import WorkerReader, open_reader
from fries_nb.dataflow.graph import LEFT_OUT, Graph, Operator
from fries_nb.errors import CheckpointError, FriesError, OperatorError, exception_text
from fries_nb.host.environment import Environment
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.host.region_spec import RegionSpec
from fries_nb.operators.awaited_calls import CallLoop
from fries_nb.operators.cold_states import StateBudget
from fries_nb.operators.dead_letters import return_rows
from fries_nb.operators.dry_run import open_function
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.pickled_states import Definitions, Recipe, gathered
from fries_nb.progress.progress_graph import ProgressGraph
from fries_nb.protocol.checkpoints import (
    Checkpoint,
    CommittedChange,
    Configuration,
    Restoration,
    Snapshot,
)
from fries_nb.protocol.messages import Failed, WorkerId
from fries_nb.protocol.partitioning import owners_by
from fries_nb.protocol.rollout import Reach
from fries_nb.protocol.topology import Topology, Wiring, wirings_of
from fries_nb.protocol.trace import EarlierRecords
from fries_nb.storage.restored_states import NOTHING_RESTORED, RestoredStates, read_states
from fries_nb.storage.spilled import spilled
from fries_nb.storage.stored_parts import StoredParts
from fries_nb.transport.envelopes import AddWorkers, Begin
from fries_nb.worker.awaiting_worker import AwaitingWorker
from fries_nb.worker.events import Instruction
from fries_nb.worker.loop_head import HeadWorker
from fries_nb.worker.shadow_worker import ShadowWorker
from fries_nb.worker.snapshot import (
    Redistribution,
    check_given,
    given_snapshot,
    given_states,
    restore,
    restore_ended,
)
from fries_nb.worker.versions import Spill
from fries_nb.worker.worker import Worker


def redistribution_of(added: Begin, graph: Graph) -> Redistribution:
    """The assignment of the states with which operators return to the workers of the dataflow that they return to."""
    return Redistribution(Checkpoint("", 0, 0, {}).with_parked(added.parked), graph)


NONE_HELD: Mapping[WorkerId, Snapshot] = MappingProxyType({})


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
        identities: whether rows carry the identities of their source tuples, as they do under an audit.
        hide: the columns whose values are not to be shown.
        spill: moves batches that wait for a tagged change out of memory.
        earlier: worker to the records that the trace holds of earlier workers of its index, if there were any.
        progress: the dataflow as progress sees it; ``None`` if progress is not tracked.
        calls: makes the place where calls of a worker's coroutine function run.
        unread: worker to what reads the parts of each of its bins; see ``storage.restored_states``.
        budget: how much of the states of all workers may be in memory; ``None`` for all of them.
    """

    restoration: Restoration
    snapshots: Mapping[WorkerId, Snapshot | None]
    payloads: Mapping[str, bytes]
    letters: Collection[str]
    window: int
    clock: Callable[[], int]
    audit: bool = False
    identities: bool = False
    hide: frozenset[str] = frozenset()
    spill: Spill = list
    progress: ProgressGraph | None = None
    earlier: Mapping[WorkerId, EarlierRecords] = field(default_factory=dict)
    calls: Callable[[WorkerId], CallLoop] | None = None
    unread: Mapping[WorkerId, Mapping[int, Callable[[], Sequence[bytes]]]] = field(default_factory=dict)
    budget: StateBudget | None = None

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
        parked: Mapping[WorkerId, Snapshot] = NONE_HELD,
    ) -> Worker:
        """Make an idle worker that is added to a running dataflow: without state, with the current functions.

        Args:
            wiring: the new worker's wiring.
            running: operator to the configuration of its other workers.
            decided: all changes in effect, in order.
            issued: id of the last marker that was issued.
            parked: operator's worker to its state, if it returns with one.

        Raises:
            OperatorError: see ``worker``.
        """
        instances = [self._instance(operator, wiring.index) for operator in wiring.chain]
        for instance in instances:
            name = instance.worker.operator
            now = running[name]
            snapshot = parked.get(instance.worker)
            snapshot = snapshot or Snapshot(name, wiring.index, 0, now.applied, rerouted=now.rerouted)
            snapshot = msgspec.structs.replace(snapshot, version=now.version, traced=(0, 0, 0))
            restore(instance, self._continued(instance, snapshot), decided)
            # One that returns comes with the function that it ran; what was withdrawn has installed none.
            others = {*instance.rerouted, *(one.change for one in decided if one.is_withdrawn)}
            functions = [change for change in instance.applied if change not in others]
            if now.function in functions:
                functions = [now.function]
            if functions and not instance.identity and (now.function or instance.worker in parked):
                instance.run_function(instance.function, functions[-1])
            self._agree(instance)
            self._log_switches(instance, snapshot, decided)
        return self._connected(wiring, instances, snapshot, issued)

    def added(self, wiring: Wiring, added: Begin, version: int, parked: Mapping[WorkerId, Snapshot]) -> Worker:
        """Make a worker of operators that a change of the shape adds, with the states with which they return or begin.

        Args:
            wiring: the new worker's wiring.
            added: what it begins with.
            version: number of tagged changes that the workers of other operators have applied.
            parked: operator's worker to its state, if it returns with one.

        Raises:
            OperatorError: see ``worker``.
        """
        running = {operator.name: Configuration(version=version) for operator in wiring.chain}
        states = {name: given_states(name, added.given[name]) for name in running if name in added.given}
        given = {
            worker: given_snapshot(worker, states[operator.name], owners_by(None, operator.workers))
            for worker, operator in zip(wiring.workers, wiring.chain, strict=True)
            if operator.name in states
        }
        worker = replace(self, earlier=added.earlier).newcomer(wiring, running, (), added.issued, {**parked, **given})
        for instance in worker.instances:
            if instance.worker in given:
                check_given(instance, states[instance.worker.operator])
            if instance.holds_time:
                name = instance.worker.operator
                words = "windows, calls or tokens were open when it was removed, whose times have passed below it"
                raise OperatorError(f"{name} cannot return: {words}; expected another name for a new one", name)
            instance.reroute(added.change)
            if instance.worker.operator in added.heirs:
                worker.handover.expect(instance.worker)
        worker.hold_back()
        worker.hold_reading()
        return worker

    def _connected(
        self, wiring: Wiring, instances: Sequence[Instance], snapshot: Snapshot | None, issued: int
    ) -> Worker:
        first = wiring.chain[0]
        made = AwaitingWorker if first.awaiting else ShadowWorker if first.shadow else Worker
        made = HeadWorker if wiring.feedback else made
        worker = made(wiring, instances, self.window, self.clock, snapshot, self.spill, issued, self.progress)
        if wiring.id.operator in self.restoration.closed:
            worker.close(self.restoration.closed)
        return worker

    def _instance(self, operator: Operator, index: int) -> Instance:
        instance = Instance(WorkerId(operator.name, index), operator, None, self.audit and operator.shadow is None)
        instance.hide, instance.identities = self.hide, self.identities or self.audit
        instance.budget = self.budget
        if operator.awaiting is not None and self.calls is not None:
            instance.calls = self.calls(instance.worker)
        if (payload := self.payloads.get(operator.name)) is not None:
            try:
                with gathered() as definitions:
                    instance.function = pickle.loads(payload)
                instance.recreate = Recipe(partial(pickle.loads, payload), definitions)
                open_function(instance.function, instance.calls)
            except FAILURES as error:
                told = failure(instance, error)
                message = f"{operator.name} failed in open(): {exception_text(error)}"
                raise OperatorError(message, operator.name, told.details) from error
        instance.has_dead_letters = operator.name in self.letters or operator.on_error == LEFT_OUT
        return instance

    def _restore(self, instance: Instance) -> None:
        snapshot, checkpoint = self.snapshots.get(instance.worker), self.restoration.checkpoint
        if (given := self.restoration.given_to(instance.worker.operator)) is not None:
            owners = owners_by(self.restoration.tables.get(instance.worker.operator), instance.operator.workers)
            own = given_snapshot(instance.worker, given_states(instance.worker.operator, given), owners)
            if snapshot is not None:  # of an earlier operator of its name, whose records it continues, and no more
                if self.restoration.inherited_from(instance.worker.operator) != instance.worker.operator:
                    own = msgspec.structs.replace(own, bins=snapshot.bins)
                then = {"applied": snapshot.applied, "rerouted": snapshot.rerouted, "traced": snapshot.traced}
                own = msgspec.structs.replace(own, **then)
            snapshot = own
        if snapshot is None and checkpoint is not None:
            restore_ended(instance, checkpoint)
        else:
            deferred = self.restoration.deferred if instance.worker.operator in self.restoration.closed else ()
            reach = Reach() if checkpoint is None else checkpoint.reach
            unread = self.unread.get(instance.worker, {}) if given is None else {}
            restore(instance, self._continued(instance, snapshot), self.restoration.decided, deferred, reach, unread)
            if snapshot is not None and not any(snapshot.traced):  # it has the bins of others, and no records
                self._log_switches(instance, snapshot, self.restoration.decided)
            self._return_rows(instance)
        self._agree(instance)

    def _return_rows(self, instance: Instance) -> None:
        """Give an operator again the rows of dead letters that it got behind the checkpoint."""
        name, known = instance.worker.operator, self.restoration.checkpoint
        since = (one for one in self.restoration.decided if known is None or one.change not in known.decided)
        owners = owners_by(self.restoration.tables.get(name), instance.operator.workers)
        for one in since:
            rows = [row for row in one.requeued_at(name) if owners[row.bin] == instance.worker.index]
            if rows:
                return_rows(instance, one.change, rows)

    def _log_switches(self, instance: Instance, snapshot: Snapshot, decided: Sequence[CommittedChange]) -> None:
        """Log that a worker without records has switched to those of the applied changes that are its operator's."""
        if self.audit:
            switches = _switches(instance.worker.operator, snapshot.applied, decided)
            instance.log.began_with(switches, snapshot.rerouted)

    def _continued(self, instance: Instance, snapshot: Snapshot | None) -> Snapshot | None:
        """The snapshot, with the record counts at which the instance continues the records of earlier workers."""
        if (earlier := self.earlier.get(instance.worker)) is None:
            return snapshot
        instance.log.known = frozenset(earlier.updated)
        return msgspec.structs.replace(snapshot or Snapshot(*instance.worker, processed=0), traced=earlier.counts)

    def _agree(self, instance: Instance) -> None:
        if columns := self.restoration.columns.get(instance.worker.operator):
            instance.agree(columns)


def _switches(operator: str, applied: Collection[str], decided: Sequence[CommittedChange]) -> list[str]:
    """Those of the applied changes that have replaced the function of an operator, or its out-edges, in order.

    Decisions that no restart needs are forgotten; what a worker has applied of them, it has switched to.
    """
    replaced = {change.change for change in decided if operator in change.targets or operator in change.rerouted}
    replaced |= {change.change for change in decided if change.undoes in replaced}
    others = {change.change for change in decided if change.change not in replaced or change.is_withdrawn}
    return [change for change in applied if change not in others]


def configuration_of(worker: Worker) -> dict[str, Configuration]:
    """Operator to its configuration, for all operators of a worker; no change is under way."""
    return {
        one.worker.operator: Configuration(one.applied, worker.version, one.rerouted, one.identity)
        for one in worker.instances
    }


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
        functions: operator to the host's own copy of its function.
        stored: worker to what is stored of it, of those that have begun with states of a checkpoint.
    """

    topology: Topology
    workers: dict[WorkerId, HostedWorker] = field(default_factory=dict)
    failures: list[Failed] = field(default_factory=list)
    definitions: Definitions = field(default_factory=dict)
    stored: Mapping[WorkerId, StoredParts] = field(default_factory=dict)
    functions: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.functions = {name: operator.function for name, operator in self.topology.graph.by_name.items()}


def build_workers(
    region: RegionSpec, host: int, environment: Environment, carry_out: Callable[[Instruction], None]
) -> HostWorkers:
    """Make all workers of a host, without running them.

    Args:
        region: the specification of the region.
        host: index of the host.
        environment: the locks and clocks of the workers.
        carry_out: carries out instructions of workers that concern neither readers nor sinks.
    """
    try:
        graph = region.with_functions(f"host {host} ({socket.gethostname()})")
        definitions = region.definitions()
    except OperatorError as error:
        return HostWorkers(region.topology, failures=[Failed(WorkerId(error.operator, 0), str(error))])
    built = HostWorkers(region.topology.with_graph(graph), definitions=definitions)
    wirings = list(wirings_of(built.topology, host))
    window = _window(region, sum(map(_channels, wirings)))
    try:
        workers = [worker for wiring in wirings for worker in wiring.workers]
        states = read_states(region.snapshots, region.redistribution, workers)
    except CheckpointError as error:
        return HostWorkers(built.topology, failures=[Failed(wirings[0].id, str(error))])
    built.stored = states.stored
    assembly = _assembly(region, environment, window, states)
    hosted_by = partial(HostedWorker, environment=environment, carry_out=carry_out)
    read = partial(_reader, redistribution=region.redistribution)
    _host(built, region, built.topology, wirings, assembly.worker, read, hosted_by)
    return built


def make_added(
    built: HostWorkers,
    host: int,
    topology: Topology,
    functions: Mapping[str, bytes],
    make: Callable[[Topology, Wiring], HostedWorker],
) -> HostWorkers:
    """Make the workers of this host that an epoch adds, without running them.

    Args:
        built: the workers of the host so far; it receives the functions.
        host: index of the host.
        topology: the epoch that adds them.
        functions: added operator to its pickled function.
        make: makes a worker of this topology, with the host's own copies of functions.

    Returns:
        The workers; and the failures of those that could not be made, one for each operator of a chain.
    """
    fresh = {worker for worker in topology.fresh if topology.host_of(worker) == host}
    names = {worker.operator for worker in fresh}
    made = HostWorkers(topology)
    try:
        for name in sorted(names & functions.keys()):
            built.functions[name] = _unpickled(name, functions[name], host)
        topology = topology.with_functions(built.functions)
        for wiring in wirings_of(topology, host, names):
            if wiring.id in fresh:
                hosted = make(topology, wiring)
                made.workers.update({instance.worker: hosted for instance in hosted.worker.instances})
    except FriesError as error:
        details = error.details if isinstance(error, OperatorError) else ""
        made.failures = [Failed(worker, str(error), details) for worker in sorted(fresh - made.workers.keys())]
    return made


def added_maker(
    region: RegionSpec,
    topology: Topology,
    environment: Environment,
    carry_out: Callable[[Instruction], None],
    added: Begin,
    version: int,
) -> Callable[[Topology, Wiring], HostedWorker]:
    """Makes the workers of added operators, with their readers and sinks; see ``make_added``.

    Args:
        region: the specification of the region, with what these operators need.
        topology: the epoch that adds them.
        environment: see ``build_workers``.
        carry_out: see ``build_workers``.
        added: what they begin with.
        version: number of tagged changes that the workers of other operators have applied.
    """
    assembly = _assembly(region, environment, _window(region, topology.channels_at(0)))
    redistribution = redistribution_of(added, topology.graph)

    def make(own: Topology, wiring: Wiring) -> HostedWorker:
        returning = [worker for worker in wiring.workers if not redistribution.is_added(worker.operator)]
        parked = read_states(region.snapshots, redistribution, returning).snapshots
        worker = assembly.added(
            wiring, added, version, {one: found for one, found in parked.items() if found is not None}
        )
        reader = _reader(region, worker, redistribution) if wiring.chain[0].traits.is_source else None
        return HostedWorker(worker, environment, carry_out, _sinks(region, worker, own), reader)

    return make


def idle_maker(
    region: RegionSpec,
    host: int,
    topology: Topology,
    environment: Environment,
    carry_out: Callable[[Instruction], None],
    order: AddWorkers,
) -> Callable[[Topology, Wiring], HostedWorker]:
    """Makes further workers of operators that run already, idle and with what the others run; see ``make_added``.

    Args:
        region: the specification of the region.
        host: index of the host.
        topology: the epoch that adds them.
        environment: see ``build_workers``.
        carry_out: see ``build_workers``.
        order: the configuration of the running dataflow.
    """
    window = _window(region, topology.channels_at(host))
    assembly = replace(_assembly(region, environment, window), earlier=order.earlier)

    def make(own: Topology, wiring: Wiring) -> HostedWorker:
        worker = assembly.newcomer(wiring, order.configurations, order.decided, order.issued)
        worker.hold_back()
        reader = _idle_reader(region, worker) if wiring.chain[0].traits.is_source else None
        return HostedWorker(worker, environment, carry_out, _sinks(region, worker, own), reader)

    return make


def _unpickled(name: str, payload: bytes, host: int) -> Any:
    try:
        return pickle.loads(payload)
    except (Exception, SystemExit) as error:
        words = f"the function of {name} cannot be unpickled on host {host}: {exception_text(error)}"
        raise OperatorError(words, name) from error


def _window(region: RegionSpec, channels: int) -> int:
    """The credit window of a channel: each may buffer so much at both ends, in the receiver's inbox and its outbox."""
    return max(SMALLEST_WINDOW, region.options.budget // max(1, channels))


def _host(
    built: HostWorkers,
    region: RegionSpec,
    topology: Topology,
    wirings: Sequence[Wiring],
    make: Callable[[Wiring], Worker],
    read: Callable[[RegionSpec, Worker], WorkerReader],
    hosted_by: Callable[..., HostedWorker],
) -> None:
    """Make the workers of these wirings, with their readers and sinks."""
    for wiring in wirings:
        try:
            worker = make(wiring)
            reader = read(region, worker) if wiring.chain[0].traits.is_source else None
            hosted = hosted_by(worker, sinks=_sinks(region, worker, topology), reader=reader)
        except FriesError as error:
            operator = error.operator if isinstance(error, OperatorError) else ""
            details = error.details if isinstance(error, OperatorError) else ""
            failed = WorkerId(operator or wiring.id.operator, wiring.index)
            built.failures.append(Failed(failed, str(error), details))
            continue
        built.workers.update({instance.worker: hosted for instance in hosted.worker.instances})


def _channels(wiring: Wiring) -> int:
    """The number of channels into and out of a worker."""
    return len(wiring.incoming) + sum(len(edge.channels) for edge in wiring.edges)


def _assembly(
    region: RegionSpec, environment: Environment, window: int, states: RestoredStates = NOTHING_RESTORED
) -> Assembly:
    return Assembly(
        restoration=region.restoration,
        snapshots=states.snapshots,
        unread=states.unread,
        payloads=region.functions,
        letters=region.sinks.keys() - set(region.graph.sinks),
        window=window,
        clock=time.time_ns,
        audit=region.options.audit,
        identities=region.options.identities,
        hide=region.options.hide,
        spill=spilled,
        progress=region.progress,
        earlier=region.earlier,
        calls=environment.calls,
        budget=None if region.options.state_bytes is None else environment.state_budget(region.options.state_bytes),
    )


def _sinks(region: RegionSpec, worker: Worker, topology: Topology) -> OpenSinks:
    """The open sinks of a worker thread: that of a sink operator, and those of dead letters."""
    sinks = region.sinks
    writing = [instance for instance in worker.instances if instance.worker.operator in sinks]
    epochs = {one.worker: topology.added.get(one.worker, 1) for one in writing}
    for one in writing:
        one.failing.writer = f"{region.incarnation}.{epochs[one.worker]}"
    opened = {at: sinks[at.operator].open(at, region.incarnation, epoch) for at, epoch in epochs.items()}
    return OpenSinks(opened)


def _reader(region: RegionSpec, worker: Worker, redistribution: Redistribution) -> WorkerReader:
    """The reader of a source's worker, at the positions of the checkpoint."""
    [instance] = worker.instances
    id_, workers = instance.worker, instance.operator.workers
    plan, ended = region.sources[id_.operator], redistribution.ended(id_.operator)
    known, then = instance.positions, redistribution.readers_then(id_.operator)
    instance.positions = restored_positions(plan.splits, id_.index, workers, known, ended, then)
    return open_reader(plan, id_, workers, plan.number, region.options.identities, instance.positions, instance.bounds)


def _idle_reader(region: RegionSpec, worker: Worker) -> WorkerReader:
    """The reader of a source's worker that joins a running dataflow, and has no splits yet."""
    id_ = worker.wiring.id
    plan = region.sources[id_.operator]
    return open_reader(plan, id_, 0, plan.number, region.options.identities)
