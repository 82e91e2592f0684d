"""Large functions come late: whatever else is said to a host may overtake a prepare whose payload is on its way."""

from __future__ import annotations

import random

import pytest
from interleaving_checks import try_pausing, try_troubled
from soak import SOAK

from fries_nb.protocol.messages import Abort, Prepare
from fries_nb.simulation.network import LaneKind, SeededNetwork

overtaken = 0


def late(network, lane, queue):
    """What arrives next on a lane. A change that is aborted meanwhile is prepared no more, as ``payloads`` has it."""
    global overtaken
    worker, first = queue[0] if lane[0] is LaneKind.CONTROL else (None, None)
    if not isinstance(first, Prepare) or len(queue) < 2 or network.chance.random() < 0.3:
        return queue.popleft()
    overtaken += 1
    prepare = queue.popleft()
    at = next((n for n, (_, control) in enumerate(queue) if not isinstance(control, Prepare)), 0)
    other = queue[at]
    del queue[at]
    if other != (worker, Abort(first.change)):
        queue.appendleft(prepare)
    return other


@pytest.mark.parametrize("tried", [try_troubled, try_pausing])
def test_every_promise_holds_where_prepares_are_overtaken(tried, monkeypatch):
    """By fast control messages, other prepares and the abort of their own change."""
    monkeypatch.setattr(SeededNetwork, "_next", late)
    monkeypatch.setattr(SeededNetwork, "chance", random.Random(0), raising=False)
    before = overtaken
    for seed in range(10 * SOAK):
        tried(seed)
    assert overtaken > before
