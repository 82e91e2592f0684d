"""The states of an operator as they were at a checkpoint's marker, until all of them are pickled.

A worker goes on as soon as it has passed the marker on, and pickles its states between tuples, some in each slice
(copy on write: Carbone et al., "State management in Apache Flink", section 4.2). ``KeyedState`` sees to it that the
state of a key which is touched before its turn is pickled first, so what is saved is what was there at the marker.

Only keys that have been touched since the last marker have to be saved, and those that have gone: what was stored
before has the others. If something was lost on the way to the storage, everything is saved again.

>>> from fries_nb.operators.pickled_states import loaded_states
>>> saving = StatesToSave(since=3, gone_keys=["c9"], gone_bins=[7])
>>> saving.save("c7", {"n": 1}), saving.save("c8", {"n": 2})
(None, None)
>>> while saving.encode(): pass
>>> saved = loaded_states([part for parts in saving.parts.values() for part in parts], {})
>>> saving.since, saving.gone, sorted(saved)
(3, {7}, ['c7', 'c8'])

A state that cannot be pickled ends the attempt, and nothing else; the next one saves everything.

>>> saving = StatesToSave(since=3)
>>> saving.save("c7", lambda: 1), saving.save("c8", (x for x in ())), saving.failure.key
(None, None, 'c8')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fries_nb.operators.pickled_states import Name, Pickles, part_of
from fries_nb.protocol.partitioning import bins_of_keys

Parts = dict[int, tuple[bytes, ...]]
"""Bin to the parts of its states, the oldest first."""


class NotPickled(NamedTuple):
    """A state that could not be pickled."""

    key: Any
    error: BaseException


class StatesToSave:
    """What one attempt to save the states of an operator's worker has pickled so far.

    Args:
        since: number of the attempt on which it builds; 0 if it has everything.
        gone_keys: the keys that have gone since then, and have no state at the marker.
        gone_bins: the bins that have left since then.
        names: the user's definitions that the states stored before need.
        earlier: the attempt before, if it was given up: this one builds on the same as that, and has what that has.

    Attributes:
        since: see the arguments.
        names: the user's definitions that the states need, those stored before included.
        gone: the bins that have left since then.
        parts: bin to the parts of its states, the oldest first, as far as they are encoded.
        failure: the first state that could not be pickled, if there was one.
    """

    def __init__(
        self,
        since: int = 0,
        gone_keys: Iterable[Any] = (),
        gone_bins: Iterable[int] = (),
        names: Iterable[Name] = (),
        earlier: StatesToSave | None = None,
    ) -> None:
        self.since, self.names = since, set(names)
        self.gone = {*gone_bins}
        self.parts: Parts = {}
        self.failure: NotPickled | None = None
        # Keys and states one after the other, since many small tuples would make the garbage collector look at all
        # states of the process, for which rows would wait.
        self._entries: dict[int, list[bytes | None]] = {}
        self._unsorted: list[Any] = []
        self._pickled: list[bytes | None] = []
        self._pickles = Pickles()
        if earlier is not None:
            self._take_over(earlier)
        for key in gone_keys:
            self._add(key, self._pickles.take(key), None)

    def _add(self, key: Any, pickled: bytes, state: bytes | None) -> None:
        self._unsorted.append(key)
        self._pickled.append(pickled)
        self._pickled.append(state)

    def _take_over(self, earlier: StatesToSave) -> None:
        """Have all that an attempt has which was given up, but what has left since."""
        earlier.sort()
        self.parts = {bin: parts for bin, parts in earlier.parts.items() if bin not in self.gone}
        self._entries = {bin: held for bin, held in earlier._entries.items() if bin not in self.gone}
        self.gone |= earlier.gone
        self.names |= earlier.names

    def save(self, key: Any, state: Any) -> None:
        """Pickle a state. It may be called while a tuple is processed, which has no part in a failure."""
        try:
            self._add(key, self._pickles.take(key), self._pickles.take(state))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; the attempt fails by name
            self.failure = self.failure or NotPickled(key, error)

    def add(self, key: Any, state: bytes, names: Iterable[Name]) -> None:
        """Have a state that is pickled already, with the definitions that it needs."""
        self._add(key, self._pickles.take(key), state)
        self.names.update(names)

    def sort(self, least: int = 1) -> None:
        """Sort what was pickled into bins, once there is so much of it."""
        if len(self._unsorted) < least:
            return
        unsorted, pickled, self._unsorted, self._pickled = self._unsorted, self._pickled, [], []
        for number, bin in enumerate(bins_of_keys(unsorted).tolist()):
            held = self._entries.get(bin)
            if held is None:
                held = self._entries[bin] = []
            held += pickled[2 * number : 2 * number + 2]
        self.names |= self._pickles.names

    def encode(self) -> bool:
        """Encode a further bin, since a copy of all at once would be felt; returns whether there was one."""
        self.sort()
        if not self._entries:
            return False
        bin, entries = self._entries.popitem()
        pairs = list(zip(entries[::2], entries[1::2], strict=True))
        self.parts[bin] = (*self.parts.get(bin, ()), part_of(pairs))
        return True
