"""Seeded runs of a dedup and a self-join: whatever moves, no pair is lost, and no row comes twice.

Keys come all the time, also between the steps of a move. The runs are rescaled at random, with checkpoints, kills of
hosts, and kills of the driver, after which they are resumed with other numbers of workers.
"""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from interleaving_checks import lacking
from soak import caught, first_tried

from fries_nb.dataflow.builder import DataflowBuilder
from fries_nb.dataflow.endpoints import memory, rate
from fries_nb.operators.state import KeyedState
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.rescaling_cluster import RescalingCluster

KEYS = 60


def flow_of(kind: str, chance: random.Random):
    """A dedup of rows that come three times, or a self-join of two sources that come in different orders; its rows."""
    flow, workers = DataflowBuilder(kind), chance.randint(1, 3)
    rows = {"L": [{"uid": n % KEYS, "l": n} for n in range(3 * KEYS if kind == "dedup" else KEYS)]}
    left = flow.source("L", rate(None, count=1), chance.randint(1, 2))
    if kind == "dedup":
        keyed = left.dedup("D", on="uid", workers=workers)
    else:
        order = sorted(range(KEYS), key=lambda n: n + chance.uniform(0, KEYS))
        rows["R"] = [{"uid": n, "r": n} for n in order]
        right = flow.source("R", rate(None, count=1), chance.randint(1, 2))
        keyed = left.self_join("J", right, on="uid", unique=True, workers=workers)
    keyed.sink("out", memory(), workers=1)
    return flow.graph(), rows


def try_moved(seed: int) -> RescalingCluster:
    """Play the run of a seed, and check it."""
    chance = random.Random(f"moved keys {seed}")
    kind = chance.choice(("dedup", "join"))
    graph, rows = flow_of(kind, chance)
    checkpoints = chance.random() < 0.7
    killed = chance.choice((0, 0, 1, 2)) if checkpoints else 0
    driver = killed and chance.randrange(killed + 1)
    cluster = RescalingCluster(
        graph, rows, hosts=chance.randint(1, 3), seed=seed, window=chance.choice((1, 300, 2_000)),
        chaining=chance.random() < 0.6, audit=False, checkpoints=checkpoints,
        commit_interval_ns=chance.choice((1_000_000, 10_000_000)),
        faults=Faults(0.003, killed - driver, driver, reshapes=True),
    )  # fmt: skip
    cluster.run()
    assert cluster.state == "finished", f"seed {seed}: {cluster.error}"
    keys = [row["uid"] for row in cluster.rows("out")]
    lost, doubled = Counter(range(KEYS)) - Counter(keys), Counter(keys) - Counter(range(KEYS))
    assert (lost, doubled) == (Counter(), Counter()), f"seed {seed}: lost {lost}, doubled {doubled}"
    return cluster


def _met(seed: int) -> Counter[str]:
    """What a seed has met, with all checked."""
    cluster = try_moved(seed)
    name = "J" if "J" in cluster.graph.by_name else "D"
    met = Counter({f"{name} moved": sum(not moved.reason for moved in cluster.moved)})
    met[f"{name} resumed at another layout"] += "the driver was killed" in cluster.recoveries
    met[f"{name} recovered"] += any("driver" not in reason for reason in cluster.recoveries)
    return met


def test_no_pair_is_lost_and_no_duplicate_passes_while_bins_move():
    """With joins, leaves, checkpoints, kills, and a resume at another layout."""
    wanted = tuple(f"{name} {what}" for name in "DJ" for what in ("moved", "resumed at another layout", "recovered"))
    assert lacking(12, wanted, _met, least=2, most=80, shown=(15, 13, 14, 18, 19, 28)) == {}


def _put_past_the_notes(state, key, value):
    state._form.states[key] = value


def _forgets_what_is_sorted(state, key):
    state._kept.unsorted = [] if state._kept.unsorted is not None else None


BROKEN = {
    "new keys are not noted": [(KeyedState, "put", _put_past_the_notes)],
    "a note forgets others": [(KeyedState, "_note", _forgets_what_is_sorted)],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_key_that_is_not_noted_is_caught(monkeypatch, name):
    """As when operators wrote to the dict behind the state."""
    for rule in BROKEN[name]:
        monkeypatch.setattr(*rule)
    assert caught(first_tried(1, 400), try_moved) is not None


def test_keys_that_come_and_go_while_bins_are_sorted_are_kept_once():
    """A key that went and came again is shipped once; thousands that come and go take no room."""
    state = KeyedState(dict)
    for key in range(2_000):
        state.put(key, deque())
    while state.sort_keys(500):
        state.drop(7)
        state.put(7, deque())
        for other in range(10_000, 14_000):
            state.put(other, True)
            state.drop(other)
    taken = [key for bin_ in range(1024) for key in state.keys_of(bin_)]
    assert sorted(taken) == list(range(2_000))
