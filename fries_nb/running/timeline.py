"""What has happened in a run, or in one of its changes, step by step and in words: ``run.story()``, ``change.story()``.

>>> story = Timeline((
...     TimelineEntry(1_000.0, "u1", "change u1 of FM is requested by fries"),
...     TimelineEntry(1_000.5, "", "host 1 is gone"),
...     TimelineEntry(1_002.0, "u1", "change u1 is done")))
>>> story.about("u1")
     +0 ms  change u1 of FM is requested by fries
      +2 s  change u1 is done
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from fries_nb.controller.event_log import Noted
from fries_nb.words import duration


@dataclass(frozen=True)
class TimelineEntry:
    """One thing that has happened.

    Attributes:
        at_s: when, in seconds since the Unix epoch.
        change: id of the change that it is about; empty if of none.
        words: what, in words.
    """

    at_s: float
    change: str
    words: str


@dataclass(frozen=True, repr=False)
class Timeline:
    """What has happened, in order; shown as text, a line for each entry.

    Attributes:
        entries: the entries: of a run about the last 1,000, without those that only measure.
        since_s: the time from which the lines count, in seconds since the Unix epoch; ``None`` for the time of day.
    """

    entries: tuple[TimelineEntry, ...]
    since_s: float | None = None

    @staticmethod
    def of(noted: Iterable[Noted], zero_s: float) -> Timeline:
        """What a controller has noted, whose clock had the value 0 at a time in seconds since the Unix epoch."""
        return Timeline(tuple(TimelineEntry(zero_s + one.at_ns / 1e9, one.change, one.words) for one in noted))

    def about(self, change: str) -> Timeline:
        """What is about this change, with the time since its first entry."""
        entries = tuple(entry for entry in self.entries if entry.change == change)
        return Timeline(entries, entries[0].at_s if entries else None)

    def __str__(self) -> str:
        return "\n".join(f"{self._at(entry.at_s):>10}  {entry.words}" for entry in self.entries)

    __repr__ = __str__

    def _at(self, at_s: float) -> str:
        if self.since_s is not None:
            return f"+{duration(at_s - self.since_s)}"
        return f"{datetime.fromtimestamp(at_s).astimezone():%H:%M:%S.%f}"[:-3]
