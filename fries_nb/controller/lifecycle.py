"""The lifecycle of a run: start, recovery from lost hosts, end.

``Lifecycle`` owns all parts of a run's controller, since start, loss and end concern each of them: ``membership`` the
hosts, ``workers`` the workers that have ended, ``changes`` requested changes, ``guards`` automatic rollbacks,
``paused`` operators paused on a tuple, ``sources`` rates of sources, ``lane`` markers in flight, ``epochs`` files of
sinks, ``checkpoints`` commits and checkpoints, ``recovery`` the state for the next incarnation, ``rewiring`` the
topology, ``joining`` the number of hosts, ``bin_moves`` bins of keyed operators, ``split_moves`` splits of sources,
``loops`` the ends of loops.

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
from fries_nb.controller.events import (
    Admit,
    BinsMoved,
    CheckpointKept,
    DismissHosts,
    HostJoined,
    Instruction,
    RefuseHost,
    RunEnded,
    SplitsMoved,
)
from fries_nb.controller.guards import Guards, Watch
from fries_nb.controller.intake import Sources
from fries_nb.controller.joining import Joining
from fries_nb.controller.known_changes import with_deferred
from fries_nb.controller.loop_attempts import LoopAttempts
from fries_nb.controller.markers import MarkerCoordinator
from fries_nb.controller.membership import Membership, Rewiring, Workers
from fries_nb.controller.moves import NO_SPLITS, BinMoves, SplitMoves
from fries_nb.controller.pauses import PausedOperators
from fries_nb.controller.states import RUN_MOVES, CommitPhase, RunState
from fries_nb.dataflow.graph import Graph
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.topology import Topology
from fries_nb.transitions import moved


class Lifecycle:
    """The state of a run, and the parts of its controller.

    Attributes:
        state: the state of the run.
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
        self.state = RunState.JOINING
        self.recovery = Recovery(incarnation, restored, checkpoints, optional)
        self.membership = Membership(hosts, incarnation)
        self.workers = Workers(graph)
        self.lane = MarkerCoordinator(self.workers)
        begun = restored.checkpoint.epoch if restored and restored.checkpoint else 0
        self.epochs = CommitNumbers(commit_interval_ns, max(begun, restored.last_epoch if restored else 0))
        self.paused = PausedOperators()
        self.checkpoints = Checkpoints(self.workers, self.lane, self.epochs, self.recovery, run)
        self.guards = Guards(graph, chaining)
        self.changes = Changes(self.workers, self.lane, self.checkpoints, self.recovery, self.paused, self.guards)
        self.sources = Sources(self.workers)
        self.rewiring = Rewiring(self.workers)
        self._chaining = chaining
        self.bin_moves = BinMoves(self.workers, self.lane)
        topology = Topology.dealt(graph, hosts, chaining)
        self.split_moves = SplitMoves(self.workers, self.lane, self.sources, splits, self.checkpoints.had_ended)
        self.joining = Joining(topology, self.membership, self.rewiring, self.bin_moves, self.split_moves)
        self.loops = LoopAttempts(self.workers, self.lane)
        self._lost_because = ""
        if restored is not None:
            self.changes.defer(restored)

    def _move(self, to: RunState) -> None:
        self.state = moved(RUN_MOVES, self.state, to, "the run")

    def joined(self, hello: HostJoined, now_ns: int) -> list[Instruction]:
        """Admit a host, or refuse it; the dataflow starts when all have joined.

        Args:
            hello: the event.
            now_ns: the current time.
        """
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
        self.checkpoints.start(now_ns)
        started: list[Instruction] = [Admit(dict(sorted(self.membership.addresses.items())))]
        return [*started, *self.sources.start(), *self.changes.started_again(self.checkpoints.had_ended, now_ns)]

    def lost(self, host: int, reason: str, now_ns: int) -> list[Instruction]:
        """Recover from the loss of a host, or fail the run.

        Args:
            host: index of the host.
            reason: the cause of the loss, for the message.
            now_ns: the current time.

        Raises:
            ProtocolError: the run has no such host.
        """
        if self.membership.has_left(host):
            return []
        self.membership.check(host)
        if self.joining.concerns(host):
            return self.joining.lost(host, reason, now_ns)
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
        said: list[Instruction] = [*self.changes.lost(why, now_ns), *self.paused.clear()]
        said += [*self.bin_moves.lost(), *self.split_moves.lost()]
        self.workers.ended.clear()
        self.lane.clear()
        self.rewiring.lost()
        if self.joining.is_shrinking:  # which is given up, so the workers that were to leave own bins again
            self.workers.tables.clear()
        self.recovery.tables = {name: table.packed for name, table in self.workers.tables.items()}
        self.loops.lost()
        self.checkpoints.lost()
        self.recovery.lose()
        self.membership.begin(self.recovery.incarnation)
        tables = dict(self.workers.tables)
        first = Topology.dealt(self.workers.graph, len(self.membership.hosts), self._chaining, tables)
        said += self.joining.begin_again(first, why, now_ns)
        return said if self.checkpoints.keeping else said + self.start_again(now_ns)

    def undo(self, watch: Watch, error: str, details: str, now_ns: int) -> list[Instruction]:
        """Fire a guard, and restart from the last checkpoint, which precedes the failing tuple.

        Args:
            watch: the guard.
            error: the failure in one sentence.
            details: its traceback.
            now_ns: the current time.
        """
        decided = [] if watch.fired else self.changes.roll_back(watch, error, details, now_ns)
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

    def rewire(self, now_ns: int) -> list[Instruction]:
        """Take all steps of changes of the topology, which exclude all other actions, and of the number of hosts."""
        said = self.joining.advance(now_ns)
        free = self.may_commit and self.changes.quiet
        free = free and not (self.bin_moves.under_way or self.split_moves.under_way)
        while steps := self.rewiring.advance(free, self.lane.issued, self.recovery.decided):
            self.sources.rewired()
            said += [*steps, *self.joining.heard(steps, now_ns)]
            free = True  # one change may follow another, since nothing else has begun
        return said

    def end_sources(self) -> list[Instruction]:
        """End the sources of which no split is left; none ends while splits are handed over."""
        return [] if self.split_moves.is_moving else self.sources.end()

    def take_turns(self, is_due: bool, now_ns: int) -> list[Instruction]:
        """Begin or end a step of moves, or an attempt at a loop.

        A commit that is due comes between two of them, and one of them between two commits: where a commit takes longer
        than its interval, the next one is always due.

        Args:
            is_due: whether the commit interval has passed.
            now_ns: the current time.
        """
        yields = is_due and self.may_commit and not self.lane.committed_last
        return [*self._advance_moves(yields, now_ns), *self.loops.advance(yields)]

    def _advance_moves(self, yields: bool, now_ns: int) -> list[Instruction]:
        """Begin or end a step of moves of splits or bins, which excludes all other actions.

        Args:
            yields: whether a commit comes first.
            now_ns: the current time.
        """
        free = self.checkpoints.phase is CommitPhase.IDLE and not self.paused.operators
        free = free and not yields and self.changes.is_settled and self.rewiring.is_idle
        said = self.split_moves.advance(free and not self.lane.busy)
        for handed in [one for one in said if isinstance(one, SplitsMoved)]:
            said += [*self.joining.handed_over(handed, now_ns), *self.end_sources()]
        said += self.bin_moves.advance(free and not self.lane.busy, now_ns)
        for end in [one for one in said if isinstance(one, BinsMoved)]:
            said += [*self.joining.moved(end, now_ns), *self.rewire(now_ns)]
        return said

    @property
    def may_commit(self) -> bool:
        """Whether nothing prevents a commit from starting."""
        return self.checkpoints.may_begin and not self.paused.operators and not self.changes.is_draining

    def commit(self, due: bool, now_ns: int) -> list[Instruction]:
        """Start a commit or checkpoint if one is due or requested and nothing prevents it.

        Args:
            due: whether the commit interval has passed.
            now_ns: the current time.
        """
        if not (due or self.checkpoints.wanted) or not self.may_commit:
            return []
        return self.checkpoints.begin(now_ns, self.recovers or self.checkpoints.wanted)

    def kept(self, event: CheckpointKept, now_ns: int) -> list[Instruction]:
        """Process the result of writing a checkpoint's record; the run fails if a final record was not written."""
        said = self.checkpoints.kept(event)
        if self.state is RunState.RECOVERING:
            return said + self.start_again(now_ns)
        if self.checkpoints.over and event.reason and self.recovers:
            error = f"the last checkpoint could not be kept ({event.reason}); what was committed stays readable"
            return said + self.end("failed", "the run failed", now_ns, error)
        return said

    def drain(self, spared: frozenset[str]) -> list[Instruction]:
        """End all sources except those in ``spared``, now or as soon as the dataflow runs."""
        self.sources.drain(spared)
        if self.state is not RunState.RUNNING:
            return []
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
        """End the run: resolve open changes and requests, and dismiss the hosts.

        Args:
            state: the final state.
            why: the reason, as a clause for messages to requesters.
            now_ns: the current time.
            error: the failure in one sentence; empty if the run has not failed.
            details: the traceback of the failure.
        """
        closed = [*self.changes.close(why, now_ns, error, details), *self.checkpoints.refuse(error or why)]
        closed += [*self.bin_moves.close(why), *self.split_moves.close(why), *self.joining.close(why, error, now_ns)]
        self._move(RunState(state))
        return [*closed, DismissHosts(error or why), RunEnded(state, error, details)]
