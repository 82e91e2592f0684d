"""Seeded interleavings of everything that workers may say: the promises hold in all of them."""

from __future__ import annotations

import pytest
from controller_crowd import Crowd
from hypothesis import given, settings
from hypothesis import strategies as st

from fries_nb.controller.changes import Changes
from fries_nb.controller.commits import Epochs
from fries_nb.controller.events import Answered, HostLost, RunEnded, StopRequested
from fries_nb.controller.markers import Lane
from fries_nb.errors import ProtocolError
from fries_nb.messages import Failed

SEEDS = st.integers(0, 2**32)
MANY = settings(max_examples=250, deadline=None, derandomize=True)


def ends_well(seed: int) -> None:
    """A run whose sources end by themselves, at any time."""
    crowd = Crowd(seed)
    crowd.run(lambda: crowd.over is not None and crowd.at_rest())
    assert crowd.over == RunEnded("finished")
    assert sorted(crowd.committed) == sorted(crowd.closed)


def rests_well(seed: int) -> None:
    """A run that one endless source keeps alive while others end; then it is drained."""
    crowd = Crowd(seed, endless=True)
    crowd.run(crowd.at_rest)
    assert crowd.over is None
    crowd.drain()
    crowd.run(lambda: crowd.over is not None)
    assert crowd.over == RunEnded("finished")
    assert sorted(crowd.committed) == sorted(crowd.closed)


@MANY
@given(SEEDS)
def test_every_run_finishes(seed):
    """Every change resolves once, every file is committed once, one marker at a time, the lane always frees."""
    ends_well(seed)


@MANY
@given(SEEDS)
def test_no_change_hangs_in_a_run_that_goes_on(seed):
    """Workers that end for nothing never leave a marker behind that nobody brings on."""
    rests_well(seed)


@MANY
@given(SEEDS, st.integers(0, 300), st.sampled_from(["failed", "lost", "stopped"]))
def test_an_end_at_any_moment_resolves_all(seed, moment, kind):
    """Whatever was on its way: each change resolves once, the run ends once, no file is committed twice."""
    crowd = Crowd(seed, endless=True)
    for _ in range(moment):
        crowd.step()
    crowd.hear(
        {
            "failed": Answered(Failed(crowd.workers[0], "boom")),
            "lost": HostLost(1, "gone"),
            "stopped": StopRequested(),
        }[kind]
    )
    assert crowd.over is not None
    assert crowd.over.state == ("stopped" if kind == "stopped" else "failed")
    for _ in range(200):
        crowd.step()
    assert len(crowd.outcomes) == crowd.requested
    assert all(outcome.error for outcome in crowd.outcomes if outcome.outcome != "done")
    assert set(crowd.committed) <= set(crowd.closed)


def _only_to_the_living(lane, sends, action, start=Lane.start):
    """Save the FCMs to workers that have ended, as if they had no part in it."""
    return [tell for tell in start(lane, sends, action) if tell.worker not in lane._workers.ended]


@pytest.mark.parametrize(
    ("broken", "name", "replacement", "law"),
    [
        (Lane, "start", _only_to_the_living, rests_well),
        (Lane, "end", lambda lane, worker: [], ends_well),
        (Lane, "_retire", Lane.clear, ends_well),
        (Changes, "ended", lambda changes, worker, now_ns: None, rests_well),
        (Changes, "_decide", lambda changes, change, now_ns: changes._next_stage(change, now_ns), ends_well),
        (Epochs, "cancel", lambda epochs, now_ns: epochs.close(), ends_well),
    ],
    ids=[
        "the ended not told",
        "ends do not count",
        "lane freed too early",
        "ends do not prepare",
        "no journal",
        "epoch lost",
    ],
)
def test_a_broken_controller_is_caught(monkeypatch, broken, name, replacement, law):
    """The laws above are not empty: without any one of these rules they fail for some seed."""
    monkeypatch.setattr(broken, name, replacement)
    with pytest.raises((AssertionError, ProtocolError)):
        _try_all(law)


def _try_all(law) -> None:
    for seed in range(300):
        law(seed)
