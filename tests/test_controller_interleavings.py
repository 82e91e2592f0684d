"""Seeded interleavings of everything that workers may say: the promises hold in all of them."""

from __future__ import annotations

import pytest
from controller_crowd import Crowd
from controller_watched import Watched
from hypothesis import given, settings
from hypothesis import strategies as st

from fries_nb.controller.events import Answered, HostLost, RunEnded, StopRequested
from fries_nb.messages import Failed

SEEDS = st.integers(0, 2**32)
MANY = settings(max_examples=200, deadline=None, derandomize=True)
FINISHED = RunEnded("finished")


def ends_well(seed: int, **world: int) -> None:
    """A run whose sources end by themselves, at any time."""
    crowd = Crowd(seed, **world)
    crowd.run(lambda: crowd.laws.over is not None and crowd.requested == len(crowd.laws.outcomes))
    assert crowd.laws.over == FINISHED
    crowd.laws.at_the_end()


def ends_well_after_losses(seed: int) -> None:
    """Hosts are lost while workers end, and those that had ended in front of the checkpoint end again."""
    ends_well(seed, checkpoints=True, losses=5)


def rests_well(seed: int, **world: int) -> None:
    """A run that one endless source keeps alive while others end; then it is drained."""
    crowd = Crowd(seed, endless=True, **world)
    crowd.run(lambda: crowd.at_rest() or crowd.laws.over is not None)
    if not crowd.laws.over:
        crowd.drain()
        crowd.run(lambda: crowd.laws.over is not None)
    assert crowd.laws.over == FINISHED
    crowd.laws.at_the_end()


def recovers_well(seed: int) -> None:
    """Hosts are lost at random moments of a run with checkpoints, during recoveries as well."""
    rests_well(seed, checkpoints=True, losses=6)


def is_mended(seed: int) -> None:
    """Workers stand in front of tuples until their operator is changed."""
    rests_well(seed, poison=4)


def survives_everything(seed: int) -> None:
    """All at once."""
    rests_well(seed, checkpoints=True, losses=4, poison=3)


def is_rolled_back(seed: int) -> None:
    """What fails under guard is rolled back, in place or from a checkpoint; columns in two types are told."""
    world = {} if seed % 4 == 0 else {"checkpoints": True, "refusals": 2}
    crowd = Watched(seed, endless=True, failures=4, poison=seed % 3, **world)
    crowd.run(lambda: crowd.at_rest() or crowd.laws.over is not None)
    crowd.failures = crowd.refusals = 0
    if not crowd.laws.over:
        crowd.drain()
        crowd.run(lambda: crowd.laws.over is not None)
    assert crowd.laws.over == FINISHED or crowd.excused
    crowd.laws.at_the_end()


def is_rolled_back_after_losses(seed: int) -> None:
    """Sources end at any time, and hosts are lost meanwhile."""
    crowd = Watched(seed, checkpoints=True, losses=3, failures=3, refusals=2)
    crowd.run(lambda: crowd.laws.over is not None and crowd.requested == len(crowd.laws.outcomes))
    assert crowd.laws.over == FINISHED or crowd.excused
    crowd.laws.at_the_end()


LAWS = [ends_well, ends_well_after_losses, rests_well, recovers_well, is_mended, survives_everything]
LAWS += [is_rolled_back, is_rolled_back_after_losses]


@pytest.mark.parametrize("law", LAWS)
def test_every_run_comes_to_its_end(law):
    """Each change resolves once, wholly or absent; each file is committed once; nothing hangs."""

    @MANY
    @given(SEEDS)
    def holds(seed: int) -> None:
        law(seed)

    holds()


@MANY
@given(SEEDS, st.integers(0, 300), st.sampled_from(["failed", "lost", "stopped"]), st.booleans())
def test_an_end_at_any_moment_resolves_all(seed, moment, kind, checkpoints):
    """Whatever was on its way: each change resolves once, the run ends once, no file is committed twice."""
    crowd = Crowd(seed, endless=True, checkpoints=checkpoints and kind != "lost")
    for _ in range(moment):
        crowd.step()
    while crowd.controller.state == "recovering":  # a restart: nobody is there who could fail
        crowd.step()
    crowd.hear(
        {
            "failed": Answered(Failed(crowd.workers[0], "boom")),
            "lost": HostLost(1, "gone"),
            "stopped": StopRequested(),
        }[kind]
    )
    assert crowd.laws.over is not None
    assert crowd.laws.over.state == ("stopped" if kind == "stopped" else "failed")
    for _ in range(200):
        crowd.step()
    assert len(crowd.laws.outcomes) == crowd.requested
    assert set(crowd.laws.committed) <= set(crowd.laws.closed)
    crowd.laws.at_the_end()
