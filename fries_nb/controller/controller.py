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

Its parts: ``lifecycle`` start, loss of hosts and end; ``states`` the state tables. Each ``coordinator`` decides about
one thing: ``markers`` markers in flight; ``failed_rows`` paused operators and letters that go back; ``intake`` ends and
rates of sources; ``membership`` hosts, workers and the topology; ``joining`` the number of hosts; ``change_steps``,
``known_changes`` and ``transactions`` changes, and ``guards`` their rollbacks; ``commits`` output of sinks, checkpoints
and incarnations; ``moves`` splits of sources and bins of keyed operators; ``loop_attempts`` ends of loops;
``failure_rules`` failures, and ``schema_checks`` types of columns. An event, an answer or an acknowledged marker goes
along their list to those that take it; then all of them take the steps that are possible, in the order of the list.

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
from fries_nb.controller.coordinator import Taken
from fries_nb.controller.event_log import EventLog
from fries_nb.controller.failure_rules import CommitDelays, FailureRules
from fries_nb.controller.intake import Uncommitted
from fries_nb.controller.lifecycle import Lifecycle
from fries_nb.controller.loop_attempts import Loop
from fries_nb.controller.moves import NO_SPLITS
from fries_nb.controller.schema_checks import Agreement
from fries_nb.controller.states import ChangeProgress, ChangeState, RunState
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import ProtocolError
from fries_nb.protocol.checkpoints import Restoration
from fries_nb.protocol.messages import Action, Answer, Commit, Done, Ended, Report, WorkerId
from fries_nb.protocol.topology import Topology


class EventQueue:
    """Passes events to a controller one at a time, and carries out its instructions; used by both shells.

    The controller is never re-entered: all instructions of an event are carried out before the next event. Events that
    result from instructions (a record is on disk, output could not be committed) are processed next, in order, before
    queued events: until then the controller does not know the result of its last instructions.

    Args:
        handle: ``Controller.handle``.
        clock_ns: a monotonic clock in nanoseconds.
        carry_out: carries out one instruction and returns the resulting events; must not call ``take``.

    Attributes:
        log: the last events and instructions.
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
        self.log = EventLog()

    def take(self, event: events.Event) -> None:
        """Process an event, and then each event that results from its instructions."""
        if self._taking is not None:
            raise ProtocolError(f"{event} came while the instructions of {self._taking} are carried out; it waits")
        waiting = deque([event])
        try:
            while waiting:
                self._taking = waiting.popleft()
                now_ns = self._clock_ns()
                self.log.note(now_ns, self._taking)
                for instruction in self._handle(self._taking, now_ns):
                    self.log.note(now_ns, instruction)
                    waiting.extend(self._carry_out(instruction))
        finally:
            self._taking = None


class Controller:
    """The controller of one run of a graph.

    Attributes:
        metrics: the last report of each worker.
        coordinators: its coordinators, in the order of their steps (see ``lifecycle``); others may be added.
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
        """Create a controller that awaits its hosts."""
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
        self.metrics = self._life.reports
        self.coordinators = self._life.coordinators
        # The last one, since it ends or restarts the run by way of the others.
        agreement = Agreement(graph, chaining, self._life.recovery.columns)
        self._life.reshaping.followers.append(agreement.go_on)
        self.coordinators.append(FailureRules(self._life, agreement))
        self._changes = self._life.changes
        self._workers = self._life.workers
        self._lane = self._life.lane
        self._delays = CommitDelays(self._life, commit_interval_ns)

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
    def placed(self) -> Topology:
        """The placement and connection of all workers; may be called from any thread."""
        return self._life.joining.topology

    @property
    def uncommitted(self) -> Uncommitted:
        """The tuples that sources have read since the last commit, including the hosts' last reports."""
        return self._life.checkpoints.intake.uncommitted()

    @property
    def incarnation(self) -> int:
        """The current incarnation; messages of older ones are ignored."""
        return self._life.recovery.incarnation

    def handle(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """Process one event.

        Returns:
            The instructions, in order.
        """
        if self.state.over:
            return self._after_the_end(event, now_ns)
        instructions = self._take(event, now_ns)
        if self.state.flows:
            steps = self._advance(now_ns, is_tick=isinstance(event, events.Tick))
            instructions += [*(self._delays.observe(now_ns) if self.state.flows else ()), *steps]
        # A record comes last: the decisions before it are in the journal by then, and no message waits for the disk.
        return sorted(instructions, key=lambda instruction: isinstance(instruction, events.KeepCheckpoint))

    def _take(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """Process an event of the run as a whole, or pass it to the coordinators that take it."""
        match event:
            case events.HostJoined():
                return self._life.joined(event, now_ns)
            case events.HostLost() | events.HostLeft() | events.Answered():
                return self._received(event, now_ns)
            case events.CheckpointKept():
                return self._life.kept(event, now_ns)
            case events.DrainRequested():
                return self._life.drain(event.spared)
            case events.HostsUnfit():
                return self._life.end("failed", "the run failed", now_ns, event.reason, event.details)
            case events.StopRequested():
                return self._life.end("stopped", "the run was stopped", now_ns)
            case events.Tick():
                return []  # due steps are taken after every event
        return self._pass_on(event, now_ns)

    # ---- walks along the coordinators

    def _pass_on(self, event: Taken, now_ns: int) -> list[events.Instruction]:
        """Pass an event, or the answer of a worker, to the coordinators that take it."""
        takers = [coordinator for coordinator in self.coordinators if isinstance(event, coordinator.takes)]
        if not takers:
            raise ProtocolError(f"{event} has no place in this run")
        return [instruction for coordinator in takers for instruction in coordinator.take(event, now_ns)]

    def _acknowledged(
        self, action: Action, worker: WorkerId, done: Done | None, now_ns: int
    ) -> list[events.Instruction]:
        """Pass the acknowledgement of an action's marker to the coordinators that send such markers."""
        instructions: list[events.Instruction] = []
        for coordinator in self.coordinators:
            if isinstance(action, coordinator.actions):
                instructions += coordinator.acknowledged(action, worker, done, now_ns)
        return instructions

    def _advance(self, now_ns: int, is_tick: bool) -> list[events.Instruction]:
        """Take all steps that are possible now, after an event; end the run if no worker is left."""
        steps: list[events.Instruction] = []
        for coordinator in self.coordinators:
            if taken := coordinator.advance(now_ns, is_tick):
                steps += self._followed(taken, now_ns)
            if coordinator.holds:
                break
        else:
            return steps if self._workers.live() else [*steps, *self._life.finish(now_ns)]
        if self._changes.restarting:
            why = f"change {self._changes.restarting!r} starts the run again"
            steps += self._life.recover(why, now_ns)
        return steps

    def _followed(self, steps: Iterable[events.Instruction], now_ns: int) -> list[events.Instruction]:
        """Steps of one coordinator, each followed by what others do at once because of it."""
        followed: list[events.Instruction] = []
        for step in steps:
            followed.append(step)
            for other in self.coordinators:
                if isinstance(step, other.takes):
                    followed += self._followed(other.take(step, now_ns), now_ns)
        return followed

    # ---- messages of hosts and workers

    def _received(
        self, event: events.HostLost | events.HostLeft | events.Answered, now_ns: int
    ) -> list[events.Instruction]:
        """Process what a host sent, or what became of it, unless it is of an older incarnation."""
        if 0 < event.incarnation < self.incarnation:
            return []
        if isinstance(event, events.Answered):
            return self._answered(event.answer, now_ns)
        reason = event.reason if isinstance(event, events.HostLost) else "it left before the run was over"
        return self._life.lost(event.host, reason, now_ns)

    def _answered(self, answer: Answer, now_ns: int) -> list[events.Instruction]:
        if self._life.rewiring.expects(answer.worker):
            is_shape = not self._life.reshaping.is_idle
            return (self._life.reshaping.answered if is_shape else self._life.joining.newcomer_answered)(answer, now_ns)
        self._workers.check(answer.worker)
        if self.state is RunState.JOINING:
            raise ProtocolError(f"{answer.worker} answers before the dataflow was started")
        if self.state is RunState.RECOVERING or self._workers.has_left(answer.worker):
            return []  # it belongs to a past incarnation, or has left the topology
        match answer:
            case Done():
                return self._done(answer, now_ns)
            case Ended():
                return self._ended(answer, now_ns)
        return self._pass_on(answer, now_ns)

    def _done(self, done: Done, now_ns: int) -> list[events.Instruction]:
        action = self._lane.acknowledge(done.marker, done.worker)
        # A sink may close a file before ``Cancel`` arrives; the next commit includes that file.
        self._life.epochs.hand_in(done.worker.operator, done.files)
        return [] if action is None else self._acknowledged(action, done.worker, done, now_ns)

    def _ended(self, ended: Ended, now_ns: int) -> list[events.Instruction]:
        self._workers.end(ended.worker)
        self._changes.cuts.ended(ended.worker, ended.begun)
        commits = self._lane.commits
        actions = self._lane.end(ended.worker)
        counted = any(isinstance(action, Commit) for action in actions)
        # Before the acknowledgements, of which the last one closes the cut; files from behind it are not in it.
        self._life.epochs.hand_in(ended.worker.operator, ended.files, behind_cut=commits and not counted)
        acknowledged = (self._acknowledged(action, ended.worker, None, now_ns) for action in actions)
        return [instruction for instructions in acknowledged for instruction in instructions]

    # ---- end of the run

    def _after_the_end(self, event: events.Event, now_ns: int) -> list[events.Instruction]:
        """Refuse requests and hosts, count final reports, and ignore other messages of dismissed hosts."""
        match event:
            case events.HostJoined():
                return [events.RefuseHost(event.host, f"the run is over ({self.state})")]
            case events.Answered(answer=Report() as report):
                self._life.checkpoints.intake.report(report)
                return []
            case events.CheckpointKept():
                return self._life.checkpoints.kept(event)
        takers = [coordinator for coordinator in self.coordinators if isinstance(event, coordinator.takes)]
        return [answer for coordinator in takers for answer in coordinator.refuse(event, str(self.state), now_ns)]
