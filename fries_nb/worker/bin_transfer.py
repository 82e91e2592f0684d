"""What a rescale does at a worker: it adopts the next epoch of the topology, and gives and takes bins with their state.

**Adoption.** Channels of added workers open, channels of removed workers close.

New channels open at once: their senders are granted credit, and alignment awaits markers on them. A removed channel is
ended by its sender after the last frame, and is kept until that end arrives. Rows that wait for credit on a channel to
which no row is routed any more are sent first, so that the next epoch may remove it. When all removed channels have
ended, and no such row waits, the epoch is adopted, and the controller is notified for each operator of the chain that
was told. No marker is in transit meanwhile (see ``controller.membership``), so every marker arrives either on the old
channels or on the new ones.

**A move of bins** at one worker of their operator: state goes where its rows go, and rows wait for their state.

Senders route the rows of a moving bin to its new owner from the move's marker on. The marker blocks no channel here:

    old owner   when the marker has come on all channels, no row of the bin can follow: the state is extracted, slice by
                slice between rows of other bins, and shipped
    new owner   rows of the bin that come behind a marker are set aside, and an End behind them; when the marker has
                come on all channels and the state is installed, they return to the heads of their channels, in order

Rows that are set aside need no credit, so it is returned at once; but when they take ``limit`` bytes, channels that
have delivered the marker rest. The others are read, since the marker is still to come on them.

The new owner waits for the marker on all channels even if it has the state: only then has the marker left it for the
operators downstream, which align it: they process what the old owner made of a key before what the new one makes.

A marker behind the End of a channel comes from a sender that had ended. If it comes in front of no End, all workers of
the operator end or have ended, so nothing is shipped or awaited; a sender alive at one worker is alive at all.

State may come before any marker. It may have gone through more changes than the new owner, or fewer, since the fix of a
paused operator passes a move: it then waits for the worker's own switch, or is transformed.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import Move
>>> old, new = (Instance(WorkerId("K", i), Operator("K", key=("k",)), dict, audit=False) for i in range(2))
>>> old.state.touch(7)["seen"] = 3
>>> [bin_] = old.state.bins()
>>> marker = Marker(1, frozenset("SK"), Move("K", {bin_: (0, 1)}))
>>> channels = [ChannelId(WorkerId("S", 0), one.worker) for one in (old, new)]
>>> sender, receiver = BinTransfer(old, {"S": ("k",)}, 1000), BinTransfer(new, {"S": ("k",)}, 1000)
>>> sender.passed_by(marker, channels[0]), sender.align(), sender.extracts
(None, None, True)
>>> [shipped] = sender.extract()
>>> receiver.install(shipped), receiver.passed_by(marker, channels[1])
(None, None)
>>> row = Data(pa.RecordBatch.from_pydict({"k": [7]}))
>>> receiver.admitted(channels[1], row), receiver.align(), receiver.is_installed
(None, None, True)
>>> [(channel.sender.operator, len(frames)) for channel, frames in receiver.release()], new.state.touch(7)
([('S', 1)], {'seen': 3})

Times that move with the bins of a timed operator: entries of its agenda, tokens, and how far it has fired.

What moves is counted all the way, so no frontier passes it: the old owner counts it as on its way in the step in which
it gives it up, the new owner as held in the step in which it takes it over (see ``progress_graph.moving``).

Nothing fires on the way, nor out of order. The old owner fires nothing from the moment that the move's marker has come
on all channels, until all is shipped: rows that it would make then would follow the marker downstream. The new owner
has the tokens as soon as the states that refer to them, but entries, and keys that wait for the frontier, only when the
marker has come on all of its channels: rows that it would make earlier would precede the marker.

Whether a row of a key is late depends on how far entries of the key have fired, wherever that was; so this moves too.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import WorkerId
>>> class Remind:
...     def process(self, row, state, at): ...
...     def due(self, key, time, state): ...
>>> operator = Operator("R", function=Remind(), key=("k",))
>>> one, other = (Instance(WorkerId("R", index), operator, Remind(), audit=False) for index in range(2))
>>> one.agenda.call(59, 7), one.agenda.call(59, 8)
(None, None)
>>> bin = next(bin for bin, entries in one.agenda.saved().entries.items() if entries == [((0, 59), 8)])
>>> old, new = TimesTransfer(one), TimesTransfer(other)
>>> moved = [old.give([bin]) for _ in old.sort([bin], 500)]
>>> new.install(moved[0]), len(one.agenda), len(other.agenda)
(None, 1, 0)
>>> new.take_over(), len(other.agenda)
(None, 1)
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import structs

from fries_nb.dataflow.keys import canonical_key
from fries_nb.errors import OperatorError, ProtocolError, exception_text
from fries_nb.operators.instance import Instance, user_traceback
from fries_nb.operators.pickled_states import copied
from fries_nb.progress.agenda import Entry
from fries_nb.progress.times import Antichain
from fries_nb.protocol.messages import (
    ChannelId,
    Data,
    Frame,
    Marker,
    Move,
    MovedBins,
    MovedTimes,
    TopologyAdopted,
    WorkerId,
)
from fries_nb.protocol.partitioning import BINS, Binning
from fries_nb.protocol.topology import Wiring
from fries_nb.worker.alignment import Alignment, forward_channels
from fries_nb.worker.events import Grant, Rewired
from fries_nb.worker.inbox import Inbox
from fries_nb.worker.outbox import Outbox


class TopologyAdoption:
    """The transition of one worker to the wiring of the next topology epoch.

    Args:
        open_: the worker's input channels that have not ended; new channels are added to this set.
        window: maximum number of bytes in transit to the worker on each channel.

    Attributes:
        after: the wiring from the worker's switch on, if the last epoch is one of a change of the shape.
        removed: the members of its chain that this change removes.
        epoch: number of the last epoch.
        is_apart: whether other workers may not know the worker yet, so that it can send them nothing.
    """

    def __init__(self, inbox: Inbox, alignment: Alignment, outbox: Outbox, open_: set[ChannelId], window: int) -> None:
        self._inbox = inbox
        self._alignment = alignment
        self._outbox = outbox
        self._open = open_
        self._window = window
        self._next: Rewired | None = None
        self._members: list[WorkerId] = []
        self._unconnected: dict[ChannelId, int] = {}
        self.is_apart = False
        self.after: Wiring | None = None
        self.removed = frozenset[WorkerId]()
        self.epoch = 1

    @property
    def under_way(self) -> bool:
        """Whether removed channels have not ended yet, rows wait on one that gets no more, or credit is held back."""
        return self._next is not None or bool(self._unconnected) or self.is_apart

    def begin(self, present: Wiring, event: Rewired, ended: bool) -> list[Grant]:
        """Open the new channels; returns the credit for their senders."""
        self._members.append(event.member)
        if event.epoch != self.epoch:
            self.removed, self.epoch = frozenset(), event.epoch
        self.removed |= {event.member} if event.is_removed else frozenset()
        if self._next is not None:
            return []  # the epoch is being adopted already
        fresh = [channel for channel in event.wiring.incoming if channel not in present.incoming]
        read = [channel for channel in fresh if channel not in event.wiring.closed]
        self._inbox.extend(fresh)
        self._alignment.extend(forward_channels(read, event.wiring.feedback))
        if present.closed - set(event.wiring.incoming):
            self._alignment.abandon()
        self._alignment.shut(event.wiring.closed)
        self._open.update(fresh)
        self._outbox.rewire(event.wiring.edges, ended)
        self._next, self.after = event, event.after
        window = event.wiring.window(self._window)
        # Their senders may not know these channels yet: they do once all workers have adopted the epoch.
        self._unconnected = dict.fromkeys(event.wiring.closed, window)
        return Grant.of(dict.fromkeys(read, window))

    def hold_back(self, sizes: dict[ChannelId, int]) -> None:
        """Hold this credit back until ``connect``, and the worker apart."""
        self._unconnected, self.is_apart = sizes, True

    def connect(self) -> list[Grant]:
        """Grant the credit that was held back, since all workers have adopted the epoch."""
        sizes, self._unconnected, self.is_apart = self._unconnected, {}, False
        return Grant.of(sizes)

    def adopted(self, present: Wiring) -> tuple[Wiring, list[TopologyAdopted]]:
        """The next wiring and the answers, once the epoch is adopted; before, the present one and no answer."""
        adopted = self._next
        if adopted is None or self._open - set(adopted.wiring.incoming) or self._outbox.drains:
            return present, []
        for channel in set(present.incoming) - set(adopted.wiring.incoming):
            self._inbox.drop(channel)
        answers = [TopologyAdopted(adopted.epoch, member) for member in self._members]
        self._next, self._members = None, []
        return adopted.wiring, answers


class TimesTransfer:
    """The times of the bins of one move, at one worker of a timed operator; for other operators there are none."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._sorted: dict[int, list[Entry]] = {}
        self._waiting: list[MovedTimes] = []

    def sort(self, bins: Collection[int], count: int) -> Iterator[None]:
        """Find the entries of bins that leave, ``count`` in each step."""
        if self._instance.agenda is not None:
            yield from self._instance.agenda.sort_out(bins, count, self._sorted)

    def give(self, bins: Collection[int]) -> MovedTimes | None:
        """Give up what is held for these bins, whose states have been pickled; ``None`` if it is not timed."""
        agenda, tokens, came = self._instance.agenda, self._instance.tokens, self._instance.came
        counters = self._instance.brought_out
        if agenda is None or tokens is None or counters is None:
            return None
        keepers = {} if agenda.keepers is None else agenda.keepers.saved()
        keepers = {bin: keepers[bin] for bin in bins if bin in keepers}
        told = agenda.keepers is None or not agenda.keepers.release(keepers)
        entries = {bin: self._sorted.pop(bin, []) for bin in bins}
        held = {bin: (entries[bin], keepers.get(bin, [])) for bin in bins}
        fired = {bin: agenda.release(bin, entries[bin]) for bin in bins}
        return MovedTimes(
            {bin: copied(both) for bin, both in held.items() if any(both)},
            tokens.release(bins),
            {bin: tuple((t, *rounds) for rounds, t in of.items()) for bin, of in fired.items() if of},
            b"" if came is None else came.serialize().to_pybytes(),
            agenda.frontier.elements if told and agenda.frontier is not None else None,
            counters.release(bins),
        )

    def install(self, moved: MovedTimes | None) -> None:
        """Take over the tokens, to which states that are unpickled next refer; the rest waits for ``take_over``."""
        if moved is None:
            return
        assert self._instance.tokens is not None, "both workers are of the same operator"
        assert self._instance.brought_out is not None, "both workers are of the same operator"
        self._instance.brought_out.receive(moved.brought_out)
        self._instance.tokens.receive(moved.tokens)
        if self._instance.came is None and moved.came:
            self._instance.came = pa.ipc.read_schema(pa.py_buffer(moved.came))
        self._instance.rewindowed = self._instance.rewindowed or bool(self._instance.applied)
        self._waiting.append(moved)

    def take_over(self) -> None:
        """Take over the entries that have come: from now on they fire here."""
        agenda, waiting, self._waiting = self._instance.agenda, self._waiting, []
        for moved in waiting:
            assert agenda is not None, "both workers are of the same operator"
            held = {bin: pickle.loads(both) for bin, both in moved.agenda.items()}
            for bin in {**moved.agenda, **moved.fired}:
                entries = [(tuple(time), canonical_key(key)) for time, key in held.get(bin, ((), ()))[0]]
                agenda.receive(bin, entries, {(*rounds,): t for t, *rounds in moved.fired.get(bin, ())})
            if agenda.keepers is not None:
                keepers = {
                    bin: [(canonical_key(key), number) for key, number in kept] for bin, (_, kept) in held.items()
                }
                is_told = moved.reached is not None and agenda.frontier == Antichain(tuple(map(tuple, moved.reached)))
                agenda.keepers.receive(keepers, are_due=agenda.frontier is not None and not is_told)


SORTED_KEYS = 500
"""Number of keys that are sorted by bin in one slice."""
SHIPPED_KEYS = 500
"""Number of keys from which on a shipment is complete."""
SHIPPED_BYTES = 256 * 1024
"""Size in bytes from which on a shipment is complete; a bin whose states take more travels in several."""
KEY_BYTES = 4 * 1024
"""The size that a state is assumed to have before the first is pickled."""


class BinTransfer:
    """One move at one worker, from the first sign of it to the last.

    Args:
        keys: operator that sends by key to the key columns of its rows.
        limit: number of bytes of rows set aside from which on channels rest.

    Attributes:
        is_aligned: whether the marker has come on all channels.
        size: number of bytes of pickled state that have come.
        took_ns: nanoseconds in which they were pickled and unpickled.
    """

    def __init__(self, instance: Instance, keys: Mapping[str, tuple[str, ...]], limit: int) -> None:
        self.is_aligned = False
        self.size = self.took_ns = 0
        self._instance = instance
        self._binnings = {sender: Binning(key) for sender, key in keys.items()}
        self._limit = limit
        self._marker: Marker | None = None
        self._arriving: frozenset[int] = frozenset()
        self._leaving: dict[int, int] = {}
        self._is_arriving = np.zeros(BINS, dtype=bool)
        self._behind: set[ChannelId] = set()
        self._held: dict[ChannelId, list[Frame]] = {}
        self._bytes = 0
        self._got: set[int] = set()
        self._early: list[MovedBins] = []
        self._extraction: Iterator[list[MovedBins]] | None = None
        self._unshipped = 0
        self._key_bytes = float(KEY_BYTES)
        self._is_released = False
        self._times = TimesTransfer(instance)

    # ---- markers

    def passed_by(self, marker: Marker, channel: ChannelId) -> None:
        """Record that the move's marker has come on a channel, in front of its End."""
        if self._marker is None:
            self._marker = marker
            assert isinstance(marker.action, Move)
            bins, index = marker.action.bins, self._instance.worker.index
            self._arriving = frozenset(bin_ for bin_, (_, after) in bins.items() if after == index)
            self._leaving = {bin_: after for bin_, (before, after) in bins.items() if before == index}
            self._is_arriving[list(self._arriving)] = True
        self._behind.add(channel)

    def align(self) -> None:
        """Record that the marker has come on all channels: no row of a bin that leaves can follow."""
        self.is_aligned = True
        if self._leaving:
            self._unshipped = len(self._leaving)
            self._extraction = self._extracted()

    # ---- rows

    def admitted(self, channel: ChannelId, frame: Frame) -> Frame | None:
        """Set rows that must wait aside, or an End behind them; returns what is left of the frame, if anything is."""
        if channel not in self._behind or not self._arriving or self._is_released:
            return frame
        if isinstance(frame, Marker):
            raise ProtocolError(f"marker {frame.id} came behind a move on {channel}; expected the move to be over")
        if isinstance(frame, Data):
            return self._divided(channel, frame)
        self._held.setdefault(channel, []).append(frame)
        return None

    def _divided(self, channel: ChannelId, frame: Data) -> Data | None:
        waits = self._is_arriving[self._binnings[channel.sender.operator].of(frame.batch)]
        if not waits.any():
            return frame
        held = frame.batch if waits.all() else frame.batch.filter(pa.array(waits))
        self._held.setdefault(channel, []).append(replace(frame, batch=held, size=0, tag=None))
        self._bytes += held.nbytes
        return None if waits.all() else replace(frame, batch=frame.batch.filter(pa.array(~waits)), tag=None)

    @property
    def resting(self) -> set[ChannelId]:
        """The channels that must not be read, since too many rows are set aside."""
        return set(self._behind) if self._bytes and self._bytes >= self._limit else set()

    @property
    def is_installed(self) -> bool:
        """Whether the rows that were set aside can be processed, and have not been returned."""
        return self.is_aligned and not self._is_released and self._got >= self._arriving

    @property
    def installed(self) -> int:
        """The id of the marker, if bins have moved here; else 0."""
        return self._marker.id if self._arriving and self._marker is not None else 0

    def release(self) -> list[tuple[ChannelId, list[Frame]]]:
        """The frames that were set aside, channel by channel; removes them, and lets what moved here fire."""
        self._times.take_over()
        released, self._held = list(self._held.items()), {}
        self._bytes = 0
        self._is_released = True
        return released

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self._is_released and not self.extracts

    # ---- state

    def install(self, moved: MovedBins) -> None:
        """Add state that has come, as soon as this worker has applied the changes that it has gone through."""
        self.size += moved.size
        self._early.append(moved)
        self.install_early()

    def install_early(self) -> None:
        """Add the state that had to wait for a change, after the worker has switched; raises as ``install`` does."""
        waiting, self._early = self._early, []
        for moved in waiting:
            applied, here = moved.applied, self._instance.applied
            if applied[: len(here)] != here[: len(applied)]:
                found = f"{', '.join(applied)} came to {self._instance.worker}, which has applied {', '.join(here)}"
                raise ProtocolError(f"states that have gone through {found}; expected the same order")
            if len(applied) <= len(here):
                self._add(moved, here[len(applied) :])
            else:
                self._early.append(moved)

    def _add(self, moved: MovedBins, since: Sequence[str]) -> None:
        """Add states that have missed the changes ``since``."""
        name, transforms = self._instance.worker.operator, self._instance.transforms
        try:
            with self._instance.bound():
                self._times.install(moved.times)
                states = {key: one for part in moved.states.values() if part for key, one in pickle.loads(part).items()}
        except Exception as error:
            words = f"the state of {name} that has moved to {self._instance.worker} cannot be unpickled: {error!r}"
            raise OperatorError(words, name, user_traceback(error)) from error
        self._instance.state.add(states, tuple([transforms[change] for change in since if change in transforms]))
        self._got.update(moved.complete)

    @property
    def extracts(self) -> bool:
        """Whether state is still to be extracted here."""
        return self._extraction is not None

    def extract(self) -> list[MovedBins]:
        """Extract state for a short time; returns what is to be shipped."""
        assert self._extraction is not None, "see extracts"
        shipped = next(self._extraction)
        self._unshipped -= sum(len(moved.complete) for moved in shipped)
        if not self._unshipped:  # at once, since the next move may begin as soon as all of it is installed
            self._extraction = None
        return shipped

    def _extracted(self) -> Iterator[list[MovedBins]]:
        for _ in self._times.sort(self._leaving, SORTED_KEYS):
            yield []
        while self._instance.state.sort_keys(SORTED_KEYS):
            yield []
        for receiver in sorted(set(self._leaving.values())):
            yield from self._shipments(receiver, [bin_ for bin_, to in self._leaving.items() if to == receiver])

    def _shipments(self, receiver: int, bins: Sequence[int]) -> Iterator[list[MovedBins]]:
        states: dict[int, bytes] = {}
        count = size = 0
        for bin_ in bins:
            self._instance.state.leave(bin_)
            for some, continued in self._pieces(self._instance.state.keys_of(bin_)):
                states[bin_] = self._pickled(some) if some else b""
                count, size = count + len(some), size + len(states[bin_])
                if continued or count >= SHIPPED_KEYS or size >= SHIPPED_BYTES:
                    yield [self._shipment(receiver, states, continued)]
                    states, count, size = {}, 0, 0
        if states:
            yield [self._shipment(receiver, states, continued=False)]

    def _pieces(self, keys: list[Any]) -> Iterator[tuple[list[Any], bool]]:
        """The keys of a bin, as many at once as fit a shipment by the size of those before, and whether more follow.

        A bin with tokens is one piece: they are released when all states that refer to them have been pickled, and
        received in the slice in which these are unpickled.
        """
        at, is_whole = 0, self._instance.tokens is not None
        while True:
            size = max(1, int(SHIPPED_BYTES / self._key_bytes))
            end = len(keys) if is_whole else min(len(keys), at + min(size, SHIPPED_KEYS))
            yield keys[at:end], end < len(keys)
            if (at := end) >= len(keys):
                return

    def _shipment(self, receiver: int, states: dict[int, bytes], continued: bool) -> MovedBins:
        instance = self._instance
        assert self._marker is not None, "a marker has come"
        to, last = WorkerId(instance.worker.operator, receiver), list(states)[-1]
        moved = MovedBins(to, self._marker.id, instance.applied, states, last if continued else None)
        return structs.replace(moved, times=self._times.give(moved.complete))

    def _pickled(self, keys: list[Any]) -> bytes:
        name = self._instance.worker.operator
        try:
            with self._instance.bound():
                pickled = copied(self._instance.state.take(keys))
        except Exception as error:
            words = f"the state of {name} cannot be moved: {exception_text(error)}"
            raise OperatorError(words, name, user_traceback(error)) from error
        self._key_bytes = max(1.0, len(pickled) / len(keys))
        return pickled
