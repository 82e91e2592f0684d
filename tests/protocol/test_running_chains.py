"""The chains of a run from what its hosts answer, against the chains of workers that are fused and split."""

from __future__ import annotations

import itertools
import random

import pytest

from fries_nb.protocol.messages import Chained, WorkerId
from fries_nb.protocol.running_chains import ChainedOperators, RunningChains

WORKERS = dict.fromkeys("ABCD", 2)


def answer(chain: str, index: int = 0, error: str = "") -> Chained:
    """A host's answer about a chain."""
    return Chained(WorkerId(chain[0], index), tuple(chain), error)


@pytest.mark.parametrize("seed", range(30))
def test_any_fuses_and_splits(seed: int) -> None:
    """As told by the answers, each instance has the cuts of the line A to D that were drawn."""
    draw, chains = random.Random(seed), RunningChains([tuple("AB"), tuple("C"), tuple("D")], WORKERS)
    cuts = [{2, 3}, {2, 3}]
    for _ in range(12):
        index = draw.randrange(2)
        begin, end = sorted(draw.sample(range(5), 2))
        cuts[index] = {cut for cut in cuts[index] | {begin, end} if not begin < cut < end} & {1, 2, 3}
        chains = chains.after(answer("ABCD"[begin:end], index))
        for number, expected in enumerate(cuts):
            bounds = [0, *sorted(expected), 4]
            parts = {"ABCD"[one:other] for one, other in itertools.pairwise(bounds) if other - one > 1}
            assert {"".join(one.operators) for one in chains.chained if number in one.indices} == parts


def test_answers_that_change_nothing() -> None:
    """A refusal names the chain as it is, or none."""
    chains = RunningChains([tuple("AB"), tuple("C"), tuple("D")], WORKERS)
    assert chains.after(answer("AB", error="A[0] was busy")) is chains
    assert chains.after(Chained(WorkerId("X", 0), (), "this host does not run X[0]")) is chains


def test_a_restarted_run_has_the_chains_of_its_topology() -> None:
    """Whatever was fused before."""
    chains = RunningChains([tuple("AB"), tuple("C"), tuple("D")], WORKERS)
    assert chains.after(answer("CD")).restarted().chained == (ChainedOperators(("A", "B"), (0, 1), 2),)
