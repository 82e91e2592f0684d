"""The shell of the controller on Spark: a background thread that polls the control server and runs the controller.

Other threads only ``post`` events. Events are processed one at a time (see ``EventQueue``): the controller is not
re-entered while its instructions are carried out. They are carried out in order, so a decision is on disk before its
first FCM is sent.

When a host is lost the controller issues ``Recover``: all hosts are dismissed, the trace is truncated to the
checkpoint, and another Spark job is submitted, whose hosts belong to the next incarnation. Messages of older
incarnations are ignored.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from fries_nb.controller import events as said
from fries_nb.controller.controller import Controller, EventQueue
from fries_nb.controller.event_log import Noted
from fries_nb.controller.states import RunState
from fries_nb.dataflow.constraints import LatencyConstraint
from fries_nb.driver.committer import Committer
from fries_nb.driver.driver_topology import DriverTopology, GrowingJob
from fries_nb.driver.tracing import Trace
from fries_nb.errors import CheckpointError, SessionError, exception_text, in_one_line
from fries_nb.host.region_spec import RegionSpec
from fries_nb.protocol.checkpoints import Checkpoint
from fries_nb.protocol.messages import Abort, Answer, Commit, Control, Done, Fcm, Prepare, WorkerId
from fries_nb.storage.checkpoint_store import CheckpointStore
from fries_nb.transport.control import ControlServer, Gone, Heard
from fries_nb.transport.envelopes import (
    Configured,
    Constrain,
    Goodbye,
    Hello,
    Judged,
    Leave,
    Line,
    Packed,
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
from fries_nb.transport.payloads import CHUNK, PayloadSender


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
    said.Outcome | said.GuardFired | said.GuardEnded | said.RescaleEnded | said.CheckpointEnded | said.CommitsHeld
    | said.Recover | HostsRestarted | said.OperatorPaused | said.Answered | Printed | Used | Judged | Pointstamps
    | said.RunEnded | Closed
)  # fmt: skip
"""What a driver tells its run. ``RunEnded`` is told as soon as the outcome of the region is known, while its hosts are
being dismissed; and again, as ``failed``, if their final messages cannot be processed."""


POLL_MS = 50
"""Maximum duration of one poll of the control server in milliseconds."""
PROBE_S = 0.25
"""Seconds between two probes of the hosts' connections."""
FAREWELL_S = 10.0
"""Seconds that dismissed hosts have to send their final messages before their tasks are cancelled."""
RELEASE_S = 4.0
"""Seconds that the tasks of hosts have to end before and after they are cancelled."""
LOST = "its connection has ended: its process is gone, or its machine did not answer for {:g} s"
RESTART_S = 60.0
"""Seconds within which Spark must restart hosts; after that they count as lost, and another attempt is made."""


class HostJob(GrowingJob, Protocol):
    """The Spark job of the hosts; see ``stage``."""

    def restart(self, region: RegionSpec) -> None:
        """Cancel the remaining hosts and submit new ones."""

    def is_running(self) -> bool:
        """Whether Spark runs the tasks of the current hosts."""

    def release(self, grace_s: float) -> None:
        """Wait for the tasks to end for ``grace_s`` seconds, then cancel them."""


class Tidy:
    """An event of the driver itself: delete old checkpoints, after the events queued so far."""


@dataclass(frozen=True)
class ConstraintsChanged:
    """An event of the driver itself: the dataflow has these latency constraints from now on, on any of its paths."""

    constraints: tuple[LatencyConstraint, ...]


class Driver(threading.Thread):
    """Runs a controller until its run has ended and its hosts are gone.

    Args:
        controller: the controller, called from this thread only.
        server: the control server, which this thread polls and closes.
        region: the specification of the region.
        place: the store of decisions and checkpoints.
        tell: receives what the driver tells its run; called in the driver's thread.
        stage: restarts hosts, and finally waits for their end.

    Attributes:
        hosts: the hello of each admitted host.
        region: the specification of the region, as it is now.
    """

    def __init__(
        self,
        controller: Controller,
        server: ControlServer,
        region: RegionSpec,
        place: CheckpointStore,
        tell: Callable[[Told], None],
        stage: HostJob,
    ) -> None:
        super().__init__(name="fries-driver", daemon=True)
        self.controller = controller
        self.hosts: dict[int, Hello] = {}
        self._server = server
        self.region = region
        self._place = place
        self._tell = tell
        self._stage = stage
        self._trace = Trace()
        self._epochs: dict[int, int] = {}  # marker of the last checkpoint to its epoch
        self._restart_since: float | None = None  # time at which the restart of hosts began, until they have joined
        self._events: deque[said.Event | Tidy | ConstraintsChanged] = deque()
        self._queue = EventQueue(controller.handle, time.monotonic_ns, self._carry_out)
        self._failing = False  # a commit of output has failed, so no further decision is written
        self._peers: dict[int, bytes] = {}
        self._topology = DriverTopology(region, stage, server.send, self._peers, self.hosts, self._trace)
        self._gone: set[int] = set()
        self._over: said.RunEnded | None = None
        self._hello: bytes = b""
        self._payloads = PayloadSender(server.send)
        self._probed = 0.0
        self._committer = Committer(place, region.sinks, lambda words: tell(Printed((Line("", words),))))
        self._closing = threading.Lock()
        self._closed = False

    def post(self, event: said.Event | ConstraintsChanged) -> None:
        """Queue an event; thread-safe. Events after the driver has closed are discarded."""
        with self._closing:
            if not self._closed:
                self._events.append(event)
                self._server.wake()

    @property
    def records(self) -> Iterable[Packed]:
        """The trace so far, packed; without operations that a recovery has undone."""
        return self._trace.records()

    @property
    def noted(self) -> tuple[Noted, ...]:
        """The last events and instructions of the controller, in words."""
        return self._queue.log.noted()

    @property
    def workers(self) -> dict[str, int]:
        """Operator to the number of its workers in the trace."""
        return self._topology.traced

    @property
    def has_finished(self) -> bool:
        """Whether all workers have ended, so that the trace is complete."""
        return self.controller.state is RunState.FINISHED

    def run(self) -> None:
        """The thread's body: processes events until the region has ended."""
        try:
            while self._over is None:
                self._poll_once()
            self._await_goodbyes()
        except (CheckpointError, SessionError) as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - an internal error must fail the run, not leave it hanging
            details = "".join(traceback.format_exception(error))
            self._fail(f"the controller failed: {exception_text(error)}", details)
        finally:
            self._dismiss("the driver ends")
            with self._closing:
                self._closed = True
            with contextlib.ExitStack() as ending:  # whatever fails, the run is told in the end
                ending.callback(self._tell, Closed())
                ending.callback(self._committer.end)
                ending.callback(self._stage.release, RELEASE_S)
                self._server.close(linger_ms=500)

    def _fail(self, error: str, details: str = "") -> None:
        """End the run for a failure of the driver; the controller says how far each open change is, if it still can."""
        with contextlib.suppress(Exception):  # it may be what has failed, and that is told
            for instruction in self.controller.handle(said.HostsUnfit(error, details), time.monotonic_ns()):
                match instruction:
                    case said.Resolved() | said.GuardFired() | said.GuardEnded() | said.RescaleEnded():
                        self._report(instruction)
        self._end(said.RunEnded("failed", error, details))

    def _end(self, over: said.RunEnded) -> None:
        if self._committer.failure and not over.error:
            over = said.RunEnded("failed", self._committer.failure)
        self._over = over
        error, details = in_one_line(over.error, over.details)
        self._tell(replace(over, error=error, details=details))

    def _poll_once(self) -> None:
        """Poll the control server once, and process all events."""
        for heard in self._server.poll(POLL_MS):
            self._hear(heard)
        self._check_restart()
        self._probe()
        self._queue.take(said.Tick())
        while self._events:
            match self._events.popleft():
                case Tidy():
                    self._committer.tidy()
                case ConstraintsChanged() as changed:
                    self._constrain(changed.constraints)
                case event:
                    self._queue.take(event)

    def _check_restart(self) -> None:
        """Report a loss if Spark has not restarted the hosts in time; their own start-up is not limited."""
        now = time.monotonic()
        if self._restart_since is None or now - self._restart_since <= RESTART_S:
            return
        self._restart_since = now
        if not self._stage.is_running():
            host = min(set(range(self.region.options.hosts)).difference(self._peers), default=0)
            late = f"Spark has not started it again within {RESTART_S:g} s; likely too few slots are free"
            self._queue.take(said.HostLost(host, late, self._server.incarnation))

    def _probe(self) -> None:
        """Send each host a probe at intervals; ZeroMQ rejects it if the connection has ended."""
        now = time.monotonic()
        if now - self._probed >= PROBE_S:
            self._probed = now
            for peer in self._peers.values():
                self._server.send(peer, Probe())

    def _await_goodbyes(self) -> None:
        """Receive the final messages of the hosts, which include their traces."""
        deadline = time.monotonic() + FAREWELL_S
        while self._gone < set(self._peers) and time.monotonic() < deadline:
            self._probe()
            for heard in self._server.poll(POLL_MS):
                if heard.peer == self._peers.get(heard.host):
                    self._hear(heard)
                else:
                    self._server.send(heard.peer, Refused("the run is over"))

    # ---- messages of hosts

    def _hear(self, heard: Heard) -> None:
        message, host = heard.message, heard.host
        if isinstance(message, Hello):
            self._hello = heard.peer
            if message.incarnation == self._server.incarnation:
                self._peers.setdefault(host, heard.peer)
                self.hosts.setdefault(host, message)
            self._queue.take(said.HostJoined(host, message.data_address, message.incarnation))
        elif heard.peer != self._peers.get(host):
            return  # a refused host, or one of an older incarnation
        elif isinstance(message, Said):
            for answer in message.answers:
                self._answered(answer, heard.incarnation)
        elif isinstance(message, Records):
            self._trace.add(message.worker, message.records)
        elif isinstance(message, Took):
            self._payloads.took(heard.peer)
        elif isinstance(message, Configured):
            self._topology.configured(message)
        elif isinstance(message, Printed | Judged | Pointstamps):
            self._tell(message)
        elif isinstance(message, ProcessUsage):
            self._tell(Used(host, message))
        elif isinstance(message, Goodbye):
            self._gone.add(host)
            self._queue.take(said.HostLost(host, message.reason) if message.reason else said.HostLeft(host))
        elif isinstance(message, Gone):
            self._gone.add(host)
            self._queue.take(said.HostLost(host, LOST.format(self.region.options.silence_s)))

    def _answered(self, answer: Answer, incarnation: int) -> None:
        if incarnation != self._server.incarnation:
            return  # an earlier answer of the same message has caused a restart
        if isinstance(answer, Done) and not answer.ended and answer.marker in self._epochs:
            self._trace.note(answer.worker, self._epochs[answer.marker])
        event = said.Answered(answer)
        self._tell(event)
        self._queue.take(event)

    # ---- instructions

    def _carry_out(self, instruction: said.Instruction) -> Iterable[said.Event]:
        """Carry out an instruction; returns the resulting events for the event queue."""
        match instruction:
            case said.Journal() | said.KeepCheckpoint() | said.Recover() if self._failing or self._over is not None:
                pass  # a failure before it ends the run
            case said.Tell():
                self._direct(instruction.worker, instruction.control)
            case said.Admit():
                self._admit(instruction)
            case said.RefuseHost():
                self._refuse(instruction)
            case said.StartHosts() | said.ReleaseHosts() | said.ChangeTopology() | said.TopologyChanged():
                self._topology.carry_out(instruction, self.region)
            case said.Journal():
                self._place.decide(instruction.decided)
                return [said.Journaled(instruction.decided.change, time.monotonic_ns())]
            case said.CommitFiles():
                failed = self._committer.commit(instruction.epoch, instruction.files)
                self._failing = self._failing or bool(failed)
                return failed
            case said.KeepCheckpoint():
                return self._keep(instruction.record)
            case said.CheckpointEnded() | said.CommitsHeld() | said.OperatorPaused():
                self._tell(instruction)
            case said.Recover():
                self._recover(instruction)
            case said.Resolved() | said.GuardFired() | said.GuardEnded() | said.RescaleEnded():
                self._report(instruction)
            case said.DismissHosts():
                self._dismiss(instruction.reason)
            case said.RunEnded():
                self._end(instruction)
        return ()

    def _report(self, instruction: said.Resolved | said.GuardFired | said.GuardEnded | said.RescaleEnded) -> None:
        """Tell what has ended, with its error in one line."""
        match instruction:
            case said.Resolved():
                error, details = in_one_line(instruction.outcome.error, instruction.outcome.details)
                self._tell(replace(instruction.outcome, error=error, details=details))
            case said.GuardFired():
                self._tell(replace(instruction, error=in_one_line(instruction.error, "")[0]))
            case said.GuardEnded():
                error, details = in_one_line(instruction.error, instruction.details)
                self._tell(replace(instruction, error=error, details=details))
            case said.RescaleEnded():
                self._tell(replace(instruction, error=in_one_line(instruction.error, "")[0]))

    def _constrain(self, constraints: tuple[LatencyConstraint, ...]) -> None:
        self.region = replace(self.region, options=replace(self.region.options, constraints=constraints))
        for peer in self._peers.values():
            self._server.send(peer, Constrain(self.region.constraints))

    def _direct(self, worker: WorkerId, control: Control) -> None:
        if isinstance(control, Fcm):
            marker = control.marker
            if isinstance(marker.action, Commit) and marker.action.checkpoint:
                self._epochs = {marker.id: marker.action.epoch}  # one commit at a time
        peer = self._peers[self._topology.host_of(worker)]
        if isinstance(control, Prepare) and len(control.payload) > CHUNK:
            self._payloads.prepare(peer, worker, control)
            return
        if isinstance(control, Abort):
            self._payloads.abort(peer, worker, control.change)
        self._server.send(peer, ToWorker(worker, control))

    def _admit(self, instruction: said.Admit) -> None:
        for peer in self._peers.values():
            self._server.send(peer, Welcome(instruction.peers))
        if self._restart_since is not None:
            self._restart_since = None
            self._tell(HostsRestarted())

    def _refuse(self, instruction: said.RefuseHost) -> None:
        self._server.send(self._hello, Refused(instruction.reason))
        if self._peers.get(instruction.host) == self._hello:  # it was dismissed before it came
            del self._peers[instruction.host], self.hosts[instruction.host]

    def _keep(self, record: Checkpoint) -> list[said.Event]:
        events = self._committer.keep(record)
        if events == [said.CheckpointKept(record.epoch)]:
            self._trace.forget(record.epoch)
            self._events.append(Tidy())
        return events

    def _recover(self, order: said.Recover) -> None:
        self._tell(order)
        self._committer.begin(order.incarnation)
        self._server.incarnation = order.incarnation
        self._dismiss("the run starts again")
        self._peers.clear()
        self._gone.clear()
        self._payloads.clear()
        self.hosts.clear()
        self._epochs.clear()
        self.region = self._topology.restarted(self.region, order)
        checkpoint = order.restoration.checkpoint
        self._trace.cut(checkpoint.epoch if checkpoint is not None else 0, self.region.redistribution.had_ended)
        self.region = replace(self.region, earlier=self._trace.earlier())
        self._stage.restart(self.region)
        self._restart_since = time.monotonic()

    # ---- end

    def _dismiss(self, reason: str) -> None:
        for host, peer in self._peers.items():
            if host not in self._gone:
                self._server.send(peer, Leave(reason))
