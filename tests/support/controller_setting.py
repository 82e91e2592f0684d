"""The stage for the tests of the controller: a small flow, plans made by hand, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from fries_nb.controller.controller import Controller
from fries_nb.controller.events import (
    Answered,
    ChangeRequested,
    Event,
    HostJoined,
    Instruction,
    Outcome,
    Resolved,
    Tell,
)
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.planning.covering import Component, Covering
from fries_nb.planning.schedulers import Plan, Send, Stage
from fries_nb.protocol.messages import Answer, Done, Ended, Fcm, Marker, Prepared, Saved, WorkerId
from fries_nb.simulation.seeded_changes import StepRequests

MS = 1_000_000
T = TypeVar("T")


def flow(edges: str, workers: int = 1, **kinds: Kind) -> Graph:
    """A graph from "a>b b>c"; sources and sinks get their kinds, `kinds` those of the others that are no maps."""
    pairs = [tuple(edge.split(">")) for edge in edges.split()]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    starts, ends = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    kind = {name: Kind.SOURCE if name not in ends else Kind.SINK if name not in starts else Kind.MAP for name in names}
    return Graph(
        "test",
        tuple(Operator(name, workers=workers, kind=kinds.get(name, kind[name])) for name in names),
        tuple(Edge(a, b, Partitioning.HASH) for a, b in pairs),
    )


FRAUD = flow("payments>FC FC>FM FM>MC MC>scored", workers=2)


def plan(targets: str, *stages: tuple[dict[str, str], str], scheduler: str = "fries") -> Plan:
    """A plan by hand: for each stage the scope of each operator that gets an FCM, and whom it awaits."""
    made = tuple(
        Stage(tuple(Send(name, frozenset(scope.split())) for name, scope in sends.items()), frozenset(awaits.split()))
        for sends, awaits in stages
    )
    scopes = dict.fromkeys(send.scope for stage in made for send in stage.sends)
    names = frozenset(targets.split())
    components = tuple(
        Component(operators=scope, heads=frozenset(), targets=scope & names, edges=(), longest_path=0)
        for scope in scopes
    )
    return Plan(scheduler, names, made, Covering(names, components, (), True, 0))


FM_AND_MC = plan("FM MC", ({"FM": "FM MC"}, "FM MC"))
FM_ALONE = plan("FM", ({"FM": "FM"}, "FM"))
MC_ALONE = plan("MC", ({"MC": "MC"}, "MC"))
FM_BY_EPOCH = plan("FM", ({"payments": "payments FC FM MC scored"}, "FM"), scheduler="epoch")


class Desk:
    """A controller with its hosts joined, a clock, and short words for what workers say."""

    def __init__(
        self,
        graph: Graph = FRAUD,
        hosts: int = 2,
        commit_ms: int | None = None,
        joined: bool = True,
        **more: Any,
    ) -> None:
        interval = None if commit_ms is None else commit_ms * MS
        self.controller = Controller(graph, hosts, 3, interval, **more)
        self.graph = graph
        self.hosts = hosts
        self.now_ns = 0
        self.said: list[Instruction] = []
        if joined:
            self.join(3)

    def take_steps(self) -> Desk:
        """Let the controller take requests of single steps of a rescale, as in a simulation."""
        self.controller.coordinators.append(StepRequests(self.controller.coordinators))
        return self

    def join(self, incarnation: int) -> list[Instruction]:
        """All hosts say hello; returns what the last hello led to."""
        instructions: list[Instruction] = []
        for host in range(self.hosts):
            instructions = self.hear(HostJoined(host, f"tcp://host{host}", incarnation))
        return instructions

    def hear(self, event: Event, after_ms: float = 0) -> list[Instruction]:
        """Hand in an event some time after the last one; returns what the controller instructs."""
        self.now_ns += int(after_ms * MS)
        instructions = self.controller.handle(event, self.now_ns)
        self.said += instructions
        return instructions

    def answer(self, answer: Answer, after_ms: float = 0) -> list[Instruction]:
        """A worker says something."""
        return self.hear(Answered(answer), after_ms)

    def request(self, plan: Plan, change: str = "u1", rehearse: Iterable[str] = ()) -> list[Instruction]:
        """Ask for a change."""
        payloads = {target: target.encode() for target in plan.targets}
        return self.hear(ChangeRequested(change, plan, payloads, frozenset(rehearse)))

    def prepared(self, *operators: str, change: str = "u1", after_ms: float = 0, **extra: Any) -> list[Instruction]:
        """All workers of these operators have prepared; returns what the last answer led to."""
        instructions: list[Instruction] = []
        for worker in self.workers(*operators):
            instructions = self.answer(Prepared(change, worker, **extra), after_ms)
        return instructions

    def done(self, marker: int, *operators: str, after_ms: float = 0, **extra: Any) -> list[Instruction]:
        """All workers of these operators are done with a marker; returns what that led to."""
        instructions: list[Instruction] = []
        for worker in self.workers(*operators):
            instructions += self.answer(Done(marker, worker, **extra), after_ms)
        return instructions

    def saved(self, epoch: int, *operators: str) -> list[Instruction]:
        """All workers of these operators have their snapshots on disk; returns what that led to."""
        instructions: list[Instruction] = []
        for worker in self.workers(*operators):
            instructions += self.answer(Saved(epoch, worker, f"{epoch}/{worker}"))
        return instructions

    def ended(self, *operators: str, files: tuple[str, ...] = ()) -> list[Instruction]:
        """All workers of these operators have ended; returns what that led to."""
        instructions: list[Instruction] = []
        for worker in self.workers(*operators):
            named = tuple(f"{file}-{worker.index}" for file in files)
            instructions += self.answer(Ended(worker, files=named))
        return instructions

    def workers(self, *operators: str) -> list[WorkerId]:
        """The workers of these operators."""
        return [WorkerId(name, index) for name in operators for index in range(self.graph.operator(name).workers)]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """How the changes that are resolved went."""
        return {resolved.outcome.change: resolved.outcome for resolved in only(self.said, Resolved)}


def only(instructions: Iterable[Instruction], kind: type[T]) -> list[T]:
    """Those of one type."""
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def told(instructions: Iterable[Instruction], control: type) -> list[str]:
    """The workers that are told something of this type, in order."""
    return [str(tell.worker) for tell in only(instructions, Tell) if isinstance(tell.control, control)]


def markers(instructions: Iterable[Instruction]) -> list[Marker]:
    """The different markers that leave by FCM."""
    sent = [tell.control.marker for tell in only(instructions, Tell) if isinstance(tell.control, Fcm)]
    return list(dict.fromkeys(sent))
