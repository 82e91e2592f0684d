"""Chains are fused and split while a seeded cluster runs: nothing is lost, and whatever else happens holds as before."""

from __future__ import annotations

from collections import Counter

import pytest
from interleaving_checks import LAWS, SOAK, caught, lacking

from fries_nb.errors import FriesError
from fries_nb.testing.rechaining import RechainingCluster
from fries_nb.testing.scenarios import draw_focused, draw_guarded, draw_scenario, draw_troubled, play

RUNS = 80
CHUNKS = 8


def chained(seed):
    """Keyed state, changed and restored, in a flow whose three operators may be a chain."""
    return draw_focused(seed, chained=True)


DRAWS = {"changed": draw_scenario, "killed": draw_troubled, "chained": chained}


def try_rechained(seed, draw=chained):
    """Play the scenario of a seed, with chains that are fused and split, and check it."""
    try:
        played = play(draw(seed), RechainingCluster)
        for law in LAWS:
            law(played)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: try_rechained({seed}, {draw.__name__}))") from error
    return played


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_while_chains_are_fused_and_split(chunk, draw):
    """With changes by any scheduler, checkpoints, and kills: the same laws as without."""
    size = RUNS * SOAK // CHUNKS
    for seed in range(chunk * size, (chunk + 1) * size):
        try_rechained(seed, draw)
