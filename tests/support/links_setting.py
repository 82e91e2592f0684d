"""A small net of links in one process, for the tests of links."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from patience import PATIENCE_S

from fries_nb.protocol.messages import ChannelId, WorkerId
from fries_nb.transport.control import ControlServer, Heard
from fries_nb.transport.envelopes import ControllerMessage, Hello, Said
from fries_nb.transport.links import HostLinks
from fries_nb.transport.sockets import RunKeys, make_keys
from fries_nb.transport.wire import Arrival

A, B, C = WorkerId("A", 0), WorkerId("B", 1), WorkerId("C", 1)
AB, AC = ChannelId(A, B), ChannelId(A, C)
CHANNELS = (AB, AC)
WORD = Said(())
"""A host's word in which nothing is said."""


def turns() -> Iterator[None]:
    """Turns of a loop that waits for an event: by time, since polls return at once while much arrives."""
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        yield


def batch(rows: int = 1) -> pa.RecordBatch:
    """So many rows of one column."""
    return pa.RecordBatch.from_pydict({"x": list(range(rows))})


@dataclass
class Net:
    """A controller and hosts, polled in turn by the test."""

    keys: RunKeys
    server: ControlServer
    hosts: list[HostLinks]
    heard: list[Heard] = field(default_factory=list)
    orders: list[list[ControllerMessage]] = field(default_factory=list)
    frames: list[list[Arrival]] = field(default_factory=list)

    def turn(self) -> None:
        self.heard += self.server.poll(5)
        for number, host in enumerate(self.hosts):
            control, data = host.poll(5)
            self.orders[number] += control
            self.frames[number] += data

    def until(self, happened: Callable[[], bool]) -> None:
        for _ in turns():
            if happened():
                return
            self.turn()
        raise AssertionError("it never happened")

    def add(self) -> HostLinks:
        links = HostLinks(self.keys.hosts, len(self.hosts), self.server.address)
        self.hosts.append(links)
        self.orders.append([])
        self.frames.append([])
        return links

    def peers(self) -> dict[int, str]:
        return {number: host.data_address for number, host in enumerate(self.hosts)}

    def join(self, incarnation: int) -> None:
        self.server.incarnation = incarnation
        for host in self.hosts:
            host.join(incarnation, self.peers(), CHANNELS)

    def peer(self, host: int) -> bytes:
        return next(heard.peer for heard in reversed(self.heard) if heard.host == host)


class Wire:
    """A TCP wire to an address that the test can cut, and that is whole again for who calls anew.

    Attributes:
        address: of this end.
    """

    def __init__(self, to: str) -> None:
        name, _, port = to.removeprefix("tcp://").rpartition(":")
        self._to = (name, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                pair = self._listening.accept()[0], socket.create_connection(self._to)
                self._ends += pair
                for one, other in (pair, pair[::-1]):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """End what is connected."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *what: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()


@pytest.fixture
def net() -> Iterator[Net]:
    """A controller and two hosts that have not yet spoken."""
    keys = make_keys()
    made = Net(keys, ControlServer(keys), [])
    made.add()
    made.add()
    yield made
    for host in made.hosts:
        host.close()
    made.server.close()


def hello(host: HostLinks) -> Hello:
    """What a host says first."""
    return Hello(host.data_address, 1, "here")
