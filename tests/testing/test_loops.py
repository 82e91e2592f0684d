"""Loops in the seeded cluster: nested, in sequence, side by side, over parallel heads and small windows.

Whatever the order of events, something can happen or the run has ended; and every row comes out as the reference in
plain Python says, with the rounds that it made.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from loops_played import try_changed, try_killed, try_loops, try_small_killed

from fries_nb.testing.cluster import Cluster
from fries_nb.testing.drawn_loops import draw_loop_flow, draw_rows

SOAK = int(os.environ.get("FRIES_SOAK", "1"))


@pytest.mark.parametrize("first", range(0, 20 * SOAK, 10))
def test_loops_end_by_themselves_with_every_row(first):
    """Ten seeds each."""
    for seed in range(first, first + 10):
        try_loops(seed)


@pytest.mark.parametrize("first", range(0, 40 * SOAK, 10))
def test_kills_at_any_step_lose_nothing_and_double_nothing(first):
    """Ten seeds each, with rows on feedback channels at checkpoints; some are resumed with other numbers of workers."""
    for seed in range(first, first + 10):
        try_small_killed(seed)
    try_killed(first)


def test_checkpoints_go_on_between_attempts_when_the_sources_have_ended():
    """For a loop that runs on there are no others; one that is requested does not wait for the end of the loop."""
    kept = 0
    for seed in range(12):
        chance = random.Random(seed)
        flow = draw_loop_flow(chance, small=True)
        run = Cluster(flow.graph(), draw_rows(chance, flow, 14), hosts=2, seed=seed, window=300, checkpoints=True)
        run.until(lambda run=run: any(loop.attempts for loop in run.controller.loops.values()))
        request = run.checkpoint()
        run.until(lambda run=run, request=request: run.asked[request] is not None)
        kept += run.asked[request] == "" and not all(run.worker(head).ended for head in flow.heads)
        run.run()
        assert run.state == "finished"
    assert kept >= 4


def test_changes_that_touch_loops_separate_old_rows_from_new_ones():
    """No transaction meets old and new functions, whatever rounds its rows make; some are carried out, and inside."""
    outcomes = Counter()
    for seed in range(40 * SOAK):
        run = try_changed(seed).cluster
        inside = set(run.graph.heads)
        drained = [one for one in run.outcomes.values() if inside.intersection(*one.components[:1])]
        outcomes.update(one.outcome for one in drained)
    assert outcomes["done"] >= 20


@pytest.mark.parametrize(
    ("settings", "scheduler", "guard", "reason"),
    [
        ({}, "epoch", None, "touches loop L1, which fries drains; epoch does not"),
        ({}, "fries", 5.0, "touches loop L1, and is under guard"),
        ({"checkpoints": True}, "fries", None, "the run recovers from checkpoints; not supported together yet"),
    ],
)
def test_what_is_not_drained_is_refused(settings, scheduler, guard, reason):
    """Before anything has changed."""
    chance = random.Random(2)
    flow = draw_loop_flow(chance, small=True)
    run = Cluster(flow.graph(), draw_rows(chance, flow, 14), seed=2, **settings)
    change = run.request({"B1": flow.graph().operator("B1").function}, scheduler, guard=guard)
    run.run()
    assert (run.state, run.outcomes[change].outcome) == ("finished", "aborted")
    assert reason in run.outcomes[change].error
