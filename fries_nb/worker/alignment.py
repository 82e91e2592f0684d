"""Marker alignment, channel by channel, within a marker's scope.

A worker that is not a head applies a marker when it has arrived on every input channel whose sender is in the scope.
From its first arrival on, each channel that has delivered it is blocked, so no tuple after the marker is processed
before a tuple ahead of it (alignment of Carbone et al., restricted to the scope as Fries section 5.3 requires).
Channels from outside the scope are neither awaited nor blocked. The end of a stream counts as every marker.

A marker that does not *hold* is awaited in the same way and blocks no channel; its caller distinguishes the tuples
after it otherwise (see ``versions``). Alignment is independent of the marker's action. The transitions of a marker:

    state       arrival, others awaited   last arrival   end of a channel       cancel      arrival again
    unseen      -> waiting, block         -> passed      (not yet concerned)    -> passed   -
    waiting     block                     -> passed      counts as arrival      -> passed   protocol error
    passed      dropped                   dropped        nothing                nothing     dropped

An ended worker still passes markers on, so one may arrive on an ended channel: it has no effect on that channel, but it
may complete alignment elsewhere.

>>> from fries_nb.messages import ChannelId, Commit, Marker, WorkerId
>>> a, b, c = (ChannelId(WorkerId(name, 0), WorkerId("X", 0)) for name in "ABC")
>>> marker = Marker(1, frozenset("ABX"), Commit(1))
>>> alignment = Alignment([a, b, c])
>>> alignment.arrived(marker, a), alignment.blocked
(None, {ChannelId(sender=WorkerId(operator='A', index=0), receiver=WorkerId(operator='X', index=0), epoch=1)})
>>> alignment.arrived(marker, b) is marker, alignment.blocked
(True, set())
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fries_nb.errors import ProtocolError
from fries_nb.messages import ChannelId, Marker

REMEMBERED = 10_000
"""Number of markers that have passed of which the ids are remembered at least."""


def forward_channels(channels: Iterable[ChannelId], feedback: Collection[str]) -> list[ChannelId]:
    """The channels on which markers are awaited; without those from operators that feed back to a loop's head."""
    return [channel for channel in channels if channel.sender.operator not in feedback]


class Alignment:
    """Markers that are awaited on channels.

    Invariants: an id completes at most once; ``blocked`` contains only channels on which an awaited marker has arrived,
    and blocked entries.

    Args:
        channels: the worker's input channels.
        issued: the id of the last marker issued before the worker was added; all up to it count as passed.

    Attributes:
        is_closed: whether entries are blocked.
    """

    def __init__(self, channels: Iterable[ChannelId], issued: int = 0) -> None:
        self._live = set(channels)
        self._issued = issued
        self._loose: set[int] = set()
        self._waiting: dict[int, tuple[Marker, set[ChannelId]]] = {}
        self._holding: dict[ChannelId, int] = {}
        self._passed: set[int] = set()
        self._entries: set[ChannelId] = set()
        self.is_closed = False

    @property
    def blocked(self) -> set[ChannelId]:
        """Channels that must not be read."""
        return {channel for channel, holder in self._holding.items() if holder not in self._loose} | self._entries

    def block_entries(self, operators: Collection[str]) -> None:
        """Block the channels from all but these operators, whatever arrives on the others."""
        self.is_closed = True
        self._entries = {channel for channel in self._live if channel.sender.operator not in operators}

    def open_entries(self) -> None:
        """Do not block them any more; idempotent."""
        self.is_closed = False
        self._entries = set()

    def passed(self, marker_id: int) -> bool:
        """Whether this id has been applied or cancelled here."""
        return marker_id <= self._issued or marker_id in self._passed

    def extend(self, channels: Iterable[ChannelId]) -> None:
        """Add channels; markers that have not arrived yet are awaited on them as well."""
        self._live.update(channels)

    def merge(self, other: Alignment) -> None:
        """Record as passed what has passed at another worker, since their operators share one, or did before.

        A marker that was cancelled at the other one, for example, is dropped here as well.
        """
        self._passed |= other._passed
        self._issued = max(self._issued, other._issued)

    def arrived(self, marker: Marker, channel: ChannelId, holds: bool = True) -> Marker | None:
        """Process the arrival of a marker on a channel; returns the marker if it is complete and must be applied.

        Args:
            marker: the marker.
            channel: the channel on which it arrived.
            holds: whether the channel is blocked until the marker is complete.

        Raises:
            ProtocolError: the marker arrived twice on one channel, after a marker that still blocks the channel, or on
                a channel outside its scope.
        """
        if self.passed(marker.id):
            return None
        if not {channel.sender.operator, channel.receiver.operator} <= marker.scope:
            raise ProtocolError(f"marker {marker.id} came on {channel}, which is not in its scope")
        held = self._holding.get(channel)
        if held is not None:
            again = "twice" if held == marker.id else f"behind marker {held}, not yet applied,"
            raise ProtocolError(f"marker {marker.id} came {again} on {channel}; markers must not cross")
        if marker.id not in self._waiting:
            awaited = {live for live in self._live if live.sender.operator in marker.scope}
            self._waiting[marker.id] = marker, awaited
        self._waiting[marker.id][1].discard(channel)
        if not holds:
            self._loose.add(marker.id)
        if channel in self._live:
            self._holding[channel] = marker.id
        return self._completed(marker.id)

    def ended(self, channel: ChannelId) -> list[Marker]:
        """Process the end of a channel; returns the markers that it completes."""
        self._live.discard(channel)
        self._holding.pop(channel, None)
        complete = []
        for marker_id, (_, awaited) in list(self._waiting.items()):
            awaited.discard(channel)
            marker = self._completed(marker_id)
            if marker is not None:
                complete.append(marker)
        return complete

    def applied(self, marker_id: int) -> None:
        """Record that a head applied this marker on an FCM; if it arrives on a channel, it is dropped."""
        self._pass(marker_id)

    def cancel(self, marker_id: int) -> None:
        """Discard the marker permanently; idempotent, and commutes with its arrival."""
        self._pass(marker_id)

    def _completed(self, marker_id: int) -> Marker | None:
        marker, awaited = self._waiting[marker_id]
        if awaited:
            return None
        self._pass(marker_id)
        return marker

    def _pass(self, marker_id: int) -> None:
        self._passed.add(marker_id)
        if len(self._passed) > 2 * REMEMBERED:  # each channel is a FIFO, so no marker arrives as late as that
            self._passed = set(sorted(self._passed)[REMEMBERED:])
        self._loose.discard(marker_id)
        self._waiting.pop(marker_id, None)
        for channel in [held for held, holder in self._holding.items() if holder == marker_id]:
            del self._holding[channel]
