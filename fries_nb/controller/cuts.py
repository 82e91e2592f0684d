"""Changes that are decided row by row, from the decision until no old row can come any more.

The cut of a change is, for each origin, the highest position that any worker of any target has begun: those that answer
while they are frozen, and those that have ended or left. It is not below any earlier cut (the *floor*), which gives all
such changes one order, even if the later one has none of the targets of the earlier one; nor, after a restart, below
what had been read at the checkpoint.

A change is *open* until a commit's marker, which follows all that sources have sent before it, has passed all workers,
the sources have read beyond the cut (after a restart they may not have), and no row at or below the cut is inside a
loop, as the loops' heads say, which observe what comes back until the marker does. Then no old row is anywhere, and its
workers drop the earlier function. Meanwhile the topology stays as it is, and no other kind of change begins: markers
of their own (``CloseCuts``) are sent for that, until one finds nothing old. A loop need not be empty, nor stand still.

>>> from fries_nb.controller.membership import Workers
>>> from fries_nb.dataflow.graph import Edge, Graph, Operator
>>> workers = Workers(Graph("pair", (Operator("A"), Operator("B")), (Edge("A", "B"),)))
>>> cuts = Cuts(workers, MarkerCoordinator(workers), Recovery(1))
>>> cuts.ended(WorkerId("A", 0), {7: 30})
>>> cuts.decide("u1", frozenset("AB"), [{7: 12, 8: 4}])
(RolloutStep(cut={7: 30, 8: 4}, share=1.0),)
>>> cuts.decide("u2", frozenset("B"), [{7: 20}], share=0.1)[0].cut, cuts.open, cuts.canary
({7: 30, 8: 4}, ('u1', 'u2'), 'u2')
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fries_nb.controller.commits import Recovery
from fries_nb.controller.events import Tell
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Workers
from fries_nb.planning.schedulers import Send
from fries_nb.protocol.checkpoints import open_by_row
from fries_nb.protocol.messages import Action, CloseCuts, Commit, Done, Settle, WorkerId
from fries_nb.protocol.rollout import Reach, RolloutStep, highest, is_over, lowest

PAUSE_NS = 5_000_000
"""Nanoseconds between two markers that only look for old rows."""


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
        self._open: dict[str, tuple[frozenset[str], tuple[RolloutStep, ...]]] = {}
        self._marker: Action | None = None
        self._reach = Reach()
        self._looks, self._looked_ns = 0, -PAUSE_NS
        self._waiting = "", 0  # the change that waits for the end of the open ones, and the time of its first look
        self.start_again()

    @property
    def open(self) -> tuple[str, ...]:
        """The changes of which old rows may come, in order."""
        return tuple(change for change, (targets, _) in self._open.items() if self._workers.live(targets))

    def ended(self, worker: WorkerId, begun: Mapping[int, int]) -> None:
        """Record how far a worker had begun when it ended."""
        self._ended[worker] = begun

    @property
    def canary(self) -> str:
        """The change of which both versions run until a further step; empty if there is none."""
        return next((change for change in self.open if 0 < self._open[change][1][-1].share < 1), "")

    def decide(
        self, change: str, targets: frozenset[str], begun: Iterable[Mapping[int, int]], share: float = 1.0
    ) -> tuple[RolloutStep, ...]:
        """All steps of a change whose frozen workers have answered, with a new one of this share."""
        gone = (positions for worker, positions in self._ended.items() if worker.operator in targets)
        step = RolloutStep(highest((*begun, *gone, self.floor)), share)
        self.floor = step.cut
        steps = (*(self._open[change][1] if change in self._open else ()), step)
        self._open[change] = targets, steps
        return steps

    def look(self, now_ns: int, waiting: str = "") -> list[Tell] | None:
        """Let a marker pass that looks for old rows, since a change or a rescale waits; ``None`` if it is too early."""
        if now_ns < self._looked_ns + PAUSE_NS:
            return None
        self._looks, self._looked_ns = self._looks + 1, now_ns
        self._waiting = self._waiting if self._waiting[0] == waiting else (waiting, now_ns)
        graph = self._workers.graph
        sends = [Send(source, frozenset(graph.by_name)) for source in graph.sources]
        return self._lane.start(sends, CloseCuts(self._looks, self._recovery.beyond))

    def waits_too_long(self, change: str, limit_s: float | None, now_ns: int) -> bool:
        """Whether a change has waited for the end of the open ones for longer than this."""
        waiting, since_ns = self._waiting
        return limit_s is not None and waiting == change and now_ns > since_ns + limit_s * 1e9

    def close(self, changes: Iterable[str]) -> None:
        """Forget changes of which no old row can come, or that no worker has applied."""
        for change in changes:
            self._open.pop(change, None)

    def passed(self, action: Commit | CloseCuts, worker: WorkerId, done: Done | None) -> list[Tell]:
        """Record that a marker that looks for old rows has passed a worker; ``None`` if it has ended instead.

        Returns:
            If that is the last one: messages to the workers of the changes of which no old row can come any more.
        """
        begun = self._ended.get(worker, {}) if done is None else done.begun
        if action != self._marker:  # those that had ended before it will not answer
            self._marker = action
            self._reach = Reach(highest((self._reach.read, *self._ended.values())), beyond=action.beyond)
        # What any has begun was read, or brought out; sources and timed operators say how far they are.
        read = highest((self._reach.read, begun)) if begun else self._reach.read
        inside = self._reach.inside if done is None else lowest((self._reach.inside, done.inside))
        self._reach = Reach(read, inside, action.beyond)
        if isinstance(action, Commit):
            self._recovery.reach = self._reach
        if self._lane.action == action:
            return []
        settled = [change for change, (_, steps) in self._open.items() if is_over(steps, self._reach)]
        of = self._workers.of
        told = [Tell(each, Settle(change)) for change in settled for each in of(self._open[change][0])]
        for change in settled:
            del self._open[change]
        return told

    def start_again(self, defers: bool = False) -> None:
        """Begin with what is decided, since rows are read again from the last checkpoint.

        Args:
            defers: whether changes are deferred, so that nothing is inside loops when the next one begins.
        """
        recovery = self._recovery
        recovery.reach = self._reach = Reach() if recovery.checkpoint is None else recovery.checkpoint.reach
        by_row = [one for one in recovery.decided if one.steps]
        # What the checkpoint has used up was begun as well; no worker will say so, and in a loop some may come again.
        self.floor = highest((self._reach.read, *(one.steps[-1].cut for one in by_row)))
        self._marker = None
        self._ended.clear()
        opened = open_by_row(recovery.decided, self._reach.emptied if defers else self._reach)
        self._open = {one.change: (one.targets, one.steps) for one in by_row if one.change in opened}
