"""The trace of a run that has several regions: each region's source tuples are its own."""

from __future__ import annotations

from fries_nb.trace import Ran, RanMany, Record


def in_region(number: int, record: Record) -> list[Record]:
    """A record of a further region: its source tuples are not those of the first, whatever their numbers.

    >>> in_region(1, RanMany((7, 8), "FM"))[1]
    Ran(transaction='2/8', operator='FM', worker=0)
    """
    if isinstance(record, RanMany):
        ran = [Ran(each, record.operator, record.worker) for each in record.transactions]
    elif isinstance(record, Ran):
        ran = [record]
    else:
        return [record]
    return [Ran(f"{number + 1}/{each.transaction}", each.operator, each.worker) for each in ran]
