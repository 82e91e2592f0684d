"""The driver's side of a run: one event in, the instructions that follow from it out.

>>> from fries_nb.dataflow.graph import Edge, Kind, Operator
>>> flow = Graph("pair", (Operator("src", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)), (Edge("src", "out"),))
>>> controller = Controller(flow, hosts=1, incarnation=1, commit_interval_ns=None, silence_ns=10**9)
>>> controller.handle(HostJoined(0, "tcp://here:1", incarnation=1), now_ns=0)
[Admit(peers={0: 'tcp://here:1'})]
>>> controller.handle(DrainRequested(), now_ns=5)
[Tell(worker=WorkerId(operator='src', index=0), control=Drain())]
>>> controller.handle(Answered(Ended(WorkerId("src", 0))), now_ns=6)
[]
>>> for instruction in controller.handle(Answered(Ended(WorkerId("out", 0), files=("part-0",))), now_ns=7):
...     print(instruction)
CommitFiles(epoch=1, files={'out': ('part-0',)})
DismissHosts(reason='the run has finished')
RunEnded(state='finished', error='', details='')

The rooms behind it hold one idea each: `states` where the run stands, `membership` the hosts, `workers` who has ended,
`changes` and `transactions` what the user wants, `standing` what waits for a fix, `sources` how fast they go,
`markers` what is on its way, `commits` what the sinks have written, `checkpoints` what is being kept, `recovery` what
survives a loss.
"""

from __future__ import annotations

from typing import Literal

from fries_nb.checkpoints import Restoration
from fries_nb.controller.changes import Changes
from fries_nb.controller.checkpoints import Checkpoints
from fries_nb.controller.commits import Epochs
from fries_nb.controller.events import (
    Admit,
    Answered,
    ChangeRequested,
    CheckpointKept,
    CheckpointRequested,
    DismissHosts,
    DrainRequested,
    Event,
    HostHeard,
    HostJoined,
    HostLeft,
    HostLost,
    Instruction,
    Journaled,
    RateRequested,
    RefuseHost,
    RunEnded,
    StopRequested,
    Tick,
)
from fries_nb.controller.markers import Lane
from fries_nb.controller.membership import Membership
from fries_nb.controller.recovery import MOST_IN_A_ROW, Recovery
from fries_nb.controller.sources import Sources
from fries_nb.controller.standing import Standing
from fries_nb.controller.states import RunState, moved
from fries_nb.controller.transactions import State
from fries_nb.controller.workers import Workers
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import ProtocolError
from fries_nb.messages import (
    Action,
    Answer,
    Commit,
    Done,
    Ended,
    Failed,
    Paused,
    Prepared,
    Report,
    Resumed,
    Saved,
    WorkerId,
)
from fries_nb.planning.expansion import host_of


class Controller:
    """All decisions about one run of a graph.

    Attributes:
        state: where the run stands.
        metrics: the last report of each worker.
    """

    def __init__(
        self,
        graph: Graph,
        hosts: int,
        incarnation: int,
        commit_interval_ns: int | None,
        silence_ns: int,
        *,
        checkpoints: bool = False,
        restored: Restoration | None = None,
        run: str = "",
        chaining: bool = True,
    ) -> None:
        """A controller that waits for its hosts.

        Args:
            graph: what runs.
            hosts: how many hosts share the workers; the dataflow starts when all have joined.
            incarnation: number of this attempt to run it; hosts of older ones are refused.
            commit_interval_ns: nanoseconds between two commits of the sinks; ``None`` commits at the end only.
            silence_ns: a host from which nothing is heard for longer than these nanoseconds is lost.
            checkpoints: every commit is a checkpoint, and a lost host is recovered from; else it fails the run.
            restored: what the workers start from, and a recovery before the first checkpoint does.
            run: the run's id, for the records of checkpoints.
            chaining: whether the hosts chain operators: a chain hands over one snapshot, as its first operator.
        """
        self.state = RunState.JOINING
        self.metrics: dict[WorkerId, Report] = {}
        self._graph = graph
        self._recovers = checkpoints
        self._silence_ns = silence_ns
        self._recovery = Recovery(incarnation, restored)
        self._membership = Membership(hosts, incarnation, silence_ns)
        self._workers = Workers(graph)
        self._lane = Lane(self._workers)
        begun = restored.checkpoint.epoch if restored and restored.checkpoint else 0
        self._epochs = Epochs(commit_interval_ns, begun)
        self._standing = Standing()
        self._checkpoints = Checkpoints(self._workers, self._lane, self._epochs, self._recovery, run, chaining)
        self._changes = Changes(self._workers, self._lane, self._checkpoints, self._recovery, self._standing)
        self._sources = Sources(self._workers)
        self._lost_because = ""

    @property
    def changes(self) -> dict[str, State]:
        """The state of every change of the run, by id, in order of request."""
        return {change: transaction.state for change, transaction in self._changes.known.items()}

    @property
    def on_the_way(self) -> tuple[int, ...]:
        """The ids of the markers on their way (one for each component of a change), empty when the lane is free."""
        return self._lane.on_the_way

    @property
    def incarnation(self) -> int:
        """The present one; what an older one says counts for nothing."""
        return self._recovery.incarnation

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        """Take in one event and return what to do, in order.

        Args:
            event: what happened.
            now_ns: nanoseconds of a clock that never goes back.

        Raises:
            ProtocolError: a message that nobody of this run can have sent in its present state.
            DataflowError, SourceError: a rate for what is no source, or that is no rate.
        """
        if self.state.over:
            return self._after_the_end(event, now_ns)
        if isinstance(event, Journaled):  # said while what stands behind the entry is still to be carried out
            self._changes.journaled(now_ns)
            return []
        instructions = self._take(event, now_ns)
        if self.state.flows:
            instructions += self._go_on(event, now_ns)
        return instructions

    def _go_on(self, event: Event, now_ns: int) -> list[Instruction]:
        """All that is possible now; a record to be kept comes last."""
        settled = self._checkpoints.settle()
        keep, steps = (settled, []) if self._checkpoints.keeping else ([], settled)
        steps += self._changes.advance(self.metrics, now_ns)
        if self._changes.restarting:
            return [*steps, *self._recover(f"change {self._changes.restarting!r} starts the run again", now_ns)]
        steps += self._commit(isinstance(event, Tick) and self._epochs.due(now_ns), now_ns)
        if not self._workers.live():
            steps += self._finish(now_ns)
        return steps + keep

    def _take(self, event: Event, now_ns: int) -> list[Instruction]:
        match event:
            case HostJoined():
                return self._joined(event, now_ns)
            case HostHeard() | HostLost() | HostLeft() | Answered():
                return self._heard(event, now_ns)
            case ChangeRequested():
                self._changes.request(event, now_ns)
            case CheckpointRequested():
                self._checkpoints.request(event.request)
            case CheckpointKept():
                return self._kept(event, now_ns)
            case RateRequested():
                return self._set_rate(event)
            case DrainRequested():
                return self._drain()
            case StopRequested():
                return self._end("stopped", "the run was stopped", now_ns)
            case Tick():
                return self._tick(now_ns)
            case _:
                raise ProtocolError(f"{event} has no place in this run")
        return []

    def _heard(self, event: HostHeard | HostLost | HostLeft | Answered, now_ns: int) -> list[Instruction]:
        if 0 < event.incarnation < self.incarnation:
            return []
        match event:
            case Answered():
                return self._answered(event.answer, now_ns)
            case HostLost():
                return self._lost(event.host, event.reason, now_ns)
            case HostLeft():
                return self._lost(event.host, "it left before the run was over", now_ns)
        if self.state is not RunState.RECOVERING or event.host in self._membership.addresses:
            self._membership.hear(event.host, now_ns)
        return []

    # ---- hosts

    def _joined(self, hello: HostJoined, now_ns: int) -> list[Instruction]:
        stranger = self._membership.stranger(hello)
        if stranger:
            return [RefuseHost(hello.host, stranger)]
        restarted = self._membership.restarted(hello)
        if restarted:
            return [RefuseHost(hello.host, restarted), *self._lost(hello.host, restarted, now_ns)]
        self._membership.join(hello, now_ns)
        return self._start(now_ns) if self._membership.complete else []

    def _start(self, now_ns: int) -> list[Instruction]:
        """All hosts are there, for the first time or again."""
        self.state = moved(self.state, RunState.DRAINING if self._sources.draining else RunState.RUNNING)
        self._epochs.start_clock(now_ns)
        started: list[Instruction] = [Admit(dict(sorted(self._membership.addresses.items())))]
        return [*started, *self._sources.tell(), *self._changes.started_again(self._checkpoints.had_ended, now_ns)]

    def _lost(self, host: int, reason: str, now_ns: int) -> list[Instruction]:
        self._membership.check(host)
        if self._checkpoints.closing or (self.state is RunState.RECOVERING and self._checkpoints.keeping):
            return []  # nobody is needed any more, or all are given up already
        words = f"host {host} was lost ({reason})"
        if not self._recovers:
            return self._end("failed", "the run failed", now_ns, f"{words}; what was committed stays readable")
        return self._recover(words, now_ns)

    def _recover(self, why: str, now_ns: int) -> list[Instruction]:
        """The present incarnation is over, and the next one begins as soon as it is known from where."""
        self.state = moved(self.state, RunState.RECOVERING)
        said: list[Instruction] = [*self._changes.lost(why, now_ns), *self._standing.clear()]
        self._workers.ended.clear()
        self._lane.clear()
        self._checkpoints.lost()
        self._recovery.lose()
        self._membership = Membership(self._membership.hosts, self.incarnation, self._silence_ns)
        self._lost_because = why
        return said if self._checkpoints.keeping else said + self._start_again(now_ns)

    def _start_again(self, now_ns: int) -> list[Instruction]:
        if self._recovery.hopeless:
            error = (
                f"{self._lost_because}, and the run was recovered {MOST_IN_A_ROW} times without a new checkpoint in "
                "between; what was committed stays readable"
            )
            return self._end("failed", "the run failed", now_ns, error)
        return [self._recovery.again(self._lost_because)]

    def _tick(self, now_ns: int) -> list[Instruction]:
        silent = self._membership.silent(now_ns)
        if silent is None:
            return []
        host, silence_ns = silent
        return self._lost(host, f"nothing was heard from it for {silence_ns / 1e9:.1f} s", now_ns)

    # ---- commits and checkpoints

    def _commit(self, due: bool, now_ns: int) -> list[Instruction]:
        """Start a marker if one is due or asked for, and nothing is in its way."""
        if not (due or self._checkpoints.wanted) or not self._checkpoints.may_begin or self._standing.operators:
            return []
        return self._checkpoints.begin(now_ns, self._recovers or self._checkpoints.wanted)

    def _kept(self, event: CheckpointKept, now_ns: int) -> list[Instruction]:
        said = self._checkpoints.kept(event)
        if self.state is RunState.RECOVERING:
            return said + self._start_again(now_ns)
        if self._checkpoints.over and event.reason:
            error = f"the last checkpoint could not be kept ({event.reason}); what was committed stays readable"
            return said + self._end("failed", "the run failed", now_ns, error)
        return said

    # ---- answers of workers

    def _answered(self, answer: Answer, now_ns: int) -> list[Instruction]:
        self._workers.check(answer.worker)
        if self.state is RunState.JOINING:
            raise ProtocolError(f"{answer.worker} answers before the dataflow was started")
        if self.state is RunState.RECOVERING:
            return []  # its incarnation is over
        self._membership.hear(host_of(answer.worker, self._membership.hosts), now_ns)
        match answer:
            case Report():
                self.metrics[answer.worker] = answer
            case Prepared():
                return self._changes.prepared(answer, now_ns)
            case Done():
                return self._done(answer, now_ns)
            case Ended():
                return self._ended(answer, now_ns)
            case Failed():
                return self._end("failed", "the run failed", now_ns, answer.error, answer.details)
            case Saved():
                self._checkpoints.saved(answer)
            case Paused():
                return self._paused(answer, now_ns)
            case Resumed():
                return [self._standing.resume(answer.worker)]
        return []

    def _done(self, done: Done, now_ns: int) -> list[Instruction]:
        action = self._lane.acknowledge(done.marker, done.worker)
        # A sink may have closed a file before it heard that the commit was cancelled: it is committed with the next.
        self._epochs.hand_in(done.worker.operator, done.files)
        return [] if action is None else self._acknowledged(action, done.worker, done, now_ns)

    def _ended(self, ended: Ended, now_ns: int) -> list[Instruction]:
        self._workers.end(ended.worker)
        commits = self._lane.commits
        actions = self._lane.end(ended.worker)
        counted = any(isinstance(action, Commit) for action in actions)
        self._epochs.hand_in(ended.worker.operator, ended.files, behind_cut=commits and not counted)
        said: list[Instruction] = []
        for action in actions:
            said += self._acknowledged(action, ended.worker, None, now_ns)
        return said

    def _acknowledged(self, action: Action, worker: WorkerId, done: Done | None, now_ns: int) -> list[Instruction]:
        if isinstance(action, Commit):
            return self._checkpoints.acknowledged(worker, ended=done is None)
        return self._changes.acknowledged(action.change, worker, done, now_ns)

    def _paused(self, paused: Paused, now_ns: int) -> list[Instruction]:
        operator = paused.worker.operator
        undecidable = self._changes.undecidable(operator)
        if undecidable:
            return self._end("failed", "the run failed", now_ns, f"{undecidable}: {paused.error}", paused.details)
        return [self._standing.pause(paused), *self._changes.stands(operator, paused.error, now_ns)]

    # ---- requests

    def _set_rate(self, request: RateRequested) -> list[Instruction]:
        self._sources.set_rate(request.operator, request.rate)
        return self._sources.tell_rate(request.operator) if self.state.flows else []

    def _drain(self) -> list[Instruction]:
        self._sources.draining = True
        if self.state is not RunState.RUNNING:
            return []
        self.state = moved(self.state, RunState.DRAINING)
        return self._sources.tell_drain()

    # ---- the end

    def _finish(self, now_ns: int) -> list[Instruction]:
        """All workers have ended: commit the rest, with checkpoints behind a last record, and go home."""
        if self._checkpoints.keeping:
            return []
        if self._recovers and not self._checkpoints.over:
            return self._checkpoints.last(now_ns)
        rest = [] if self._recovers else self._checkpoints.rest(now_ns)
        return [*rest, *self._end("finished", "the run has finished", now_ns)]

    def _end(
        self,
        state: Literal["finished", "stopped", "failed"],
        why: str,
        now_ns: int,
        error: str = "",
        details: str = "",
    ) -> list[Instruction]:
        closed = [*self._changes.close(why, now_ns, error, details), *self._checkpoints.refuse(error or why)]
        self.state = moved(self.state, RunState(state))
        return [*closed, DismissHosts(error or why), RunEnded(state, error, details)]

    def _after_the_end(self, event: Event, now_ns: int) -> list[Instruction]:
        """Hosts still say what they were saying when they were dismissed, which matters no more; a request does."""
        if isinstance(event, HostJoined):
            return [RefuseHost(event.host, f"the run is over ({self.state})")]
        if isinstance(event, ChangeRequested):
            self._changes.request(event, now_ns)
            return self._changes.close(f"the run was over ({self.state})", now_ns)
        if isinstance(event, CheckpointRequested):
            self._checkpoints.request(event.request)
            return self._checkpoints.refuse(f"the run is over ({self.state})")
        if isinstance(event, CheckpointKept):
            return self._checkpoints.kept(event)
        return []
