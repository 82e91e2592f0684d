"""The agenda of an operator: what is to happen for a key when no row of a time, or of an earlier one, can still arrive.

Entries are pairs of a time and a key. For each time with an entry the operator holds one pointstamp, its right to
produce output then; so what entries bring out is known about below, however many keys there are.

>>> changes = ChangeBatch()
>>> agenda = Agenda("W", changes)
>>> agenda.begin((0, 5))                                   # a frame of time 5 begins
>>> agenda.call(59, "c7"), agenda.call(59, "c8"), agenda.call(59, "c7")
(None, None, None)
>>> [(str(change.location), change.time, change.delta) for change in changes.take()]
[('W', (0, 59), 1)]
>>> agenda.advance(Antichain.of([(0, 59)])), agenda.is_ripe
(None, False)
>>> agenda.advance(Antichain.of([(0, 60)])), agenda.is_ripe
(None, True)
>>> firing = agenda.take(limit=1)
>>> firing
Firing(time=(0, 59), keys=('c7',), moments=(59,), reached=False)
>>> agenda.done(firing), bool(changes)                     # c8 is still to come
(None, False)
>>> agenda.done(agenda.take(limit=1)), [change.delta for change in changes.take()]
(None, [-1])

An entry needs a right of its own: the frame in hand, or an entry that is still to come, must not be later.

>>> agenda.begin((0, 70))
>>> agenda.may_call(60, "c7")
False
>>> agenda.call(60, "c7")
Traceback (most recent call last):
fries_nb.errors.TokenError: W cannot call for time 60: rows are at time 70 by now; expected that time or a later one

Nor is an entry made for what has been fired, even if there is a right to it:

>>> agenda.begin((0, 50))
>>> agenda.may_call(58, "c7"), agenda.may_call(60, "c7")
(False, True)

The *ends* of keys are entries of which each key has one, the latest (see ``EndAgenda``):

>>> ends = EndAgenda("M", ChangeBatch())
>>> ends.call(5, "c7"), ends.call(5, "c8"), ends.call(9, "c7"), ends.call(6, "c7")
(None, None, None, None)
>>> ends.end_of("c7"), len(ends), ends.held                # c7 stands at 5 until that is due
(9, 2, ((0, 5),))
>>> ends.advance(Antichain.of([(0, 6)])), ends.take(limit=9).keys, ends.held
(None, ('c8',), ((0, 9), (0, 5)))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

from fries_nb.errors import ProtocolError, TokenError
from fries_nb.progress.progress_graph import ChangeBatch, GraphLocation, moving
from fries_nb.progress.times import (
    EARLIEST,
    LATEST,
    MOST,
    Antichain,
    Time,
    apart_from_moment,
    moment,
    precedes,
    rounds,
    with_moment,
)
from fries_nb.progress.tokens import TokenKeepers

Entry = tuple[Time, Any]
"""A time and a key."""
_NEVER = EARLIEST - 1
Fired = dict[tuple[int, ...], int]
"""Rounds to the greatest ``t`` at which entries of these rounds have fired."""
BinsOf = Callable[[Sequence[Any]], Iterable[int]]
"""The bins of keys."""


def _one_bin(keys: Sequence[Any]) -> Iterable[int]:
    return [0] * len(keys)


class SavedAgenda(NamedTuple):
    """An agenda in a checkpoint."""

    entries: dict[int, list[Entry]]  # bin to the entries of its keys
    fired: Fired  # how far entries had fired


class Firing(NamedTuple):
    """Keys whose entries are due, by time."""

    time: Time  # the least of their times; rows can be sent at it, or later. All have its version and rounds.
    keys: tuple[Any, ...]
    moments: tuple[int, ...]  # the ``t`` of each, ascending
    # whether it is no entry that is due, but the frontier that has advanced, for a key that holds tokens
    reached: bool = False

    @property
    def times(self) -> Iterator[Time]:
        """Their times, each once."""
        return (with_moment(self.time, t) for t in dict.fromkeys(self.moments))


class Agenda:
    """The entries of one operator at one worker."""

    def __init__(
        self, operator: str, changes: ChangeBatch, bins_of: BinsOf = _one_bin, keepers: TokenKeepers | None = None
    ) -> None:
        self.operator = operator
        self.keepers = keepers  # the keys that hold tokens, if the operator's function is called for them
        # ``bins_of``: the bins of keys, in which entries are saved
        # ``changes``: where pointstamps are counted; see ``WorkerCounts``
        self.changes, self._bins_of = changes, bins_of
        self._fired_in: dict[int, Fired] = {}
        self.stamp: Time = (0, EARLIEST)  # the time of the frame, or of the firing, that the operator processes
        self.fired: Fired = {}  # how far entries have fired
        self._location = GraphLocation(operator)
        self._entries: dict[Time, dict[Any, None]] = {}
        self._versions: set[int] = set()
        self._taken: dict[Time, int] = {}
        self._heaps: dict[tuple[int, ...], list[tuple[int, Time]]] = {}
        self.frontier: Antichain | None = None  # the frontier at the operator's input; ``None`` before the first
        self._journal: list[Entry] = []

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    @property
    def holds(self) -> bool:
        """Whether it has a pointstamp."""
        return bool(self._entries or self._taken)

    @property
    def held(self) -> tuple[Time, ...]:
        """The times of its pointstamps, one for each; what a restored agenda has to be counted for."""
        return tuple(dict.fromkeys((*self._entries, *self._taken)))

    # ---- entries

    def begin(self, stamp: Time) -> None:
        """Begin a frame of this time; ``undo`` cannot go back further."""
        self.stamp = stamp
        self._journal.clear()

    def may_call(self, t: int, key: Hashable) -> bool:
        """Whether an entry can be made for ``t`` and this key: there is a right to it, and it has not been fired."""
        stamp = self.stamp
        if t <= self.fired.get(stamp[2:], _NEVER):
            return False
        if self._fired_in:
            (bin,) = self._bins_of([key])
            if t <= self._fired_in.get(int(bin), {}).get(stamp[2:], _NEVER):
                return False
        return stamp[1] <= t or self._is_held(t)

    def _is_held(self, t: int) -> bool:
        time = (self.stamp[0], t, *self.stamp[2:])
        return any(precedes(held, time) for held in (*self._entries, *self._taken))

    def call(self, t: int, key: Hashable) -> None:
        """Add an entry, at the version and the rounds of the frame; idempotent, also for rows of different versions."""
        stamp = self.stamp
        if stamp[1] > t and not self._is_held(t):
            raise TokenError(
                f"{self.operator} cannot call for time {t}: rows are at time {stamp[1]} by now; expected that time or "
                "a later one"
            )
        time = (stamp[0], t, *stamp[2:])
        if key in self._entries.get(time, ()) or self._has_in_another_version(time, key):
            return
        self._put(time, key)
        self._journal.append((time, key))

    def _put(self, time: Time, key: Any) -> None:
        keys = self._entries.get(time)
        if keys is None:
            if moment(time) > LATEST:
                raise TokenError(f"{self.operator} cannot call for time {moment(time)}; {MOST}")
            keys = self._add_time(time)
            if time not in self._taken:
                self.changes.update(self._location, time, +1)
        keys[key] = None

    def _has_in_another_version(self, time: Time, key: Hashable) -> bool:
        if len(self._versions) == 1 and time[0] in self._versions:
            return False  # as nearly always
        others = self._versions - {time[0]}
        return any(key in self._entries.get((version, *time[1:]), ()) for version in others)

    def _add_time(self, time: Time) -> dict[Any, None]:
        keys: dict[Any, None] = {}
        self._entries[time] = keys
        self._versions.add(time[0])
        heappush(self._heaps.setdefault(rounds(time), []), (moment(time), time))
        return keys

    def mark(self) -> int:
        """A point to which ``undo`` can return, until the next frame begins."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Remove the entries that were added since the mark."""
        while len(self._journal) > mark:
            self._take_back(*self._journal.pop())

    def _take_back(self, time: Time, key: Any) -> None:
        """Remove an entry; its time is given up if no other key has one there."""
        keys = self._entries[time]
        del keys[key]
        if not keys:
            self._drop_time(time)

    def _drop_time(self, time: Time) -> None:
        del self._entries[time]
        if time not in self._taken:
            self.changes.update(self._location, time, -1)

    # ---- firing

    def advance(self, frontier: Antichain | None) -> None:
        """The frontier at the operator's input is now this one; ``None`` before the first."""
        if self.keepers is not None and frontier != self.frontier:
            self.keepers.advance()
        self.frontier = frontier

    @property
    def is_ripe(self) -> bool:
        """Whether there is an entry whose time can no longer arrive, in any version, or a key with tokens is due."""
        return self._first_ripe() is not None or (self.keepers is not None and self.keepers.is_due)

    def _first_ripe(self) -> Time | None:
        """The first such time, by ``t``."""
        frontier = self.frontier
        if frontier is None:
            return None
        found: Time | None = None
        for key in list(self._heaps):
            time = self._least(key)
            if time is None or frontier.may_bring(moment(time), key):
                continue
            if found is None or (moment(time), time) < (moment(found), found):
                found = time
        return found

    def _least(self, key: tuple[int, ...]) -> Time | None:
        heap = self._heaps[key]
        while heap and heap[0][1] not in self._entries:
            heappop(heap)
        if not heap:
            del self._heaps[key]
            return None
        return heap[0][1]

    def take(self, limit: int) -> Firing:
        """Take at most ``limit`` keys of the first ripe times, and begin the least; kept until ``done``.

        The firing has no key if the ends of all keys that were ripe have been put off (see ``EndAgenda``).
        """
        time = self._first_ripe()
        if time is None and self.keepers is not None and self.keepers.is_due:
            least, key = self.keepers.take()
            self.begin(least)
            return Firing(least, (key,), (moment(least),), reached=True)
        if time is None:
            raise ProtocolError(f"{self.operator} was to fire, and has no entry whose time has passed")
        first, keys, moments, left = time, list[Any](), list[int](), max(1, limit)
        while time is not None and apart_from_moment(time) == apart_from_moment(first) and left > 0:
            looked_at = min(left, len(self._entries[time]))
            some = self._take(time, left)
            left -= looked_at
            first = first if keys else time
            keys += some
            moments += [moment(time)] * len(some)
            time = self._first_ripe()
        self.begin(first)
        return Firing(first, tuple(keys), tuple(moments))

    def _take(self, time: Time, limit: int) -> list[Any]:
        keys = self._entries[time]
        taken = list(islice(keys, limit))
        for key in taken:
            del keys[key]
        self._taken[time] = self._taken.get(time, 0) + 1
        if not keys:
            del self._entries[time]
        self.fired[rounds(time)] = max(moment(time), self.fired.get(rounds(time), EARLIEST))
        for bin in [bin for bin, of in self._fired_in.items() if not self._is_further(of)]:
            del self._fired_in[bin]
        return taken

    def _is_further(self, fired: Fired) -> bool:
        return any(t > self.fired.get(which, _NEVER) for which, t in fired.items())

    def done(self, firing: Firing) -> None:
        """Give up the right to the times of a firing, unless there are, or again are, entries of them."""
        for time in () if firing.reached else firing.times:
            left = self._taken.pop(time, 0) - 1
            if left < 0:
                raise ProtocolError(f"{self.operator} has finished a firing of {time}, which it had not begun")
            if left:
                self._taken[time] = left
            elif time not in self._entries:
                self.changes.update(self._location, time, -1)

    def end(self) -> None:
        """Give up all entries, which never fire, since the operator has ended."""
        for time in list(self._entries):
            self._drop_time(time)

    # ---- bins that move

    def sort_out(self, bins: Collection[int], count: int, found: dict[int, list[Entry]]) -> Iterator[None]:
        """Find the entries of bins that move, ``count`` in each step; entries of other bins may be added meanwhile."""
        for time in list(self._entries):
            keys = list(self._entries[time])
            for first in range(0, len(keys), count):
                some = keys[first : first + count]
                for key, bin in zip(some, self._bins_of(some), strict=True):
                    if bin in bins:
                        found.setdefault(int(bin), []).append((time, key))
                yield

    def release(self, bin: int, entries: Collection[Entry]) -> Fired:
        """Give up the entries of a bin, which count as on their way until another worker has received them."""
        # The result says how far those of this bin have fired.
        for time, key in entries:
            keys = self._entries[time]
            del keys[key]
            if not keys:
                self._drop_time(time)
        for time in dict.fromkeys(time for time, _ in entries):
            self.changes.update(moving(self.operator), time, +1)
        before = self._fired_in.pop(bin, {})
        return {which: max(t, before.get(which, t)) for which, t in {**before, **self.fired}.items()}

    def receive(self, bin: int, entries: Collection[Entry], fired: Fired) -> None:
        """Take over the entries of a bin that another worker has released; ``fired``: how far they have fired there."""
        for time in dict.fromkeys(time for time, _ in entries):
            self.changes.update(moving(self.operator), time, -1)
            if time not in self._entries and time not in self._taken:
                self.changes.update(self._location, time, +1)
        self._add(entries)
        if self._is_further(fired):
            self._fired_in[bin] = fired

    # ---- checkpoints

    def saved(self) -> SavedAgenda:
        """The entries, between two firings."""
        entries = list(self._all())
        saved: dict[int, list[Entry]] = {}
        if entries:
            for bin, entry in zip(self._bins_of([key for _, key in entries]), entries, strict=True):
                saved.setdefault(int(bin), []).append(entry)
        return SavedAgenda(saved, dict(self.fired))

    def _all(self) -> Iterator[Entry]:
        return ((time, key) for time, keys in self._entries.items() for key in keys)

    def as_now(self) -> Iterator[Entry]:
        """The entries of now, to be taken while others come and go: what they are in is copied at once."""
        entries = {time: dict(keys) for time, keys in self._entries.items()}
        return ((time, key) for time, keys in entries.items() for key in keys)

    def load(self, entries: Iterable[Entry], fired: Fired, fired_in: Mapping[int, Fired] | None = None) -> None:
        """Add saved entries, whose pointstamps are counted already, or by whoever restores them (see ``held``)."""
        self._fired_in = dict(fired_in or {})
        self._add(entries)
        for which, t in fired.items():
            self.fired[which] = max(t, self.fired.get(which, EARLIEST))

    def _add(self, entries: Iterable[Entry]) -> None:
        for time, key in entries:
            keys = self._entries.get(time)
            (self._add_time(time) if keys is None else keys)[key] = None


class EndAgenda(Agenda):
    """The ends of keys: each key has one entry, and a call for a later time puts it off.

    An entry that was put off stays where it is until it is due, and only then goes to the time of the last call: so a
    key costs a place in a heap once in the time that it lasts, and not once for each of its rows. What leaves the
    agenda, in a checkpoint or with a bin, is at the time of the last call.
    """

    def __init__(
        self, operator: str, changes: ChangeBatch, bins_of: BinsOf = _one_bin, keepers: TokenKeepers | None = None
    ) -> None:
        super().__init__(operator, changes, bins_of, keepers)
        self._at: dict[Any, Time] = {}  # key to the time at which its entry stands
        self._ends: dict[Any, Time] = {}  # key to the time to which it has been put off

    def end_of(self, key: Hashable) -> int | None:
        """The ``t`` of the last call for this key; ``None`` if it has no entry."""
        time = self._ends.get(key, self._at.get(key))
        return None if time is None else moment(time)

    def call(self, t: int, key: Hashable) -> None:
        """Add the entry of a key, or put it off; nothing happens if it is at this time already, or at a later one."""
        at = self._at.get(key)
        if at is None:
            super().call(t, key)
            self._at[key] = (self.stamp[0], t, *self.stamp[2:])
            return
        last = self._ends.get(key, at)
        if t > last[1]:
            if t > LATEST:
                raise TokenError(f"{self.operator} cannot call for time {t}; {MOST}")
            # Of the later version as well, so that the entry which is held is a right to this one.
            self._ends[key] = (max(self.stamp[0], last[0]), t, *at[2:])
            self._journal.append((last, key))

    def _take_back(self, time: Time, key: Any) -> None:
        """Undo a call: ``time`` is that of the entry, or the one from which the key was put off."""
        if key not in self._ends:
            super()._take_back(time, key)
            del self._at[key]
        elif time == self._at[key]:
            del self._ends[key]
        else:
            self._ends[key] = time

    def _bring(self, key: Any) -> None:
        """Bring the entry of a key that was put off to its time."""
        # First there, then away from here: no frontier passes in between.
        before, end = self._at[key], self._ends.pop(key)
        self._put(end, key)
        self._at[key] = end
        super()._take_back(before, key)

    def _take(self, time: Time, limit: int) -> list[Any]:
        put_off = [key for key in islice(self._entries[time], limit) if key in self._ends]
        for key in put_off:
            self._bring(key)
        count = limit - len(put_off)
        taken = super()._take(time, count) if count and time in self._entries else []
        for key in taken:
            del self._at[key]
        return taken

    def end(self) -> None:
        """Give up all ends; see ``Agenda.end``."""
        super().end()
        self._at.clear()
        self._ends.clear()

    def sort_out(self, bins: Collection[int], count: int, found: dict[int, list[Entry]]) -> Iterator[None]:
        """Bring the entries of bins that move to their times, and find them; see ``Agenda.sort_out``."""
        keys = list(self._at)
        for first in range(0, len(keys), count):
            some = keys[first : first + count]
            for key, bin in zip(some, self._bins_of(some), strict=True):
                if bin in bins:  # of which no row comes any more, and none fires
                    if key in self._ends:
                        self._bring(key)
                    found.setdefault(int(bin), []).append((self._at[key], key))
            yield

    def release(self, bin: int, entries: Collection[Entry]) -> Fired:
        """Give up the ends of a bin; see ``Agenda.release``."""
        for _, key in entries:
            del self._at[key]
        return super().release(bin, entries)

    def _all(self) -> Iterator[Entry]:
        return ((self._ends.get(key, time), key) for key, time in self._at.items())

    def as_now(self) -> Iterator[Entry]:
        """The ends of now; see ``Agenda.as_now``."""
        at, ends = dict(self._at), dict(self._ends)
        return ((ends[key] if key in ends else time, key) for key, time in at.items())

    def _add(self, entries: Iterable[Entry]) -> None:
        held = list(entries)
        super()._add(held)
        self._at.update((key, time) for time, key in held)
