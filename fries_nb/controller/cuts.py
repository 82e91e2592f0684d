"""Changes that are decided row by row, from the decision until no old row can come any more.

The cut of a change is, for each origin, the highest position that any worker of any target has begun: those that answer
while they are frozen, and those that have ended or left. It is not below any earlier cut (the *floor*), which gives all
such changes one order, even if the later one has none of the targets of the earlier one.

A change is *open* until a commit's marker, which follows all that sources have sent before it, has passed all workers,
and the sources have read beyond the cut; after a restart they may not have. Then its workers drop the earlier function.
Meanwhile no other kind of change begins, and the topology stays as it is.

>>> from fries_nb.controller.membership import Workers
>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> workers = Workers(Graph("pair", (Operator("A"), Operator("B")), (Edge("A", "B"),)))
>>> cuts = Cuts(workers, MarkerCoordinator(workers), Recovery(1))
>>> cuts.ended(WorkerId("A", 0), {7: 30})
>>> cuts.decide("u1", frozenset("AB"), [{7: 12, 8: 4}])
RolloutStep(cut={7: 30, 8: 4}, share=1.0)
>>> cuts.decide("u2", frozenset("B"), [{7: 20}]).cut, cuts.open
({7: 30, 8: 4}, ('u1', 'u2'))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fries_nb.controller.commits import Recovery
from fries_nb.controller.events import Tell
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.protocol.checkpoints import open_by_row
from fries_nb.protocol.messages import Done, Settle, WorkerId
from fries_nb.protocol.rollout import RolloutStep, highest, is_over


class Cuts:
    """The open changes of a run that are decided row by row.

    Attributes:
        floor: origin to its position in the highest cut so far.
    """

    def __init__(self, workers: Workers, lane: MarkerCoordinator, recovery: Recovery) -> None:
        self.floor: dict[int, int] = {}
        self._workers = workers
        self._lane = lane
        self._recovery = recovery
        self._ended: dict[WorkerId, Mapping[int, int]] = {}
        self._open: dict[str, tuple[frozenset[str], RolloutStep]] = {}
        self.start_again()

    @property
    def open(self) -> tuple[str, ...]:
        """The changes of which old rows may come, in order."""
        return tuple(self._open)

    def ended(self, worker: WorkerId, begun: Mapping[int, int]) -> None:
        """Record how far a worker had begun when it ended."""
        self._ended[worker] = begun

    def decide(self, change: str, targets: frozenset[str], begun: Iterable[Mapping[int, int]]) -> RolloutStep:
        """The step of a change whose frozen workers have answered."""
        gone = (positions for worker, positions in self._ended.items() if worker.operator in targets)
        step = RolloutStep(highest((*begun, *gone, self.floor)))
        self.floor = step.cut
        self._open[change] = targets, step
        return step

    def withdraw(self, change: str) -> None:
        """Forget a change that no worker has applied."""
        self._open.pop(change, None)

    def passed(self, worker: WorkerId, done: Done | None) -> list[Tell]:
        """Record that a commit's marker has passed a worker; ``done`` is ``None`` if it has ended instead.

        Returns:
            If that is the last one: messages to the workers of the changes of which no old row can come any more.
        """
        begun = self._ended.get(worker, {}) if done is None else done.begun
        if begun and self._workers.graph.operator(worker.operator).traits.is_source:
            self._recovery.read = highest((self._recovery.read, begun))
        if self._lane.commits:
            return []
        settled = [change for change, (_, step) in self._open.items() if is_over((step,), self._recovery.read)]
        of = self._workers.of
        told = [Tell(each, Settle(change)) for change in settled for each in of(self._open[change][0])]
        for change in settled:
            del self._open[change]
        return told

    def start_again(self) -> None:
        """Begin with what is decided, since rows are read again from the last checkpoint."""
        recovery = self._recovery
        recovery.read = {} if recovery.checkpoint is None else dict(recovery.checkpoint.read)
        by_row = [one for one in recovery.decided if one.steps]
        self.floor = highest(one.steps[-1].cut for one in by_row)
        self._ended.clear()
        opened = open_by_row(recovery.decided, recovery.read)
        self._open = {one.change: (one.targets, one.steps[-1]) for one in by_row if one.change in opened}
