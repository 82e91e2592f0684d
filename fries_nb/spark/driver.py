"""The controller's shell: one background thread on the driver that polls the control server and obeys the controller.

Other threads only ``post`` events. Instructions are carried out in their order, so a journal entry is on disk before
the first FCM behind it leaves.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from fries_nb.controller import events as said
from fries_nb.controller.controller import Controller
from fries_nb.errors import FriesError, in_one_line
from fries_nb.planning.expansion import host_of
from fries_nb.spark import manifest
from fries_nb.spark.control import ControlServer, Gone, Heard
from fries_nb.spark.envelopes import (
    Goodbye,
    Hello,
    Leave,
    Line,
    Printed,
    Pulse,
    Records,
    Refused,
    Said,
    ToWorker,
    Welcome,
)
from fries_nb.spark.packing import Packed
from fries_nb.spark.region import Region

POLL_MS = 50
PULSE_S = 0.25
FAREWELL_S = 6.0
"""How long dismissed hosts get to say goodbye before their tasks are cancelled."""


class Listener(Protocol):
    """What the run hears from its driver; called from the driver's thread."""

    def resolved(self, outcome: said.Outcome) -> None:
        """A change has come to its end."""

    def over(self, state: str, error: str, details: str) -> None:
        """The run is decided; its hosts are on their way home."""

    def closed(self) -> None:
        """Hosts, sockets and the journal are closed."""

    def answered(self, event: said.Answered) -> None:
        """A worker has said something."""

    def heard(self, lines: tuple[Line, ...]) -> None:
        """Users' functions have printed something."""


class Driver(threading.Thread):
    """Runs a controller until its run is over and its hosts are gone.

    Args:
        controller: whose only caller this thread is.
        server: the control server, which this thread polls and closes.
        region: how many hosts there are, and where the sinks commit to.
        journal: file for the decisions.
        listener: hears what happens.
        release: ends the Spark job if it has not ended by itself; called last but one, from this thread.

    Attributes:
        records: the trace so far, packed.
        hosts: the hello of each host that was let in.
    """

    def __init__(
        self,
        controller: Controller,
        server: ControlServer,
        region: Region,
        journal: Path,
        listener: Listener,
        release: Callable[[], None],
    ) -> None:
        super().__init__(name="fries-driver", daemon=True)
        self.controller = controller
        self.records: list[Packed] = []
        self.hosts: dict[int, Hello] = {}
        self._server = server
        self._region = region
        self._journal = journal.open("a", encoding="utf-8")
        self._listener = listener
        self._release = release
        self._events: deque[said.Event] = deque()
        self._peers: dict[int, bytes] = {}
        self._gone: set[int] = set()
        self._over: said.RunEnded | None = None
        self._hello: bytes = b""
        self._pulsed = 0.0
        self._uncommitted = ""
        self._closing = threading.Lock()
        self._closed = False

    def post(self, event: said.Event) -> None:
        """Let the controller take this event soon; from any thread. Once the driver has closed it is of no use."""
        with self._closing:
            if not self._closed:
                self._events.append(event)
                self._server.wake()

    def run(self) -> None:
        try:
            while self._over is None:
                self._turn()
            self._part()
        except Exception as error:  # noqa: BLE001 - a defect of ours must end the run in words, not leave it hanging
            details = "".join(traceback.format_exception(error))
            self._end(said.RunEnded("failed", f"the controller failed: {type(error).__name__}: {error}", details))
        finally:
            self._dismiss("the driver ends")
            with self._closing:
                self._closed = True
            self._server.close(linger_ms=500)
            self._journal.close()
            self._release()
            for path in self._region.sinks.values():
                manifest.sweep(path, self._region.run)
            self._listener.closed()

    def _end(self, over: said.RunEnded) -> None:
        if self._uncommitted and not over.error:
            over = said.RunEnded("failed", self._uncommitted)
        self._over = over
        self._listener.over(over.state, *in_one_line(over.error, over.details))

    def _turn(self) -> None:
        """One poll, and all that follows from it."""
        for heard in self._server.poll(POLL_MS):
            self._hear(heard)
        while self._events:
            self._handle(self._events.popleft())
        now = time.monotonic()
        if now - self._pulsed >= PULSE_S:
            self._pulsed = now
            for peer in self._peers.values():
                self._server.send(peer, Pulse())
        self._handle(said.Tick())

    def _part(self) -> None:
        """Hear the last words of the hosts: their traces are among them."""
        deadline = time.monotonic() + FAREWELL_S
        while self._gone < set(self._peers) and time.monotonic() < deadline:
            for heard in self._server.poll(POLL_MS):
                if heard.peer == self._peers.get(heard.host):
                    self._hear(heard)
                else:
                    self._server.send(heard.peer, Refused("the run is over"))

    def _handle(self, event: said.Event) -> None:
        if isinstance(event, said.Answered):
            self._listener.answered(event)
        for instruction in self.controller.handle(event, time.monotonic_ns()):
            self._obey(instruction)

    # ---- hearing

    def _hear(self, heard: Heard) -> None:
        message, host = heard.message, heard.host
        if isinstance(message, Hello):
            self._hello = heard.peer
            self._peers.setdefault(host, heard.peer)
            self.hosts.setdefault(host, message)
            self._handle(said.HostJoined(host, message.data_address, self._server.incarnation))
        elif heard.peer != self._peers.get(host):
            return  # turned away before; it says goodbye
        elif isinstance(message, Said):
            for answer in message.answers:
                self._handle(said.Answered(answer))
        elif isinstance(message, Records):
            self.records.extend(message.records)
        elif isinstance(message, Printed):
            self._listener.heard(message.lines)
        elif isinstance(message, Goodbye):
            self._gone.add(host)
            self._handle(said.HostLost(host, message.reason) if message.reason else said.HostLeft(host))
        elif isinstance(message, Gone):
            self._gone.add(host)
            self._handle(said.HostLost(host, "its connection was closed"))
        elif self.controller.state != "joining":
            self._handle(said.HostHeard(host))

    # ---- obeying

    def _obey(self, instruction: said.Instruction) -> None:
        if isinstance(instruction, said.Tell):
            peer = self._peers[host_of(instruction.worker, self._region.options.hosts)]
            self._server.send(peer, ToWorker(instruction.worker, instruction.control))
        elif isinstance(instruction, said.Admit):
            for peer in self._peers.values():
                self._server.send(peer, Welcome(instruction.peers))
        elif isinstance(instruction, said.RefuseHost):
            self._server.send(self._hello, Refused(instruction.reason))
        elif isinstance(instruction, said.Journal):
            self._journal.write(msgspec.json.encode(instruction.decided).decode() + "\n")
            self._journal.flush()
            os.fsync(self._journal.fileno())
            self._handle(said.Journaled())
        elif isinstance(instruction, said.CommitFiles):
            self._commit(instruction)
        elif isinstance(instruction, said.Resolved):
            error, details = in_one_line(instruction.outcome.error, instruction.outcome.details)
            self._listener.resolved(replace(instruction.outcome, error=error, details=details))
        elif isinstance(instruction, said.DismissHosts):
            self._dismiss(instruction.reason)
        elif isinstance(instruction, said.RunEnded):
            self._end(instruction)

    def _commit(self, instruction: said.CommitFiles) -> None:
        """Make the files output; a failure is the end of the run, whatever else it was about to become."""
        for sink, files in instruction.files.items():
            try:
                manifest.commit(self._region.sinks[sink], instruction.epoch, files)
            except FriesError as error:
                self._uncommitted = f"sink {sink} could not commit epoch {instruction.epoch}: {error}"
                self._handle(said.StopRequested())

    def _dismiss(self, reason: str) -> None:
        for host, peer in self._peers.items():
            if host not in self._gone:
                self._server.send(peer, Leave(reason))
