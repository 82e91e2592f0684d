"""Random runs whose changes are under guard, most of them bad: what fails soon is rolled back by itself, and is whole.

A bad function fails on some tuples, or makes of them what the next operator fails on. Whatever happens, every tuple is
processed once, by operators of one version; with a guard that lasts, and a way back, no such run fails.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from interleaving_checks import (
    commits_cuts,
    is_lossless,
    journals_decisions,
    keeps_order,
    lacking,
    leaves_nothing,
    never_mixes,
    numbers_epochs,
    traces_everything,
    try_seed,
)
from soak import SOAK, caught, first_tried

from fries_nb.audit import judge
from fries_nb.controller.failure_rules import FailureRules
from fries_nb.controller.guards import Guards, Watch
from fries_nb.controller.known_changes import KnownChanges
from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator
from fries_nb.dataflow.updates import Update
from fries_nb.operators import kinds
from fries_nb.operators.instance import Instance
from fries_nb.simulation import Cluster
from fries_nb.simulation.rescaling_cluster import RechainingCluster
from fries_nb.simulation.scenarios import MOST_STEPS, draw_awaiting_guards, draw_guarded
from fries_nb.simulation.stamp_functions import stamps
from fries_nb.worker import snapshot


def try_guarded(seed, cluster=Cluster):
    """Play the scenario of a seed and check it."""
    return try_seed(seed, draw_guarded, cluster, LAWS)


def test_what_fails_under_guard_is_rolled_back_while_chains_are_fused_and_split():
    """Where a tuple is tried again by the workers that share it then, which the paused one names."""
    met: Counter[str] = Counter()
    for seed in (*range(7 * SOAK), 90):
        cluster = try_guarded(seed, RechainingCluster).cluster
        met["chains"] += sum(not answer.error for answer in cluster.chained)
        met["paused"] += sum("is paused on a tuple" in answer.error for answer in cluster.chained)
        met["rolled back"] += sum(ended.rolled_back for ended in cluster.guards.values())
    assert min(met["chains"], met["paused"], met["rolled back"]) > 0, met


def _met(seed: int) -> Counter[str]:
    """What a seed has met, with all laws checked."""
    met, played = Counter[str](), try_guarded(seed)
    cluster = played.cluster
    met[f"{cluster.state}"] += 1
    for change, ended in cluster.guards.items():
        how = played.changes[change]
        met["rolled back"] += ended.rolled_back
        met[f"rolled back, {how.scheduler}"] += ended.rolled_back
        met["never failed"] += ended.reason == "the new configuration has not failed"
        met["superseded"] += "came after it" in ended.reason
        met["spoilt"] += ended.rolled_back and bool(how.spoils)
        met["state transformed"] += ended.rolled_back and how.transforms
    back = any("by its guard" in reason for reason in cluster.recoveries)
    fired = any(ended.rolled_back for ended in cluster.guards.values())
    met["from a checkpoint"] += back
    met["in place"] += fired and not back
    met["a host lost meanwhile"] += fired and any("was lost" in reason for reason in cluster.recoveries)
    return met


def test_what_fails_under_guard_is_rolled_back_and_everything_is_whole():
    """All laws of a run without failures, and those of guards."""
    by_all = tuple(f"rolled back, {name}" for name in ("fries", "epoch", "multiversion", "minibatch"))
    wanted = ("in place", "from a checkpoint", "never failed", "superseded", "spoilt", "state transformed", "failed",
              "a host lost meanwhile", *by_all)  # fmt: skip
    assert lacking(20, wanted, _met, least=2, most=120, shown=(36, 20, 25, 26, 40)) == {}


def _of_coroutines(seed: int) -> Counter[str]:
    cluster = try_seed(seed, draw_awaiting_guards, laws=LAWS).cluster
    return Counter({"rolled back": sum(ended.rolled_back for ended in cluster.guards.values())})


def test_so_is_what_fails_of_coroutines():
    """A row on which the new function fails is called again by the one before, ahead of those behind it."""
    assert lacking(8, ("rolled back",), _of_coroutines, most=40) == {}


# ---- the laws


def ends_as_its_guards_say(played):
    """A run fails only by a bad function, of a change without a guard that lasted or without a way back."""
    cluster = played.cluster
    assert cluster.state in ("finished", "failed"), cluster.state
    assert cluster.outcomes.keys() | cluster.orphans == set(played.changes)
    if cluster.state == "failed":
        culprits = [change for change, wish in played.changes.items() if wish.bad]
        assert culprits, f"{cluster.error} {cluster.details}"
        excused = [change for change in culprits if not _would_be_saved(played, change)]
        assert excused, f"failed in spite of its guards: {cluster.error} {cluster.guards}"


def _would_be_saved(played, change):
    """The guard lasted as long as the run, and the run could have gone back."""
    wish, ended = played.changes[change], played.cluster.guards.get(change)
    if ended is not None and ended.rolled_back:
        return True  # what is undone fails no more
    lasted = ended is None or ended.reason == "the run failed"
    keeps_state = not wish.transforms or wish.returns
    return lasted and played.scenario.cluster["checkpoints"] and keeps_state


def fires_for_failures(played):
    """A guard fires once at most, for a failure of a bad function, and its rollback is in the journal.

    Below the targets of a change a failure counts as its own: of two changes the later one may be blamed.
    """
    cluster = played.cluster
    undone = {entry.undoes for entry in cluster.journal if entry.undoes}
    for change, ended in cluster.guards.items():
        bad = any(wish.bad for name, wish in played.changes.items() if name == change or len(played.changes) > 1)
        assert not ended.rolled_back or (bad and ended.error), ended
        assert not ended.rolled_back or change in undone
    if cluster.state == "finished":
        assert undone == {change for change, ended in cluster.guards.items() if ended.rolled_back}
        done = {change for change, outcome in cluster.outcomes.items() if outcome.outcome == "done"}
        assert done <= cluster.guards.keys()


def leaves_the_old_configuration(played):
    """Of a change alone that was rolled back no worker runs anything, and nobody is under guard in the end."""
    cluster = played.cluster
    if cluster.state != "finished":
        return
    gone = len(played.changes) == 1 and any(ended.rolled_back for ended in cluster.guards.values())
    undone = any("by its guard" in reason for reason in cluster.recoveries)
    for name in played.scenario.flow.changeable:
        for instance in cluster.instances(name):
            assert not instance.guarded, f"{instance.worker} is still under guard"
            back = undone or "u1.back" in instance.applied
            if gone and back and instance.worker not in cluster.hosts.spent:
                assert getattr(instance.function, "version", 0) == 0, f"{instance.worker} runs what was rolled back"


def is_serializable(played):
    """A change and its rollback are two updates, in one order everywhere."""
    if len(played.changes) == 1:
        verdict = judge(played.cluster.records())
        assert verdict.serializable, f"not serializable: {verdict.cycle} {verdict.cycle_at}"


def shows_old_or_new(played):
    """Without the audit: of a change alone, all rows of a source tuple show it, or none does."""
    if len(played.changes) > 1:
        return
    [wish] = played.changes.values() or [None]
    seen = defaultdict(set)
    for sink in played.scenario.graph.sinks:
        for row in played.cluster.rows(sink):
            for stamp in stamps(row["trail"]):
                if wish is not None and stamp.operator in wish.targets:
                    seen[row[TRANSACTION]].add(stamp.version == wish.version)
    assert not [transaction for transaction, sides in seen.items() if len(sides) > 1]


def counts_each_tuple_once(played):
    """What a failure had written is not in the state, and what was tried again is there once."""
    cluster = played.cluster
    if cluster.state != "finished":
        return
    for name in played.scenario.flow.keyed:
        logged, wanted = defaultdict(Counter), defaultdict(Counter)
        for instance in cluster.instances(name):
            for states in instance.state.bins().values():
                for key, state in states.items():
                    logged[key].update(id_ for id_, _ in state["log"])
        for row in played.scenario.expected.at[name]:
            wanted[row["customer"]][row["id"]] += 1
        for key, ids in logged.items():
            assert ids == wanted[key], f"{name} did not count each of {key} once: {ids - wanted[key]}"


LAWS = (
    ends_as_its_guards_say,
    journals_decisions,
    is_lossless,
    commits_cuts,
    never_mixes,
    is_serializable,
    shows_old_or_new,
    counts_each_tuple_once,
    keeps_order,
    leaves_nothing,
    traces_everything,
    numbers_epochs,
    fires_for_failures,
    leaves_the_old_configuration,
)


# ---- a change that replaces what is under guard


class Tally:
    """Counts a key's rows in units of its own; fails on the row of this number."""

    def __init__(self, unit=1, bad=-1):
        self.unit, self.bad = unit, bad

    def initial_state(self):
        return {"total": 0}

    def process(self, row, state):
        if row["n"] == self.bad:
            raise ValueError(f"not {self.bad}")
        state["total"] += self.unit
        return row | {"count": state["total"] // self.unit}


def scaled(factor):
    """The state of a tally in other units."""
    return lambda state: {"total": int(state["total"] * factor)}


def replaced_under_guard(seed, scheduler, checkpoints=False):
    """S > A > Out: A is changed under guard, and back on request, about when it fails; what the run came to."""
    operators = (
        Operator("S", kind=Kind.SOURCE, function=rate(None, count=1)),
        Operator("A", function=Tally(), key=("k",)),
        Operator("Out", kind=Kind.SINK, function=memory()),
    )
    graph = Graph("replaced", operators, (Edge("S", "A"), Edge("A", "Out")))
    commits = {"checkpoints": True, "commit_interval_ns": 5_000_000} if checkpoints else {}
    rows = [{"k": 0, "n": n} for n in range(24)]
    cluster = Cluster(graph, {"S": rows}, seed=seed, window=300, **commits)
    cluster.hold(cluster.supply.sources)
    bad = {"A": Update(Tally(10, bad=12), state=scaled(10), back=scaled(0.1))}
    back = {"A": Update(Tally(), state=scaled(0.1))}
    later = random.Random(seed).randrange(40)
    asked = [cluster.request(bad, guard=1_000.0)]
    for _ in range(MOST_STEPS):
        cluster.step()
        later -= "u1" in cluster.outcomes
        if later == 0 and asked == ["u1"] == list(cluster.controller.changes):  # its guard has not fired
            asked.append(cluster.request(back, scheduler))
        if len(cluster.outcomes) > 1 or cluster.guards:
            cluster.release()
        if cluster.state != "running":
            break
    counts = [row["count"] for row in cluster.rows("Out")]
    return cluster, sorted(counts) == list(range(1, len(rows) + 1))


@pytest.mark.parametrize(("scheduler", "checkpoints"), [("fries", False), ("fries", True), ("epoch", True)])
def test_a_change_that_replaces_what_is_under_guard_comes_in_time(scheduler, checkpoints):
    """The bad function fails while the change back is on its way: that is met in front of the tuple, or before it."""
    met = Counter()
    for seed in range(30 * SOAK):
        cluster, is_whole = replaced_under_guard(seed, scheduler, checkpoints)
        assert cluster.state == "finished", f"seed {seed}: {cluster.error}"
        assert is_whole, f"seed {seed}"
        met.update("fired" if guard.rolled_back else "replaced" for guard in cluster.guards.values())
        met["went back"] += any("replaces" in reason for reason in cluster.recoveries)
    assert not {"replaced", "fired"} - met.keys()
    assert bool(met["went back"]) == (scheduler == "epoch"), met


# ---- broken on purpose


def _without_rollbacks(changes, change, apply=snapshot._DecidedChanges.apply):
    if not change.undoes:
        apply(changes, change)


def _keeping_rows(instances, outputs, undos, step):
    def kept(row):
        try:
            step(row)
        finally:
            for output in outputs:
                output.join()

    return kept


BROKEN = {
    "every tuple in place": (Watch, "in_place", lambda watch, operator: True),
    "guards outlive later changes": (Guards, "meeting", lambda guards, operators: []),
    "states are not undone": (kinds, "undoable", lambda instance, undos, step: step),
    "rows are not undone": (kinds, "whole", _keeping_rows),
    "a rollback changes nothing": (Instance, "_switch_back", lambda instance, rollback, previous: None),
    "restored with the bad function": (snapshot._DecidedChanges, "apply", _without_rollbacks),
    "never lets go": (KnownChanges, "let_go", lambda changes, change, reason: []),
    "no failure concerns it": (FailureRules, "_undone", lambda *of: []),
    "waits for nothing": (FailureRules, "_failed_under_guard", lambda rules, paused, now_ns: []),
}
SHOWN = dict(zip(BROKEN, (8, 73, 46, 46, 20, 4, 28, 40, 4), strict=True))


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_guard_is_caught(monkeypatch, broken):
    """Each of these builds breaks a law for some seed."""
    monkeypatch.setattr(*BROKEN[broken])
    assert caught(first_tried(SHOWN[broken], 200), try_guarded) is not None
