"""Random dataflows, clusters, changes and interleavings: the promises hold in all of them.

Every seed is one run; see `interleaving_checks` for what is checked of it, and for how to replay one.
"""

from __future__ import annotations

from collections import Counter

import pytest
from interleaving_checks import lacking, try_seed

from fries_nb.protocol.messages import Cancel
from fries_nb.simulation.network import LaneKind, SeededNetwork


def _met(seed):
    """What a seed has met, with all laws checked."""
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


def test_every_promise_holds_in_every_interleaving():
    """Changes are transactions, nothing is lost, order and state are kept, commits are cuts, every run ends."""
    wanted = ("fries done", "epoch done", "naive done", "aborted", "failed", "cancelled", "several components",
              "a longer path", "some had ended", "several epochs", "stopped", "queued")  # fmt: skip
    assert lacking(25, wanted, _met, least=3, most=120, shown=(46, 25, 26, 32, 34, 40, 66, 74)) == {}
