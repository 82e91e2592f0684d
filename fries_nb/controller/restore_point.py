"""The state from which a run recovers: the last checkpoint, and every decided change.

A recovered run continues as a new *incarnation*: hosts are started again, and their workers start from a
``Restoration``. Messages of older incarnations are ignored. A run that is recovered too often without a new checkpoint
in between fails, since it would make no progress.

>>> recovery = Recovery(incarnation=1)
>>> recovery.decide("u1", "fries", (("FM",),), {"FM": b"code"}).incarnation
1
>>> recovery.lose()
>>> recover = recovery.again("host 1 was lost", hosts=2)
>>> recover.incarnation, recover.restoration.checkpoint, [each.change for each in recover.restoration.decided]
(2, None, ['u1'])
"""

from __future__ import annotations

from collections.abc import Mapping

from fries_nb.checkpoints import Checkpoint, CommittedChange, Restoration, insert_decided, without_superseded
from fries_nb.controller.events import Recover

MOST_IN_A_ROW = 10
"""Maximum number of consecutive recoveries without a new checkpoint."""


class Recovery:
    """The incarnations of one run, and the state from which the next one starts.

    Args:
        incarnation: number of the first incarnation.
        restored: the state from which it starts; ``None`` if there is none.
        recovers: whether lost hosts are recovered from.
        optional: whether the run goes on without recovery once a checkpoint has failed.

    Attributes:
        incarnation: number of the current incarnation.
        checkpoint: the last checkpoint kept, of any incarnation.
        decided: the decided changes in order, including those of earlier runs in the same checkpoint directory; without
            functions that no worker will load again, and without changes that are forgotten.
        decisions: number of the last decision.
        columns: operator to the column types imposed on it, as a serialized Arrow schema; see ``agreement``.
        tables: keyed operator to its packed routing table in the next incarnation, if its bins are not dealt evenly.
        recovers, optional: see the arguments.
    """

    def __init__(
        self, incarnation: int, restored: Restoration | None = None, recovers: bool = True, optional: bool = False
    ) -> None:
        self.incarnation = incarnation
        self.checkpoint: Checkpoint | None = restored.checkpoint if restored else None
        self.decided: list[CommittedChange] = list(restored.decided) if restored else []
        self.columns: dict[str, bytes] = {}
        self.tables: dict[str, bytes] = {}
        self.recovers = recovers
        self.decisions = max([0, *(each.number for each in self.decided)])
        if self.checkpoint is not None:
            self.decisions = max(self.decisions, self.checkpoint.decisions)
        self.optional = optional
        self._in_a_row = 0

    @property
    def hopeless(self) -> bool:
        """Whether the maximum number of recoveries without a new checkpoint is reached."""
        return self._in_a_row >= MOST_IN_A_ROW

    def decide(
        self,
        change: str,
        scheduler: str,
        components: tuple[tuple[str, ...], ...],
        payloads: Mapping[str, bytes],
        before: str = "",
        undoes: str = "",
        aside: bool = False,
    ) -> CommittedChange:
        """Record the decision on a change, which is carried out even if hosts are lost.

        Args:
            change: id of the change.
            scheduler: name of its scheduler.
            components: the operators of each component of its plan.
            payloads: target to its pickled update.
            before: id of a change that is ordered after this one; empty if it is the last.
            undoes: id of a change that it rolls back; empty if it is no rollback.
            aside: whether it is the fix of a paused operator.

        Returns:
            The entry for the journal.
        """
        if not self.recovers:  # only checkpoints that are still to be taken can be restored
            self.decided = without_superseded(self.decided, {each.change for each in self.decided})
        self.decisions += 1
        decided = CommittedChange(
            change, scheduler, components, dict(payloads), self.incarnation, before, undoes, aside, (), self.decisions
        )
        insert_decided(self.decided, decided)
        for operator in payloads:
            self.columns.pop(operator, None)  # the new function may write other types
        return decided

    def take_back(self, change: str) -> CommittedChange:
        """Revoke a decided change that no worker has applied, so that none applies it after a restart."""
        [decided] = [each for each in self.decided if each.change == change]
        self.decided.remove(decided)
        self.decisions += 1
        return CommittedChange(
            change, decided.scheduler, decided.components, {}, self.incarnation, number=self.decisions
        )

    def keep(self, record: Checkpoint) -> None:
        """Record that a checkpoint is on disk."""
        self.checkpoint = record
        self.decided = without_superseded(self.decided, frozenset(record.decided))
        self._in_a_row = 0

    def lose(self) -> None:
        """End the current incarnation."""
        self.incarnation += 1

    def again(self, reason: str, hosts: int) -> Recover:
        """The instruction that starts the new incarnation, with so many hosts."""
        self._in_a_row += 1
        decided, columns = tuple(self.decided), dict(self.columns)
        restoration = Restoration(self.checkpoint, decided, columns, tables=dict(self.tables))
        return Recover(self.incarnation, restoration, reason, hosts)
