"""Timed dataflows whose hosts join and leave, and whose bins move: windows, reminders and tokens are as without."""

from __future__ import annotations

import pytest
from interleaving_checks import lacking
from soak import SOAK, first_tried
from timed_rescales import WatchedHosts, play_rescaled

from fries_nb.errors import FriesError
from fries_nb.progress.agenda import Agenda
from fries_nb.progress.exchange import HostProgress
from fries_nb.progress.progress_graph import ChangeBatch
from fries_nb.progress.tokens import TokenBook
from fries_nb.worker.bin_transfer import TimesTransfer
from fries_nb.worker.input_times import TrackedTimes
from fries_nb.worker.worker import Worker

CHUNKS = 4
SEEDS = 16


def try_rescaled(seed: int):
    """Play a seed, and say which one it was if it fails."""
    try:
        return play_rescaled(seed)
    except (AssertionError, FriesError) as error:
        raise AssertionError(f"seed {seed}: {error}\n(replay: try_rescaled({seed}))") from error


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_results_are_those_of_a_run_that_is_not_rescaled(chunk):
    """With changes, checkpoints and kills; no frontier passes a row, a token or an entry, wherever it is."""
    size = SEEDS * SOAK // CHUNKS
    for seed in range(chunk * size, (chunk + 1) * size):
        try_rescaled(seed)


def test_hosts_do_join_and_times_do_move():
    """And leave; no promise is kept for want of a case."""
    wanted = ["entries", "tokens", "views", "last frames"]
    assert lacking(20, wanted, try_rescaled, WatchedHosts.met) == {}  # those of the runs above count, too


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
    "a divided frame counts once": 12, "entries are not counted on their way": 5,
    "the old owner fires while it ships": 14, "frames before the view are dropped": 6,
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_caught(monkeypatch, name):
    """Without it some run breaks a promise, or comes to no end."""
    for rule in BROKEN[name]:
        monkeypatch.setattr(*rule)
    for seed in first_tried(SHOWN.get(name, 0), 60):
        try:
            try_rescaled(seed)
        except Exception:  # noqa: BLE001 - the mutant is seen, however it shows itself
            return
    raise AssertionError("no seed has caught it")
