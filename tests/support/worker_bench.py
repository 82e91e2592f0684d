"""A bench for one worker, driven by hand: it stands between two senders and a receiver and keeps what was said."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa

from fries_nb.connectors.sink import OpenSinks
from fries_nb.dataflow.columns import DUE, TRANSACTION
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.dataflow.updates import Update
from fries_nb.operators.awaited_calls import Call
from fries_nb.operators.dry_run import DryRun
from fries_nb.operators.instance import Instance
from fries_nb.protocol.checkpoints import CommittedChange, Snapshot
from fries_nb.protocol.frames import Bundle
from fries_nb.protocol.messages import Commit, Data, Frame, Marker, Prepare, Reconfigure, Rehearse, WorkerId
from fries_nb.protocol.topology import Topology, wire
from fries_nb.protocol.trace import Ran, RanMany, Record, Updated
from fries_nb.worker.awaiting_worker import AwaitingWorker
from fries_nb.worker.events import Arrived, ClosePart, Directed, Granted, Supplied, TellController, Write
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.rehearsal import Rehearsals
from fries_nb.worker.snapshot import restore
from fries_nb.worker.versions import Spill
from fries_nb.worker.worker import Worker


def version(number: int) -> Any:
    """A function that writes its version."""
    return lambda row: row | {"v": number}


class Sum:
    """A keyed operator whose state is a list of what it has seen."""

    def initial_state(self) -> list[int]:
        return []

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any]:
        state.append(row["n"])
        return row | {"sum": list(state)}


class Port:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.columns = pa.schema([])
        self.parts = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.to_pylist()

    def close_part(self) -> tuple[str, ...]:
        self.parts += 1
        return (f"part-{self.parts}",)


class HeldCalls:
    """In place of an event loop: calls in flight, which end as they are told."""

    def __init__(self) -> None:
        self.wake: Any = lambda: None
        self.running: list[Call] = []
        self.cancelled: list[Call] = []

    def begin(self, call: Call) -> None:
        self.running.append(call)

    def cancel(self, call: Call) -> None:
        self.running.remove(call)
        self.cancelled.append(call)

    def wait(self, make: Any, timeout_s: float | None) -> Any:
        return asyncio.run(make())

    def close(self) -> None:
        self.running.clear()

    def finish(self, number: int = 0) -> None:
        """Run one of them to its end."""
        call = self.running.pop(number)
        try:
            call.succeed(asyncio.run(call.coroutine()))
        except ValueError as error:
            call.fail(error)


class Bench:
    """One worker between two senders A[0], A[1] and receivers Z[0], ..., and all that it has said.

    Each receiver has granted ``credit``. With a ``key`` its rows are partitioned by it. With ``snapshots``, or with
    changes ``decided``, it is restored before its first event.
    """

    def __init__(
        self,
        *chain: Operator,
        audit: bool = False,
        window: int = 1 << 20,
        receivers: int = 1,
        snapshots: Sequence[Snapshot] = (),
        decided: Sequence[CommittedChange] = (),
        spill: Spill = list,
        key: tuple[str, ...] = (),
        credit: int = 1 << 20,
    ) -> None:
        names = [operator.name for operator in chain]
        out = Edge(names[-1], "Z", Partitioning.HASH, key) if key else Edge(names[-1], "Z")
        edges = [Edge("A", names[0], Partitioning.REBALANCE), *map(Edge, names, names[1:]), out]
        graph = Graph(
            "g", (Operator("A", workers=2, kind=Kind.MAP), *chain, Operator("Z", workers=receivers)), tuple(edges)
        )
        if chain[0].kind is Kind.SINK:
            graph = Graph("g", graph.operators[:-1], tuple(edges[:-1]))
        if chain[0].kind is Kind.SOURCE:
            graph = Graph("g", graph.operators[1:], tuple(edges[1:]))
        self.port = Port()
        self.ticks = itertools.count(0, 1000)
        instances = [Instance(WorkerId(one.name, 0), one, one.function, audit) for one in chain]
        for position, instance in enumerate(instances):
            instance.recreate = partial(copy.copy, chain[position].function)
            if snapshots or decided:
                restore(instance, snapshots[position] if snapshots else None, decided)
        wiring = wire(Topology.dealt(graph, 1), tuple(names), 0)
        last = snapshots[-1] if snapshots else None
        self.calls = HeldCalls()
        instances[0].calls = self.calls if chain[0].awaiting else None
        made = AwaitingWorker if chain[0].awaiting else Worker
        self.worker = made(wiring, instances, window, lambda: next(self.ticks), last, spill)
        self.ports = {self.worker.wiring.id: self.port} if chain[0].kind is Kind.SINK else {}
        self.sinks = OpenSinks(self.ports)
        self.incoming = self.worker.wiring.incoming
        self.said: list[Any] = []
        self.rehearsals = Rehearsals(lambda: 0)
        for channel in (channel for edge in self.worker.wiring.edges for channel in edge.channels):
            self.worker.handle(Granted(channel, credit))

    def arrive(self, index: int, frame: Frame) -> None:
        if not self.incoming:
            self.worker.handle(Supplied(frame.batch if isinstance(frame, Data) else None))
        else:
            self.worker.handle(Arrived(self.incoming[index], frame))

    def direct(self, operator: str, control: Any) -> None:
        self.worker.handle(Directed(WorkerId(operator, 0), control))

    def run(self) -> None:
        while self.worker.run():
            self.take()
        self.worker.outbox.flush()
        self.take()

    def keep_letters(self, position: int, port: Port | None = None) -> Port:
        """Have the operator at this position of the chain keep dead letters; where they go."""
        instance = self.worker.instances[position]
        instance.has_dead_letters = True
        self.ports[instance.worker] = port or Port()
        self.sinks = OpenSinks(self.ports)
        return self.ports[instance.worker]

    def take(self) -> list[Any]:
        """What the worker says; what concerns its sink is carried out."""
        taken: list[Any] = []
        for instruction in itertools.chain.from_iterable(iter(self.worker.take, [])):
            if not isinstance(instruction, Write | ClosePart):
                taken.append(instruction)
                continue
            for effect in self.sinks.carry_out(instruction):
                if isinstance(effect, TellController):
                    taken.append(effect)
                else:
                    self.worker.handle(effect)
        self.said += taken
        return taken

    def answers(self, kind: type[Any]) -> list[Any]:
        self.take()
        return [one.answer for one in self.said if isinstance(one, TellController) and isinstance(one.answer, kind)]

    def prepare(self, operator: str, change: str, update: Update, tagged: bool = False, examples: int = 0) -> None:
        """Prepare to the end and rehearse, as a shell and a controller would."""
        self.direct(operator, Prepare(change, cloudpickle.dumps(update), tagged=tagged, examples=examples))
        for order in self.take():
            if isinstance(order, DryRun):
                result = self.rehearsals.prepare(order)
                self.worker.handle(result)
                self.said.append(TellController(result.answer))
                if result.answer.samples:
                    asked = Rehearse(change, {operator: result.answer.samples}, examples=examples, only=bool(examples))
                    answer, compare = self.rehearsals.rehearse(order.worker, asked, [self.worker])
                    self.said += [TellController(one) for one in (answer, *([compare()] if compare else []))]

    @property
    def sent(self) -> list[Any]:
        """What went to Z, in order: a row's ``v`` (or the row), or the frame itself."""
        self.take()
        out: list[Any] = []
        for send in self.said:
            if isinstance(send, SendFrame):
                data = isinstance(send.frame, Data | Bundle)
                out += [row.get("v", row) for row in send.frame.batch.to_pylist()] if data else [send.frame]
        return out


def operations(records: Iterable[Record]) -> list[Record]:
    """What of these records conflicts: data operations, by whatever function, and updates."""
    plain: list[Record] = []
    for record in records:
        if isinstance(record, (Ran, RanMany)):
            plain.append(msgspec.structs.replace(record, function=None))
        elif isinstance(record, Updated):
            plain.append(record)
    return plain


def data(*numbers: int, size: int = 100, version: int = 0) -> Data:
    """A data frame."""
    columns = {"n": list(numbers), DUE: list(numbers), TRANSACTION: list(numbers)}
    return Data(pa.RecordBatch.from_pydict(columns), size=size, version=version)


def change(number: int, *targets: str, scope: str = "M", tagged: bool = False) -> Marker:
    """A marker that switches these targets."""
    return Marker(number, frozenset(scope), Reconfigure(f"u{number}", frozenset(targets), tagged))


def checkpoint(number: int, scope: str = "AMZ") -> Marker:
    """A marker at which snapshots are taken."""
    return Marker(number, frozenset(scope), Commit(number, checkpoint=True))


def decided(change: str, **updates: Update) -> CommittedChange:
    """A change of these operators that was decided."""
    payloads = {operator: cloudpickle.dumps(update) for operator, update in updates.items()}
    return CommittedChange(change, "fries", (tuple(updates),), payloads)
