"""A change that would lose every row is not made unless it is forced, under seeds: nothing of it is left anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from soak import SOAK

import fries_nb as fn
from fries_nb.simulation import Cluster

SEEDS = range(4 * SOAK)
COUNT = 300


def same(row: dict[str, Any]) -> dict[str, Any]:
    """What came."""
    return row


def nothing(row: dict[str, Any]) -> None:
    """Drops the row."""


def flow() -> fn.Dataflow:
    """A map, a filter, and a sink."""
    made = fn.Dataflow("numbers")
    mapped = made.source("numbers", fn.rate(1)).map("M", same)
    mapped.filter("F", lambda row: row["n"] >= 0).sink("out", fn.memory())
    return made


def running(seed: int) -> Cluster:
    """A run in which some tuples have come to the sink."""
    rows = {"numbers": [{"n": n} for n in range(COUNT)]}
    cluster = Cluster(flow().graph(workers=1 + seed % 2), rows, hosts=1 + seed % 2, seed=seed, chaining=seed % 4 < 2)
    cluster.until(lambda: sum(one.processed for one in cluster.instances("out")) > 20)
    return cluster


def outcome(cluster: Cluster, change: str) -> Any:
    """How a change has ended."""
    cluster.until(lambda: change in cluster.outcomes)
    return cluster.outcomes[change]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_of_it_is_made(seed: int) -> None:
    """Nothing is decided, and all rows come to the sink."""
    cluster = running(seed)
    decided = len(cluster.journal)
    found = outcome(cluster, cluster.request({"M": nothing}, rehearse=True))
    assert (found.outcome, found.needs_force) == ("aborted", True)
    assert "new M drops every row in the rehearsal: of " in found.error
    assert found.error.endswith("nothing changed, and force=True makes the change all the same")
    assert len(cluster.journal) == decided
    cluster.run()
    assert sum(one.processed for one in cluster.instances("out")) == COUNT
    assert not any(one.prepared for name in "MF" for one in cluster.instances(name))


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_made_if_it_is_forced_and_rolled_back_without_a_question(seed: int) -> None:
    """The way back drops no row, and that to a function that drops all is none to be doubted either."""
    cluster = running(seed)
    cluster.hold(cluster.supply.sources)
    forced = outcome(cluster, cluster.request({"M": nothing}, rehearse=True, force=True))
    assert (forced.outcome, forced.needs_force) == ("done", False)
    assert outcome(cluster, cluster.request({"M": same}, rehearse=True)).outcome == "done"
    back = outcome(cluster, cluster.roll_back())
    assert back.outcome == "done", back.error
    cluster.release()
    cluster.run()
    assert cluster.state == "finished"
    assert sum(one.processed for one in cluster.instances("out")) < COUNT


@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_fails_is_told_so_even_if_it_is_forced(seed: int) -> None:
    """What fails in a rehearsal fails in the run as well."""
    cluster = running(seed)
    found = outcome(cluster, cluster.request({"M": lambda row: row["gone"]}, rehearse=True, force=True))
    assert (found.outcome, found.needs_force) == ("aborted", False)
    cluster.run()


@pytest.mark.parametrize("seed", SEEDS)
def test_together_with_one_that_follows_it_is_doubted(seed: int) -> None:
    """Both operators are replaced; the one that gets no row is not to blame."""
    cluster = running(seed)
    found = outcome(cluster, cluster.request({"M": nothing, "F": lambda row: True}, rehearse=True))
    assert found.needs_force
    assert "new M drops every row" in found.error
    cluster.run()
