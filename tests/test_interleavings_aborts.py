"""A change that cannot be prepared is aborted: nothing changed, nothing is kept of it, and the next change works."""

from __future__ import annotations

import pytest
from interleaving_checks import SOAK, caught

import fries_nb as fn
from fries_nb.testing import Cluster
from fries_nb.testing.flows import source_rows
from fries_nb.testing.functions import Convert, Counter, Mark, Poison, Slices, Unloadable, Unopenable, stamps
from fries_nb.worker.instance import Instance

SEEDS = 25 * SOAK


def _refuse_state(state):
    raise KeyError("what the old state does not have")


def _forget_to_return(state):
    state["form"] = 1


BAD = {
    "open() raises": ({"K": Unopenable("K", 0, 1)}, False, "failed in open(): OSError: no such model"),
    "cannot be unpickled": ({"K": Unloadable("K", 0, 1)}, False, "no module for K here"),
    "the transformation raises": ({"K": fn.Update(Counter("K", 0, 1), state=_refuse_state)}, False, "transformation"),
    "the transformation returns nothing": (
        {"K": fn.Update(Counter("K", 0, 1), state=_forget_to_return)}, False, "returned None",
    ),
    "a rehearsal raises": ({"K": Poison("K", 0, 1)}, True, "K is poison"),
    "batches for rows": ({"K": Slices("K", 0, 1)}, False, "a change keeps rows or batches"),
    "one of two": ({"M": Mark("M", 0, 1), "K": Unopenable("K", 0, 1)}, False, "new K failed in open()"),
    "the other of two": ({"M": Unopenable("M", 0, 1), "K": Counter("K", 0, 1)}, False, "new M failed in open()"),
}  # fmt: skip


def _cluster(seed):
    flow = fn.Dataflow("aborts")
    stream = flow.source("S0", fn.rate(None, count=1)).map("K", Counter("K"), key="customer")
    stream.map("M", Mark("M"), key="id").sink("out", fn.memory())
    cluster = Cluster(
        flow.graph(workers=2), {"S0": source_rows("S0", 60)}, hosts=1 + seed % 2, seed=seed, window=900,
        commit_interval_ns=None if seed % 3 else 30_000_000,
    )  # fmt: skip
    cluster.hold(cluster.supply.sources)
    cluster.until(lambda: all(instance.processed for instance in cluster.instances("K")))
    return cluster


def _abort(seed, change, rehearse, says):
    """Ask for a bad change, then for a good one; check what came of both."""
    cluster = _cluster(seed)
    bad = cluster.request(change, rehearse=rehearse)
    cluster.until(lambda: bad in cluster.outcomes)
    assert cluster.outcomes[bad].outcome == "aborted", f"seed {seed}"
    assert says in cluster.outcomes[bad].error, f"seed {seed}: {cluster.outcomes[bad].error}"
    good = cluster.request({"K": fn.Update(Counter("K", 0, 2, form=2), state=Convert(2)), "M": Mark("M", 0, 2)})
    cluster.until(lambda: good in cluster.outcomes)
    assert cluster.outcomes[good].outcome == "done", f"seed {seed}: {cluster.outcomes[good].error}"
    left = [str(instance.worker) for name in "KM" for instance in cluster.instances(name) if instance.prepared]
    assert not left, f"seed {seed}: {left} still keep what was prepared"
    cluster.release()
    cluster.run()
    assert cluster.state == "finished", f"seed {seed}: {cluster.error}"
    rows = cluster.rows("out")
    assert sorted(row["number"] for row in rows) == list(range(60)), f"seed {seed}"
    for row in rows:
        assert [stamp.version for stamp in stamps(row["trail"])] in ([0, 0], [2, 2]), f"seed {seed}: {row['trail']}"


@pytest.mark.parametrize("what", BAD)
def test_a_change_that_cannot_be_prepared_changes_nothing(what):
    """Aborted, with the worker's words; outputs go on by the old functions until the next change, which is done."""
    for seed in range(SEEDS):
        _abort(seed, *BAD[what])


@pytest.mark.parametrize(
    ("name", "replacement"),
    [("forget", lambda instance, change: None), ("expects", lambda instance, change: True)],
    ids=["an abort is not heeded", "what is prepared after the abort is kept"],
)
def test_a_build_that_keeps_what_was_aborted_is_caught(monkeypatch, name, replacement):
    """Broken builds: the check for leftovers fails for some seed."""
    monkeypatch.setattr(Instance, name, replacement)
    assert caught(range(300), attempt=lambda seed: _abort(seed, *BAD["one of two"])) is not None
