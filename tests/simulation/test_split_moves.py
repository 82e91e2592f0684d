"""Seeded runs in which splits are handed over: source workers come and go, amid changes, checkpoints and kills."""

from __future__ import annotations

from collections import Counter, deque
from itertools import pairwise

import pytest
from interleaving_checks import lacking
from rescaling_checks import try_rescaled
from soak import caught, first_tried

from fries_nb.controller.intake import Sources
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.moves import SplitMoves
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.protocol.checkpoints import Position
from fries_nb.protocol.messages import MoveSplits, SplitsRead, WorkerId
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.readers import Supply
from fries_nb.simulation.rescaling_cluster import RescalingCluster
from fries_nb.simulation.stamp_functions import Mark
from fries_nb.worker import alignment
from fries_nb.worker.events import GiveUpSplits


class ReadingCluster(RescalingCluster):
    """A cluster in which it is mostly the source that is rescaled, as soon as tuples flow."""

    often = 0.3

    def _want(self, operator):
        if self.random.random() < 0.5:
            return super()._want(self.graph.sources[0])
        if self.random.random() < 0.6:
            return self._deal_some(self.graph.sources[0])
        return super()._want(operator)


def try_read(seed):
    """Play the scenario of a seed, with a source that is rescaled at random, and check it."""
    return try_rescaled(seed, cluster=ReadingCluster)


def _met(seed):
    """What a seed has met, with all laws checked."""
    met: Counter[str] = Counter()

    def obey(supply, source, control, obey=Supply.obey):
        positions = getattr(control, "positions", {})
        met["begun"] += sum(position is not None and position.row > 0 for position in positions.values())
        met["ended"] += sum(position is None for position in positions.values())
        obey(supply, source, control)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Supply, "obey", obey)
        cluster = try_read(seed).cluster
    sizes = [topology.graph.operator("S0").workers for topology in cluster.adopted]
    met["grown"] += sum(after > before for before, after in pairwise(sizes))
    met["shrunk"] += sum(after < before for before, after in pairwise(sizes))
    met["recovered"] += bool(cluster.recoveries and cluster.dealt)
    met["changed"] += any(one.outcome == "done" for one in cluster.outcomes.values())
    return met


def test_every_promise_holds_while_splits_move():
    """All laws of runs that are rescaled, and the order of each split's rows by key."""
    wanted = ("begun", "ended", "grown", "shrunk", "recovered", "changed")
    assert lacking(8, wanted, _met, least=5, most=60, shown=(26, 35, 31, 8, 22, 24)) == {}


def reading(workers=2, **settings) -> RescalingCluster:
    """A held source of so many workers, on as many hosts, in front of a mark and a sink."""
    flow = DataflowBuilder("reading")
    stream = flow.source("S", rate(None, count=1), workers=workers, identity="id")
    stream.map("A", Mark("A"), workers=workers).sink("out", memory(), workers=1)
    rows = {"S": source_rows("S", 160, 12)}
    cluster = RescalingCluster(flow.graph(), rows, seed=5, hosts=workers, **settings)
    cluster.often = 0.0
    cluster.hold(WorkerId("S", index) for index in range(workers))
    return cluster


def test_a_source_goes_to_one_worker_and_back():
    """The one that leaves has ended, and the one that comes reads on where others were."""
    cluster = reading()
    cluster.until(lambda: cluster.supply.read > 20)
    for step in (lambda: cluster.deal("S", 1), lambda: cluster.narrow("S"), lambda: cluster.shrink("S")):
        step()
        cluster.until_settled()
    assert [instance.worker.index for instance in cluster.instances("S")] == [0]
    assert len(cluster.instances("S")[0].positions) == 32
    cluster.until(lambda: cluster.supply.read > 60)
    for step in (lambda: cluster.grow("S", 1), lambda: cluster.widen(), lambda: cluster.deal("S", 2)):
        step()
        cluster.until_settled()
    newcomer = cluster.instances("S")[1]
    assert sorted(newcomer.positions) == list(range(1, 32, 2))
    cluster.release()
    cluster.run()
    assert newcomer.processed > 0
    assert sorted(row["id"] for row in cluster.rows("out")) == sorted(row["id"] for row in source_rows("S", 160, 12))


def test_no_worker_ends_before_all_splits_are_read():
    """One that has read its splits waits for others, whose splits it may get."""
    cluster = reading(checkpoints=True)
    cluster.supply.held.discard(WorkerId("S", 0))
    cluster.hosts.wake(WorkerId("S", 0))
    cluster.until(lambda: cluster.supply.dry)
    cluster.steps(300)
    assert not any(worker.ended for worker in cluster.workers.values())
    cluster.deal("S", 1)
    cluster.until_settled()
    assert cluster.reading("S") == 1
    cluster.release()
    cluster.run()
    assert len(cluster.rows("out")) == 160


def _one_row_back(instance, action, given_up=alignment._given_up):
    """The position is off by one."""
    positions = given_up(instance, action).items()
    return {split: at and Position(max(0, at.row - 1)) for split, at in positions}


def _one_row_on(instance, action, given_up=alignment._given_up):
    return {split: at and Position(at.row + 1) for split, at in given_up(instance, action).items()}


def _keep(supply, source, control, obey=Supply.obey):
    """The earlier owner reads on."""
    if not isinstance(control, GiveUpSplits):
        obey(supply, source, control)


def _end_when_read(supply, source, next_=Supply.next):
    supplied = next_(supply, source)
    if isinstance(supplied, SplitsRead):
        supply._batches[source] = None
        return supply.END
    return supplied


def _believe_what_was_said_before(sources, worker):
    """That a worker had read its splits before it got others counts."""


def _do_not_wait_for_the_adopters(lane, sends, action, installing=(), start=MarkerCoordinator.start):
    return start(lane, sends, action, () if isinstance(action, MoveSplits) else installing)


def _hear_of_the_adopters(lane, answer, installed=MarkerCoordinator.installed):
    if lane._journey is not None and answer.worker in lane._journey.installing:
        installed(lane, answer)


def _pass_on_later(moves, action, worker, done, now_ns, acknowledged=SplitMoves.acknowledged):
    late = acknowledged(moves, action, worker, done, now_ns)
    if late:
        moves._late = deque([[], [], late])
    return []


def _advance_late(moves, now_ns, is_tick, advance=SplitMoves.advance):
    late = getattr(moves, "_late", ())
    passed = late.popleft() if late else ()
    moves.__dict__.setdefault("_may_at_all", moves._may_begin)
    moves._may_begin = (lambda now_ns: False) if late else moves._may_at_all
    return [*passed, *advance(moves, now_ns, is_tick)]


BROKEN = {
    "the position is one row back": [(alignment, "_given_up", _one_row_back)],
    "the position is one row on": [(alignment, "_given_up", _one_row_on)],
    "a split has two owners": [(Supply, "obey", _keep)],
    "a worker ends when it has read its splits": [(Supply, "next", _end_when_read)],
    "a worker has read splits that it gets": [(Sources, "adopted", _believe_what_was_said_before)],
    "a checkpoint begins while splits are nobody's": [
        (MarkerCoordinator, "start", _do_not_wait_for_the_adopters),
        (MarkerCoordinator, "installed", _hear_of_the_adopters),
        (SplitMoves, "acknowledged", _pass_on_later),
        (SplitMoves, "advance", _advance_late),
    ],
}


SHOWN = dict(zip(BROKEN, (1, 1, 1, 25, 43, 18), strict=True))


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_hand_over_is_caught(monkeypatch, broken):
    """Without this rule, some run breaks a promise, or comes to no end."""
    for rule in BROKEN[broken]:
        monkeypatch.setattr(*rule)
    assert caught(first_tried(SHOWN[broken], 400), try_read) is not None
