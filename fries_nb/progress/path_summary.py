"""Path summaries: what a path through the dataflow does to a time, at least.

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
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add as plus
from operator import le
from typing import NamedTuple

from fries_nb.errors import ProtocolError
from fries_nb.progress.times import Time


class PathSummary(NamedTuple):
    """The effect of a path on times.

    Attributes:
        add: what is added to each component that is kept; the others are dropped.
        suffix: the components that are appended.
    """

    add: tuple[int, ...]
    suffix: tuple[int, ...] = ()

    @property
    def keep(self) -> int:
        """Number of leading components that are kept."""
        return len(self.add)

    def apply(self, time: Time) -> Time:
        """The least time at the end of the path of what was stamped with ``time`` at its beginning.

        Raises:
            ProtocolError: the time has fewer components than the path keeps.
        """
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
