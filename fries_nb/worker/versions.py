"""Processing of two configurations at the same time, selected by the tag of a tuple (multi-version; DESIGN, section 6).

A *tagged* change blocks no channel. Sources tag the tuples that they read after its marker with the next version, and
every frame carries its version. Until the marker has arrived on all channels, a worker may receive tuples of both
versions in any order, some of the new ones even ahead of the marker, since senders pass on new tuples before the
marker.

    a chain with                        a frame of the next version
    no target                           is processed as any other
    targets, none of the last row       is processed by forks of the targets, which have the new functions
    a target that keeps keyed state     is set aside, and processed after the last old one
    or is paused on a tuple

The last row is required for state: an old tuple must not see what a new one has written; and for pauses: the tuple that
waits for a fix is then always one of the current version.

Ahead of the marker, old frames may follow a new frame on its channel. So the credit of a new frame is returned at once,
since an old frame may wait for it; and tuples set aside beyond ``limit`` bytes are spilled to disk. After the marker
only new frames follow, and the channel is blocked as by any marker, so its credit bounds the queue. This cannot
deadlock: a sender that waits for this credit has passed the marker, and so have all workers upstream of it; so neither
old tuples nor the marker wait for that credit.

When the marker is complete the targets switch, as at any change; the work of forks counts as done after the switch, and
frames that were set aside return to the inbox, ahead of later ones.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import WorkerId
>>> from fries_nb.operators.instance import Ready
>>> instance = Instance(WorkerId("FM", 0), Operator("FM"), str.lower, audit=False)
>>> versions = Versions([instance], 0, Inbox([]), lambda chain: chain[0].function)
>>> instance.expect("u1", tagged=True)
>>> instance.prepared["u1"] = Ready(str.upper, None)
>>> versions.executor_of(0, str.lower)("Ab"), versions.executor_of(1, str.lower)("Ab")
('ab', 'AB')
>>> instance.switch("u1"), versions.complete(), versions.number
(True, None, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from fries_nb.errors import ProtocolError
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import keeps_state
from fries_nb.protocol.messages import ChannelId, Data, Marker, Reconfigure
from fries_nb.worker.inbox import Inbox

Spill = Callable[[Sequence[pa.RecordBatch]], Sequence[pa.RecordBatch]]


def is_tagged(marker: Marker) -> bool:
    """Whether the marker is of a multi-version change."""
    return isinstance(marker.action, Reconfigure) and marker.action.tagged


class Versions:
    """The processing of frames of the next version at one worker.

    Args:
        instances: the worker's operators, in the chain's order.
        number: number of tagged changes that have been applied.
        inbox: the worker's inbox, to which frames that were set aside are returned.
        limit: maximum number of bytes that are set aside in memory.
        spill: moves batches out of memory; returns the same rows, loaded on access.

    Attributes:
        number: number of tagged changes that have been applied, which is the version of current tuples.
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        number: int,
        inbox: Inbox,
        compiled: Callable[[list[Instance]], ChainExecutor],
        limit: int = 1 << 20,
        spill: Spill = list,
    ) -> None:
        self.number = number
        self._instances = tuple(instances)
        self._inbox = inbox
        self._compiled = compiled
        self._next: ChainExecutor | None = None
        self._forks: list[tuple[Instance, Instance]] = []
        self._aside: dict[ChannelId, list[Data]] = {}
        self._limit = limit
        self._spill = spill
        self._in_memory: list[tuple[ChannelId, int]] = []  # channel and index of frames set aside
        self._bytes_in_memory = self._bytes = self._most = 0

    def executor_of(self, version: int, present: ChainExecutor) -> ChainExecutor:
        """The executor for a frame of this version; ``present`` is the executor of the current version."""
        if version == self.number:
            return present
        if version != self.number + 1:
            worker = self._instances[0].worker
            raise ProtocolError(
                f"tuples of version {version} came to {worker}, where {self.number} and {self.number + 1} are possible"
            )
        return self._next or self._begin() or present

    def _begin(self) -> ChainExecutor | None:
        chain = []
        for instance in self._instances:
            ready = instance.tagged
            if ready is not None:
                self._forks.append((instance, instance.fork(ready)))
            chain.append(instance if ready is None else self._forks[-1][1])
        if self._forks:
            self._next = self._compiled(chain)
        return self._next

    def sets_aside(self, channel: ChannelId, frame: Data) -> bool:
        """Set a frame aside until the marker is complete, if it is of the next version and must wait.

        Returns whether the frame was set aside; the caller then returns its credit.
        """
        if not self.waits:
            return False
        frames = self._aside.setdefault(channel, [])
        self._in_memory.append((channel, len(frames)))
        frames.append(replace(frame, size=0))
        self._bytes_in_memory += frame.size
        self._bytes += frame.size
        self._most = max(self._most, self._bytes)
        if self._bytes_in_memory > self._limit:
            self._move_out()
        return True

    def _move_out(self) -> None:
        batches = [self._aside[channel][place].batch for channel, place in self._in_memory]
        for (channel, place), batch in zip(self._in_memory, self._spill(batches), strict=True):
            self._aside[channel][place] = replace(self._aside[channel][place], batch=batch)
        self._in_memory.clear()
        self._bytes_in_memory = 0

    @property
    def waits(self) -> bool:
        """Whether new tuples wait for old ones: a target pauses, is under guard, or keeps state."""
        for instance in self._instances:
            ready, operator = instance.tagged, instance.operator
            if ready is None:
                continue
            if keeps_state(operator, instance.function) or keeps_state(operator, ready.function):
                return True
            if operator.on_error == "pause" or ready.guard:
                return True
        return False

    def complete(self) -> None:
        """Make the next version the current one, since the marker is complete and the targets have switched."""
        self.number += 1
        for instance, fork in self._forks:
            instance.merge(fork)
        for channel, frames in self._aside.items():
            self._inbox.put_back(channel, frames)
        self._next = None
        self._forks.clear()
        self._aside.clear()
        self._in_memory.clear()
        self._bytes_in_memory = self._bytes = 0

    @property
    def under_way(self) -> bool:
        """Whether an operator prepares a tagged change, or tuples of the next version are set aside or processed."""
        return bool(self._next or self._aside) or any(instance.expects_tagged for instance in self._instances)

    def held(self) -> int:
        """Maximum number of bytes that were set aside at a time since the last call, on disk included."""
        most, self._most = self._most, self._bytes
        return most
