"""Operators get other numbers of workers on the hosts of now, with the core and the topology of a host of Spark.

Hosts join and leave beside, with changes, checkpoints, fused and split chains, and kills of any host. All laws hold,
and each rule of how workers are added to a host that runs is needed.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from interleaving_checks import lacking, try_seed
from msgspec.structs import replace
from rescaling_checks import JOINED
from soak import SOAK, caught, first_tried
from timed_rescales import TimedThreads, play_rescaled

from fries_nb.controller.membership import Rewiring
from fries_nb.driver.driver_topology import DriverTopology
from fries_nb.host.host_topology import HostTopology
from fries_nb.simulation.rescaling_cluster import JoiningCluster
from fries_nb.simulation.scenarios import draw_rescaled
from fries_nb.simulation.threaded_hosts import JoiningThreads
from fries_nb.transport.envelopes import AddWorkers
from fries_nb.worker.bin_transfer import TopologyAdoption
from fries_nb.worker.worker import Worker

MOST_SEEDS = 80


class Scaled(JoiningThreads):
    """Chains are fused and split as well."""

    rechains = 0.01
    of_workers = 0.6


class ScaledHosts(JoiningCluster):
    """The same without threads, for more seeds."""

    of_workers = 0.6


class ScaledInTime(TimedThreads):
    """Rows have times."""

    of_workers = 0.6


def try_scaled(seed, of=Scaled):
    """Play the scenario of a seed, and check it; says what has happened to the requests of workers."""
    cluster = try_seed(seed, draw_rescaled, of, JOINED).cluster
    ended = [end for end in cluster.rescaled if cluster.requested[end.request].hosts is None]
    met = Counter(end.outcome for end in ended)
    met["recovered"] = bool(cluster.recoveries) and bool(met["done"])
    return met


@pytest.mark.parametrize("of", [Scaled, ScaledHosts])
def test_every_promise_holds_while_operators_get_more_and_fewer_workers(of):
    """Rows are processed once, in the order of their keys; a request that is done has led to its numbers."""
    wanted = ("done", "aborted", "recovered")
    assert lacking(4, wanted, partial(try_scaled, of=of), least=2, most=60, shown=(6, 22)) == {}


def test_results_in_time_are_those_of_a_run_that_is_not_rescaled():
    """Windows, reminders and tokens move to workers that were added to a host that runs."""
    ends: Counter[str] = Counter()
    for seed in range(SOAK):
        cluster = play_rescaled(seed, of=ScaledInTime)
        ends.update(end.outcome for end in cluster.rescaled if cluster.requested[end.request].workers)
    assert ends["done"]


def _awaits_nobody_ahead(rewiring, order=Rewiring._order):
    rewiring._ahead = frozenset()
    return order(rewiring)


def _tells_of_no_change(topology, answer, configured=DriverTopology.configured):
    send = topology._send
    topology._send = lambda peer, message: send(
        peer, replace(message, decided=()) if isinstance(message, AddWorkers) else message
    )
    configured(topology, answer)
    topology._send = send


def _adds_nothing(topology, order):
    """The host does not make them."""


def _grants_at_once(worker):
    """The worker goes to work when it is made."""


def _may_change_chains(adoption):
    return adoption._next is not None


BROKEN = {
    "others are told of workers that are not there": (Rewiring, "_order", _awaits_nobody_ahead),
    "new workers know of no change": (DriverTopology, "configured", _tells_of_no_change),
    "workers are not made": (HostTopology, "add_workers", _adds_nothing),
    "new workers do not wait until others know them": (Worker, "hold_back", _grants_at_once),
    "a chain is split while credit is held back": (TopologyAdoption, "under_way", property(_may_change_chains)),
}
SHOWN = {
    "others are told of workers that are not there": 11, "a chain is split while credit is held back": 1,
    "workers are not made": 1, "new workers do not wait until others know them": 1,
    "new workers know of no change": 89,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_addition_is_caught(monkeypatch, name):
    """Without this rule some run breaks a promise, or comes to no end."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), MOST_SEEDS), try_scaled, by=Exception) is not None
