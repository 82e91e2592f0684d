"""The rota: which of the workers that share a thread runs next, by deficit round robin over processor time.

Every worker that has something to do is served in turn. In its turn it may use a quantum of processor time; a slice
that takes longer is charged to its later turns, so that over time all get the same, whatever a slice of each costs.
Workers with an urgent event (a fast control message, the preparation of a change) are served before all others, and
those that are *ahead* of their receivers after them, so that tuples queue in front of the first operator that cannot
keep up, and a marker behind it does not wait for them.

Laws: a worker that is ready is served after at most one round of the others; while all are busy, the processor times
of any two differ by at most one quantum and the longest slice (until one has used up a debt of ``DEBT`` quanta, beyond
which slices are not charged).

>>> rota = Rota(quantum_ns=10)
>>> for name in "ab":
...     rota.ready(name)
>>> served = []
>>> for _ in range(6):
...     name = rota.next()
...     served.append(name)
...     rota.charge(name, spent_ns=30 if name == "a" else 10, busy=True)
>>> "".join(served)
'abbbab'
>>> rota.ready("b", urgent=True)
>>> rota.next()
'b'
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

QUANTUM_NS = 2_000_000
"""Processor time of a turn in nanoseconds; a slice takes about as long."""
DEBT = 16
"""Maximum number of quanta that a worker owes."""
AHEAD_BYTES = 128 << 10
"""Number of bytes that receivers have not processed, above which a sender is ahead of them."""
SLOW_NS = 5_000_000
"""Duration of a slow tuple in nanoseconds."""
SLOW_TUPLES, WINDOW = 2, 256
"""A worker is slow from the second slow tuple of a window of so many, until a window has none or one."""
SHORTEST_NS, LONGEST_NS = 4_000_000, 500_000_000
"""Bounds of the flush deadline in nanoseconds."""
INTERVAL_NS = 50_000_000
"""Interval at which the flush deadline is adjusted, in nanoseconds."""
SMALL_FRAME = 128
"""Mean number of tuples in a frame below which the flush deadline grows."""
WAITING = 0.1
"""Share of the time that a host waits above which the flush deadline shrinks."""

M = TypeVar("M", bound=Hashable)


class Rota(Generic[M]):
    """The workers that have something to do.

    Args:
        quantum_ns: processor time of a turn in nanoseconds.
    """

    def __init__(self, quantum_ns: int = QUANTUM_NS) -> None:
        self._quantum = quantum_ns
        self._round: deque[M] = deque()
        self._ahead: deque[M] = deque()
        self._credit: dict[M, int] = {}
        self._urgent: deque[M] = deque()

    def ready(self, member: M, urgent: bool = False, ahead: bool = False) -> None:
        """Add a worker that has something to do; idempotent.

        Args:
            member: the worker.
            urgent: whether it is served next.
            ahead: whether it is served after those that are not ahead of their receivers.
        """
        if urgent and member not in self._urgent:
            self._urgent.append(member)
        if member not in self._credit:
            self._credit[member] = self._quantum
            (self._ahead if ahead else self._round).append(member)
        elif (member in self._ahead) != ahead:
            (self._round if ahead else self._ahead).remove(member)
            (self._ahead if ahead else self._round).append(member)

    def next(self) -> M | None:
        """The worker to serve now; ``None`` if none is ready. To be followed by ``charge`` or ``drop``."""
        if self._urgent:
            return self._urgent.popleft()
        order = self._round or self._ahead
        while order:
            member = order[0]
            if self._credit[member] > 0:
                return member
            self._credit[member] += self._quantum
            order.rotate(-1)
        return None

    def charge(self, member: M, spent_ns: int, busy: bool, ahead: bool = False) -> None:
        """Record a turn.

        Args:
            member: the worker that was served.
            spent_ns: processor time of the turn in nanoseconds.
            busy: whether it has more to do; otherwise it leaves the rota, and its debt is forgiven.
            ahead: whether it is ahead of its receivers.
        """
        if not busy:
            self.drop(member)
        elif member in self._credit:
            self._credit[member] = max(self._credit[member] - max(spent_ns, 1), -DEBT * self._quantum)
            self.ready(member, ahead=ahead)

    def drop(self, member: M) -> None:
        """Remove a worker; idempotent."""
        if self._credit.pop(member, None) is not None:
            (self._ahead if member in self._ahead else self._round).remove(member)

    def has_others(self, member: M) -> bool:
        """Whether a worker other than this one is to be served."""
        return len(self._credit) > (member in self._credit)

    @property
    def has_urgent(self) -> bool:
        """Whether a worker with an urgent event waits to be served."""
        return bool(self._urgent)


class Slowness:
    """Whether a worker's tuples take so long that it gets a thread of its own: two of ``WINDOW`` above ``SLOW_NS``.

    >>> slowness = Slowness()
    >>> slowness.learn(6_000_000, 1), slowness.is_slow
    (None, False)
    >>> slowness.learn(6_000_000, 1), slowness.is_slow
    (None, True)
    >>> slowness.learn(6_000_000, 600), slowness.is_slow    # quick since
    (None, False)
    """

    __slots__ = ("_slow", "_tuples", "is_slow")

    def __init__(self) -> None:
        self.is_slow = False
        self._slow = self._tuples = 0

    def learn(self, took_ns: int, taken: int) -> None:
        """Record a slice with this number of tuples and this duration."""
        if taken and took_ns > SLOW_NS * taken:
            self._slow += taken
        self._tuples += taken
        if self._slow >= SLOW_TUPLES:
            self.is_slow, self._slow, self._tuples = True, 0, 0
        elif self._tuples >= WINDOW:
            self.is_slow, self._slow, self._tuples = False, 0, 0


class FlushDeadline:
    """How long tuples are buffered while a host is busy: longer while frames are small, shorter if the host waits.

    Frames become larger as the deadline grows, and a frame costs as much as hundreds of tuples. A host that would wait
    flushes at once, whatever the deadline.

    Args:
        now_ns: the time in nanoseconds; only differences have a meaning.

    >>> deadline = FlushDeadline(now_ns=0)
    >>> deadline.flushed(frames=100, rows=300)
    >>> deadline.adjusted(now_ns=60_000_000)
    8000000
    >>> deadline.waited(30_000_000)
    >>> deadline.adjusted(now_ns=120_000_000)
    4000000
    """

    __slots__ = ("_frames", "_ns", "_rows", "_since_ns", "_waited_ns")

    def __init__(self, now_ns: int) -> None:
        self._ns = SHORTEST_NS
        self._frames = self._rows = self._waited_ns = 0
        self._since_ns = now_ns

    def flushed(self, frames: int, rows: int) -> None:
        """Record that so many frames with so many tuples in all were sent."""
        self._frames += frames
        self._rows += rows

    def waited(self, ns: int) -> None:
        """Record that the host has waited for so many nanoseconds."""
        self._waited_ns += ns

    def adjusted(self, now_ns: int) -> int:
        """The deadline in nanoseconds; it is adjusted at intervals."""
        passed = now_ns - self._since_ns
        if passed >= INTERVAL_NS:
            if self._waited_ns > passed * WAITING:
                self._ns = max(self._ns // 2, SHORTEST_NS)
            elif self._rows < SMALL_FRAME * self._frames:
                self._ns = min(self._ns * 2, LONGEST_NS)
            self._frames = self._rows = self._waited_ns = 0
            self._since_ns = now_ns
        return self._ns
