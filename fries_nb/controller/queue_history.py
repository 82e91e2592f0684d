"""The queues and rates of a run's operators over time, in memory that hardly grows with the length of the run.

A sample is taken every ``INTERVAL_S``, and the newest minute is kept as it was sampled. Of what is older, the two
oldest samples of a resolution are merged into one of the next, which is half as fine. So the interval of a sample is at
most a sixtieth of its age, 24 hours are less than 1,000 samples, and each doubling of the time adds 60.

>>> history = QueueHistory()
>>> for second in range(3600):
...     history.add({"FM": OperatorMetrics(queued=second, rate=8.0)}, at_s=float(second))
>>> points = history.points()
>>> len(points), [points[n + 1].at_s - points[n].at_s for n in (-2, 300, 100, 0)]
(530, [1.0, 1.0, 16.0, 32.0])
>>> points[-1]
QueuePoint(at_s=3599.0, operator='FM', queued=3599, queued_bytes=0, rate=8.0)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fries_nb.controller.history import INTERVAL_S
from fries_nb.controller.metrics import OperatorMetrics

NEWEST = 240
"""Number of samples that are kept as they were taken: those of one minute."""
COARSER = 60
"""Number of samples of each coarser resolution."""


@dataclass(frozen=True, slots=True)
class QueuePoint:
    """The input queues and the rate of one operator in one interval, over all of its workers.

    Attributes:
        at_s: end of the interval, in seconds since the Unix epoch.
        operator: name of the operator.
        queued: number of tuples in its input queues; the largest one of an interval that was merged.
        queued_bytes: size of these tuples in bytes; also the largest one.
        rate: tuples per second that it takes in; the mean of an interval that was merged.
    """

    at_s: float
    operator: str
    queued: int
    queued_bytes: int
    rate: float

    def merged(self, later: QueuePoint) -> QueuePoint:
        """The point of an interval that consists of this one and an equally long one after it."""
        return QueuePoint(
            later.at_s,
            self.operator,
            max(self.queued, later.queued),
            max(self.queued_bytes, later.queued_bytes),
            (self.rate + later.rate) / 2,
        )


_Sample = dict[str, QueuePoint]


class QueueHistory:
    """The queues and rates of one run's operators, in order of time."""

    def __init__(self) -> None:
        self._levels: list[list[_Sample]] = [[]]  # the finest first
        self._last_s: float | None = None

    def is_due(self, at_s: float) -> bool:
        """Whether the next sample is to be added at this time, in seconds since the Unix epoch."""
        if self._last_s is None:
            self._last_s = at_s  # the first report is that of one worker; the others follow
        return not 0 <= at_s - self._last_s < INTERVAL_S  # also if the clock was set back

    def add(self, operators: Mapping[str, OperatorMetrics], at_s: float) -> None:
        """Add a sample.

        Args:
            operators: operator to its measurements.
            at_s: time of the sample, in seconds since the Unix epoch.
        """
        self._last_s = at_s
        points = {name: QueuePoint(at_s, name, one.queued, one.queued_bytes, one.rate)
                  for name, one in operators.items()}  # fmt: skip
        self._levels[0].append(points)
        self._thin()

    def _thin(self) -> None:
        """Merge the two oldest samples of each resolution that has too many."""
        for number, level in enumerate(self._levels):
            if len(level) <= (COARSER if number else NEWEST) + 1:
                return
            if number + 1 == len(self._levels):
                self._levels.append([])
            first, second = level[:2]
            del level[:2]
            both = {name: first[name].merged(point) if name in first else point for name, point in second.items()}
            self._levels[number + 1].append(both)

    def points(self) -> tuple[QueuePoint, ...]:
        """The points so far, oldest first; those of one sample are in the order of the operators."""
        return tuple(point for level in reversed(self._levels) for one in level for point in one.values())
