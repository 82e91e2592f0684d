"""Change batches: the net effect of an atomic step on the counts of pointstamps.

A pointstamp is a time at a location of the dataflow, which is the output of an operator (where tokens are held) or an
edge (where messages wait). A step counts messages that it sent and tokens that it made, +1 each, and messages that it
has used up and tokens that it dropped, -1 each. Only the sum of a whole step means anything: a reader of counts that
saw the -1 of a message without the +1 of what was made of it would believe that nothing can follow.

>>> src, edge = GraphLocation("Src"), GraphLocation("Src", "FM")
>>> batch = ChangeBatch([
...     CountChange(src, (0, 4), +1),   # a token is downgraded from t=3 to t=4,
...     CountChange(src, (0, 3), -1),
...     CountChange(edge, (0, 3), +1),  # after a message was sent with it
...     CountChange(edge, (0, 4), +1),  # a second message
... ])
>>> batch.update(edge, (0, 4), -1)      # has no net effect: it is used up within the step
0
>>> for change in batch.take():
...     print(*change)
Src (0, 4) 1
Src (0, 3) -1
Src->FM (0, 3) 1
>>> bool(batch)
False

Batches commute: their sum does not depend on their order, nor on how steps are grouped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fries_nb.progress.times import Time


class GraphLocation(NamedTuple):
    """A location of the dataflow, summed over workers, so that neither parallelism nor chains change it.

    Attributes:
        operator: the operator that holds the token, or sent the message.
        to: the receiver of the message; empty for an operator's output, and for what moves between its workers.
        branch: index of the output, for edges that leave a split.
    """

    operator: str
    to: str = ""
    branch: int = 0

    def __str__(self) -> str:
        if not self.to:
            return f"{self.operator} moving" if self.branch == _MOVING else self.operator
        return f"{self.operator}->{self.to}" + (f"#{self.branch}" if self.branch else "")


_MOVING = -1
Pointstamp = tuple[GraphLocation, Time]


def moving(operator: str) -> GraphLocation:
    """Where tokens are counted that are on their way from one worker of an operator to another, as messages are.

    They can result in the same as at the operator's output. If they stayed counted there, and went to another host, the
    others might hear of their end there before they hear of what was sent with them here.
    """
    return GraphLocation(operator, branch=_MOVING)


class CountChange(NamedTuple):
    """A net change of the count of one pointstamp."""

    location: GraphLocation
    time: Time
    delta: int


CountChanges = tuple[CountChange, ...]
"""The changes of one or more whole steps, one for each pointstamp, none of them 0."""


class ChangeBatch:
    """Accumulates changes; those that cancel each other vanish."""

    def __init__(self, changes: Iterable[CountChange] = ()) -> None:
        self._deltas: dict[Pointstamp, int] = {}
        self.extend(changes)

    def __bool__(self) -> bool:
        return bool(self._deltas)

    def __len__(self) -> int:
        return len(self._deltas)

    def __iter__(self) -> Iterator[CountChange]:
        return (CountChange(location, time, delta) for (location, time), delta in self._deltas.items())

    def update(self, location: GraphLocation, time: Time, delta: int) -> int:
        """Add ``delta`` to the change of one pointstamp; returns its net change."""
        stamp = (location, time)
        net = self._deltas.get(stamp, 0) + delta
        if net:
            self._deltas[stamp] = net
        else:
            self._deltas.pop(stamp, None)
        return net

    def extend(self, changes: Iterable[CountChange]) -> None:
        """Add the changes of another step."""
        for location, time, delta in changes:
            self.update(location, time, delta)

    def get(self, location: GraphLocation, time: Time) -> int:
        """The net change of one pointstamp."""
        return self._deltas.get((location, time), 0)

    def take(self) -> CountChanges:
        """All changes, whole; the batch is empty afterwards."""
        taken = tuple(self)
        self._deltas.clear()
        return taken
