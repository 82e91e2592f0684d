"""A worker of a shadow: it keeps a commit waiting for a second at most, and a drop not at all.

Markers pass the operators of a shadow as all others, so its state is in checkpoints and comes to rest with the rest of
the dataflow. What would be processed in front of the marker of a commit is left out, and counted, when that has waited
for too long: the tuple in hand is all that a commit waits for then. When the shadow is dropped, all of it is left out.
"""

from __future__ import annotations

from typing import Any

from fries_nb.protocol.messages import ChannelId, Commit, Data, Fcm, Frame, Marker, Reconfigure
from fries_nb.worker.events import Arrived, Directed, Event, Grant
from fries_nb.worker.inbox import owed
from fries_nb.worker.worker import Worker

COMMIT_WAITS_NS = 1_000_000_000
"""Nanoseconds for which the marker of a commit waits for rows in front of it."""


class ShadowWorker(Worker):
    """The worker of an operator of a shadow; the arguments are those of ``Worker``.

    Attributes:
        left_out: number of rows that were left out here.
    """

    def __init__(self, *args: Any) -> None:
        self.left_out = 0
        self._since_ns: int | None = None
        self._is_dropped = False
        super().__init__(*args)

    @property
    def _leaves_out(self) -> bool:
        return self._is_dropped or (
            self._since_ns is not None and self._clock() - self._since_ns >= COMMIT_WAITS_NS
        )

    def handle(self, event: Event) -> None:
        """Process one event; note when a commit begins to wait, and that the shadow is dropped."""
        if isinstance(event, Arrived) and isinstance(event.frame, Marker) and isinstance(event.frame.action, Commit):
            self._since_ns = self._since_ns or self._clock()
        elif isinstance(event, Directed) and isinstance(event.control, Fcm):
            action, first = event.control.marker.action, self.instances[0].worker
            is_left = first in self._adoption.removed and isinstance(action, Reconfigure) and action.epoch > 0
            gives = isinstance(action, Reconfigure) and first.operator in dict(action.inherits).values()
            self._is_dropped = self._is_dropped or (is_left and not gives)
        super().handle(event)

    def _apply(self, marker: Marker, start: int) -> None:
        if isinstance(marker.action, Commit):
            self._since_ns = None
        super()._apply(marker, start)

    def _process(self, channel: ChannelId, frame: Frame, limit: int, merged: int) -> bool:
        if not (self._leaves_out and isinstance(frame, Data)):
            return super()._process(channel, frame, limit, merged)
        self._leave_out(frame.batch.num_rows)
        self._instructions += Grant.of(owed([(channel, frame)]))
        return True

    def _advance(self, limit: int) -> None:
        if self._leaves_out:
            if (unread := self._running.unread) is not None:
                self._leave_out(unread.num_rows)
                self._running.load(self._sender, unread.slice(0, 0))
            self._used_up()
        else:
            super()._advance(limit)

    def _leave_out(self, rows: int) -> None:
        self.left_out += rows
        self.reports.left_out += rows
