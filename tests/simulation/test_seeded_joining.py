"""Seeded runs whose hosts join and leave at random, with moves of bins, changes, checkpoints and kills of any host."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from interleaving_checks import lacking, try_seed
from rescaling_checks import JOINED
from soak import caught, first_tried

from fries_nb.controller.membership import Rewiring
from fries_nb.protocol.messages import ChannelId
from fries_nb.protocol.topology import Topology
from fries_nb.simulation.rescaling_cluster import JoiningCluster
from fries_nb.simulation.scenarios import draw_rescaled
from fries_nb.simulation.store import Store


def try_joined(seed):
    """Play the scenario of a seed, with hosts that join and leave, and check it."""
    return try_seed(seed, draw_rescaled, JoiningCluster, JOINED)


def _met(seed):
    """What a seed has met, with all laws checked."""
    met, cluster = Counter[str](), try_joined(seed).cluster
    before = draw_rescaled(seed).cluster["hosts"]
    for end in cluster.rescaled:
        met[end.outcome] += 1
        met["lost early"] += "before it took part" in end.error
        met["cancelled"] += "cancelled" in end.error
        met["grown"] += end.outcome == "done" and end.hosts > before
        met["shrunk"] += end.outcome == "done" and end.hosts < before
        before = end.hosts
    numbers = [topology.epoch for topology in cluster.adopted if topology.added]
    readers = [topology.graph.operator("S0").workers for topology in cluster.adopted]
    met["readers came"] += sum(after > before for before, after in pairwise(readers))
    met["joined again"] += len(numbers) > 2
    met["recovered"] += any("was lost" in reason for reason in cluster.recoveries) and bool(cluster.adopted)
    met["changed"] += any(one.outcome == "done" for one in cluster.outcomes.values())
    return met


def test_every_promise_holds_while_hosts_join_and_leave():
    """The same laws as without, among them the audit."""
    wanted = (
        "grown", "shrunk", "aborted", "lost early", "cancelled", "joined again", "recovered", "changed", "readers came",
    )  # fmt: skip
    assert lacking(8, wanted, _met, least=2, most=80, shown=(46, 22)) == {}


def _clear_nothing(topology, leaving=()):
    return {}


def _one_epoch(topology, sender, receiver):
    return ChannelId(sender, receiver, 1)


def _remember_nothing(store, workers):
    return {}


BROKEN = {
    "the loss of new hosts leaves their answers awaited": [(Rewiring, "give_up", lambda rewiring: None)],
    "workers leave with their bins": [
        (Topology, "even_tables", _clear_nothing),
        (Topology, "_is_keyed", lambda topology, name: False),
    ],
    "channels are those of earlier workers": [(Topology, "channel", _one_epoch)],
    "records of earlier workers are not continued": [(Store, "earlier", _remember_nothing)],
}  # fmt: skip


SHOWN = {
    "records of earlier workers are not continued": 138, "workers leave with their bins": 1,
    "the loss of new hosts leaves their answers awaited": 153, "channels are those of earlier workers": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rescale_is_caught(monkeypatch, name):
    """Without this rule, some run breaks a promise, or comes to no end."""
    for rule in BROKEN[name]:
        monkeypatch.setattr(*rule)
    assert caught(first_tried(SHOWN.get(name, 0), 400), try_joined) is not None
