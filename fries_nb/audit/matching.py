"""Checks that a dedup emitted one tuple of each key, and a self-join each pair, whichever of its workers took them.

How many tuples such an operator emits depends on tuples of other transactions, so conservation alone takes its word for
it. Here the keys of all tuples that it took are counted over all of its workers:

    operator     of a key were taken      must have left
    dedup        one or more              one
    self-join    l left, r right          the lesser of both

A resumed run had taken tuples that its trace lacks. Then a dedup may have emitted the one before; and the tuples of one
side may pair with earlier ones, so between the lesser and the greater number of pairs must have left.

>>> from fries_nb.trace import Matched
>>> matching = Matching()
>>> matching.add(Matched(("t1",), ("7",), "D", worker=0, emitted=True))
>>> matching.add(Matched(("t2", "t3"), ("7", "8"), "D", worker=1, emitted=True))
>>> [one.account for one in matching.astray([TraceFlow({"D": 2}, (), finished=True)])]
['tuples with key 7 make 1 at D, which emitted 2']
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fries_nb.audit.conservation import Astray
from fries_nb.trace import Matched, Record, TraceFlow

Id = str | int


@dataclass(slots=True)
class _Taken:
    """The tuples of one key: how many of each side, for how many of them one left, and the last such transaction."""

    last: Id
    left: int = 0
    right: int = 0
    alone: int = 0
    emitted: int = 0

    def bounds(self, resumed: bool) -> tuple[int, int]:
        """The least and the greatest number of tuples that may have left."""
        if self.alone:
            return (0 if resumed else 1), 1
        least, most = sorted((self.left, self.right))
        return least, (most if resumed else least)


class Matching:
    """Counts of the tuples that dedups and self-joins took and emitted, by key."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, dict[str, _Taken]] = defaultdict(dict)

    def add(self, record: Record) -> None:
        """Account for the next record."""
        if not isinstance(record, Matched):
            return
        of_keys = self._taken[record.operator]
        for transaction, key in zip(record.transactions, record.keys, strict=True):
            taken = of_keys.get(key)
            if taken is None:
                taken = of_keys[key] = _Taken(transaction)
            taken.left += record.side == "left"
            taken.right += record.side == "right"
            taken.alone += not record.side
            if record.emitted:
                taken.emitted += 1
                taken.last = transaction

    def astray(self, flows: Iterable[TraceFlow]) -> Iterator[Astray]:
        """The keys of which too few or too many tuples left, each with a transaction.

        Args:
            flows: the descriptions of what ran, to its end.
        """
        resumed = {name: flow.resumed for flow in flows for name in flow.workers}
        for operator in sorted(resumed.keys() & self._taken.keys()):
            for key, taken in self._taken[operator].items():
                least, most = taken.bounds(resumed[operator])
                if not least <= taken.emitted <= most:
                    expected = least if taken.emitted < least else most
                    yield Astray(taken.last, "", operator, expected, taken.emitted, key=key)
