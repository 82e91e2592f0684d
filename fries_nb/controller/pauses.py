"""Operators whose workers are paused on a tuple that they fail on (``on_error="pause"``).

Such a worker takes no tuple and no marker that came behind the tuple, until a change of just its operator has come past
all that waits; then it tries the tuple again, and goes on or pauses again.

While a change of several operators is being committed, the tuple belongs to the version that took it. A worker that has
not switched yet is fixed in the old version: its fix is ordered *ahead* of that change, and workers that have applied
the change skip it. A worker that has switched is fixed when the change is over, which it does not hold up. A worker
that is about to get the FCM of the change itself, as a head, needs no fix: its tuple is the first of the new version.

>>> paused = PausedOperators()
>>> paused.pause(Paused(WorkerId("FM", 0), "FM: KeyError: 'x'")).operator, "FM" in paused.operators
('FM', True)
>>> paused.resume(WorkerId("FM", 0)), paused.operators
(OperatorPaused(operator='FM', paused=()), frozenset())
"""

from __future__ import annotations

from fries_nb.controller.events import OperatorPaused
from fries_nb.errors import ProtocolError
from fries_nb.messages import Paused, WorkerId


class PausedOperators:
    """The workers that are paused, with what they said last."""

    def __init__(self) -> None:
        self._paused: dict[WorkerId, Paused] = {}

    @property
    def operators(self) -> frozenset[str]:
        """The operators of which at least one worker is paused."""
        return frozenset(worker.operator for worker in self._paused)

    @property
    def workers(self) -> tuple[WorkerId, ...]:
        """The workers that are paused."""
        return tuple(sorted(self._paused))

    def pause(self, answer: Paused) -> OperatorPaused:
        """A worker is paused, or is again after a fix that was none."""
        self._paused[answer.worker] = answer
        return self._of(answer.worker.operator)

    def resume(self, worker: WorkerId) -> OperatorPaused:
        """A worker has got past its tuple.

        Raises:
            ProtocolError: it was not paused.
        """
        if worker not in self._paused:
            raise ProtocolError(f"{worker} resumed without having been paused")
        del self._paused[worker]
        return self._of(worker.operator)

    def clear(self) -> list[OperatorPaused]:
        """The workers are gone; new ones will say for themselves whether they are paused."""
        operators = sorted(self.operators)
        self._paused = {}
        return [OperatorPaused(operator) for operator in operators]

    def _of(self, operator: str) -> OperatorPaused:
        paused = sorted(self._paused.items())
        return OperatorPaused(operator, tuple(answer for worker, answer in paused if worker.operator == operator))
