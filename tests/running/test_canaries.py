"""Canaries as a user asks for them: the shares of their steps, what waits for them, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.arguments import checked_canary
from fries_nb.errors import PlanError
from fries_nb.simulation.cluster import Cluster

ROWS = [{"value": value, "a": -1} for value in range(400)]


def stamped(version: int) -> Any:
    """A function that shows its version."""
    return lambda row: row | {"a": version}


def canary_of(cluster: Cluster, share: float = 0.2) -> Any:
    """A canary of A that is done."""
    change = cluster.request({"A": stamped(1)}, "cut", share=share)
    cluster.until(lambda: change in cluster.outcomes)
    return next(one for one in cluster.changes.queue.changes if one.id == change)


@pytest.fixture
def cluster() -> Cluster:
    """A and B behind a source, which is held."""
    flow = fn.Dataflow("canary")
    flow.source("S", fn.rate(None, count=4), workers=2).map("A", stamped(0)).map("B", dict).sink("out", fn.memory())
    made = Cluster(flow.graph(workers=2), {"S": ROWS}, seed=3, window=300)
    made.hold([one for one in made.workers if one.operator == "S"])
    made.steps(60)
    return made


def ended(cluster: Cluster, change: Any) -> str:
    """The outcome of a change."""
    cluster.post()
    cluster.until(lambda: change.id in cluster.outcomes)
    return cluster.outcomes[change.id].outcome


def test_a_share_rises_to_all_rows(cluster: Cluster) -> None:
    """Each step is a change of its own, and says of what."""
    canary = canary_of(cluster)
    steps = [canary.ramp(0.25)]
    assert (ended(cluster, steps[0]), canary.share, steps[0].origin) == ("done", 0.25, f"25% of {canary.id}")
    steps.append(canary.promote())
    assert (ended(cluster, steps[1]), canary.share) == ("done", 1.0)
    cluster.release()
    cluster.run()
    assert {row["a"] for row in cluster.rows("out")} == {0, 1}


def test_a_rollback_is_a_step_to_none(cluster: Cluster) -> None:
    """Also as the rollback of the run; what is asked for afterwards is refused."""
    canary = canary_of(cluster)
    back = cluster.changes.queue.roll_back()
    assert (ended(cluster, back), back.origin, canary.share) == ("done", f"rollback of {canary.id}", 0.0)
    for go_on in (canary.promote, lambda: canary.ramp(0.5)):
        with pytest.raises(PlanError, match="was rolled back, so it has no further step"):
            go_on()


def test_a_promoted_canary_is_rolled_back_as_any_change(cluster: Cluster) -> None:
    """Wholly, once; it has no further step, before or behind that."""
    canary = canary_of(cluster)
    assert ended(cluster, canary.promote()) == "done"
    back = canary.rollback()
    assert (ended(cluster, back), back.origin) == ("done", f"rollback of {canary.id}")
    for go_on in (canary.promote, lambda: canary.ramp(0), lambda: canary.ramp(0.5)):
        with pytest.raises(PlanError, match="was promoted, so it has no further step"):
            go_on()
    with pytest.raises(PlanError, match=f"cannot be rolled back: change {back.id} has rolled it back"):
        canary.rollback()


def test_others_wait_until_one_version_is_left(cluster: Cluster) -> None:
    """Whatever they change."""
    canary = canary_of(cluster)
    other = cluster.request({"B": dict}, "fries")
    cluster.steps(300)
    assert other not in cluster.outcomes
    assert ended(cluster, canary.promote()) == "done"
    cluster.release()
    cluster.until(lambda: other in cluster.outcomes)
    assert cluster.outcomes[other].outcome == "done"


def test_a_rescale_does_not_wait_for_a_commit(cluster: Cluster) -> None:
    """Of a run that has none before its end, a marker closes the cuts."""
    change = cluster.changes.queue.request({"A": fn.Update(stamped(1))}, "cut")
    assert ended(cluster, change) == "done"
    assert cluster.controller._life.changes.cuts.open == (change.id,)
    cluster.controller._life.changes.awaits_quiet = lambda: True
    cluster.until(lambda: not cluster.controller._life.changes.cuts.open)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.1, "a share only rises, so that no row goes back to the old version"),
        (0.2, "a share only rises"),
        (1.5, "expected a number from 0 to 1"),
        (-0.1, "expected a number from 0 to 1"),
        (True, "expected a number from 0 to 1"),
        ("5%", "expected a number from 0 to 1"),
        (float("nan"), "expected a number from 0 to 1"),
        (None, "expected a number from 0 to 1"),
    ],
)
def test_a_share_that_is_none_is_refused(cluster: Cluster, share: Any, words: str) -> None:
    """By name, and the canary goes on."""
    canary = canary_of(cluster)
    with pytest.raises(PlanError, match=words):
        canary.ramp(share)
    assert canary.share == 0.2


def test_one_canary_is_open_at_a_time(cluster: Cluster) -> None:
    """Another one is refused, and so are steps of what is none."""
    canary = canary_of(cluster)
    with pytest.raises(PlanError, match=rf"change {canary.id} is a canary, and one is open at a time"):
        cluster.request({"B": dict}, "cut", share=0.5)
    assert ended(cluster, canary.promote()) == "done"
    with pytest.raises(PlanError, match="was promoted, so it has no further step"):
        canary.ramp(0.9)
    plain = cluster.changes.queue.request({"B": fn.Update(dict)}, "cut")
    assert ended(cluster, plain) == "done"
    with pytest.raises(PlanError, match="is no canary"):
        plain.promote()


@pytest.mark.parametrize(
    ("update", "guard", "words"),
    [
        (fn.Update(stamped(1), state=len), None, "the state of A cannot be transformed without"),
        (fn.Update(stamped(1)), 5.0, "has no guard of its own"),
    ],
)
def test_what_the_cut_cannot_do_is_refused(cluster: Cluster, update: fn.Update, guard: Any, words: str) -> None:
    """Before anything is shipped."""
    with pytest.raises(PlanError, match=words):
        cluster.changes.queue.request({"A": update}, "cut", limit=guard, share=0.5)


@pytest.mark.parametrize("share", [0, 1, 1.2, -0.1, True, "half", float("nan")])
def test_a_canary_has_a_share_between_none_and_all(share: Any) -> None:
    """The others are plain changes, or none."""
    with pytest.raises(PlanError, match="expected the share of rows that are new"):
        checked_canary(share, merge=False, scheduler="fries")


@pytest.mark.parametrize("scheduler", ["epoch", "naive", "multiversion", "restart", "minibatch"])
def test_a_canary_is_made_by_the_cut(scheduler: str) -> None:
    """Another one is refused, and not replaced in silence."""
    with pytest.raises(PlanError, match=f"got a canary with scheduler='{scheduler}'"):
        checked_canary(0.5, merge=False, scheduler=scheduler)


def test_cohorts_of_a_column_pass_the_audit() -> None:
    """The trace has no cohorts, so that only the shares of none and all are computed again."""
    flow = fn.Dataflow("columns")
    rows = [{"value": value, "customer": value % 9, "a": -1} for value in range(400)]
    source = flow.source("S", fn.rate(None, count=4), workers=2, cohort="customer")
    source.map("A", stamped(0)).map("B", dict).sink("out", fn.memory())
    cluster = Cluster(flow.graph(workers=2), {"S": rows}, seed=3, window=300)
    cluster.hold([one for one in cluster.workers if one.operator == "S"])
    cluster.steps(60)
    canary = canary_of(cluster, 0.5)
    cluster.steps(60)
    assert ended(cluster, canary.promote()) == "done"
    cluster.release()
    cluster.run()
    verdict = judge(cluster.records())
    assert (verdict.serializable, verdict.stale) == (True, ())


def test_a_step_behind_a_restart_is_above_what_was_read() -> None:
    """Workers that have begun nothing since then do not say so, and rows of the checkpoint are decided already."""
    flow = fn.Dataflow("restarted")
    source = flow.source("S", fn.rate(None, count=4), workers=2)
    source.map("A", stamped(0)).map("B", dict).sink("out", fn.memory())
    cluster = Cluster(flow.graph(workers=2), {"S": ROWS}, seed=3, checkpoints=True, window=300)
    cluster.hold([one for one in cluster.workers if one.operator == "S"])
    cluster.steps(60)
    canary = canary_of(cluster)
    cluster.steps(1_000)
    kept = cluster.checkpoint()
    cluster.until(lambda: cluster.asked[kept] is not None)
    cluster.kill(0)
    cluster.until(lambda: bool(cluster.recoveries))
    read = dict(cluster.store.restoration().checkpoint.reach.read)
    assert ended(cluster, canary.ramp(0.5)) == "done"
    first, last = cluster.journal[-1].steps
    assert first.cut != read == {origin: min(position, read[origin]) for origin, position in last.cut.items()}


def test_old_functions_are_dropped_behind_a_requeue() -> None:
    """Rows of dead letters are in the cut, and no source ever reads beyond them."""
    flow = fn.Dataflow("requeued")
    source = flow.source("S", fn.rate(None, count=4), workers=2)
    source.map("A", failing, on_error=fn.memory()).map("B", dict).sink("out", fn.memory())
    cluster = Cluster(flow.graph(workers=2), {"S": ROWS}, seed=3, checkpoints=True, window=300)
    cluster.hold([one for one in cluster.workers if one.operator == "S"])
    cluster.steps(1_000)

    def commit() -> None:
        kept = cluster.checkpoint()
        cluster.until(lambda: cluster.asked[kept] is not None)

    commit()
    letters = cluster.rows("A")[:3]
    for version in (1, 2):
        change = cluster.request({"A": stamped(version)}, "cut")
        cluster.until(lambda change=change: change in cluster.outcomes)
        if version == 1:
            given = cluster.requeue("A", letters)
            cluster.until(lambda given=given: given in cluster.requeued)
    assert sum(origin < 0 for origin in cluster.journal[-1].steps[-1].cut) == len(letters)
    commit()
    assert cluster.controller._life.changes.cuts.open == ()


def failing(row: dict[str, Any]) -> dict[str, Any]:
    """A new version that fails on some rows."""
    if row["value"] % 5 == 0:
        raise ValueError("no such customer")
    return row | {"a": 1}


def test_a_canary_that_fails_is_rolled_back_from_the_last_checkpoint() -> None:
    """Nothing of it is in the results, and the run goes on; without a checkpoint the run fails."""
    flow = fn.Dataflow("failing")
    source = flow.source("S", fn.rate(None, count=4), workers=2)
    source.map("A", stamped(0)).map("B", dict).sink("out", fn.memory())
    for recovers in (True, False):
        how = {"checkpoints": recovers, "commit_interval_ns": 2_000_000, "window": 300}
        cluster = Cluster(flow.graph(workers=2), {"S": ROWS}, seed=5, **how)
        cluster.steps(60)
        change = cluster.request({"A": failing}, "cut", share=0.5)
        cluster.run()
        assert cluster.state == ("finished" if recovers else "failed")
        if recovers:
            assert cluster.changes.guards[change].rolled_back
            assert sorted(row["value"] for row in cluster.rows("out")) == list(range(400))
            assert {row["a"] for row in cluster.rows("out")} == {0}
            assert cluster.changes.queue.share(change) == 0.0
