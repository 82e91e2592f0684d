"""Sockets of one run in one process, all of which speak CURVE.

ZeroMQ asks whether to let a peer in by a socket of its own ("ZAP", https://rfc.zeromq.org/spec/27), one to a context.
So each run has its own context here, and the thread that polls the run's sockets answers those questions too: no
thread is spent on it, and runs in one process do not meet. A peer without a key never gets as far as a question; one
with a key that is not the run's is refused; neither delivers a byte.

Control and data are served by different threads of ZeroMQ, so that a large batch under encryption delays no control.

Those threads also ask each peer, several times in ``silence_s``, whether it is still there, and answer such questions.
They need no interpreter lock, so a process whose Python code is busy for minutes is alive, while one that was stopped,
or whose machine cannot be reached any more, loses its connections within ``silence_s``.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Container
from enum import IntEnum

import zmq
from zmq.utils import z85

from fries_nb.errors import LinkError
from fries_nb.transport.connections import Connection, Entrance
from fries_nb.transport.pieces import PIECE

ZAP = "inproc://zeromq.zap.01"
SILENCE_S = 10.0
"""Seconds for which a peer's machine may not answer, before the connection to it is given up."""
HANDSHAKE_MS = 5_000
"""For a peer to show its key. One of ours that is too slow, as while Python is busy at this end, just tries again."""
PEERS = 16
"""Connections that a port expects, where nobody says how many."""
_LONGEST_MS = 2**31 - 1


class Lane(IntEnum):
    """Which of ZeroMQ's threads serves a socket (bit mask)."""

    CONTROL = 1
    DATA = 2


class Wakeup:
    """Wakes the thread that polls ``fileno``, from any thread: one write to a pipe for a burst of rings."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._rung = False
        self._closed = False
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """What to poll."""
        return self._read

    def ring(self) -> None:
        """Wake the poller. Call it after the thing to look at is in place.

        Raises:
            LinkError: nobody listens any more.
        """
        if self._rung:
            return
        with self._lock:  # else a late ring could write into whatever has got the pipe's number since
            if self._closed:
                raise LinkError("the link is closed; nothing can be sent on it")
            self._rung = True
            os.write(self._write, b"!")

    def hush(self) -> None:
        """Take the rings so far, when ``fileno`` is readable. Call it before looking: a ring during it wakes again."""
        os.read(self._read, 4096)
        self._rung = False

    def close(self) -> None:
        """Give the pipe back; again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._rung = False
            os.close(self._read)
            os.close(self._write)


class CurveSockets:
    """Makes sockets that hold one key pair and let in the peers whose public key is in ``admitted``.

    All methods belong to one thread, the one that polls. ``refused`` counts the peers whose key was wrong.
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
        made.setsockopt(zmq.MAXMSGSIZE, PIECE + 4096)  # what encryption adds is less
        made.setsockopt(zmq.AFFINITY, int(lane))
        made.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        silence_ms = self.silence_s * 1000  # a peer is asked four times in it
        made.setsockopt(zmq.HEARTBEAT_IVL, max(1, int(min(silence_ms / 4, _LONGEST_MS))))
        made.setsockopt(zmq.HEARTBEAT_TIMEOUT, max(1, int(min(silence_ms * 3 / 4, _LONGEST_MS))))
        made.curve_publickey = self._public
        made.curve_secretkey = self._secret
        self._sockets.append(made)
        return made

    def check(self, socket: zmq.Socket[bytes], needed: bool) -> None:
        """See whether a socket of ``call`` has lost its peer; see ``Connection.check``."""
        self._connections[socket].check(needed)

    def drop(self, socket: zmq.Socket[bytes]) -> None:
        """Close one of the sockets, with what it has not sent."""
        self._drop(socket, 0)

    def _drop(self, socket: zmq.Socket[bytes], linger_ms: int) -> None:
        self._sockets.remove(socket)
        for watched in (self._connections.pop(socket, None), self._entrances.pop(socket, None)):
            if watched is not None:
                watched.close()
        socket.close(linger_ms)

    @property
    def readable(self) -> list[zmq.Socket[bytes]]:
        """What to poll beside the sockets, for ``attend``."""
        return [self._questions, *(entrance.reports for entrance in self._entrances.values())]

    def attend(self, ready: Container[object]) -> None:
        """See to those who knock, where what was polled is ready: let them in, or close the port for a while."""
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
        """Close all sockets and end ZeroMQ's threads; ``linger`` gives sockets milliseconds to send what they hold."""
        for socket in tuple(linger):
            self._drop(socket, linger[socket])
        for socket in tuple(self._sockets):
            self.drop(socket)
        self._questions.close(0)
        self._context.term()
