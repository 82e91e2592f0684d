"""How far the reader of a source's worker is, over all of its splits, as users are told it.

Two things can be behind: what the source has and was not read, if its readers know it (``ObservedReader``), and what is
due by the source's rate. The first is of interest for a log, the second for a replay; of both the larger is told, and
nothing if the source is known to have no more.

>>> from fries_nb.checkpoints import Position
>>> from fries_nb.connectors.rate import RateSource
>>> source = RateSource(count=50)
>>> [split] = source.splits(1)
>>> observed([(split, source.open(split, Position(7)))], RateSchedule(1_000, now_ns=0), now_ns=2_500_000)
Reading(places=('row 7',), behind=3, behind_ns=2500000, ...)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from fries_nb.checkpoints import Reading
from fries_nb.connectors.rate_schedule import RateSchedule
from fries_nb.connectors.source import NOTHING_SKIPPED, ObservedReader, Skipped, Split, SplitReader

MOST_PLACES = 16
"""Number of splits of a worker whose places are told."""


def observed(
    readers: Sequence[tuple[Split, SplitReader]], schedule: RateSchedule | None, now_ns: int,
    skipped: Skipped = NOTHING_SKIPPED,
) -> Reading:  # fmt: skip
    """How far a worker has read.

    Args:
        readers: its splits that have not ended, with their readers.
        schedule: when its rows are due; ``None`` before the first.
        now_ns: the current time in nanoseconds since the Unix epoch.
        skipped: what its splits have left out.
    """
    known = [reader.behind(now_ns) for _, reader in readers if isinstance(reader, ObservedReader)]
    rows, waited_ns = _total([rows for rows, _ in known]), _most([since for _, since in known])
    due, overdue_ns = schedule.overdue(now_ns) if schedule is not None else (0, 0)
    has_more = any(one != 0 for one, _ in known)
    if not known or (has_more and due > (rows or 0)):
        rows, waited_ns = due, overdue_ns
    places = filter(None, (_place(split, reader) for split, reader in readers))
    return Reading(tuple(islice(places, MOST_PLACES)), rows, waited_ns, skipped.count, skipped.last)


def _place(split: Split, reader: SplitReader) -> str:
    if isinstance(reader, ObservedReader):
        return reader.place
    row = reader.position.row if reader.position is not None else 0
    return f"row {split.place(row):,}" if split.step else f"split {split.number}, row {row:,}"


def _total(found: Iterable[int | None]) -> int | None:
    counts = [one for one in found if one is not None]
    return sum(counts) if counts else None


def _most(found: Iterable[int | None]) -> int | None:
    return max((one for one in found if one is not None), default=None)
