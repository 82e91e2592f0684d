"""Marker alignment, channel by channel, within a marker's scope.

A worker that is not a head applies a marker when it has come on every in-channel whose sender is in the scope. From
its first arrival on, a channel that has delivered it is blocked, so no tuple behind the marker is processed before a
tuple in front of it (Carbone et al.'s alignment, restricted to the scope as Fries section 5.3 asks). Channels from
outside the scope neither wait nor block. The end of a stream counts as every marker.

A marker that does not *hold* waits in the same way and blocks nothing; what is behind it is then told by other means.

Alignment never looks at the action, so reconfiguration and commit share it. What a marker id can go through:

    state       arrival, others awaited   last arrival   end of a channel       cancel      arrival again
    unseen      -> waiting, block         -> passed      (not yet concerned)    -> passed   -
    waiting     block                     -> passed      counts as arrival      -> passed   protocol error
    passed      dropped                   dropped        nothing                nothing     dropped

An ended worker still passes markers on, so one may come on an ended channel: it asks for nothing of that channel, but
those who wait for others learn of it.

>>> from fries_nb.messages import ChannelId, Commit, Marker, WorkerId
>>> a, b, c = (ChannelId(WorkerId(name, 0), WorkerId("X", 0)) for name in "ABC")
>>> marker = Marker(1, frozenset("ABX"), Commit(1))
>>> alignment = Alignment([a, b, c])
>>> alignment.arrived(marker, a), alignment.blocked
(None, {ChannelId(sender=WorkerId(operator='A', index=0), receiver=WorkerId(operator='X', index=0))})
>>> alignment.arrived(marker, b) is marker, alignment.blocked
(True, set())
"""

from __future__ import annotations

from collections.abc import Iterable

from fries_nb.errors import ProtocolError
from fries_nb.messages import ChannelId, Marker


class Alignment:
    """Which channels still owe which marker.

    Laws: an id completes at most once; ``blocked`` holds only channels on which a waiting marker has come.
    """

    def __init__(self, channels: Iterable[ChannelId]) -> None:
        self._live = set(channels)
        self._loose: set[int] = set()
        self._waiting: dict[int, tuple[Marker, set[ChannelId]]] = {}
        self._holding: dict[ChannelId, int] = {}
        self._passed: set[int] = set()

    @property
    def blocked(self) -> set[ChannelId]:
        """Channels that must not be read now."""
        return {channel for channel, holder in self._holding.items() if holder not in self._loose}

    def passed(self, marker_id: int) -> bool:
        """Whether this id has been applied or cancelled here."""
        return marker_id in self._passed

    def arrived(self, marker: Marker, channel: ChannelId, holds: bool = True) -> Marker | None:
        """A marker came on a channel. Returns it if it is complete and must be applied now.

        One that does not hold waits for the other channels as well, but blocks none.

        Raises:
            ProtocolError: it came twice on one channel, behind a marker that still holds the channel, or on a channel
                that is not in its scope.
        """
        if marker.id in self._passed:
            return None
        if not {channel.sender.operator, channel.receiver.operator} <= marker.scope:
            raise ProtocolError(f"marker {marker.id} came on {channel}, which is not in its scope")
        held = self._holding.get(channel)
        if held is not None:
            again = "twice" if held == marker.id else f"behind marker {held}, not yet applied,"
            raise ProtocolError(f"marker {marker.id} came {again} on {channel}; markers must not cross")
        _, awaited = self._waiting.setdefault(
            marker.id, (marker, {live for live in self._live if live.sender.operator in marker.scope})
        )
        awaited.discard(channel)
        if not holds:
            self._loose.add(marker.id)
        if channel in self._live:
            self._holding[channel] = marker.id
        return self._completed(marker.id)

    def ended(self, channel: ChannelId) -> list[Marker]:
        """No frame but markers follows on this channel. Returns the markers that are complete by that."""
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
        """A head applied this marker on an FCM; should it come on a channel, it is dropped."""
        self._pass(marker_id)

    def cancel(self, marker_id: int) -> None:
        """Forget the marker, now and for ever; idempotent, and commutes with its arrival."""
        self._pass(marker_id)

    def _completed(self, marker_id: int) -> Marker | None:
        marker, awaited = self._waiting[marker_id]
        if awaited:
            return None
        self._pass(marker_id)
        return marker

    def _pass(self, marker_id: int) -> None:
        self._passed.add(marker_id)
        self._loose.discard(marker_id)
        self._waiting.pop(marker_id, None)
        for channel in [held for held, holder in self._holding.items() if holder == marker_id]:
            del self._holding[channel]
