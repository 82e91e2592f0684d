"""How soon loops end once their last row has left, by attempts, whatever the order of events."""

from __future__ import annotations

import random
from collections import Counter

from soak import SOAK

from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.drawn_flows import draw_loop_flow, draw_rows, reference

MOST = 3
"""Attempts of one loop after the last row has reached the sink."""


def test_few_attempts_follow_the_last_row() -> None:
    """Loops that are nested, in sequence or side by side; some end by an attempt that began before."""
    found = Counter[int]()
    for seed in range(6 * SOAK):
        chance = random.Random(seed)
        flow = draw_loop_flow(chance, small=seed % 2 == 0)
        rows = draw_rows(chance, flow, chance.randint(1, 14), 150)
        cluster = Cluster(flow.graph(), rows, seed=seed, hosts=2, window=1_500)
        loops, wanted = cluster.controller.loops, reference(flow, rows)["Z"].total()
        cluster.until(lambda c=cluster, w=wanted: sum(one.processed for one in c.instances("Z")) >= w)  # type: ignore[misc]
        before = {name: loop.attempts for name, loop in loops.items()}
        cluster.run()
        assert cluster.state == "finished"
        found[max(loop.attempts - before[name] for name, loop in loops.items())] += 1
    assert max(found) <= MOST
    assert found[1] > 0
