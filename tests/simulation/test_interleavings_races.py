"""Changes that meet something else on their way: an end, a commit, another change, a stop.

Random runs meet all of it too; here each meeting is brought about on purpose, and again for many seeds.
"""

from __future__ import annotations

import pytest
from soak import SOAK

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.controller.events import Answered
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.simulation import Cluster, stamp_functions
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.stamp_functions import Mark, stamps

SEEDS = 8 * SOAK


def _two_sources():
    """S0 -> A -> U -> X, and S1 -> B -> U."""
    flow = fn.Dataflow("two sources")
    first, second = stamp_functions.source(flow), stamp_functions.source(flow, "S1")
    both = stamp_functions.mark(first, "A").union("U", stamp_functions.mark(second, "B"))
    stamp_functions.mark(both, "X").sink("out", fn.memory())
    return flow.graph(workers=2)


def _running(seed, **options):
    flow = fn.Dataflow("running example")
    stamp_functions.running_example(flow)
    options = {"hosts": 1 + seed % 3, "window": (1, 400, 5_000)[seed % 3], "chaining": seed % 2 == 0} | options
    return Cluster(flow.graph(workers=2), {"S0": source_rows("S0", 40)}, seed=seed, **options)


def _marks(version, *names):
    return {name: Mark(name, 0, version) for name in names}


def _versions(cluster):
    return {
        row["number"]: tuple(stamp.version for stamp in stamps(row["trail"])) for row in cluster.rows("out")
    }  # fmt: skip


def test_a_marker_passes_workers_that_have_ended():
    """The head has ended, a target below it lives on another source's tuples: the change reaches it all the same."""
    for seed in range(SEEDS):
        rows = {name: source_rows(name, 15) for name in ("S0", "S1")}
        cluster = Cluster(_two_sources(), rows, seed=seed, hosts=2, chaining=seed % 2 == 0)
        cluster.hold([WorkerId("S1", 0)])
        cluster.until(lambda cluster=cluster: all(w.ended for i, w in cluster.workers.items() if i.operator == "A"))
        change = cluster.request(_marks(1, "A", "X"))
        cluster.until(lambda cluster=cluster, change=change: change in cluster.outcomes)
        outcome = cluster.outcomes[change]
        assert outcome.outcome == "done", f"seed {seed}: {outcome.error}"
        switched = {str(worker) for worker, how in outcome.per_worker.items() if not how.ended}
        assert switched == {"X[0]", "X[1]"}, f"seed {seed}"
        cluster.release()
        cluster.run()
        assert judge(cluster.records()).serializable, f"seed {seed}"


@pytest.mark.parametrize("scheduler", ["fries", "epoch"])
def test_a_change_cancels_a_commit_on_its_way(scheduler):
    """The change need not wait for the commit; no row is committed twice or never, epochs stay cuts."""
    met = 0
    for seed in range(SEEDS):
        cluster = _running(seed, commit_interval_ns=10**9)
        cluster.hold(cluster.supply.sources)
        cluster.until(lambda cluster=cluster: cluster.supply.read >= 15)
        cluster.clock.advance(10**9)
        cluster.tick()
        cluster.steps(seed % 20)
        met += bool(cluster.controller.on_the_way)
        change = cluster.request(_marks(1, "FM", "MC"), scheduler)
        cluster.until(lambda cluster=cluster, change=change: change in cluster.outcomes)
        assert cluster.outcomes[change].outcome == "done", f"seed {seed}: {cluster.outcomes[change].error}"
        cluster.release()
        cluster.run()
        assert sorted(row["number"] for row in cluster.rows("out")) == list(range(40)), f"seed {seed}"
        assert judge(cluster.records()).serializable, f"seed {seed}"
    assert met > SEEDS // 2, "hardly any change met a commit"


def test_changes_asked_for_at_once_follow_each_other():
    """In the order asked for, each of them whole: no row shows a later change at FM than at MC, or the reverse."""
    for seed in range(SEEDS):
        cluster = _running(seed)
        cluster.until(lambda cluster=cluster: cluster.supply.read >= 10)
        changes = [cluster.request(_marks(version, "FM", "MC")) for version in (1, 2, 3)]
        cluster.run()
        outcomes = [cluster.outcomes[change].outcome for change in changes]
        assert outcomes == sorted(outcomes, key=("done", "failed", "aborted").index), f"seed {seed}: {outcomes}"
        assert list(cluster.outcomes) == changes, f"seed {seed}: resolved out of order"
        assert {fm == mc for _, fm, mc in _versions(cluster).values()} <= {True}, f"seed {seed}"


@pytest.mark.parametrize("drain", [False, True], ids=["stop", "drain"])
@pytest.mark.parametrize("scheduler", ["fries", "epoch"])
def test_an_end_may_fall_into_a_change(drain, scheduler):
    """At whatever step: the change has one outcome, what is committed is whole, and of one version."""
    for seed in range(SEEDS):
        cluster = _running(seed, commit_interval_ns=10_000_000)
        cluster.until(lambda cluster=cluster: cluster.supply.read >= 10)
        change = cluster.request(_marks(1, "FM", "MC"), scheduler)
        cluster.steps(seed * 5 % 190)
        if cluster.state == "running":
            cluster.stop(drain=drain)
        cluster.run()
        cluster.settle()
        assert cluster.state in ("finished", "stopped"), f"seed {seed}: {cluster.error}"
        assert list(cluster.outcomes) == [change], f"seed {seed}"
        shown = _versions(cluster)
        assert sorted(shown) == list(range(len(shown))), f"seed {seed}: what is committed is no prefix"
        assert {fm == mc for _, fm, mc in shown.values()} <= {True}, f"seed {seed}"
        assert judge(cluster.records()).serializable, f"seed {seed}"


def test_a_stop_knows_how_many_tuples_are_not_in_the_output():
    """At whatever step: what was read is what is committed and what is counted as missing."""
    missing = 0
    for seed in range(SEEDS):
        cluster = _running(seed, commit_interval_ns=10_000_000)
        cluster.until(lambda cluster=cluster: cluster.supply.read >= 10)
        cluster.steps(seed * 7 % 190)
        if cluster.state != "running":
            continue
        cluster.stop()
        read = 0
        for source in (one for one in cluster.graph.by_name if one in cluster.graph.sources):
            for instance in cluster.instances(source):
                read += instance.processed
                report = Answered(Report(instance.worker, instance.processed, 0))
                assert cluster.controller.handle(report, cluster.clock()) == []
        left = cluster.controller.uncommitted
        assert left.tuples == read - len(cluster.rows("out")), f"seed {seed}"
        assert left.first == (not cluster.epochs) or not cluster.rows("out"), f"seed {seed}"
        missing += left.tuples
    assert missing, "nothing was ever missing"
