"""How a worker adopts the next epoch of the topology: it gets channels to and from workers that are added or leave.

New channels begin at once: they grant their senders credit, and a marker has to come on them too. A channel that is
gone is ended by its sender, behind all that was sent on it, and stays until that end has come. Then the epoch is
adopted, and the controller is told. No marker is on its way meanwhile (see ``controller.rewiring``), so none comes on
some of the channels and not on others.
"""

from __future__ import annotations

from fries_nb.messages import ChannelId
from fries_nb.topology.wiring import Wiring
from fries_nb.worker.alignment import Alignment
from fries_nb.worker.events import Grant, Rewired
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.outbox import Outbox


class TopologyAdoption:
    """The wiring that a worker is going over to.

    Args:
        inbox: of the worker.
        alignment: of the worker.
        outbox: of the worker.
        open_: the in-channels that have not ended; it is extended.
        window: bytes that may be under way to the worker on each channel.
    """

    def __init__(
        self, inbox: Inbox, alignment: Alignment, outbox: Outbox, open_: set[ChannelId], window: int
    ) -> None:
        self._inbox = inbox
        self._alignment = alignment
        self._outbox = outbox
        self._open = open_
        self._window = window
        self._next: Rewired | None = None

    def begin(self, present: Wiring, event: Rewired, ended: bool) -> list[Grant]:
        """Begin with the new channels; returns the credit for their senders.

        Args:
            present: the worker's wiring.
            event: has the next one.
            ended: the worker has ended, and so do its new channels.

        Raises:
            ProtocolError: rows wait on a channel that is gone.
        """
        fresh = [channel for channel in event.wiring.incoming if channel not in present.incoming]
        self._inbox.extend(fresh)
        self._alignment.extend(fresh)
        self._open.update(fresh)
        self._outbox.rewire(event.wiring.edges, ended)
        self._next = event
        return [Grant(channel, self._window) for channel in fresh]

    def adopted(self, present: Wiring) -> Rewired | None:
        """The next wiring, once every channel that is gone has ended; ``None`` until then, and afterwards."""
        adopted = self._next
        if adopted is None or self._open - set(adopted.wiring.incoming):
            return None
        for channel in set(present.incoming) - set(adopted.wiring.incoming):
            self._inbox.drop(channel)
        self._next = None
        return adopted
