"""The link by which a host exchanges counts is the one of Spark, under seeds: each of its rules that is broken is seen.

Hosts join and leave at random, and rows have times. Some hosts that leave die before they have said what is left, so
that the others start again once they have waited for it in vain.
"""

from __future__ import annotations

from functools import partial

import pytest
from soak import SOAK, caught, first_tried
from timed_rescales import play_rescaled

from fries_nb.host.host_progress import ProgressLink
from fries_nb.progress.exchange import ProgressState

MOST_SEEDS = 60
HASTE = 0.5


def test_hosts_that_die_before_they_have_left_are_recovered_from():
    """No frontier is stuck: results are those of a run that is not rescaled."""
    reasons: list[str] = []
    for seed in (39, *range(2 * SOAK)):  # a recovery for this reason is rare
        reasons += play_rescaled(seed, HASTE).recoveries
    assert any("its last counts have not come" in reason for reason in reasons)


def _sends_before_it_records(link, changes, record=ProgressLink.record):
    """What a worker has done is known one step after its frames have left."""
    kept, link.kept = getattr(link, "kept", ()), changes
    record(link, kept)


def _never_announces_what_others_did(link, frame):
    is_view = isinstance(frame, ProgressState)
    with link._lock:
        link._broadcast((link._view.take_view if is_view else link._view.receive)(frame))
        link._serve(link._view)


def _never_announces_its_own(link, changes):
    if link._view is not None:
        with link._lock:
            link._broadcast(link._view.record(changes))


def _admits_in_silence(link, hosts):
    if link._view is not None and (new := set(hosts) - link._others - {link._view.host}):
        link._new |= new
        link._others |= new
        link._view.admit(sorted(new))
        link._serve(link._view)


def _sends_nothing_to_new_hosts(link, hosts, admit=ProgressLink.admit):
    before = set(link._others)
    admit(link, hosts)
    link._others = before


def _never_serves(link, view):
    view.welcomed()


def _every_host_serves(link, view):
    for host in view.welcomed():
        link._send(host, view.state())


def _begins_without_the_others(link, hosts, topology):
    link.place(topology)


def _awaits_no_last_frame(link, hosts, part=ProgressLink.part):
    part(link, hosts)
    link._parting.clear()


def _awaits_last_frames_that_have_come(link):
    return link._parting


def _leaves_in_silence(link, hosts):
    if link._view is not None:
        link._view.leave()


def _leaves_with_what_waits(link, hosts, leave=ProgressLink.leave):
    link._view._waiting.take()
    leave(link, hosts)


def _forgets_members_that_leave(link):
    """New hosts are taken for such as never took part."""


BROKEN = {
    "a step is recorded after its frames are sent": ("record", _sends_before_it_records),
    "frontiers are not announced when frames come": ("receive", _never_announces_what_others_did),
    "frontiers are not announced after a step": ("record", _never_announces_its_own),
    "a host admits others and does not say so": ("admit", _admits_in_silence),
    "a host admits others and sends them nothing": ("admit", _sends_nothing_to_new_hosts),
    "new hosts get no view": ("_serve", _never_serves),
    "each host gives its view": ("_serve", _every_host_serves),
    "a new host does not know the others": ("join", _begins_without_the_others),
    "hosts that have left are not awaited": ("part", _awaits_no_last_frame),
    "hosts are awaited whose last frame has come": ("awaited", _awaits_last_frames_that_have_come),
    "a host leaves without a last frame": ("leave", _leaves_in_silence),
    "a last frame lacks what waits": ("leave", _leaves_with_what_waits),
    "new hosts never become members": ("settle", _forgets_members_that_leave),
}
HASTY = {"hosts that have left are not awaited"}
SHOWN = {
    "frontiers are not announced when frames come": 2, "frontiers are not announced after a step": 10,
    "hosts that have left are not awaited": 1, "hosts are awaited whose last frame has come": 1,
    "a host leaves without a last frame": 1, "a last frame lacks what waits": 1, "new hosts never become members": 12,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_link_is_caught(monkeypatch, name):
    """Without this rule some run breaks a promise, or comes to no end."""
    attribute, broken = BROKEN[name]
    monkeypatch.setattr(ProgressLink, attribute, broken)
    attempt = partial(play_rescaled, haste=HASTE if name in HASTY else 0.0)
    assert caught(first_tried(SHOWN.get(name, 0), MOST_SEEDS), attempt, by=Exception) is not None
