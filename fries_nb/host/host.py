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
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial

from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.errors import FriesError
from fries_nb.host.constraint_watch import ConstraintWatch
from fries_nb.host.environment import Threads, run
from fries_nb.host.host_core import HostCore
from fries_nb.host.host_progress import ProgressLink, first_view
from fries_nb.host.host_telemetry import HostTelemetry, Printer
from fries_nb.host.host_topology import HostTopology
from fries_nb.host.host_workers import HostWorkers, added_maker, build_workers, idle_maker, make_added
from fries_nb.host.memory_watch import MemoryWatch, low_words
from fries_nb.host.region_spec import Additions, HostReport, RegionSpec
from fries_nb.progress.exchange import ProgressFrame, ProgressState
from fries_nb.protocol.messages import (
    UNASKED,
    Answer,
    Chained,
    Control,
    Failed,
    LookAtArms,
    LookAtRows,
    LookAtState,
    MovedBins,
    SetChain,
    WorkerId,
)  # fmt: skip
from fries_nb.protocol.progress_locations import audience
from fries_nb.protocol.topology import Topology
from fries_nb.storage.saver import Saver, SnapshotWriter
from fries_nb.transport.envelopes import (
    AddWorkers,
    Begin,
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
    PayloadReceiver,
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
from fries_nb.transport.sockets import make_room
from fries_nb.transport.wire import LatencyNotice, Notice
from fries_nb.worker.events import (
    Counted,
    Instruction,
    Park,
    Save,
    StatesLost,
    TellController,
    TellMeasured,
    Traced,
    Warned,
)
from fries_nb.worker.looks import StateLook, arms_seen, rows_seen
from fries_nb.worker.turns import HANDOFF_NS

TICK_S = 0.25
"""Seconds between two reports of each worker, and maximum duration of one poll of the links."""
REPORTING = 64
"""Number of workers of a host that report every ``TICK_S``; more of them report less often."""
WATCHED_S = 1.0
"""Seconds after a busy loop was seen for which the loops are looked at every ``HANDOFF_NS``."""
GRACE_S = 5.0
"""Seconds that all threads together have to end."""
LAST_BYTES = 1 << 24
"""Maximum size of the states of all workers that are left behind when the run is over; larger ones are not."""
LAST_ROWS = 100
"""Number of rows of each worker and side that are left behind then."""
SELDOM = 10_000
"""Number of collections of younger objects between those of all, while the states of a checkpoint are read."""
LINGER_MS = 2_000
"""Maximum time for sending final messages without an answer, in milliseconds."""
LEAVE_MS = 10_000
"""Maximum time in which the driver is to answer the last one."""


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
        self._environment = Threads()
        self._peers: dict[int, str] = {}
        self._watched_until = 0.0
        self._tick_s = TICK_S
        self._writer = SnapshotWriter(region.snapshots, region.incarnation)
        self._saver = Saver(self._writer, self._tell, self._lost)
        self._reason = ""
        self._leaving: tuple[int, ...] = ()
        self._keeps = False
        self._error = ""
        self._payloads = PayloadReceiver()
        hosts, silence_s = region.options.hosts, region.options.silence_s
        make_room(hosts)
        self._links = HostLinks(region.keys, host, region.controller, interface, silence_s=silence_s, peers=hosts)
        self._telemetry = HostTelemetry(printer, self._links.say)
        self._memory = MemoryWatch()
        self._reads = False
        self._thresholds = gc.get_threshold()
        self._core = HostCore(self._environment, host, region.topology, self._links, self._carry_out, self._chained)
        post = self._core.router.post
        self._watch = ConstraintWatch(region, host, post, self._notify, self._judged, self._request_chain)

    def run(self) -> HostReport:
        """Join the run, serve until the end, and send the final messages."""
        stuck: tuple[str, ...] = ()
        try:
            built = build_workers(self._region, self._host, self._environment, self._core.carry_out)
            self._writer.stored.update(built.stored)
            self._core.admit(built.topology, built.workers)
            self._progress = self._linked(built.topology)
            add, make = partial(self._add_workers, built), partial(self._make_added, built)
            incarnation = self._region.incarnation
            self._topology = HostTopology(incarnation, built, self._links, self._core, self._progress, add, make)
            place = self._links.data_address, os.getpid(), socket.gethostname()
            self._links.say(Hello(*place, incarnation))
            self._serve(built.failures)
        except FriesError as error:
            self._reason, self._error = "failed", str(error)
        finally:
            stuck = self._end_threads()
            if self._core.is_started and self._leaving:
                self._progress.leave(self._leaving)
            if self._keeps and not stuck:  # a function that is still in a call may be changing a state
                self._leave_behind()
            self._telemetry.end(TICK_S)
            self._links.say(Goodbye(self._error or self._reason))
            self._links.take_leave(LEAVE_MS)
            self._links.close(LINGER_MS, frames=bool(self._leaving))
        processed = {
            str(instance.worker): instance.processed
            for hosted in self._core.workers
            for instance in hosted.worker.instances
        }
        return HostReport(self._host, os.getpid(), self._reason, self._error, stuck, processed)

    def _make_added(self, built: HostWorkers, topology: Topology, additions: Additions, added: Begin) -> HostWorkers:
        """Make the workers of operators that a change of the shape adds."""
        region = self._region = self._region.reshaped(topology.graph, additions)
        version = max((hosted.worker.version for hosted in self._core.workers), default=0)
        make = added_maker(region, topology, self._environment, self._core.carry_out, added, version)
        return make_added(built, self._host, topology, additions.functions, make)

    def _add_workers(self, built: HostWorkers, topology: Topology, order: AddWorkers) -> HostWorkers:
        """Make further workers of operators that run already."""
        ours = self._environment, self._core.carry_out
        make = idle_maker(self._region, self._host, topology, *ours, order)
        return make_added(built, self._host, topology, {}, make)

    def _linked(self, topology: Topology) -> ProgressLink:
        """The progress of this host, one of the first or one that joins them."""
        members, graph = range(self._region.options.hosts), topology.graph
        view = first_view(self._host, members, graph, self._region.progress)
        post = self._core.router.post
        link = ProgressLink(self._environment, view, members, audience(graph), self._notify, post)
        link.place(topology)
        return link

    # ---- serving

    def _serve(self, failures: list[Failed]) -> None:
        ticked = time.monotonic()
        while not self._reason:
            is_urgent = time.monotonic() < self._watched_until
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
                    self._core.router.ship(arrival.frame)
                else:
                    self._core.router.receive(arrival.channels, arrival.frame)
            self._watch.step(now)
            if self._core.is_busy:  # look after it often: none is to wait for a slow tuple of another worker
                self._watched_until = now + WATCHED_S
            self._core.look_after()
            run(self._core.chains.advance())
            if now - ticked >= self._tick_s:
                self._telemetry.tell(now - ticked)
                self._look_at_memory()
                self._freeze_states()
                ticked = now
                self._tick()
                self._progress.check()
                if not self._reason:  # a dismissed host does not need the driver's connection
                    self._links.check()

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
        elif isinstance(message, AddWorkers):
            self._topology.add_workers(message)
        elif isinstance(message, TakePart):
            self._topology.take_part(message)
            self._deal(message.extend.peers)
        elif isinstance(message, Go):
            self._go()
        elif isinstance(message, HostsLeft):
            self._topology.part(message.hosts)
        elif isinstance(message, Constrain):
            self._watch.constrain(message.constraints)
            self._limit_deadlines()
        elif isinstance(message, (Leave, Refused)):
            self._reason = message.reason or "dismissed"
            self._leaving = message.leaving if isinstance(message, Leave) else ()
            self._keeps = isinstance(message, Leave) and message.keeps and self._core.is_started
            self._telemetry.tell_lines(TICK_S)  # before blocked threads can delay the end beyond the driver's timeout

    def _direct(self, worker: WorkerId, control: Control) -> None:
        if self._core.is_started:  # otherwise a worker could not be made, and the run is about to fail
            run(self._core.direct(worker, control))

    def _deal(self, peers: Mapping[int, str]) -> None:
        """Deal the workers to loops; events can be posted to them from now on.

        Args:
            peers: index of each host to its data address.
        """
        here = peers.get(self._host, "").rpartition(":")[0]
        on_this_machine = sum(address.rpartition(":")[0] == here for address in peers.values())
        self._core.deal(max(1, (os.cpu_count() or 1) // max(1, on_this_machine)))
        self._tick_s = TICK_S * max(1, len(self._core.workers) // REPORTING)
        self._peers = dict(peers)

    def _start(self) -> None:
        """Start the workers. Objects that exist by now are exempted from garbage collection."""
        workers = self._core.workers
        self._progress.begin(count for hosted in workers for count in hosted.introduce())
        gc.freeze()
        self._reads = self._are_unread()
        if self._reads:  # or old objects would be looked at again and again while states come, and rows wait for that
            gc.set_threshold(*self._thresholds[:2], SELDOM)
        self._saver.start()
        self._core.start()
        self._watch.begin([hosted.worker.wiring.workers for hosted in workers], self._peers)
        self._limit_deadlines()

    def _go(self) -> None:
        """All workers have adopted a topology: start those of a new host, and measure in this topology."""
        self._topology.settle()
        self._watch.rewire(self._core.topology)
        if self._core.loops and not self._core.is_started:
            self._start()

    def _limit_deadlines(self) -> None:
        for loop in self._core.loops:
            loop.limit_deadline(self._watch.deadline_ns)

    def _freeze_states(self) -> None:
        """Exempt the states of a checkpoint from garbage collection, once all of them have been read."""
        if self._reads and not self._are_unread():
            self._reads = False
            gc.freeze()
            gc.set_threshold(*self._thresholds)

    def _are_unread(self) -> bool:
        return any(one.state.is_unread for hosted in self._core.workers for one in hosted.worker.instances)

    def _look_at_memory(self) -> None:
        """Say so, before it is too late, if there is little memory left."""
        if (memory := self._memory.look()) is not None:
            keys: Counter[str] = Counter()
            for hosted in self._core.workers:
                keys.update({one.worker.operator: len(one.state) for one in hosted.worker.instances})
            sys.stdout.write(f"{low_words(self._host, memory, keys)}\n")

    def _tick(self) -> None:
        for loop in self._core.loops:
            for hosted in loop.workers:
                loop.report(hosted)
        if not self._host and (counts := self._progress.counts()) is not None:
            self._links.say(Pointstamps(counts))

    # ---- instructions, carried out in the workers' threads

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Counted):
            self._progress.record(instruction.changes)
        elif isinstance(instruction, Warned):
            sys.stdout.write(f"{instruction.text}\n")  # as the output of the operator in whose thread this is
        elif isinstance(instruction, TellController):
            self._tell(instruction.answer)
        elif isinstance(instruction, TellMeasured):
            self._watch.measured(instruction.measured)
        elif isinstance(instruction, Save | Park):
            self._saver.save(instruction)
        elif isinstance(instruction, Traced):
            record = instruction.records[0]
            records = tuple(map(pack, instruction.records))
            self._links.say(Records(WorkerId(record.operator, record.worker), records))

    def _tell(self, answer: Answer) -> None:
        self._links.say(Said((answer,)))

    def _lost(self, worker: WorkerId) -> None:
        self._core.router.post(worker, StatesLost(worker))

    def _request_chain(self, worker: WorkerId, operators: tuple[str, ...]) -> None:
        self._core.chains.request(worker, SetChain(operators))

    def _chained(self, answer: Chained) -> None:
        self._tell(answer)
        self._watch.rechain([hosted.worker.wiring.workers for hosted in self._core.workers])

    def _judged(self, verdicts: tuple[ConstraintVerdict, ...]) -> None:
        self._links.say(Judged(verdicts))

    def _notify(self, host: int, notice: Notice) -> None:
        self._links.post(host, notice, ())

    # ---- end

    def _leave_behind(self) -> None:
        """Send copies of the newest rows, and of states that are small, for a look at them when the run is over."""
        held = [(hosted.worker, instance) for hosted in self._core.workers for instance in hosted.worker.instances]
        limit = LAST_BYTES // max(1, sum(len(instance.state) > 0 for _, instance in held))
        for worker, instance in held:
            self._tell(rows_seen(LookAtRows(UNASKED, LAST_ROWS), worker, instance.worker))
            self._tell(arms_seen(LookAtArms(UNASKED, ""), worker, instance.worker))
            order = LookAtState(UNASKED, most=max(1, len(instance.state)), limit=limit)
            look, part = StateLook(order, instance, time.monotonic_ns), None
            while part is None or not part.is_last:
                if (part := look.advance()) is not None:
                    self._tell(part)

    def _end_threads(self) -> tuple[str, ...]:
        """End all threads; returns the names of those that are still blocked in a user function."""
        if not self._core.is_started:
            return ()
        self._saver.leave()
        self._core.leave()
        deadline_ns = time.monotonic_ns() + int(GRACE_S * 1e9)
        stuck = self._core.join(deadline_ns)
        self._saver.join(max(0.0, (deadline_ns - time.monotonic_ns()) / 1e9))
        stuck += [self._saver.name] if self._saver.is_alive() else []
        return tuple(sorted(stuck))
