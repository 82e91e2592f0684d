"""A change that cannot be prepared is aborted: nothing changed, nothing is kept of it, and the next change works."""

from __future__ import annotations

import pytest
from soak import SOAK, caught, first_tried

import fries_nb as fn
from fries_nb.controller.change_steps import Changes
from fries_nb.controller.events import Resolved
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import Prepare, Prepared
from fries_nb.simulation import Cluster
from fries_nb.simulation.drawn_flows import source_rows
from fries_nb.simulation.stamp_functions import Convert, Counter, Mark, Poison, Slices, Unloadable, Unopenable, stamps
from fries_nb.worker.worker import Worker

SEEDS = 3 * SOAK


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
    assert caught(first_tried(5, 300), attempt=lambda seed: _abort(seed, *BAD["one of two"])) is not None


# ---- where a target has ended

UNTRIED = ("open() raises", "cannot be unpickled", "the transformation raises")


def _half_ended(seed):
    """S0 -> K -> U and S1 -> M -> U: the workers of K have ended, those of M have not; there is no checkpoint yet.

    The controller has heard of it, or has not.
    """
    flow = fn.Dataflow("half ended")
    early = flow.source("S0", fn.rate(None, count=1)).map("K", Counter("K"), key="customer")
    late = flow.source("S1", fn.rate(None, count=1)).map("M", Mark("M"))
    early.union("U", late).sink("out", fn.memory())
    rows = {name: source_rows(name, 20) for name in ("S0", "S1")}
    cluster = Cluster(flow.graph(workers=2), rows, hosts=1 + seed % 2, seed=seed, checkpoints=True)
    cluster.hold(worker for worker in cluster.supply.sources if worker.operator == "S1")
    cluster.until(lambda: all(cluster.worker("K", index).ended for index in range(2)))
    cluster.steps(seed % 3 * 20)
    return cluster


def _versions_after_a_loss(cluster, seed):
    """Lose a host and run to the end, from the beginning on: the versions that each operator's rows show."""
    cluster.kill(0)
    cluster.release()
    cluster.run()
    assert (cluster.state, len(cluster.recoveries)) == ("finished", 1), f"seed {seed}: {cluster.error}"
    shown = [stamp for row in cluster.rows("out") for stamp in stamps(row["trail"])]
    assert len(shown) == 40, f"seed {seed}"
    return {name: {stamp.version for stamp in shown if stamp.operator == name} for name in "KM"}


def _abort_where_ended(seed, what):
    """Ask for a change that is bad at a target all of whose workers have ended."""
    cluster = _half_ended(seed)
    (bad, rehearse, says), good = BAD[what], {"M": Mark("M", 0, 1)}
    change = cluster.request(bad | good, rehearse=rehearse)
    cluster.until(lambda: change in cluster.outcomes)
    outcome = cluster.outcomes[change]
    assert (outcome.outcome, says in outcome.error) == ("aborted", True), f"seed {seed}: {outcome}"
    assert not cluster.journal, f"seed {seed}"
    cluster.until(lambda: not any(instance.prepared for name in "KM" for instance in cluster.instances(name)))
    assert _versions_after_a_loss(cluster, seed) == {"K": {0}, "M": {0}}, f"seed {seed}"


@pytest.mark.parametrize("what", UNTRIED)
def test_what_fails_where_a_target_has_ended_aborts_the_change(what):
    """Else a recovery that goes back to before the end would run into it."""
    for seed in range(SEEDS):
        _abort_where_ended(seed, what)


def test_a_worker_that_had_ended_comes_back_with_the_change():
    """It is tried there, the one that runs switches, and a recovery to before the end has both by the new functions."""
    for seed in range(SEEDS):
        cluster = _half_ended(seed)
        update = fn.Update(Counter("K", 0, 1, form=1), state=Convert(1))
        change = cluster.request({"K": update, "M": Mark("M", 0, 1)})
        cluster.until(lambda cluster=cluster, change=change: change in cluster.outcomes)
        ended = {str(worker) for worker, seen in cluster.outcomes[change].per_worker.items() if seen.ended}
        assert (cluster.outcomes[change].outcome, ended) == ("done", {"K[0]", "K[1]"}), f"seed {seed}"
        assert _versions_after_a_loss(cluster, seed) == {"K": {1}, "M": {1}}, f"seed {seed}"


def test_a_second_change_is_tried_on_states_as_the_first_would_have_left_them():
    """The workers that had ended have missed the first, whose marker may still be on its way to them."""

    def second(state):
        assert state["form"] == 1, f"got a state of form {state['form']}"
        return Convert(2)(state)

    for seed in range(SEEDS):
        cluster = _half_ended(seed)
        first = {"K": fn.Update(Counter("K", 0, 1, form=1), state=Convert(1)), "M": Mark("M", 0, 1)}
        then = {"K": fn.Update(Counter("K", 0, 2, form=2), state=second), "M": Mark("M", 0, 2)}
        changes = [cluster.request(first), cluster.request(then)]
        cluster.until(lambda cluster=cluster: not cluster.open)
        outcomes = [cluster.outcomes[change] for change in changes]
        assert [outcome.outcome for outcome in outcomes] == ["done", "done"], f"seed {seed}: {outcomes[1].error}"
        assert _versions_after_a_loss(cluster, seed) == {"K": {2}, "M": {2}}, f"seed {seed}"


def _ask_only_the_living(changes, change, now_ns, begin=Changes._begin):
    gone = changes._workers.ended
    told = [tell for tell in begin(changes, change, now_ns) if isinstance(tell, Resolved) or tell.worker not in gone]
    change.pending_acks -= gone
    return told


def _prepare_in_name_only(worker, id_, control, direct=Worker._direct):
    if worker.ended and isinstance(control, Prepare):
        worker._tell(Prepared(control.change, id_))
    else:
        direct(worker, id_, control)


@pytest.mark.parametrize(
    ("room", "name", "replacement"),
    [(Changes, "_begin", _ask_only_the_living), (Worker, "_direct", _prepare_in_name_only)],
    ids=["the ended are not asked", "the ended prepare in name only"],
)
@pytest.mark.parametrize("what", UNTRIED)
def test_a_build_that_tries_nothing_at_the_ended_is_caught(monkeypatch, room, name, replacement, what):
    """The change is decided, and found bad by a recovery at best."""
    monkeypatch.setattr(room, name, replacement)
    assert caught(range(6), attempt=lambda seed: _abort_where_ended(seed, what)) is not None
