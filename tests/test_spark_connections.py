"""Connections that end: what hosts notice by themselves, by ZeroMQ's word and not by silence."""

from __future__ import annotations

from links_setting import AB, CHANNELS, TURNS, WORD, Net, Wire, net

from fries_nb.errors import LinkError
from fries_nb.spark.control import ControlServer
from fries_nb.spark.links import HostLinks
from fries_nb.spark.wire import Credit

__all__ = ["net"]


def until_broken(net: Net, host: HostLinks) -> str:
    """Turn until the host finds a connection lost; returns its words."""
    for _ in range(TURNS):
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
        first.post(1, Credit(1), [AB])
        net.until(lambda: bool(net.frames[1]))
        first.check()
        wire.cut()
        assert until_broken(net, first).startswith("the connection to host 1 broke")
        second.check()
