"""Random runs in which things go wrong, changed by any scheduler: the promises hold in all of them.

Hosts are killed at any step, one or all; the driver is, and the run resumed from its checkpoints; disks are full, a
host is slow, rows are poison. What comes out is what comes out of a run without all that: every tuple once, by
operators of one version, every change whole or absent.
"""

from __future__ import annotations

from collections import Counter

from interleaving_checks import lacking, try_focused, try_pausing, try_seed, try_troubled
from soak import SOAK

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation import Cluster, stamp_functions
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.hosts import Hosts
from fries_nb.simulation.rescaling_cluster import draw_reshaped


def test_every_promise_holds_of_state_changed_in_mid_stream():
    """Two keyed operators and two changes at a time at which both versions are on their way."""
    for seed in range(10 * SOAK):
        try_focused(seed)


def _shape(seed):
    """What a seed has met, with all laws checked."""
    met, played = Counter[str](), try_seed(seed, draw_reshaped)
    records, workers = played.cluster.store.records, played.cluster.workers.values()
    met["workers"] += any(one.snapshots and one.workers != records[-1].workers for one in records)
    chained = any(len(worker.instances) > 1 for worker in workers)
    met["chains"] += chained and not played.scenario.cluster["chaining"]
    return met


def test_every_promise_holds_of_a_run_resumed_in_another_shape():
    """With chains or without them, at other numbers of workers: the state of a key is where its rows go."""
    assert lacking(10, ("workers", "chains"), _shape, least=3, most=120, shown=(34, 40)) == {}


def test_a_tuple_that_pauses_its_operator_within_a_change_of_several_ends_no_run():
    """Its operator is fixed in the version that took the tuple; the change goes on behind it."""
    for seed in range(20 * SOAK):
        played = try_pausing(seed)
        assert played.cluster.state == "finished", f"seed {seed}: {played.cluster.error}"


def test_a_source_that_had_ended_is_read_no_more(monkeypatch):
    """Not even from a checkpoint taken before it says again that it has ended: it has no position to go on from."""
    rows = {name: source_rows(name, 12) for name in ("S0", "S1")}
    spent, dumb = WorkerId("S0", 0), set()
    feed = Hosts._feed
    monkeypatch.setattr(Hosts, "_feed", lambda hosts, source: source in dumb or feed(hosts, source))
    for seed in range(4 * SOAK):
        flow = DataflowBuilder("two sources")
        both = stamp_functions.source(flow).union("U", stamp_functions.source(flow, "S1"))
        stamp_functions.mark(both, "X").sink("out", memory())
        cluster = Cluster(flow.graph(workers=1), rows, seed=seed, hosts=1, checkpoints=True, commit_interval_ns=10**6)
        cluster.hold([WorkerId("S1", 0)])
        cluster.until(lambda cluster=cluster: _kept(cluster) and str(spent) in _kept(cluster)[-1].ended)
        dumb.add(spent)
        cluster.kill(0)
        kept = len(_kept(cluster))
        cluster.until(lambda cluster=cluster, kept=kept: cluster.recoveries and len(_kept(cluster)) > kept)
        dumb.clear()
        cluster.kill(0)
        cluster.release()
        cluster.run()
        found = sorted(row["id"] for row in cluster.rows("out"))
        assert found == sorted(row["id"] for given in rows.values() for row in given), f"seed {seed}"


def _kept(cluster):
    return cluster.store.records


def test_every_promise_holds_whatever_is_killed():
    """The same laws as without faults, and those of recovery."""
    schedulers = ("fries", "epoch", "multiversion", "minibatch", "restart")
    wanted = (*(f"{name} done" for name in schedulers), "host killed", "driver killed", "starts the run again",
              "decided, then lost", "decided, then orphaned", "records", "mended", "dead letters",
              "full disk")  # fmt: skip
    assert lacking(20, wanted, _met, most=200, shown=(167, 43)) == {}


def _met(seed):
    """What a seed has met, with all laws checked."""
    met, played = Counter[str](), try_troubled(seed)
    cluster = played.cluster
    for outcome in cluster.outcomes.values():
        met[f"{outcome.scheduler} {outcome.outcome}"] += 1
    for reason in cluster.recoveries:
        met["host killed"] += "was lost" in reason
        met["driver killed"] += "driver" in reason
        met["starts the run again"] += "starts the run again" in reason
    last = cluster.controller.incarnation
    for decided in cluster.journal:
        met["decided, then lost"] += decided.incarnation < last and decided.change in cluster.outcomes
        met["decided, then orphaned"] += decided.change in cluster.orphans
    met["records"] += len(cluster.store.records)
    met["mended"] += sum(not wish.at for wish in played.changes.values())
    met["dead letters"] += any(cluster.rows(name) for name in played.scenario.letters)
    met["full disk"] += any("no space" in ended.reason for ended in cluster.ended)
    return met
