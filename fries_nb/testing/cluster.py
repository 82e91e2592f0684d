"""The whole runtime in one thread, every interleaving drawn from a seed.

Workers and controller are the ones that run on Spark. Each step draws one thing that may happen next: a frame, a
grant, a control message or an answer arrives, a reader reads, a worker processes a few tuples, a rehearsal finishes, a
clock ticks. So whatever a real network may do to the order of events happens here too, and a failure is replayed from
its seed.

>>> import fries_nb as fn
>>> flow = fn.Dataflow("double")
>>> numbers = flow.source("numbers", fn.rate(None, count=4))
>>> numbers.map("FD", lambda row: row | {"version": 1}).sink("out", fn.memory())
Stream('out')
>>> cluster = Cluster(flow.graph(workers=2), {"numbers": [{"value": v} for v in range(40)]}, seed=7)
>>> change = cluster.request({"FD": lambda row: row | {"version": 2}}, "fries")
>>> cluster.run()
>>> cluster.outcomes[change].outcome, cluster.state, len(cluster.rows("out"))
('done', 'finished', 40)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cloudpickle
import networkx as nx

from fries_nb.checkpoints import Decided
from fries_nb.controller import events as said
from fries_nb.controller.controller import Controller
from fries_nb.dataflow.graph import Graph, Kind
from fries_nb.dataflow.updates import as_updates
from fries_nb.messages import ChannelId, Data, Drain, End, WorkerId
from fries_nb.planning.expansion import host_of
from fries_nb.scheduling import schedule
from fries_nb.testing import network
from fries_nb.testing.clock import ManualClock
from fries_nb.testing.draws import Draws
from fries_nb.testing.network import Network
from fries_nb.testing.ports import ListPort
from fries_nb.testing.readers import Rows, Supply
from fries_nb.trace import Record
from fries_nb.worker import events as heard
from fries_nb.worker.instance import Instance
from fries_nb.worker.outbox import Send
from fries_nb.worker.reconfiguration import Rehearse, open_function, prepare
from fries_nb.worker.wiring import READER, Wiring, wirings_of_host
from fries_nb.worker.worker import Worker

TICK = 0.02
"""How likely a tick is at a step at which something else may happen as well."""

PAUSES_NS = (1_000, 50_000, 3_000_000)
"""How much time may pass from one step to the next."""


class Cluster:
    """A seeded run of a graph over rows given per source.

    Args:
        graph: what runs; its functions are copied by pickling, as they are on Spark.
        inputs: the rows of each source; a source with several workers deals them in turn.
        hosts: number of hosts that the workers are spread over.
        seed: draws the interleaving.
        window: bytes of credit a channel; small windows make data wait.
        chaining: whether operators are chained where they can be.
        commit_interval_ns: interval of commit markers, ``None`` for a commit at the end only.
        audit: whether a trace is kept.

    Attributes:
        outcomes: change id to outcome, as they come in.
        state: ``running``, then what the run ended as; ``error`` and ``details`` say why it failed.
        epochs: what was committed, an epoch after the other: parts by sink.
        workers: all workers, by their first operator.
        journal: decisions that a real run has on disk.
        random: the source of all chance.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Rows],
        *,
        hosts: int = 1,
        seed: int = 0,
        window: int = 2_000,
        chaining: bool = True,
        commit_interval_ns: int | None = None,
        audit: bool = True,
    ) -> None:
        self.graph = graph
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.outcomes: dict[str, said.Outcome] = {}
        self.state, self.error, self.details = "running", "", ""
        self.epochs: list[dict[str, tuple[str, ...]]] = []
        self.journal: list[Decided] = []
        self.workers: dict[WorkerId, Worker] = {}
        self.ports: dict[WorkerId, ListPort] = {}
        self._draws = Draws(self.random)
        self.network = Network(self._draws)
        self._trace: list[Record] = []
        self._hosts = hosts
        self._requested = 0
        self._pause_ns = commit_interval_ns or 0
        self._rehearsals: list[tuple[Worker, Rehearse]] = []
        self._of: dict[WorkerId, Worker] = {}
        for host in range(hosts):
            for wiring in wirings_of_host(graph, host, hosts, chaining):
                self._start(wiring, window, audit)
        self._all = list(self.workers.values())
        self.supply = Supply(graph, inputs, self.random, self.clock())
        self.controller = Controller(graph, hosts, 1, commit_interval_ns, silence_ns=10**18)
        for host in range(hosts):
            self._tell_controller(said.HostJoined(host, f"host-{host}", 1))

    def _start(self, wiring: Wiring, window: int, audit: bool) -> None:
        instances = []
        for operator in wiring.chain:
            is_end = operator.kind in (Kind.SOURCE, Kind.SINK)
            function = None if is_end else cloudpickle.loads(cloudpickle.dumps(operator.function))
            open_function(function)
            instances.append(Instance(WorkerId(operator.name, wiring.index), operator, function, audit))
        port = ListPort(str(wiring.id)) if wiring.chain[0].kind is Kind.SINK else None
        worker = self.workers[wiring.id] = Worker(wiring, instances, window, self.clock, port)
        if port:
            self.ports[wiring.id] = port
        self._of.update((instance.worker, worker) for instance in instances)

    # ---- what a user does

    def request(
        self, change: Mapping[str, Any], scheduler: str = "fries", *, pruning: bool = True, rehearse: bool = False
    ) -> str:
        """Ask for a change; returns its id, under which the outcome will be found.

        ``rehearse`` tries the new functions of targets below no other target on a recent tuple, as a run on Spark does.
        """
        updates = as_updates(change)
        self._requested += 1
        name = f"u{self._requested}"
        plan = schedule(scheduler, self.graph, frozenset(updates), pruning)
        payloads = {operator: cloudpickle.dumps(update) for operator, update in updates.items()}
        below = {name for target in plan.targets for name in nx.descendants(self.graph.digraph, target)}
        rehearsed = plan.targets - below if rehearse else frozenset[str]()
        self._tell_controller(said.ChangeRequested(name, plan, payloads, rehearsed))
        return name

    def stop(self, drain: bool = False) -> None:
        """End the run now, or after what was read has left."""
        self._tell_controller(said.DrainRequested() if drain else said.StopRequested())

    def hold(self, sources: Iterable[WorkerId]) -> None:
        """These source workers keep their last rows, and do not end, until they are released."""
        self.supply.held.update(sources)

    def release(self) -> None:
        """All source workers may read on to their end."""
        for source in sorted(self.supply.held):
            self.supply.held.discard(source)
            self._wake_reader(self._of[source])

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Committed rows of a sink, hidden columns included, in the order of commits."""
        return [row for epoch in self.epochs for row in self.rows_of(sink, epoch.get(sink, ()))]

    def rows_of(self, sink: str, parts: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of some closed parts of a sink."""
        closed = {name: rows for id_, port in self.ports.items() if id_.operator == sink
                  for name, rows in port.parts.items()}  # fmt: skip
        return [row for part in parts for row in closed[part]]

    def worker(self, operator: str, index: int = 0) -> Worker:
        """The worker that runs this operator at this index."""
        return self._of[WorkerId(operator, index)]

    def instances(self, operator: str) -> list[Instance]:
        """The operator at each of its workers."""
        found = (instance for worker in self.workers.values() for instance in worker.instances)
        return [instance for instance in found if instance.worker.operator == operator]

    # ---- what may happen

    def run(self, steps: int = 10**6) -> None:
        """Take steps until the run has ended.

        Raises:
            AssertionError: nothing can happen any more although the run has not ended, or it takes too long.
        """
        self.until(lambda: self.state != "running", steps)

    def until(self, reached: Callable[[], bool], steps: int = 10**6) -> None:
        """Take steps until something is so, or the run has ended; raises as ``run`` does."""
        for _ in range(steps):
            if reached() or self.state != "running":
                return
            if not self.step():
                raise AssertionError(f"the run stands still: {self.describe()}")
        raise AssertionError(f"it has not come to it after {steps} steps: {self.describe()}")

    def steps(self, count: int) -> None:
        """Take at most so many steps."""
        for _ in range(count):
            if self.state != "running" or not self.step():
                return

    def settle(self) -> None:
        """After the end: let everything arrive that is still under way."""
        while len(self._draws):
            self._happen()

    def step(self) -> bool:
        """One event, drawn among those possible. Returns whether any was."""
        self.clock.advance(PAUSES_NS[int(self.random.random() * len(PAUSES_NS))])
        if not len(self._draws):
            self.clock.advance(self._pause_ns)
            self._tell_controller(said.Tick())
            return bool(len(self._draws)) or self.state != "running"
        if self.random.random() < TICK:
            self.tick()
        else:
            self._happen()
        return True

    def _happen(self) -> None:
        thing: Any = self._draws.draw()
        kind, place = thing
        if kind == "work":
            self._work(place)
        elif kind == "feed":
            self._feed(place)
        elif kind == "rehearse":
            self._rehearse()
        else:
            self._arrive(kind, place, self.network.take(thing))

    def _arrive(self, kind: network.Kind, place: Any, what: Any) -> None:
        if kind is network.Kind.FRAMES:
            self._give(self._of[place.receiver], heard.Arrived(place, what))
        elif kind is network.Kind.GRANTS:
            self._give(self._of[place.sender], heard.Granted(place, what))
        elif kind is network.Kind.CONTROL:
            worker, control = what
            self._give(self._of[worker], heard.Directed(worker, control))
        else:
            self._tell_controller(said.Answered(what))

    def _rehearse(self) -> None:
        worker, order = self._rehearsals.pop(self.random.randrange(len(self._rehearsals)))
        if not self._rehearsals:
            self._draws.discard(("rehearse", None))
        self._give(worker, prepare(order))

    def _work(self, id_: WorkerId) -> None:
        worker = self.workers[id_]
        if not worker.run(self.random.randint(1, 4)):
            self._draws.discard(("work", id_))
        self._carry_out(worker)
        self._wake_reader(worker)

    def _feed(self, source: WorkerId) -> None:
        self._draws.discard(("feed", source))
        if self._of[source].hungry and (batch := self.supply.next(source)) is not None:
            frame = End() if batch is self.supply.END else Data(batch)
            self._give(self._of[source], heard.Arrived(ChannelId(WorkerId(READER, source.index), source), frame))

    def tick(self) -> None:
        """The controller's clock ticks, and one worker's does, which reports."""
        self._tell_controller(said.Tick())
        worker = self.random.choice(self._all)
        worker.handle(heard.Tick())
        self._carry_out(worker)

    def _give(self, worker: Worker, event: heard.Event) -> None:
        worker.handle(event)
        self._draws.add(("work", worker.wiring.id))
        self._carry_out(worker)
        self._wake_reader(worker)

    def _wake_reader(self, worker: Worker) -> None:
        if worker.wiring.chain[0].kind is Kind.SOURCE and self.supply.has_more(worker.wiring.id):
            self._draws.add(("feed", worker.wiring.id))

    # ---- carrying out

    def _carry_out(self, worker: Worker) -> None:
        for instruction in worker.take():
            if isinstance(instruction, Send):
                for channel in instruction.channels:
                    self.network.put((network.Kind.FRAMES, channel), instruction.frame)
            elif isinstance(instruction, heard.Grant):
                self.network.put((network.Kind.GRANTS, instruction.channel), instruction.size)
            elif isinstance(instruction, heard.Tell):
                host = host_of(worker.wiring.id, self._hosts)
                self.network.put((network.Kind.ANSWERS, host), instruction.answer)
            elif isinstance(instruction, Rehearse):
                self._rehearsals.append((worker, instruction))
                self._draws.add(("rehearse", None))
            elif isinstance(instruction, heard.Traced):
                self._trace.extend(instruction.records)
            elif isinstance(instruction, heard.ToReader) and isinstance(instruction.control, Drain):
                self.supply.drain(worker.wiring.id)

    def _tell_controller(self, event: said.Event) -> None:
        for instruction in self.controller.handle(event, self.clock()):
            self._obey(instruction)

    def _obey(self, instruction: said.Instruction) -> None:
        if isinstance(instruction, said.Tell):
            host = host_of(instruction.worker, self._hosts)
            self.network.put((network.Kind.CONTROL, host), (instruction.worker, instruction.control))
        elif isinstance(instruction, said.Admit):
            for id_, worker in self.workers.items():
                self._draws.add(("work", id_))
                self._wake_reader(worker)
        elif isinstance(instruction, said.Resolved):
            if instruction.outcome.change in self.outcomes:
                raise AssertionError(f"change {instruction.outcome.change} was resolved twice")
            self.outcomes[instruction.outcome.change] = instruction.outcome
        elif isinstance(instruction, said.CommitFiles):
            self.epochs.append(instruction.files)
        elif isinstance(instruction, said.Journal):
            self.journal.append(instruction.decided)
            self._tell_controller(said.Journaled())
        elif isinstance(instruction, said.RunEnded):
            self.state, self.error, self.details = instruction.state, instruction.error, instruction.details

    def records(self) -> list[Record]:
        """The trace so far, with what workers have not handed out yet; each worker's records in its order."""
        for worker in self.workers.values():
            for instance in worker.instances:
                self._trace.extend(instance.records())
        return self._trace

    def describe(self) -> str:
        """What is where, for the message of a failed run."""
        waiting = ", ".join(f"{kind.value} {place}: {count}" for (kind, place), count in self.network.waiting())
        going = ", ".join(str(id_) for id_, worker in self.workers.items() if not worker.ended)
        return f"{self.state}; not ended: {going or 'none'}; under way: {waiting or 'nothing'}; {list(self.outcomes)}"
