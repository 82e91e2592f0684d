"""Functions that later changes have replaced are let go of, but for what a rollback and a recovery need.

Objects are counted, with Python's search for cycles switched off: a host searches rarely, and a kernel's is not ours.
"""

from __future__ import annotations

import gc
import weakref

import pytest

import fries_nb as fn
from fries_nb.messages import WorkerId
from fries_nb.testing import Cluster

CHANGES = 30
SIZE = 10_000
alive: weakref.WeakSet = weakref.WeakSet()


class Model:
    """A function with something large in it; each copy of it is counted."""

    def __init__(self, version):
        self.version = version
        self.weights = bytes(SIZE)
        alive.add(self)

    def __setstate__(self, state):
        self.__dict__.update(state)
        alive.add(self)

    def process(self, row, state):
        state["count"] = state.get("count", 0) + 1
        return row | {"version": self.version}


class Stateless(Model):
    """Likewise, without a state per key."""

    def process(self, row):
        return row | {"version": self.version}


@pytest.fixture
def uncollected():
    """No search for cycles while the test runs."""
    gc.collect()
    alive.clear()
    gc.disable()
    yield
    gc.enable()


def changed(checkpoints, scheduler="fries", model=Model):
    """A cluster that has made thirty changes of one operator and goes on, and what controllers were told."""
    flow = fn.Dataflow("models")
    rows = flow.source("S", fn.rate(None, count=4)).map("before", lambda row: row)
    rows.map("FM", model(0), key="value").sink("out", fn.memory())
    cluster = Cluster(
        flow.graph(workers=2), {"S": [{"value": n % 7} for n in range(2_000)]}, hosts=2, checkpoints=checkpoints
    )
    cluster.hold([WorkerId("S", 0), WorkerId("S", 1)])
    for version in range(1, CHANGES + 1):
        read = min(cluster.supply.read + 10, 1_900)
        cluster.until(lambda read=read: cluster.supply.read >= read)
        change = cluster.request({"FM": model(version)}, scheduler, rehearse=True)
        cluster.until(lambda change=change: change in cluster.outcomes)
        assert cluster.outcomes[change].outcome == "done", cluster.outcomes[change].error
        if checkpoints:
            asked = cluster.checkpoint()
            cluster.until(lambda asked=asked: cluster.asked[asked] is not None)
            assert cluster.asked[asked] == ""
    return cluster


@pytest.mark.parametrize("model", [Model, Stateless])
@pytest.mark.parametrize("scheduler", ["fries", "multiversion"])
def test_hosts_hold_the_present_function_only(uncollected, scheduler, model):
    """Two workers, thirty changes: at each worker the present copy, and perhaps one that it was tried with."""
    cluster = changed(checkpoints=False, scheduler=scheduler, model=model)
    declared = 1
    assert len(alive) - declared <= 2 * 2, sorted(model.version for model in alive)
    assert all(instance.function.version == CHANGES for instance in cluster.instances("FM"))
