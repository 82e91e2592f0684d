"""Slowness: whether a worker should have a thread of its own, since the others of its loop would wait for its tuples.

Two reasons: its tuples take long, or they wait for a service or a disk while others could run. The shell measures the
processor time of turns with tuples that are long enough to be worth it (``may_wait``).

>>> slowness = Slowness()
>>> slowness.learn(6_000_000, 1), slowness.is_slow
(None, False)
>>> slowness.learn(6_000_000, 1), slowness.is_slow
(None, True)
>>> slowness.learn(6_000_000, 600), slowness.is_slow    # quick since
(None, False)
>>> for _ in range(30):                                 # a tuple waits for two milliseconds
...     slowness.learn(2_000_000, 1)
...     if slowness.may_wait:
...         slowness.used(processor_ns=50_000, took_ns=2_000_000)
>>> slowness.is_slow
True
"""

from __future__ import annotations

SLOW_NS = 5_000_000
"""Duration of a slow tuple in nanoseconds."""
SLOW_TUPLES, WINDOW = 2, 256
"""A worker is slow from the second slow tuple of a window of so many, until a window has none or one."""
SUSPECT_NS = 200_000
"""Duration of a tuple in nanoseconds from which on it may be waiting."""
JUDGED_NS = 40_000_000
"""Duration of the turns in nanoseconds after which it is judged whether they waited."""
WAITING_SHARE = 0.75
"""Share of its turns that a worker waits from which on it is slow; on a busy machine others use up to half of them."""


class Slowness:
    """Learns from the durations of a worker's slices, and the processor times of its turns."""

    __slots__ = ("_processor_ns", "_slow", "_took_ns", "_tuples", "_waits", "is_slow", "may_wait")

    def __init__(self) -> None:
        self.is_slow = self.may_wait = self._waits = False
        self._slow = self._tuples = self._took_ns = self._processor_ns = 0

    def learn(self, took_ns: int, taken: int) -> None:
        """Record a slice.

        Args:
            took_ns: its duration in nanoseconds.
            taken: its number of tuples.
        """
        if not taken:
            return
        self.may_wait = took_ns > SUSPECT_NS * taken
        if took_ns > SLOW_NS * taken:
            self._slow += taken
        self._tuples += taken
        if self._slow >= SLOW_TUPLES:
            self.is_slow, self._slow, self._tuples = True, 0, 0
        elif self._tuples >= WINDOW:
            self._waits = self._waits and self.may_wait
            self.is_slow, self._slow, self._tuples = self._waits, 0, 0

    def used(self, processor_ns: int, took_ns: int) -> None:
        """Record the processor time and the duration of a turn in nanoseconds; to be called if ``may_wait``."""
        self._processor_ns += processor_ns
        self._took_ns += took_ns
        if self._took_ns >= JUDGED_NS:
            self._waits = self._processor_ns < (1 - WAITING_SHARE) * self._took_ns
            self.is_slow = self.is_slow or self._waits
            self._took_ns = self._processor_ns = 0
