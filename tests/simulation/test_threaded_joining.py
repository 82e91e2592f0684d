"""Hosts of a seeded run join and leave with the core, the chains and the topology of Spark, told by its driver.

All laws hold that hold without threads, while chains are fused and split; each rule of the topology of a host, and of
how the driver tells it, is needed.
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

from fries_nb.driver.driver_topology import DriverTopology
from fries_nb.host.frame_router import FrameRouter
from fries_nb.host.host_chains import HostChains
from fries_nb.host.host_topology import HostTopology
from fries_nb.host.host_workers import configuration_of
from fries_nb.simulation.scenarios import draw_rescaled
from fries_nb.simulation.threaded_hosts import JoiningThreads
from fries_nb.transport.envelopes import Configured, Said, TakePart
from fries_nb.worker.events import BinsArrived

MOST_SEEDS = 60


class Rechained(JoiningThreads):
    """Chains are fused and split as well."""

    rechains = 0.01


def try_joined(seed):
    """Play the scenario of a seed, and check it; says what has happened."""
    cluster = try_seed(seed, draw_rescaled, Rechained, JOINED).cluster
    met = Counter(end.outcome for end in cluster.rescaled)
    met["chained"] = sum(not answer.error for answer in cluster.chained)
    met["recovered"] = bool(cluster.recoveries) and bool(cluster.adopted)
    return met


def test_every_promise_holds_while_hosts_join_and_leave():
    """With changes, checkpoints, and kills of any host."""
    wanted = ("done", "aborted", "chained", "recovered")
    assert lacking(4, wanted, try_joined, least=2, most=40, shown=(6,)) == {}


def _opens_no_links(topology, order, extend=HostTopology.extend):
    real, topology._links.extend = topology._links.extend, lambda *of: None
    extend(topology, order)
    topology._links.extend = real


def _opens_no_links_to_new_hosts(topology, order, extend=HostTopology.extend):
    extend(topology, replace(order, peers={}))


def _keeps_its_routes(topology, order, extend=HostTopology.extend):
    before = topology._core.router._host_of
    extend(topology, order)
    topology._core.router._host_of = before


def _leaves_channels_of_the_lost_open(topology, order, extend=HostTopology.extend):
    extend(topology, replace(order, lost=()))


def _says_how_it_was_built(topology, order, extend=HostTopology.extend):
    """As hosts did: the workers that were made, in place of those that run since chains have changed."""
    extend(topology, replace(order, asks=False))
    if order.asks:
        made = dict.fromkeys(topology._built.workers.values())
        found = {name: one for each in made for name, one in configuration_of(each.worker).items()}
        topology._links.say(Configured(found))


def _says_nothing(topology, order, extend=HostTopology.extend):
    extend(topology, replace(order, asks=False))


def _joins_the_first_topology_only(topology, order, take_part=HostTopology.take_part):
    real, topology._links.extend = topology._links.extend, lambda *of: None
    take_part(topology, order)
    topology._links.extend = real


def _answers_for_one_worker(topology, order, take_part=HostTopology.take_part):
    links, real = topology._links, topology._links.say
    links.say = lambda said: real(Said(said.answers[:1]))
    take_part(topology, order)
    links.say = real


def _asks_nobody(topology, order, change=DriverTopology._change):
    send = topology._send
    topology._send = lambda peer, message: send(peer, replace(message, asks=False))
    change(topology, order)
    topology._send = send


def _lets_take_part_at_once(topology, order, change=DriverTopology._change):
    change(topology, order)
    if topology._joining is not None:
        topology.configured(Configured({}))


def _forgets_earlier_epochs(topology, order, change=DriverTopology._change):
    topology._epochs.clear()
    change(topology, order)


def _takes_nobody_for_a_member(topology, settled, changed=DriverTopology._changed):
    before = topology._members
    changed(topology, settled)
    topology._members = before


def _starts_nobody(topology, message, tell=DriverTopology._tell):
    if type(message).__name__ != "Go":
        tell(topology, message)


def _sends_to_where_workers_were(topology, worker):
    return topology._settled.host_of(worker)


def _tells_new_hosts_of_no_change(topology, answer, configured=DriverTopology.configured):
    send = topology._send
    topology._send = lambda peer, message: send(
        peer, replace(message, add=replace(message.add, decided=())) if isinstance(message, TakePart) else message
    )
    configured(topology, answer)
    topology._send = send


def _begins_as_before(topology, region, order, restarted=DriverTopology.restarted):
    before = topology._current, topology._settled, topology._epochs
    again = restarted(topology, region, order)
    topology._current, topology._settled, topology._epochs = before
    return again


def _forgets_removed_workers(router, placement):
    router._host_of = dict(placement)


def _ships_to_itself(router, bins):
    """State that goes to another host is lost."""
    if bins.to in router._loop_of:
        router.post(bins.to, BinsArrived(bins))


def _hands_nothing_on_behind_a_fusion(chains, first, second, fuse=HostChains._fuse):
    fuse(chains, first, second)
    second.rerouted = None


BROKEN = {
    "a host opens no routes": (HostTopology, "extend", _opens_no_links),
    "a host opens no links to new hosts": (HostTopology, "extend", _opens_no_links_to_new_hosts),
    "a host does not know where new workers are": (HostTopology, "extend", _keeps_its_routes),
    "channels of lost workers stay open": (HostTopology, "extend", _leaves_channels_of_the_lost_open),
    "the configuration is that of the first chains": (HostTopology, "extend", _says_how_it_was_built),
    "no configuration is told": (HostTopology, "extend", _says_nothing),
    "a new host joins the first topology": (HostTopology, "take_part", _joins_the_first_topology_only),
    "a new host answers for one worker": (HostTopology, "take_part", _answers_for_one_worker),
    "no member is asked for the configuration": (DriverTopology, "_change", _asks_nobody),
    "new hosts take part before the configuration is known": (DriverTopology, "_change", _lets_take_part_at_once),
    "new hosts learn the last epoch only": (DriverTopology, "_change", _forgets_earlier_epochs),
    "new hosts are new for ever": (DriverTopology, "_changed", _takes_nobody_for_a_member),
    "new hosts are not started": (DriverTopology, "_tell", _starts_nobody),
    "control messages go where workers were": (DriverTopology, "host_of", _sends_to_where_workers_were),
    "new hosts know of no change": (DriverTopology, "configured", _tells_new_hosts_of_no_change),
    "a restart keeps the topology": (DriverTopology, "restarted", _begins_as_before),
    "removed workers are forgotten at once": (FrameRouter, "place", _forgets_removed_workers),
    "state does not leave its host": (FrameRouter, "ship", _ships_to_itself),
    "events are not handed on behind a fusion": (HostChains, "_fuse", _hands_nothing_on_behind_a_fusion),
}
SHOWN = dict.fromkeys(BROKEN, 1) | {
    "channels of lost workers stay open": 8, "new hosts are not started": 3, "new hosts know of no change": 11,
    "removed workers are forgotten at once": 8, "a host opens no routes": 3,
    "events are not handed on behind a fusion": 0, "control messages go where workers were": 4,
    "the configuration is that of the first chains": 35,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_topology_is_caught(monkeypatch, name):
    """Without this rule some run breaks a promise, or comes to no end."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), MOST_SEEDS), try_joined, by=Exception) is not None


# ---- rows with times


try_timed = partial(play_rescaled, of=TimedThreads)
"""Plays a seed whose rows have times: hosts join the exchange of counts, and leave it."""


def test_results_in_time_are_those_of_a_run_that_is_not_rescaled():
    """With changes, checkpoints and kills; some rescales are done."""
    ends: Counter[str] = Counter()
    for seed in range(2 * SOAK):
        ends.update(end.outcome for end in try_timed(seed).rescaled)
    assert ends["done"]


def _admits_nobody(topology, order, extend=HostTopology.extend):
    real, topology._progress.admit = topology._progress.admit, lambda hosts: None
    extend(topology, order)
    topology._progress.admit = real


def _joins_no_exchange(topology, order, take_part=HostTopology.take_part):
    real, topology._progress.join = topology._progress.join, lambda hosts, topology: None
    take_part(topology, order)
    topology._progress.join = real


TIMED = {
    "members do not admit new hosts": ("extend", _admits_nobody),
    "new hosts do not join the exchange": ("take_part", _joins_no_exchange),
}


@pytest.mark.parametrize("name", TIMED)
def test_a_broken_exchange_is_caught(monkeypatch, name):
    """Without this rule some frontier is stuck, or a count is one too many."""
    monkeypatch.setattr(HostTopology, *TIMED[name])
    assert caught(first_tried(1, MOST_SEEDS), try_timed, by=Exception) is not None
