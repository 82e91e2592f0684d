"""The way of frames and credit between the workers of a host, and between them and the links to other hosts.

Workers of one host exchange frames by reference. For another host a frame is posted once for all of its channels, and
the credit that a worker returns once for all of its senders there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from fries_nb.host.host_loop import HostLoop
from fries_nb.host.hosted_worker import HostedWorker
from fries_nb.protocol.frames import Bundle, deliveries
from fries_nb.protocol.messages import ChannelId, Frame, MovedBins, WorkerId
from fries_nb.transport.wire import Credit
from fries_nb.worker.events import Arrived, BinsArrived, Event, Granted
from fries_nb.worker.outbox import SendFrame


class HostLink(Protocol):
    """Sends frames to other hosts; what is posted to one host arrives in order."""

    def post(self, host: int, frame: Frame | Bundle | Credit | MovedBins, channels: tuple[ChannelId, ...]) -> None:
        """Send a frame to channels of another host; from any thread."""

    def wake(self) -> None:
        """Have the control thread look after the host now; from any thread."""


class FrameRouter:
    """Delivers frames to their receivers' mailboxes, and credit to their senders'; called from any thread.

    Args:
        links: the links to other hosts.
        host_of: worker to the index of its host, for all workers of the region.
        loop_of: worker of this host to its loop and its mailbox.
    """

    def __init__(
        self,
        links: HostLink,
        host_of: Mapping[WorkerId, int],
        loop_of: Mapping[WorkerId, tuple[HostLoop, HostedWorker]],
    ) -> None:
        self._links = links
        self._host_of = dict(host_of)
        self._loop_of = loop_of
        self._unmade: frozenset[WorkerId] = frozenset()
        self._added: Mapping[WorkerId, int] = {}

    def leave_out(self, workers: Iterable[WorkerId]) -> None:
        """Drop what comes for workers of this host that could not be made, until they are taken back."""
        self._unmade = frozenset(workers)

    def place(self, placement: Mapping[WorkerId, int], added: Mapping[WorkerId, int]) -> None:
        """Add workers with the indices of their hosts; removed ones stay known, for the last credit to them.

        Args:
            placement: worker to the index of its host.
            added: worker to the epoch in which it was added to the running dataflow, if it was.
        """
        self._host_of = {**self._host_of, **placement}
        self._added = added

    def post(self, worker: WorkerId, event: Event) -> None:
        """Post an event to a worker of this host."""
        loop, hosted = self._loop_of[worker]
        loop.post(hosted, event)

    def send(self, send: SendFrame) -> None:
        """Send a frame of a worker of this host."""
        frame = send.frame
        if isinstance(frame, Bundle):  # all of its receivers are on one host
            self._send_bundle(send.channels, frame)
            return
        remote: dict[int, list[ChannelId]] = {}
        for channel in send.channels:
            if channel.receiver in self._unmade:
                continue  # its earlier self, which was removed, has a mailbox still
            if channel.receiver in self._loop_of:
                self.post(channel.receiver, Arrived(channel, frame))
            else:
                remote.setdefault(self._host_of[channel.receiver], []).append(channel)
        for host, channels in remote.items():
            self._links.post(host, frame, tuple(channels))

    def _send_bundle(self, channels: tuple[ChannelId, ...], bundle: Bundle) -> None:
        if channels[0].receiver in self._loop_of:
            self._deliver(channels, bundle)
        else:
            self._links.post(self._host_of[channels[0].receiver], bundle, channels)

    def grant(self, sizes: Mapping[ChannelId, int]) -> None:
        """Return credit to the senders of these channels, in bytes."""
        remote: dict[int, list[ChannelId]] = {}
        for channel, size in sizes.items():
            if channel.sender in self._unmade:
                continue
            if channel.sender in self._loop_of:
                self._return(channel, size)
            else:
                remote.setdefault(self._host_of[channel.sender], []).append(channel)
        for host, channels in remote.items():
            self._links.post(host, Credit(tuple([sizes[channel] for channel in channels])), tuple(channels))

    def ship(self, bins: MovedBins) -> None:
        """Send state to the worker that owns it now."""
        if bins.to in self._loop_of:
            self.post(bins.to, BinsArrived(bins))
        else:
            self._links.post(self._host_of[bins.to], bins, ())

    def receive(self, channels: tuple[ChannelId, ...], frame: Frame | Bundle | Credit) -> None:
        """Deliver a frame from another host to its channels' receivers, or credit to their senders."""
        if isinstance(frame, Credit):
            for channel, size in zip(channels, frame.sizes, strict=True):
                self._return(channel, size)
        else:
            self._deliver(channels, frame)

    def _deliver(self, channels: tuple[ChannelId, ...], frame: Frame | Bundle) -> None:
        for channel, own in deliveries(channels, frame):
            if channel.receiver not in self._unmade and not self._is_of_earlier(channel.receiver, channel):
                self.post(channel.receiver, Arrived(channel, own))

    def _return(self, channel: ChannelId, size: int) -> None:
        if channel.sender in self._unmade or self._is_of_earlier(channel.sender, channel):
            return
        try:
            loop, hosted = self._loop_of[channel.sender]
        except KeyError:
            return  # the sender was removed, and has come back on another host
        loop.post_credit(hosted, Granted(channel, size))

    def _is_of_earlier(self, worker: WorkerId, channel: ChannelId) -> bool:
        """Whether a channel is that of an earlier worker of this id, which was taken back or removed.

        The end of a channel to a worker that could not be made is awaited by none, and may come when it was made anew.
        """
        return channel.epoch < self._added.get(worker, 0)
