"""Sockets of one run in one process, all of which speak CURVE.

ZeroMQ asks whether to let a peer in by a socket of its own ("ZAP", https://rfc.zeromq.org/spec/27), one to a context.
So each run has its own context here, and the thread that polls the run's sockets answers those questions too: no
thread is spent on it, and runs in one process do not meet. A peer without a key never gets as far as a question; one
with a key that is not the run's is refused; neither delivers a byte.

Control and data are served by different threads of ZeroMQ, so that a large batch under encryption delays no control.
"""

from __future__ import annotations

import os
import threading
from enum import IntEnum

import zmq
from zmq.utils import z85

from fries_nb.errors import LinkError
from fries_nb.spark.envelopes import LIMIT

ZAP = "inproc://zeromq.zap.01"


class Lane(IntEnum):
    """Which of ZeroMQ's threads serves a socket (bit mask)."""

    CONTROL = 1
    DATA = 2


class Bell:
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

    def __init__(self, public: bytes, secret: bytes, admitted: frozenset[bytes], limit: int = LIMIT) -> None:
        self._public = public
        self._secret = secret
        self._admitted = frozenset(z85.decode(key) for key in admitted)
        self._limit = limit
        self._context = zmq.Context(io_threads=2)
        self._sockets: list[zmq.Socket[bytes]] = []
        self.refused = 0
        self.questions = self._context.socket(zmq.REP)
        self.questions.bind(ZAP)

    def listen(self, kind: int, lane: Lane, interface: str, port: int = 0) -> tuple[zmq.Socket[bytes], int]:
        """A bound socket and its port; port 0 stands for any free one.

        Raises:
            LinkError: the port is taken, or the interface is not this machine's.
        """
        made = self._make(kind, lane)
        made.curve_server = True
        try:
            made.bind(f"tcp://{interface}:{port or '*'}")
        except zmq.ZMQError as error:
            self.drop(made)
            hint = "choose another port, or 0 for any" if error.errno == zmq.EADDRINUSE else "check the address"
            raise LinkError(f"cannot listen at {interface}:{port}: {error}; {hint}") from None
        endpoint = made.getsockopt_string(zmq.LAST_ENDPOINT)
        return made, int(endpoint.rpartition(":")[2])

    def call(self, kind: int, lane: Lane, address: str, server: bytes) -> zmq.Socket[bytes]:
        """A socket that connects, now or when it can, to ``tcp://host:port``, whose public key must be ``server``.

        Raises:
            LinkError: the address is not one.
        """
        made = self._make(kind, lane)
        made.curve_serverkey = server
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
        made.setsockopt(zmq.MAXMSGSIZE, self._limit + 4096)
        made.setsockopt(zmq.AFFINITY, int(lane))
        made.curve_publickey = self._public
        made.curve_secretkey = self._secret
        self._sockets.append(made)
        return made

    def drop(self, socket: zmq.Socket[bytes]) -> None:
        """Close one of the sockets, with what it has not sent."""
        self._sockets.remove(socket)
        socket.close(0)

    def answer(self) -> None:
        """Answer all waiting questions whether to let a peer in."""
        while self.questions.poll(0):
            version, request, _domain, _address, _identity, mechanism, *credentials = self.questions.recv_multipart()
            admitted = mechanism == b"CURVE" and credentials[0] in self._admitted
            self.refused += not admitted
            verdict = [b"200", b"OK"] if admitted else [b"400", b"not a key of this run"]
            self.questions.send_multipart([version, request, *verdict, b"", b""])

    def close(self, linger: dict[zmq.Socket[bytes], int]) -> None:
        """Close all sockets and end ZeroMQ's threads; ``linger`` gives sockets milliseconds to send what they hold."""
        for socket in self._sockets:
            socket.close(linger.get(socket, 0))
        self._sockets.clear()
        self.questions.close(0)
        self._context.term()
