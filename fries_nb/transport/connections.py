"""What becomes of connections, as ZeroMQ's own threads report it: those that this process makes, and those made to it.

Reports wait until they are looked at, without a limit: a monitor whose queue is full would hold up ZeroMQ's thread.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from socket import SOL_SOCKET, create_server, gethostbyname

import zmq
from zmq.utils.monitor import recv_monitor_message

from fries_nb.errors import LinkError

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27  # Python's socket module does not name them
STRANGERS = 128
"""Connections beside those of the peers, before a port is closed for a while."""


class _Monitor:
    """The reports about one socket."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], events: int) -> None:
        address = f"inproc://monitor-{socket.underlying}"
        socket.monitor(address, events)
        self._socket = socket
        self.reports = context.socket(zmq.PAIR)
        self.reports.rcvhwm = 0
        self.reports.connect(address)

    def take(self) -> list[tuple[int, int]]:
        """Events since the last time, in order, each with its value."""
        taken = []
        while self.reports.poll(0):
            report = recv_monitor_message(self.reports)
            taken.append((int(report["event"]), int(report["value"])))
        return taken

    def close(self) -> None:
        self._socket.disable_monitor()
        self.reports.close(0)


class Connection:
    """The connection of a socket that calls.

    All methods belong to the thread that polls the socket.

    Args:
        context: of the socket.
        socket: one that has not connected yet.
        whose: at the other end, for messages.
        silence_s: seconds without a connection after which the peer counts as unreachable.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], whose: str, silence_s: float
    ) -> None:
        self._whose = whose
        self._silence_s = silence_s
        events = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._monitor = _Monitor(context, socket, events)
        self._made = 0
        self._missing_since: float | None = time.monotonic()

    def check(self, needed: bool) -> None:
        """Look at what has happened.

        Args:
            needed: the peer does not go before this process does, so a connection that ended is a loss at once.

        Raises:
            LinkError: the connection has ended and was perhaps made again, so that messages may be lost; or there is
                none for ``silence_s``.
        """
        for event, _ in self._monitor.take():
            self._missing_since = time.monotonic() if event == zmq.EVENT_DISCONNECTED else None
            self._made += event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        missing = self._missing_since is not None
        if self._made > 1 or (needed and self._made and missing):
            raise LinkError(f"the connection to {self._whose} broke; likely it died, or the network failed")
        if self._missing_since is not None and time.monotonic() - self._missing_since > self._silence_s:
            raise LinkError(f"{self._whose} could not be reached for {self._silence_s:g} s; is its port open to us?")

    def close(self) -> None:
        """Look no more; before the socket is closed."""
        self._monitor.close()


class Entrance:
    """The port of a socket that listens: closed for a while where too many connections are held.

    Strangers that do not show a key are hung up on soon. Until then each costs an open file, and without the limit
    they would leave none for anything else. While the port is closed the system drops what asks for a connection; it
    asks again, so peers come later, and those that are connected notice nothing. (ZeroMQ's own ``unbind`` would end
    their connections, too.)

    Args:
        context: of the socket.
        socket: one that does not listen yet.
        peers: how many connections may be expected.

    Attributes:
        reports: readable where ``attend`` has something to look at.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], peers: int) -> None:
        self._socket = socket
        self._most = 2 * peers + STRANGERS
        self._monitor = _Monitor(context, socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.reports = self._monitor.reports
        self._connections: set[int] = set()
        self._gate: Gate | None = None

    def open(self, interface: str, port: int) -> int:
        """Listen at a name or address of this machine; returns the port, which is any free one where 0 is given.

        Raises:
            OSError: the port is taken, or the address is not this machine's.
        """
        self._gate = Gate(interface, port)
        self._socket.setsockopt(zmq.USE_FD, self._gate.duplicate())
        self._socket.bind(f"tcp://{self._gate.address}:{self._gate.port}")
        return self._gate.port

    def attend(self) -> None:
        """Close the port, or open it again, by the number of connections."""
        for event, connection in self._monitor.take():
            if event == zmq.EVENT_ACCEPTED:
                self._connections.add(connection)
            else:
                self._connections.discard(connection)
        if self._gate is not None:
            if len(self._connections) > self._most:
                self._gate.shut()
            elif len(self._connections) <= self._most // 2:
                self._gate.unshut()

    def close(self) -> None:
        """Look no more; before the socket is closed."""
        self._monitor.close()
        if self._gate is not None:
            self._gate.close()


class Gate:
    """A listening TCP socket, at which Linux can be told to drop what asks for a connection; others cannot.

    Attributes:
        address: numeric.
        port: the one it listens at.
        can_shut: whether the system can.

    Raises:
        OSError: see ``Entrance.open``.
    """

    def __init__(self, interface: str, port: int) -> None:
        self._listening = create_server((gethostbyname(interface), port))
        self._listening.setblocking(False)
        name: tuple[str, int] = self._listening.getsockname()
        self.address, self.port = name
        self._is_shut = False
        self.can_shut = sys.platform == "linux"
        try:
            self.shut()  # some containers lack this part of Linux
        except OSError:
            self.can_shut = False
        self.unshut()

    def duplicate(self) -> int:
        """The file of the socket, for another owner."""
        return os.dup(self._listening.fileno())

    def shut(self) -> None:
        """Drop what asks for a connection; again does nothing."""
        if self.can_shut and not self._is_shut:
            drop = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF: return 0 bytes
            program = struct.pack("HP", 1, ctypes.addressof(drop))
            self._listening.setsockopt(SOL_SOCKET, _SO_ATTACH_FILTER, program)
            self._is_shut = True

    def unshut(self) -> None:
        """Let connections be made again; again does nothing."""
        if self._is_shut:
            self._listening.setsockopt(SOL_SOCKET, _SO_DETACH_FILTER, 0)
            self._is_shut = False

    def close(self) -> None:
        """Listen no more, as far as this owner is concerned."""
        self._listening.close()
