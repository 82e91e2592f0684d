"""The core of a driver: passes events to the controller one at a time, and carries out its instructions.

    from hosts      hear      a hello, the answers of workers, records, the end of a connection
    from users      take      a change, a checkpoint, the end of the run
    now and then    step      a tick of the controller, probes, and whether Spark has restarted the hosts in time
    to hosts        send      of the environment, a message for the connection of a host
    to disk         committer decisions, checkpoints, and the output of sinks

The controller is not re-entered while its instructions are carried out (see ``EventQueue``). They are carried out in
order, so a decision is on disk before its first FCM is sent.

When a host is lost the controller issues ``Recover``: all hosts are dismissed, the trace is truncated to the
checkpoint, and other hosts are started, which belong to the next incarnation. Messages of older incarnations are
ignored.

It has neither sockets, threads nor clocks of its own: the driver of a run on Spark gives it real ones, and a seeded run
lanes whose interleavings are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from fries_nb.controller import events
from fries_nb.controller.controller import Controller, EventQueue
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.dataflow.graph import Graph
from fries_nb.driver.committer import Committer
from fries_nb.driver.driver_topology import DriverTopology, GrowingJob
from fries_nb.driver.open_questions import Asked, Looked, Looks, Withdrawn
from fries_nb.driver.tracing import Trace
from fries_nb.errors import in_one_line
from fries_nb.host.region_spec import RegionSpec
from fries_nb.protocol.checkpoints import Checkpoint
from fries_nb.protocol.frames import Move
from fries_nb.protocol.messages import (
    Abort,
    Answer,
    ArmsSeen,
    Cancel,
    Commit,
    Compared,
    Control,
    Done,
    Fcm,
    Installed,
    Prepare,
    RowsSeen,
    StateSeen,
    WorkerId,
)  # fmt: skip
from fries_nb.transport.control import Gone, Heard
from fries_nb.transport.envelopes import (
    CHUNK,
    Configured,
    Constrain,
    ControllerMessage,
    Goodbye,
    Hello,
    Judged,
    Leave,
    PayloadSender,
    Pointstamps,
    Printed,
    Probe,
    ProcessUsage,
    Records,
    Refused,
    Said,
    Took,
    ToWorker,
    Welcome,
)  # fmt: skip


@dataclass(frozen=True)
class Used:
    """A host has told what its process uses."""

    host: int
    usage: ProcessUsage


class HostsRestarted:
    """All hosts have joined again, after they were restarted."""


class Closed:
    """All hosts have ended, and all sockets are closed; the last event."""


Told = (
    events.Outcome | events.GuardFired | events.GuardEnded | events.RescaleEnded | events.CheckpointEnded
    | events.RequeueEnded | events.CommitsHeld | events.Recover | HostsRestarted | events.OperatorPaused
    | events.Answered | Printed | Used | Judged | Pointstamps | Looked | Compared | events.RunEnded | Closed
)  # fmt: skip
"""What a driver tells its run. ``RunEnded`` is told as soon as the outcome of the region is known, while its hosts are
being dismissed; and again, as ``failed``, if their final messages cannot be processed."""


PROBE_NS = 250_000_000
"""Nanoseconds between two probes of the hosts' connections."""
LOST = "its connection has ended: its process is gone, or its machine did not answer for {:g} s"
RESTART_NS = 60_000_000_000
"""Time within which Spark must restart hosts; after that they count as lost, and another attempt is made."""


class DriverEnvironment(Protocol):
    """What a driver's core needs around it."""

    def now_ns(self) -> int:
        """A time of which only differences have a meaning, in nanoseconds."""

    def send(self, peer: bytes, message: ControllerMessage) -> None:
        """Send a message to the host behind a connection; messages to one host arrive in order."""

    def begin(self, incarnation: int) -> None:
        """Send in this incarnation from now on, and drop what hosts of older ones say."""

    def apart(self, call: Callable[[], list[events.Event]]) -> list[events.Event]:
        """Carry out a call that writes to disk, for which no message waits; returns the events that follow at once.

        The environment takes those that follow later.
        """


class HostJob(GrowingJob, Protocol):
    """Starts the hosts; on Spark it is their job, see ``stage``."""

    def restart(self, region: RegionSpec) -> None:
        """Cancel the remaining hosts and submit new ones."""

    def is_running(self) -> bool:
        """Whether Spark runs the tasks of the current hosts."""


@dataclass(frozen=True)
class ConstraintsChanged:
    """An event of the driver itself: the dataflow has these latency constraints from now on, on any of its paths."""

    constraints: tuple[LatencyConstraint, ...]


Request = ConstraintsChanged | Asked | Withdrawn
"""An event that does not concern the controller."""


class DriverCore:
    """Runs a controller until its region has ended.

    Args:
        environment: its clock, and the ways to the hosts and to the disk.
        controller: the controller.
        region: the specification of the region.
        committer: stores decisions and checkpoints, and commits output.
        tell: receives what the driver tells its run.
        stage: starts hosts.
        trace: receives the records of the audit.

    Attributes:
        controller: the controller.
        hosts: the hello of each admitted host.
        looks: what users ask the hosts.
        region: the specification of the region, as it is now.
        over: how the region has ended; ``None`` until then.
        queue: passes events to the controller.
        topology: the topology, as the hosts are told of it.
        trace: the audit trace.
    """

    def __init__(
        self,
        environment: DriverEnvironment,
        controller: Controller,
        region: RegionSpec,
        committer: Committer,
        tell: Callable[[Told], None],
        stage: HostJob,
        trace: Trace,
    ) -> None:
        self.controller = controller
        self.hosts: dict[int, Hello] = {}
        self.region = self._earlier = region  # the earlier one is that before the last change of the shape
        # the first dataflow, and each that a change of the shape, which comes first, has made of it
        self.shapes: list[tuple[str, Graph]] = [("", region.graph)]
        self.over: events.RunEnded | None = None
        self.trace = trace
        self.queue = EventQueue(controller.handle, environment.now_ns, self._carry_out)
        self._environment = environment
        self._committer = committer
        self._tell = tell
        self._stage = stage
        self._epochs: dict[int, int] = {}  # marker of the last checkpoint to its epoch
        self._restart_since_ns: int | None = None  # when the restart of hosts began, until they have joined
        self._failing = False  # a commit of output has failed, so no further decision is written
        self._is_untidy = False
        self._peers: dict[int, bytes] = {}
        self.topology = DriverTopology(region, stage, environment.send, self._peers, self.hosts, trace)
        self.looks = Looks(lambda asked: self.topology.workers_of(asked.operator, asked.to), self._direct, tell)
        self._gone: set[int] = set()
        self._hello = b""
        self._payloads = PayloadSender(environment.send)
        self._probed_ns = environment.now_ns() - PROBE_NS

    # ---- events

    def take(self, event: events.Event | Request) -> None:
        """Process an event of a user, or of whoever starts the hosts."""
        if isinstance(event, ConstraintsChanged):
            self._constrain(event.constraints)
        elif isinstance(event, Asked):
            self.looks.ask(event)
        elif isinstance(event, Withdrawn):
            self.looks.withdraw(event)
        else:
            self.queue.take(event)

    def step(self) -> None:
        """Take the steps that are due by now."""
        self._check_restart()
        self.probe()
        self.queue.take(events.Tick())

    def tidy(self) -> None:
        """Delete old checkpoints, if there is a newer one; to be called when no event waits, since it takes long."""
        if self._is_untidy:
            self._is_untidy = False
            self._committer.tidy()

    def probe(self) -> None:
        """Send each host a probe at intervals; the transport rejects it if the connection has ended."""
        now_ns = self._environment.now_ns()
        if now_ns - self._probed_ns >= PROBE_NS:
            self._probed_ns = now_ns
            for peer in self._peers.values():
                self._environment.send(peer, Probe())

    def fail(self, error: str, details: str = "") -> None:
        """End the run for a failure of the driver."""
        self._end(events.RunEnded("failed", error, details))

    def close_changes(self, error: str, details: str) -> None:
        """Say how far each open change is, since the driver has failed; the controller may be what has failed."""
        for instruction in self.controller.handle(events.HostsUnfit(error, details), self._environment.now_ns()):
            match instruction:
                case events.Resolved() | events.GuardFired() | events.GuardEnded() | events.RescaleEnded():
                    self._report(instruction)

    def _end(self, over: events.RunEnded) -> None:
        if self._committer.failure and not over.error:
            over = events.RunEnded("failed", self._committer.failure)
        self.over = over
        self.looks.close()
        error, details = in_one_line(over.error, over.details)
        self._tell(replace(over, error=error, details=details))

    def _check_restart(self) -> None:
        """Report a loss if Spark has not restarted the hosts in time; their own start-up is not limited."""
        now_ns = self._environment.now_ns()
        if self._restart_since_ns is None or now_ns - self._restart_since_ns <= RESTART_NS:
            return
        self._restart_since_ns = now_ns
        if not self._stage.is_running():
            host = min(set(range(self.region.options.hosts)).difference(self._peers), default=0)
            within = f"within {RESTART_NS / 1e9:g} s"
            late = f"Spark has not started it again {within}; likely too few slots are free"
            self.queue.take(events.HostLost(host, late, self.region.incarnation))

    # ---- messages of hosts

    def hear(self, heard: Heard) -> None:
        """Process a message of a host."""
        message, host = heard.message, heard.host
        if isinstance(message, Hello):
            self._hello = heard.peer
            if message.incarnation == self.region.incarnation:
                self._peers.setdefault(host, heard.peer)
                self.hosts.setdefault(host, message)
            self.queue.take(events.HostJoined(host, message.data_address, message.incarnation))
        elif heard.peer != self._peers.get(host):
            return  # a refused host, or one of an older incarnation
        elif isinstance(message, Said):
            for answer in message.answers:
                self._answered(answer, heard.incarnation)
        elif isinstance(message, Records):
            self.trace.add(message.worker, message.records)
        elif isinstance(message, Took):
            self._payloads.took(heard.peer)
        elif isinstance(message, Configured):
            self.topology.configured(message)
        elif isinstance(message, Printed | Judged | Pointstamps):
            self._tell(message)
        elif isinstance(message, ProcessUsage):
            self._tell(Used(host, message))
        elif isinstance(message, Goodbye):
            self._gone.add(host)
            self.queue.take(events.HostLost(host, message.reason) if message.reason else events.HostLeft(host))
        elif isinstance(message, Gone):
            self._gone.add(host)
            self.queue.take(events.HostLost(host, LOST.format(self.region.options.silence_s)))

    def hear_last(self, heard: Heard) -> None:
        """Process a message after the end: the final ones of the hosts include their traces; others are refused."""
        if heard.peer == self._peers.get(heard.host):
            self.hear(heard)
        else:
            self._environment.send(heard.peer, Refused("the run is over"))

    @property
    def awaits_goodbyes(self) -> bool:
        """Whether the last message of a host is still to come."""
        return self._gone < set(self._peers)

    def _answered(self, answer: Answer, incarnation: int) -> None:
        if incarnation != self.region.incarnation:
            return  # an earlier answer of the same message has caused a restart
        if isinstance(answer, Done) and not answer.ended and answer.marker in self._epochs:
            self.trace.note(answer.worker, self._epochs[answer.marker])
        if isinstance(answer, StateSeen | RowsSeen | ArmsSeen):
            self.looks.seen(answer)
            return
        if isinstance(answer, Compared):
            self._tell(answer)
            return
        if isinstance(answer, Installed):
            self.looks.arrived(answer.marker, answer.worker)
        event = events.Answered(answer)
        self._tell(event)
        self.queue.take(event)

    # ---- instructions

    def _carry_out(self, instruction: events.Instruction) -> Iterable[events.Event]:
        """Carry out an instruction; returns the resulting events for the event queue."""
        match instruction:
            case events.Journal() | events.KeepCheckpoint() | events.Recover() if self._is_ending:
                pass  # a failure before it ends the run
            case events.Tell():
                self._direct(instruction.worker, instruction.control)
            case events.Admit():
                self._admit(instruction)
            case events.RefuseHost():
                self._refuse(instruction)
            case events.StartHosts() | events.ReleaseHosts() | events.ChangeTopology() | events.TopologyChanged():
                self._change_topology(instruction)
            case events.ShapeDecided():
                self._earlier, self.region = self.region, self.topology.reshaped(self.region)
                self.shapes = [*self.shapes, (instruction.change, self.region.graph)]
                self._committer.add(self.region.sinks)
            case events.ShapeUndone():
                self.region = replace(self._earlier, options=self.region.options)
                self.shapes = [*self.shapes, (instruction.change, self.region.graph)]
            case events.Journal():
                self._committer.decide(instruction.decided)
                return [events.Journaled(instruction.decided.change, self._environment.now_ns())]
            case events.CommitFiles():
                failed = self._committer.commit(instruction.epoch, instruction.files)
                self._failing = self._failing or bool(failed)
                return failed
            case events.KeepCheckpoint():
                return self._environment.apart(partial(self._keep, instruction.record))
            case events.CheckpointEnded() | events.RequeueEnded() | events.CommitsHeld() | events.OperatorPaused():
                self._tell(instruction)
            case events.Recover():
                self._recover(instruction)
            case events.Resolved() | events.GuardFired() | events.GuardEnded() | events.RescaleEnded():
                self._report(instruction)
            case events.DismissHosts():
                self.dismiss(instruction.reason, keeps=True)
            case events.RunEnded():
                self._end(instruction)
        return ()

    @property
    def _is_ending(self) -> bool:
        """Whether it has failed, or is over."""
        return bool(self._failing) or self.over is not None

    def _report(
        self, instruction: events.Resolved | events.GuardFired | events.GuardEnded | events.RescaleEnded
    ) -> None:
        """Tell what has ended, with its error in one line."""
        match instruction:
            case events.Resolved():
                error, details = in_one_line(instruction.outcome.error, instruction.outcome.details)
                self._tell(replace(instruction.outcome, error=error, details=details))
            case events.GuardFired():
                self._tell(replace(instruction, error=in_one_line(instruction.error, "")[0]))
            case events.GuardEnded():
                error, details = in_one_line(instruction.error, instruction.details)
                self._tell(replace(instruction, error=error, details=details))
            case events.RescaleEnded():
                self._tell(replace(instruction, error=in_one_line(instruction.error, "")[0]))

    def _change_topology(
        self, order: events.StartHosts | events.ReleaseHosts | events.ChangeTopology | events.TopologyChanged
    ) -> None:
        self.topology.carry_out(order, self.region)
        if isinstance(order, events.TopologyChanged):
            self.looks.again()

    def _constrain(self, constraints: tuple[LatencyConstraint, ...]) -> None:
        self.region = replace(self.region, options=replace(self.region.options, constraints=constraints))
        for peer in self._peers.values():
            self._environment.send(peer, Constrain(constraints))

    def _direct(self, worker: WorkerId, control: Control) -> None:
        if isinstance(control, Fcm):
            marker = control.marker
            if isinstance(marker.action, Commit) and marker.action.checkpoint:
                self._epochs = {marker.id: marker.action.epoch}  # one commit at a time
            if isinstance(move := marker.action, Move):
                self.looks.moves(marker.id, {WorkerId(move.operator, after) for _, after in move.bins.values()})
        peer = self._peers[self.topology.host_of(worker)]
        if isinstance(control, Prepare) and len(control.payload) > CHUNK:
            self._payloads.prepare(peer, worker, control)
            return
        if isinstance(control, Cancel):
            self.looks.arrived(control.marker)
        if isinstance(control, Abort):
            self._payloads.abort(peer, worker, control.change)
        self._environment.send(peer, ToWorker(worker, control))

    def _admit(self, instruction: events.Admit) -> None:
        for peer in self._peers.values():
            self._environment.send(peer, Welcome(instruction.peers))
        if self._restart_since_ns is not None:
            self._restart_since_ns = None
            self._tell(HostsRestarted())
        self.looks.again()

    def _refuse(self, instruction: events.RefuseHost) -> None:
        self._environment.send(self._hello, Refused(instruction.reason))
        if self._peers.get(instruction.host) == self._hello:  # it was dismissed before it came
            del self._peers[instruction.host], self.hosts[instruction.host]

    def _keep(self, record: Checkpoint) -> list[events.Event]:
        kept = self._committer.keep(record)
        if kept == [events.CheckpointKept(record.epoch)]:
            self.trace.forget(record.epoch)
            self._is_untidy = True
        return kept

    def _recover(self, order: events.Recover) -> None:
        self._tell(order)
        self._committer.begin(order.incarnation)
        self._environment.begin(order.incarnation)
        self.dismiss("the run starts again")
        self.looks.lost()
        self._peers.clear()
        self._gone.clear()
        self._payloads.clear()
        self.hosts.clear()
        self._epochs.clear()
        self.region = self.topology.restarted(self.region, order)
        checkpoint = order.restoration.checkpoint
        self.trace.cut(checkpoint.epoch if checkpoint is not None else 0, self.region.redistribution.had_ended)
        self.region = replace(self.region, earlier=self.trace.earlier())
        self._stage.restart(self.region)
        self._restart_since_ns = self._environment.now_ns()

    def dismiss(self, reason: str, keeps: bool = False) -> None:
        """Let all hosts end; they leave copies of small states behind, if these are to be kept."""
        for host, peer in self._peers.items():
            if host not in self._gone:
                self._environment.send(peer, Leave(reason, keeps=keeps))
