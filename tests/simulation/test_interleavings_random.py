"""Random dataflows, clusters, changes and interleavings: the promises hold in all of them.

Every seed is one run; see `interleaving_checks` for what is checked of it, and for how to replay one.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from interleaving_checks import SOAK, lacking, try_seed

from fries_nb.protocol.messages import Cancel
from fries_nb.simulation.network import LaneKind, SeededNetwork

RUNS = 120
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_in_every_interleaving(chunk):
    """Changes are transactions, nothing is lost, order and state are kept, commits are cuts, every run ends."""
    size = RUNS * SOAK // CHUNKS
    for seed in range(chunk * size, (chunk + 1) * size):
        _met(seed)


@cache
def _met(seed):
    """What a seed has met, with all laws checked; once, for both tests that ask for it."""
    met: Counter[str] = Counter()

    def take(network, lane, original=SeededNetwork.take):
        what = original(network, lane)
        if lane[0] is LaneKind.CONTROL and isinstance(what[1], Cancel):
            met["cancelled"] += 1
        return what

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SeededNetwork, "take", take)
        cluster = try_seed(seed).cluster
    outcomes = list(cluster.outcomes.values())
    for outcome in outcomes:
        done = outcome.outcome == "done"
        met[f"{outcome.scheduler} done" if done else outcome.outcome] += 1
        met["several components"] += done and len(outcome.components) > 1
        met["a longer path"] += done and any(len(component) > 2 for component in outcome.components)
        met["some had ended"] += done and any(how.ended for how in outcome.per_worker.values())
    met["several epochs"] += len(cluster.epochs) > 1
    met["stopped"] += cluster.state == "stopped"
    met["queued"] += sum(outcome.outcome == "done" for outcome in outcomes) > 1
    return met


def test_random_runs_meet_what_they_are_for():
    """A count over some of them: none of the laws is kept for want of a case."""
    met: Counter[str] = Counter()
    wanted = ("fries done", "epoch done", "naive done", "aborted", "failed", "cancelled", "several components",
              "a longer path", "some had ended", "several epochs", "stopped", "queued")  # fmt: skip
    assert lacking(100, wanted, lambda seed: met.update(_met(seed)), met, least=3) == {}
