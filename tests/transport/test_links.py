"""The links of hosts and driver: order, merging, incarnations, ends; control never waits for data."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from links_setting import AB, AC, CHANNELS, WORD, A, B, Net, batch, hello, net, turns
from patience import PATIENCE_S

from fries_nb.errors import LinkError
from fries_nb.protocol.messages import ChannelId, Data, Drain, Ended, Marker, Reconfigure
from fries_nb.transport.control import ControlServer, Gone, Heard
from fries_nb.transport.envelopes import Goodbye, Leave, Line, Printed, Probe, Said, ToWorker, Welcome
from fries_nb.transport.links import BURST_MESSAGES, HostLinks
from fries_nb.transport.sockets import make_keys
from fries_nb.transport.wire import Arrival, Credit

__all__ = ["net"]


def test_conversation(net: Net) -> None:
    """A host says hello, is welcomed, hears orders, and its answers and goodbye arrive in order."""
    host = net.hosts[0]
    host.say(hello(host))
    net.until(lambda: bool(net.heard))
    peer, number, incarnation, message = net.heard[0]
    assert (number, incarnation, message) == (0, 0, hello(host))
    net.server.incarnation = 1
    net.server.send(peer, Welcome(net.peers()))
    net.server.send(peer, ToWorker(A, Drain()))
    net.until(lambda: len(net.orders[0]) == 2)
    assert net.orders[0] == [Welcome(net.peers()), ToWorker(A, Drain())]
    host.join(1, net.peers(), CHANNELS)
    host.say(Said((Ended(A),)))
    host.say(Goodbye("done"))
    net.until(lambda: len(net.heard) == 3)
    assert [(heard.incarnation, heard.message) for heard in net.heard[1:]] == [
        (1, Said((Ended(A),))),
        (1, Goodbye("done")),
    ]


def test_frames_arrive_in_order(net: Net) -> None:
    """Data large and small, markers and credits of one sender arrive as posted; a marker to two channels once."""
    net.join(1)
    marker = Marker(7, frozenset({"A", "B"}), Reconfigure("r", frozenset({"B"})))
    large = batch(100_000)
    small = Data(batch(3), (5,))
    for frame, channels in ((small, [AB]), (Data(large), [AC]), (marker, CHANNELS), (Credit((9,)), [AB])):
        net.hosts[0].post(1, frame, channels)
    net.until(lambda: len(net.frames[1]) == 4)
    assert net.frames[1] == [
        Arrival((AB,), small),
        Arrival((AC,), Data(large)),
        Arrival(CHANNELS, marker),
        Arrival((AB,), Credit((9,))),
    ]


def test_merged_per_host(net: Net) -> None:
    """What is posted between two polls travels as one message: one receiving socket event brings all of it."""
    net.join(1)
    for number in range(50):
        net.hosts[0].post(1, Credit((number,)), [AB])
    net.hosts[0].poll(0)
    arrivals: list[Arrival] = []
    for _ in turns():
        arrivals = net.hosts[1].poll(10).data
        net.hosts[0].poll(0)
        if arrivals:
            break
    assert [arrival.frame for arrival in arrivals] == [Credit((number,)) for number in range(50)]


def test_posting_from_many_threads(net: Net) -> None:
    """Any thread may post and say; nothing is lost, and each thread's frames keep their order."""
    net.join(1)

    def work(thread: int) -> None:
        for number in range(200):
            net.hosts[0].post(1, Credit((thread * 1000 + number,)), [AB])
        net.hosts[0].say(Goodbye(str(thread)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    net.until(lambda: len(net.frames[1]) == 800 and len(net.heard) == 4)
    for thread in threads:
        thread.join()
    sizes = [arrival.frame.sizes[0] for arrival in net.frames[1] if isinstance(arrival.frame, Credit)]
    for first in range(0, 4000, 1000):
        assert [size for size in sizes if first <= size < first + 1000] == list(range(first, first + 200))


def test_control_is_not_delayed_by_data(net: Net) -> None:
    """With thousands of messages waiting, the poll that finds a control message brings one burst of data with it."""
    net.join(1)
    sender, receiver = net.hosts
    receiver.say(WORD)
    net.until(lambda: bool(net.heard))
    count = 8 * BURST_MESSAGES
    for number in range(count):
        sender.post(1, Credit((number,)), [AB])
        sender.poll(0)
    data: list[Arrival] = []
    for _ in turns():  # until the backlog has come as far as this host
        sender.poll(1)
        data += receiver.poll(10).data
        if data:
            break
    net.server.send(net.peer(1), Probe())
    net.server.poll(0)
    incoming = receiver._control.socket
    assert incoming.poll(PATIENCE_S * 1000)
    control, more = receiver.poll(0)
    assert control == [Probe()]
    assert len(more) <= BURST_MESSAGES
    assert len(data) + len(more) < count
    net.frames[1] = data + more
    net.until(lambda: len(net.frames[1]) == count)


def test_control_is_not_delayed_by_posts(net: Net) -> None:
    """With many large batches posted, a host hears control after one message of them has left, not after all."""
    net.join(1)
    sender = net.hosts[0]
    sender.say(WORD)
    net.until(lambda: bool(net.heard))
    net.server.send(net.peer(0), Probe())
    net.server.poll(0)
    assert sender._control.socket.poll(PATIENCE_S * 1000)
    large = Data(batch(50_000))
    for _ in range(20):
        sender.post(1, large, [AB])
    assert sender.poll(0).control == [Probe()]
    assert len(sender._data._peers[1].waiting) > 10
    net.until(lambda: len(net.frames[1]) == 20)


def test_older_incarnation_is_dropped(net: Net) -> None:
    """Frames, answers and orders of an older incarnation are dropped and counted; a hello always passes."""
    net.join(1)
    survivor, host = net.hosts
    survivor.post(1, Credit((1,)), [AB])
    survivor.say(WORD)
    host.say(WORD)
    net.until(lambda: len(net.heard) == 2 and len(net.frames[1]) == 1)
    net.server.incarnation = 2
    host.join(2, net.peers(), CHANNELS)
    net.server.incarnation = 1
    net.server.send(net.peer(1), Probe())
    net.server.incarnation = 2
    survivor.post(1, Credit((2,)), [AB])
    survivor.say(WORD)
    survivor.say(hello(survivor))
    net.until(lambda: host.stale == 2 and net.server.stale == 1 and len(net.heard) == 3)
    assert net.heard[2].message == hello(survivor)
    assert net.orders[1] == []
    survivor.join(2, net.peers(), CHANNELS)
    survivor.post(1, Credit((3,)), [AB])
    net.until(lambda: len(net.frames[1]) == 2)
    assert [arrival.frame for arrival in net.frames[1]] == [Credit((1,)), Credit((3,))]


def test_host_that_never_joined_is_heard(net: Net) -> None:
    """A host that is told to leave before it was welcomed can still say goodbye."""
    net.server.incarnation = 3
    net.hosts[0].say(hello(net.hosts[0]))
    net.hosts[0].say(Goodbye("told to leave"))
    net.until(lambda: len(net.heard) == 2)
    assert [(heard.incarnation, heard.message) for heard in net.heard[1:]] == [(0, Goodbye("told to leave"))]
    assert net.server.stale == 0


def test_wake() -> None:
    """Waking ends a poll that would wait for ever, though nothing was heard; many wakes cost one poll."""
    server = ControlServer(make_keys())
    server.wake()
    server.wake()
    assert server.poll(-1) == []
    assert not server._poller.poll(0)
    server.close()


def test_early_frames_wait_for_the_welcome(net: Net) -> None:
    """A host that was welcomed first may send at once: its frames are kept until the other has joined too."""
    first, second = net.hosts
    first.join(1, net.peers(), CHANNELS)
    first.post(1, Data(batch(2)), [AB])
    first.post(1, Credit((1,)), [AC])
    net.until(lambda: bool(second._data._early))
    assert net.frames[1] == []
    second.join(1, net.peers(), CHANNELS)
    net.until(lambda: len(net.frames[1]) == 2)
    assert net.frames[1] == [Arrival((AB,), Data(batch(2))), Arrival((AC,), Credit((1,)))]


def test_replaced_host(net: Net) -> None:
    """After a failure a new attempt of a host takes its number, at another address; the old is told to leave."""
    net.hosts[1].say(WORD)
    net.until(lambda: bool(net.heard))
    net.join(1)
    net.hosts[0].post(1, Data(batch()), [AB])
    net.until(lambda: len(net.frames[1]) == 1)
    old, old_peer = net.hosts[1], net.peer(1)
    fresh = HostLinks(net.keys.hosts, 1, net.server.address)
    net.hosts[1] = fresh
    try:
        net.join(2)
        net.server.send(old_peer, Leave("survivor"))
        for _ in turns():
            net.server.poll(1)
            if orders := old.poll(10).control:
                break
        assert orders == [Leave("survivor")]
        net.hosts[0].post(1, Data(batch()), [AB])
        net.until(lambda: len(net.frames[1]) == 2)
    finally:
        old.close()


def test_gone_host_is_noticed_once(net: Net) -> None:
    """Sending to a host whose connection is closed is reported as ``Gone`` in its place, once."""
    net.hosts[0].say(WORD)
    net.until(lambda: bool(net.heard))
    peer = net.peer(0)
    net.hosts.pop(0).close()
    for _ in turns():
        net.server.send(peer, Probe())
        net.heard += net.server.poll(1)
        if len(net.heard) > 1:
            break
    assert net.heard[1:] == [Heard(peer, 0, 0, Gone())]
    net.server.send(peer, Probe())
    assert net.server.poll(0) == []


def test_malformed_message_does_not_lose_others(net: Net) -> None:
    """Garbage from a peer that has the keys is one error; what came before and after it is still heard."""
    net.hosts[0].say(WORD)
    net.hosts[0].poll(0)
    net.hosts[0]._control.socket.send(b"garbage")
    net.hosts[0].say(Goodbye())
    errors = []
    for _ in turns():
        try:
            net.turn()
        except LinkError as error:
            errors.append(str(error))
        if len(net.heard) == 2:
            break
    assert [heard.message for heard in net.heard] == [WORD, Goodbye()]
    assert len(errors) == 1
    assert "7 bytes that are not a host's message" in errors[0]


def test_later_incarnation_than_the_run(net: Net) -> None:
    """A host cannot know an incarnation that the controller has not granted."""
    net.hosts[0].join(4, net.peers(), CHANNELS)
    net.hosts[0].say(WORD)
    with pytest.raises(LinkError, match="host 0 speaks of incarnation 4; the run is at 0"):
        net.until(lambda: False)


def test_oversized_frame_is_refused_at_the_sender(net: Net) -> None:
    """A frame above the limit never leaves; the error says both sizes."""
    small = HostLinks(net.keys.hosts, 0, net.server.address, limit=1000)
    try:
        small.join(1, net.peers(), CHANNELS)
        small.post(1, Data(batch(1000)), [AB])
        with pytest.raises(LinkError, match="expected at most 1000"):
            small.poll(0)
    finally:
        small.close()


def test_unknown_host_and_channel(net: Net) -> None:
    """Posting to nowhere is an error in the thread that posts."""
    with pytest.raises(LinkError, match="no link from host 0 to host 1"):
        net.hosts[0].post(1, Credit((1,)), [AB])
    net.join(1)
    with pytest.raises(LinkError, match=r"no channel B\[1\]->A\[0\]"):
        net.hosts[0].post(1, Credit((1,)), [ChannelId(B, A)])
    with pytest.raises(LinkError, match="cannot join incarnation 1"):
        net.hosts[0].join(1, {}, CHANNELS)


def test_port_taken(net: Net) -> None:
    """A port in use is one line that says what to do."""
    port = int(net.server.address.rpartition(":")[2])
    with pytest.raises(LinkError, match=rf"cannot listen at 127.0.0.1:{port}: .*in use.*choose another port"):
        ControlServer(net.keys, port=port)


def test_bad_addresses(net: Net) -> None:
    """An address that is none is refused at once."""
    with pytest.raises(LinkError, match="expected tcp://host:port"):
        HostLinks(net.keys.hosts, 0, "nowhere")
    with pytest.raises(LinkError, match=r"cannot listen at 198.51.100.7:0"):
        HostLinks(net.keys.hosts, 0, net.server.address, interface="198.51.100.7")


def test_last_words_are_sent(net: Net) -> None:
    """A goodbye said just before closing arrives."""
    net.hosts[0].say(WORD)
    net.until(lambda: bool(net.heard))
    net.hosts[0].say(Goodbye("end"))
    net.hosts.pop(0).close(linger_ms=int(PATIENCE_S * 1000))
    net.until(lambda: len(net.heard) == 2)
    assert net.heard[1].message == Goodbye("end")


def leaving(net: Net, meanwhile: Callable[[], None] = lambda: None) -> list[bool]:
    """What host 0 is told when it takes leave in a thread of its own; the driver listens, and does something else."""
    host, parted = net.hosts.pop(0), list[bool]()

    def leave() -> None:
        parted.append(host.take_leave(int(PATIENCE_S * 1000)))
        host.close()

    thread = threading.Thread(target=leave)
    thread.start()
    for _ in turns():
        meanwhile()
        net.heard += net.server.poll(5)
        if parted:
            break
    thread.join()
    return parted


@pytest.mark.parametrize("incarnation", [1, 2])
def test_a_host_that_takes_leave_is_heard_to_the_end(net: Net, incarnation: int) -> None:
    """However much it says, while probes come that it does not read any more; that of an older incarnation as well."""
    net.hosts[0].say(WORD)
    net.until(lambda: bool(net.heard))
    net.join(1)
    peer, net.server.incarnation = net.peer(0), incarnation
    for number in range(100):
        net.hosts[0].say(Printed((Line("A", f"{number}" * 50_000),)))
    net.hosts[0].say(Goodbye("end"))
    assert leaving(net, lambda: net.server.send(peer, Probe())) == [True]
    came = [type(heard.message) for heard in net.heard[1:] if not isinstance(heard.message, Gone)]
    assert came == ([Printed] * 100 + [Goodbye]) * (incarnation == 1)


def test_a_host_that_has_no_connection_does_not_wait_for_an_answer(net: Net) -> None:
    """Before the first one, and when it was lost."""
    alone = HostLinks(net.keys.hosts, 1, net.server.address)
    assert not alone.take_leave(int(PATIENCE_S * 1000))
    alone.close()
    net.hosts[0].say(WORD)
    net.until(lambda: bool(net.heard))
    net.server.close()
    net.hosts[0].say(Goodbye("end"))
    assert not net.hosts[0].take_leave(int(PATIENCE_S * 1000))


def held() -> tuple[int, int, int]:
    """Python threads, all threads and open files of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def converse() -> None:
    """Open, use, fail to open, and close everything that there is."""
    keys = make_keys()
    net = Net(keys, ControlServer(keys), [])
    net.add()
    net.add()
    net.join(1)
    net.hosts[0].say(WORD)
    net.hosts[0].post(1, Data(batch(200_000)), [AB])
    net.until(lambda: bool(net.frames[1]) and bool(net.heard))
    with pytest.raises(LinkError):
        ControlServer(keys, port=int(net.server.address.rpartition(":")[2]))
    with pytest.raises(LinkError):
        HostLinks(keys.hosts, 0, "nowhere")
    for close in (*(host.close for host in net.hosts), net.server.close):
        close()
        close()
    with pytest.raises(LinkError, match="closed"):
        net.hosts[0].post(1, Credit((1,)), [AB])
    with pytest.raises(LinkError, match="closed"):
        net.server.send(net.heard[0].peer, Probe())


def test_close_leaves_nothing() -> None:
    """After closing, and after failing to open, no thread (ours or ZeroMQ's) and no file is left."""
    converse()
    before = held()
    for _ in range(3):
        converse()
    for _ in turns():  # the system may list a thread for an instant after it was joined
        if held() == before:
            break
        os.sched_yield()
    assert held() == before
