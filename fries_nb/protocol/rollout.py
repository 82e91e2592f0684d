"""Changes decided row by row: the identity of a row, not a marker, says which configuration processes it.

Every row carries the identity of its source tuple: an *origin* (source and split) and a *position* in it. A change has
steps, each a *cut* and a *share*. The cut has for each origin the highest position that any target had begun when the
step was decided, so rows at or below it have met the configuration before the step, or will meet it; rows above have
met no target yet. A row is new if its *cohort*, which follows from its identity or a column of its source, is in the
share of the last step whose cut is below its position. All targets decide alike, since nothing else counts; and a share
that only rises never moves a row back.

>>> half, whole = RolloutStep({7: 99}, 0.5), RolloutStep({7: 149}, 1.0)
>>> rows = [(7 << ROW_BITS) + position for position in (99, 100, 101, 149, 150)]
>>> batch = pa.RecordBatch.from_pydict({"_fries_transaction": rows})
>>> are_new([whole], batch).tolist()
[False, False, False, False, True]
>>> are_new([half, whole], batch).tolist() == [False, *(cohorts(batch)[1:4] < 1 << 15).tolist(), True]
True

What time brings out of an operator derives from no row of a source. It has an origin for each bin of the operator,
below 0, and its positions are counted there. A bin may be silent, or count again after a restart, so these counters
jump beyond the cuts of all changes when a marker passes which looks for old rows: what is brought out behind it is new.

>>> counters, other = BroughtOut("W"), BroughtOut("W")
>>> first, second = counters.identities([5, 5])
>>> first < second < counters.another(first) < 0, counters.last == {5: 2}
(True, True)
>>> counters.jump(40)
>>> other.receive(counters.release([5, 6]))
>>> are_above({first >> ROW_BITS: 40}, np.array([other.another(first)])), other.last
(array([ True]), {5: 41, 6: 40})

Timely dataflow, Fries' markers and versions by tag all need an order on channels; a cut needs none, so it works behind
one-to-many operators and inside loops. Dynamic updates by the origin of work are older than this: Ma et al., "Version-
consistent dynamic reconfiguration of component-based distributed systems" (FSE 2011); Vasconcelos, Vasconcelos and
Endler (JISA 2016), with several versions side by side, of which each message chooses one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fries_nb.dataflow.operators import TIMED_NUMBERS, timed_number
from fries_nb.protocol.partitioning import BINS, COHORTS, cohorts, identities
from fries_nb.protocol.trace import ROW_BITS

Identities = npt.NDArray[np.int64]
Positions = Mapping[int, int]
"""Origin to a position."""

_LOW = (1 << ROW_BITS) - 1


class RolloutStep(msgspec.Struct, frozen=True):
    """A step of a change that is decided row by row.

    Attributes:
        cut: origin to the highest position of a row that the step does not concern; it concerns all of other origins.
        share: the share of the other rows that are new.
    """

    cut: dict[int, int]
    share: float = 1.0


def are_above(cut: Positions, rows: Identities) -> npt.NDArray[np.bool_]:
    """Whether each row is above a cut."""
    origins = rows >> ROW_BITS
    first = int(origins[0]) if len(rows) else 0
    if (origins == first).all():
        return rows & _LOW > cut.get(first, -1)
    found, places = np.unique(origins, return_inverse=True)
    bounds = np.array([cut.get(int(origin), -1) for origin in found], np.int64)
    return rows & _LOW > bounds[places]


def are_new(steps: Sequence[RolloutStep], batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Whether each row of a batch is new for a change with these steps."""
    rows = identities(batch)
    new = np.zeros(len(rows), np.bool_)
    for step in steps:
        above = are_above(step.cut, rows)
        if 0 < step.share < 1:
            np.copyto(new, cohorts(batch) < step.share * COHORTS, where=above)
        else:
            new[above] = step.share == 1
    return new


def highest(given: Iterable[Positions]) -> dict[int, int]:
    """The highest position of each origin."""
    found: dict[int, int] = {}
    for positions in given:
        for origin, position in positions.items():
            found[origin] = max(position, found.get(origin, -1))
    return found


def lowest(given: Iterable[Positions]) -> dict[int, int]:
    """The lowest position of each origin."""
    found: dict[int, int] = {}
    for positions in given:
        for origin, position in positions.items():
            found[origin] = min(position, found.get(origin, position))
    return found


def lowest_of(rows: Identities) -> dict[int, int]:
    """The lowest position of each origin of these rows.

    >>> lowest_of(np.array([(7 << ROW_BITS) + 4, (7 << ROW_BITS) + 2, 5]))
    {0: 5, 7: 2}
    """
    origins, firsts = np.unique(np.sort(rows) >> ROW_BITS, return_index=True)
    return {int(origin): int(first) & _LOW for origin, first in zip(origins, np.sort(rows)[firsts], strict=True)}


class Reach(msgspec.Struct, frozen=True):
    """How far rows had come in front of a marker of the whole dataflow.

    Attributes:
        read: origin to the highest position that sources had read.
        inside: origin to the lowest position of the rows that were inside loops: they go round behind the marker.
        beyond: behind the marker, all that time brings out has positions beyond this one.
    """

    read: dict[int, int] = {}
    inside: dict[int, int] = {}
    beyond: int = -1

    @property
    def emptied(self) -> Reach:
        """The same, once nothing is inside loops."""
        return Reach(self.read, beyond=self.beyond)

    def has_passed(self, origin: int, position: int) -> bool:
        """Whether no row at or below this position comes behind the marker, but from inside loops.

        Rows of dead letters come once, each with an origin of its own, so no more come of those in a cut.
        """
        if origin < 0 and not is_brought_out(origin):
            return True
        return position <= max(self.read.get(origin, -1), self.beyond if origin < 0 else -1)


def is_inside(steps: Sequence[RolloutStep], reach: Reach) -> bool:
    """Whether rows that the last step does not concern were inside loops."""
    return any(position <= steps[-1].cut.get(origin, -1) for origin, position in reach.inside.items())


def is_over(steps: Sequence[RolloutStep], reach: Reach) -> bool:
    """Whether, behind such a marker, rows come of one version only.

    >>> steps = [RolloutStep({7: 99})]
    >>> [is_over(steps, reach) for reach in (Reach({7: 98}), Reach({7: 99}), Reach({7: 200}, {7: 99}))]
    [False, True, False]
    """
    last = steps[-1]
    passed = (reach.has_passed(origin, position) for origin, position in last.cut.items())
    return last.share in (0.0, 1.0) and all(passed) and not is_inside(steps, reach)


class BegunPositions:
    """The highest position of each origin that a worker has begun at the first operator of its chain."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}

    def add(self, rows: Identities) -> None:
        """Record that rows were begun."""
        if not len(rows):
            return
        least, most = int(rows.min()), int(rows.max())
        origin = most >> ROW_BITS
        if least >> ROW_BITS == origin:
            self._highest[origin] = max(most & _LOW, self._highest.get(origin, -1))
        else:
            ordered = np.sort(rows)
            last = np.flatnonzero(np.diff(ordered >> ROW_BITS, append=origin + 1))
            self.merge({int(one) >> ROW_BITS: int(one) & _LOW for one in ordered[last]})

    def merge(self, positions: Positions) -> None:
        """Record positions that others had begun whose operators this worker runs, or ran."""
        self._highest = highest((self._highest, positions))

    @property
    def positions(self) -> dict[int, int]:
        """Origin to the highest position."""
        return dict(self._highest)


def is_brought_out(origin: int) -> bool:
    """Whether it is of rows that time brings out; of the others below 0, rows of dead letters come."""
    return -(BINS * TIMED_NUMBERS) <= origin < 0


class BroughtOut:
    """Counts the rows that time brings out of an operator at a worker, which gives them identities.

    Attributes:
        last: bin to its last position.
        beyond: positions to come are beyond this one.
    """

    def __init__(self, operator: str) -> None:
        self.last: dict[int, int] = {}
        self.beyond = -1
        self._first = -1 - timed_number(operator) * BINS

    def identities(self, bins: Iterable[int]) -> list[int]:
        """Identities for further rows, of keys of these bins."""
        return [self._next(int(bin)) for bin in bins]

    def another(self, identity: int) -> int:
        """An identity for a further row of the key for which this one was given."""
        return self._next(self._first - (identity >> ROW_BITS))

    def _next(self, bin: int) -> int:
        self.last[bin] = position = max(self.last.get(bin, -1), self.beyond) + 1
        return ((self._first - bin) << ROW_BITS) + position

    def jump(self, position: int) -> None:
        """Give no position up to this one any more."""
        self.beyond = max(self.beyond, position)

    @property
    def positions(self) -> dict[int, int]:
        """Origin to the highest position that was given."""
        return {self._first - bin: position for bin, position in self.last.items()}

    def release(self, bins: Collection[int]) -> dict[int, int]:
        """Give up bins that move; returns the positions beyond which others count on."""
        found = {bin: max(self.last.pop(bin, -1), self.beyond) for bin in bins}
        return {bin: position for bin, position in found.items() if position >= 0}

    def receive(self, last: Positions) -> None:
        """Count on for these bins."""
        self.last = highest((self.last, last))
