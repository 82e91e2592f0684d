"""The links of a host: control to and from the driver, frames to and from other hosts.

One thread of the host polls all of them. It processes control first and a bounded amount of data at a time, so a
backlog of data delays no control message. Other threads ``say`` and ``post``, which append to a queue and wake the
polling thread once for a burst; that thread merges the frames for one host into one message per poll. Credits bound the
memory, so sockets have no high-water mark, and posting never blocks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import zmq

from fries_nb.errors import LinkError
from fries_nb.protocol.messages import ChannelId
from fries_nb.transport.control import ControlClient
from fries_nb.transport.envelopes import LIMIT, ControllerMessage, HostMessage, Part, joined, split
from fries_nb.transport.sockets import PEERS, SILENCE_S, CurveSockets, HostKeys, Lane, Wakeup
from fries_nb.transport.wire import Arrival, Head, Packer, Payload, Routes, Unpacker, read_head

LOOK_MS = 100
"""Interval at which a host that takes leave looks whether its connection stands, in milliseconds."""
BURST_MESSAGES = 256
BURST_BYTES = 4 << 20
"""Bytes of data received in one poll before control is processed again."""


class Received(NamedTuple):
    """The result of a poll, in order of arrival within each lane. Process ``control`` first."""

    control: list[ControllerMessage]
    data: list[Arrival]


@dataclass(frozen=True)
class Peer:
    """Another host, and the queue of frames to it."""

    address: str
    socket: zmq.Socket[bytes]
    packer: Packer
    waiting: deque[tuple[tuple[int, ...], Payload]] = field(default_factory=deque)


class DataLink:
    """Frames to and from the other hosts; polled by ``HostLinks``."""

    def __init__(
        self,
        sockets: CurveSockets,
        bell: Wakeup,
        keys: HostKeys,
        host: int,
        socket: zmq.Socket[bytes],
        address: str,
        limit: int,
    ) -> None:
        self._sockets = sockets
        self._bell = bell
        self._public = keys.public
        self._host = host
        self._limit = limit
        self.socket = socket
        self.address = address
        self._incarnation = 0
        self._routes = Routes(())
        self._peers: dict[int, Peer] = {}
        self._parted: set[int] = set()
        self._unpackers: dict[int, Unpacker] = {}
        self._outbox: deque[tuple[int, tuple[int, ...], Payload]] = deque()
        self._early: list[tuple[Head, Sequence[Part]]] = []
        self._arrived: list[Arrival] = []
        self.stale = 0

    def join(self, incarnation: int, peers: dict[int, str], channels: Sequence[ChannelId]) -> None:
        """See ``HostLinks.join``."""
        self._outbox.clear()
        self._arrived.clear()
        self._incarnation = incarnation
        self._routes = Routes(channels)
        self._unpackers = {}
        self._parted.clear()
        old, self._peers = self._peers, {}
        for host, address in peers.items():
            if host != self._host:
                same = host in old and old[host].address == address
                self._add(host, address, old.pop(host).socket if same else self._call(host, address))
        for gone in old.values():
            self._sockets.drop(gone.socket)
        self._take_early()

    def extend(self, channels: Sequence[ChannelId], peers: Mapping[int, str]) -> None:
        """See ``HostLinks.extend``."""
        self._routes.extend(channels)
        for host, address in peers.items():
            if host != self._host and host not in self._peers:
                self._add(host, address, self._call(host, address))
        self._take_early()

    def part(self, hosts: Iterable[int]) -> None:
        """See ``HostLinks.part``."""
        for host in hosts:
            self._parted.add(host)
            if (gone := self._peers.pop(host, None)) is not None:
                self._sockets.drop(gone.socket)

    def _add(self, host: int, address: str, socket: zmq.Socket[bytes]) -> None:
        packer = Packer(self._routes, self._host, self._incarnation, self._limit)
        self._peers[host] = Peer(address, socket, packer)

    def _take_early(self) -> None:
        early, self._early = self._early, []
        for head, parts in early:
            self._take(head, parts)
        if self._arrived:
            self._bell.ring()

    def _call(self, host: int, address: str) -> zmq.Socket[bytes]:
        return self._sockets.call(zmq.PUSH, Lane.DATA, address, self._public, f"host {host}")

    def check(self) -> None:
        """See ``HostLinks.check``."""
        for peer in self._peers.values():
            self._sockets.check(peer.socket, needed=False)  # at the end of a run it may leave before this host

    def post(self, host: int, frame: Payload, channels: Iterable[ChannelId]) -> None:
        """See ``HostLinks.post``."""
        if host in self._parted:
            return  # credit of the last frames that came from there
        if host not in self._peers:
            raise LinkError(f"no link from host {self._host} to host {host}; expected one of {sorted(self._peers)}")
        self._outbox.append((host, self._routes.numbers(channels), frame))
        self._bell.ring()

    def flush(self) -> None:
        """Pass one message for each host to ZeroMQ; wakes the polling thread again if frames are left."""
        while self._outbox:
            host, numbers, frame = self._outbox.popleft()
            if host not in self._parted:
                self._peers[host].waiting.append((numbers, frame))
        for peer in self._peers.values():
            if peer.waiting:
                peer.socket.send_multipart(split(peer.packer.pack(peer.waiting)), zmq.NOBLOCK)
                if peer.waiting:
                    self._bell.ring()

    def flush_all(self) -> None:
        """Pass all frames to ZeroMQ; raises as ``flush`` does."""
        self.flush()
        while any(peer.waiting for peer in self._peers.values()):
            self.flush()

    def receive(self) -> None:
        """Receive a bounded number of bytes from ZeroMQ."""
        size = 0
        for _ in range(BURST_MESSAGES):
            if size > BURST_BYTES or not self.socket.poll(0):
                return
            parts = joined([frame.buffer for frame in self.socket.recv_multipart(copy=False)])
            size += sum(map(len, parts))
            self._take(read_head(parts[0], self._limit), parts[1:])

    def _take(self, head: Head, parts: Sequence[Part]) -> None:
        if head.incarnation < self._incarnation:
            self.stale += 1
        elif (head.incarnation, head.epoch) > (self._incarnation, self._routes.epoch):
            self._early.append((head, parts))  # its sender has joined, or extended its routes, before this host
        else:
            if head.sender not in self._unpackers:
                self._unpackers[head.sender] = Unpacker(self._routes, head.sender, self._limit)
            self._arrived += self._unpackers[head.sender].unpack(head, parts)

    @property
    def senders(self) -> list[zmq.Socket[bytes]]:
        """The sockets on which frames are sent."""
        return [peer.socket for peer in self._peers.values()]

    def take(self) -> list[Arrival]:
        """The frames received since the last call."""
        arrived, self._arrived = self._arrived, []
        return arrived


class HostLinks:
    """All links of a host.

    Raises:
        LinkError: the controller's address is malformed, or the interface is not this machine's.
    """

    def __init__(
        self,
        keys: HostKeys,
        host: int,
        controller: str,
        interface: str = "127.0.0.1",
        silence_s: float = SILENCE_S,
        peers: int = PEERS,
        limit: int = LIMIT,
    ) -> None:
        # ``silence_s``: seconds without an answer after which another machine counts as lost
        # ``keys``: the hosts' keys of the run; peers with other keys are refused
        self._sockets = CurveSockets(keys.public, keys.secret, frozenset([keys.public]), silence_s)
        self._bell = Wakeup()
        self._closed = False
        # ``limit``: maximum size of a frame in bytes, at both ends
        # ``interface``: address of this machine at which it listens for other hosts, and at which they reach it
        # ``controller``: address of the ``ControlServer``
        try:
            self._control = ControlClient(self._sockets, self._bell, keys, host, controller)
            socket, port = self._sockets.listen(zmq.PULL, Lane.DATA, interface, peers=peers)
            address = f"tcp://{interface}:{port}"
            self._data = DataLink(self._sockets, self._bell, keys, host, socket, address, limit)
        except LinkError:
            self._bell.close()
            self._sockets.close({})
            raise
        self._poller = zmq.Poller()
        for readable in (self._bell, *self._sockets.readable, self._control.socket, self._data.socket):
            self._poller.register(readable, zmq.POLLIN)

    @property
    def data_address(self) -> str:
        """The address at which other hosts reach this one; part of the hello."""
        return self._data.address

    @property
    def incarnation(self) -> int:
        """The incarnation joined last; 0 before the first."""
        return self._control.incarnation

    @property
    def stale(self) -> int:
        """Number of messages of older incarnations that were dropped."""
        return self._control.stale + self._data.stale

    @property
    def refused(self) -> int:
        """Number of peers refused because of a wrong key."""
        return self._sockets.refused

    def join(self, incarnation: int, peers: dict[int, str], channels: Sequence[ChannelId]) -> None:
        """Join an incarnation after a welcome; called from the polling thread once older workers no longer post."""
        # Queued frames of the older incarnation are dropped; early frames of this one are returned by the next poll.
        if incarnation <= self.incarnation:
            raise LinkError(f"cannot join incarnation {incarnation}; this host is in {self.incarnation} already")
        self._control.incarnation = incarnation
        self._data.join(incarnation, peers, channels)

    def extend(self, channels: Sequence[ChannelId], peers: Mapping[int, str] = MappingProxyType({})) -> None:
        """Begin the next epoch of the topology; called from the polling thread."""
        # Frames that other hosts have sent in this epoch are returned by the next poll; earlier channels stay.
        self._data.extend(channels, peers)

    def part(self, hosts: Iterable[int]) -> None:
        """Close the links to hosts that have left, or never took part; called from the polling thread."""
        # What is posted to them is dropped.
        self._data.part(hosts)

    def say(self, message: HostMessage) -> None:
        """Send a message to the controller; from any thread, never blocks."""
        self._control.send(message)

    def post(self, host: int, frame: Payload, channels: Iterable[ChannelId]) -> None:
        """Send a frame to another host, once for all these channels; from any thread, never blocks."""
        # Frames posted by one thread to one host arrive in order. A credit goes to the host of the channel's sender.
        self._data.post(host, frame, channels)

    def wake(self) -> None:
        """Make the current or the next poll return at once; from any thread."""
        self._bell.ring()

    def poll(self, timeout_ms: int) -> Received:
        """Send queued messages, and receive; waits for at most ``timeout_ms``, and may return without a message."""
        ready = dict(self._poller.poll(timeout_ms))
        if self._bell.fileno() in ready:
            self._bell.hush()
        self._control.flush()
        if self._control.socket in ready:
            self._control.receive()
        self._data.flush()
        self._sockets.attend(ready)
        if self._data.socket in ready:
            self._data.receive()
        return Received(self._control.take(), self._data.take())

    def check(self) -> None:
        """Check the connections to the driver and the other hosts; called periodically from the polling thread."""
        self._sockets.check(self._control.socket, needed=True)
        self._data.check()

    def take_leave(self, within_ms: int) -> bool:
        """Wait for the answer to a goodbye, which was said; from the polling thread. Nothing else is received any more.

        Returns:
            Whether the driver has all that was said; otherwise the connection to it is lost, or time is up.
        """
        self._control.flush()
        self._data.flush()
        deadline_ns = time.monotonic_ns() + within_ms * 1_000_000
        while not self._control.has_parted and self._sockets.stands(self._control.socket):
            left_ms = (deadline_ns - time.monotonic_ns()) // 1_000_000
            if left_ms <= 0:
                break
            self._control.socket.poll(min(left_ms, LOOK_MS))
            self._control.receive()
        return self._control.has_parted

    def close(self, linger_ms: int = 0, frames: bool = False) -> None:
        """Close all links from the polling thread; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._bell.close()
        self._control.flush()
        lingering = {self._control.socket: linger_ms}
        if frames:
            self._data.flush_all()
            lingering |= dict.fromkeys(self._data.senders, linger_ms)
        self._sockets.close(lingering)
