"""Broken counting is caught by seeds: a frontier passes a row, results are wrong, or the run does not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from soak import caught
from timed_draws import play_timed

from fries_nb.errors import FriesError
from fries_nb.operators.instance import Instance
from fries_nb.progress.exchange import WorkerCounts
from fries_nb.progress.progress_graph import CountChanges
from fries_nb.worker import input_times
from fries_nb.worker.events import Counted
from fries_nb.worker.input_times import TrackedTimes
from fries_nb.worker.worker import Worker

Patch = pytest.MonkeyPatch


def a_step_in_two_halves(patch: Patch) -> None:
    """What was taken away is told before what came of it."""

    def halves(changes: CountChanges) -> list[Counted]:
        parts = [tuple(c for c in changes if c.delta < 0), tuple(c for c in changes if c.delta > 0)]
        return [Counted(part) for part in parts if part]

    patch.setattr(Counted, "of", halves)


def used_up_when_taken(patch: Patch) -> None:
    """A frame counts as used up when it is taken in hand."""
    begin = Worker._begin

    def early(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._times.use_up(self.outbox.changes)
        self._instructions += Counted.of(self.outbox.changes.take())

    patch.setattr(Worker, "_begin", early)


def counted_when_sent(patch: Patch) -> None:
    """Rows in an output buffer are counted when their frame is made."""
    append, cut = WorkerCounts.append, WorkerCounts.cut
    waiting: dict[Any, Any] = {}

    def later(self: Any, channel: Any, edge: Any, time: Any) -> None:
        known = waiting.get((id(self), channel))
        waiting[id(self), channel] = edge, time if known is None else min(known[1], time)

    def sent(self: Any, channel: Any, rest: bool = False) -> Any:
        append(self, channel, *waiting.pop((id(self), channel)))
        return cut(self, channel, rest)

    patch.setattr(WorkerCounts, "append", later)
    patch.setattr(WorkerCounts, "cut", sent)


def the_latest_stamp_of_merged_frames(patch: Patch) -> None:
    """Small frames that are merged are processed at the greatest of their times."""
    patch.setattr(input_times, "earlier", max)


def entries_that_are_not_counted(patch: Patch) -> None:
    """An agenda counts nowhere, so nothing below waits for what it will bring out."""
    patch.setattr(Instance, "track", lambda self, changes, *_: None)


def restored_entries_that_are_not_counted(patch: Patch) -> None:
    """A restored worker does not count what it holds."""
    patch.setattr(Instance, "held", lambda self: ())


def a_source_that_is_ahead_of_its_rows(patch: Patch) -> None:
    """A source gives up the times of rows that it has in hand."""
    take = TrackedTimes.take_rows

    def early(self: Any, version: int, splits: Any, bounds: Any, least: Any = None) -> None:
        take(self, version, splits, bounds, least)
        self.stamp = (version, min(bounds.values(), default=self.stamp[1]))

    patch.setattr(TrackedTimes, "take_rows", early)


MUTANTS: tuple[tuple[Callable[[Patch], None], range], ...] = (
    (a_step_in_two_halves, range(12)),
    (used_up_when_taken, range(12)),
    (counted_when_sent, range(12)),
    (the_latest_stamp_of_merged_frames, range(5, 12)),
    (entries_that_are_not_counted, range(12)),
    (restored_entries_that_are_not_counted, range(7, 8)),
    (a_source_that_is_ahead_of_its_rows, range(12)),
)


@pytest.mark.parametrize(("mutant", "seeds"), MUTANTS, ids=lambda one: getattr(one, "__name__", ""))
def test_broken_counting_is_caught(mutant: Callable[[Patch], None], seeds: range, monkeypatch: Patch) -> None:
    """By one of a dozen seeds, all of which pass without the defect (see ``test_frontiers``)."""
    mutant(monkeypatch)
    assert caught(seeds, play_timed, by=(AssertionError, FriesError, KeyError)) is not None
