"""Timed dataflows whose hosts join and leave, and whose bins move: windows, reminders and tokens are as without."""

from __future__ import annotations

import pytest
from interleaving_checks import lacking
from soak import caught, first_tried
from timed_rescales import WatchedHosts, play_rescaled

from fries_nb.progress.agenda import Agenda
from fries_nb.progress.exchange import HostProgress
from fries_nb.progress.progress_graph import ChangeBatch
from fries_nb.progress.tokens import TokenBook
from fries_nb.worker.bin_transfer import TimesTransfer
from fries_nb.worker.input_times import TrackedTimes
from fries_nb.worker.worker import Worker


def try_rescaled(seed: int):
    """What a seed has met, with all laws checked."""
    WatchedHosts.met.clear()
    play_rescaled(seed)
    return WatchedHosts.met


def test_results_are_those_of_a_run_that_is_not_rescaled():
    """With changes, checkpoints and kills; no frontier passes a row, a token or an entry, wherever it is."""
    wanted = ["entries", "tokens", "views", "last frames"]
    assert lacking(3, wanted, try_rescaled, most=20) == {}


def _silent_agenda(agenda, bin, entries, release=Agenda.release):
    """Nobody holds a capability for entries on their way."""
    changes, agenda.changes = agenda.changes, ChangeBatch()
    fired = release(agenda, bin, entries)
    for location, time, delta in agenda.changes:
        if delta < 0:
            changes.update(location, time, delta)
    agenda.changes = changes
    return fired


def _received_anew(agenda, bin, entries, fired):
    """The new owner counts its entries, without taking them off the way."""
    for time in dict.fromkeys(time for time, _ in entries):
        if time not in agenda._entries and time not in agenda._taken:
            agenda.changes.update(agenda._location, time, +1)
    agenda._add(entries)


def _forgotten(transfer):
    transfer._waiting.clear()


def _firing_while_shipping(worker):
    agenda = worker.instances[0].agenda
    return agenda is not None and agenda.is_ripe and not worker._alignment.is_closed


def _dropped(progress, view, take_view=HostProgress.take_view):
    progress._early = []
    return take_view(progress, view)


BROKEN = {
    "a divided frame counts once": [(TrackedTimes, "divide", lambda *of: None)],
    "entries are not counted on their way": [(Agenda, "release", _silent_agenda), (Agenda, "receive", _received_anew)],
    "entries stay behind": [(TimesTransfer, "take_over", _forgotten)],
    "tokens are loaded uncounted": [(TokenBook, "receive", TokenBook.load)],
    "the old owner fires while it ships": [(Worker, "_is_ripe", property(_firing_while_shipping))],
    "frames before the view are dropped": [(HostProgress, "take_view", _dropped)],
}  # fmt: skip


SHOWN = {
    "a divided frame counts once": 12, "entries are not counted on their way": 15, "tokens are loaded uncounted": 1,
    "the old owner fires while it ships": 0, "frames before the view are dropped": 18,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch, name):
    """Without it some run breaks a promise, or comes to no end."""
    for rule in BROKEN[name]:
        monkeypatch.setattr(*rule)
    assert caught(first_tried(SHOWN.get(name, 0), 60), try_rescaled, by=Exception) is not None
