"""The hosts of one incarnation in one thread: their workers, the lanes between them, and the possible events.

Workers are made as on Spark: wired, their functions copied by pickling and opened, their state restored. Their
instructions are carried out here; their answers wait on the lane of their host until they are drawn.

They have neither the core of a host nor its router, chains and topology: these have one queue for all events of a
worker, while here each channel is a lane of its own, so that the order of events of two channels is drawn as well; and
single steps of a rescale may add workers to a member, as no run does. ``threaded_hosts`` has all of a host.

What is requested of seeded hosts beside the work of their workers: chains, dry runs and rehearsals, in drawn steps.

The chains that are requested while a seeded run goes on, and their steps, as a host carries them out.

A request is stepped whenever its event is drawn, at whatever has happened by then between the workers: frames, markers
and credit on their lanes, a worker in the middle of a frame. So fuses are given up as well, by the manual clock.

Dry runs and rehearsals of seeded hosts: work that a host does outside its workers' threads, at any later step.

    a worker asks for a dry run         add; its result is an event of the worker, and an answer to the controller
    the controller asks for a rehearsal add; all workers of the host are copied, and the answer says how they did

Which of those that were requested happens next is drawn, as everything else.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from fries_nb.connectors.sink import OpenSinks
from fries_nb.connectors.worker_reader import Positions
from fries_nb.errors import CheckpointError, OperatorError
from fries_nb.host.host_workers import configuration_of
from fries_nb.operators.dry_run import DryRun
from fries_nb.operators.instance import Instance
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.frames import deliveries
from fries_nb.protocol.messages import (
    AdoptTopology,
    Answer,
    Chained,
    ChannelId,
    Commit,
    Control,
    Done,
    End,
    Failed,
    Fcm,
    Rehearse,
    SetChain,
    TopologyAdopted,
    WorkerId,
)  # fmt: skip
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.protocol.topology import Topology, wire, wirings_of
from fries_nb.simulation import network
from fries_nb.simulation.faults import Deployment
from fries_nb.simulation.network import Draws, SeededNetwork
from fries_nb.simulation.readers import Supply, plans_of, positions_of
from fries_nb.simulation.seeded_calls import SeededCalls
from fries_nb.simulation.seeded_progress import SeededProgress
from fries_nb.simulation.store import ListPort
from fries_nb.simulation.virtual_threads import VirtualEnvironment, VirtualThreads
from fries_nb.storage.restored_states import NOTHING_RESTORED, RestoredStates
from fries_nb.storage.saver import SnapshotWriter
from fries_nb.transport.envelopes import (
    AddWorkers,
    Chunk,
    Configured,
    ControllerMessage,
    Extend,
    Go,
    HostMessage,
    HostsLeft,
    Leave,
    PayloadReceiver,
    Shipped,
    TakePart,
    Took,
    ToWorker,
    Welcome,
)
from fries_nb.worker import events
from fries_nb.worker.chaining import ChainRequest, Fused, SplitOff
from fries_nb.worker.events import Stalled
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.rehearsal import Rehearsals
from fries_nb.worker.snapshot import Redistribution
from fries_nb.worker.worker import Worker


class SeededChains:
    """The requests of one incarnation that have not been answered."""

    def __init__(self, hosts: Hosts, clock: Callable[[], int]) -> None:
        self._hosts = hosts  # the hosts of the incarnation
        self._clock = clock  # returns nanoseconds
        self._requests: list[ChainRequest] = []

    def request(self, worker: WorkerId, control: SetChain) -> None:
        """Begin to make a chain, unless its worker has gone."""
        if self._hosts.running(worker) is not None:
            self._requests.append(ChainRequest(worker, control.operators, self._clock()))
            self._hosts.draws.add(("chain", None))

    def step(self) -> None:
        """Take a step of the first request; it is the last one then, unless it is answered."""
        request = self._requests.pop(0)
        if not self._requests:
            self._hosts.draws.discard(("chain", None))
        members = request.members(self._hosts.running)
        if not members:
            return
        made = request.step(members, self._hosts.topology, self._clock())
        if isinstance(made, Chained):
            self._hosts.give(request.worker, Stalled(False))
            self._hosts.answer(request.worker, made)
            return
        self._requests.append(request)
        self._hosts.draws.add(("chain", None))
        if made is None:
            self._hosts.give(request.worker, Stalled(True))
        else:
            self._hosts.replace(made)

    def drop(self) -> None:
        """Drop all requests, since the run is over."""
        self._requests.clear()
        self._hosts.draws.discard(("chain", None))


Trial = DryRun | tuple[WorkerId, Rehearse]
"""A dry run, or a rehearsal on the host of a worker."""


class SeededTrials:
    """The trials of the hosts of one incarnation."""

    def __init__(self, hosts: Hosts, plan: Deployment) -> None:
        self._hosts = hosts  # the hosts, whose draws say when a trial happens
        # ``plan``: the settings of the cluster
        self._random = plan.random
        self._waiting: list[Trial] = []
        self._rehearsals = defaultdict[int, Rehearsals](lambda: Rehearsals(plan.clock))

    def add(self, trial: Trial) -> None:
        """Let a trial happen at some later step."""
        self._waiting.append(trial)
        self._hosts.draws.add(("try", None))

    def happen(self) -> None:
        """Carry out one of the trials; there must be one."""
        hosts, trial = self._hosts, self._waiting.pop(self._random.randrange(len(self._waiting)))
        if not self._waiting:
            hosts.draws.discard(("try", None))
        worker = trial.worker if isinstance(trial, DryRun) else trial[0]
        home = hosts.host_of(worker)
        if isinstance(trial, DryRun):
            hosts.give(worker, result := self._rehearsals[home].prepare(trial))
            hosts.answer(worker, result.answer)
        else:
            there = [worker for id_, worker in hosts.workers.items() if hosts.host_of(id_) == home]
            answer, compare = self._rehearsals[home].rehearse(*trial, there)
            hosts.answer(worker, answer)
            if compare is not None:
                hosts.answer(worker, compare())


Said = tuple[int, Answer | HostMessage]
"""What a host says to the driver: its index, and an answer of a worker, or a message of its own."""


class Hosts:
    """One incarnation of all hosts.

    Attributes:
        workers: all workers, by their first operator.
        ports: the open ports of sinks and of dead letters, by the operator's worker.
        dead, warnings: hosts that were killed; the warnings of workers, in order.
        spent: workers that had ended before the marker of the incarnation's checkpoint.
        trials, chains: the dry runs and rehearsals that were requested; the chains that were, while it runs.
        threads, environment: the threads of all hosts, if they have any; their locks and clocks.
        calls: worker to its calls in flight, if its function is a coroutine.
    """

    started = False
    """Whether the controller has admitted them."""
    _is_welcome = False

    def __init__(self, plan: Deployment, incarnation: int, restoration: Restoration) -> None:
        self.incarnation = incarnation
        self.workers, self.ports = dict[WorkerId, Worker](), dict[WorkerId, ListPort]()
        self.dead, self.warnings = set[int](), list[events.Warned]()
        self.calls = dict[WorkerId, SeededCalls]()
        self._plan, self._random = plan, plan.random
        tables = {name: RoutingTable(packed) for name, packed in restoration.tables.items()}
        self.topology = Topology.dealt(plan.graph, plan.hosts, plan.chaining, tables, plan.begun)
        self._placement = dict(self.topology.placement)  # includes removed workers
        self._redistribution = Redistribution.of(restoration, plan.graph)
        self._before = self.topology
        self._payloads = defaultdict[int, PayloadReceiver](PayloadReceiver)
        self._failures: list[Failed] = []
        self.trials = SeededTrials(self, plan)
        self._saves: list[tuple[int, events.Save | events.Park]] = []
        self._epochs: dict[int, int] = {}  # marker of the last checkpoint to its epoch
        self._of, self._sinks = dict[WorkerId, Worker](), dict[WorkerId, OpenSinks]()
        self._resting: list[Worker] = []
        self.draws = Draws(plan.random, lambda one: plan.fate.slow is not None and self._home(one) == plan.fate.slow)
        self.network = SeededNetwork(self.draws)
        self.threads = VirtualThreads(self.draws, plan.clock)
        self.environment = VirtualEnvironment(self.threads, plan.clock, plan.random)
        self.chains = SeededChains(self, plan.clock)
        self.progress = SeededProgress(plan, self)
        self.spent = {worker for worker in self.topology.workers if self._redistribution.had_ended(worker)}
        states = plan.restored(self.topology.workers, self._redistribution)
        self._writers = {host: self._writer(host, states) for host in range(plan.hosts)}
        assembly = plan.assembly(restoration, states)
        earlier = plan.store.earlier(self.topology.workers)
        self._assembly = replace(assembly, earlier=earlier, calls=self._calls_of)
        for host in range(plan.hosts):
            for wiring in wirings_of(self.topology, host):
                try:
                    self._put(self._assembly.worker(wiring))
                except OperatorError as error:  # the user's code failed on the host, which reports it, as on Spark
                    name = error.operator or wiring.id.operator
                    self._failures.append(Failed(WorkerId(name, wiring.index), str(error), error.details))
        self.supply = self._supply()  # the input that the sources have not read yet
        self._all = list(self.workers.values())

    # ---- construction

    def _writer(self, host: int, states: RestoredStates = NOTHING_RESTORED) -> SnapshotWriter:
        """What writes the snapshots of a host's workers, which begin with these states."""
        stored = {worker: parts for worker, parts in states.stored.items() if self.host_of(worker) == host}
        return SnapshotWriter(self._plan.store, self.incarnation, stored)

    def _supply(self) -> Supply:
        plan = self._plan
        plans = plans_of(plan.graph, plan.inputs, plan.store.cut_by(plan.graph))
        positions: dict[WorkerId, Positions | None] = dict.fromkeys(one for one in self._of if one.operator in plans)
        for one in positions.keys() - self.spent:
            positions[one] = positions_of(self.instance(one), plans[one.operator], self._redistribution)
        return Supply(plan.graph, plan.inputs, plan.random, plan.due_ns, positions, plans, plan.identities)

    def _calls_of(self, worker: WorkerId) -> SeededCalls:
        """Where the calls of a worker's coroutine function run; it works when one has ended."""
        self.calls[worker] = made = self.environment.calls(worker)
        made.wake = partial(self.draws.add, ("work", worker))
        return made

    def _put(self, worker: Worker) -> None:
        self._add(worker, self._opened(worker))

    def _opened(self, worker: Worker) -> OpenSinks:
        writing = [one for one in worker.instances if one.operator.traits.is_sink or one.has_dead_letters]
        for one in writing:
            one.failing.writer = f"{self.incarnation}.{self.topology.added.get(one.worker, 1)}"
        return OpenSinks({one.worker: self._open_port(one.worker) for one in writing})

    def _add(self, worker: Worker, sinks: OpenSinks) -> None:
        self._sinks[worker.wiring.id] = sinks
        self.workers[worker.wiring.id] = worker
        self._of.update((instance.worker, worker) for instance in worker.instances)

    def _open_port(self, worker: WorkerId) -> ListPort:
        self.ports[worker] = self._plan.store.open_port(worker, self.incarnation, self.topology.added.get(worker, 1))
        return self.ports[worker]

    def host_of(self, worker: WorkerId) -> int:
        """The host that runs a worker, or has run it."""
        return self._placement[worker]

    def instance(self, worker: WorkerId) -> Instance:
        """The operator's instance at one worker."""
        return next(instance for instance in self._of[worker].instances if instance.worker == worker)

    def running(self, worker: WorkerId) -> Worker | None:
        """The worker that runs an operator, if it has started and its host is alive."""
        found = self._of.get(worker)
        return None if found is None or found in self._resting or not self._lives(worker) else found

    def replace(self, change: Fused | SplitOff) -> None:
        """Run the workers of a changed chain."""
        worker, id_ = change.worker, change.worker.wiring.id
        if isinstance(change, Fused):
            gone = change.gone.wiring.id
            self._all.remove(self.workers.pop(gone))
            self.draws.discard(("work", gone))
            self._sinks[id_].merge(self._sinks.pop(gone))
            self._of.update((instance.worker, worker) for instance in worker.instances)
        else:
            self._add(change.rest, self._sinks[id_].part(change.rest.wiring.workers))
            self._begin(change.rest)
        self.draws.add(("work", id_))
        self._carry_out(worker)

    def _begin(self, worker: Worker) -> None:
        self._all.append(worker)
        self.draws.add(("work", worker.wiring.id))
        self._carry_out(worker)

    def worker_of(self, worker: WorkerId) -> Worker:
        """The worker that runs an operator."""
        return self._of[worker]

    def extend(self, topology: Topology, issued: int) -> None:
        """Make the added workers, which start with ``settle``; ``issued`` is the id of the last issued marker."""
        self._before, self.topology = self.topology, topology
        self._placement.update(topology.placement)
        self.progress.extend(topology)
        running = dict(pair for at, one in self._of.items() if not at.index for pair in configuration_of(one).items())
        assembly = replace(self._assembly, earlier=self._plan.store.earlier(topology.workers))
        alive = sorted({*topology.placement.values()} - self.dead)
        for wiring in [one for host in alive for one in wirings_of(topology, host) if one.id not in self._of]:
            worker = assembly.newcomer(wiring, running, self._plan.store.kept(), issued)
            self._put(worker)
            self.supply.join(wiring.id)
            self._resting.append(worker)

    def settle(self, topology: Topology) -> None:
        """Start the added workers and drop the removed ones, since all workers have adopted the topology."""
        resting, self._resting = self._resting, []
        begun = [worker for worker in resting if self._lives(worker.wiring.id)]
        for worker in begun:
            self._begin(worker)
        self.progress.settle(topology, [worker.wiring.id for worker in begun])
        self._plan.store.leave(removed := sorted(self._of.keys() - set(topology.workers)))
        for id_ in removed:
            gone = self._of.pop(id_)
            if self.workers.pop(id_, None) is gone and gone in self._all:
                self._all.remove(gone)
                self.draws.discard(("work", id_))

    # ---- steps

    def take(self, host: int, message: ControllerMessage) -> None:
        """A message of the driver is on its way to a host, in the order of all that are."""
        match message:
            case ToWorker():
                self.tell(message.worker, message.control)
            case Welcome() if not self._is_welcome:
                self._is_welcome = True
                self.start()
                self.begin_progress()
            case Leave(leaving=leaving) if leaving:
                self._dismiss(host, message)
            case Extend() | Go() | HostsLeft() if not self._concerns(message):
                pass
            case Extend() | AddWorkers() | TakePart() | Go() | HostsLeft() | Chunk() | Shipped():
                self.network.put((network.LaneKind.CONTROL, host), (host, message))

    def _concerns(self, message: Extend | Go | HostsLeft) -> bool:
        """Whether hosts have anything to do about it: their workers know the topology already."""
        return bool(self.progress.hosts) or (isinstance(message, Extend) and (message.asks or bool(message.lost)))

    def start(self) -> None:
        """Start the workers, since all hosts have joined."""
        self.started = not self._failures
        for failure in self._failures:
            self.network.put((network.LaneKind.ANSWERS, self.host_of(failure.worker)), failure)
        for id_, worker in self.workers.items():
            if self.started and self._lives(id_):
                self.draws.add(("work", id_))
                self._wake_reader(worker)

    def begin_progress(self) -> None:
        """Exchange the first counts, after ``start``."""
        if self.started:
            self.progress.begin(self.workers, self.supply)

    def happen(self) -> Said | None:
        """Carry out one of the possible events (there must be one); returns what a host says to the driver, if any."""
        thing: Any = self.draws.draw()
        kind, place = thing
        if kind == "work":
            self._work(place)
        elif kind == "feed":
            self._feed(place)
        elif kind == "try":
            self.trials.happen()
        elif kind == "save":
            self._save()
        elif kind == "chain":
            self.chains.step()
        elif kind == "call":
            self.calls[place].go_on()
        else:
            return self._arrive(kind, place, self.network.take(thing))
        return None

    def _arrive(self, kind: network.LaneKind, place: Any, what: Any) -> Said | None:
        if kind is network.LaneKind.ANSWERS:
            return place, what
        if isinstance(place, ChannelId) and self.topology.is_former(place):
            return None
        if kind is network.LaneKind.FRAMES:
            self.give(place.receiver, events.Arrived(place, what))
        elif kind is network.LaneKind.GRANTS:
            self.give(place.sender, events.Granted(place, what))
        elif kind is network.LaneKind.STATE:
            self.give(what.to, events.BinsArrived(what))
        elif kind is network.LaneKind.PROGRESS:
            self.progress.receive(place[1], what)
        elif isinstance(what[0], int):
            if place not in self.dead:
                self._hear(*what)
        else:
            self._direct(*what)
        return None

    def _direct(self, worker: WorkerId, control: Control) -> None:
        """A control message has arrived at the host of a worker."""
        if isinstance(control, Rehearse):
            self.trials.add((worker, control))
        elif isinstance(control, SetChain):
            self.chains.request(worker, control)
        elif isinstance(control, AdoptTopology):
            chain = tuple(operator.name for operator in self._of[worker].wiring.chain)
            self.give(worker, events.Rewired(control.epoch, wire(self.topology, chain, worker.index), worker))
        else:
            self.give(worker, events.Directed(worker, control))

    def _hear(self, host: int, order: ControllerMessage) -> None:
        """A message of the driver has arrived at a host."""
        match order:
            case Chunk():
                self._payloads[host].take(order)
                self._say(host, Took())
            case Shipped():
                for worker, control in self._payloads[host].complete(order):
                    self._direct(worker, control)
            case Extend():
                self.progress.hear(host, order)
                self._extended(host, order)
            case AddWorkers() | TakePart():
                if isinstance(order, TakePart):
                    self.progress.hear(host, order)
                for worker in sorted(self.topology.workers_on({host}) & self.topology.fresh):
                    self._say(host, TopologyAdopted(self.topology.epoch, worker))
            case Go() | HostsLeft():
                self.progress.hear(host, order)
            case Leave():
                self.progress.hear(host, order)
                self.kill([host])

    def _extended(self, host: int, order: Extend) -> None:
        """End the channels of lost workers at a host, and say how its workers are configured."""
        for channel in self._before.channels() if order.lost else ():
            if channel.sender in order.lost and self.host_of(channel.receiver) == host:
                self.give(channel.receiver, events.Arrived(channel, End()))
        if order.asks:
            here = [worker for id_, worker in self._of.items() if self.host_of(id_) == host]
            found = {name: one for worker in here for name, one in configuration_of(worker).items()}
            self._say(host, Configured(found))

    def _dismiss(self, host: int, order: Leave) -> None:
        """Let a host leave, at once if it has nothing to say, or dies before it has said it."""
        if self._plan.fate.is_hasty() or not self.progress.takes_part(host):
            self.kill([host])
        else:
            self.network.put((network.LaneKind.CONTROL, host), (host, order))

    def _save(self) -> None:
        host, _ = self._random.choice(self._saves)
        at = next(at for at, (other, _) in enumerate(self._saves) if other == host)  # one thread of a host writes
        _, order = self._saves.pop(at)
        if not self._saves:
            self.draws.discard(("save", None))
        if host in self.dead:
            return
        with self._plan.store.full(self._plan.fate.disk_is_full()):
            answers, is_lost = self._written(host, order)
        for answer in answers:
            self._answer(host, answer)
        for one in order.snapshots if is_lost else ():
            self.give(WorkerId(one.operator, one.index), events.StatesLost(WorkerId(one.operator, one.index)))

    def _written(self, host: int, order: events.Save | events.Park) -> tuple[list[Answer], bool]:
        """Store snapshots; the answers, and whether they are lost."""
        if host not in self._writers:  # it has come since
            self._writers[host] = self._writer(host)
        try:
            return self._writers[host].write(order), False
        except CheckpointError as error:
            first = WorkerId(order.snapshots[0].operator, order.snapshots[0].index)
            return [order.failed(first, str(error))], bool(order.number)

    def _work(self, id_: WorkerId) -> None:
        worker = self.workers[id_]
        busy = worker.run(self._random.randint(1, 4))
        if not busy:
            self.draws.discard(("work", id_))
        if not busy or self._random.random() < 0.5:  # or a deadline has passed, as on a host that does not wait
            worker.outbox.flush()
        self._carry_out(worker)
        self._wake_reader(worker)

    def _feed(self, source: WorkerId) -> None:
        self.draws.discard(("feed", source))
        worker = self._of[source]
        supplied = self.supply.next(source) if worker.wants_input else None
        if isinstance(supplied, events.Supplied):
            self.give(source, supplied)
        elif supplied is not None:
            self._answer(self.host_of(source), supplied)

    def tick(self) -> None:
        """Advance one worker's clock, so that it reports."""
        worker = self._random.choice(self._all)
        if self.started and self._lives(worker.wiring.id):
            worker.handle(events.WorkerTick())
            self._carry_out(worker)

    def give(self, id_: WorkerId, event: events.Event) -> None:
        """Deliver an event to a worker, if it has started and is alive."""
        if not self.started or not self._lives(id_) or id_ not in self._of:
            return
        worker = self._of[id_]
        worker.handle(event)
        if worker in self._resting:
            return
        self.draws.add(("work", worker.wiring.id))
        self._carry_out(worker)
        self._wake_reader(worker)

    def tell(self, worker: WorkerId, control: Control) -> None:
        """Deliver a control message to a worker."""
        if isinstance(control, Fcm) and isinstance(control.marker.action, Commit):
            self._epochs = {control.marker.id: control.marker.action.epoch}  # one commit at a time
        self.network.put((network.LaneKind.CONTROL, self.host_of(worker)), (worker, control))

    def wake(self, source: WorkerId) -> None:
        """Let a source worker continue to read."""
        if (worker := self.running(source)) is not None and self.started:
            self._wake_reader(worker)

    def _wake_reader(self, worker: Worker) -> None:
        if worker.wiring.chain[0].traits.is_source and self.supply.has_more(worker.wiring.id):
            self.draws.add(("feed", worker.wiring.id))

    # ---- instructions of the workers

    def _carry_out(self, worker: Worker) -> None:
        host = self.host_of(worker.wiring.id)
        for instruction in itertools.chain.from_iterable(iter(worker.take, [])):
            if isinstance(instruction, SendFrame):
                self.network.put_all(network.LaneKind.FRAMES, deliveries(instruction.channels, instruction.frame))
            elif isinstance(instruction, events.Ship):
                place = worker.wiring.id, instruction.bins.to
                self.network.put((network.LaneKind.STATE, place), instruction.bins)
            elif isinstance(instruction, events.Grant):
                self.network.put_all(network.LaneKind.GRANTS, instruction.sizes.items())
            elif isinstance(instruction, DryRun):
                self.trials.add(instruction)
            elif isinstance(instruction, events.Write | events.ClosePart):
                self._write(worker, instruction)
            elif isinstance(instruction, events.ToReader):
                self.supply.obey(worker.wiring.id, instruction.control)
            else:
                self._follow(host, instruction)

    def _follow(self, host: int, instruction: events.Instruction) -> None:
        """Carry out what a worker of this host causes outside of it."""
        if isinstance(instruction, events.TellController):
            self._answer(host, instruction.answer)
        elif isinstance(instruction, events.Save | events.Park):
            self._saves.append((host, instruction))
            self.draws.add(("save", None))
        elif isinstance(instruction, events.Traced):
            self._plan.store.trace(instruction.records)
        elif isinstance(instruction, events.Warned):
            self.warnings.append(instruction)
        elif isinstance(instruction, events.Counted):
            self.progress.record(host, instruction.changes)

    def _write(self, worker: Worker, instruction: events.Write | events.ClosePart) -> None:
        for effect in self._sinks[worker.wiring.id].carry_out(instruction):
            if isinstance(effect, events.TellController):
                self._answer(self.host_of(worker.wiring.id), effect.answer)
            else:
                worker.handle(effect)

    def answer(self, worker: WorkerId, answer: Answer) -> None:
        """Send an answer from a worker's host, if it is alive."""
        if self._lives(worker):
            self._answer(self.host_of(worker), answer)

    def _answer(self, host: int, answer: Answer) -> None:
        if isinstance(answer, Done) and not answer.ended and answer.marker in self._epochs:
            self._plan.store.note(self._epochs[answer.marker], [answer.worker])
        self._say(host, answer)

    def _say(self, host: int, answer: Answer | HostMessage) -> None:
        self.network.put((network.LaneKind.ANSWERS, host), answer)

    def trace(self) -> None:
        """Report the trace records that workers have not reported yet."""
        for worker in self.workers.values():
            for instance in worker.instances:
                self._plan.store.trace(instance.records())

    # ---- failures

    def kill(self, hosts: Iterable[int]) -> None:
        """Kill hosts; of their messages in flight a random prefix of each lane still arrives."""
        self.dead.update(hosts)
        for id_ in itertools.filterfalse(self._lives, self.workers):
            self.draws.discard(("work", id_))
            self.draws.discard(("feed", id_))
            if id_ in self.calls:
                self.calls[id_].close()
        for lane, count in list(self.network.waiting()):
            if self._home(lane) in self.dead - self.progress.left:
                self.network.lose(lane, self._plan.fate.prefix(count))

    def unsaid(self) -> Iterator[Answer]:
        """The messages to the controller that have not arrived; they are lost, or arrive late."""
        for lane, count in list(self.network.waiting()):
            if lane[0] is network.LaneKind.ANSWERS:
                taken = [self.network.take(lane) for _ in range(count)]
                yield from (one for one in taken if not isinstance(one, HostMessage))
        for host, order in self._saves:
            yield from self._written(host, order)[0]

    def _lives(self, worker: WorkerId) -> bool:
        return self.host_of(worker) not in self.dead

    def _home(self, thing: Any) -> int | None:
        """The host of an event: its location, or the sender's; for control, the receiver's."""
        kind, place = thing
        if isinstance(place, ChannelId):
            place = place.receiver if kind is network.LaneKind.GRANTS else place.sender
        elif kind in (network.LaneKind.PROGRESS, network.LaneKind.STATE, network.LaneKind.LINK):
            place = place[0]
        if isinstance(place, WorkerId):
            return self.host_of(place)
        return place if isinstance(place, int) else getattr(place, "host", None)
