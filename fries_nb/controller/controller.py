"""The controller: the driver's side of the protocol, which maps each event to instructions.

>>> from fries_nb.controller.events import Answered, DrainRequested, HostJoined
>>> from fries_nb.dataflow.graph import Edge, Kind, Operator
>>> flow = Graph("pair", (Operator("src", kind=Kind.SOURCE), Operator("out", kind=Kind.SINK)), (Edge("src", "out"),))
>>> controller = Controller(flow, hosts=1, incarnation=1, commit_interval_ns=None)
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

Its parts: ``lifecycle`` start, loss of hosts and end; ``states`` the state tables; ``membership`` hosts and workers;
``known_changes``, ``changes`` and ``transactions`` changes; ``guards`` automatic rollbacks; ``pauses`` paused
operators; ``failure_rules`` the consequences of failures; ``markers`` markers in flight; ``commit_numbers`` output of
sinks; ``commit_attempts`` checkpoints; ``commit_delays`` what keeps them from completing; ``loop_attempts`` the ends of
loops; ``restore_point`` incarnations; ``rewiring`` the topology; ``joining`` the number of hosts; ``bin_moves`` bins
of keyed operators; ``split_moves`` splits of sources; ``intake`` sources; ``agreement`` and ``schema_checks`` types of
columns.

The order of events and instructions: a controller gets one event at a time, and is never re-entered.

>>> log: list[str] = []
>>> def handle(event, now_ns):
...     return [f"journal {event}", f"send {event}"] if event == "change" else []
>>> def carry_out(instruction):
...     log.append(instruction)
...     return ["journaled"] if instruction.startswith("journal ") else []
>>> events = EventQueue(handle, lambda: 0, carry_out)
>>> events.take("change")
>>> log
['journal change', 'send change']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from fries_nb.controller import events
from fries_nb.controller.failure_rules import CommitDelays, FailureRules
from fries_nb.controller.intake import Uncommitted
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.moves import NO_SPLITS
from fries_nb.controller.schema_checks import Agreement, with_columns
from fries_nb.controller.states import ChangeProgress, ChangeState, RunState
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import ProtocolError
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import (
    Action,
    Answer,
    ApplyDeferred,
    Attempt,
    BlockEntries,
    Commit,
    Done,
    Ended,
    Failed,
    InputEnded,
    Installed,
    Move,
    MoveSplits,
    Paused,
    Prepared,
    Rehearsed,
    Report,
    Resumed,
    Saved,
    SetChain,
    Settled,
    SplitsRead,
    TopologyAdopted,
    WorkerId,
)


class EventQueue:
    """Passes events to a controller one at a time, and carries out its instructions; used by both shells.

    The controller is never re-entered: all instructions of an event are carried out before the next event. Events that
    result from instructions (a record is on disk, output could not be committed) are processed next, in order, before
    queued events: until then the controller does not know the result of its last instructions.

    Args:
        handle: ``Controller.handle``.
        clock_ns: a monotonic clock in nanoseconds.
        carry_out: carries out one instruction and returns the resulting events; must not call ``take``.
    """

    def __init__(
        self,
        handle: Callable[[events.Event, int], list[events.Instruction]],
        clock_ns: Callable[[], int],
        carry_out: Callable[[events.Instruction], Iterable[events.Event]],
    ) -> None:
        self._handle = handle
        self._clock_ns = clock_ns
        self._carry_out = carry_out
        self._taking: events.Event | None = None

    def take(self, event: events.Event) -> None:
        """Process an event, and then each event that results from its instructions.

        Raises:
            ProtocolError: it is called while an instruction is carried out, or from a second thread.
        """
        if self._taking is not None:
            raise ProtocolError(f"{event} came while the instructions of {self._taking} are carried out; it waits")
        waiting = deque([event])
        try:
            while waiting:
                self._taking = waiting.popleft()
                for instruction in self._handle(self._taking, self._clock_ns()):
                    waiting.extend(self._carry_out(instruction))
        finally:
            self._taking = None


class Controller:
    """The controller of one run of a graph.

    Attributes:
        metrics: the last report of each worker.
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
        """Create a controller that awaits its hosts.

        Args:
            graph: the dataflow.
            hosts: number of hosts; the dataflow starts when all have joined.
            incarnation: number of the first incarnation; hosts of older ones are refused.
            commit_interval_ns: nanoseconds between two commits of the sinks; ``None`` commits at the end only.
            checkpoints: whether every commit is a checkpoint and the run recovers from lost hosts; otherwise the loss
                of a host fails the run.
            optional: whether the run goes on without checkpoints, and without recovery, once one has failed.
            restored: the state from which the workers start, and restart before the first checkpoint.
            run: the run's id, for the records of checkpoints.
            chaining: whether hosts chain operators; a chain pauses and reports as a whole.
            splits: source to the numbers of its splits, in the order in which they are dealt to workers.
        """
        self.metrics: dict[WorkerId, Report] = {}
        self._life = Lifecycle(
            graph,
            hosts,
            incarnation,
            commit_interval_ns,
            checkpoints=checkpoints,
            optional=optional,
            restored=restored,
            run=run,
            chaining=chaining,
            splits=splits,
        )
        self._changes = self._life.changes
        self._checkpoints = self._life.checkpoints
        self._workers = self._life.workers
        self._lane = self._life.lane
        self._epochs = self._life.epochs
        self._pauses = self._life.paused
        self._sources = self._life.sources
        self._agreement = Agreement(graph, chaining, self._life.recovery.columns)
        self._failures = FailureRules(self._life, self._agreement, self.metrics)
        self._delays = CommitDelays(self._life, self.metrics, commit_interval_ns)

    @property
    def state(self) -> RunState:
        """State of the run."""
        return self._life.state

    @property
    def changes(self) -> dict[str, ChangeState]:
        """Change id to state, in order of request."""
        return {change: transaction.state for change, transaction in self._changes.known.items()}

    def progress_of(self, change: str) -> ChangeProgress | None:
        """How far a change is; ``None`` if it is unknown or has ended. May be called from any thread."""
        known = self._changes.known.get(change)
        return known.progress if known is not None and known.open else None

    @property
    def on_the_way(self) -> tuple[int, ...]:
        """The ids of the markers in flight (one for each component of a change); empty if there is none."""
        return self._lane.on_the_way

    @property
    def loops(self) -> dict[str, Loop]:
        """Head to its loop; to the attempts of a change, while one drains the loop."""
        return {**self._life.loops.loops, **self._changes.drained}

    @property
    def topology(self) -> TopologyStatus:
        """The hosts, workers and bins, and the phase of a rescale; may be called from any thread."""
        return self._life.joining.status

    @property
    def uncommitted(self) -> Uncommitted:
        """The tuples that sources have read since the last commit, including the hosts' last reports."""
        return self._checkpoints.intake.uncommitted()

    @property
    def incarnation(self) -> int:
        """The current incarnation; messages of older ones are ignored."""
        return self._life.recovery.incarnation

    def handle(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """Process one event.

        Args:
            event: the event.
            now_ns: time of a monotonic clock in nanoseconds.

        Returns:
            The instructions, in order.

        Raises:
            ProtocolError: a message that is not allowed in the run's present state.
            DataflowError: a rate for an operator that is not a source; moves that are not possible.
            SourceError: an invalid rate.
        """
        if self.state.over:
            return self._after_the_end(event, now_ns)
        instructions = self._take(event, now_ns)
        if self.state.flows:
            steps = self._advance(event, now_ns)  # of which the last may have to stay the last
            instructions += [*(self._delays.observe(now_ns) if self.state.flows else ()), *steps]
        return instructions

    def _advance(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """Take all steps that are possible now; ``KeepCheckpoint`` is the last instruction."""
        settled = self._checkpoints.settle()
        keep, steps = (settled, []) if self._checkpoints.keeping else ([], settled)
        steps += [*self._life.end_sources(), *self._life.rewire(now_ns)]
        if self._life.rewiring.under_way:
            return steps + keep
        steps += self._changes.advance(self.metrics, now_ns)
        if self._changes.restarting:
            return [*steps, *self._life.recover(f"change {self._changes.restarting!r} starts the run again", now_ns)]
        is_due = self._epochs.due(now_ns)
        steps += self._life.commit(is_due and isinstance(event, events.Tick), now_ns)
        steps += self._life.take_turns(is_due, now_ns)
        if not self._workers.live():
            steps += self._life.finish(now_ns)
        return steps + keep

    def _take(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        match event:
            case events.HostJoined():
                return self._life.joined(event, now_ns)
            case events.HostLost() | events.HostLeft() | events.Answered():
                return self._heard(event, now_ns)
            case events.ChangeRequested():
                self._changes.request(event, now_ns, early=self.state is RunState.JOINING)
            case events.ChangeCancelled():
                return self._changes.cancel(event.change, now_ns)
            case events.Journaled():
                self._changes.journaled(event.change, event.at_ns)
            case events.CheckpointRequested():
                self._checkpoints.request(event.request)
            case events.CheckpointKept():
                return self._life.kept(event, now_ns)
            case events.RateRequested():
                return self._set_rate(event)
            case events.TopologyRequested() | events.BinsRequested() | events.SplitsRequested():
                self._reshape(event)
            case events.HostsRequested() | events.RescaleCancelled():
                return self._rescale(event, now_ns)
            case events.DrainRequested():
                return self._life.drain(event.spared)
            case events.ChainRequested():
                return [events.Tell(event.worker, SetChain(event.operators))] if self.state.flows else []
            case events.ColumnRefused():
                return self._disagreed(event, now_ns)
            case events.HostsUnfit():
                return self._life.end("failed", "the run failed", now_ns, event.reason, event.details)
            case events.StopRequested():
                return self._life.end("stopped", "the run was stopped", now_ns)
            case events.Tick():
                pass  # due steps are taken after every event
            case _:
                raise ProtocolError(f"{event} has no place in this run")
        return []

    def _disagreed(self, event: events.ColumnRefused, now_ns: int) -> list[events.Instruction]:
        self._agreement.know(event.sink, event.columns)
        return self._failures.disagreed(event.sink, event.column, event.error, now_ns)

    def _reshape(self, event: events.TopologyRequested | events.BinsRequested | events.SplitsRequested) -> None:
        if isinstance(event, events.TopologyRequested):
            self._life.rewiring.request(event.topology)
        elif isinstance(event, events.BinsRequested):
            self._life.bin_moves.request(event)
        else:
            self._life.split_moves.request(event)

    def _rescale(
        self, event: events.HostsRequested | events.RescaleCancelled, now_ns: int
    ) -> list[events.Instruction]:
        if isinstance(event, events.HostsRequested):
            return self._life.joining.request(event, now_ns)
        return self._life.joining.cancel(event.request, now_ns)

    def _heard(
        self, event: events.HostLost | events.HostLeft | events.Answered, now_ns: int
    ) -> list[events.Instruction]:
        if 0 < event.incarnation < self.incarnation:
            return []
        if isinstance(event, events.Answered):
            return self._answered(event.answer, now_ns)
        reason = event.reason if isinstance(event, events.HostLost) else "it left before the run was over"
        return self._life.lost(event.host, reason, now_ns)

    # ---- answers of workers

    def _answered(self, answer: Answer, now_ns: int) -> list[events.Instruction]:
        if self._life.rewiring.expects(answer.worker):
            return self._heard_of_newcomer(answer, now_ns)
        self._workers.check(answer.worker)
        if self.state is RunState.JOINING:
            raise ProtocolError(f"{answer.worker} answers before the dataflow was started")
        if self.state is RunState.RECOVERING or self._workers.has_left(answer.worker):
            return []  # it belongs to a past incarnation, or has left the topology
        match answer:
            case Report():
                return self._reported(answer, now_ns)
            case Rehearsed():
                return self._changes.rehearsed(answer, now_ns)
            case Prepared():
                return self._changes.prepared(answer, now_ns)
            case Done():
                return self._done(answer, now_ns)
            case Ended():
                return self._ended(answer, now_ns)
            case Failed() if answer.column:
                self._agreement.hear(answer.worker.operator, answer.columns)
                return self._failures.disagreed(answer.worker.operator, answer.column, answer.error, now_ns)
            case Failed():
                return self._failures.failed(answer, now_ns)
            case Saved():
                self._checkpoints.saved(answer)
            case InputEnded() | Settled():
                self._heard_of_loop(answer)
            case TopologyAdopted():
                self._life.rewiring.adopted(answer)
            case Installed() | SplitsRead():
                self._heard_of_splits(answer)
            case Paused():
                return self._failures.paused(answer, now_ns)
            case Resumed():
                return [self._pauses.resume(answer.worker)]
        return []

    def _heard_of_newcomer(self, answer: Answer, now_ns: int) -> list[events.Instruction]:
        """Process the answer of a worker that a new host has made, or could not make."""
        if isinstance(answer, Failed):
            return self._life.joining.failed(answer.worker, answer.error, now_ns)
        if isinstance(answer, TopologyAdopted):
            self._life.rewiring.adopted(answer)
        return []

    def _reported(self, report: Report, now_ns: int) -> list[events.Instruction]:
        self.metrics[report.worker] = with_columns(report, self.metrics.get(report.worker))
        sink = report.worker.operator
        if column := self._agreement.hear(sink, report.columns):
            words = f"column {column!r} comes to {sink} in two types"
            return self._failures.disagreed(sink, column, words, now_ns)
        self._checkpoints.intake.report(report)
        return []

    def _heard_of_splits(self, answer: Installed | SplitsRead) -> None:
        if isinstance(answer, SplitsRead):
            self._sources.read(answer.worker)
        else:
            self._lane.installed(answer)
            self._sources.adopted(answer.worker)

    def _heard_of_loop(self, answer: InputEnded | Settled) -> None:
        self._life.loops.answered(answer)
        if isinstance(answer, Settled):
            self._changes.asked(answer, answer.worker)

    def _done(self, done: Done, now_ns: int) -> list[events.Instruction]:
        action = self._lane.acknowledge(done.marker, done.worker)
        # A sink may close a file before ``Cancel`` arrives; the next commit includes that file.
        self._epochs.hand_in(done.worker.operator, done.files)
        return [] if action is None else self._acknowledged(action, done.worker, done, now_ns)

    def _ended(self, ended: Ended, now_ns: int) -> list[events.Instruction]:
        self._workers.end(ended.worker)
        commits = self._lane.commits
        actions = self._lane.end(ended.worker)
        counted = any(isinstance(action, Commit) for action in actions)
        self._epochs.hand_in(ended.worker.operator, ended.files, behind_cut=commits and not counted)
        return [one for action in actions for one in self._acknowledged(action, ended.worker, None, now_ns)]

    def _acknowledged(
        self, action: Action, worker: WorkerId, done: Done | None, now_ns: int
    ) -> list[events.Instruction]:
        if isinstance(action, Commit):
            return self._checkpoints.acknowledged(worker, done)
        if isinstance(action, Attempt):
            self._life.loops.acknowledged(worker, done)
            self._changes.asked(done, worker)
            return []
        if isinstance(action, ApplyDeferred):
            self._changes.switched_late(worker, done)
            return []
        if isinstance(action, MoveSplits):
            return self._life.split_moves.acknowledged(worker, done)
        if isinstance(action, BlockEntries | Move):
            return []
        return self._changes.acknowledged(action.change, worker, done, now_ns)

    def _set_rate(self, request: events.RateRequested) -> list[events.Instruction]:
        self._sources.set_rate(request.operator, request.rate)
        return self._sources.tell_rate(request.operator) if self.state.flows else []

    # ---- end of the run

    def _after_the_end(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """Refuse requests and hosts, count final reports, and ignore other messages of dismissed hosts."""
        if isinstance(event, events.HostJoined):
            return [events.RefuseHost(event.host, f"the run is over ({self.state})")]
        if isinstance(event, events.Answered) and isinstance(event.answer, Report):
            self._checkpoints.intake.report(event.answer)
        if isinstance(event, events.ChangeRequested):
            self._changes.request(event, now_ns)
            return self._changes.close(f"the run was over ({self.state})", now_ns)
        if isinstance(event, events.CheckpointRequested):
            self._checkpoints.request(event.request)
            return self._checkpoints.refuse(f"the run is over ({self.state})")
        if isinstance(event, events.HostsRequested):
            return self._life.joining.refuse(event, f"the run was over ({self.state})")
        if isinstance(event, events.CheckpointKept):
            return self._checkpoints.kept(event)
        return []
