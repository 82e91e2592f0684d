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

>>> from fries_nb.protocol.messages import ChannelId, Commit, Marker, WorkerId
>>> a, b, c = (ChannelId(WorkerId(name, 0), WorkerId("X", 0)) for name in "ABC")
>>> marker = Marker(1, frozenset("ABX"), Commit(1))
>>> alignment = Alignment([a, b, c])
>>> alignment.arrived(marker, a), alignment.blocked
(None, {ChannelId(sender=WorkerId(operator='A', index=0), receiver=WorkerId(operator='X', index=0), epoch=1)})
>>> alignment.arrived(marker, b) is marker, alignment.blocked
(True, set())

The effect of a marker's action on the operators of a chain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile

import pyarrow as pa

from fries_nb.dataflow.masking import masked_text
from fries_nb.errors import ColumnError, FriesError, OperatorError, ProtocolError
from fries_nb.operators.dead_letters import return_rows
from fries_nb.operators.dry_run import Recent, shown_tuple
from fries_nb.operators.executors import ChainExecutor
from fries_nb.operators.instance import Instance, row_as_json
from fries_nb.protocol.checkpoints import Position
from fries_nb.protocol.messages import (
    ApplyDeferred,
    Attempt,
    ChannelId,
    CloseCuts,
    Commit,
    Done,
    Failed,
    Freeze,
    Hold,
    Marker,
    MoveSplits,
    Reconfigure,
    Release,
    ReturnRows,
    WorkerId,
)
from fries_nb.worker.events import ClosePart, Instruction, TellController

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
        self._shut: set[ChannelId] = set()
        self.is_closed = False

    @property
    def blocked(self) -> set[ChannelId]:
        """Channels that must not be read."""
        held = {channel for channel, holder in self._holding.items() if holder not in self._loose}
        return held | self._entries | self._shut

    def shut(self, channels: Iterable[ChannelId]) -> None:
        """Add channels that are not read, and on which no marker is awaited, until they are open."""
        self._shut.update(channels)

    def open(self) -> None:
        """Read the channels that were shut from now on, and await later markers on them."""
        self._live |= self._shut
        self._shut = set()

    def abandon(self) -> None:
        """Read the channels that were shut to their end, which is all that comes on them; no marker does."""
        self._shut = set()

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
        """Process the arrival of a marker on a channel; returns the marker if it is complete and must be applied."""
        if self.passed(marker.id):
            return None
        if not {channel.sender.operator, channel.receiver.operator} <= marker.scope:
            raise ProtocolError(f"marker {marker.id} came on {channel}, which is not in its scope")
        held = self._holding.get(channel)
        if held is not None:
            again = "twice" if held == marker.id else f"behind marker {held}, not yet applied,"
            raise ProtocolError(f"marker {marker.id} came {again} on {channel}; markers must not cross")
        if marker.id not in self._waiting:
            self._waiting[marker.id] = marker, self._senders_in(marker)
        self._waiting[marker.id][1].discard(channel)
        if not holds:
            self._loose.add(marker.id)
        if channel in self._live:
            self._holding[channel] = marker.id
        return self._completed(marker.id)

    def told(self, marker: Marker) -> Marker | None:
        """Process a fast control message to a member of the scope that waits for the others; as ``arrived``."""
        if self.passed(marker.id):
            return None
        if marker.id not in self._waiting:
            self._waiting[marker.id] = marker, self._senders_in(marker)
        return self._completed(marker.id)

    def _senders_in(self, marker: Marker) -> set[ChannelId]:
        return {live for live in self._live if live.sender.operator in marker.scope}

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


GivenBefore = tuple[str, tuple[pa.RecordBatch | Recent, ...]]
"""A change, and the last results of the function that it has replaced."""
NOTHING_BEGUN: Mapping[int, int] = {}
SHOWN_CHARS = 2_000
"""Maximum length of a tuple in the details of an error."""


def effect_of(
    marker: Marker, instance: Instance, ended: bool, busy: bool, begun: Mapping[int, int] = NOTHING_BEGUN
) -> Done:
    """Carry out the marker's action at this operator, and return the acknowledgement."""
    action, worker = marker.action, instance.worker
    if ended:
        if isinstance(action, Reconfigure):
            instance.skip_change(action.change)
            if action.steps and not action.steps[-1].share:
                instance.forget(action.step_of)  # no later change finds states in its form
        return Done(marker.id, worker, ended=True)
    if isinstance(action, Commit | CloseCuts):
        if instance.operator.traits.is_source:
            return Done(marker.id, worker, read=instance.processed, begun=dict(begun))
        return Done(marker.id, worker, begun={} if instance.brought_out is None else dict(begun))
    if isinstance(action, Freeze):
        return Done(marker.id, worker, begun=dict(begun))
    if isinstance(action, Attempt):
        return Done(marker.id, worker, busy=busy)
    if isinstance(action, ApplyDeferred):
        return Done(marker.id, worker, switched=_apply_deferred(instance))
    if isinstance(action, MoveSplits) and worker.operator == action.source:
        return Done(marker.id, worker, positions=_given_up(instance, action))
    if isinstance(action, ReturnRows):
        mine = [row for row, owner in zip(action.rows, action.owners, strict=True) if owner == worker.index]
        return_rows(instance, action.requeue, mine)
        return Done(marker.id, worker)
    if isinstance(action, Reconfigure) and worker.operator in action.rerouted:
        instance.reroute(action.change)
    if not isinstance(action, Reconfigure) or worker.operator not in action.targets:
        return Done(marker.id, worker)
    if action.before in instance.applied and action.before not in [one.change for one in instance.earlier]:
        instance.supersede_change(action.change)
        return Done(marker.id, worker)
    old_tuples = instance.old_tuples(action.change)
    if action.steps:
        instance.decide_rows(action.step_of or action.change, action.steps)
        return Done(marker.id, worker, switched=True, old_tuples=old_tuples)
    return Done(marker.id, worker, switched=instance.switch(action.change, action.before), old_tuples=old_tuples)


def _given_up(instance: Instance, action: MoveSplits) -> dict[int, Position | None]:
    """The positions of splits that another worker is to read, which are not the instance's any more."""
    leaving = [split for split, (before, _) in action.splits.items() if before == instance.worker.index]
    return {split: instance.positions.pop(split, Position()) for split in leaving}


def _apply_deferred(instance: Instance) -> bool:
    apply, instance.deferred = instance.deferred, None
    if apply is not None:
        apply()
    return apply is not None


@dataclass(frozen=True, slots=True)
class MarkerEffects:
    """The effects of a marker on the operators of a chain.

    Attributes:
        answers: the instructions that acknowledge it, one for each operator in its scope.
        switched: whether an operator runs another function from now on.
        leaves: whether all operators are in its scope, so that it is sent on.
        holds: whether the worker, of a source, stops (true) or continues; ``None`` if neither.
        given_up: the splits that a source's worker has given up, if any.
    """

    answers: tuple[Instruction, ...]
    switched: bool
    leaves: bool
    holds: bool | None
    given_up: tuple[tuple[int, ...], ...] = ()


def effects_of(
    marker: Marker, instances: Sequence[Instance], ended: bool, busy: bool, begun: Mapping[int, int] = NOTHING_BEGUN
) -> MarkerEffects:
    """Carry out the marker's action at the first of these operators, up to one that is not in its scope.

    The acknowledgement of a commit's marker names the parts that the operator has written, so the current part is
    closed first.
    """
    inside = list(takewhile(lambda instance: instance.worker.operator in marker.scope, instances))
    done = [effect_of(marker, instance, ended, busy, begun) for instance in inside]
    answer = ClosePart if isinstance(marker.action, Commit) and not ended else TellController
    reads = not ended and any(instance.operator.traits.is_source for instance in inside)
    held = isinstance(marker.action, Hold) if reads and isinstance(marker.action, Hold | Release) else None
    switched = any(one.switched for one in done)
    given_up = tuple(tuple(one.positions) for one in done if one.positions)
    return MarkerEffects(tuple(map(answer, done)), switched, len(inside) == len(instances), held, given_up)


def given_by(
    action: Reconfigure, instances: Sequence[Instance], executor: ChainExecutor,
    newest: Mapping[int, Sequence[pa.RecordBatch]],
) -> dict[WorkerId, GivenBefore]:  # fmt: skip
    """Operator's worker to the last results, by reference, of the function that a change replaces."""
    found: dict[WorkerId, GivenBefore] = {}
    for position, instance in enumerate(instances):
        if instance.worker.operator in action.targets:
            is_last = position + 1 == len(instances)
            given = chain(*newest.values()) if is_last else executor.samples(position + 1)
            found[instance.worker] = action.change, tuple(given)
    return found


def failed_answer(
    error: FriesError, worker: WorkerId, row: pa.RecordBatch | None = None, hide: frozenset[str] = frozenset()
) -> Failed:
    """The answer of a worker that has stopped.

    Args:
        error: why.
        worker: the worker.
        row: the tuple in hand.
        hide: the columns whose values are not to be shown.
    """
    operator, details = (error.operator, error.details) if isinstance(error, OperatorError) else ("", "")
    in_hand = shown_tuple(row) if row is not None and (hide or details) else {}
    words, details = (masked_text(text, in_hand | dict(error.mentions), hide) for text in (str(error), details))
    if details and row is not None:
        shown = row_as_json(in_hand, hide)
        shown = shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}..."
        details = f"{details.rstrip()}\nIn hand, as it came to {worker.operator}: {shown}\n"
    column, before = (error.column, error.before) if isinstance(error, ColumnError) else ("", b"")
    return Failed(WorkerId(operator or worker.operator, worker.index), words, details, column, before)
