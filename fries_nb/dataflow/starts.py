"""Where the sources of a run begin to read: the validated values of ``start=``.

A place is a time, a number, or a position of each split, as ``fn.checkpoint(path).positions()`` shows them. What a time
or number means depends on the source: see ``connectors.worker_reader``.

>>> checked_starts({"S": "2026-11-01T00:00"}, ["S"])["S"].time
datetime.datetime(2026, 11, 1, 0, 0)
>>> checked_starts({"S": {0: 7, 1: None}}, ["S"])["S"].places
{0: 7, 1: None}
>>> checked_starts({"S": "yesterday"}, ["S"])
Traceback (most recent call last):
fries_nb.errors.DataflowError: start= has 'yesterday' for source 'S'; expected a datetime, a time as ...
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fries_nb.errors import DataflowError, unknown

_COLUMNS = ("source", "split", "row", "at", "ended")
_EXPECTED = (
    'a datetime, a time as "2026-11-01T00:00", a whole number, or the position of each split, as in '
    "fn.checkpoint(path).positions() or {0: 7, 1: 5}"
)


@dataclass(frozen=True)
class AtRow:
    """A position in a split.

    Attributes:
        row: the number of the next row in the split.
        at: what the source needs to find it besides.
        following: the number of that row in the order of the source; ``None`` if that is not known.
    """

    row: int
    at: Any = None
    following: int | None = None


@dataclass(frozen=True)
class SourceStart:
    """Where one source begins; one of the three is given."""

    time: datetime.datetime | None = None  # without an offset: see ``connectors.source.ticks_of``
    number: int | None = None  # of a row, or a time in a column of integers
    # split to the number of its first row, to its position, or to ``None`` if nothing of it is read
    places: Mapping[int, int | AtRow | None] | None = None

    def __str__(self) -> str:
        if self.places is not None:
            return f"positions of {len(self.places)} splits"
        return str(self.number) if self.time is None else self.time.isoformat(" ")


NO_STARTS: Mapping[str, SourceStart] = {}
"""All sources begin at their beginnings."""


def checked_starts(start: object, sources: Collection[str]) -> dict[str, SourceStart]:
    """The places of ``start=`` by source.

    Raises:
        DataflowError: it is no mapping, or names an unknown source, or what is given is no place.
    """
    if start is None:
        return {}
    if not isinstance(start, Mapping):
        given = repr(start) if isinstance(start, str | int | float) else f"a {type(start).__name__}"
        raise DataflowError(f"start= is {given}; expected source to place, as in start={{{next(iter(sources))!r}: 0}}")
    if strange := [name for name in start if name not in sources]:
        raise DataflowError(f"start= is wrong: {unknown('source', str(strange[0]), sources)}")
    return {name: _checked(name, given) for name, given in start.items()}


def _checked(name: str, given: object) -> SourceStart:
    if isinstance(given, datetime.datetime):
        return SourceStart(time=given)
    if isinstance(given, str):
        try:
            return SourceStart(time=datetime.datetime.fromisoformat(given))
        except ValueError:
            raise _refused(name, given) from None
    if isinstance(given, int) and not isinstance(given, bool):
        return SourceStart(number=given)
    if all(column in getattr(given, "columns", ()) for column in _COLUMNS):
        return SourceStart(places=_of_frame(name, given))
    if isinstance(given, Mapping) and given and all(_is_number(split) for split in given):
        return SourceStart(places={split: _place(name, given, place) for split, place in given.items()})
    raise _refused(name, given)


def _refused(name: str, given: object) -> DataflowError:
    return DataflowError(f"start= has {given!r} for source {name!r}; expected {_EXPECTED}")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _place(name: str, given: object, place: Any) -> int | AtRow | None:
    """The position in one split: a number, an ``fn.Position``, or ``None``."""
    if place is None or _is_number(place):
        return None if place is None else int(place)
    if hasattr(place, "row") and hasattr(place, "at") and _is_number(place.row):
        return AtRow(place.row, place.at)
    raise _refused(name, given)


def _of_frame(name: str, frame: Any) -> dict[int, int | AtRow | None]:
    """The positions that ``fn.checkpoint(path).positions()`` has of a source: those of splits that were begun."""
    mine = frame[frame["source"] == name]
    if not len(mine):
        known = ", ".join(map(str, frame["source"].unique())) or "none"
        raise DataflowError(f"start= has positions of {known} for source {name!r}; expected those of {name!r}")
    rows = mine[mine["split"].notna()].to_dict("records")  # a worker that had ended has a row without a split
    return {
        int(row["split"]): None if row["ended"] else AtRow(int(row["row"]), _plain(row["at"]), _whole(row.get("next")))
        for row in rows
    }


def _whole(number: Any) -> int | None:
    """A number from a column in which some may be missing."""
    return None if _plain(number) is None or number != number else int(number)


def _plain(at: Any) -> Any:
    """What pandas has in a column of whole numbers in the place of ``None`` is that again."""
    return None if type(at).__name__ == "NAType" else at
