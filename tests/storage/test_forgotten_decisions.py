"""Decisions on disk: bounded by what the last two checkpoints know of, whatever is deleted when, and none is missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from place_setting import decided, graph, snapshot, store

from fries_nb.controller.commits import Recovery
from fries_nb.errors import CheckpointError
from fries_nb.protocol.checkpoints import Checkpoint, CommittedChange
from fries_nb.protocol.rollout import RolloutStep
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.storage.snapshot_files import write_snapshots


class Journalled:
    """A recovery and the store that its decisions go to, as the driver pairs them."""

    def __init__(self, place: CheckpointStore) -> None:
        self.place = place
        self.recovery = Recovery(place.incarnation, place.restoration)
        self.epoch = max([place.restoration.last_epoch, *([point.epoch] if (point := self.point) else [])])

    @property
    def point(self) -> Checkpoint | None:
        """The last checkpoint."""
        return self.recovery.checkpoint

    def change(self, name: str, undoes: str = "") -> None:
        """Decide a change of FM, or the rollback of one."""
        payloads = {} if undoes else {"FM": name.encode()}
        self.place.decide(self.recovery.decide(name, "fries", (("FM",),), payloads, undoes=undoes))

    def checkpoint(self) -> Checkpoint:
        """Take one, and delete what is not needed any more."""
        self.epoch += 1
        name, _ = write_snapshots(store(self.place), str(self.epoch), self.place.incarnation, [snapshot()])
        known = tuple(one.change for one in self.recovery.decided)
        record = Checkpoint(
            self.place.flow.run, self.epoch, self.place.incarnation, {"FM[0]": name}, decided=known,
            decisions=self.recovery.decisions,
        )  # fmt: skip
        self.place.keep(record)
        self.recovery.keep(record)
        self.place.tidy()
        return record


def claimed(path: Path) -> Journalled:
    """A new directory."""
    return Journalled(CheckpointStore.claim(str(path / "c"), graph(), "r1"))


def files(path: Path) -> list[str]:
    """The decisions on disk."""
    return sorted(one.name for one in (path / "c" / "decisions").iterdir())


def of(changes: tuple[CommittedChange, ...]) -> list[str]:
    """Ids of changes."""
    return [one.change for one in changes]


def test_a_thousand_changes_leave_a_handful_of_files(tmp_path: Path) -> None:
    """Two records know of a few each; resumed, the numbers and ids go on."""
    run = claimed(tmp_path)
    for number in range(1, 1_001):
        run.change(f"u{number}")
        if number % 10 == 0:
            run.checkpoint()
    assert len(files(tmp_path)) <= 25
    assert of(tuple(run.recovery.decided)) == ["u999", "u1000"]
    run.place.release()
    again = Journalled(CheckpointStore.resume(run.place.path, graph()))
    assert of(again.place.restoration.decided) == [f"u{number}" for number in range(989, 1_001)]
    assert again.recovery.decisions == 1_000
    again.change("u1001")
    for _ in range(3):
        again.checkpoint()
    assert len(files(tmp_path)) <= 3
    assert of(CheckpointStore.load(run.place.path)[1].decided) == ["u1000", "u1001"]


def test_the_steps_of_a_canary_stay_as_long_as_it_does(tmp_path: Path) -> None:
    """Without them a restart would give rows back to the old version that have met the new one."""
    run = claimed(tmp_path)
    steps = tuple(RolloutStep({7: number}, share) for number, share in enumerate((0.1, 0.4)))
    first = run.recovery.decide("u1", "cut", (("FM",),), {"FM": b"code"}, steps=steps[:1])
    run.place.decide(first)
    run.place.decide(run.recovery.decide_step("u2", "u1", steps))
    for _ in range(3):
        run.checkpoint()
    [canary] = CheckpointStore.load(run.place.path)[1].decided
    assert (canary.change, canary.steps) == ("u1", steps)


def test_files_that_could_not_be_deleted_are_not_read(tmp_path: Path) -> None:
    """What a record has forgotten has no effect, though it is there: its state was transformed long ago."""
    run = claimed(tmp_path)
    for number in range(1, 6):
        run.change(f"u{number}")
    run.checkpoint()
    kept = {name: (tmp_path / "c" / "decisions" / name).read_bytes() for name in files(tmp_path)}
    run.checkpoint()
    run.checkpoint()
    assert len(files(tmp_path)) == 2
    for name, content in kept.items():
        (tmp_path / "c" / "decisions" / name).write_bytes(content)
    assert of(CheckpointStore.load(run.place.path)[1].decided) == ["u4", "u5"]
    run.place.release()
    again = Journalled(CheckpointStore.resume(run.place.path, graph()))
    assert of(again.place.restoration.decided) == ["u4", "u5"]
    again.checkpoint()
    assert len(files(tmp_path)) == 2, "deleted by the next attempt"


def test_behind_a_damaged_checkpoint_what_the_one_before_needs_is_there(tmp_path: Path) -> None:
    """All changes since the record before, with their functions."""
    run = claimed(tmp_path)
    run.change("u1")
    run.checkpoint()
    for number in range(2, 7):
        run.change(f"u{number}")
    record = run.checkpoint()
    (tmp_path / "c" / "complete" / f"{record.epoch:06d}-0001.json").write_bytes(b"{}")
    run.place.release()
    with pytest.warns(RuntimeWarning, match="goes on from the checkpoint before it"):
        again = CheckpointStore.resume(run.place.path, graph())
    assert of(again.restoration.decided) == [f"u{number}" for number in range(1, 7)]
    assert all(one.payloads for one in again.restoration.decided)


def test_a_rollback_by_a_guard_is_forgotten_with_its_change(tmp_path: Path) -> None:
    """Never before it: the change would come back."""
    run = claimed(tmp_path)
    run.change("u1")
    run.change("u2")
    run.change("u2.back", undoes="u2")
    for _ in range(3):
        run.checkpoint()
    assert of(CheckpointStore.load(run.place.path)[1].decided) == ["u1", "u2", "u2.back"], "ids are not reused"
    run.change("u3")
    for _ in range(3):
        run.checkpoint()
    assert of(CheckpointStore.load(run.place.path)[1].decided) == ["u1", "u3"]
    assert len(files(tmp_path)) == 2


def test_a_change_that_is_taken_back_leaves_nothing(tmp_path: Path) -> None:
    """Neither it nor what revokes it."""
    run = claimed(tmp_path)
    run.change("u1")
    run.change("u2")
    run.place.decide(run.recovery.take_back("u2"))
    assert of(CheckpointStore.load(run.place.path)[1].decided) == ["u1"]
    for _ in range(2):
        run.checkpoint()
    assert len(files(tmp_path)) == 1
    assert of(CheckpointStore.load(run.place.path)[1].decided) == ["u1"]


@pytest.mark.parametrize("since", [False, True])
def test_a_decision_that_is_needed_and_gone_is_damage(tmp_path: Path, since: bool) -> None:
    """One that the record knows of; and one since, which the next attempt listed."""
    run = claimed(tmp_path)
    run.change("u1")
    run.checkpoint()
    run.change("u2")
    run.place.release()
    CheckpointStore.resume(run.place.path, graph()).release()
    name = files(tmp_path)[1 if since else 0]
    (tmp_path / "c" / "decisions" / name).unlink()
    with pytest.raises(CheckpointError, match="is damaged"):
        CheckpointStore.resume(run.place.path, graph())


def test_decisions_before_the_first_checkpoint_stay(tmp_path: Path) -> None:
    """Nothing includes them yet; one that was made for a region before it began has its place as well."""
    run = claimed(tmp_path)
    run.place.decide(CommittedChange("u1", "fries", (("FM",),), {"FM": b"update"}))
    run.place.tidy()
    run.place.release()
    again = CheckpointStore.resume(run.place.path, graph())
    assert again.restoration.decided == (decided("u1"),)
    assert Recovery(2, again.restoration).decisions == 1
