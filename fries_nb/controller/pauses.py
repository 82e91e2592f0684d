"""Operators whose workers are paused on a tuple on which they failed (``on_error="pause"``).

A paused worker processes no further tuples or markers until a *fix* arrives, which is a change of its operator alone
and bypasses its queue. Then it retries the tuple, and resumes or pauses again.

While a change of several operators is being committed, the tuple belongs to the version that the worker runs. A worker
that has not switched yet is fixed in the old version: the fix is ordered *before* that change, and workers that have
applied the change skip it. A worker that has switched is fixed after the change, which it does not delay. A worker
that receives the change's own FCM, as a head, needs no fix: its tuple is the first of the new version.

>>> paused = PausedOperators()
>>> paused.pause(Paused(WorkerId("FM", 0), "FM: KeyError: 'x'")).operator, "FM" in paused.operators
('FM', True)
>>> paused.resume(WorkerId("FM", 0)), paused.operators
(OperatorPaused(operator='FM', paused=()), frozenset())
"""

from __future__ import annotations

from fries_nb.controller.coordinator import Coordinator, Taken
from fries_nb.controller.events import Instruction, OperatorPaused
from fries_nb.errors import ProtocolError
from fries_nb.protocol.messages import Paused, Resumed, WorkerId


class PausedOperators(Coordinator):
    """The paused workers, each with its last message."""

    takes = (Resumed,)

    def __init__(self) -> None:
        self._paused: dict[WorkerId, Paused] = {}

    @property
    def operators(self) -> frozenset[str]:
        """The operators with at least one paused worker."""
        return frozenset(worker.operator for worker in self._paused)

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """The paused workers, sorted."""
        return tuple(sorted(self._paused))

    def pause(self, answer: Paused) -> OperatorPaused:
        """Record that a worker is paused, possibly again after an ineffective fix."""
        self._paused[answer.worker] = answer
        return self._of(answer.worker.operator)

    def take(self, event: Taken, now_ns: int) -> list[Instruction]:
        """See ``resume``."""
        return [self.resume(event.worker)] if isinstance(event, Resumed) else []

    def resume(self, worker: WorkerId) -> OperatorPaused:
        """Record that a worker has processed its tuple."""
        if worker not in self._paused:
            raise ProtocolError(f"{worker} resumed without having been paused")
        del self._paused[worker]
        return self._of(worker.operator)

    def lost(self, why: str, now_ns: int) -> list[Instruction]:
        """Remove all paused workers; returns the event for each operator."""
        operators = sorted(self.operators)
        self._paused = {}
        return [OperatorPaused(operator) for operator in operators]

    def _of(self, operator: str) -> OperatorPaused:
        paused = sorted(self._paused.items())
        return OperatorPaused(operator, tuple(answer for worker, answer in paused if worker.operator == operator))
