"""The coordinators of a controller: each is reached by what concerns it, and the order of their list matters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, get_args

import pytest
from controller_setting import FM_BY_EPOCH, MC_ALONE, Desk, flow, only, plan, told
from controller_station import NEW, OLD, Station
from loops_played import try_changed_killed, try_loops
from rescaling_checks import try_rescaled

import fries_nb as fn
from fries_nb.controller.change_steps import Changes
from fries_nb.controller.commits import Checkpoints
from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import (
    ChangeRequested,
    ChangeTopology,
    CheckpointKept,
    CheckpointRequested,
    DrainRequested,
    HostJoined,
    HostLost,
    Instruction,
    Recover,
    SplitsMoved,
    StopRequested,
    Tell,
    Tick,
)
from fries_nb.controller.intake import Sources
from fries_nb.controller.joining import Joining
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.markers import ACTIONS, MarkerCoordinator
from fries_nb.controller.moves import BinMoves, SplitMoves
from fries_nb.controller.states import RescalePhase
from fries_nb.errors import ProtocolError
from fries_nb.protocol.frames import Action
from fries_nb.protocol.messages import Cancel, Commit, Done, Drain, Fcm, Move, Reconfigure, WorkerId
from fries_nb.protocol.partitioning import RoutingTable
from fries_nb.simulation.cluster import Cluster

A_ALONE = plan("a", ({"a": "a"}, "a"))


def of_type(desk: Desk, kind: type[Coordinator]) -> int:
    """The place of a coordinator in the list."""
    [place] = [place for place, each in enumerate(desk.controller.coordinators) if isinstance(each, kind)]
    return place


# ---- actions


def test_every_action_has_its_traits_and_a_coordinator() -> None:
    """That an action is forgotten somewhere is found here."""
    assert set(get_args(Action)) == set(ACTIONS)
    listed = Desk().controller.coordinators
    assert [action for action in ACTIONS if not any(action in each.actions for each in listed)] == []
    taken = {event for each in listed for event in each.takes}
    own = {Tick, HostJoined}  # of the controller itself
    assert {event for traits in ACTIONS.values() for event in traits.events} <= taken | own


@pytest.fixture(scope="module")
def started() -> list[tuple[Action, set[object]]]:
    """The actions that are sent in seeded runs, each with the states of all machines at that time."""
    lives: dict[MarkerCoordinator, Lifecycle] = {}
    started: list[tuple[Action, set[object]]] = []

    def create(life: Lifecycle, *args: Any, create: Callable[..., None] = Lifecycle.__init__, **options: Any) -> None:
        create(life, *args, **options)
        lives[life.lane] = life

    def set_out(lane: MarkerCoordinator, sends: Any, action: Action, set_out: Any = MarkerCoordinator._set_out) -> Any:
        if lane in lives:
            started.append((action, _states(lives[lane])))
        return set_out(lane, sends, action)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lifecycle, "__init__", create)
        patch.setattr(MarkerCoordinator, "_set_out", set_out)
        for seed in range(4):
            try_changed_killed(seed)
            try_loops(seed, small=True, changes=True)
        for seed in range(8):
            try_rescaled(seed)
        for scheduler in ("minibatch", "cut"):
            _change_by(scheduler)
        _requeue()
    return started


def _change_by(scheduler: str) -> None:
    """The sources are held until the targets have switched, or the targets are frozen before."""
    dataflow = fn.Dataflow("held")
    dataflow.source("S", fn.rate(None, count=4)).map("A", dict).sink("out", fn.memory())
    cluster = Cluster(dataflow.graph(workers=1), {"S": [{"value": value} for value in range(4)]}, seed=1)
    cluster.hold([WorkerId("S", 0)])
    change = cluster.request({"A": dict}, scheduler)
    cluster.until(lambda: change in cluster.outcomes)
    then = cluster.request({"A": dict}, "fries")  # behind the old rows of a cut
    cluster.until(lambda: then in cluster.outcomes)
    cluster.release()
    cluster.run()


def _requeue() -> None:
    """What A has failed on goes back to it, and A fails again."""
    dataflow = fn.Dataflow("failing")
    numbers = dataflow.source("S", fn.rate(None, count=4), workers=1)
    numbers.map("A", lambda row: {"x": 1 / row["value"]}, on_error=fn.memory()).sink("out", fn.memory())
    rows = {"S": [{"value": value} for value in range(4)]}
    cluster = Cluster(dataflow.graph(workers=1), rows, seed=1, commit_interval_ns=1_000_000)
    cluster.hold([WorkerId("S", 0)])
    cluster.until(lambda: bool(cluster.rows("A")))
    request = cluster.requeue("A", cluster.rows("A"))
    cluster.until(lambda: request in cluster.requeued)
    cluster.release()
    cluster.run()
    assert [row["tries"] for row in cluster.rows("A")] == [1, 1, 2]


def _states(life: Lifecycle) -> set[object]:
    """The states of all machines that send markers."""
    changes = {change.state for change in life.changes.known.values()}
    loops = {loop.phase for loop in (*life.loops.loops.values(), *life.changes.drained.values())}
    machines = {life.checkpoints.phase, life.bin_moves.phase, life.split_moves.phase}
    return changes | loops | machines


def test_an_action_is_sent_in_the_state_that_triggers_it(started: list[tuple[Action, set[object]]]) -> None:
    """In seeded runs that send all of them."""
    assert {type(action) for action, _ in started} == set(ACTIONS)
    for action, states in started:
        wanted = ACTIONS[type(action)].state
        assert wanted is None or wanted in states, f"{action} was sent in {states}"


# ---- one more coordinator


class Probe(Coordinator):
    """Notes what reaches it."""

    takes = (StopRequested, SplitsMoved, DrainRequested, ChangeRequested)
    actions = (Commit,)

    def __init__(self) -> None:
        self.reached: list[str] = []

    def _note(self, what: str) -> list[Instruction]:
        self.reached.append(what)
        return []

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """See ``Coordinator``."""
        return self._note(f"take {type(event).__name__}")

    def acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        """See ``Coordinator``."""
        return self._note(f"acknowledged {type(action).__name__} by {worker}")

    def advance(self, now_ns: int, is_tick: bool) -> list[Instruction]:
        """See ``Coordinator``."""
        return self._note("tick") if is_tick else []

    def started(self, now_ns: int) -> list[Instruction]:
        """See ``Coordinator``."""
        return self._note("started")

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """See ``Coordinator``."""
        return self._note(f"lost: {why}")

    def close(self, why: str, now_ns: int, error: str = "", details: str = "") -> list[Instruction]:
        """See ``Coordinator``."""
        return self._note(f"close: {why}")

    def refuse(self, event: Taken, state: str, now_ns: int) -> list[Instruction]:
        """See ``Coordinator``."""
        return self._note(f"refuse {type(event).__name__}: {state}")


def test_one_more_coordinator_needs_no_other_place() -> None:
    """All that happens to a run reaches it by way of the list."""
    probe = Probe()
    desk = Desk(flow("a>out"), hosts=1, commit_ms=10, checkpoints=True, joined=False)
    desk.controller.coordinators.append(probe)
    desk.join(3)
    desk.hear(Tick(), after_ms=10)
    desk.done(1, "a")
    desk.request(A_ALONE)
    desk.hear(HostLost(0, "its process died"))
    desk.join(4)
    desk.hear(StopRequested())
    desk.request(A_ALONE, "u2")
    assert probe.reached == [
        "started", "tick", "acknowledged Commit by a[0]", "take ChangeRequested",
        "lost: host 0 was lost (its process died)", "started", "close: the run was stopped",
        "refuse ChangeRequested: stopped",
    ]  # fmt: skip


def test_what_no_coordinator_takes_is_an_error() -> None:
    """It would be lost without a word."""
    desk = Desk()
    unknown: Any = object()
    with pytest.raises(ProtocolError, match="has no place in this run"):
        desk.hear(unknown)


# ---- the order of the list (see ``Lifecycle._in_order``), each time with two of them exchanged as well


def swap(desk: Desk, first: type[Coordinator], second: type[Coordinator]) -> None:
    """Let two coordinators change places."""
    listed, a, b = desk.controller.coordinators, of_type(desk, first), of_type(desk, second)
    listed[a], listed[b] = listed[b], listed[a]


def sent(instructions: Iterable[Instruction]) -> list[type]:
    """The types of the actions whose markers are sent."""
    sent = [tell.control.marker for tell in only(instructions, Tell) if isinstance(tell.control, Fcm)]
    return [type(action) for action in {marker.id: marker.action for marker in sent}.values()]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_source_ends_while_workers_adopt_a_topology(swapped: bool) -> None:
    """It comes before the coordinator that lets all others wait then."""
    desk = Station()
    if swapped:
        swap(desk, Sources, Joining)
    desk.rescale(3)
    desk.hello(2)
    assert told(desk.hear(DrainRequested()), Drain) == ([] if swapped else ["S[0]"])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_change_of_the_topology_comes_before_the_next_commit(swapped: bool) -> None:
    """It waits until nothing is in flight, and each commit would be followed by the next one that is wanted."""
    desk = Station(commit_ms=10)
    if swapped:
        swap(desk, Joining, Checkpoints)
    desk.rescale(3)
    desk.hear(Tick(), after_ms=11)
    desk.hello(2)
    desk.hear(CheckpointRequested("c1"))
    retired = desk.done(1, "S", "A", "K", "Z")
    assert (sent(retired), len(only(retired, ChangeTopology))) == (([Commit], 0) if swapped else ([], 1))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_change_that_is_prepared_comes_before_a_commit(swapped: bool) -> None:
    """Which it would have to cancel."""
    desk = Desk(commit_ms=100)
    if swapped:
        swap(desk, Changes, Checkpoints)
    desk.request(FM_BY_EPOCH)
    desk.prepared("FM")
    desk.done(1, "FM")
    desk.request(MC_ALONE, "u2")
    desk.prepared("MC", change="u2")
    desk.hear(CheckpointRequested("c1"))
    retired = desk.done(1, "payments", "FC", "MC", "scored")
    assert sent(retired) == ([Commit, Reconfigure] if swapped else [Reconfigure])
    assert bool(told(retired, Cancel)) == swapped


@pytest.mark.parametrize("swapped", [False, True])
def test_bins_move_as_soon_as_splits_are_handed_over(swapped: bool) -> None:
    """In the same turn, since nothing else may come in between that begins by itself."""
    desk = Station()
    if swapped:
        swap(desk, SplitMoves, BinMoves)
    desk.rescale(3)
    desk.hello(2)
    desk.adopt(2, OLD + NEW)
    adopted = desk.adopt(3, OLD + NEW)
    assert len(only(adopted, SplitsMoved)) == 1
    assert sent(adopted) == ([] if swapped else [Move])


@pytest.mark.parametrize("swapped", [False, True])
def test_a_start_finds_out_who_had_ended_before_changes_ask(swapped: bool) -> None:
    """A change that is carried out by the restart did not reach them."""
    desk = Desk(commit_ms=100, checkpoints=True)
    if swapped:
        swap(desk, Changes, Checkpoints)
    desk.ended("FM")
    desk.hear(Tick(), after_ms=100)
    desk.done(1, "payments", "FC", "MC", "scored")
    desk.saved(1, "payments", "FC", "MC", "scored")
    desk.hear(CheckpointKept(1))
    desk.request(plan("FM MC", ({"FC": "FC FM MC"}, "FM MC")))
    desk.prepared("FM", "MC")
    desk.hear(HostLost(0, "its process died"))
    desk.join(4)
    outcome = desk.outcomes["u1"]
    assert outcome.outcome == "done"
    assert outcome.per_worker[WorkerId("FM", 0)].ended == (not swapped)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_a_rescale_is_lost_after_its_moves(grows: bool, swapped: bool) -> None:
    """It deals the next topology by the tables that they leave, and clears these if hosts were to leave."""
    desk = Station(checkpoints=True)
    if grows:
        desk.rescale(3)
        desk.hello(2)
        desk.adopt(2, OLD + NEW)
        desk.adopt(3, OLD + NEW)
    else:
        desk.grow()
        desk.rescale(2, "r2")
    if swapped:
        swap(desk, BinMoves, Joining)
    assert desk.phase is (RescalePhase.BALANCING if grows else RescalePhase.CLEARING)
    assert isinstance(desk.controller._life.lane.action, Move)
    [recover] = only(desk.hear(HostLost(0, "its process died")), Recover)
    tables = {name: RoutingTable(table) for name, table in recover.restoration.tables.items()}
    dealt = desk.controller._life.joining.topology.table("K")
    agrees = dealt == tables.get("K", RoutingTable.even(3)) == RoutingTable.even(3)
    assert agrees != swapped


@pytest.mark.parametrize("seed", range(12))
def test_at_a_loss_no_other_order_matters(seed: int) -> None:
    """Each forgets its own: in any order the same is instructed, and the next incarnation begins in the same state."""
    plain, shuffled = _lost(None), _lost(seed)
    assert shuffled == plain


def _lost(seed: int | None) -> tuple[object, ...]:
    """What a loss leads to while bins move, and a change and a commit wait; in any order with bins behind rescales."""
    desk = Station(checkpoints=True, commit_ms=10)
    desk.rescale(3)
    desk.hello(2)
    desk.adopt(2, OLD + NEW)
    desk.adopt(3, OLD + NEW)
    desk.hear(CheckpointRequested("c1"))
    desk.request(plan("A", ({"A": "A"}, "A")))
    desk.prepared("A")
    if seed is not None:
        random.Random(seed).shuffle(desk.controller.coordinators)
        if of_type(desk, BinMoves) < of_type(desk, Joining):
            swap(desk, BinMoves, Joining)
    lost = desk.hear(HostLost(0, "its process died"))
    life = desk.controller._life
    machines = life.checkpoints.phase, life.bin_moves.phase, life.split_moves.phase, desk.phase, life.rewiring.phase
    return sorted(map(repr, lost)), machines, desk.controller.changes, life.joining.topology, life.workers.routed
