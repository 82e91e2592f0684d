"""Splits are handed over from worker to worker, in one step that nothing comes into."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from controller_setting import Desk, only, told

from fries_nb.controller.events import (
    CheckpointRequested,
    DrainRequested,
    HostJoined,
    HostLost,
    Instruction,
    KeepCheckpoint,
    RateRequested,
    ReleaseHosts,
    RescaleEnded,
    RescaleRequested,
    RunEnded,
    SplitsMoved,
    SplitsRequested,
    Tell,
)
from fries_nb.controller.moves import SplitMoves
from fries_nb.controller.states import SPLIT_MOVES, RescalePhase, SplitPhase
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.windowing import EventTime
from fries_nb.errors import DataflowError, ProtocolError
from fries_nb.protocol.checkpoints import Checkpoint, Position, Restoration
from fries_nb.protocol.messages import (
    AdoptSplits,
    Commit,
    Done,
    Drain,
    Ended,
    Fcm,
    Installed,
    MoveSplits,
    SplitsRead,
    TopologyAdopted,
    WorkerId,
)  # fmt: skip
from fries_nb.simulation.seeded_changes import TopologyRequested


def pair(workers: int = 2) -> Graph:
    """A source and a sink, of equally many workers."""
    return Graph(
        "pair",
        (Operator("S", kind=Kind.SOURCE, workers=workers), Operator("Z", kind=Kind.SINK, workers=workers)),
        (Edge("S", "Z"),),
    )


class Reading(Desk):
    """A desk of a source with four splits."""

    def __init__(self, workers: int = 2, **more: object) -> None:
        super().__init__(pair(workers), hosts=workers, splits={"S": [0, 2, 1, 3]}, **more)
        self.take_steps()

    @property
    def moves(self) -> SplitMoves:
        """The moves of splits."""
        return self.controller._life.split_moves

    def deal(self, workers: int) -> list[Instruction]:
        """Ask for so many workers that read."""
        return self.hear(SplitsRequested({"S": workers}))

    def give_up(self, index: int, positions: Mapping[int, Position | None]) -> list[Instruction]:
        """A source worker has given up splits."""
        [marker] = self.controller.on_the_way
        return self.answer(Done(marker, WorkerId("S", index), positions=dict(positions)))

    def adopted(self, *indices: int) -> list[Instruction]:
        """These source workers read their splits; and the sinks have aligned the marker."""
        [marker] = self.controller.on_the_way
        said = self.done(marker, "Z")
        for index in indices:
            said += self.answer(Installed(marker, WorkerId("S", index)))
        return said

    def read(self, *indices: int) -> list[Instruction]:
        """These source workers have read all they have."""
        return [one for index in indices for one in self.answer(SplitsRead(WorkerId("S", index)))]


def adopts(instructions: list[Instruction]) -> dict[str, AdoptSplits]:
    """Worker to what it is told to read as well."""
    tells = [tell for tell in only(instructions, Tell) if isinstance(tell.control, AdoptSplits)]
    return {str(tell.worker): tell.control for tell in tells}


def test_splits_go_to_the_workers_that_stay_at_their_positions() -> None:
    """In the order in which they were dealt: 0 and 1 are the first worker's, 2 and 3 the second one's."""
    desk = Reading()
    fcms = desk.deal(1)
    assert told(fcms, Fcm) == ["S[0]", "S[1]"]
    marker = fcms[0].control.marker
    assert (marker.scope, marker.action) == (frozenset("SZ"), MoveSplits("S", {2: (1, 0), 3: (1, 0)}))
    assert desk.give_up(0, {}) == []
    told_ = adopts(desk.give_up(1, {2: Position(5), 3: None}))
    assert told_ == {"S[0]": AdoptSplits(marker.id, {2: Position(5), 3: None})}
    assert desk.adopted(0) == [SplitsMoved()]
    assert desk.controller._workers.readers == {"S": 1}
    desk.hear(RateRequested("S", 7.0))
    desk.deal(2)
    desk.give_up(1, {})
    assert adopts(desk.give_up(0, {2: Position(9), 3: None}))["S[1]"].rate == 7.0
    assert desk.adopted(1) == [SplitsMoved()]
    assert desk.controller._workers.readers == {}
    assert desk.deal(2) == [SplitsMoved()]


def test_nothing_begins_while_splits_are_in_no_snapshot() -> None:
    """No checkpoint and no end; they come right after."""
    desk = Reading(checkpoints=True)
    desk.deal(1)
    desk.read(0, 1)
    desk.give_up(1, {2: Position(5), 3: None})
    assert desk.hear(CheckpointRequested("c1")) == []
    assert desk.hear(DrainRequested()) == []
    assert adopts(desk.give_up(0, {})) != {}
    [marker] = desk.controller.on_the_way
    assert desk.done(marker, "Z") == []
    after = desk.answer(Installed(marker, WorkerId("S", 0)))
    assert told(after, Drain) == ["S[0]", "S[1]"]
    assert {type(one.control.marker.action) for one in only(after, Tell) if isinstance(one.control, Fcm)} == {Commit}


def test_a_worker_ends_when_no_split_is_left_and_one_that_has_got_some_says_so_again() -> None:
    """What it said before it got them does not count."""
    desk = Reading()
    assert desk.read(1) == []
    desk.deal(1)
    desk.give_up(0, {})
    desk.give_up(1, {2: None, 3: None})
    assert desk.read(0) == []  # before it has heard of the others
    desk.adopted(0)
    assert desk.read(1) == []
    assert told(desk.read(0), Drain) == ["S[0]", "S[1]"]
    assert desk.deal(2) == [SplitsMoved("S has ended, so S keeps its splits")]
    desk.ended("S", "Z")
    assert only(desk.said, RunEnded)[-1].state == "finished"


def test_a_checkpoint_says_to_how_many_workers_splits_were_dealt() -> None:
    """Otherwise it would be restored as if to all."""
    desk = Reading(checkpoints=True)
    desk.deal(1)
    desk.give_up(0, {})
    desk.give_up(1, {2: Position(5), 3: None})
    desk.adopted(0)
    desk.hear(CheckpointRequested("c1"))
    [marker] = desk.controller.on_the_way
    desk.done(marker, "S", "Z")
    [keep] = only([*desk.saved(1, "S", "Z"), *desk.said], KeepCheckpoint)[:1]
    assert (keep.record.readers, keep.record.workers["S"]) == ({"S": 1}, 2)


@pytest.mark.parametrize("adopting", [False, True])
def test_the_next_incarnation_deals_the_splits_to_all_workers(adopting: bool) -> None:
    """Whichever way they were going."""
    desk = Reading(checkpoints=True)
    desk.deal(1)
    if adopting:
        desk.give_up(0, {})
        desk.give_up(1, {2: Position(5), 3: None})
    assert SplitsMoved() in desk.hear(HostLost(1, "gone"))
    assert (desk.moves.phase, desk.controller._workers.readers) == (SplitPhase.IDLE, {})
    desk.join(4)
    assert told(desk.deal(1), Fcm) == ["S[0]", "S[1]"]


def test_what_cannot_be_is_refused() -> None:
    """No source, too many workers, a second request, rows with times, idle workers with splits; what has ended."""
    desk = Reading()
    with pytest.raises(DataflowError, match="Z has no splits; expected a source"):
        desk.hear(SplitsRequested({"Z": 1}))
    with pytest.raises(DataflowError, match=r"dealt to 3 workers; expected 1 up to S\[1\]"):
        desk.deal(3)
    topology = desk.controller._life.joining.topology
    narrow = topology.narrowed({WorkerId("S", 1), WorkerId("Z", 1)})
    with pytest.raises(ProtocolError, match=r"S\[1\] was to be idle; expected its splits to be moved first"):
        desk.hear(TopologyRequested(narrow))
    desk.deal(1)
    with pytest.raises(ProtocolError, match="moves of splits were requested while others are yielding"):
        desk.deal(2)
    with pytest.raises(ProtocolError, match="moves of splits is yielding and cannot be waiting; next is adopting"):
        desk.moves._move(SplitPhase.WAITING)
    source = Operator("S", kind=Kind.SOURCE, time=EventTime("at"))
    timed = Graph("timed", (source, *pair(1).operators[1:]), pair().edges)
    with pytest.raises(DataflowError, match="splits of S cannot be moved: the dataflow has times or a loop"):
        Desk(timed, hosts=1).take_steps().hear(SplitsRequested({"S": 1}))
    desk = Reading()
    desk.answer(Ended(WorkerId("S", 1)))
    assert desk.deal(1) == [SplitsMoved("S[1] has ended, so S keeps its splits")]
    kept = Checkpoint("r", 1, 2, {"S[0]": "a"}, ended=("S[1]",), workers={"S": 2, "Z": 2})
    assert Reading(checkpoints=True, restored=Restoration(kept)).deal(1)[0].reason.startswith("S[1] has ended")


def test_every_phase_is_left_by_its_moves() -> None:
    """The table is obeyed."""
    moves = Reading().moves
    for before, legal in SPLIT_MOVES.items():
        for after in SplitPhase:
            moves.phase = before
            if after in legal:
                moves._move(after)
                assert moves.phase is after
            else:
                with pytest.raises(ProtocolError, match=f"moves of splits is {before} and cannot be {after}"):
                    moves._move(after)


def test_a_host_with_a_source_leaves_and_another_one_joins() -> None:
    """Its splits go to the workers that stay; its source worker is told to end; the next one gets splits again."""
    desk = Reading()
    old = desk.workers("S", "Z")
    desk.hear(RescaleRequested("r1", 1, {"S": 1, "Z": 1}))
    desk.give_up(0, {})
    desk.give_up(1, {2: Position(5), 3: None})
    desk.adopted(0)
    for worker in old:
        asked = desk.answer(TopologyAdopted(2, worker))
    assert told(asked, Drain) == ["S[1]"]
    for worker in (WorkerId("S", 0), WorkerId("Z", 0)):
        desk.answer(TopologyAdopted(3, worker))
    desk.answer(Ended(WorkerId("S", 1)))
    *_, released, end = desk.answer(Ended(WorkerId("Z", 1)))
    assert (released, end) == (ReleaseHosts((1,), "the run goes on with fewer hosts"), RescaleEnded("r1", "done", 1))
    assert desk.controller._workers.readers == {}
    desk.hear(RescaleRequested("r2", 2, {"S": 1, "Z": 1}))
    desk.hear(HostJoined(2, "tcp://host2", 3))
    for epoch in (4, 5):
        assert desk.controller._life.joining.phase in (RescalePhase.JOINING, RescalePhase.WIDENING)
        for worker in old:
            said = desk.answer(TopologyAdopted(epoch, worker))
    assert told(said, Fcm) == ["S[0]", "S[1]"]
    desk.give_up(1, {})
    assert adopts(desk.give_up(0, {2: Position(7), 3: None}))["S[1]"].positions == {2: Position(7), 3: None}
    assert desk.adopted(1)[-1] == RescaleEnded("r2", "done", 2)
