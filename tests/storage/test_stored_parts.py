"""States that are stored part by part are read as they were, whatever happens in between; and the price is bounded."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from soak import SHOWN_BY, SOAK, caught, first_tried
from stored_states import try_stored

from fries_nb.operators import pickled_states
from fries_nb.operators.pickled_states import Entry, entry_count, loaded_states, merged_parts, part_of
from fries_nb.protocol.checkpoints import Checkpoint, Snapshot
from fries_nb.protocol.messages import WorkerId
from fries_nb.simulation.store import Store
from fries_nb.storage import stored_parts
from fries_nb.storage.snapshot_files import write_behind
from fries_nb.storage.stored_parts import StoredParts

BOUND = 60
"""Seeds within which each broken build must be caught."""


def test_whatever_happens_the_last_record_has_the_states_of_its_time() -> None:
    """Keys that come and go, moves, failures, given-up checkpoints, deletions, other numbers of workers."""
    runs = [try_stored(seed) for seed in range(40 * SOAK)]
    assert sum(run.deltas for run in runs) > 500
    assert sum(run.failed for run in runs) > 30


# ---- broken builds


def _delete_what_snapshots_do_not_name(files: Any, records: Any, incarnation: int) -> list[str]:
    named = {file for record in records for file in record.snapshots.values()}
    past = [file for file in files if stored_parts.is_past(file.partition("/")[0], records, incarnation)]
    return [file for file in past if file not in named]


def _delete_up_to_the_next_one(
    directory: str, records: Any, incarnation: int, is_past: Callable[..., bool] = stored_parts.is_past
) -> bool:
    later = [Checkpoint("r", record.epoch + 2, 1, {}) for record in records]
    return is_past(directory, later, incarnation)


def _merge_backwards(parts: Any, with_gone: bool) -> tuple[bytes, int]:
    return merged_parts(list(parts)[::-1], with_gone)


def _drop_what_has_gone(parts: Any, with_gone: bool) -> tuple[bytes, int]:
    return merged_parts(parts, False)


def _merge_by_pickle(parts: Any, with_gone: bool) -> tuple[bytes, int]:
    last = {entry[0]: entry for part in parts for entry in pickled_states.entries_of(part)}
    return part_of([*last.values()]), len(last)


def _keep_bins_that_have_gone(
    snapshot: Snapshot, stored: StoredParts | None, laid_out: Callable[..., Any] = stored_parts.laid_out
) -> Any:
    return laid_out(replace(snapshot, gone=()), stored)


def _name_old_agendas(
    snapshot: Snapshot, stored: StoredParts | None, laid_out: Callable[..., Any] = stored_parts.laid_out
) -> Any:
    layout = laid_out(snapshot, stored)
    if stored is not None and snapshot.since:
        layout.agenda.update({bin: held for bin, held in stored.agenda.items() if bin in layout.agenda})
    return layout


def _begin_behind_anything(worker: Any, snapshot: Any, checkpoint: Any, sources: Any) -> StoredParts | None:
    if snapshot is None or checkpoint is None:
        return None
    return StoredParts(checkpoint.epoch, {bin: parts for one in sources for bin, parts in one.bins.items()}, {})


BROKEN = {
    "a part is deleted that an earlier file has": (
        "fries_nb.simulation.store.forgotten_files", _delete_what_snapshots_do_not_name
    ),
    "files of checkpoints that are on their way are deleted": (
        "fries_nb.storage.stored_parts.is_past", _delete_up_to_the_next_one
    ),
    "parts are merged in the wrong order": ("fries_nb.storage.stored_parts.merged_parts", _merge_backwards),
    "keys that have gone come back": ("fries_nb.storage.stored_parts.merged_parts", _drop_what_has_gone),
    "bins that have left count": ("fries_nb.storage.snapshot_files.laid_out", _keep_bins_that_have_gone),
    "an agenda that has changed is named": ("fries_nb.storage.snapshot_files.laid_out", _name_old_agendas),
    "a worker goes on behind bins of others": (
        "fries_nb.storage.restored_states.begun_with", _begin_behind_anything
    ),
    "a snapshot counts behind one that was not written": (
        "fries_nb.storage.saver.SnapshotWriter._check", lambda writer, worker, snapshot, number: None
    ),
    "equal keys are two": ("fries_nb.storage.stored_parts.merged_parts", _merge_by_pickle),
}  # fmt: skip
SHOWN = {"keys that have gone come back": 4, "bins that have left count": 4}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_build_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Without this rule, some run reads other states than it had, or cannot read them."""
    monkeypatch.setattr(*BROKEN[name])
    assert caught(first_tried(SHOWN.get(name, 0), BOUND), try_stored, SHOWN_BY) is not None


# ---- what it costs

WORKER = WorkerId("FM", 0)


class Costs:
    """A worker with many states, of which some are touched between two snapshots; in bytes of parts."""

    def __init__(self, bins: int, keys: int) -> None:
        self.store, self.written = Store(), list[int]()
        self.most_parts = self.most_files = self.most_stored = 0
        self._number, self._chance = 0, Random(1)
        self._stored: dict[WorkerId, StoredParts] = {}
        self.save((bin, key) for bin in range(bins) for key in range(keys))
        self.all = self.written.pop()

    def save(self, touched: Iterable[tuple[int, int]], is_gone: bool = False) -> None:
        """Store what has come: states, or that keys have gone."""
        bins: dict[int, list[Entry]] = {}
        for bin, key in touched:
            state = None if is_gone else self._chance.randbytes(100)
            bins.setdefault(bin, []).append((pickle.dumps(1000 * bin + key), state))
        parts = {bin: (part_of(entries),) for bin, entries in bins.items()}
        snapshot, self._number = Snapshot("FM", 0, 0, bins=parts, since=self._number), self._number + 1
        written = write_behind(self.store, f"{self._number}-1", self._number, [snapshot], self._stored)
        self._stored = dict(written.stored)
        stored = self._stored[WORKER]
        self.written.append(sum(blob.length for blob in stored.blobs if blob.file.name == written.name))
        self.most_parts = max(self.most_parts, *map(len, stored.bins.values()), 0)
        self.most_files = max(self.most_files, len(stored.files))
        self.stored = sum(blob.length for blob in stored.blobs)
        self.most_stored = max(self.most_stored, self.stored)
        self.store.files = {name: self.store.files[name] for name in {*stored.files, written.name}}


@pytest.mark.parametrize(
    ("touched", "mean", "most"), [(0.01, 0.045, 0.08), (0.001, 0.007, 0.06), (0.1, 0.30, 0.45), (1.0, 1.01, 1.01)]
)
def test_the_price_of_a_snapshot_follows_what_was_touched(touched: float, mean: float, most: float) -> None:
    """Spread over all bins, at random; also the parts, the files and what does not count any more are bounded."""
    costs, chance = Costs(100, 100), Random(2)
    keys = [(bin, key) for bin in range(100) for key in range(100)]
    for _ in range(150 if touched < 0.05 else 12):
        costs.save(chance.sample(keys, round(touched * len(keys))))
    assert sum(costs.written) / len(costs.written) < mean * costs.all
    assert max(costs.written) < most * costs.all
    assert costs.most_parts <= stored_parts.PARTS
    assert costs.most_files <= stored_parts.FILES
    assert costs.most_stored < 2 * costs.all


def test_bins_that_are_all_touched_at_once_are_not_written_again_at_once() -> None:
    """The same number of keys of each bin, again and again."""
    costs = Costs(100, 100)
    for number in range(160):
        costs.save((bin, 7 * number % 100) for bin in range(100))
    assert sum(costs.written) / len(costs.written) < 0.045 * costs.all
    assert max(costs.written) < 0.09 * costs.all
    assert costs.most_parts <= stored_parts.PARTS
    assert costs.most_stored < 2 * costs.all


def test_where_nothing_was_touched_nothing_is_written() -> None:
    """And no file more is named."""
    costs = Costs(10, 10)
    costs.save([(3, 4)])
    for _ in range(3):
        costs.save([])
    assert costs.written[1:] == [0, 0, 0]
    assert costs.most_files == 2


def test_keys_that_have_gone_take_no_room_for_long() -> None:
    """What says that they have is small, and what is stored of them is not."""
    costs = Costs(100, 100)
    for key in range(100):
        costs.save([(bin, key) for bin in range(100)], is_gone=True)
    for _ in range(60):
        costs.save([(0, 0)])
    assert costs.stored < 0.1 * costs.all


def test_a_bin_larger_than_any_credit_is_written_again_when_as_much_has_come() -> None:
    """One bin has all states."""
    costs = Costs(1, 1000)
    for number in range(1100):
        costs.save([(0, number % 1000)])
    assert costs.most_parts <= stored_parts.PARTS
    assert costs.most_stored < 2.5 * costs.all
    assert sum(costs.written) < 6 * costs.all


def test_a_part_says_how_many_entries_it_has() -> None:
    """In its first bytes; what is no part is refused."""
    for count in (0, 1, 15, 16, 65_536):
        assert entry_count(part_of([(b"key", None)] * count)) == count
    for other in (b"", b"\x81\x01\x02", b"text"):
        with pytest.raises(ValueError, match="it is no part of states"):
            entry_count(other)


def test_what_is_merged_is_what_was_there() -> None:
    """Equal keys are one, however they are pickled; those that have gone stay as long as earlier parts may have them."""
    first = part_of([(pickle.dumps(1), pickle.dumps("a")), (pickle.dumps(2), pickle.dumps("b"))])
    then = part_of([(pickle.dumps(1.0), None), (pickle.dumps(3), pickle.dumps("c"))])
    merged, count = merged_parts([first, then], with_gone=True)
    assert (count, loaded_states([merged], {})) == (3, {2: "b", 3: "c"})
    assert loaded_states([part_of([(pickle.dumps(1), pickle.dumps("z"))]), merged], {}) == {2: "b", 3: "c"}
    assert merged_parts([first, then], with_gone=False)[1] == 2
