"""States that are stored part by part, in seeded runs with trouble: the promises hold, and each broken build is caught.

Parts and files are few, and bins are hardly written again, so that snapshots of these short runs name earlier files.
"""

from __future__ import annotations

import dataclasses
import random

import pytest
from interleaving_checks import try_seed
from msgspec.structs import replace
from rescaling_checks import try_rescaled
from soak import SHOWN_BY, SOAK, caught, first_tried

from fries_nb.controller.commits import Checkpoints
from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import Checkpoint
from fries_nb.simulation import store
from fries_nb.simulation.faults import Faults
from fries_nb.simulation.scenarios import draw_rescaled
from fries_nb.simulation.store import Store
from fries_nb.storage import snapshot_files, stored_parts
from fries_nb.storage.checkpoint_store import KEPT
from fries_nb.storage.snapshot_files import read_file_of_snapshots

BOUND = 120
"""Seeds within which each broken build must be caught."""


def _tidied(stored, tidy=Store.tidy):
    """Deletes, and reads what the kept records name, from which the run may have to go on at any time."""
    tidy(stored)
    try:
        for record in stored.records[-KEPT:]:
            for name in record.snapshots.values():
                read_file_of_snapshots(stored, name)
    except CheckpointError as error:
        raise AssertionError(str(error)) from error


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    monkeypatch.setattr(stored_parts, "LEAST", 9.0)
    monkeypatch.setattr(stored_parts, "PARTS", 4)
    monkeypatch.setattr(stored_parts, "FILES", 4)
    monkeypatch.setattr(Store, "tidy", _tidied)


def draw_drifting(seed):
    """A keyed dataflow whose keys come one after the other, with a checkpoint every few rows, and kills of hosts."""
    plain, chance = draw_rescaled(seed), random.Random(f"drifting {seed}")
    pace, moments = chance.choice((3, 6, 12)), tuple(sorted(chance.uniform(0.1, 1.0) for _ in range(9)))
    rows = [{**row, "customer": row["number"] // pace * 7 + row["number"] % 2} for row in plain.inputs["S0"]]
    faults = Faults(hazard=0.002, host_kills=chance.choice((1, 2)), full_disk=chance.choice((0.0, 0.1)))
    often = {"checkpoints": True, "commit_interval_ns": 2_000_000, "faults": faults, "window": 300}
    return dataclasses.replace(
        plain, inputs={"S0": rows}, cluster=plain.cluster | often, wishes=(), requests=moments
    )  # fmt: skip


def try_drifting(seed):
    """A run whose later checkpoints do not touch the keys of earlier ones."""
    return try_seed(seed, draw_drifting)


def try_moved(seed):
    """The same, with hosts that come and go."""
    return try_rescaled(seed, draw_drifting)


def test_every_promise_holds_of_states_in_several_files():
    """Records need earlier files, which are deleted when no later one does."""
    played = [attempt(seed) for attempt in (try_drifting, try_moved) for seed in range(12 * SOAK)]
    stores = [one.cluster.store for one in played]
    assert sum(any(record.earlier.values()) for one in stores for record in one.records) > 5
    assert sum(name not in one.files for one in stores for record in one.records for name in record.files) > 20


def _delete_what_records_do_not_list(files, records, incarnation, forgotten=stored_parts.forgotten_files):
    return forgotten(files, [replace(record, earlier={}) for record in records], incarnation)


def _delete_up_to_the_next_one(directory, records, incarnation, is_past=stored_parts.is_past):
    return is_past(directory, [Checkpoint("r", record.epoch + 2, 1, {}) for record in records], incarnation)


def _list_no_earlier_file(checkpoints, answer, saved=Checkpoints.saved):
    saved(checkpoints, replace(answer, earlier=()))


def _await_no_snapshot(checkpoints, settle=Checkpoints.settle):
    checkpoints._attempt.owing.clear()
    return settle(checkpoints)


def _store_last_states_only(snapshot, stored, laid_out=stored_parts.laid_out):
    return laid_out(replace(snapshot, since=0), stored)


BROKEN = {
    "a part is deleted too early": (store, "forgotten_files", _delete_what_records_do_not_list),
    "files on their way are deleted": (stored_parts, "is_past", _delete_up_to_the_next_one),
    "a record lists no earlier files": (Checkpoints, "saved", _list_no_earlier_file),
    "a record comes before its parts": (Checkpoints, "settle", _await_no_snapshot),
    "earlier parts are forgotten": (snapshot_files, "laid_out", _store_last_states_only),
}
SHOWN = {
    "a part is deleted too early": 6, "a record lists no earlier files": 6, "files on their way are deleted": 23,
    "earlier parts are forgotten": 11,
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_build_is_caught(monkeypatch, name):
    """Without this rule, some run loses a state, or cannot go on."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), BOUND), try_drifting, SHOWN_BY) is not None
