"""Seeded interleavings of everything that workers may say: the promises hold in all of them."""

from __future__ import annotations

import pytest
from controller_crowd import Crowd
from controller_endings import (
    ends_well,
    ends_well_after_losses,
    is_mended,
    is_rolled_back,
    is_rolled_back_after_losses,
    recovers_well,
    rests_well,
    survives_everything,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from soak import SOAK

from fries_nb.controller.events import Answered, HostLost, StopRequested
from fries_nb.protocol.messages import Failed

SEEDS = st.integers(0, 2**32)
MANY = settings(max_examples=100 * SOAK, deadline=None, derandomize=True)
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
