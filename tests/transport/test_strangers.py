"""Who is let in: only peers that hold the run's keys; no byte of others is looked at."""

from __future__ import annotations

import os
import pickle
import resource
import socket
from contextlib import ExitStack, nullcontext
from pathlib import Path

import pytest
import zmq
from links_setting import AB, WORD, Net, net, turns
from patience import PATIENCE_S
from zmq.utils.monitor import recv_monitor_message

from fries_nb.errors import LinkError
from fries_nb.transport import sockets
from fries_nb.transport.control import ControlServer, Heard
from fries_nb.transport.envelopes import Goodbye
from fries_nb.transport.links import HostLinks
from fries_nb.transport.sockets import STRANGERS, HostKeys, RunKeys, make_keys, make_room
from fries_nb.transport.wire import Arrival, Credit

__all__ = ["net"]


def stranger(context: zmq.Context[zmq.Socket[bytes]], kind: int, keys: RunKeys, how: str) -> zmq.Socket[bytes]:
    """A socket without keys, with keys of its own making, or that takes the run's public key for its own."""
    socket = context.socket(kind)
    socket.linger = 0
    if how != "no key":
        server = keys.hosts.controller_public if kind == zmq.DEALER else keys.hosts.public
        public, secret = zmq.curve_keypair()
        socket.curve_serverkey = server if how != "knows only the address" else public
        socket.curve_publickey = keys.hosts.public if how == "stolen public key" else public
        socket.curve_secretkey = secret
    return socket


REFUSALS = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)


@pytest.mark.parametrize("how", ["no key", "wrong key", "knows only the address", "stolen public key"])
@pytest.mark.parametrize("lane", ["control", "data"])
def test_stranger_is_refused(net: Net, how: str, lane: str) -> None:
    """A peer without the run's keys is turned away on both lanes, and nothing that it sends is ever delivered."""
    net.join(1)
    kind, address = (zmq.DEALER, net.server.address) if lane == "control" else (zmq.PUSH, net.hosts[1].data_address)
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        raw = stack.enter_context(stranger(context, kind, net.keys, how))
        monitor = stack.enter_context(raw.get_monitor_socket(REFUSALS | zmq.EVENT_HANDSHAKE_SUCCEEDED))
        raw.connect(address)
        raw.send(pickle.dumps("boo"))
        net.until(lambda: bool(monitor.poll(0)))
        assert recv_monitor_message(monitor)["event"] & REFUSALS
        net.hosts[0].say(WORD)
        net.hosts[0].post(1, Credit((1,)), [AB])
        net.until(lambda: bool(net.heard) and bool(net.frames[1]))
        assert [heard.message for heard in net.heard] == [WORD]
        assert net.frames[1] == [Arrival((AB,), Credit((1,)))]
        raw.disable_monitor()


def test_wrong_key_is_counted(net: Net) -> None:
    """A key that is not the run's is counted, so that a page can say that somebody knocked."""
    with zmq.Context() as context, stranger(context, zmq.DEALER, net.keys, "wrong key") as raw:
        raw.connect(net.server.address)
        net.until(lambda: net.server.refused > 0)


def test_impostor_controller_hears_nothing(net: Net) -> None:
    """Hosts hold the controller's public key, not its secret: a host cannot pose as the controller."""
    hosts = net.keys.hosts
    impostor = ControlServer(RunKeys(hosts.secret, HostKeys(hosts.public, hosts.secret, hosts.public)))
    with zmq.Context() as context, context.socket(zmq.DEALER) as victim:
        victim.linger = 0
        victim.curve_serverkey = hosts.controller_public
        victim.curve_publickey, victim.curve_secretkey = hosts.public, hosts.secret
        with victim.get_monitor_socket(REFUSALS | zmq.EVENT_HANDSHAKE_SUCCEEDED) as monitor:
            victim.connect(impostor.address)
            victim.send(b"for the controller only")
            for _ in turns():
                assert impostor.poll(5) == []
                if monitor.poll(0):
                    break
            assert recv_monitor_message(monitor)["event"] & REFUSALS
            victim.disable_monitor()
    impostor.close()


def test_runs_do_not_meet(net: Net) -> None:
    """Two runs in one process each let in their own hosts and nobody else's."""
    other = make_keys()
    server = ControlServer(other)
    lost = HostLinks(other.hosts, 0, net.server.address)
    found = HostLinks(other.hosts, 0, server.address)
    try:
        lost.say(WORD)
        found.say(WORD)
        net.hosts[0].say(Goodbye())
        heard: list[Heard] = []
        for _ in turns():
            heard += server.poll(5)
            lost.poll(5)
            found.poll(5)
            net.turn()
            if heard and net.heard:
                break
        assert [each.message for each in heard] == [WORD]
        assert [each.message for each in net.heard] == [Goodbye()]
    finally:
        lost.close()
        found.close()
        server.close()


def test_keys_are_not_printed() -> None:
    """Keys survive pickling and show in no message; hosts do not get the controller's secret."""
    keys = make_keys()
    assert pickle.loads(pickle.dumps(keys)) == keys
    assert repr(keys) == "RunKeys(hosts=HostKeys())"
    assert keys.controller_secret not in pickle.dumps(keys.hosts)


GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
"""How ZeroMQ begins, before any key."""
HUGE = b"\x06" + (1 << 30).to_bytes(8, "big")
"""A command of 1 GiB follows."""


def resident() -> int:
    """Bytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def knock(address: str, timeout_s: float = PATIENCE_S) -> socket.socket:
    """A bare TCP connection."""
    name, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((name, int(port)), timeout=timeout_s)


@pytest.mark.parametrize("lane", ["control", "data"])
def test_stranger_cannot_fill_the_memory(net: Net, lane: str) -> None:
    """Who announces a frame of 1 GiB before it has shown a key is hung up on, and not read."""
    address = net.server.address if lane == "control" else net.hosts[1].data_address
    before = resident()
    with ExitStack() as stack:
        strangers = [stack.enter_context(knock(address)) for _ in range(3)]
        for raw in strangers:
            raw.sendall(GREETING + HUGE)
            with pytest.raises(ConnectionError):
                raw.sendall(bytes(64 << 20))
        assert resident() - before < 48 << 20


@pytest.mark.parametrize(
    "words",
    [b"", GREETING[:10], GREETING, GREETING + b"\x06" + (1 << 19).to_bytes(8, "big")],
    ids=["nothing", "half a greeting", "a greeting", "half a command"],
)
def test_idle_stranger_is_hung_up_on(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not show a key soon is let go, wherever it stops; that needs no poll, hence no interpreter lock."""
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 200)
    server = ControlServer(make_keys())
    try:
        with knock(server.address) as raw:
            raw.sendall(words)
            while raw.recv(4096):
                pass
    finally:
        server.close()


def held() -> int:
    """Open files of this process."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("lane", ["control", "data"])
def test_strangers_leave_files_to_open(net: Net, lane: str) -> None:
    """At a port at which too many do nothing, nobody gets in until some have gone; who is in notices nothing."""
    net.join(1)
    net.hosts[0].say(WORD)
    net.hosts[0].post(1, Credit((1,)), [AB])
    net.until(lambda: bool(net.heard) and bool(net.frames[1]))
    address = net.server.address if lane == "control" else net.hosts[1].data_address
    before = held()
    with ExitStack() as stack:
        for count in range(1, 1_101):
            net.turn() if count % 20 == 0 else None
            try:
                # Until it holds as many as it lets in, one that is not answered at once is one of a busy machine.
                stack.enter_context(knock(address, 0.5 if count > STRANGERS else PATIENCE_S))
            except TimeoutError:
                break
        net.hosts[0].say(WORD)
        net.hosts[0].post(1, Credit((2,)), [AB])
        net.until(lambda: len(net.heard) == 2 and len(net.frames[1]) == 2)
        assert STRANGERS < count < 3 * STRANGERS
        assert held() - before - count < 3 * STRANGERS
    late = HostLinks(net.keys.hosts, 2, net.server.address)
    net.hosts.append(late)
    net.orders.append([])
    net.frames.append([])
    net.join(2)
    late.say(WORD)
    net.hosts[0].post(1, Credit((3,)), [AB])
    net.until(lambda: len(net.heard) == 3 and len(net.frames[1]) == 3)


@pytest.mark.parametrize(("soft", "hard", "words"), [(1_024, 1_024, ""), (60, 4_096, ""), (60, 60, "may open 60 ")])
def test_files_that_may_be_opened(soft: int, hard: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the system allows are asked for; too few for a run are told before it starts."""
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    monkeypatch.setattr(os, "listdir", lambda _: ["0"] * 50)
    with pytest.raises(LinkError, match=words) if words else nullcontext():
        make_room(2)
    assert limits[-1] == (hard, hard)
