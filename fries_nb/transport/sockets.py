"""CURVE keys of a run, and its sockets in one process, which the keys authenticate and encrypt.

The driver creates the keys when a run starts. The controller has one key pair; all hosts of the run share another. A
host gets ``RunKeys.hosts`` through Spark: it knows the controller's public key, not its secret, and so cannot
impersonate the controller. Keys travel by pickle inside Spark's own channels and are never printed.

>>> make_keys()
RunKeys(hosts=HostKeys())

ZeroMQ asks whether to accept a peer through a socket of its own ("ZAP", https://rfc.zeromq.org/spec/27), one for each
context. So each run has its own context, and the thread that polls the run's sockets also answers these requests: this
needs no further thread, and separates runs in one process. A peer without a key does not even cause a request; one with
a wrong key is refused; neither delivers a byte.

Different ZeroMQ threads serve control and data, so encrypting a large batch does not delay control messages. These
threads also exchange heartbeats with each peer, several times in ``silence_s``. They need no interpreter lock, so a
process whose Python code is busy for minutes counts as alive, while one that was stopped, or whose machine is
unreachable, loses its connections within ``silence_s``.

Monitors connections through the events that ZeroMQ's threads report, at both the connecting and the listening end.

Events are queued without a limit until they are read: a monitor with a full queue would block ZeroMQ's thread.

The limit on open files bounds the number of connections (``make_room``). Many systems limit a process to 1,024 open
files by default and allow it to raise the limit far above that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
import sys
import threading
import time
from collections.abc import Container
from dataclasses import dataclass, field
from enum import IntEnum
from socket import SOL_SOCKET, create_server, gethostbyname

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from fries_nb.errors import LinkError
from fries_nb.transport.envelopes import PIECE

ZAP = "inproc://zeromq.zap.01"
SILENCE_S = 10.0
"""Default number of seconds without an answer after which the connection to a peer is given up."""
HANDSHAKE_MS = 5_000
"""Milliseconds for a peer to prove its key. A peer that exceeds it, since Python is busy at this end, retries."""
PEERS = 16
"""Default number of expected connections of a port."""
_LONGEST_MS = 2**31 - 1


@dataclass(frozen=True)
class HostKeys:
    """The keys that a host holds: the hosts' pair and the controller's public key, each in Z85 (40 bytes)."""

    public: bytes = field(repr=False)
    secret: bytes = field(repr=False)
    controller_public: bytes = field(repr=False)


@dataclass(frozen=True)
class RunKeys:
    """The keys that the driver holds, with the controller's secret."""

    controller_secret: bytes = field(repr=False)
    hosts: HostKeys


def make_keys() -> RunKeys:
    """New keys for one run."""
    controller_public, controller_secret = zmq.curve_keypair()
    public, secret = zmq.curve_keypair()
    return RunKeys(controller_secret, HostKeys(public, secret, controller_public))


class Lane(IntEnum):
    """The ZeroMQ thread that serves a socket (bit mask)."""

    CONTROL = 1
    DATA = 2


class Wakeup:
    """Wakes the thread that polls ``fileno``, from any thread; a burst of rings costs one write to a pipe."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._rung = False
        self._closed = False
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The file descriptor to poll."""
        return self._read

    def ring(self) -> None:
        """Wake the poller. Call it after the work has been queued."""
        if self._rung:
            return
        with self._lock:  # so that a late ring does not write to another file with the pipe's descriptor
            if self._closed:
                raise LinkError("the link is closed; nothing can be sent on it")
            self._rung = True
            os.write(self._write, b"!")

    def hush(self) -> None:
        """Reset, when ``fileno`` is readable. Call it before looking for work: a ring in between wakes again."""
        os.read(self._read, 4096)
        self._rung = False

    def close(self) -> None:
        """Close the pipe; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._rung = False
            os.close(self._read)
            os.close(self._write)


class CurveSockets:
    """Creates sockets that use one key pair and accept the peers whose public key is in ``admitted``.

    All methods must be called from the polling thread. ``refused`` counts peers with a wrong key.
    """

    def __init__(self, public: bytes, secret: bytes, admitted: frozenset[bytes], silence_s: float) -> None:
        self.silence_s = silence_s
        self._public = public
        self._secret = secret
        self._admitted = frozenset(z85.decode(key) for key in admitted)
        self._context = zmq.Context(io_threads=2)
        self._sockets: list[zmq.Socket[bytes]] = []
        self._connections: dict[zmq.Socket[bytes], Connection] = {}
        self._entrances: dict[zmq.Socket[bytes], Entrance] = {}
        self.refused = 0
        self._questions = self._context.socket(zmq.REP)
        self._questions.bind(ZAP)

    def listen(
        self, kind: int, lane: Lane, interface: str, port: int = 0, peers: int = PEERS
    ) -> tuple[zmq.Socket[bytes], int]:
        """A server socket, and the port that it is bound to."""
        made = self._make(kind, lane)
        made.curve_server = True
        entrance = self._entrances[made] = Entrance(self._context, made, peers)
        try:
            port = entrance.open(interface, port)
        except OSError as error:
            self.drop(made)
            taken = error.errno == errno.EADDRINUSE
            hint = "choose another port, or 0 for any" if taken else f"{interface} is not an address of this machine"
            raise LinkError(f"cannot listen at {interface}:{port}: {error}; {hint}") from None
        return made, port

    def call(self, kind: int, lane: Lane, address: str, server: bytes, whose: str) -> zmq.Socket[bytes]:
        """A client socket that connects, now or as soon as it can."""
        made = self._make(kind, lane)
        made.curve_serverkey = server
        self._connections[made] = Connection(self._context, made, whose, self.silence_s)
        try:
            made.connect(address)
        except zmq.ZMQError as error:
            self.drop(made)
            raise LinkError(f"cannot connect to {address!r}: {error}; expected tcp://host:port") from None
        return made

    def _make(self, kind: int, lane: Lane) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.linger = 0
        made.sndhwm = made.rcvhwm = 0
        made.setsockopt(zmq.MAXMSGSIZE, PIECE + 4096)  # encryption adds less than this
        made.setsockopt(zmq.AFFINITY, int(lane))
        made.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        silence_ms = self.silence_s * 1000  # for four heartbeats
        made.setsockopt(zmq.HEARTBEAT_IVL, max(1, int(min(silence_ms / 4, _LONGEST_MS))))
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, max(1, int(min(silence_ms * 3 / 4, _LONGEST_MS))))
        made.curve_publickey = self._public
        made.curve_secretkey = self._secret
        self._sockets.append(made)
        return made

    def check(self, socket: zmq.Socket[bytes], needed: bool) -> None:
        """Check whether a socket of ``call`` has lost its peer; see ``Connection.check``."""
        self._connections[socket].check(needed)

    def stands(self, socket: zmq.Socket[bytes]) -> bool:
        """Whether a socket of ``call`` has its first connection still."""
        return self._connections[socket].stands

    def drop(self, socket: zmq.Socket[bytes]) -> None:
        """Close one of the sockets and discard its unsent messages."""
        self._drop(socket, 0)

    def _drop(self, socket: zmq.Socket[bytes], linger_ms: int) -> None:
        self._sockets.remove(socket)
        for watched in (self._connections.pop(socket, None), self._entrances.pop(socket, None)):
            if watched is not None:
                watched.close()
        socket.close(linger_ms)

    @property
    def readable(self) -> list[zmq.Socket[bytes]]:
        """File descriptors to poll in addition to the sockets, for ``attend``."""
        return [self._questions, *(entrance.reports for entrance in self._entrances.values())]

    def attend(self, ready: Container[object]) -> None:
        """Process authentication requests and connection events; closes or reopens ports as needed."""
        if self._questions in ready:
            self._answer()
        for entrance in self._entrances.values():
            if entrance.reports in ready:
                entrance.attend()

    def _answer(self) -> None:
        while self._questions.poll(0):
            version, request, _domain, _address, _identity, mechanism, *credentials = self._questions.recv_multipart()
            admitted = mechanism == b"CURVE" and credentials[0] in self._admitted
            self.refused += not admitted
            verdict = [b"200", b"OK"] if admitted else [b"400", b"not a key of this run"]
            self._questions.send_multipart([version, request, *verdict, b"", b""])

    def close(self, linger: dict[zmq.Socket[bytes], int]) -> None:
        """Close all sockets and end ZeroMQ's threads; ``linger`` is the time in ms to send queued messages."""
        for socket in tuple(linger):
            self._drop(socket, linger[socket])
        for socket in tuple(self._sockets):
            self.drop(socket)
        self._questions.close(0)
        self._context.term()


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
    """The connection of a client socket. All methods must be called from the thread that polls the socket."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], whose: str, silence_s: float
    ) -> None:
        self._whose = whose
        self._silence_s = silence_s  # seconds without a connection after which the peer counts as unreachable
        events = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        # ``socket``: a socket that has not connected yet
        self._monitor = _Monitor(context, socket, events)
        self._made = 0
        self._missing_since: float | None = time.monotonic()

    @property
    def stands(self) -> bool:
        """Whether there is one, and it has not been lost since."""
        self._follow()
        return self._made == 1 and self._missing_since is None

    def check(self, needed: bool) -> None:
        """Check whether the connection was lost."""
        self._follow()
        missing = self._missing_since is not None
        if self._made > 1 or (needed and self._made and missing):
            raise LinkError(f"the connection to {self._whose} broke; likely it died, or the network failed")
        if self._missing_since is not None and time.monotonic() - self._missing_since > self._silence_s:
            raise LinkError(f"{self._whose} could not be reached for {self._silence_s:g} s; is its port open to us?")

    def _follow(self) -> None:
        for event, _ in self._monitor.take():
            self._missing_since = time.monotonic() if event == zmq.EVENT_DISCONNECTED else None
            self._made += event == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def close(self) -> None:
        """Stop monitoring; called before the socket is closed."""
        self._monitor.close()


class Entrance:
    """The port of a server socket, which is closed for a while if it has too many connections.

    Peers that do not prove a key are disconnected soon. Until then each costs an open file, and without a limit
    strangers could exhaust them. While the port is closed the system drops connection requests and the requesters
    retry, so peers are delayed, and existing connections are unaffected. (ZeroMQ's own ``unbind`` would end them as
    well.)
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], peers: int) -> None:
        self._socket = socket  # a socket that does not listen yet
        self._most = 2 * peers + STRANGERS
        self._monitor = _Monitor(context, socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.reports = self._monitor.reports  # readable if ``attend`` has something to process
        self._connections: set[int] = set()
        self._gate: Gate | None = None

    def open(self, interface: str, port: int) -> int:
        """Listen at a name or address of this machine; returns the port, a free one if ``port`` is 0."""
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

    Raises:
        OSError: see ``Entrance.open``.
    """

    def __init__(self, interface: str, port: int) -> None:
        self._listening = create_server((gethostbyname(interface), port))
        self._listening.setblocking(False)
        name: tuple[str, int] = self._listening.getsockname()
        # ``port``: its port
        # ``address``: its numeric address
        self.address, self.port = name
        self._is_shut = False
        self.can_shut = sys.platform == "linux"  # whether the system supports dropping
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
    """Raise this process's limit on open files as far as allowed, and check that the links of these hosts fit."""
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
