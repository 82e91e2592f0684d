"""Monitors connections through the events that ZeroMQ's threads report, at both the connecting and the listening end.

Events are queued without a limit until they are read: a monitor with a full queue would block ZeroMQ's thread.

The limit on open files bounds the number of connections (``make_room``). Many systems limit a process to 1,024 open
files by default and allow it to raise the limit far above that.
"""

from __future__ import annotations

import contextlib
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
"""Number of connections in excess of the peers' at which a port is closed for a while."""
MOST_FILES = 1 << 16
"""Highest limit on open files to request."""
SPARE_FILES = 256
"""Open files reserved for Spark, user functions and connections that are not authenticated yet."""
FILES_PER_HOST = 8
"""Open files needed for each other host."""


class _Monitor:
    """The events of one socket."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], events: int) -> None:
        address = f"inproc://monitor-{socket.underlying}"
        socket.monitor(address, events)
        self._socket = socket
        self.reports = context.socket(zmq.PAIR)
        self.reports.rcvhwm = 0
        self.reports.connect(address)

    def take(self) -> list[tuple[int, int]]:
        """Events since the last call, in order, each with its value."""
        taken = []
        while self.reports.poll(0):
            report = recv_monitor_message(self.reports)
            taken.append((int(report["event"]), int(report["value"])))
        return taken

    def close(self) -> None:
        self._socket.disable_monitor()
        self.reports.close(0)


class Connection:
    """The connection of a client socket. All methods must be called from the thread that polls the socket.

    Args:
        context: context of the socket.
        socket: a socket that has not connected yet.
        whose: name of the peer, for messages.
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
        """Check whether the connection was lost.

        Args:
            needed: whether the peer must outlive this process, so that the end of the connection is an error at once.

        Raises:
            LinkError: the connection has ended, even if it was made again, since messages may be lost; or there has
                been none for ``silence_s``.
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
        """Stop monitoring; called before the socket is closed."""
        self._monitor.close()


class Entrance:
    """The port of a server socket, which is closed for a while if it has too many connections.

    Peers that do not prove a key are disconnected soon. Until then each costs an open file, and without a limit
    strangers could exhaust them. While the port is closed the system drops connection requests and the requesters
    retry, so peers are delayed, and existing connections are unaffected. (ZeroMQ's own ``unbind`` would end them as
    well.)

    Args:
        context: context of the socket.
        socket: a socket that does not listen yet.
        peers: number of expected connections.

    Attributes:
        reports: readable if ``attend`` has something to process.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], peers: int) -> None:
        self._socket = socket
        self._most = 2 * peers + STRANGERS
        self._monitor = _Monitor(context, socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.reports = self._monitor.reports
        self._connections: set[int] = set()
        self._gate: Gate | None = None

    def open(self, interface: str, port: int) -> int:
        """Listen at a name or address of this machine; returns the port, a free one if ``port`` is 0.

        Raises:
            OSError: the port is taken, or the address is not this machine's.
        """
        self._gate = Gate(interface, port)
        self._socket.setsockopt(zmq.USE_FD, self._gate.duplicate())
        self._socket.bind(f"tcp://{self._gate.address}:{self._gate.port}")
        return self._gate.port

    def attend(self) -> None:
        """Close or reopen the port, depending on the number of connections."""
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
        """Stop monitoring; called before the socket is closed."""
        self._monitor.close()
        if self._gate is not None:
            self._gate.close()


class Gate:
    """A listening TCP socket that can be made to drop connection requests, on Linux only.

    Attributes:
        address: its numeric address.
        port: its port.
        can_shut: whether the system supports dropping.

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
        """A duplicate of the socket's file descriptor, for another owner."""
        return os.dup(self._listening.fileno())

    def shut(self) -> None:
        """Drop connection requests; idempotent."""
        if self.can_shut and not self._is_shut:
            drop = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # BPF: return 0 bytes
            program = struct.pack("HP", 1, ctypes.addressof(drop))
            self._listening.setsockopt(SOL_SOCKET, _SO_ATTACH_FILTER, program)
            self._is_shut = True

    def unshut(self) -> None:
        """Accept connection requests again; idempotent."""
        if self._is_shut:
            self._listening.setsockopt(SOL_SOCKET, _SO_DETACH_FILTER, 0)
            self._is_shut = False

    def close(self) -> None:
        """Close this owner's descriptor of the socket."""
        self._listening.close()


def make_room(hosts: int) -> None:
    """Raise this process's limit on open files as far as allowed, and check that the links of these hosts fit.

    Raises:
        LinkError: they do not fit; names the limit, the open files and the need.
    """
    if os.name != "posix":
        return
    import resource  # available on Unix only

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        with contextlib.suppress(ValueError, OSError):  # macOS may enforce a lower limit than it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            soft = allowed
    is_open, needed = len(os.listdir("/dev/fd")), SPARE_FILES + FILES_PER_HOST * hosts
    if soft != resource.RLIM_INFINITY and soft - is_open < needed:
        raise LinkError(
            f"this process may open {soft} files and has {is_open} open; a run of {hosts} hosts needs {needed} more; "
            "raise the limit (ulimit -n) before Python is started"
        )
