"""Adoption of the next topology epoch by a worker: channels of added workers open, channels of removed workers close.

New channels open at once: their senders are granted credit, and alignment awaits markers on them. A removed channel is
ended by its sender after the last frame, and is kept until that end arrives. Rows that wait for credit on a channel to
which no row is routed any more are sent first, so that the next epoch may remove it. When all removed channels have
ended, and no such row waits, the epoch is adopted, and the controller is notified for each operator of the chain that
was told. No marker is in transit meanwhile (see ``controller.membership``), so every marker arrives either on the old
channels or on the new ones.
"""

from __future__ import annotations

from fries_nb.protocol.messages import ChannelId, TopologyAdopted, WorkerId
from fries_nb.protocol.topology import Wiring
from fries_nb.worker.alignment import Alignment, forward_channels
from fries_nb.worker.events import Grant, Rewired
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.outbox import Outbox


class TopologyAdoption:
    """The transition of one worker to the wiring of the next topology epoch.

    Args:
        inbox: the worker's inbox.
        alignment: the worker's alignment.
        outbox: the worker's outbox.
        open_: the worker's input channels that have not ended; new channels are added to this set.
        window: maximum number of bytes in transit to the worker on each channel.
    """

    def __init__(self, inbox: Inbox, alignment: Alignment, outbox: Outbox, open_: set[ChannelId], window: int) -> None:
        self._inbox = inbox
        self._alignment = alignment
        self._outbox = outbox
        self._open = open_
        self._window = window
        self._next: Rewired | None = None
        self._members: list[WorkerId] = []

    @property
    def under_way(self) -> bool:
        """Whether removed channels have not ended yet, or rows wait on one that gets no more."""
        return self._next is not None

    def begin(self, present: Wiring, event: Rewired, ended: bool) -> list[Grant]:
        """Open the new channels; returns the credit for their senders.

        Args:
            present: the current wiring.
            event: the event with the next wiring.
            ended: whether the worker has ended; its new output channels then end at once.

        Raises:
            ProtocolError: rows are queued on a removed output channel.
        """
        self._members.append(event.member)
        if self._next is not None:
            return []  # the epoch is being adopted already
        fresh = [channel for channel in event.wiring.incoming if channel not in present.incoming]
        self._inbox.extend(fresh)
        self._alignment.extend(forward_channels(fresh, event.wiring.feedback))
        self._open.update(fresh)
        self._outbox.rewire(event.wiring.edges, ended)
        self._next = event
        return Grant.of(dict.fromkeys(fresh, event.wiring.window(self._window)))

    def adopted(self, present: Wiring) -> tuple[Wiring, list[TopologyAdopted]]:
        """The next wiring and the answers, once the epoch is adopted; before, the present one and no answer.

        Args:
            present: the current wiring.

        Raises:
            ProtocolError: a frame is queued on a removed input channel.
        """
        adopted = self._next
        if adopted is None or self._open - set(adopted.wiring.incoming) or self._outbox.drains:
            return present, []
        for channel in set(present.incoming) - set(adopted.wiring.incoming):
            self._inbox.drop(channel)
        answers = [TopologyAdopted(adopted.epoch, member) for member in self._members]
        self._next, self._members = None, []
        return adopted.wiring, answers
