"""Connections that end: what hosts notice by themselves, by ZeroMQ's word and not by silence."""

from __future__ import annotations

import pytest
import zmq
from links_setting import AB, CHANNELS, WORD, Net, Wire, net, turns

from fries_nb.errors import LinkError
from fries_nb.transport import sockets
from fries_nb.transport.control import ControlServer, Heard
from fries_nb.transport.links import HostLinks
from fries_nb.transport.sockets import make_keys
from fries_nb.transport.wire import Credit

__all__ = ["net"]


def until_broken(net: Net, host: HostLinks) -> str:
    """Turn until the host finds a connection lost; returns its words."""
    for _ in turns():
        net.turn()
        try:
            host.check()
        except LinkError as error:
            return str(error)
    raise AssertionError("it never happened")


def test_host_notices_that_the_driver_has_gone(net: Net) -> None:
    """The transport tells, at once where the process has died, and not that nothing was said for a while."""
    host = net.hosts[0]
    host.say(WORD)
    net.until(lambda: bool(net.heard))
    host.check()
    net.server.close()
    net.server = ControlServer(net.keys)
    assert until_broken(net, host) == "the connection to the driver broke; likely it died, or the network failed"


def test_controller_that_cannot_be_reached(net: Net) -> None:
    """A host that never gets through gives up, in words."""
    address = net.server.address
    net.server.close()
    net.server = ControlServer(net.keys)
    early = HostLinks(net.keys.hosts, 0, address, silence_s=0.1)
    try:
        assert until_broken(net, early).startswith("the driver could not be reached for 0.1 s")
    finally:
        early.close()


def test_data_connection_that_broke_is_noticed(net: Net) -> None:
    """Made again it may lack frames, even if none follows; that a host has gone is the controller's to find."""
    first, second = net.hosts
    with Wire(second.data_address) as wire:
        for host in net.hosts:
            host.join(1, {0: first.data_address, 1: wire.address}, CHANNELS)
        first.post(1, Credit((1,)), [AB])
        net.until(lambda: bool(net.frames[1]))
        first.check()
        wire.cut()
        assert until_broken(net, first).startswith("the connection to host 1 broke")
        second.check()


def test_driver_that_is_busy_for_longer_than_a_handshake_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that is not let in, since the driver's Python does not answer, tries again; nothing it said is lost."""
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 100)
    keys = make_keys()
    server, refusals = ControlServer(keys), []
    host = HostLinks(keys.hosts, 0, server.address)
    monitor = host._sockets._connections[host._control.socket]._monitor
    try:
        host.say(WORD)
        for _ in turns():
            host.poll(10)
            refusals += [event for event, _ in monitor.take() if event == zmq.EVENT_DISCONNECTED]
            if len(refusals) > 1:
                break
        assert len(refusals) > 1
        heard: list[Heard] = []
        for _ in turns():
            heard += server.poll(5)
            host.poll(5)
            host.check()
            if heard:
                break
        assert [each.message for each in heard] == [WORD]
    finally:
        host.close()
        server.close()
