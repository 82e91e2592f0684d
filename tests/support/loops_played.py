"""Runs of dataflows with loops, drawn from seeds, and what must hold of them."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from fries_nb.audit import judge
from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.dataflow.graph import Edge, Graph, Operator
from fries_nb.errors import FriesError
from fries_nb.protocol.checkpoints import in_effect
from fries_nb.protocol.partitioning import COHORTS, cohorts
from fries_nb.protocol.rollout import RolloutStep
from fries_nb.protocol.topology import workers_of
from fries_nb.protocol.trace import ROW_BITS, RanMany
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.drawn_flows import LoopFlow, Row, draw_loop_flow, draw_rows, name_of, reference
from fries_nb.simulation.faults import Faults

STEPS = 150_000


@dataclass
class PlayedLoops:
    """A completed run."""

    flow: LoopFlow
    rows: dict[str, list[Row]]
    cluster: Cluster

    @property
    def attempts(self) -> int:
        """Number of attempts to end a loop, since the last start of the controller."""
        return sum(loop.attempts for loop in self.cluster.controller.loops.values())


SCHEDULERS = ("multiversion", "multiversion", "epoch", "minibatch", "restart", "fries")


def play_around(seed: int, kills: bool = False) -> PlayedLoops:
    """Run the dataflow of a seed to its end, with changes of operators outside of its loops, by any scheduler.

    Args:
        seed: the seed.
        kills: whether hosts and the driver may be killed.
    """
    chance = random.Random(f"around {seed}")
    played = _begun(chance, seed, kills, small=chance.random() < 0.7, stumbles=True)
    run = played.cluster
    Stumble.broken = False
    outside = [one.name for one in run.graph.operators if one.traits.runs_user_code and not one.within.loops]
    run.hold(workers_of(run.graph, "S"))
    for at in sorted(chance.uniform(0.0, 1.1) for _ in range(chance.choice((1, 2, 3)))):
        run.until(lambda at=at: run.supply.dry or run.supply.read >= at * run.supply.total, STEPS)  # type: ignore[misc]
        run.steps(chance.choice((0, 10, 100)))
        names = chance.sample(outside, chance.choice((1, 1, 2)))
        change = {name: copy.copy(run.graph.operator(name).function) for name in names}
        if run.state == "running":
            run.request(change, chance.choice(SCHEDULERS), guard=chance.choice((None, None, 0.02)))
    run.until(lambda: not run.open, STEPS)
    run.release()
    return _completed(played)


def play_loops(seed: int, kills: bool = False, small: bool = False, changes: bool = False) -> PlayedLoops:
    """Run the dataflow of a seed to its end.

    Args:
        seed: the seed.
        kills: whether hosts and the driver may be killed, with checkpoints to recover from.
        small: whether the dataflow is small.
        changes: whether some operators are changed while it runs.
    """
    chance = random.Random(seed)
    played = _begun(chance, seed, kills, small)
    run = played.cluster
    for at in sorted(chance.uniform(0.0, 1.2) for _ in range(chance.choice((1, 1, 2)))) if changes else ():
        run.until(lambda at=at: run.supply.dry or run.supply.read >= at * run.supply.total, STEPS)  # type: ignore[misc]
        run.steps(chance.choice((0, 10, 200)))
        run.request(_drawn_change(chance, run))
    return _completed(played)


@dataclass
class Stumble:
    """Does as another function, but fails on one row while something outside of the run is ``broken``."""

    function: Callable[[Row], Row]
    on: int
    broken: ClassVar[bool] = True

    def __call__(self, row: Row) -> Row:
        """The row as the other function makes it."""
        if self.broken and row["id"] == self.on:
            raise ValueError(f"row {self.on}")
        return self.function(row)


def play_deferred(seed: int, stumbles: bool = False, small: bool = True) -> PlayedLoops:
    """Run a dataflow to its end, and kill hosts when a change was decided while checkpoints hold feedback.

    The hosts are perhaps killed again while the change waits for its drain.

    Args:
        seed: the seed.
        stumbles: whether an operator in front of the first loop or behind it pauses on a row, until it is mended.
        small: whether the dataflow is small.
    """
    chance = random.Random(seed)
    played = _begun(chance, seed, kills=True, small=small, stumbles=stumbles)
    run = played.cluster
    Stumble.broken = not stumbles or chance.random() < 0.5
    for _ in range(chance.choice((1, 1, 2, 3))):
        for _ in range(8):
            request = run.checkpoint()
            _until(chance, played, lambda request=request: run.asked.get(request, "") is not None)  # type: ignore[misc]
            if any(one.logged for one in run.store.records[-1:]):
                break
            run.steps(40)
        for _ in range(chance.choice((1, 1, 2))):
            names = ("D", chance.choice(played.flow.graph().heads).replace("L", "B")) if stumbles else ()
            change = run.request(_drawn_change(chance, run, names))
            run.steps(chance.choice((0, 50)))
            _until(chance, played, lambda change=change: change not in run.open or _is_decided(run, change))  # type: ignore[misc]
        Stumble.broken = True
        if stumbles and chance.random() < 0.5:
            _until(chance, played, lambda: run.journal[-1:] and run.journal[-1].aside)
        for steps in chance.choice(((0,), (5,), (30,), (5, 30), (5, 100), (0, 300), (20, 60, 100))):
            run.steps(chance.randint(0, steps))
            if run.state == "running":
                run.kill(chance.choice(sorted({run.hosts.host_of(worker) for worker in run.workers})))
    _until(chance, played, lambda: False)
    return _completed(played)


def play_by_row(seed: int) -> PlayedLoops:
    """Run a dataflow with changes inside its loops and around them, most of them decided row by row, some canaries.

    In most runs hosts are killed, often when such a change is open while checkpoints hold feedback.
    """
    chance = random.Random(f"by row {seed}")
    kills = chance.random() < 0.7
    played = _begun(chance, seed, kills, small=chance.random() < 0.8)
    run, steps, others = played.cluster, dict[str, float](), chance.random() < 0.4
    run.hold(workers_of(run.graph, "S") if chance.random() < 0.8 else ())
    for at in sorted(chance.uniform(0.0, 1.1) for _ in range(chance.choice((2, 3, 4)))):
        _until(chance, played, lambda at=at: run.supply.dry or run.supply.read >= at * run.supply.total)  # type: ignore[misc]
        run.steps(chance.choice((0, 10, 100)))
        if run.state != "running":
            break
        if chance.random() < 0.4:
            run.checkpoint()
            run.steps(chance.choice((20, 100)))
        by_row = not (others and chance.random() < 0.5)
        share = chance.choice((0.3, 1.0, 1.0)) if by_row and not steps else 1.0
        change = run.request(_drawn_change(chance, run), "cut" if by_row else "fries", share=share)
        steps |= {change: share} if share < 1 else {}
        if kills and others and by_row and share == 1 and not steps:
            _followed(chance, played, change)
        elif kills and chance.random() < 0.6:
            while not _is_over(run, change) and run.state == "running":
                _until(chance, played, lambda: _is_over(run, change) or _ramped_any(run, steps))  # noqa: B023 (now)
            run.steps(chance.choice((0, 0, 20, 100)))
            if run.state == "running":
                run.kill(chance.choice(sorted({run.hosts.host_of(worker) for worker in run.workers})))
        for canary in [*steps]:
            _ramped(run, canary, steps, chance.choice((0.0, 0.7, 1.0)))
    while run.state == "running" and run.open:
        _until(chance, played, lambda: not run.open or _ramped_any(run, steps))
    run.release()
    return _completed(played)


def _followed(chance: random.Random, played: PlayedLoops, first: str) -> None:
    """Let a change of another kind follow behind a checkpoint that holds rows inside loops, and lose a host then."""
    run = played.cluster
    _until(chance, played, lambda: first not in run.open)
    for _ in range(4):
        request = run.checkpoint()
        _until(chance, played, lambda request=request: run.asked.get(request, "") is not None)  # type: ignore[misc]
        if run.state != "running" or any(one.reach.inside for one in run.store.records[-1:]):
            break
        run.steps(20)
    if run.state != "running":
        return
    change = run.request(_drawn_change(chance, run))
    _until(chance, played, lambda: _is_over(run, change))
    run.steps(chance.choice((0, 0, 20, 100)))
    if run.state == "running":
        run.kill(chance.choice(sorted({run.hosts.host_of(worker) for worker in run.workers})))


def _ramped_any(run: Cluster, steps: dict[str, float]) -> bool:
    """Promote the canaries that are open, so that what waits for them goes on; returns whether there was any."""
    return any([_ramped(run, canary, steps, 1.0) for canary in [*steps]])  # noqa: C419 (all of them)


def _ramped(run: Cluster, canary: str, steps: dict[str, float], share: float) -> bool:
    """Request a further step of a canary that is done and open; returns whether it was possible."""
    outcome = run.outcomes.get(canary)
    if outcome is None or run.state != "running":
        return False
    if outcome.outcome != "done":
        del steps[canary]
        return False
    is_possible = 0 < run.changes.queue.share(canary) < (share or 1)
    if is_possible:
        run.ramp(canary, share)
    return is_possible


def _is_over(run: Cluster, change: str) -> bool:
    return change not in run.open or _is_decided(run, change)


def _is_decided(run: Cluster, change: str) -> bool:
    return any(one.change == change for one in run.journal)


def _until(chance: random.Random, played: PlayedLoops, reached: Callable[[], Any]) -> None:
    """Take steps until a condition holds, and mend the operator that stumbles whenever it is paused."""
    run = played.cluster
    def stands_still() -> bool:
        return bool(run.recoveries and run.supply.dry and run.supply.held)

    while run.state == "running" and not reached():
        if stands_still():
            run.release()  # what waits until sources have read again what they had read would wait for ever
        run.until(lambda: reached() or bool(run.paused) or stands_still(), STEPS)
        if run.paused:
            run.steps(chance.choice((0, 0, 30)))
        for operator in [*run.paused]:
            stumbling: Stumble = run.graph.operator(operator).function
            fix = run.request({operator: stumbling.function})
            run.until(lambda fix=fix: fix not in run.open, STEPS)  # type: ignore[misc]


def _begun(chance: random.Random, seed: int, kills: bool, small: bool, stumbles: bool = False) -> PlayedLoops:
    flow = draw_loop_flow(chance, small)
    rows = draw_rows(chance, flow, chance.randint(1, 14), 150)
    settings: dict[str, Any] = {
        "hosts": chance.randint(1, 3),
        "window": chance.choice((1, 300, 1_500, 20_000)),
        "chaining": chance.random() < 0.6,
        "commit_interval_ns": chance.choice((None, 5_000_000, 60_000_000)),
    }
    if kills:
        hazard = chance.choice((0.001, 0.003, 0.01))
        faults = Faults(
            hazard=hazard, host_kills=chance.choice((0, 1, 2, 3)), driver_kills=chance.choice((0, 0, 1)),
            slow=chance.random() < 0.2, reshapes=chance.random() < 0.5,
        )  # fmt: skip
        interval = chance.choice((None, 2_000_000, 5_000_000, 20_000_000))
        settings |= {"checkpoints": True, "faults": faults, "commit_interval_ns": interval}
    graph = flow.graph()
    if stumbles:
        graph = _stumbling(graph, chance.choice(("E1", "D")), chance.randrange(len(rows["S"])))
    return PlayedLoops(flow, rows, Cluster(graph, rows, seed=seed, **settings))


def _stumbling(graph: Graph, name: str, on: int) -> Graph:
    """The graph with an operator behind the loops, of which this one or that in front of them pauses on a row."""
    [out] = graph.in_edges("Z")
    edges = [one for one in graph.edges if one is not out] + [replace(out, to="D"), Edge("D", "Z")]
    operators = [*graph.operators, Operator("D", function=dict, workers=graph.operator("Z").workers)]
    return Graph("loops", tuple(_stumbler(one, on) if one.name == name else one for one in operators), tuple(edges))


def _stumbler(operator: Operator, on: int) -> Operator:
    return replace(operator, function=Stumble(operator.function, on), on_error="pause")


def _completed(played: PlayedLoops) -> PlayedLoops:
    played.cluster.run(STEPS)
    played.cluster.settle()
    return played


def _drawn_change(chance: random.Random, run: Cluster, names: Collection[str] = ()) -> dict[str, Any]:
    """New functions of some operators, or of these, which do as the present ones."""
    if names and chance.random() < 0.7:
        return {name: copy.copy(run.graph.operator(name).function) for name in names}
    changeable = [one for one in run.graph.operators if one.traits.runs_user_code]
    chosen = chance.sample(changeable, min(len(changeable), chance.choice((1, 2, 2, 3))))
    return {one.name: copy.copy(one.function) for one in chosen}


def try_loops(seed: int, kills: bool = False, small: bool = False, changes: bool = False) -> PlayedLoops:
    """Play a seed and check it; a failure names the call that replays it, to be made in tests/."""
    return _checked(lambda: play_loops(seed, kills, small, changes), f"try_loops({seed}, {kills}, {small}, {changes})")


def _checked(play: Callable[[], PlayedLoops], replay: str) -> PlayedLoops:
    try:
        played = play()
        for law in LAWS:
            law(played)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"{error}\n(replay: {replay})") from error
    return played


def try_killed(seed: int) -> PlayedLoops:
    """Likewise, with kills."""
    return try_loops(seed, kills=True)


def try_small(seed: int) -> PlayedLoops:
    """Likewise, with a small dataflow."""
    return try_loops(seed, small=True)


def try_small_killed(seed: int) -> PlayedLoops:
    """Likewise, with a small dataflow and kills."""
    return try_loops(seed, kills=True, small=True)


def try_changed(seed: int) -> PlayedLoops:
    """Likewise, with a small dataflow, some operators of which are changed."""
    return try_loops(seed, small=True, changes=True)


def try_changed_killed(seed: int, small: bool = True) -> PlayedLoops:
    """Likewise, and hosts are killed when such a change is decided, so that it is often deferred."""
    return _checked(lambda: play_deferred(seed, small=small), f"try_changed_killed({seed}, {small})")


def try_around(seed: int, kills: bool = False) -> PlayedLoops:
    """Likewise, with changes of operators in front of loops, between them and behind them, by any scheduler."""
    return _checked(lambda: play_around(seed, kills), f"try_around({seed}, {kills})")


def try_by_row(seed: int) -> PlayedLoops:
    """Likewise, with changes that are decided row by row, and what the journal says of each row."""

    def play() -> PlayedLoops:
        played = play_by_row(seed)
        follows_the_journal(played)
        return played

    return _checked(play, f"try_by_row({seed})")


def try_mended(seed: int) -> PlayedLoops:
    """Likewise, with a row on which an operator in front of the loop pauses until it is mended."""
    return _checked(lambda: play_deferred(seed, stumbles=True), f"try_mended({seed})")


def finishes(played: PlayedLoops) -> None:
    """Something could happen at every step, and the run has ended."""
    assert played.cluster.state == "finished", f"{played.cluster.error} {played.cluster.details}"


def accounts_for_every_row(played: PlayedLoops) -> None:
    """What came out is what the reference says, each row once, with the rounds that it made in each loop."""
    found = Counter(name_of(row) for row in played.cluster.rows("Z"))
    wanted = reference(played.flow, played.rows)["Z"]
    assert found == wanted, f"lacks {wanted - found}, has too much {found - wanted}"


def counts_every_round(played: PlayedLoops) -> None:
    """Keyed state inside a loop has met each row once in each of its rounds."""
    if played.cluster.hosts.spent:
        return  # the state of a worker that had ended when a checkpoint was taken is not restored
    wanted = reference(played.flow, played.rows)
    for name in played.flow.keyed:
        met: Counter[str] = Counter()
        for instance in played.cluster.instances(name):
            for states in instance.state.bins().values():
                for state in states.values():
                    met += state
        assert met == wanted.get(name, Counter()), f"{name} has met {met}"


def passes_the_audit(played: PlayedLoops) -> None:
    """The trace shows no transaction that lost or doubled a tuple, with all of its rounds."""
    if "the driver was killed" in played.cluster.recoveries:
        return  # the trace is that of two runs
    verdict = judge(played.cluster.records())
    assert not verdict.lost, f"lost: {verdict.lost[:3]}"
    assert not verdict.doubled, f"doubled: {verdict.doubled[:3]}"
    assert not verdict.mixed, f"mixed: {verdict.mixed[:3]}"
    assert not verdict.stale, f"switched in name only: {verdict.stale[:3]}"


def follows_the_journal(played: PlayedLoops) -> None:
    """In whatever round and incarnation, each row was processed by the version that the cuts in the journal say.

    If all changes are of this kind: another one, once a restart finds it decided, is followed by all other rows.
    """
    decided = [one for one in in_effect(played.cluster.journal) if one.payloads]
    if any(not one.steps for one in decided):
        return
    for record in played.cluster.records():
        if not isinstance(record, RanMany) or record.function is None:
            continue
        own = [one for one in decided if record.operator in one.targets]
        for row in record.transactions:
            mine = [one.change for one in own if is_new(one.steps, row)]
            version = mine[-1] if mine else ""
            assert record.function == version, f"{row} at {record.operator}: {record.function}, the journal: {version}"


def is_new(steps: Sequence[RolloutStep], identity: int) -> bool:
    """Whether a row is new for a change with these steps, by a rule of its own."""
    [cohort] = cohorts(pa.RecordBatch.from_pydict({TRANSACTION: [identity]}))
    above = [step for step in steps if identity & ((1 << ROW_BITS) - 1) > step.cut.get(identity >> ROW_BITS, -1)]
    return bool(above) and int(cohort) < above[-1].share * COHORTS


def applies_changes_in_order(played: PlayedLoops) -> None:
    """Every worker has applied its changes in the order of the decisions, and none is left to be applied."""
    order = [one.change for one in in_effect(played.cluster.journal)]
    for worker in played.cluster.workers.values():
        for instance in worker.instances:
            places = [order.index(change) for change in instance.applied]
            assert places == sorted(set(places)), f"{instance.worker} has applied {instance.applied}, of {order}"
            assert instance.deferred is None, f"{instance.worker} has not applied what was deferred"


def leaves_no_pointstamp(played: PlayedLoops) -> None:
    """At the end each host knows that nothing is outstanding, in whatever round."""
    if played.cluster.hosts.dead:
        return  # it was killed at the end, and has not told all
    for host, progress in played.cluster.hosts.progress.hosts.items():
        left = progress.state().counts
        assert not left, f"host {host} has {left}"


def leaves_nothing(played: PlayedLoops) -> None:
    """In the end nothing waits, nothing is blocked, every credit is back where it came from."""
    assert not played.cluster.controller.on_the_way
    for id_, worker in played.cluster.workers.items():
        assert worker.ended, f"{id_} has not ended"
        assert not worker._inbox.tuples, f"{id_} has {worker._inbox.tuples} tuples left"
        assert not worker._alignment.blocked, f"{id_} still blocks {worker._alignment.blocked}"
        for channel in worker.outbox._channels.values():
            assert not channel.queue, f"{channel.channel} has frames left"
            owed = 0 if played.cluster.hosts.dead else channel.outstanding
            assert not owed, f"{channel.channel} is owed {owed} bytes"


LAWS = (
    finishes, accounts_for_every_row, counts_every_round, passes_the_audit, applies_changes_in_order, leaves_nothing,
    leaves_no_pointstamp,
)  # fmt: skip
