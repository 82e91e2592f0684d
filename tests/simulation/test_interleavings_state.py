"""The state after a change is the transformed one: the changed run, tuple by tuple, against a plain reference.

Random dataflows check the same with counters (`keeps_state`); here it is the paper's running example.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from soak import SOAK

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.simulation import Cluster
from fries_nb.workloads.fraud import CustomerModel, MerchantModel, fraud_change, fraud_flow, keep_five, replay_fraud

SEEDS = 9 * SOAK


def payments(seed, count=120):
    """Few customers and terminals, so that windows fill and states matter."""
    chance = random.Random(seed)
    return [
        {
            "n": n,
            "CUSTOMER_ID": chance.randrange(5),
            "TERMINAL_ID": chance.randrange(4),
            "TX_AMOUNT": round(chance.uniform(1, 500), 2),
        }
        for n in range(count)
    ]


def changed_run(seed, scheduler, at=40):
    """The running example with FM and MC changed once ``at`` payments have been read."""
    rows = payments(seed)
    graph = fraud_flow(fn.rate(None, count=1), fn.memory(), workers=2).graph()
    one_fc = [operator if operator.name != "FC" else _alone(operator) for operator in graph.operators]
    graph = type(graph)(graph.name, tuple(one_fc), graph.edges)
    cluster = Cluster(graph, {"payments": rows}, hosts=1 + seed % 3, seed=seed, window=1_200, chaining=seed % 2 == 0)
    cluster.until(lambda: cluster.supply.read >= at)
    change = cluster.request(fraud_change(), scheduler)
    cluster.run()
    assert cluster.state == "finished", f"seed {seed}: {cluster.error}"
    return rows, cluster, cluster.outcomes[change]


def _alone(operator):
    """One worker of FC, so that a terminal's payments come to FM in the order of the source."""
    return replace(operator, workers=1)


@pytest.mark.parametrize("scheduler", ["fries", "epoch"])
def test_the_running_example_agrees_with_its_reference(scheduler):
    """Every value of every payment is what plain Python computes that switches at the same payments."""
    switched_midway = 0
    for seed in range(SEEDS // 2):
        rows, cluster, outcome = changed_run(seed, scheduler)
        out = {row["n"]: row for row in cluster.rows("scored")}
        assert sorted(out) == list(range(len(rows)))
        expected = replay_fraud(rows, lambda row, out=out: out[row["n"]].get("p_m10") is not None)
        for row in expected:
            found = {name: out[row["n"]].get(name) for name in row}
            assert found == row, f"seed {seed}: {found} instead of {row}"
        new = sum(row.get("p_m10") is not None for row in out.values())
        assert outcome.outcome == "done" or not new
        switched_midway += 0 < new < len(rows)
        assert judge(cluster.records()).serializable
    assert switched_midway > SEEDS // 8, "hardly any change came between two payments, so that little was shown"


def test_a_change_and_its_way_back_leave_what_a_reference_leaves():
    """Two changes after each other, with states that the second must take from whatever the first has touched."""
    for seed in range(SEEDS // 3):
        rows = payments(seed, 90)
        flow = fn.Dataflow("there and back")
        stream = flow.source("payments", fn.rate(None, count=1))
        stream = stream.map("FC", CustomerModel(), key="CUSTOMER_ID", workers=1)
        stream.map("FM", MerchantModel(), key="TERMINAL_ID", workers=2).sink("out", fn.memory())
        cluster = Cluster(flow.graph(), {"payments": rows}, seed=seed, window=1_000)
        cluster.hold(cluster.supply.sources)
        change = {"FM": fraud_change()["FM"]}
        cluster.until(lambda cluster=cluster: cluster.supply.read >= 30)
        cluster.request(change)
        cluster.steps(seed * 7)
        cluster.request({"FM": fn.Update(MerchantModel(), state=keep_five)})
        cluster.until(lambda cluster=cluster: len(cluster.outcomes) == 2)
        assert {outcome.outcome for outcome in cluster.outcomes.values()} == {"done"}, f"seed {seed}"
        cluster.release()
        cluster.run()
        for terminal, amounts in _states(cluster).items():
            seen = [row["TX_AMOUNT"] for row in rows if row["TERMINAL_ID"] == terminal]
            # Five payments were kept throughout, and no null can be among five known ones.
            assert amounts == seen[::-1][:5], f"seed {seed}, terminal {terminal}"


class Numbering:
    """A map that keeps a count in its own attributes."""

    def __init__(self):
        self.count = 0

    def __call__(self, row):
        self.count += 1
        return row | {"count": self.count}


def test_a_rehearsal_leaves_no_trace():
    """The new function's first tuple is the first after the switch, not the one that it was tried on."""
    rehearsed = 0
    for seed in range(SEEDS // 3):
        flow = fn.Dataflow("numbering")
        stream = flow.source("s", fn.rate(None, count=1)).map("A", lambda row: row | {"count": 0}, workers=1)
        stream.sink("out", fn.memory())
        cluster = Cluster(flow.graph(), {"s": [{"n": n} for n in range(30)]}, seed=seed)
        cluster.hold(cluster.supply.sources)
        cluster.until(lambda cluster=cluster: cluster.instances("A")[0].processed > 5)
        change = cluster.request({"A": Numbering()}, rehearse=True)
        cluster.until(lambda cluster=cluster, change=change: change in cluster.outcomes)
        assert cluster.outcomes[change].outcome == "done"
        cluster.release()
        cluster.run()
        counts = [row["count"] for row in sorted(cluster.rows("out"), key=lambda row: row["n"]) if row["count"]]
        assert counts == list(range(1, len(counts) + 1)), f"seed {seed}: {counts}"
        rehearsed += bool(counts)
    assert rehearsed


def _states(cluster):
    found = {}
    for instance in cluster.instances("FM"):
        for states in instance.state.bins().values():
            found.update(states)
    return found
