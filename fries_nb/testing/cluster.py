"""The whole runtime in one thread, every interleaving drawn from a seed.

Workers and controller are the ones that run on Spark; the network is a set of FIFOs, one a channel, one a host's
control lane and one a host's answers. Each step draws one thing that may happen next: a frame, a grant, a control
message or an answer arrives, a reader reads, a worker processes a few tuples, a rehearsal finishes, a clock ticks. So
whatever a real network may do to the order of events happens here too, and a failure is replayed from its seed.

>>> import fries_nb as fn
>>> flow = fn.Dataflow("double")
>>> numbers = flow.source("numbers", fn.rate(None, count=4))
>>> numbers.map("FD", lambda row: row | {"version": 1}).sink("out", fn.memory())
>>> cluster = Cluster(flow.graph(workers=2), {"numbers": [{"value": v} for v in range(40)]}, seed=7)
>>> change = cluster.request({"FD": lambda row: row | {"version": 2}}, "fries")
>>> cluster.run()
>>> cluster.outcomes[change].outcome, cluster.state, len(cluster.rows("out"))
('done', 'finished', 40)
>>> from fries_nb.audit import judge
>>> judge(cluster.records()).serializable
True
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cloudpickle
import pyarrow as pa

from fries_nb.controller import events as said
from fries_nb.controller.controller import Controller
from fries_nb.dataflow.graph import Graph, Kind
from fries_nb.dataflow.updates import as_updates
from fries_nb.messages import DUE, TRANSACTION, Answer, ChannelId, Control, Data, Drain, End, Frame, Report, WorkerId
from fries_nb.planning.expansion import host_of
from fries_nb.scheduling import schedule
from fries_nb.testing.clock import ManualClock
from fries_nb.trace import Record
from fries_nb.worker import events as heard
from fries_nb.worker.instance import Instance
from fries_nb.worker.outbox import Send
from fries_nb.worker.reconfiguration import Rehearse, open_function, prepare
from fries_nb.worker.wiring import READER, wirings_of_host
from fries_nb.worker.worker import Worker

Rows = Sequence[Mapping[str, Any]]


class ListPort:
    """A sink's port that keeps rows; a closed part is named, and its rows count once the part is committed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: dict[str, list[dict[str, Any]]] = {}
        self._open: list[dict[str, Any]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep the rows, hidden columns included."""
        self._open.extend(batch.to_pylist())

    def close_part(self) -> tuple[str, ...]:
        """Close what was written since the last call."""
        if not self._open:
            return ()
        part = f"{self.name}-{len(self.parts)}"
        self.parts[part], self._open = self._open, []
        return (part,)


class Cluster:
    """A seeded run of a graph over rows given per source.

    Args:
        graph: what runs; its functions are copied by pickling, as they are on Spark.
        inputs: the rows of each source; a source with several workers deals them in turn.
        hosts: number of hosts that the workers are spread over.
        seed: draws the interleaving.
        window: bytes of credit a channel; small windows make data wait.
        commit_interval_ns: interval of commit markers, ``None`` for a commit at the end only.

    Attributes:
        outcomes: change id to outcome, as they come in.
        state: ``running``, then what the run ended as; ``error`` says why it failed.
        committed: the parts that were committed, by sink, in order.
        trace: all records so far, each worker's in its order.
        journal: decisions that a real run has on disk.
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
        self.state = "running"
        self.error = ""
        self.details = ""
        self.committed: dict[str, list[str]] = {}
        self.trace: list[Record] = []
        self.journal: list[dict[str, Any]] = []
        self._audit = audit
        self._hosts = hosts
        self._admitted = False
        self._requested = 0
        self._frames: dict[ChannelId, deque[Frame]] = {}
        self._grants: dict[ChannelId, deque[int]] = {}
        self._control: dict[int, deque[tuple[WorkerId, Control]]] = {host: deque() for host in range(hosts)}
        self._answers: dict[int, deque[Answer]] = {host: deque() for host in range(hosts)}
        self._rehearsals: list[tuple[Worker, Rehearse]] = []
        self._ports: dict[WorkerId, ListPort] = {}
        self._readers: dict[WorkerId, deque[pa.RecordBatch] | None] = {}
        self._workers: dict[WorkerId, Worker] = {}
        self._of: dict[WorkerId, Worker] = {}
        for host in range(hosts):
            for wiring in wirings_of_host(graph, host, hosts, chaining):
                self._start(wiring, window, audit)
        self._read(inputs)
        self.controller = Controller(graph, hosts, 1, commit_interval_ns, silence_ns=10**18)
        for host in range(hosts):
            self._obey(self.controller.handle(said.HostJoined(host, f"host-{host}", 1), self.clock()))

    def _start(self, wiring: Any, window: int, audit: bool) -> None:
        instances = []
        for operator in wiring.chain:
            endpoint = operator.kind in (Kind.SOURCE, Kind.SINK)
            function = None if endpoint else pickle.loads(cloudpickle.dumps(operator.function))
            open_function(function)
            instances.append(Instance(WorkerId(operator.name, wiring.index), operator, function, audit))
        port = ListPort(str(wiring.id)) if wiring.chain[0].kind is Kind.SINK else None
        worker = Worker(wiring, instances, window, self.clock, port)
        self._workers[wiring.id] = worker
        if port:
            self._ports[wiring.id] = port
        for instance in instances:
            self._of[instance.worker] = worker

    def _read(self, inputs: Mapping[str, Rows]) -> None:
        """Cut the inputs into small batches, with a due time and an identity for every row."""
        for number, name in enumerate(self.graph.sources):
            rows, workers = list(inputs[name]), self.graph.operator(name).workers
            for index in range(workers):
                mine = rows[index::workers]
                batches: deque[pa.RecordBatch] = deque()
                while mine:
                    size = self.random.randint(1, 5)
                    taken, mine = mine[:size], mine[size:]
                    start = sum(batch.num_rows for batch in batches)
                    hidden = {DUE: self.clock()}
                    first = ((number * 64 + index) << 48) + start
                    batches.append(
                        pa.RecordBatch.from_pylist(
                            [{**row, **hidden, TRANSACTION: first + i} for i, row in enumerate(taken)]
                        )
                    )
                self._readers[WorkerId(name, index)] = batches

    # ---- what a user does

    def request(self, change: Mapping[str, Any], scheduler: str = "fries", **options: Any) -> str:
        """Ask for a change; returns its id, under which the outcome will be found."""
        updates = as_updates(change)
        self._requested += 1
        name = f"u{self._requested}"
        plan = schedule(scheduler, self.graph, frozenset(updates), **options)
        payloads = {operator: cloudpickle.dumps(update) for operator, update in updates.items()}
        event = said.ChangeRequested(name, plan, payloads, frozenset())
        self._obey(self.controller.handle(event, self.clock()))
        return name

    def stop(self, drain: bool = False) -> None:
        """End the run now, or after what was read has left."""
        event = said.DrainRequested() if drain else said.StopRequested()
        self._obey(self.controller.handle(event, self.clock()))

    def rows(self, sink: str) -> list[dict[str, Any]]:
        """Committed rows of a sink, hidden columns included."""
        parts = {name: rows for port in self._ports.values() for name, rows in port.parts.items()}
        return [row for part in self.committed.get(sink, []) for row in parts[part]]

    def worker(self, operator: str, index: int = 0) -> Worker:
        """The worker that runs this operator at this index."""
        return self._of[WorkerId(operator, index)]

    # ---- what may happen

    def run(self, steps: int = 10**6) -> None:
        """Take steps until the run has ended.

        Raises:
            AssertionError: nothing can happen any more although the run has not ended, or it takes too long.
        """
        for _ in range(steps):
            if self.state != "running":
                return
            if not self.step():
                raise AssertionError(f"the run stands still: {self.describe()}")
        raise AssertionError(f"the run has not ended after {steps} steps: {self.describe()}")

    def steps(self, count: int) -> None:
        """Take at most so many steps."""
        for _ in range(count):
            if self.state != "running" or not self.step():
                return

    def step(self) -> bool:
        """One event, drawn among those possible. Returns whether anything happened or may still happen."""
        self.clock.advance(self.random.choice((1_000, 50_000, 3_000_000)))
        choices = self._choices()
        self.random.shuffle(choices)
        for happen in choices:
            if happen():
                return True
        return self._tick()

    def _choices(self) -> list[Callable[[], bool]]:
        choices: list[Callable[[], bool]] = []
        choices += [lambda c=channel: self._frame(c) for channel, queue in self._frames.items() if queue]
        choices += [lambda c=channel: self._grant(c) for channel, queue in self._grants.items() if queue]
        choices += [lambda h=host: self._hear(h) for host, queue in self._control.items() if queue]
        choices += [lambda h=host: self._say(h) for host, queue in self._answers.items() if queue]
        choices += [lambda: self._rehearse()] if self._rehearsals else []
        if self._admitted:
            choices += [lambda w=worker: self._work(w) for worker in self._workers.values()]
            choices += [lambda i=source: self._feed(i) for source in self._readers]
        if self.random.random() < 0.02:
            choices.append(self._tick)
        return choices

    def _frame(self, channel: ChannelId) -> bool:
        return self._give(self._of[channel.receiver], heard.Arrived(channel, self._frames[channel].popleft()))

    def _grant(self, channel: ChannelId) -> bool:
        return self._give(self._of[channel.sender], heard.Granted(channel, self._grants[channel].popleft()))

    def _hear(self, host: int) -> bool:
        worker, control = self._control[host].popleft()
        return self._give(self._of[worker], heard.Directed(worker, control))

    def _say(self, host: int) -> bool:
        self._obey(self.controller.handle(said.Answered(self._answers[host].popleft()), self.clock()))
        return True

    def _rehearse(self) -> bool:
        worker, order = self._rehearsals.pop(self.random.randrange(len(self._rehearsals)))
        return self._give(worker, prepare(order))

    def _work(self, worker: Worker) -> bool:
        done = worker.run(self.random.randint(1, 4))
        before = len(self._rehearsals)
        return self._carry_out(worker) or done or len(self._rehearsals) != before

    def _feed(self, source: WorkerId) -> bool:
        batches, worker = self._readers[source], self._of[source]
        if batches is None or not worker.hungry:
            return False
        channel = ChannelId(WorkerId(READER, source.index), source)
        if batches:
            return self._give(worker, heard.Arrived(channel, Data(batches.popleft())))
        self._readers[source] = None
        return self._give(worker, heard.Arrived(channel, End()))

    def _tick(self) -> bool:
        """Reports and intervals; says that nothing may happen any more when they lead to nothing."""
        self._obey(self.controller.handle(said.Tick(), self.clock()))
        for worker in self._workers.values():
            worker.handle(heard.Tick())
            self._carry_out(worker)
        return any(self._answers.values()) and any(
            not isinstance(answer, Report) for queue in self._answers.values() for answer in queue
        ) or any(self._control.values()) or any(self._frames.values())

    def _give(self, worker: Worker, event: heard.Event) -> bool:
        worker.handle(event)
        self._carry_out(worker)
        return True

    # ---- carrying out

    def _carry_out(self, worker: Worker) -> bool:
        instructions = worker.take()
        for instruction in instructions:
            if isinstance(instruction, Send):
                for channel in instruction.channels:
                    self._frames.setdefault(channel, deque()).append(instruction.frame)
            elif isinstance(instruction, heard.Grant):
                self._grants.setdefault(instruction.channel, deque()).append(instruction.size)
            elif isinstance(instruction, heard.Tell):
                self._answers[host_of(worker.wiring.id, self._hosts)].append(instruction.answer)
            elif isinstance(instruction, Rehearse):
                self._rehearsals.append((worker, instruction))
            elif isinstance(instruction, heard.Traced):
                self.trace.extend(instruction.records)
            elif isinstance(instruction.control, Drain):
                batches = self._readers[worker.wiring.id]
                if batches is not None:
                    batches.clear()
        return bool(instructions)

    def _obey(self, instructions: Sequence[said.Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, said.Tell):
                host = host_of(instruction.worker, self._hosts)
                self._control[host].append((instruction.worker, instruction.control))
            elif isinstance(instruction, said.Admit):
                self._admitted = True
            elif isinstance(instruction, said.Resolved):
                if instruction.outcome.change in self.outcomes:
                    raise AssertionError(f"change {instruction.outcome.change} was resolved twice")
                self.outcomes[instruction.outcome.change] = instruction.outcome
            elif isinstance(instruction, said.CommitFiles):
                for sink, parts in instruction.files.items():
                    self.committed.setdefault(sink, []).extend(parts)
            elif isinstance(instruction, said.Journal):
                self.journal.append(instruction.entry)
            elif isinstance(instruction, said.RunEnded):
                self.state, self.error, self.details = instruction.state, instruction.error, instruction.details

    def records(self) -> list[Record]:
        """The trace so far, with what workers have not handed out yet."""
        for worker in self._workers.values():
            for instance in worker.instances:
                self.trace.extend(instance.records())
        return self.trace

    def describe(self) -> str:
        """What is where, for the message of a failed run."""
        waiting = {str(channel): len(queue) for channel, queue in self._frames.items() if queue}
        open_ = [str(worker.wiring.id) for worker in self._workers.values() if not worker.ended]
        return f"state {self.state}, not ended {open_}, frames under way {waiting}, outcomes {list(self.outcomes)}"
