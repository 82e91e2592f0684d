"""What keeps a run from committing: told at the first failure, and when nothing was committed for too long.

A run whose checkpoints fail, or never complete, reads and processes tuples, and none of them reaches its output. The
reason is found in the phase of the attempt (see ``commit_attempts``):

    failed     why the last attempt was aborted; told at once, until an attempt succeeds
    MARKING    the first workers that the marker has not passed, and what waits in front of them
    SAVING     the workers whose snapshots are being written
    KEEPING    its record is being written
    IDLE       what excludes an attempt: paused operators, a change, a rescale, a loop's attempt; or no source is left
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fries_nb.controller.events import CommitsHeld
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.states import CommitPhase
from fries_nb.messages import Attempt, Move, MoveSplits, Report, WorkerId

LATE_NS = 60_000_000_000
"""Nanoseconds without a commit after which the reason is told."""
LATE_INTERVALS = 3
"""Number of commit intervals that must have passed as well."""
LOOK_NS = 1_000_000_000
"""Nanoseconds between two looks for the reason of a delay."""
NAMED = 3
"""Number of workers that are named."""


class CommitDelays:
    """Observes the commits of a run.

    Args:
        life: the parts of the run's controller.
        reports: the last report of each worker.
        interval_ns: nanoseconds between two commits; ``None`` if only requested ones and the last one are made.
    """

    def __init__(self, life: Lifecycle, reports: Mapping[WorkerId, Report], interval_ns: int | None) -> None:
        self._life = life
        self._reports = reports
        self._late_ns = None if interval_ns is None else max(LATE_NS, LATE_INTERVALS * interval_ns)
        self._told = CommitsHeld()
        self._last_ns = self._completed_ns = 0  # the marker of the last commit, and when it was seen to be complete
        self._next_look_ns = 0

    def observe(self, now_ns: int) -> list[CommitsHeld]:
        """Tell what keeps the run from committing, if that has changed; called while tuples flow."""
        commits = self._life.checkpoints
        failed, since_ns = commits.failure, commits.committed_ns
        if since_ns != self._last_ns:
            self._last_ns, self._completed_ns = since_ns, now_ns
        late = self._late_ns is not None and now_ns - self._completed_ns >= self._late_ns
        if failed:
            held = CommitsHeld(failed, since_ns, failed=True)
        elif not late:
            held = CommitsHeld()
        elif now_ns < self._next_look_ns:
            return []
        else:
            self._next_look_ns = now_ns + LOOK_NS
            held = CommitsHeld(self._reason(), since_ns)
        if held == self._told:
            return []
        self._told = held
        return [held]

    def _reason(self) -> str:
        life, epoch = self._life, self._life.checkpoints.epoch
        match life.checkpoints.phase:
            case CommitPhase.MARKING:
                return f"the marker of commit {epoch} {self._in_front_of(life.lane.awaited)}"
            case CommitPhase.SAVING:
                return f"checkpoint {epoch} waits until the state of {_named(life.checkpoints.owing)} is written"
            case CommitPhase.KEEPING:
                return f"the record of checkpoint {epoch} is being written"
            case _:
                return self._excluded()

    def _excluded(self) -> str:
        """Why no attempt can begin."""
        life, action = self._life, self._life.lane.action
        if paused := life.paused.workers:
            return f"{_named(paused)} {_is(paused)} paused on a tuple on which {_it(paused)} failed"
        if life.changes.is_draining:
            return "a change waits until its loops are empty"
        if isinstance(action, Move | MoveSplits) or life.rewiring.under_way:
            return "the number of hosts is being changed"
        if isinstance(action, Attempt):
            return f"the search for the end of a loop {self._in_front_of(life.lane.awaited)}"
        if life.lane.busy:
            return f"the marker of a change {self._in_front_of(life.lane.awaited)}"
        if not life.workers.live((*life.workers.graph.sources, *life.workers.graph.heads)):
            left = life.workers.live()
            return f"its sources have ended, and the rest is committed at the end; {self._with_queue(left)}"
        return "another step of the run comes first each time"

    def _in_front_of(self, awaited: Sequence[WorkerId]) -> str:
        """Which workers a marker waits for: the first ones of the dataflow that it has not passed."""
        graph, behind = self._life.workers.graph, {worker.operator for worker in awaited}
        paused = [worker for worker in self._life.paused.workers if worker in awaited]
        if paused:
            return f"waits behind {_named(paused)}, which {_is(paused)} paused on a tuple on which {_it(paused)} failed"
        first = [
            worker for worker in awaited if not any(edge.source in behind for edge in graph.in_edges(worker.operator))
        ]
        return f"has not passed {self._with_queue(first or awaited)}"

    def _with_queue(self, workers: Sequence[WorkerId]) -> str:
        waiting = [report.queued_tuples for worker in workers if (report := self._reports.get(worker)) is not None]
        many = f" ({sum(waiting):,} tuples wait there)" if sum(waiting) else ""
        return f"{_named(workers)}, which {_is(workers)} still at work{many}"


def _named(workers: Sequence[WorkerId]) -> str:
    """Some workers by name, and the number of the others.

    >>> _named([WorkerId("A", index) for index in range(5)])
    'A[0], A[1], A[2] and 2 more'
    """
    names = ", ".join(map(str, workers[:NAMED]))
    return f"{names} and {len(workers) - NAMED} more" if len(workers) > NAMED else names


def _is(workers: Sequence[WorkerId]) -> str:
    return "is" if len(workers) == 1 else "are"


def _it(workers: Sequence[WorkerId]) -> str:
    return "it" if len(workers) == 1 else "they"
