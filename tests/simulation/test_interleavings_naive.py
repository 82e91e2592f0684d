"""Naive FCM is wrong exactly where the plan says so: on the paper's figures some interleaving mixes versions."""

from __future__ import annotations

import pytest
from soak import SOAK

from fries_nb.audit import judge
from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.planning import cover
from fries_nb.simulation import Cluster, stamp_functions
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.stamp_functions import Mark

UNSAFE = [
    (stamp_functions.running_example, ("FM", "MC")),
    (stamp_functions.running_example, ("FC", "MC")),
    (stamp_functions.figure_8, ("FMX",)),
    (stamp_functions.figure_8, ("FMX", "FMY")),
    (stamp_functions.figure_9_ii, ("E", "F")),
    (stamp_functions.figure_9_iii, ("X",)),
    (stamp_functions.figure_10, ("C", "D")),
    (stamp_functions.figure_10, ("C", "E")),
    (stamp_functions.unnested, ("F2",)),
]
SAFE = [
    (stamp_functions.running_example, ("FM",)),
    (stamp_functions.figure_8, ("FC",)),
    (stamp_functions.figure_9_ii, ("E",)),
    (stamp_functions.figure_9_ii, ("C",)),
    (stamp_functions.figure_10, ("E",)),
    (stamp_functions.figure_10, ("D",)),
    (stamp_functions.unnested, ("F1",)),
]


def _verdict(figure, targets, scheduler, seed, pruning=True):
    flow = DataflowBuilder("figure")
    figure(flow)
    cluster = Cluster(
        flow.graph(workers=1 + seed % 2), {"S0": source_rows("S0", 40)}, seed=seed, chaining=seed % 3 == 0, window=800
    )
    cluster.until(lambda: cluster.supply.read >= 10)
    change = cluster.request({name: Mark(name, 0, 1) for name in targets}, scheduler, pruning=pruning)
    cluster.run()
    assert cluster.state == "finished", f"seed {seed}: {cluster.error}"
    return cluster.outcomes[change].outcome, judge(cluster.records())


@pytest.mark.parametrize(("figure", "targets"), UNSAFE)
def test_naive_mixes_where_the_plan_calls_it_unsafe(figure, targets):
    """Some of a few seeds shows it, and `mixed` names a transaction with operators on both sides."""
    flow = DataflowBuilder("figure")
    figure(flow)
    assert not cover(flow.graph(), targets).naive_safe
    verdicts = (_verdict(figure, targets, "naive", seed)[1] for seed in range(100))
    bad = next((verdict for verdict in verdicts if not verdict.serializable), None)
    assert bad is not None
    assert bad.mixed
    assert all(mixed.old and mixed.new for mixed in bad.mixed)


@pytest.mark.parametrize(("figure", "targets"), SAFE)
def test_naive_never_mixes_where_the_plan_calls_it_safe(figure, targets):
    """And then Fries sends the same messages."""
    flow = DataflowBuilder("figure")
    figure(flow)
    assert cover(flow.graph(), targets).naive_safe
    for seed in range(3 * SOAK):
        assert _verdict(figure, targets, "naive", seed)[1].serializable, f"seed {seed}"


@pytest.mark.parametrize("scheduler", ["fries", "epoch"])
@pytest.mark.parametrize(("figure", "targets"), UNSAFE)
def test_where_naive_mixes_the_others_do_not(figure, targets, scheduler):
    """On the same figures, changes and seeds."""
    done = 0
    for seed in range(2 * SOAK):
        outcome, verdict = _verdict(figure, targets, scheduler, seed, pruning=seed % 2 == 0)
        assert verdict.serializable, f"seed {seed}"
        done += outcome == "done"
    assert done, "no change came through, so that nothing was shown"
