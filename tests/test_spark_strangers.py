"""Who is let in: only peers that hold the run's keys; no byte of others is looked at."""

from __future__ import annotations

import pickle
from contextlib import ExitStack

import pytest
import zmq
from links_setting import AB, TURNS, WORD, Net, net
from zmq.utils.monitor import recv_monitor_message

from fries_nb.spark.control import ControlServer, Heard
from fries_nb.spark.envelopes import (
    Goodbye,
)
from fries_nb.spark.keys import HostKeys, RunKeys, make_keys
from fries_nb.spark.links import HostLinks
from fries_nb.spark.wire import Arrival, Credit

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
        net.hosts[0].post(1, Credit(1), [AB])
        net.until(lambda: bool(net.heard) and bool(net.frames[1]))
        assert [heard.message for heard in net.heard] == [WORD]
        assert net.frames[1] == [Arrival((AB,), Credit(1))]
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
            for _ in range(TURNS):
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
        for _ in range(TURNS):
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
