"""The control lane: the controller's end and a host's end. It carries no data, and no message waits for credit.

Any thread may ``send``, which appends to a queue and wakes the polling thread; only that thread touches sockets. Each
message carries the sender's incarnation; messages of older incarnations are dropped and counted in ``stale``. A host
that has joined none yet sends in incarnation 0, which always passes, as does a hello.

A goodbye of any incarnation is answered by a farewell, for which the host waits before it closes its socket. Probes
that it has not read at that moment make the system reset the connection, and what it has written and the driver's
machine has not taken is lost: the tail of a trace, or of what a host leaves behind. ZeroMQ's linger ends before that,
when it has passed all to the system.
"""

from __future__ import annotations

import errno
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import zmq

from fries_nb.errors import LinkError
from fries_nb.transport.envelopes import (
    ControllerMessage,
    Farewell,
    FromHost,
    Goodbye,
    Hello,
    HostMessage,
    Part,
    ToHost,
    decode_from_host,
    decode_to_host,
    encode,
    joined,
    split,
)
from fries_nb.transport.sockets import PEERS, SILENCE_S, CurveSockets, HostKeys, Lane, RunKeys, Wakeup

BURST = 1000
"""Maximum number of control messages received in one poll."""


@dataclass(frozen=True)
class Gone:
    """The connection to a host was found closed when a message was to be sent; generated at this end."""


class Heard(NamedTuple):
    """A message of a host. ``peer`` identifies the connection, hence one attempt of one host, for replies."""

    peer: bytes
    host: int
    incarnation: int
    message: HostMessage | Gone


class ControlServer:
    """The controller's end.

    Raises:
        LinkError: the port is taken.
    """

    def __init__(
        self,
        keys: RunKeys,
        interface: str = "127.0.0.1",
        port: int = 0,
        advertised: str = "",
        silence_s: float = SILENCE_S,
        peers: int = PEERS,
    ) -> None:
        # ``keys``: keys of the run; peers with other keys are refused
        hosts, admitted = keys.hosts, frozenset([keys.hosts.public])
        # ``silence_s``: seconds without an answer after which the connection to a host's machine is closed
        self._sockets = CurveSockets(hosts.controller_public, keys.controller_secret, admitted, silence_s)
        # ``port``: TCP port; 0 for any free one
        # ``interface``: address of this machine to listen at; ``0.0.0.0`` for all
        try:
            self._router, port = self._sockets.listen(zmq.ROUTER, Lane.CONTROL, interface, port, peers)
        except LinkError:
            self._sockets.close({})
            raise
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._bell = Wakeup()
        self._poller = zmq.Poller()
        for readable in (self._bell, *self._sockets.readable, self._router):
            self._poller.register(readable, zmq.POLLIN)
        self._outbox: deque[tuple[bytes, bytes]] = deque()
        self._received: list[Heard] = []
        self._hosts: dict[bytes, int] = {}
        self._closed = False
        # ``advertised``: name or address at which hosts reach this machine, if it differs from ``interface``
        self.address = f"tcp://{advertised or interface}:{port}"
        self.incarnation = 0
        self.stale = 0

    @property
    def refused(self) -> int:
        """Number of peers refused because of a wrong key."""
        return self._sockets.refused

    def send(self, peer: bytes, message: ControllerMessage) -> None:
        """Send a message to the host behind ``peer``, from any thread; once it has gone, ``poll`` returns ``Gone``."""
        self._outbox.append((peer, encode(ToHost(self.incarnation, message))))
        self._bell.ring()

    def wake(self) -> None:
        """Make the current or the next poll return at once; from any thread."""
        self._bell.ring()

    def poll(self, timeout_ms: int) -> list[Heard]:
        """Send queued messages, and receive; waits for at most ``timeout_ms``, and may return without a message."""
        ready = dict(self._poller.poll(timeout_ms))
        if self._bell.fileno() in ready:
            self._bell.hush()
        gone = self._flush()
        self._sockets.attend(ready)
        if self._router in ready or gone:
            self._receive()
        received, self._received = self._received + gone, []  # a host's last messages precede its ``Gone``
        return received

    def close(self, linger_ms: int = 0) -> None:
        """Close the server from the polling thread, after a time for queued messages to be sent; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._bell.close()
        self._flush()
        self._sockets.close({self._router: linger_ms})

    def _flush(self) -> list[Heard]:
        """Pass queued messages to ZeroMQ; returns the peers that cannot be reached any more."""
        gone: list[Heard] = []
        while self._outbox:
            peer, encoded = self._outbox.popleft()
            try:
                self._router.send_multipart([peer, *split([encoded])], zmq.NOBLOCK)
            except zmq.ZMQError as error:
                if error.errno != errno.EHOSTUNREACH:
                    raise
                if peer in self._hosts:
                    gone.append(Heard(peer, self._hosts.pop(peer), self.incarnation, Gone()))
        return gone

    def _receive(self) -> None:
        for _ in range(BURST):
            if not self._router.poll(0):
                return
            peer, *pieces = self._router.recv_multipart()
            self._take(peer, decode_from_host(_only(pieces)))

    def _take(self, peer: bytes, envelope: FromHost) -> None:
        if envelope.incarnation > self.incarnation:
            raise LinkError(
                f"host {envelope.host} speaks of incarnation {envelope.incarnation}; the run is at {self.incarnation}"
            )
        if isinstance(envelope.message, Goodbye):
            self.send(peer, Farewell())
        older = 0 < envelope.incarnation < self.incarnation
        if older and not isinstance(envelope.message, Hello):
            self.stale += 1
            return
        self._hosts[peer] = envelope.host
        self._received.append(Heard(peer, envelope.host, envelope.incarnation, envelope.message))


class ControlClient:
    """A host's end, polled by ``HostLinks``."""

    def __init__(self, sockets: CurveSockets, bell: Wakeup, keys: HostKeys, host: int, controller: str) -> None:
        self.socket = sockets.call(zmq.DEALER, Lane.CONTROL, controller, keys.controller_public, "the driver")
        self._bell = bell
        self._host = host
        self._outbox: deque[bytes] = deque()
        self._arrived: list[ControllerMessage] = []
        self.incarnation = 0
        self.stale = 0
        self.has_parted = False  # whether the driver has bidden it farewell

    def send(self, message: HostMessage) -> None:
        """Send a message to the controller; from any thread."""
        self._outbox.append(encode(FromHost(self.incarnation, self._host, message)))
        self._bell.ring()

    def flush(self) -> None:
        """Pass queued messages to ZeroMQ."""
        while self._outbox:
            self.socket.send_multipart(split([self._outbox.popleft()]), zmq.NOBLOCK)

    def receive(self) -> None:
        """Receive pending messages from ZeroMQ."""
        for _ in range(BURST):
            if not self.socket.poll(0):
                return
            envelope = decode_to_host(_only(self.socket.recv_multipart()))
            if isinstance(envelope.message, Farewell):
                self.has_parted = True
            elif envelope.incarnation < self.incarnation:
                self.stale += 1
            else:
                self._arrived.append(envelope.message)

    def take(self) -> list[ControllerMessage]:
        """The messages received since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived


def _only(pieces: list[bytes]) -> Part:
    """The single part of a control message."""
    parts = joined(pieces)
    if len(parts) != 1:
        raise LinkError(f"got a control message of {len(parts)} parts; expected 1")
    return parts[0]
