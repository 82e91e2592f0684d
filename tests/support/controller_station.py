"""A desk at which hosts join and leave, with a line of operators of which each new host brings some workers."""

from __future__ import annotations

from controller_setting import Desk, only

from fries_nb.controller.events import ChangeTopology, HostJoined, Instruction, RescaleEnded, RescaleRequested
from fries_nb.controller.states import RescalePhase
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.protocol.messages import Done, Installed, Move, TopologyAdopted, WorkerId

GRAPH = Graph(
    "line",
    (
        Operator("S", kind=Kind.SOURCE), Operator("A", workers=2), Operator("K", workers=2, key=("k",)),
        Operator("Z", kind=Kind.SINK, workers=2),
    ),
    (Edge("S", "A"), Edge("A", "K", Partitioning.HASH, ("k",)), Edge("K", "Z")),
)  # fmt: skip
SHARES = {"A": 1, "K": 1, "Z": 1}
OLD = [WorkerId(name, index) for name, count in (("S", 1), ("A", 2), ("K", 2), ("Z", 2)) for index in range(count)]
NEW = [WorkerId(name, 2) for name in "AKZ"]


class Station(Desk):
    """A desk at which hosts join and leave."""

    def __init__(self, **more: object) -> None:
        super().__init__(GRAPH, hosts=2, **more)

    @property
    def phase(self) -> RescalePhase:
        """The phase of the request."""
        return self.controller._life.joining.phase

    def rescale(self, hosts: int, request: str = "r1") -> list[Instruction]:
        """Ask for so many hosts."""
        return self.hear(RescaleRequested(request, hosts, SHARES))

    def hello(self, host: int) -> list[Instruction]:
        """A new host says hello."""
        return self.hear(HostJoined(host, f"tcp://host{host}", 3))

    def adopt(self, epoch: int, workers: list[WorkerId]) -> list[Instruction]:
        """These workers have adopted the epoch; returns what followed."""
        return [one for worker in workers for one in self.answer(TopologyAdopted(epoch, worker))]

    def move(self) -> list[Instruction]:
        """Workers carry out all moves of bins; returns what followed the last one."""
        said: list[Instruction] = []
        while isinstance(move := self.controller._life.lane.action, Move):
            [marker] = self.controller.on_the_way
            owners = {WorkerId(move.operator, after) for _, after in move.bins.values()}
            answers = [Done(marker, worker) for worker in self.controller._life.workers.of("AKZ")]
            answers += [Installed(marker, owner) for owner in sorted(owners)]
            said = [one for answer in answers for one in self.answer(answer)]
        return said

    def grow(self) -> None:
        """A third host joins, and takes part."""
        self.rescale(3)
        self.hello(2)
        self.adopt(2, OLD + NEW)
        self.adopt(3, OLD + NEW)
        self.move()
        assert self.ends["r1"].outcome == "done"

    @property
    def ends(self) -> dict[str, RescaleEnded]:
        """How the requests have ended."""
        return {end.request: end for end in only(self.said, RescaleEnded)}

    @property
    def topologies(self) -> list[ChangeTopology]:
        """The topologies that were to be adopted so far."""
        return only(self.said, ChangeTopology)
