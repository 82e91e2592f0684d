"""States that are stored part by part, in seeded runs with trouble: the promises hold, and each broken build is caught.

Parts and files are few, and bins are hardly written again, so that snapshots of these short runs name earlier files.
"""

from __future__ import annotations

import pytest
from interleaving_checks import try_focused, try_seed
from msgspec.structs import replace
from soak import SHOWN_BY, SOAK, caught, first_tried

from fries_nb.controller.commits import Checkpoints
from fries_nb.protocol.checkpoints import Checkpoint
from fries_nb.simulation import store
from fries_nb.simulation.rescaling_cluster import draw_reshaped
from fries_nb.storage import restored_states, snapshot_files, stored_parts
from fries_nb.storage.saver import SnapshotWriter
from fries_nb.storage.stored_parts import StoredParts

BOUND = 120
"""Seeds within which each broken build must be caught."""


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    monkeypatch.setattr(stored_parts, "LEAST", 9.0)
    monkeypatch.setattr(stored_parts, "PARTS", 4)
    monkeypatch.setattr(stored_parts, "FILES", 4)


def try_reshaped(seed):
    """A run that is resumed in other shapes."""
    return try_seed(seed, draw_reshaped)


def test_every_promise_holds_of_states_in_several_files():
    """Records need earlier files, which are deleted when no later one does."""
    played = [attempt(seed) for attempt in (try_focused, try_reshaped) for seed in range(12 * SOAK)]
    stores = [one.cluster.store for one in played]
    assert sum(any(record.earlier.values()) for one in stores for record in one.records) > 5
    written = {name for one in stores for record in one.records for name in record.files}
    assert len(written) > sum(len(one.files) for one in stores)


def _delete_what_records_do_not_list(files, records, incarnation, forgotten=stored_parts.forgotten_files):
    return forgotten(files, [replace(record, earlier={}) for record in records], incarnation)


def _delete_up_to_the_next_one(directory, records, incarnation, is_past=stored_parts.is_past):
    return is_past(directory, [Checkpoint("r", record.epoch + 2, 1, {}) for record in records], incarnation)


def _list_no_earlier_file(checkpoints, answer, saved=Checkpoints.saved):
    saved(checkpoints, replace(answer, earlier=()))


def _await_no_snapshot(checkpoints, settle=Checkpoints.settle):
    checkpoints._attempt.owing.clear()
    return settle(checkpoints)


def _keep_bins_that_have_gone(snapshot, stored, laid_out=stored_parts.laid_out):
    return laid_out(replace(snapshot, gone=()), stored)


def _begin_behind_all_bins(worker, snapshot, checkpoint, sources):
    if snapshot is None or checkpoint is None:
        return None
    bins = {bin: parts for one in sources for bin, parts in one.bins.items()}
    return StoredParts(checkpoint.epoch, bins, {})


def _store_last_states_only(snapshot, stored, laid_out=stored_parts.laid_out):
    return laid_out(replace(snapshot, since=0), stored)


BROKEN = {
    "a part is deleted too early": (store, "forgotten_files", _delete_what_records_do_not_list),
    "files on their way are deleted": (stored_parts, "is_past", _delete_up_to_the_next_one),
    "a record lists no earlier files": (Checkpoints, "saved", _list_no_earlier_file),
    "a record comes before its parts": (Checkpoints, "settle", _await_no_snapshot),
    "bins that have left count": (snapshot_files, "laid_out", _keep_bins_that_have_gone),
    "a worker goes on behind bins of others": (restored_states, "begun_with", _begin_behind_all_bins),
    "what was not written counts as stored": (SnapshotWriter, "_check", lambda writer, worker, snapshot, number: None),
    "earlier parts are forgotten": (snapshot_files, "laid_out", _store_last_states_only),
}
SHOWN: dict[str, tuple[str, int]] = {}
TRIES = {"focused": try_focused, "reshaped": try_reshaped}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_build_is_caught(monkeypatch, name):
    """Without this rule, some run loses a state, or cannot go on."""
    monkeypatch.setattr(*BROKEN[name])
    kind, shown = SHOWN.get(name, ("reshaped", 0))
    assert caught(first_tried(shown, BOUND), TRIES[kind], SHOWN_BY) is not None
