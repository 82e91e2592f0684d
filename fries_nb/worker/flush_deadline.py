"""The flush deadline: how long tuples are buffered while a host is busy.

A frame costs as much as hundreds of tuples, so the deadline grows while framing takes a good share of the host's time,
and shrinks if the host waits. A host that would wait flushes at once, whatever the deadline.

>>> deadline = FlushDeadline(now_ns=0)
>>> deadline.flushed(frames=100)
>>> deadline.adjusted(now_ns=60_000_000)
8000000
>>> deadline.waited(30_000_000)
>>> deadline.adjusted(now_ns=120_000_000)
4000000
"""

from __future__ import annotations

SHORTEST_NS, LONGEST_NS = 4_000_000, 500_000_000
"""Bounds of the deadline in nanoseconds."""
INTERVAL_NS = 50_000_000
"""Interval at which the deadline is adjusted, in nanoseconds."""
FRAME_NS = 300_000
"""Cost of a frame in nanoseconds, at its sender and its receiver."""
FRAMING_SHARE = 0.2
"""Share of the time that goes into frames above which the deadline grows."""
WAITING_SHARE = 0.1
"""Share of the time that a host waits above which the deadline shrinks."""


class FlushDeadline:
    """The deadline of one loop; adjusted at intervals.

    Args:
        now_ns: the time in nanoseconds; only differences have a meaning.

    Attributes:
        longest_ns: the deadline does not grow beyond it; latency constraints lower it.
    """

    __slots__ = ("_frames", "_ns", "_since_ns", "_waited_ns", "longest_ns")

    def __init__(self, now_ns: int) -> None:
        self.longest_ns = LONGEST_NS
        self._ns = SHORTEST_NS
        self._frames = self._waited_ns = 0
        self._since_ns = now_ns

    def flushed(self, frames: int) -> None:
        """Record that so many frames were sent."""
        self._frames += frames

    def waited(self, ns: int) -> None:
        """Record that the host has waited for so many nanoseconds."""
        self._waited_ns += ns

    def adjusted(self, now_ns: int) -> int:
        """The deadline in nanoseconds.

        Args:
            now_ns: the time in nanoseconds.
        """
        passed = now_ns - self._since_ns
        if passed >= INTERVAL_NS:
            if self._waited_ns > passed * WAITING_SHARE:
                self._ns = max(self._ns // 2, SHORTEST_NS)
            elif self._frames * FRAME_NS > passed * FRAMING_SHARE:
                self._ns *= 2
            self._ns = min(self._ns, max(self.longest_ns, SHORTEST_NS))
            self._frames = self._waited_ns = 0
            self._since_ns = now_ns
        return self._ns
