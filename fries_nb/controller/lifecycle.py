"""The lifecycle of a run: start, recovery from lost hosts, end; and the order of its coordinators.

``Lifecycle`` owns all parts of a run's controller, since start, loss and end concern each of them. Some are records of
which several coordinators make use: ``membership`` the hosts, ``workers`` the workers, ``epochs`` files of sinks,
``guards`` automatic rollbacks, ``recovery`` the state for the next incarnation. The others are in ``coordinators``.

>>> from fries_nb.dataflow.graph import Edge, Kind, Operator
>>> flow = Graph("pair", (Operator("src", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)), (Edge("src", "out"),))
>>> life = Lifecycle(flow, hosts=1, incarnation=1, commit_interval_ns=None)
>>> life.joined(HostJoined(0, "tcp://here:1", incarnation=1), now_ns=0), life.state.value
([Admit(peers={0: 'tcp://here:1'})], 'running')
>>> life.lost(0, "its process died", now_ns=1)[-1].error
'host 0 was lost (its process died); what was committed stays readable'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from fries_nb.controller.change_steps import Changes
from fries_nb.controller.commits import MOST_IN_A_ROW, Checkpoints, CommitNumbers, Recovery
from fries_nb.controller.coordinator import Coordinator
from fries_nb.controller.events import (
    Admit,
    CheckpointKept,
    DismissHosts,
    HostJoined,
    Instruction,
    RefuseHost,
    RunEnded,
)
from fries_nb.controller.failed_rows import PausedOperators, Requeues
from fries_nb.controller.guards import Guards, Watch
from fries_nb.controller.intake import Sources
from fries_nb.controller.joining import Joining
from fries_nb.controller.known_changes import with_deferred
from fries_nb.controller.loop_attempts import LoopAttempts
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Membership, Rewiring, Workers
from fries_nb.controller.moves import NO_SPLITS, BinMoves, SplitMoves
from fries_nb.controller.reshaping import Reshaping
from fries_nb.controller.states import RUN_MOVES, CommitPhase, RunState
from fries_nb.dataflow.graph import Graph
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.protocol.topology import Topology
from fries_nb.transitions import moved


class Lifecycle:
    """The state of a run, and the parts of its controller.

    Attributes:
        state: the state of the run.
        reports: the last report of each worker.
        coordinators: all coordinators, in the order of their steps.
    """

    def __init__(
        self,
        graph: Graph,
        hosts: int,
        incarnation: int,
        commit_interval_ns: int | None,
        *,
        checkpoints: bool = False,
        optional: bool = False,
        restored: Restoration | None = None,
        run: str = "",
        chaining: bool = True,
        splits: Mapping[str, Sequence[int]] = NO_SPLITS,
    ) -> None:
        """Create the parts of a run that awaits its hosts; the arguments are those of ``Controller``."""
        self.state, self.reports = RunState.JOINING, dict[WorkerId, Report]()
        self.recovery = Recovery(incarnation, restored, checkpoints, optional)
        self.membership = Membership(hosts, incarnation)
        workers = self.workers = Workers(graph)
        begun = restored.checkpoint.epoch if restored and restored.checkpoint else 0
        self.epochs = CommitNumbers(commit_interval_ns, max(begun, restored.last_epoch if restored else 0))
        self.guards = Guards(graph, chaining)
        lane = self.lane = MarkerCoordinator(workers)
        self.paused, self.sources, self._lost_because = PausedOperators(), Sources(workers), ""
        self.checkpoints = Checkpoints(workers, lane, self.epochs, self.recovery, run, self.may_commit)
        self.split_moves = SplitMoves(workers, lane, self.sources, self.may_move, splits, self.checkpoints.had_ended)
        self.bin_moves = BinMoves(workers, lane, self.may_move)
        rewiring = self.rewiring = Rewiring(workers)
        topology, moves = Topology.dealt(graph, hosts, chaining), (self.bin_moves, self.split_moves)
        self.joining = Joining(topology, workers, self.membership, rewiring, *moves, self._rewire)
        kept, know = (self.checkpoints, self.recovery), [self.guards.know]
        self.reshaping = Reshaping(workers, self.membership, lane, rewiring, self.joining, self.recovery, know)
        self.joining.is_held = lambda: not self.reshaping.is_idle
        self.changes = Changes(workers, lane, *kept, self.paused, self.guards, self.reshaping, self.reports)
        self.changes.awaits_quiet = lambda: rewiring.is_awaited or any(each.under_way for each in moves)
        self.loops = LoopAttempts(workers, lane, self._commit_comes_first)
        self.reshaping.without_input = lambda: self.loops.without_input
        self.coordinators = self._in_order()
        if restored is not None:
            self.changes.defer(restored)

    def _in_order(self) -> list[Coordinator]:
        """The coordinators in the order in which they take steps after each event.

        What begins first excludes what comes behind it, since most of them send markers, of which one is in flight:

        - The lane and the pauses take no steps; others ask them whether they may begin.
        - The ends of sources need no marker, and must not wait while workers adopt a topology, as those behind do.
        - Changes of the topology begin when everything is quiet, so they come before all that could begin instead.
          While workers adopt one no marker may start, since it would arrive on channels of two epochs: see ``holds``.
        - A change of the shape removes what has ended as soon as its last marker has retired, before anything begins.
        - Changes come before commits: a change that is decided cancels the commit in flight, so a commit that began
          just before it would be in vain. One that restarts the run holds all others: their markers would be lost.
        - Requeues come before commits, of which the next includes what becomes of their rows.
        - Commits come before moves and attempts, which may go on for long; they take turns: ``_commit_comes_first``.
        - Moves of splits come before those of bins: when the splits are handed over, a rescale requests the bins, whose
          first step begins in the same turn.
        - Attempts at loops come last, since they are made for as long as rows go round.
        - Failures are added by the controller; they take no steps.

        The start, the loss of hosts and the end of the run go along the list backwards, from the parts to what is made
        of them:

        - At a start, checkpoints find out which workers had ended before changes ask them.
        - At a loss, moves of bins leave the tables that were requested, before a rescale deals the next topology by
          them, or clears them if hosts were to leave. For all others the order does not matter: each forgets its own.
        - At the end each answers its own requests; the order is only that of the answers.
        """
        requeues = Requeues(self.workers, self.lane, self.recovery, self.may_requeue, self.checkpoints.had_ended)
        return [
            self.lane, self.paused, self.sources, self.rewiring, self.joining, self.reshaping, self.changes,
            requeues, self.checkpoints, self.split_moves, self.bin_moves, self.loops,
        ]  # fmt: skip

    def _move(self, to: RunState) -> None:
        self.state = moved(RUN_MOVES, self.state, to, "the run")

    # ---- what may begin; asked at each step, since an earlier one of the same turn may have begun something

    def may_commit(self, now_ns: int) -> bool:
        """Whether nothing prevents a commit from starting."""
        is_free = self.checkpoints.may_begin and not self.paused.operators and not self.changes.is_draining
        return is_free and not self.reshaping.is_parking and not self.rewiring.under_way

    def _commit_comes_first(self, now_ns: int) -> bool:
        """Whether a commit is due and comes before the next step of moves, or the next attempt at a loop.

        A commit that is due comes between two of them, and one of them between two commits: where a commit takes longer
        than its interval, the next one is always due.
        """
        return self.epochs.due(now_ns) and self.may_commit(now_ns) and not self.lane.committed_last

    def may_move(self, now_ns: int) -> bool:
        """Whether a step of moves of splits or bins may begin, which excludes all other actions."""
        is_free = self.checkpoints.phase is CommitPhase.IDLE and not self.paused.operators and not self.lane.busy
        is_free = is_free and self.changes.is_settled and self.rewiring.is_idle
        return is_free and not self._commit_comes_first(now_ns)

    def may_requeue(self, now_ns: int) -> bool:
        """Whether rows of dead letters may go back, which excludes all other actions."""
        is_free = not self.lane.busy and self.rewiring.is_idle and not self.reshaping.is_parking
        return is_free and not self.changes.is_committing and not self.changes.is_draining

    def may_rewire(self, now_ns: int) -> bool:
        """Whether a change of the topology may begin, which excludes all other actions."""
        if self.bin_moves.under_way or self.split_moves.under_way:
            return False
        if self.reshaping.rewires:  # also when all sources have ended, so that what was added can be taken back
            is_free = self.checkpoints.phase is CommitPhase.IDLE and not self.lane.busy
            return is_free and not self.paused.operators
        return self.may_commit(now_ns) and self.changes.quiet

    def _rewire(self, now_ns: int, goes_on: bool) -> list[Instruction]:
        """Take the next step of a change of the topology; one may follow another, since nothing else has begun."""
        cancelled = self._precede_commit(now_ns)
        is_free = goes_on or self.may_rewire(now_ns)
        return [*cancelled, *self.rewiring.step(is_free, self.lane.issued, self.recovery.decided)]

    def _precede_commit(self, now_ns: int) -> list[Instruction]:
        """Cancel a commit whose marker is in flight if a change of the shape waits for it: so do rows, in queues."""
        waits = self.reshaping.is_wiring and self.rewiring.is_awaited and not self.paused.operators
        if not waits or not self.lane.commits:
            return []
        cancelled = self.checkpoints.cancel(now_ns)
        self.epochs.start_clock(now_ns)  # one that began at once would be cancelled when the change is decided
        return cancelled

    # ---- hosts

    def joined(self, hello: HostJoined, now_ns: int) -> list[Instruction]:
        """Admit a host, or refuse it; the dataflow starts when all have joined."""
        stranger = self.membership.stranger(hello)
        if stranger:
            return [RefuseHost(hello.host, stranger)]
        restarted = self.membership.restarted(hello)
        if restarted:
            return [RefuseHost(hello.host, restarted), *self.lost(hello.host, restarted, now_ns)]
        self.membership.join(hello)
        is_newcomer = self.joining.concerns(hello.host)
        return self.start(now_ns) if self.membership.complete and not is_newcomer else []

    def start(self, now_ns: int) -> list[Instruction]:
        """Start the dataflow on the hosts of this incarnation, which have all joined."""
        self._move(RunState.DRAINING if self.sources.draining else RunState.RUNNING)
        self.epochs.start_clock(now_ns)
        started: list[Instruction] = [Admit(dict(sorted(self.membership.addresses.items())))]
        for coordinator in reversed(self.coordinators):
            started += coordinator.started(now_ns)
        return started

    def lost(self, host: int, reason: str, now_ns: int) -> list[Instruction]:
        """Recover from the loss of a host, or fail the run; ``reason`` is part of the message."""
        if self.membership.has_left(host):
            return []
        self.membership.check(host)
        if self.joining.concerns(host):
            return self.joining.newcomer_lost(host, reason, now_ns)
        if self.checkpoints.closing or (self.state is RunState.RECOVERING and self.checkpoints.keeping):
            return []  # no host is needed any more, or a recovery of all is under way
        self.membership.lose(host)
        words = f"host {host} was lost ({reason})"
        if not self.recovers:
            return self.end("failed", "the run failed", now_ns, f"{words}; what was committed stays readable")
        return self.recover(words, now_ns)

    def recover(self, why: str, now_ns: int) -> list[Instruction]:
        """End the current incarnation, and start the next one as soon as its checkpoint is known."""
        self._lost_because = why
        if self.state is RunState.RECOVERING and self.checkpoints.keeping:
            return []  # a recovery is under way
        self._move(RunState.RECOVERING)
        ended: list[Instruction] = []
        for coordinator in reversed(self.coordinators):
            ended += coordinator.lost(why, now_ns)
        # Only now the tables are those of the next incarnation: see ``_in_order``.
        self.recovery.lose({name: table.packed for name, table in self.workers.tables.items()})
        self.workers.ended.clear()
        self.membership.begin(self.recovery.incarnation)
        # A record that is being written is on disk or not: the next incarnation starts from it, or from the one before.
        return ended if self.checkpoints.keeping else ended + self.start_again(now_ns)

    def start_again(self, now_ns: int) -> list[Instruction]:
        """Start the hosts of the new incarnation, or fail the run after too many recoveries without a checkpoint."""
        if self.recovery.hopeless:
            error = (
                f"{self._lost_because}, and the run was recovered {MOST_IN_A_ROW} times without a new checkpoint in "
                "between; what was committed stays readable"
            )
            return self.end("failed", "the run failed", now_ns, error)
        again = self.recovery.again(self._lost_because, len(self.membership.hosts))
        restoration = with_deferred(self.workers.graph, again.restoration)
        self.changes.defer(restoration)
        return [replace(again, restoration=restoration, rates=self.sources.rates)]

    # ---- rollbacks that restart the run

    def undo(self, watch: Watch, error: str, details: str, now_ns: int) -> list[Instruction]:
        """Fire a guard, and restart from the last checkpoint, which precedes the failing tuple."""
        decided: list[Instruction] = []
        if not watch.fired:
            decided = self.changes.roll_back(watch, error, details, now_ns)
            if watch.guard.shape is not None:
                decided += self.reshaping.undo(watch.change, watch.guard.shape.after)
        why = f"change {watch.change!r} is rolled back by its guard ({error})"
        return [*decided, *self.recover(why, now_ns)]

    @property
    def recovers(self) -> bool:
        """Whether every commit is a checkpoint, from which the run recovers; otherwise a lost host fails it."""
        return self.recovery.recovers

    def can_undo(self, watch: Watch) -> bool:
        """Whether ``undo`` is possible; a state transformation without an inverse needs an earlier checkpoint."""
        if not self.recovers:
            return False
        return watch.fired or watch.guard.back or not self.checkpoints.may_have(watch.change)

    # ---- end

    def kept(self, event: CheckpointKept, now_ns: int) -> list[Instruction]:
        """Process the result of writing a checkpoint's record; the run fails if a final record was not written."""
        answered = self.checkpoints.kept(event)
        if self.state is RunState.RECOVERING:
            return answered + self.start_again(now_ns)
        if self.checkpoints.over and event.reason and self.recovers:
            error = f"the last checkpoint could not be kept ({event.reason}); what was committed stays readable"
            return answered + self.end("failed", "the run failed", now_ns, error)
        return answered

    def drain(self, spared: frozenset[str]) -> list[Instruction]:
        """End all sources except those in ``spared``, now or as soon as the dataflow runs."""
        self.sources.drain(spared)
        if self.state is RunState.RUNNING:
            self._move(RunState.DRAINING)
        return []

    def finish(self, now_ns: int) -> list[Instruction]:
        """Commit the remaining files and end the run, since all workers have ended.

        A run with checkpoints first writes a final record.
        """
        if self.checkpoints.keeping:
            return []
        if self.recovers and not self.checkpoints.over:
            return self.checkpoints.last(now_ns)
        rest = [] if self.recovers else self.checkpoints.rest(now_ns)
        return [*rest, *self.end("finished", "the run has finished", now_ns)]

    def end(
        self,
        state: Literal["finished", "stopped", "failed"],
        why: str,
        now_ns: int,
        error: str = "",
        details: str = "",
    ) -> list[Instruction]:
        """End the run: answer all that is open, and dismiss the hosts; see ``Coordinator.close``."""
        closed: list[Instruction] = []
        for coordinator in reversed(self.coordinators):
            closed += coordinator.close(why, now_ns, error, details)
        self._move(RunState(state))
        return [*closed, DismissHosts(error or why), RunEnded(state, error, details)]
