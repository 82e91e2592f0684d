"""Antichains: sets of times of which none precedes another. A *frontier* is one that bounds what can still arrive.

A time can still arrive if an element of the frontier precedes it; when the frontier is empty, nothing can.

>>> frontier = Antichain.of([(0, 7), (0, 9), (1, 3)])
>>> frontier.elements
((0, 7), (1, 3))
>>> frontier.less_equal((0, 8)), frontier.less_equal((0, 6)), Antichain().less_equal((0, 6))
(True, False, False)

Rows of one ``t`` may come in several versions, so that a frontier has passed it in one and not in the other:

>>> frontier.less_equal((0, 5)), frontier.may_bring(5), frontier.may_bring(2)
(False, True, False)

A counted antichain is the frontier of a multiset of times, kept up to date as times come and go. It is cheap for the
common case of many times that differ in ``t`` alone: they have a heap, and only its least one is compared with others.

>>> counted = CountedAntichain()
>>> for time in [(0, 7), (0, 7), (0, 9), (1, 3)]:
...     counted.update(time, +1)
>>> counted.update((0, 7), -1)
>>> counted.frontier.elements
((0, 7), (1, 3))
>>> counted.update((0, 7), -1)
>>> counted.frontier.elements
((0, 9), (1, 3))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from fries_nb.errors import ProtocolError
from fries_nb.progress.times import ANY_VERSION, Time, apart_from_moment, precedes

SPARE = 64
"""Number of outdated entries that a heap may have beside as many as are in use."""


@dataclass(frozen=True, slots=True)
class Antichain:
    """Mutually incomparable times, sorted. Make one with ``of``, which removes the others."""

    elements: tuple[Time, ...] = ()

    @classmethod
    def of(cls, times: Iterable[Time]) -> Antichain:
        """The minimal ones of these times."""
        found: list[Time] = []
        for time in sorted(times):  # what precedes a time is sorted in front of it
            if not any(precedes(known, time) for known in found):
                found.append(time)
        return cls(tuple(found))

    def __bool__(self) -> bool:
        return bool(self.elements)

    def __iter__(self) -> Iterator[Time]:
        return iter(self.elements)

    def less_equal(self, time: Time) -> bool:
        """Whether an element precedes the time or is equal to it: as a frontier, whether the time can still arrive."""
        for element in self.elements:  # noqa: SIM110 - called for each row, and a generator takes twice as long
            if precedes(element, time):
                return True
        return False

    def less_than(self, time: Time) -> bool:
        """Whether an element precedes the time and differs from it."""
        return any(element != time and precedes(element, time) for element in self.elements)

    def may_bring(self, moment: int, rounds: tuple[int, ...] = ()) -> bool:
        """Whether a row can still arrive, in any version, of this ``t`` and rounds."""
        return self.less_equal((ANY_VERSION, moment, *rounds))

    def leads_to(self, other: Antichain) -> bool:
        """Whether a frontier may advance from this one to the other: every element of it could still arrive."""
        return all(self.less_equal(element) for element in other.elements)


class _Moments:
    """A multiset of ``t``, with its least element."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self._heap: list[int] = []

    def update(self, moment: int, delta: int) -> None:
        count = self.counts.get(moment, 0)
        if count + delta < 0:
            raise ProtocolError(f"t={moment} was taken {-delta} times from an antichain that has it {count} times")
        if count + delta:
            self.counts[moment] = count + delta
            if not count:
                heappush(self._heap, moment)
        elif count:
            del self.counts[moment]
            if len(self._heap) > 2 * len(self.counts) + SPARE:
                self._heap = list(self.counts)
                heapify(self._heap)

    @property
    def least(self) -> int | None:
        while self._heap and self._heap[0] not in self.counts:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class CountedAntichain:
    """The frontier of a multiset of times.

    Attributes:
        frontier: the minimal times.
    """

    def __init__(self) -> None:
        self.frontier = Antichain()
        self._moments: dict[tuple[int, ...], _Moments] = {}
        self._least: dict[tuple[int, ...], Time] = {}

    def update(self, time: Time, delta: int) -> None:
        """Add ``delta`` to the number of times that ``time`` is in the multiset.

        Raises:
            ProtocolError: the number would become negative.
        """
        others = apart_from_moment(time)
        moments = self._moments.get(others)
        if moments is None:
            moments = self._moments[others] = _Moments()
        moments.update(time[1], delta)
        least, before = moments.least, self._least.get(others)
        if least is None:
            del self._moments[others]
            if before is not None:
                del self._least[others]
                self._raise_from(before)
        elif before is None or least < before[1]:
            self._least[others] = time
            self._lower_to(time)
        elif least > before[1]:
            self._least[others] = (others[0], least, *others[1:])
            self._raise_from(before)

    def _lower_to(self, time: Time) -> None:
        """A time has come that is the least of its versions and rounds."""
        if not self.frontier.less_equal(time):
            kept = (known for known in self.frontier.elements if not precedes(time, known))
            self.frontier = Antichain(tuple(sorted((time, *kept))))

    def _raise_from(self, time: Time) -> None:
        """A time has gone that was the least of its versions and rounds; what only it preceded is minimal now."""
        elements = self.frontier.elements
        if len(self._least) <= 1:
            self.frontier = Antichain(tuple(self._least.values()))
        elif time in elements:
            kept = Antichain(tuple(known for known in elements if known != time))
            after = (one for one in self._least.values() if precedes(time, one) and not kept.less_equal(one))
            self.frontier = Antichain(tuple(sorted((*kept, *Antichain.of(after)))))
