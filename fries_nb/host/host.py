"""A host: one Spark barrier task that runs its share of a region's workers.

The task's own thread polls the links: control messages first, then frames, which it only forwards. Loops run the
workers (see ``host_loop``), and a thread prepares and rehearses changes, so that loading a model delays neither tuples
nor control. The host sends ``Hello``, starts its workers on ``Welcome`` (or on ``Go``, if it joins a running dataflow),
and ends on ``Leave``, or when its connection to the driver has ended. It never raises, since Spark would retry the
failed task; errors are part of its report.
"""

from __future__ import annotations

import gc
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Mapping

from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.dataflow.traits import Execution
from fries_nb.errors import FriesError
from fries_nb.host.constraint_watch import ConstraintWatch
from fries_nb.host.frame_router import FrameRouter
from fries_nb.host.host_chains import HostChains
from fries_nb.host.host_loop import HostLoop
from fries_nb.host.host_progress import ProgressLink
from fries_nb.host.host_telemetry import HostTelemetry, Printer
from fries_nb.host.host_topology import HostTopology
from fries_nb.host.host_workers import build_workers
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.host.region_spec import HostReport, RegionSpec
from fries_nb.operators.dry_run import DryRun
from fries_nb.progress.exchange import ProgressFrame, ProgressState
from fries_nb.protocol.messages import (
    AdoptTopology,
    Answer,
    Chained,
    Control,
    Failed,
    Fcm,
    MovedBins,
    Prepare,
    Rehearse,
    SetChain,
    WorkerId,
)  # fmt: skip
from fries_nb.storage.snapshot_files import Saver
from fries_nb.transport.envelopes import (
    Chunk,
    Constrain,
    ControllerMessage,
    Extend,
    Go,
    Goodbye,
    Hello,
    HostsLeft,
    Judged,
    Leave,
    Pointstamps,
    Records,
    Refused,
    Said,
    Shipped,
    TakePart,
    Took,
    ToWorker,
    Welcome,
    pack,
)  # fmt: skip
from fries_nb.transport.links import HostLinks
from fries_nb.transport.payloads import PayloadReceiver
from fries_nb.transport.sockets import make_room
from fries_nb.transport.wire import LatencyNotice, Notice
from fries_nb.worker.events import (
    Counted,
    Directed,
    Expected,
    Grant,
    Instruction,
    Save,
    Ship,
    TellController,
    TellMeasured,
    Traced,
    Warned,
)
from fries_nb.worker.outbox import SendFrame
from fries_nb.worker.rehearsal import Rehearsals
from fries_nb.worker.turns import HANDOFF_NS

TICK_S = 0.25
"""Seconds between two reports of each worker, and maximum duration of one poll of the links."""
REPORTING = 64
"""Number of workers of a host that report every ``TICK_S``; more of them report less often."""
WATCHED_S = 1.0
"""Seconds after a busy loop was seen for which the loops are looked at every ``HANDOFF_NS``."""
GRACE_S = 5.0
"""Seconds that all threads together have to end."""
LINGER_MS = 2_000
"""Maximum time for sending final messages, in milliseconds."""


class Host:
    """The workers, threads and links of one barrier task.

    Args:
        region: the specification of the region.
        host: index of the host.
        interface: name or address of this machine at which other hosts reach it.
        printer: collects the output of user functions.
    """

    def __init__(self, region: RegionSpec, host: int, interface: str, printer: Printer) -> None:
        self._region = region
        self._host = host
        self._hosted: dict[WorkerId, HostedWorker] = {}
        self._loops: tuple[HostLoop, ...] = ()
        self._loop_of: dict[WorkerId, tuple[HostLoop, HostedWorker]] = {}
        self._peers: dict[int, str] = {}
        self._watched_until = 0.0
        self._tick_s = TICK_S
        self._trials: queue.SimpleQueue[DryRun | tuple[WorkerId, Rehearse] | None] = queue.SimpleQueue()
        self._rehearsals = Rehearsals(time.monotonic_ns)
        self._preparer = threading.Thread(target=self._prepare, name="fries-prepare", daemon=True)
        self._saver = Saver(region.snapshots, region.incarnation, self._tell)
        self._reason = ""
        self._leaving: tuple[int, ...] = ()
        self._error = ""
        self._started = False
        self._payloads = PayloadReceiver()
        hosts, silence_s = region.options.hosts, region.options.silence_s
        make_room(hosts)
        self._links = HostLinks(region.keys, host, region.controller, interface, silence_s=silence_s, peers=hosts)
        self._telemetry = HostTelemetry(printer, self._links.say)
        self._router = FrameRouter(self._links, region.topology.placement, self._loop_of)
        self._watch = ConstraintWatch(region, host, self._router.post, self._notify, self._judged, self._request_chain)

    def run(self) -> HostReport:
        """Join the run, serve until the end, and send the final messages."""
        stuck: tuple[str, ...] = ()
        try:
            built = build_workers(self._region, self._host, self._carry_out)
            self._hosted = built.workers
            graph = built.topology.graph
            self._progress = ProgressLink(self._region, graph, self._host, self._notify, self._router.post)
            self._chains = HostChains(built.topology, self._hosted, self._loop_of, self._chained)
            self._topology = HostTopology(self._region, self._host, built, self._links, self._router)
            place = self._links.data_address, os.getpid(), socket.gethostname()
            self._links.say(Hello(*place, self._region.incarnation))
            self._serve(built.failures)
        except FriesError as error:
            self._reason, self._error = "failed", str(error)
        finally:
            stuck = self._end_threads()
            if self._started and self._leaving:
                self._progress.leave(self._leaving)
            self._telemetry.end(TICK_S)
            self._links.say(Goodbye(self._error or self._reason))
            self._links.close(LINGER_MS, frames=bool(self._leaving))
        processed = {
            str(instance.worker): instance.processed
            for hosted in self._hosted.values()
            for instance in hosted.worker.instances
        }
        return HostReport(self._host, os.getpid(), self._reason, self._error, stuck, processed)

    # ---- serving

    def _serve(self, failures: list[Failed]) -> None:
        ticked = time.monotonic()
        while not self._reason:
            is_urgent = self._chains.is_waiting or time.monotonic() < self._watched_until
            received = self._links.poll(int(1000 * (HANDOFF_NS / 1e9 if is_urgent else TICK_S)))
            now = time.monotonic()
            for message in received.control:
                self._hear(message, failures)
            for arrival in received.data:
                if isinstance(arrival.frame, LatencyNotice):
                    self._watch.receive(arrival.frame)
                elif isinstance(arrival.frame, ProgressFrame | ProgressState):
                    self._progress.receive(arrival.frame)
                elif isinstance(arrival.frame, MovedBins):
                    self._router.ship(arrival.frame)
                else:
                    self._router.receive(arrival.channels, arrival.frame)
            self._look_after(now)
            self._watch.step(now)
            self._chains.advance()
            if now - ticked >= self._tick_s:
                self._telemetry.tell(now - ticked)
                ticked = now
                self._tick()
                self._progress.check()
                if not self._reason:  # a dismissed host does not need the driver's connection
                    self._links.check()

    def _look_after(self, now: float) -> None:
        """Look after the loops, often while they are busy: none is to wait for a slow tuple of one worker."""
        if any(loop.is_busy for loop in self._loops):
            self._watched_until = now + WATCHED_S
            for loop in self._loops:
                loop.check()

    def _hear(self, message: ControllerMessage, failures: list[Failed]) -> None:
        if isinstance(message, ToWorker):
            self._direct(message.worker, message.control)
        elif isinstance(message, Chunk):
            self._payloads.take(message)
            self._links.say(Took())
        elif isinstance(message, Shipped):
            for worker, order in self._payloads.complete(message):
                self._direct(worker, order)
        elif isinstance(message, Welcome):
            self._links.join(self._region.incarnation, message.peers, tuple(self._region.topology.channels()))
            if failures:
                self._links.say(Said(tuple(failures)))
            else:
                self._deal(message.peers)
                self._start()
        elif isinstance(message, Extend):
            self._topology.extend(message)
            self._chains.topology = self._topology.current
            self._progress.admit(message.peers)
        elif isinstance(message, TakePart):
            self._links.say(Said(self._topology.take_part(message, self._carry_out)))
            self._chains.topology = self._topology.current
            self._deal(message.extend.peers)
            self._progress.join(message.extend.peers, self._topology.current)
        elif isinstance(message, Go):
            self._go()
        elif isinstance(message, HostsLeft):
            self._links.part(message.hosts)
            self._progress.part(message.hosts)
        elif isinstance(message, Constrain):
            self._watch.constrain(message.constraints)
            self._limit_deadlines()
        elif isinstance(message, (Leave, Refused)):
            self._reason = message.reason or "dismissed"
            self._leaving = message.leaving if isinstance(message, Leave) else ()
            self._telemetry.tell_lines(TICK_S)  # before blocked threads can delay the end beyond the driver's timeout

    def _direct(self, worker: WorkerId, control: Control) -> None:
        """Deliver a control message; a ``Prepare`` is processed even while its worker is busy with a slow tuple."""
        if not self._started:
            return  # a worker could not be made, and the run is about to fail
        if isinstance(control, Rehearse):
            self._trials.put((worker, control))
            return
        if isinstance(control, SetChain):
            self._chains.request(worker, control)
            return
        loop, hosted = self._loop_of[worker]
        if isinstance(control, AdoptTopology):
            loop.post(hosted, self._topology.rewired(hosted, worker, control))
            return
        trial = hosted.worker.preparation.trial(worker, control) if isinstance(control, Prepare) else None
        if isinstance(control, Fcm):
            loop.switch(hosted, Directed(worker, control))
        elif isinstance(control, Prepare) and trial is not None:
            loop.post(hosted, Expected(worker, control))
            self._trials.put(trial)
        else:
            loop.post(hosted, Directed(worker, control), urgent=isinstance(control, Prepare))

    def _deal(self, peers: Mapping[int, str]) -> None:
        """Deal the workers to three loops: those that read, those that write, and all others.

        Reading and writing files take long now and then, and release the interpreter lock meanwhile. Events can be
        posted to the workers from now on.

        Args:
            peers: index of each host to its data address.
        """
        here = peers.get(self._host, "").rpartition(":")[0]
        on_this_machine = sum(address.rpartition(":")[0] == here for address in peers.values())
        tickets = max(1, (os.cpu_count() or 1) // max(1, on_this_machine))
        hosted = dict.fromkeys(self._hosted.values())
        apart = {Execution.READ: "fries-read", Execution.WRITE: "fries-write"}
        names = {one: apart.get(one.execution, "fries-loop") for one in hosted}
        self._loops = tuple(
            HostLoop(name, [one for one in hosted if names[one] == name], tickets) for name in {*names.values()}
        )
        loops = {one: loop for loop in self._loops for one in loop.workers}
        self._loop_of.update((worker, (loops[one], one)) for worker, one in self._hosted.items())
        self._tick_s = TICK_S * max(1, len(hosted) // REPORTING)
        self._peers = dict(peers)

    def _start(self) -> None:
        """Start the workers. Objects that exist by now are exempted from garbage collection."""
        hosted = dict.fromkeys(self._hosted.values())
        self._started = True
        self._progress.begin(hosted)
        gc.freeze()
        self._preparer.start()
        self._saver.start()
        for loop in self._loops:
            loop.start()
        self._watch.begin([one.worker.wiring.workers for one in hosted], self._peers)
        self._limit_deadlines()

    def _go(self) -> None:
        """All workers have adopted a topology: start those of a new host, and measure in this topology."""
        self._progress.settle()
        self._watch.rewire(self._topology.current)
        if self._loops and not self._started:
            self._start()

    def _limit_deadlines(self) -> None:
        for loop in self._loops:
            loop.limit_deadline(self._watch.deadline_ns)

    def _tick(self) -> None:
        for loop in self._loops:
            for hosted in loop.workers:
                loop.report(hosted)
        if not self._host and (counts := self._progress.counts()) is not None:
            self._links.say(Pointstamps(counts))

    # ---- instructions, carried out in the workers' threads

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, SendFrame):
            self._router.send(instruction)
        elif isinstance(instruction, Grant):
            self._router.grant(instruction.sizes)
        elif isinstance(instruction, Ship):
            self._router.ship(instruction.bins)
        elif isinstance(instruction, Counted):
            self._progress.record(instruction.changes)
        elif isinstance(instruction, Warned):
            sys.stdout.write(f"{instruction.text}\n")  # as the output of the operator in whose thread this is
        elif isinstance(instruction, TellController):
            self._tell(instruction.answer)
        elif isinstance(instruction, TellMeasured):
            self._watch.measured(instruction.measured)
        elif isinstance(instruction, DryRun):
            self._trials.put(instruction)
        elif isinstance(instruction, Save):
            self._saver.save(instruction.epoch, instruction.snapshots)
        elif isinstance(instruction, Traced):
            record = instruction.records[0]
            records = tuple(map(pack, instruction.records))
            self._links.say(Records(WorkerId(record.operator, record.worker), records))

    def _tell(self, answer: Answer) -> None:
        self._links.say(Said((answer,)))

    def _request_chain(self, worker: WorkerId, operators: tuple[str, ...]) -> None:
        self._chains.request(worker, SetChain(operators))

    def _chained(self, answer: Chained) -> None:
        self._tell(answer)
        self._watch.rechain([one.worker.wiring.workers for one in dict.fromkeys(self._hosted.values())])

    def _judged(self, verdicts: tuple[ConstraintVerdict, ...]) -> None:
        self._links.say(Judged(verdicts))

    def _notify(self, host: int, notice: Notice) -> None:
        self._links.post(host, notice, ())

    def _prepare(self) -> None:
        """Dry-run new functions. The answer is sent without waiting for the worker's next tuple."""
        while (order := self._trials.get()) is not None:
            if isinstance(order, DryRun):
                result = self._rehearsals.prepare(order)
                self._router.post(order.worker, result)
                self._tell(result.answer)
                del result  # releases the function before the wait for the next change
            else:
                with self._chains.kept:
                    workers = [hosted.worker for hosted in dict.fromkeys(self._hosted.values())]
                    self._tell(self._rehearsals.rehearse(*order, workers))
            del order

    # ---- end

    def _end_threads(self) -> tuple[str, ...]:
        """End all threads; returns the names of those that are still blocked in a user function."""
        if not self._started:
            return ()
        self._trials.put(None)
        self._saver.leave()
        for loop in self._loops:
            loop.leave()
        deadline = time.monotonic() + GRACE_S
        stuck = [name for loop in self._loops for name in loop.join(deadline)]
        for thread in (self._preparer, self._saver):
            thread.join(max(0.0, deadline - time.monotonic()))
            stuck += [thread.name] if thread.is_alive() else []
        return tuple(sorted(stuck))
