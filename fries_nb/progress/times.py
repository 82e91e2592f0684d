"""Times, compared component by component; and antichains of times, by which frontiers are told.

A row, a frame and a token are stamped with a time.

A time is ``(version, t, round1, ..., roundN)``: the number of tagged changes that its source had applied, the time of
the row itself (nanoseconds for a column of timestamps, otherwise the integer as it is), and one round for each loop
around its place in the dataflow. One time precedes another if none of its components is greater, so two times may be
incomparable: neither can result in the other.

>>> precedes((0, 5), (1, 9)), precedes((0, 9), (1, 5)), precedes((1, 5), (0, 9))
(True, False, False)
>>> moment((0, 5, 2)), rounds((0, 5, 2))
(5, (2,))

A frame holds many rows under one stamp. Version and rounds of a stamp are exact; ``t`` is a lower bound, so a row with
an earlier one lowers it. Rows of incomparable times never share a frame: a stamp that precedes both would be a time
that no token of the sender permits.

>>> share_frame((0, 5, 2), (0, 3, 2)), share_frame((0, 5, 2), (0, 3, 1))
(True, False)
>>> earlier((0, 5, 2), (0, 3, 2))
(0, 3, 2)

Path summaries: what a path through the dataflow does to a time, at least.

A path that enters a loop appends round 0, one that leaves it drops the round, and a feedback edge adds 1. Whatever the
path, the first ``keep`` components of the time are kept, ``add`` is added to them, and ``suffix`` is appended: three
fields are enough, and they compose.

>>> enter, again, leave = entering(2), feeding_back(3), leaving(2)
>>> enter.apply((0, 7)), again.apply((0, 7, 4)), leave.apply((0, 7, 4))
((0, 7, 0), (0, 7, 5), (0, 7))

A tuple that enters, goes round twice and leaves has its old time; one that leaves an inner loop and goes round in the
outer one starts the inner loop anew:

>>> enter.then(again).then(again).then(leave) == identity(2)
True
>>> leaving(3).then(feeding_back(3)).then(entering(3)).apply((0, 7, 4, 9))
(0, 7, 5, 0)

One summary precedes another if it does for every time; then the other says nothing new about what can arrive. Neither
of the last two precedes the other, so a place in an inner loop has both to listen to:

>>> round_outer = leaving(3).then(feeding_back(3)).then(entering(3))
>>> identity(4).precedes(round_outer), round_outer.precedes(identity(4))
(False, False)
>>> minimal([identity(4), feeding_back(4), round_outer]) == (identity(4), round_outer)
True

An *antichain* is a set of times of which none precedes another, a *frontier* one that bounds what can still arrive.

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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from operator import add as plus
from operator import index, le
from typing import Any, NamedTuple

from fries_nb.errors import ProtocolError, TokenError

Time = tuple[int, ...]
"""``(version, t, round1, ..., roundN)``."""

EARLIEST = -(2**63)
"""The least ``t``, that of a source which has read nothing: the least int64."""
LATEST = 2**63 - 1
"""The greatest ``t``: later times fit neither in a column nor in a frame."""
ANY_VERSION = 2**63 - 1
"""Follows all versions. Rows of a time can still come in some version if a frontier precedes the time in this one."""

MOST = "expected one below 2**63 (for timestamps, before the year 2262)"
"""What is expected of a time that is beyond all others, for errors."""


def start_time(depth: int = 0) -> Time:
    """The least time inside ``depth`` loops.

    >>> start_time(1) == (0, EARLIEST, 0)
    True
    """
    return (0, EARLIEST, *(0,) * depth)


def precedes(one: Time, other: Time) -> bool:
    """Whether no component of ``one`` is greater than that of ``other``; false for times of different depths."""
    return len(one) == len(other) and all(map(le, one, other))


def moment(time: Time) -> int:
    """The component ``t``, which users see as ``time``."""
    return time[1]


def with_moment(time: Time, t: int) -> Time:
    """The same version and rounds with another ``t``."""
    return (time[0], t, *time[2:])


def rounds(time: Time) -> tuple[int, ...]:
    """The rounds, outermost loop first; empty outside of loops."""
    return time[2:]


def apart_from_moment(time: Time) -> tuple[int, ...]:
    """Version and rounds: the components that are exact for all rows of a frame."""
    return time[:1] + time[2:]


def share_frame(stamp: Time, time: Time) -> bool:
    """Whether a row of this time may join a frame of this stamp: version and rounds are the same."""
    return apart_from_moment(stamp) == apart_from_moment(time)


def earlier(stamp: Time, time: Time) -> Time:
    """The stamp of a frame that a row of ``time`` joins; see ``share_frame``."""
    return stamp if stamp[1] <= time[1] else time


def postponed(
    operator: str, time: Time, moment: int | None, round: int | None, shown: Callable[[int], Any] = int
) -> Time:
    """A token's time with another ``t``, and another round in the innermost loop; None for the present one."""
    if round is not None and not rounds(time):
        raise TokenError(f"{operator}: a token outside of loops has no round, so it cannot have round {round}")
    try:
        t = time[1] if moment is None else index(moment)
        then = (time[0], t, *time[2:]) if round is None else (time[0], t, *time[2:-1], index(round))
    except TypeError:
        wrong = moment if round is None else (moment, round)
        raise TokenError(f"{operator}: a token came to time {wrong!r}; expected an integer, as in row times") from None
    if t > LATEST:
        raise TokenError(f"{operator}: a token came to time {t}; {MOST}")
    if not precedes(time, then):
        here, there = shown(time[1]), shown(t)
        if round is not None:
            here, there = f"{here} and round {time[-1]}", f"{there} and round {then[-1]}"
        raise TokenError(
            f"{operator}: a token of time {here} cannot be downgraded to {there}; only to the same time or a later one"
        )
    return then


class PathSummary(NamedTuple):
    """The effect of a path on times."""

    add: tuple[int, ...]  # what is added to each component that is kept; the others are dropped
    suffix: tuple[int, ...] = ()  # the components that are appended

    @property
    def keep(self) -> int:
        """Number of leading components that are kept."""
        return len(self.add)

    def apply(self, time: Time) -> Time:
        """The least time at the end of the path of what was stamped with ``time`` at its beginning."""
        if len(time) < len(self.add):
            raise ProtocolError(f"time {time} came to a path that keeps {self.keep} components; expected no fewer")
        return (*map(plus, time, self.add), *self.suffix)

    def then(self, other: PathSummary) -> PathSummary:
        """The summary of this path followed by the other one."""
        if other.keep <= self.keep:
            return PathSummary(tuple(map(plus, self.add, other.add)), other.suffix)
        appended = map(plus, self.suffix, other.add[self.keep :])
        return PathSummary(tuple(map(plus, self.add, other.add)), (*appended, *other.suffix))

    def precedes(self, other: PathSummary) -> bool:
        """Whether ``apply`` gives a preceding or equal time for every time, whose rounds are at least 0."""
        if self.keep + len(self.suffix) != other.keep + len(other.suffix) or self.keep > other.keep:
            return False  # a component that is kept has no bound, so it is not always below a constant
        return all(map(le, (*self.add, *self.suffix), (*other.add, *other.suffix)))


def identity(length: int) -> PathSummary:
    """The empty path between places whose times have ``length`` components."""
    return PathSummary((0,) * length)


def entering(length: int) -> PathSummary:
    """An edge into a loop, from a place whose times have ``length`` components."""
    return PathSummary((0,) * length, (0,))


def leaving(length: int) -> PathSummary:
    """An edge out of one or several loops, to a place whose times have ``length`` components."""
    return PathSummary((0,) * length)


def feeding_back(length: int) -> PathSummary:
    """The feedback edge of a loop at whose head times have ``length`` components; it may leave inner loops too."""
    return PathSummary((*(0,) * (length - 1), 1))


def minimal(summaries: Iterable[PathSummary]) -> tuple[PathSummary, ...]:
    """Those that no other one precedes, in their order."""
    found: list[PathSummary] = []
    for summary in summaries:
        if not any(known.precedes(summary) for known in found):
            found = [known for known in found if not summary.precedes(known)]
            found.append(summary)
    return tuple(found)


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
    """The frontier of a multiset of times."""

    def __init__(self) -> None:
        self.frontier = Antichain()  # the minimal times
        self._moments: dict[tuple[int, ...], _Moments] = {}
        self._least: dict[tuple[int, ...], Time] = {}

    def update(self, time: Time, delta: int) -> None:
        """Add ``delta`` to the number of times that ``time`` is in the multiset."""
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
