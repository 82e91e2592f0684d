"""How far a worker has begun each origin, and whether it is frozen for a change that is decided row by row.

A change by the cut (see ``protocol.rollout``) needs a position of each origin above which no target has begun a row. So
a target that is frozen begins none until it is told the cut, or that the change is aborted; it never goes on by itself,
since the controller counts on its answer. A worker that runs several targets goes on when the last one is told, else a
row would meet both versions. What it has in hand counts as begun up to the next row.

>>> rows = pa.record_batch({"_fries_transaction": [(3 << 40) + position for position in range(10)]})
>>> freezing = Freezing()
>>> freezing.begin(rows)
>>> freezing.apply(Freeze("u1"), "FM", remaining=4), freezing.is_frozen
({3: 5}, True)
>>> freezing.thaw("u0", "FM"), freezing.is_frozen, freezing.thaw("u1", "FM"), freezing.is_frozen
(None, True, None, False)
>>> freezing.end(), freezing.positions(remaining=0)
(None, {3: 9})
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.protocol.frames import Action, CloseCuts, Commit, Freeze, Reconfigure
from fries_nb.protocol.partitioning import identities
from fries_nb.protocol.rollout import BegunPositions, BroughtOut, Identities

TELLING = (Freeze, Commit, CloseCuts)
"""Actions whose acknowledgements say how far a worker has begun."""


class Freezing:
    """The positions of one worker, and the change for which it is frozen.

    Attributes:
        brought_out: what counts the rows that time brings out of its first operator, which count as begun.
    """

    brought_out: BroughtOut | None = None

    def __init__(self) -> None:
        self._begun = BegunPositions()
        self._in_hand: Identities | None = None
        self._frozen: set[tuple[str, str]] = set()  # change and operator

    @property
    def is_frozen(self) -> bool:
        """Whether no row may be begun."""
        return bool(self._frozen)

    def begin(self, batch: pa.RecordBatch | None) -> None:
        """A batch is in hand from now on; nothing is recorded of one whose rows have no identities."""
        if batch is not None and batch.schema.get_field_index(TRANSACTION) >= 0:
            self._in_hand = identities(batch)

    def end(self) -> None:
        """The batch in hand is used up."""
        if self._in_hand is not None:
            self._begun.add(self._in_hand)
            self._in_hand = None

    def positions(self, remaining: int) -> dict[int, int]:
        """Origin to the highest position begun; the last rows of the batch in hand, so many, are not begun."""
        if self._in_hand is not None:
            self._begun.add(self._in_hand[: max(0, len(self._in_hand) - remaining)])
        if self.brought_out is not None:
            self._begun.merge(self.brought_out.positions)
        return self._begun.positions

    def apply(self, action: Action, operator: str, remaining: int) -> dict[int, int]:
        """Apply a marker's action at an operator; returns what its acknowledgement says of positions."""
        match action:
            case Freeze(change):
                self._frozen.add((change, operator))
                return self.positions(remaining)
            case Commit(beyond=beyond) | CloseCuts(beyond=beyond):
                if self.brought_out is not None:
                    self.brought_out.jump(beyond)
                return self.positions(remaining)
            case Reconfigure(change):
                self.thaw(change, operator)
        return {}

    def thaw(self, change: str, operator: str) -> None:
        """An operator need not wait any more for a change."""
        self._frozen.discard((change, operator))

    def join(self, other: Freezing, remaining: int) -> None:
        """Continue where another worker was, with so many rows left in hand there, whose operators this one runs."""
        self._begun.merge(other.positions(remaining))
        self._frozen |= other._frozen

    def keep(self, operators: Collection[str]) -> None:
        """Wait for these operators only, since another worker runs the others."""
        self._frozen = {(change, operator) for change, operator in self._frozen if operator in operators}
