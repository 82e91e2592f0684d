"""Where a source begins to read, if not at its beginning: ``flow.run(start={"payments": ...})``.

What is given is made a position of each split, when the splits are made. It is part of the split (``Split.start``), so
every restart of the run, and every worker that gets the split before it was begun, begins there.

    a time              what ``find`` of the source gives: the first row of each split from that time on
    a whole number      the same, if the rows have times (``time=``) that are integers; otherwise a row in the order of
                        the source, for one whose rows have numbers: a replay, a table, a rate
    positions           one for each split, since those of another number of splits are of other rows

>>> from fries_nb.connectors.rate import RateSource
>>> source = RateSource(count=7)
>>> [split.start.row for split in begun_at(source, source.splits(2), SourceStart(number=3), None, "S")]
[2, 1]
>>> begun_at(source, source.splits(2), SourceStart(places={0: 2}), None, "S")
Traceback (most recent call last):
fries_nb.errors.SourceError: start= has positions of 1 splits for source 'S', which has 2; expected one of each, ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from fries_nb.connectors.source import Position, RuntimeSource, Split, TimeColumn
from fries_nb.dataflow.starts import AtRow, SourceStart
from fries_nb.errors import SourceError


def begun_at(
    source: RuntimeSource, splits: Sequence[Split], start: SourceStart, column: TimeColumn | None, name: str
) -> list[Split]:
    """The splits of a source with the positions at which a run begins to read them.

    Args:
        source: the source.
        splits: all of its splits.
        start: where the run begins.
        column: the column with the times of its rows, if they have some.
        name: name of the source.

    Raises:
        SourceError: the source has no such place, or cannot find it.
    """
    with _of(name, start):
        if start.places is not None:
            found = {split.number: _placed(source, split, start.places) for split in _all_of(splits, start.places)}
        elif start.time is None and column is None and all(split.step for split in splits):
            found = _from_row(source, splits, start.number or 0)
        else:
            found = dict(source.find(splits, start.time or start.number or 0, column))
        if splits and all(found.get(split.number, Position()) is None for split in splits):
            raise SourceError("which has no row there; expected an earlier place")
    return [replace(split, start=found.get(split.number, split.start)) for split in splits]


@contextmanager
def _of(name: str, start: SourceStart) -> Iterator[None]:
    """Begins the sentence of an error that says why a source cannot begin there."""
    try:
        yield
    except SourceError as error:
        raise SourceError(f"start= has {start} for source {name!r}, {error}") from error


def _all_of(splits: Sequence[Split], places: Mapping[int, object]) -> Sequence[Split]:
    if places.keys() != {split.number for split in splits}:
        raise SourceError(
            f"which has {len(splits)}; expected one of each, numbered from 0, of a run with as many workers of the "
            "source (None for a split that was read)"
        )
    return splits


def _placed(source: RuntimeSource, split: Split, places: Mapping[int, int | AtRow | None]) -> Position | None:
    """The position of a split that is given."""
    place, rows = places[split.number], source.rows_of(split)
    if place is None:
        return None
    if isinstance(place, int) and rows is None:
        raise SourceError(
            f"whose rows are not found by their numbers, as {place} for split {split.number}; expected positions with "
            "all that it needs, as fn.checkpoint(path).positions() has them, or fn.Position(row, at)"
        )
    row = place if isinstance(place, int) else place.row
    if row > (math.inf if rows is None else rows):
        raise SourceError(f"of which split {split.number} has {rows:,} rows, and not {row:,}; expected its own rows")
    return Position(row) if isinstance(place, int) else Position(place.row, place.at)


def _from_row(source: RuntimeSource, splits: Sequence[Split], place: int) -> dict[int, Position | None]:
    """The first row of each split from a row of the source on."""
    rows = {split.number: source.rows_of(split) for split in splits}
    if place < 0 or any(count is None for count in rows.values()):
        raise SourceError("whose rows have no such number; expected the position of each split, or a time")
    first = {split.number: split.row_from(place) for split in splits}
    return {number: Position(row) if row < (rows[number] or 0) else None for number, row in first.items()}
