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

The rooms behind it hold one idea each: `membership` the hosts, `workers` who has ended, `changes` and `transactions`
what the user wants, `markers` what is on its way, `commits` what the sinks have written.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Literal

from fries_nb.controller.changes import Changes
from fries_nb.controller.commits import Epochs
from fries_nb.controller.events import (
    Admit,
    Answered,
    ChangeRequested,
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
    Tell,
    Tick,
)
from fries_nb.controller.markers import Lane
from fries_nb.controller.membership import Membership
from fries_nb.controller.transactions import State
from fries_nb.controller.workers import Workers
from fries_nb.dataflow.graph import Graph
from fries_nb.errors import DataflowError, ProtocolError, SourceError, unknown
from fries_nb.messages import Answer, Commit, Done, Drain, Ended, Failed, Prepared, Report, SetRate, WorkerId
from fries_nb.planning.expansion import host_of
from fries_nb.scheduling.plan import Send


class RunState(StrEnum):
    """Where a run stands."""

    JOINING = "joining"
    RUNNING = "running"
    DRAINING = "draining"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def over(self) -> bool:
        """Nothing of the run is left to control."""
        return self in (RunState.FINISHED, RunState.STOPPED, RunState.FAILED)


class Controller:
    """All decisions about one run of a graph.

    Attributes:
        state: where the run stands.
        metrics: the last report of each worker.
    """

    def __init__(
        self, graph: Graph, hosts: int, incarnation: int, commit_interval_ns: int | None, silence_ns: int
    ) -> None:
        """A controller that waits for its hosts.

        Args:
            graph: what runs.
            hosts: how many hosts share the workers; the dataflow starts when all have joined.
            incarnation: number of this attempt to run it; hosts of older ones are refused.
            commit_interval_ns: nanoseconds between two commits of the sinks; ``None`` commits at the end only.
            silence_ns: a host from which nothing is heard for longer than these nanoseconds is lost.
        """
        self.state = RunState.JOINING
        self.metrics: dict[WorkerId, Report] = {}
        self._graph = graph
        self._membership = Membership(hosts, incarnation, silence_ns)
        self._workers = Workers(graph)
        self._lane = Lane(self._workers)
        self._epochs = Epochs(commit_interval_ns)
        self._changes = Changes(self._workers, self._lane, self._epochs, incarnation)
        self._before_start: list[RateRequested | DrainRequested] = []

    @property
    def changes(self) -> dict[str, State]:
        """The state of every change of the run, by id, in order of request."""
        return {change: transaction.state for change, transaction in self._changes.known.items()}

    @property
    def on_the_way(self) -> tuple[int, ...]:
        """The ids of the markers on their way (one for each component of a change), empty when the lane is free."""
        return self._lane.on_the_way

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
        instructions = self._take(event, now_ns)
        if self.state in (RunState.RUNNING, RunState.DRAINING):
            instructions += self._changes.advance(self.metrics, now_ns)
            if not self._workers.live():
                instructions += self._finish(now_ns)
        return instructions

    def _take(self, event: Event, now_ns: int) -> list[Instruction]:
        match event:
            case HostJoined():
                return self._joined(event, now_ns)
            case HostHeard():
                self._membership.hear(event.host, now_ns)
                return []
            case HostLost():
                return self._lost(event.host, event.reason, now_ns)
            case HostLeft():
                return self._lost(event.host, "it left before the run was over", now_ns)
            case Answered():
                return self._answered(event.answer, now_ns)
            case ChangeRequested():
                self._changes.request(event, now_ns)
                return []
            case Journaled():
                self._changes.journaled(now_ns)
                return []
            case RateRequested():
                return self._set_rate(event)
            case DrainRequested():
                return self._drain(event)
            case StopRequested():
                return self._end("stopped", "the run was stopped", now_ns)
            case Tick():
                return self._tick(now_ns)
            case _:
                raise ProtocolError(f"{event} has no place in this run")

    # ---- hosts

    def _joined(self, hello: HostJoined, now_ns: int) -> list[Instruction]:
        stranger = self._membership.stranger(hello)
        if stranger:
            return [RefuseHost(hello.host, stranger)]
        restarted = self._membership.restarted(hello)
        if restarted:
            return [RefuseHost(hello.host, restarted), *self._lost(hello.host, restarted, now_ns)]
        self._membership.join(hello, now_ns)
        if not self._membership.complete:
            return []
        self.state = RunState.RUNNING
        self._epochs.start_clock(now_ns)
        started: list[Instruction] = [Admit(dict(sorted(self._membership.addresses.items())))]
        for request in self._before_start:
            started += self._take(request, now_ns)
        self._before_start = []
        return started

    def _lost(self, host: int, reason: str, now_ns: int) -> list[Instruction]:
        self._membership.check(host)
        error = f"host {host} was lost ({reason}); what was committed stays readable"
        return self._end("failed", "the run failed", now_ns, error)

    def _tick(self, now_ns: int) -> list[Instruction]:
        silent = self._membership.silent(now_ns)
        if silent is not None:
            host, silence_ns = silent
            return self._lost(host, f"nothing was heard from it for {silence_ns / 1e9:.1f} s", now_ns)
        sources = self._graph.sources
        started = self.state is not RunState.JOINING
        if not started or self._lane.busy or self._changes.committing or not self._epochs.due(now_ns):
            return []
        if not self._workers.live(sources):
            return []  # a marker would start at none; the end of the run commits the rest
        everywhere = frozenset(self._graph.by_name)
        commit = Commit(self._epochs.begin(now_ns))
        return [*self._lane.start([Send(source, everywhere) for source in sources], commit)]

    # ---- answers of workers

    def _answered(self, answer: Answer, now_ns: int) -> list[Instruction]:
        self._workers.check(answer.worker)
        if self.state is RunState.JOINING:
            raise ProtocolError(f"{answer.worker} answers before the dataflow was started")
        self._membership.hear(host_of(answer.worker, self._membership.hosts), now_ns)
        match answer:
            case Report():
                self.metrics[answer.worker] = answer
                return []
            case Prepared():
                return self._changes.prepared(answer, now_ns)
            case Done():
                return self._done(answer, now_ns)
            case Ended():
                return self._ended(answer, now_ns)
            case Failed():
                return self._end("failed", "the run failed", now_ns, answer.error, answer.details)
            case _:
                raise ProtocolError(f"{answer} has no place in this run")

    def _done(self, done: Done, now_ns: int) -> list[Instruction]:
        commits = self._lane.commits
        counted = self._lane.acknowledge(done.marker, done.worker)
        # A sink may have closed a file before it heard that the commit was cancelled: it is committed with the next.
        self._epochs.hand_in(done.worker.operator, done.files)
        return self._acknowledged(done.worker, done, commits, now_ns) if counted else []

    def _ended(self, ended: Ended, now_ns: int) -> list[Instruction]:
        self._workers.end(ended.worker)
        self._changes.ended(ended.worker, now_ns)
        commits = self._lane.commits
        counted = self._lane.end(ended.worker)
        self._epochs.hand_in(ended.worker.operator, ended.files, behind_cut=commits and not counted)
        return self._acknowledged(ended.worker, None, commits, now_ns) if counted else []

    def _acknowledged(self, worker: WorkerId, done: Done | None, commits: bool, now_ns: int) -> list[Instruction]:
        if not commits:
            return self._changes.acknowledged(worker, done, now_ns)
        closed = None if self._lane.busy else self._epochs.close()
        return [] if closed is None else [closed]

    # ---- requests

    def _set_rate(self, request: RateRequested) -> list[Instruction]:
        if request.operator not in self._graph.sources:
            raise DataflowError(unknown("source", request.operator, self._graph.sources))
        if not 0 <= request.rate < inf:
            raise SourceError(f"a rate of {request.rate} tuples per second; expected 0 (pause) or more")
        if self.state is RunState.JOINING:
            self._before_start.append(request)
            return []
        share = request.rate / self._graph.operator(request.operator).workers
        return [Tell(worker, SetRate(share)) for worker in self._workers.live({request.operator})]

    def _drain(self, request: DrainRequested) -> list[Instruction]:
        if self.state is RunState.JOINING:
            self._before_start.append(request)
        if self.state is not RunState.RUNNING:
            return []
        self.state = RunState.DRAINING
        return [Tell(worker, Drain()) for worker in self._workers.live(self._graph.sources)]

    # ---- the end

    def _finish(self, now_ns: int) -> list[Instruction]:
        rest = self._epochs.close_rest()
        return [*([] if rest is None else [rest]), *self._end("finished", "the run has finished", now_ns)]

    def _end(
        self,
        state: Literal["finished", "stopped", "failed"],
        why: str,
        now_ns: int,
        error: str = "",
        details: str = "",
    ) -> list[Instruction]:
        closed = self._changes.close(why, now_ns, error, details)
        self.state = RunState(state)
        return [*closed, DismissHosts(error or why), RunEnded(state, error, details)]

    def _after_the_end(self, event: Event, now_ns: int) -> list[Instruction]:
        """Hosts still say what they were saying when they were dismissed, which matters no more; a request does."""
        if isinstance(event, HostJoined):
            return [RefuseHost(event.host, f"the run is over ({self.state})")]
        if isinstance(event, ChangeRequested):
            self._changes.request(event, now_ns)
            return self._changes.close(f"the run was over ({self.state})", now_ns)
        return []
