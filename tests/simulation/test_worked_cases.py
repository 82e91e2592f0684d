"""The worked cases of two texts: timestamp tokens (figures 1 to 4), and scoped loops (FLIP-15, figure 1)."""

from __future__ import annotations

from typing import Any

import pytest

import fries_nb as fn
from fries_nb.controller.states import LoopPhase
from fries_nb.protocol.progress_locations import audience
from fries_nb.simulation.cluster import Cluster

ROWS = [{"k": number % 2, "at": number // 4, "v": number} for number in range(40)]


class Count:
    """Counts a key's rows of a time; the hybrid one says so with each row as well."""

    def __init__(self, early: bool = False) -> None:
        self.early = early

    def initial_state(self) -> list[int]:
        """Nothing yet."""
        return [0]

    def process(self, row: dict[str, Any], state: list[int]) -> dict[str, Any] | None:
        """Count a row."""
        state[0] += 1
        return {"k": row["k"], "at": row["at"], "so_far": state[0]} if self.early else None

    def close(self, key: int, time: int, state: list[int]) -> dict[str, Any]:
        """The count."""
        return {"k": key, "at": time, "count": state[0]}


def counted(seed: int, early: bool) -> Cluster:
    """Rows that are mapped, filtered and counted for each key and time."""
    flow = fn.Dataflow("counts")
    rows = flow.source("S", fn.rate(None), time="at", workers=2)
    kept = rows.map("M", dict, key="k").filter("F", lambda row: row["v"] % 5 != 0)
    if early:
        kept.window("R", Count(early=True), fn.tumbling(1), key="k", early=True).sink("out", fn.memory())
    else:
        kept.reduce("R", Count(), key="k").sink("out", fn.memory())
    return Cluster(flow.graph(2), {"S": ROWS}, seed=seed, hosts=2, chaining=False)


def expected() -> dict[tuple[int, int], int]:
    """Key and time to the number of rows."""
    found: dict[tuple[int, int], int] = {}
    for row in ROWS:
        if row["v"] % 5:
            found[row["k"], row["at"]] = found.get((row["k"], row["at"]), 0) + 1
    return found


def test_maps_and_filters_are_oblivious_of_time() -> None:
    """They have no agenda, and no host tells them of a frontier; the reduce is the only one that listens."""
    cluster = counted(1, early=False)
    keep = {name for name in "MFR" if cluster.instances(name)[0].agenda is not None}
    assert keep == {"R"}
    assert audience(cluster.graph) == {"R": ("R",)}


@pytest.mark.parametrize("seed", range(6))
def test_a_synchronous_reduce_waits_for_the_frontier(seed: int) -> None:
    """It has a result only when no row of its time can arrive; then one for each key and time, and it is right."""
    cluster = counted(seed, early=False)
    while cluster.state == "running":
        cluster.step()
        for instance in cluster.instances("R"):
            assert instance.agenda is not None
            for t in instance.agenda.fired.values():
                assert instance.agenda.frontier is not None
                assert not instance.agenda.frontier.may_bring(t)
    assert cluster.state == "finished"
    assert {(row["k"], row["at"]): row["count"] for row in cluster.rows("out")} == expected()
    assert len(cluster.rows("out")) == len(expected())


@pytest.mark.parametrize("seed", range(6))
def test_a_hybrid_count_answers_early_and_in_the_end(seed: int) -> None:
    """A row for each row at once, numbered; and the count when it is complete, which has the end of its window."""
    cluster = counted(seed, early=True)
    cluster.run()
    assert cluster.state == "finished"
    early = sorted((row["k"], row["at"], row["so_far"]) for row in cluster.rows("out") if row.get("so_far") is not None)
    assert early == sorted((*of, number + 1) for of, count in expected().items() for number in range(count))
    final = {(row["k"], row["at"] - 1): row["count"] for row in cluster.rows("out") if row.get("count") is not None}
    assert final == expected()


@pytest.mark.parametrize("seed", range(6))
def test_the_operator_behind_a_loop_waits_for_both_ways(seed: int) -> None:
    """FLIP-15, figure 1: c ends when the end has come by abc, and an attempt has gone round by abTHbc."""
    flow = fn.Dataflow("figure 1")

    def body(rows: fn.Stream) -> tuple[fn.Stream, fn.Stream]:
        again, done = rows.map("b", lambda row: row | {"v": row["v"] - 7}).split("T", lambda row: row["v"] < 0)
        return again, done

    flow.source("a", fn.rate(None), workers=2).iterate("H", body, workers=2).map("c", dict).sink("out", fn.memory())
    cluster = Cluster(flow.graph(2), {"a": ROWS}, seed=seed, hosts=2)
    loop = cluster.controller.loops["H"]
    while cluster.state == "running":
        cluster.step()
        if any(cluster.worker("b", index).ended for index in (0, 1)):  # then only can the end reach c
            assert loop.phase is LoopPhase.ENDING
            assert loop.attempts >= 1
        assert all(cluster.worker("b", index).ended for index in (0, 1) if cluster.worker("c", index).ended)
    assert cluster.state == "finished"
    assert len(cluster.rows("out")) == len(ROWS)
