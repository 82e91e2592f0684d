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
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Container
from dataclasses import dataclass, field
from enum import IntEnum

import zmq
from zmq.utils import z85

from fries_nb.errors import LinkError
from fries_nb.transport.connections import Connection, Entrance
from fries_nb.transport.pieces import PIECE

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
        """Wake the poller. Call it after the work has been queued.

        Raises:
            LinkError: the poller has closed.
        """
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
        """A bound server socket.

        Args:
            kind: ZeroMQ socket type, such as ``zmq.ROUTER``.
            lane: the I/O thread that serves it.
            interface: name or address of this machine; ``0.0.0.0`` for all of its addresses.
            port: TCP port; 0 for any free one.
            peers: number of peers that are expected to connect; bounds the connections.

        Returns:
            The socket and the port that it is bound to.

        Raises:
            LinkError: the port is taken, or the interface is not this machine's.
        """
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
        """A client socket that connects, now or as soon as it can.

        Args:
            kind: ZeroMQ socket type, such as ``zmq.DEALER``.
            lane: the I/O thread that serves it.
            address: ``tcp://host:port``.
            server: public key that the peer must prove, in Z85.
            whose: name of the peer, for error messages of ``check``.

        Raises:
            LinkError: the address is malformed.
        """
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
