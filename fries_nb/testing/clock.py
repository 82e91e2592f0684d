"""A clock that stands still until it is told to go on."""

from __future__ import annotations


class ManualClock:
    """Nanoseconds since the Unix epoch, moved by hand.

    >>> clock = ManualClock()
    >>> before = clock()
    >>> clock.advance(5)
    >>> clock() - before
    5
    """

    def __init__(self, start_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now = start_ns

    def __call__(self) -> int:
        return self._now

    def advance(self, nanoseconds: int) -> None:
        """Time passes; it never runs back."""
        self._now += max(0, nanoseconds)
