"""What survives the loss of all hosts: the last checkpoint kept, and every change decided.

A run goes on under a new *incarnation*: hosts are started again, and their workers start from a ``Restoration``. What
an older incarnation says counts for nothing. A run that is lost again and again without a new checkpoint in between
would never end, so that it is given up.

>>> recovery = Recovery(incarnation=1)
>>> recovery.decide("u1", "fries", (("FM",),), {"FM": b"code"}).incarnation
1
>>> recovery.lose()
>>> recover = recovery.again("host 1 was lost")
>>> recover.incarnation, recover.restoration.checkpoint, [each.change for each in recover.restoration.decided]
(2, None, ['u1'])
"""

from __future__ import annotations

from collections.abc import Mapping

from fries_nb.checkpoints import Checkpoint, CommittedChange, Restoration, insert_decided, without_superseded
from fries_nb.controller.events import Recover

MOST_IN_A_ROW = 10
"""Recoveries without a new checkpoint in between, before the run is given up."""


class Recovery:
    """Incarnations of one run, and what the next one starts from.

    Attributes:
        incarnation: the present one.
        checkpoint: the last one kept, of any incarnation.
        decided: all changes decided, in order, those of earlier runs of the same checkpoint place included; without
            the functions of those that no worker will load again.
        columns: operator to the columns whose types its workers are told, as a serialized Arrow schema.
    """

    def __init__(self, incarnation: int, restored: Restoration | None = None, recovers: bool = True) -> None:
        self.incarnation = incarnation
        self.checkpoint: Checkpoint | None = restored.checkpoint if restored else None
        self.decided: list[CommittedChange] = list(restored.decided) if restored else []
        self.columns: dict[str, bytes] = {}
        self._recovers = recovers
        self._in_a_row = 0

    @property
    def hopeless(self) -> bool:
        """The run was recovered so often without a new checkpoint that it is given up."""
        return self._in_a_row >= MOST_IN_A_ROW

    def decide(
        self,
        change: str,
        scheduler: str,
        components: tuple[tuple[str, ...], ...],
        payloads: Mapping[str, bytes],
        before: str = "",
        undoes: str = "",
    ) -> CommittedChange:
        """A change will be carried out, whatever fails; ahead of another one that it names as ``before``."""
        if not self._recovers:  # then it is started again from checkpoints only that are yet to be taken
            self.decided = without_superseded(self.decided, {each.change for each in self.decided})
        decided = CommittedChange(change, scheduler, components, dict(payloads), self.incarnation, before, undoes)
        insert_decided(self.decided, decided)
        for operator in payloads:
            self.columns.pop(operator, None)  # what the new function writes is to be seen
        return decided

    def take_back(self, change: str) -> CommittedChange:
        """Revoke a decided change that has reached no worker, so that it reaches none after a restart either."""
        [decided] = [each for each in self.decided if each.change == change]
        self.decided.remove(decided)
        return CommittedChange(change, decided.scheduler, decided.components, {}, self.incarnation)

    def keep(self, record: Checkpoint) -> None:
        """A checkpoint is on disk."""
        self.checkpoint = record
        self.decided = without_superseded(self.decided, frozenset(record.decided))
        self._in_a_row = 0

    def lose(self) -> None:
        """The present incarnation is over."""
        self.incarnation += 1

    def again(self, reason: str) -> Recover:
        """What starts the new incarnation."""
        self._in_a_row += 1
        return Recover(self.incarnation, Restoration(self.checkpoint, tuple(self.decided), dict(self.columns)), reason)
