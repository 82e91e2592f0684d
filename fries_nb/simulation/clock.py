"""A clock that advances only when ``advance`` is called."""

from __future__ import annotations


class ManualClock:
    """A clock in nanoseconds since the Unix epoch, advanced by the caller.

    >>> clock = ManualClock()
    >>> before = clock()
    >>> clock.advance(5)
    >>> clock() - before
    5
    """

    def __init__(self, start_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now = start_ns

    def __call__(self) -> int:
        """The current time in nanoseconds since the Unix epoch."""
        return self._now

    def advance(self, nanoseconds: int) -> None:
        """Advance the time; a negative number has no effect."""
        self._now += max(0, nanoseconds)
