"""States that are not in memory: pickled, in a log on the host's own disk; and the limit for those that are.

States are appended to a log, several at once, and read where they are; one that is taken leaves a gap. The log consists
of segments, each a file. A segment of which less than half still counts is emptied: its states are appended again. So a
log takes about twice what it holds at most. Nothing of it outlives the process: what it held is in the last checkpoint,
as what was in memory is.

Where a state is, its *place*, is a number, which ``KeyedState`` keeps by the key.

>>> log = ColdStates(MemoryFile)
>>> seven, eight = log.put([("c7", {"n": 7}), ("c8", {"n": 8})]).places
>>> log.take(seven), log.take(eight), len(log), log.bytes
({'n': 7}, {'n': 8}, 0, 0)

Definitions of the user's, such as the class of a state, are pickled by name (see ``pickled_states``). A segment has
those that its states had, so a state comes back with the class that it had, also if there is a newer one of that name;
a state with another class of that name begins a segment.

The limit is one for all workers of a host. Those with more than an equal share move states out, until all together have
no more than that.

>>> budget, one, other = StateBudget(2_000, MemoryFile), MemoryFile(), MemoryFile()      # any two objects
>>> budget.excess(one, StateSizes(keys=1_500, size=1)), budget.excess(other, StateSizes(keys=600, size=1))
(0, 0)
>>> budget.excess(one, StateSizes(keys=1_500, size=1)), budget.excess(one, StateSizes(keys=1_400, size=1))
(100, 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from weakref import finalize

from fries_nb.operators.pickled_states import ExactPickles, Name, NameClash, loads

SEGMENT_BYTES = 32 << 20
"""Number of bytes from which on a segment is full."""
SEGMENTS = 64
"""Number of segments beyond which they are larger, since each is an open file."""
PLACE_BYTES = 128
"""Number of bytes that are counted for a state which is not in memory: those of its key, and of its place in a dict."""
_LEFT = 16
"""At least this part of a worker's share is states in memory, however many places there are."""
_LENGTH, _START = 32, 40
"""Numbers of bits of a place that are a length, and a start in a segment."""


class LogFile(Protocol):
    """A file of a log."""

    def write(self, content: bytes, start: int) -> None:
        """Write all of it from this position on; raises an ``OSError`` if that fails."""

    def read(self, start: int, length: int) -> bytes:
        """So many bytes from this position on; raises an ``OSError`` if that fails."""


class MemoryFile:
    """A file in memory, for tests and simulations."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, content: bytes, start: int) -> None:
        """Write into it."""
        self.content[start : start + len(content)] = content

    def read(self, start: int, length: int) -> bytes:
        """A part of it."""
        return bytes(self.content[start : start + length])


@dataclass(eq=False)
class _Segment:
    """A part of the log."""

    number: int
    file: LogFile
    definitions: dict[Name, Any]
    size: int = 0  # number of bytes that were written
    living: int = 0  # number of those that count
    # key and place of each state, one after the other, also of those that do not count any more
    entries: list[Any] = field(default_factory=list)

    def read(self, place: int) -> bytes:
        start, length = place >> _LENGTH & (1 << _START) - 1, length_of(place)
        found = self.file.read(start, length)
        if len(found) != length:
            raise OSError(f"{len(found)} bytes at {start}, expected {length}")
        return found


def length_of(place: int) -> int:
    """The number of bytes of the state at a place."""
    return place & (1 << _LENGTH) - 1


class PutStates(NamedTuple):
    """The places of states that were put into a log, in order, up to the one that could not be."""

    places: list[int]
    error: BaseException | None = None  # why the next one could not be put


class ColdStates:
    """The states of one operator's worker that are not in memory.

    Args:
        file: makes an empty file, or raises an ``OSError``.

    Attributes:
        bytes: their size.
    """

    def __init__(self, file: Callable[[], LogFile]) -> None:
        self.bytes = 0
        self._file = file
        self._count = self._number = 0
        self._segments: dict[int, _Segment] = {}
        self._size = 0  # of all segments
        self._last: _Segment | None = None

    def __len__(self) -> int:
        return self._count

    def put(self, states: Sequence[tuple[Any, Any]]) -> PutStates:
        """Append states, each with its key: all, or those before the first one that cannot be pickled."""
        pickled: list[bytes] = []
        try:
            segment, pickles = self._open({})
        except OSError as error:
            return PutStates([], error)
        for _, state in states:
            try:
                pickled.append(pickles.take(state))
            except NameClash as error:
                if pickled:
                    break  # it begins a segment next time
                if not segment.entries:  # it has two definitions of one name itself
                    return PutStates([], error)
                self._last = None
                return self.put(states)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; the state stays in memory
                put = self._append(segment, states, pickled)
                return put if put.error is not None else put._replace(error=error)
        return self._append(segment, states, pickled)

    def _open(self, definitions: dict[Name, Any]) -> tuple[_Segment, ExactPickles]:
        """The segment to which states with these definitions are appended."""
        last = self._last
        if last is None or last.size >= max(SEGMENT_BYTES, self.bytes // SEGMENTS):
            return self._begin(definitions)
        if any(last.definitions.get(name, value) is not value for name, value in definitions.items()):
            return self._begin(definitions)
        last.definitions.update(definitions)
        return last, ExactPickles(last.definitions)

    def _begin(self, definitions: dict[Name, Any]) -> tuple[_Segment, ExactPickles]:
        self._last = _Segment(self._number + 1, self._file(), dict(definitions))
        self._number += 1
        self._segments[self._number] = self._last
        return self._last, ExactPickles(self._last.definitions)

    def _append(self, segment: _Segment, states: Sequence[tuple[Any, Any]], pickled: Sequence[bytes]) -> PutStates:
        start, places = segment.size, list[int]()
        try:
            segment.file.write(b"".join(pickled), start)
        except OSError as error:  # what was written in part is written over
            return PutStates([], error)
        for (key, _), one in zip(states, pickled, strict=False):
            place = segment.number << _LENGTH + _START | start << _LENGTH | len(one)
            segment.entries += key, place
            places.append(place)
            start += len(one)
        written = start - segment.size
        segment.size = start
        segment.living += written
        self._size += written
        self.bytes += written
        self._count += len(places)
        return PutStates(places)

    def pickled(self, place: int) -> tuple[bytes, set[Name]]:
        """A state as it is, which stays, and the definitions that it needs; raises an ``OSError``."""
        segment = self._of(place)
        return segment.read(place), {*segment.definitions}

    def copy(self, place: int) -> Any:
        """A copy of a state, which stays; raises an ``OSError``, or whatever unpickling it raises."""
        segment = self._of(place)
        return loads(segment.read(place), segment.definitions)

    def take(self, place: int) -> Any:
        """Remove a state; raises as ``copy`` does, and it is still there then."""
        state = self.copy(place)
        self.drop(place)
        return state

    def drop(self, place: int) -> None:
        """Remove a state, unseen."""
        segment, length = self._of(place), length_of(place)
        segment.living -= length
        self.bytes -= length
        self._count -= 1
        if not segment.living and segment is not self._last:
            self._forget(segment)

    def _of(self, place: int) -> _Segment:
        return self._segments[place >> _LENGTH + _START]

    def _forget(self, segment: _Segment) -> None:
        """Forget a segment in which nothing counts, and so its file."""
        del self._segments[segment.number]
        self._size -= segment.size

    def sparse_entries(self, count: int) -> list[tuple[Any, int]]:
        """At most so many states of a segment that is to be emptied, to be given to ``move`` if they still count.

        Returns:
            The key and the place of each; none as long as the log takes little more than twice what it holds.
        """
        if self._size <= 2 * self.bytes + SEGMENT_BYTES:
            return []
        others = [one for one in self._segments.values() if one is not self._last]
        if not others:
            return []
        sparsest = min(others, key=lambda one: one.living / max(1, one.size))
        if not sparsest.living:  # it was the last one
            self._forget(sparsest)
            return []
        some = sparsest.entries[-2 * count :]
        del sparsest.entries[-2 * count :]
        return [*zip(some[::2], some[1::2], strict=True)]

    def move(self, key: Any, place: int) -> int:
        """Append a state again; returns its new place. Raises an ``OSError``, and it is where it was then."""
        segment = self._of(place)
        to, _ = self._open(segment.definitions)
        put = self._append(to, [(key, None)], [segment.read(place)])
        if put.error is not None:
            raise put.error
        self.drop(place)
        return put.places[0]


class StateSizes(NamedTuple):
    """How much state one worker has.

    Attributes:
        keys: number of keys whose states are in memory.
        size: mean size of these, in bytes, pickled; estimated.
        places: number of keys whose states are not.
    """

    keys: int
    size: float
    places: int = 0

    @property
    def bytes(self) -> float:
        """The bytes of memory that are counted."""
        return self.keys * self.size + self.places * PLACE_BYTES


class StateBudget:
    """How many bytes of states may be in memory, for all workers of a host.

    Args:
        limit: number of bytes, of pickled states; see also ``PLACE_BYTES``.
        file: makes a file for states that are moved out.

    Attributes:
        limit, file: see the arguments.
    """

    def __init__(self, limit: int, file: Callable[[], LogFile]) -> None:
        self.limit, self.file = limit, file
        self._held: dict[int, float] = {}  # id of a worker to its bytes in memory

    def excess(self, worker: Any, sizes: StateSizes) -> float:
        """The bytes of states that a worker is to move out of memory now.

        Args:
            worker: the worker; it is forgotten with this object.
            sizes: what it has.
        """
        if id(worker) not in self._held:
            finalize(worker, self._held.pop, id(worker), None)
        self._held[id(worker)] = sizes.bytes
        held = [*self._held.values()]  # at once, since slow workers have threads of their own
        total, share = sum(held), self.limit / len(held)
        if total <= self.limit:
            return 0
        movable = sizes.keys * sizes.size - share / _LEFT
        return max(0, min(total - self.limit, sizes.bytes - share, movable))
