"""The worker of an operator that awaits: calls are in flight between two events, and rows of several frames in hand.

A marker is applied where nothing is in flight. One that comes on a channel waits in the inbox behind the rows in hand,
as at every worker. One that comes by a fast control message, ahead of rows in hand, would divide them in mid-call, so
the worker begins no further row and lets those in flight leave: then the marker is at a boundary like any other, and
the rest of the rows is behind it. With ``on_change="retry"`` a change does not wait: what is in flight is cancelled,
and those rows are behind the marker as well. So a snapshot never has to hold a call.

    what comes                          while calls are in flight
    data                                is begun as far as the concurrency allows, also of the next frame
    a marker on a channel               waits for all rows ahead of it; the next frames are not begun
    a marker by a control message       waits for the calls in flight, whatever credit is left: no further row begins
    the end of a guard, of old rows     waits as well, since the chain is compiled anew
    what the controller has sent        waits behind that, in order, but for the cancellation of a marker
    behind one that waits
    anything else                       is processed at once: states and results are those of rows that have left
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from fries_nb.operators.awaited import AwaitedExecutor
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance
from fries_nb.protocol.messages import (
    Cancel,
    ChannelId,
    Control,
    Data,
    Fcm,
    Marker,
    Reconfigure,
    Settle,
    Unguard,
    WorkerId,
)
from fries_nb.worker.events import Grant
from fries_nb.worker.inbox import owed
from fries_nb.worker.worker import Worker

Frames = Sequence[tuple[ChannelId, Data]]


class AwaitingWorker(Worker):
    """The worker of an operator whose function is a coroutine; the arguments are those of ``Worker``."""

    def __init__(self, *args: Any) -> None:
        self._deferred: deque[tuple[WorkerId, Control]] = deque()  # what waits for the calls in flight, in order
        self._portions: deque[Frames] = deque()  # the frames of each batch in hand, which its executor has as one part
        super().__init__(*args)

    def _compiled(self, instances: Sequence[Instance]) -> ChainExecutor:
        return AwaitedExecutor(instances[0], self.interrupt, self.wiring.branches, self.wiring.left)

    @property
    def _calls(self) -> AwaitedExecutor:
        assert isinstance(self._running, AwaitedExecutor), "it is made by ``_compiled``"
        return self._running

    # ---- events

    def _direct(self, worker: WorkerId, control: Control) -> None:
        if isinstance(control, Cancel) or not (self._deferred or self._waits_for_calls(control)):
            super()._direct(worker, control)
            return
        self._deferred.append((worker, control))
        if isinstance(control, Fcm) and self._is_retried(control.marker):
            self._calls.rewind()
        self._calls.begins = False
        self._pass_deferred()

    def _waits_for_calls(self, control: Control) -> bool:
        return self._calls.in_flight and isinstance(control, Fcm | Settle | Unguard)

    def _is_retried(self, marker: Marker) -> bool:
        """Whether rows in flight are to be called again by the function behind this marker."""
        operator = self.instances[0].operator
        is_change = isinstance(marker.action, Reconfigure) and operator.name in marker.action.targets
        return is_change and operator.awaiting is not None and operator.awaiting.on_change == "retry"

    def _pass_deferred(self) -> None:
        """Process what has waited for the calls in flight, if there are none any more."""
        while self._deferred and not self._calls.in_flight:
            self._calls.begins = True
            super()._direct(*self._deferred.popleft())

    def give_back(self) -> None:
        """Let rows of dead letters in hand wait again; see ``Worker``."""
        calls, was_in_hand = self._calls, self._in_hand
        super().give_back()
        if was_in_hand and not self._in_hand:
            calls.drop()

    def _apply(self, marker: Marker, start: int) -> None:
        self.freezing.end()  # rows have not begun in their order, so all in hand count as begun: none is above the cut
        super()._apply(marker, start)

    # ---- work

    def _work(self, limit: int) -> bool:
        if self._deferred:
            self._advance(limit)
            self._pass_deferred()
            return not (self._deferred and self._calls.waits)
        more = super()._work(limit)
        return self._take_more() or (more and not (self._in_hand and self._calls.waits and not self._extracts))

    def _advance(self, limit: int) -> None:
        if self._owed:
            self._portions.append(self._owed)
            self._owed = []
        super()._advance(limit)
        self._end_portions()

    def _used_up(self) -> None:
        self._end_portions()
        super()._used_up()

    def _end_portions(self) -> None:
        """Return the credit and the tokens of the frames of which all rows have left."""
        while len(self._portions) > self._calls.parts:
            frames = self._portions.popleft()
            self._instructions += Grant.of(owed(frames))
            self._times.use_up_first(len(frames), self.outbox.changes)

    def _take_more(self) -> bool:
        """Take another frame in hand if calls of its rows could begin; returns whether there was one."""
        if not (self._in_hand and self._portions and self._calls.wants) or self._is_stopped or self._deferred:
            return False
        if self._transfer is not None or self._returning.waits or self._versions.under_way:
            return False
        taken = self._inbox.following(self._sender, self._portions[0][0][1])
        if taken is None:
            return False
        self._times.take_more(taken, self.outbox.version)
        self.outbox.turn_to(self.outbox.version, self._times.stamp)
        self.freezing.end()
        self.freezing.begin(taken[1].batch)
        self._portions.append([taken])
        self._meter.loaded([taken], self._calls.remaining)
        self._calls.load(self._sender, taken[1].batch)
        return True
