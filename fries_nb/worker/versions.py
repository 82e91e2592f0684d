"""The next configuration of a worker: its preparation, and two configurations side by side.

**Preparation** is the input of dry runs, their start, and their results.

A dry run is concurrent with the worker, on copies of some keys' states and of a recent tuple. Copies can only be made
between two tuples, so a ``Prepare`` waits for the current tuple, and the fast control message (FCM) after it for the
next one, which matters if a function takes seconds for a tuple. So before a slice of a slow function the worker
*offers* the input of a dry run, and a shell that receives a ``Prepare`` within the slice uses the offer. Then only the
FCM waits for a tuple.

    Prepare arrives    the dry run uses            the worker receives
    between slices     the state at that moment    Directed(Prepare): it requests the dry run
    within a slice     the state at its beginning  Expected: the dry run has begun

**Two versions** are processed at the same time, selected by the tag of a tuple (multi-version).

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from fries_nb.errors import ProtocolError
from fries_nb.operators.dry_run import SAMPLES, DryRun, DryRunResult, Offer, Recent, dry_run, offer_of, refused
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance
from fries_nb.operators.state import keeps_state
from fries_nb.protocol.messages import ChannelId, Data, Marker, Prepare, Reconfigure, WorkerId
from fries_nb.worker.events import Instruction, TellController
from fries_nb.worker.inbox import Inbox

SLOW_NS = 20_000_000
"""Duration of a tuple in nanoseconds above which a function is slow, and dry runs are offered."""
SHARE = 100
"""Maximum cost of copying an offer, relative to the preceding slice."""

RecentAt = Callable[[int, int], tuple[Recent, ...]]


class Preparation:
    """The input of dry runs at one worker.

    Args:
        instances: the worker's operators, in the chain's order.
        recent: finds tuples for a rehearsal of the operator at a position of the chain, but no more than so many;
            called between two tuples.
        clock: returns nanoseconds.
    """

    def __init__(self, instances: Sequence[Instance], recent: RecentAt, clock: Callable[[], int]) -> None:
        self._instances = tuple(instances)
        self._recent = recent
        self._clock = clock
        self._offers: Mapping[WorkerId, Offer] = {}
        self._costs_ns = 0
        self._took_ns = 0

    def begin(self, order: Prepare, position: int, rehearses: bool) -> Instruction:
        """Begin to prepare a change of an operator; returns a dry run for the shell, or a refusal."""
        instance = self._instances[position]
        if order.payload:
            instance.expect(order.change, order.tagged)
        most = max(SAMPLES, order.examples)
        try:
            offer = offer_of(instance, self._recent(position, most) if rehearses else (), order.before)
        except Exception as error:  # noqa: BLE001 (pickling runs the user's code; the error is the answer)
            what = f"the state of {instance.worker.operator} cannot be copied for a trial"
            return TellController(refused(order.change, instance.worker, what, error).answer)
        return dry_run(order, offer)

    def trial(self, worker: WorkerId, order: Prepare) -> DryRun | None:
        """The dry run of a change whose ``Prepare`` arrived within a slice, if the worker has offered the input.

        May be called from any thread. The worker must then be sent ``Expected``.
        """
        offer = self._offers.get(worker)
        return None if offer is None or order.before else dry_run(order, offer)

    def offer(self) -> None:
        """Called at the start of a slice: offer the input of dry runs if tuples are slow."""
        if self._took_ns <= max(SLOW_NS, SHARE * self._costs_ns):
            return
        began = self._clock()
        try:
            offers = {
                instance.worker: offer_of(instance, self._recent(position, SAMPLES))
                for position, instance in enumerate(self._instances)
            }
        except Exception:  # noqa: BLE001 (a state that cannot be copied: a Prepare between slices answers the error)
            offers = {}
        self._offers = offers
        self._costs_ns = self._clock() - began

    def withdraw(self, took_ns: int, taken: int) -> None:
        """Called at the end of a slice: withdraw the offer, and measure the duration of a tuple."""
        self._offers = {}
        self._took_ns = took_ns // max(taken, 1)


def keep_ready(rehearsed: DryRunResult, instance: Instance) -> None:
    """Keep the prepared configuration until its marker arrives, unless the change was aborted meanwhile."""
    change = rehearsed.answer.change
    if rehearsed.ready is not None and instance.expects(change):
        instance.prepared[change] = rehearsed.ready


Spill = Callable[[Sequence[pa.RecordBatch]], Sequence[pa.RecordBatch]]


def is_tagged(marker: Marker) -> bool:
    """Whether the marker is of a multi-version change."""
    return isinstance(marker.action, Reconfigure) and marker.action.tagged


def is_of_shape(marker: Marker) -> bool:
    """Whether the marker is of a change of the shape."""
    return isinstance(marker.action, Reconfigure) and marker.action.epoch > 0


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
