"""The rota: which of the workers that share a thread runs next, by deficit round robin over processor time.

Every worker that has something to do is served in turn. In its turn it may use a quantum of processor time; a slice
that takes longer is charged to its later turns, so that over time all get the same, whatever a slice of each costs.
Workers with an urgent event (a fast control message, the preparation of a change) are served before all others, and
those that are *ahead* of their receivers after them, so that tuples queue in front of the first operator that cannot
keep up, and a marker behind it does not wait for them. Those that have no tuples, and only save or read states, come
last of all; but one of ``TURNS`` turns is theirs, so that a checkpoint ends on a busy host, too.

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

Slowness: whether a worker should have a thread of its own, since the others of its loop would wait for its tuples.

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

The flush deadline: how long tuples are buffered while a host is busy.

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

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

QUANTUM_NS = 2_000_000
"""Processor time of a turn in nanoseconds; a slice takes about as long."""
DEBT = 16
"""Maximum number of quanta that a worker owes."""
TURNS = 8
"""One of so many turns is of a worker that only saves its states, if there is one."""
AHEAD_BYTES = 128 << 10
"""Number of bytes that receivers have not processed, above which a sender is ahead of them."""

H = TypeVar("H", bound=Hashable)


class Rota(Generic[H]):
    """The workers that have something to do.

    Args:
        quantum_ns: processor time of a turn in nanoseconds.
    """

    def __init__(self, quantum_ns: int = QUANTUM_NS) -> None:
        self._quantum = quantum_ns
        self._round: deque[H] = deque()
        self._ahead: deque[H] = deque()
        self._saving: deque[H] = deque()
        self._turns = 0
        self._place: dict[H, deque[H]] = {}  # where each of them is
        self._credit: dict[H, int] = {}
        self._urgent: deque[H] = deque()

    def ready(self, member: H, urgent: bool = False, ahead: bool = False) -> None:
        """Add a worker that has something to do; idempotent."""
        if urgent and member not in self._urgent:
            self._urgent.append(member)
        self._credit.setdefault(member, self._quantum)
        self._move(member, self._ahead if ahead else self._round)

    def _move(self, member: H, to: deque[H]) -> None:
        before = self._place.get(member)
        if before is to:
            return
        if before is not None:
            before.remove(member)
        self._place[member] = to
        to.append(member)

    def next(self) -> H | None:
        """The worker to serve now; ``None`` if none is ready. To be followed by ``charge`` or ``drop``."""
        if self._urgent:
            return self._urgent.popleft()
        self._turns += 1
        order = self._round or self._ahead or self._saving
        if self._saving and not self._turns % TURNS:
            order = self._saving
        while order:
            member = order[0]
            if self._credit[member] > 0:
                return member
            self._credit[member] += self._quantum
            order.rotate(-1)
        return None

    def charge(self, member: H, spent_ns: int, busy: bool, ahead: bool = False, saves: bool = False) -> None:
        """Record a turn, and whether the worker has more to do, or only to save or read states."""
        if not busy:
            self.drop(member)
        elif member in self._credit:
            self._credit[member] = max(self._credit[member] - max(spent_ns, 1), -DEBT * self._quantum)
            self._move(member, self._saving if saves else self._ahead if ahead else self._round)

    def drop(self, member: H) -> None:
        """Remove a worker; idempotent."""
        if self._credit.pop(member, None) is not None:
            self._place.pop(member).remove(member)

    def has_others(self, member: H) -> bool:
        """Whether a worker other than this one is to be served, and not only to save or read states."""
        others = len(self._round) + len(self._ahead)
        return others > (self._place.get(member, self._saving) is not self._saving)

    def is_aside(self, member: H) -> bool:
        """Whether it has nothing to do but to save or read states."""
        return self._place.get(member) is self._saving

    @property
    def has_urgent(self) -> bool:
        """Whether a worker with an urgent event waits to be served."""
        return bool(self._urgent)


SLOW_NS = 5_000_000
"""Duration of a slow tuple in nanoseconds."""
SLOW_TUPLES, WINDOW = 2, 256
"""A worker is slow from the second slow tuple of a window of so many, until a window has none or one."""
SUSPECT_NS = 200_000
"""Duration of a tuple in nanoseconds from which on it may be waiting."""
JUDGED_NS = 40_000_000
"""Duration of the turns in nanoseconds after which it is judged whether they waited."""
SLOW_WAITING_SHARE = 0.75
"""Share of its turns that a worker waits from which on it is slow; on a busy machine others use up to half of them."""


class Slowness:
    """Learns from the durations of a worker's slices, and the processor times of its turns."""

    __slots__ = ("_processor_ns", "_slow", "_took_ns", "_tuples", "_waits", "is_slow", "may_wait")

    def __init__(self) -> None:
        self.is_slow = self.may_wait = self._waits = False
        self._slow = self._tuples = self._took_ns = self._processor_ns = 0

    def learn(self, took_ns: int, taken: int) -> None:
        """Record a slice."""
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
            self._waits = self._processor_ns < (1 - SLOW_WAITING_SHARE) * self._took_ns
            self.is_slow = self.is_slow or self._waits
            self._took_ns = self._processor_ns = 0


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
        """The deadline in nanoseconds."""
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
