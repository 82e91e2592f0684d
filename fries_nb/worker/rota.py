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
