"""Links in a topology that grows: frames of an epoch wait for hosts that have not begun it; none is misdelivered."""

from __future__ import annotations

import pytest
from links_setting import AB, AC, CHANNELS, A, Net, batch, net

from fries_nb.errors import LinkError
from fries_nb.protocol.messages import ChannelId, Data, End, WorkerId
from fries_nb.transport.wire import Arrival, Credit

__all__ = ["net"]

AD = ChannelId(A, WorkerId("B", 2), 2)
GROWN = (AB, AD, AC)
"""The channels of the next epoch, in another order than the numbers that they get."""


def test_frames_of_the_next_epoch_wait_until_the_host_has_begun_it(net: Net) -> None:
    """Together with what the sender posts after them; on a channel that stays its frames keep their order."""
    net.join(1)
    sender, receiver = net.hosts
    sender.post(1, Data(batch(1)), [AB])
    net.until(lambda: len(net.frames[1]) == 1)
    sender.extend(GROWN)
    for frame, channel in ((Data(batch(2)), AD), (Data(batch(3)), AB), (End(), AD)):
        sender.post(1, frame, [channel])
    for _ in range(20):
        net.turn()
    assert net.frames[1] == [Arrival((AB,), Data(batch(1)))]
    receiver.extend(GROWN)
    net.until(lambda: len(net.frames[1]) == 4)
    assert net.frames[1][1:] == [
        Arrival((AD,), Data(batch(2))), Arrival((AB,), Data(batch(3))), Arrival((AD,), End()),
    ]  # fmt: skip


def test_frames_of_an_earlier_epoch_arrive_behind_the_extension(net: Net) -> None:
    """The receiver is ahead of the sender: the numbers of earlier channels have not changed."""
    net.join(1)
    sender, receiver = net.hosts
    receiver.extend(GROWN)
    sender.post(1, Credit((5,)), [AC])
    net.until(lambda: len(net.frames[1]) == 1)
    sender.extend(GROWN)
    sender.post(1, Credit((6,)), [AC])
    net.until(lambda: len(net.frames[1]) == 2)
    assert net.frames[1] == [Arrival((AC,), Credit((5,))), Arrival((AC,), Credit((6,)))]


def test_a_channel_that_is_taken_away_keeps_its_number(net: Net) -> None:
    """What was posted on it before arrives, in whatever epoch its receiver is."""
    net.join(1)
    sender, receiver = net.hosts
    for host in net.hosts:
        host.extend(GROWN)
    sender.post(1, End(), [AD])
    receiver.extend(CHANNELS)
    net.until(lambda: len(net.frames[1]) == 1)
    sender.extend(CHANNELS)
    sender.post(1, Credit((7,)), [AC])
    net.until(lambda: len(net.frames[1]) == 2)
    assert net.frames[1] == [Arrival((AD,), End()), Arrival((AC,), Credit((7,)))]


def test_an_added_host_is_reached(net: Net) -> None:
    """By hosts that are told its address with the channels to its workers; it joins with those alone."""
    net.join(1)
    newcomer = net.add()
    newcomer.join(1, net.peers(), CHANNELS)
    newcomer.extend(GROWN)
    with pytest.raises(LinkError, match="no link from host 0 to host 2"):
        net.hosts[0].post(2, End(), [AB])
    net.hosts[0].extend(GROWN, net.peers())
    net.hosts[0].post(2, Data(batch(4)), [AD])
    net.until(lambda: bool(net.frames[2]))
    assert net.frames[2] == [Arrival((AD,), Data(batch(4)))]


def test_links_to_a_host_that_has_left_are_closed_and_what_is_posted_to_it_is_dropped(net: Net) -> None:
    """The others are checked no more for its silence; a host that was never known may have left as well."""
    net.join(1)
    newcomer = net.add()
    newcomer.join(1, net.peers(), CHANNELS)
    newcomer.extend(GROWN)
    staying, other, _ = net.hosts
    for host in (staying, other):
        host.extend(GROWN, net.peers())
    staying.post(2, Data(batch(4)), [AD])
    net.until(lambda: bool(net.frames[2]))
    staying.post(2, Credit((1,)), [AD])
    staying.part([2, 7])
    staying.post(2, Credit((2,)), [AD])
    newcomer.close()
    net.hosts.pop()
    staying.post(1, Data(batch(5)), [AB])
    net.until(lambda: bool(net.frames[1]))
    staying.check()
    assert len(net.frames[2]) == 1


def test_other_channels_in_one_epoch_are_an_error(net: Net) -> None:
    """Hosts that number channels differently would misdeliver."""
    net.join(1)
    sender, receiver = net.hosts
    sender.extend(GROWN)
    receiver.extend((AB, ChannelId(A, WorkerId("Z", 0), 2), AC))
    sender.post(1, End(), [AD])
    with pytest.raises(LinkError, match="lists other channels"):
        net.until(lambda: bool(net.frames[1]))


def test_a_new_incarnation_begins_with_its_first_epoch(net: Net) -> None:
    """Frames that waited for an epoch of the one before are dropped."""
    net.join(1)
    sender, receiver = net.hosts
    sender.extend(GROWN)
    sender.post(1, Data(batch(1)), [AD])
    for _ in range(20):
        net.turn()
    net.join(2)
    sender.post(1, Data(batch(2)), [AB])
    net.until(lambda: bool(net.frames[1]))
    receiver.extend(GROWN)
    net.turn()
    assert net.frames[1] == [Arrival((AB,), Data(batch(2)))]
    assert receiver.stale == 1
