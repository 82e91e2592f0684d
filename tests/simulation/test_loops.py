"""Loops in the seeded cluster: nested, in sequence, side by side, over parallel heads and small windows.

Whatever the order of events, something can happen or the run has ended; and every row comes out as the reference in
plain Python says, with the rounds that it made.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from interleaving_checks import lacking
from loop_flows import expected, loop_dataflow, nested, numbered, with_hashed_feedback
from loops_played import (
    try_around,
    try_by_row,
    try_changed,
    try_changed_killed,
    try_killed,
    try_loops,
    try_mended,
    try_small_killed,
)
from soak import SOAK

import fries_nb as fn
from fries_nb.audit import judge
from fries_nb.dataflow.updates import as_updates
from fries_nb.simulation.cluster import Cluster
from fries_nb.simulation.drawn_flows import draw_loop_flow, draw_rows, name_of


def test_loops_end_by_themselves_with_every_row():
    """Large dataflows; small ones, which show more, are killed and changed below."""
    for seed in range(4 * SOAK):
        try_loops(seed)


def test_kills_at_any_step_lose_nothing_and_double_nothing():
    """With rows on feedback channels at checkpoints; some are resumed with other numbers of workers."""
    for seed in range(12 * SOAK):
        try_small_killed(seed)
    for seed in range(SOAK):
        try_killed(seed)


def test_feedback_that_is_partitioned_by_key_reaches_parallel_heads():
    """No row of a nested loop is lost when the workers of a head feed one another."""
    graph = with_hashed_feedback(loop_dataflow(nested, 20).graph(2))
    rows = {"S": [{"value": value} | numbered(value) for value in range(20)]}
    for seed in range(SOAK):
        run = Cluster(graph, rows, seed=seed, hosts=2, window=300)
        run.run()
        assert run.state == "finished", run.error
        assert Counter(map(name_of, run.rows("Z"))) == expected(graph, 20)["Z"]
        assert judge(run.records()).serializable


def test_checkpoints_go_on_between_attempts_when_the_sources_have_ended():
    """For a loop that runs on there are no others; one that is requested does not wait for the end of the loop."""
    kept = 0
    for seed in range(4 * SOAK):
        chance = random.Random(seed)
        flow = draw_loop_flow(chance, small=True)
        run = Cluster(flow.graph(), draw_rows(chance, flow, 14), hosts=2, seed=seed, window=300, checkpoints=True)
        run.until(lambda run=run: any(loop.attempts for loop in run.controller.loops.values()))
        request = run.checkpoint()
        run.until(lambda run=run, request=request: run.asked[request] is not None)
        kept += run.asked[request] == "" and not all(run.worker(head).ended for head in flow.heads)
        run.run()
        assert run.state == "finished"
    assert kept


def test_changes_that_touch_loops_separate_old_rows_from_new_ones():
    """No transaction meets old and new functions, whatever rounds its rows make; some are carried out, and inside."""
    outcomes = Counter()
    for seed in range(12 * SOAK):
        run = try_changed(seed).cluster
        inside = set(run.graph.heads)
        drained = [one for one in run.outcomes.values() if inside.intersection(*one.components[:1])]
        outcomes.update(one.outcome for one in drained)
    assert outcomes["done"] >= 5


def test_operators_around_loops_are_changed_by_any_scheduler_while_rows_go_round():
    """In front of loops, between them and behind them, with guards and kills; by multi-version, too."""

    def done(seed):
        outcomes = try_around(seed, kills=seed % 2 > 0).cluster.outcomes.values()
        return Counter(one.scheduler for one in outcomes if one.outcome == "done")

    assert lacking(8, ("multiversion", "minibatch", "restart", "epoch", "fries"), done, most=40) == {}


def test_changes_hold_over_kills_at_any_step():
    """Those that a checkpoint precedes, with rows on feedback channels, are deferred and drained."""
    for seed in range(SOAK):
        try_changed_killed(seed, small=False)
    runs = [try_changed_killed(seed).cluster for seed in range(12 * SOAK)]
    assert sum(bool(run.deferred) for run in runs) >= 1
    done = [one for run in runs for one in run.outcomes.values() if one.outcome == "done"]
    assert any(one.change in run.deferred for run in runs for one in done)


def test_changes_by_the_cut_and_canaries_leave_the_rows_of_a_loop_as_they_are():
    """Each row has one version in all of its rounds, whatever is killed, and whatever kind of change follows."""

    def met(seed):
        run = try_by_row(seed).cluster
        done = Counter(one.scheduler for one in run.outcomes.values() if one.outcome == "done")
        inside = any(one.reach.inside for one in run.store.records) and bool(run.recoveries)
        return done + Counter({"deferred": bool(run.deferred), "inside at a restart": inside})

    assert lacking(24 * SOAK, ("cut", "fries", "deferred", "inside at a restart"), met, most=120, shown=(46, 537)) == {}


def test_an_operator_is_mended_while_changes_are_deferred():
    """It is paused on a row in front of the loop, and its fix goes at once."""
    runs = [try_mended(seed).cluster for seed in range(8 * SOAK)]
    assert any(run.deferred and any(one.aside for one in run.journal) for run in runs)


def begun(seed, **settings):
    """A run with some rows inside the loop, and a change that waits for it to empty."""
    chance = random.Random(seed)
    flow = draw_loop_flow(chance, small=True)
    run = Cluster(flow.graph(), draw_rows(chance, flow, 14), hosts=2, seed=seed, window=300, **settings)
    run.until(lambda: run.supply.read > run.supply.total // 3)
    change = run.request({"B1": flow.graph().operator("B1").function})
    run.until(lambda: run.controller.loops["L1"].name == change)
    return run, change


@pytest.mark.parametrize("seed", range(2 * SOAK))
@pytest.mark.parametrize("settings", [{}, {"checkpoints": True, "commit_interval_ns": 5_000_000}])
def test_a_change_that_waits_for_a_loop_can_be_cancelled(seed, settings):
    """Nothing has changed then, and rows may enter again; once it is decided it goes on, and to cancel does nothing."""
    run, change = begun(seed, **settings)
    run.steps(run.random.choice((0, 5, 50)))
    was_decided = bool(run.journal)
    run.changes.queue.changes[0].cancel()
    run.post()
    run.run()
    run.settle()
    outcome = run.outcomes[change]
    assert (run.state, outcome.outcome) == ("finished", "done" if was_decided else "aborted")
    assert was_decided or (outcome.error, run.journal) == ("it was cancelled; nothing changed", [])
    assert not any(worker._alignment.is_closed for worker in run.workers.values())


def test_a_change_that_waits_in_the_queue_can_be_cancelled():
    """Behind another one; that one goes on."""
    run, change = begun(2)
    waiting = run.request({"B1": run.graph.operator("B1").function})
    run.changes.queue.changes[1].cancel()
    run.post()
    run.changes.queue.changes[1].cancel()
    assert run.outcomes[waiting].error == "it was cancelled; nothing changed"
    run.run()
    assert (run.state, run.outcomes[change].outcome) == ("finished", "done")


def test_a_change_waits_for_a_loop_as_long_as_it_may():
    """Then it is aborted, and the reason names the loop."""
    chance = random.Random(2)
    flow = draw_loop_flow(chance, small=True)
    run = Cluster(flow.graph(), draw_rows(chance, flow, 14), seed=2, window=300)
    run.until(lambda: run.supply.read > 0)
    update = as_updates({"B1": flow.graph().operator("B1").function})
    change = run.changes.queue.request(update, timeout_s=1e-9, rehearse=False)
    run.post()
    run.run()
    assert (run.state, run.outcomes[change.id].outcome) == ("finished", "aborted")
    assert run.outcomes[change.id].error == "L1 did not empty within 1e-09 s; nothing changed"


def test_a_change_that_was_decided_waits_after_a_kill_and_is_told():
    """Which change the loop is drained for, until it has switched; meanwhile no checkpoint begins."""
    told = 0
    for seed in range(4 * SOAK):
        chance = random.Random(seed)
        flow = draw_loop_flow(chance, small=True)
        rows = draw_rows(chance, flow, 14)
        run = Cluster(flow.graph(), rows, hosts=2, seed=seed, window=300, checkpoints=True)
        run.until(lambda run=run: run.supply.read > run.supply.total // 3)
        request = run.checkpoint()
        run.until(lambda run=run, request=request: run.asked[request] is not None)
        change = run.request({"B1": flow.graph().operator("B1").function})
        run.until(lambda run=run: bool(run.journal) or not run.open)
        run.kill(0, 1)
        run.until(lambda run=run: run.controller.incarnation > 1)
        if run.deferred:
            begun = run.controller._life.checkpoints.epoch
            run.until(lambda run=run: run.controller.state == "running")
            assert run.controller.loops["L1"].name == change
            run.checkpoint()
            while run.controller._changes.is_draining:
                assert run.controller._life.checkpoints.epoch == begun
                assert run.step()
            told += 1
        run.run()
        assert run.state == "finished"
    assert told


@pytest.mark.parametrize(
    ("settings", "scheduler", "guard", "reason"),
    [
        ({}, "epoch", None, "touches loop L1, which fries drains; epoch does not"),
        ({}, "fries", 5.0, "touches loop L1, and is under guard"),
        ({"checkpoints": True}, "multiversion", None, "touches loop L1, which fries drains; multiversion does not"),
        ({"checkpoints": True}, "restart", None, "touches loop L1, which fries drains; restart does not"),
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


def test_a_rehearsal_inside_a_loop_that_never_ends_does():
    """A tuple goes round a bounded number of times; the change then waits for the loop, and can be cancelled."""

    def body(rows):
        again, out = rows.map("B", dict).split("T", lambda row: False)
        return again, out

    flow = fn.Dataflow("ever")
    flow.source("S", fn.rate(None)).iterate("L", body).sink("out", fn.memory())
    run = Cluster(flow.graph(1), {"S": [{"v": number} for number in range(5)]}, seed=1)
    run.until(lambda: sum(one.processed for one in run.instances("B")) > 20)
    change = run.request({"B": dict}, rehearse=True)
    run.until(lambda: run.controller.loops["L"].name == change)
    run.changes.queue.changes[0].cancel()
    run.post()
    run.until(lambda: change in run.outcomes)
    assert run.outcomes[change].error == "it was cancelled; nothing changed"
    assert run.state == "running"


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_the_audit_checks_a_loop_that_is_declared_one_to_one(copies):
    """Rows that enter leave once, to two consumers; those of which none or several leave are shown with its name."""

    def body(rows):
        many = rows.flat_map("B", lambda row: [row | {"v": row["v"] - 1}] * (1 if row["v"] else copies))
        again, out = many.split("T", lambda row: row["v"] < 0)
        return again, out

    flow = fn.Dataflow("checked")
    out = flow.source("S", fn.rate(None)).iterate("L", body, one_to_one=True)
    out.sink("out", fn.memory())
    out.sink("again", fn.memory())
    run = Cluster(flow.graph(2), {"S": [{"v": number % 4} for number in range(12)]}, seed=copies, hosts=2)
    run.run()
    verdict = judge(run.records())
    assert (run.state, verdict.serializable) == ("finished", copies == 1)
    found = verdict.lost if copies == 0 else verdict.doubled
    assert len(found) == (0 if copies == 1 else 12)
    assert {one.account for one in found} == (
        set() if copies == 1 else {f"1 entered loop L, which is declared one_to_one, and {copies} left it"}
    )
