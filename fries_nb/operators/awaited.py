"""The executor of an operator that awaits: calls overlap, across slices and across frames.

A row *begins* when its call does, and *leaves* when that has ended and it has passed the operator's common step. No
more than ``concurrency`` rows have begun and not left, of each key one at a time.

    ordered      rows begin in the order in which they came, and leave so: a call that takes long holds back those
                 behind it, and a row of a key that is in flight those behind the row
    not ordered  rows leave as calls end; a row whose key is in flight is passed over, up to ``LOOKAHEAD`` of them

Rows of several frames may be in hand, so that the number of calls in flight does not fall at the end of a frame.

A state is written when its row leaves. So between two of them the worker can give up all that has begun (``rewind``):
calls are cancelled, results that wait for others are forgotten, and the rows have not begun. That happens on a row on
which the function fails, if the run goes on with it in the front (a pause, a guard), and at a change with
``on_change="retry"``. The service may then be called again for a row; no row leaves twice.

>>> from fries_nb.dataflow.awaiting import Awaiting
>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.protocol.messages import WorkerId
>>> class Held(list):                                       # an event loop in which calls end as they are told
...     begin, cancel = list.append, list.remove
>>> def executor(ordered):
...     instance = Instance(WorkerId("FM", 0), Operator("FM", awaiting=Awaiting(2, ordered=ordered)), dict, audit=False)
...     instance.calls = Held()
...     awaited = AwaitedExecutor(instance, InterruptFlag(), 1, "")
...     awaited.load("S", pa.RecordBatch.from_pydict({"n": [0, 1, 2]}))
...     return awaited, instance.calls
>>> for ordered in (True, False):
...     awaited, calls = executor(ordered)
...     _ = awaited.advance(10)
...     calls[1].succeed({"n": "second"})
...     print(len(calls), awaited.advance(10), awaited.advance(10), awaited.remaining, awaited.waits)
2 0 0 3 True
2 0 1 2 True
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, takewhile
from operator import itemgetter
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.operators import Shape, shape_of, takes_state
from fries_nb.errors import OperatorError
from fries_nb.operators.awaited_calls import Call, RowPlace
from fries_nb.operators.dry_run import SAMPLES, Recent, one_row
from fries_nb.operators.executors import ChainExecutor, InterruptFlag, RowExecutor
from fries_nb.operators.instance import FAILURES, Instance
from fries_nb.operators.row_versions import side_by_side, versions_of
from fries_nb.operators.rows import Columns, Reads
from fries_nb.operators.state import key_reader
from fries_nb.operators.steps import Results

LOOKAHEAD = 4
"""Rows that are looked at for one whose key is not in flight, in multiples of the concurrency."""


@dataclass(eq=False)
class _Part:
    """A frame in hand."""

    sender: str
    batch: pa.RecordBatch
    waiting: deque[int] = field(init=False)  # indices of the rows that have not begun, in order
    left: int = field(init=False)  # number of rows that have not left
    columns: Columns = field(init=False)  # for keys
    versions: list[int] | None = None  # of each row, while the operator runs several versions side by side

    def __post_init__(self) -> None:
        self.waiting, self.left = deque(range(self.batch.num_rows)), self.batch.num_rows
        self.columns = Columns(self.batch, Reads())


_Place = tuple[_Part, int]


class AwaitedExecutor:
    """Runs an operator whose function is a coroutine; see the module.

    Args:
        instance: the operator, with ``calls``.
        interrupt: see ``RowExecutor``.
        branches: see ``RowExecutor``.
        left: see ``RowExecutor``.

    Attributes:
        begins: whether rows may begin; not while a change waits for those in flight.
    """

    def __init__(self, instance: Instance, interrupt: InterruptFlag, branches: int, left: str) -> None:
        assert instance.operator.awaiting is not None, "it is declared how its calls overlap"
        self._awaiting = instance.operator.awaiting
        self._instance = instance
        self._inner = RowExecutor([instance], interrupt, branches, left)
        self._read_key = key_reader(instance.operator.key)
        self._versions = side_by_side(instance)
        self.begins = True
        self._parts: deque[_Part] = deque()
        self._left = 0
        self._begun: dict[Call, _Part] = {}  # in the order in which they have begun
        self._over: deque[Call] = deque()  # appended by the thread in which calls end; also calls that were given up
        self._ready: deque[Call] = deque()  # those of them whose rows can leave, if rows leave as calls end
        self._busy: set[Any] = set()
        self._retried: _Place | None = None  # the row on which it has failed, which begins alone

    # ---- as of each executor

    def load(self, sender: str, batch: pa.RecordBatch) -> None:
        """Begin a frame; rows of earlier ones may be in flight, if it has their columns."""
        self._parts.append(_Part(sender, batch))
        self._left += batch.num_rows
        self._end_parts()

    def drop(self) -> None:
        """Have no row in hand any more; nothing is in flight."""
        self._parts.clear()
        self._left, self._retried = 0, None

    def rebuild(self) -> None:
        """Compile the step anew; see ``ChainExecutor``, as of the following."""
        self._inner.rebuild()
        self._versions = side_by_side(self._instance)
        for part in self._parts:
            part.versions = None

    def keep_types(self, other: ChainExecutor) -> None:
        """Continue with the column types of another executor."""
        if isinstance(other, AwaitedExecutor):
            self._inner.keep_types(other._inner)

    @property
    def reads(self) -> Sequence[str]:
        """Input columns that the step has read; those of the calls are not known."""
        return self._inner.reads

    def samples(self, position: int, count: int = SAMPLES) -> Sequence[Recent]:
        """Recent rows that have left."""
        return self._inner.samples(position, count)

    def newest(self, position: int, count: int) -> list[pa.RecordBatch]:
        """Copies of the last rows that have left."""
        return self._inner.newest(position, count)

    def facing(self) -> pa.RecordBatch | None:
        """The row that leaves next."""
        first = next(self._in_order(), None)
        return None if first is None else one_row(first[0].batch, first[1])

    @property
    def unread(self) -> pa.RecordBatch | None:
        """The rows that have not left, those first that leave next."""
        runs = [(part, [index for _, index in places]) for part, places in groupby(self._in_order(), itemgetter(0))]
        batches = [part.batch.take(pa.array(indices)) for part, indices in runs]
        return pa.concat_batches(batches) if batches else None

    @property
    def remaining(self) -> int:
        """Rows that have not left."""
        return self._left

    def results(self) -> Results:
        """Batches of the rows that have left."""
        return self._inner.results()

    def advance(self, quota: int) -> int:
        """Let rows leave whose calls have ended, at most so many, and begin others; returns how many have left."""
        taken = self._leave(self._leaving(quota))
        while self._over:
            call = self._over.popleft()
            if call in self._begun and not self._in_turn:
                self._ready.append(call)
        if self.begins:
            self._begin()
        return taken

    @property
    def _in_turn(self) -> bool:
        """Whether rows leave in the order in which they came; those of dead letters do, as some may be given back."""
        return self._awaiting.ordered or not (self._parts and self._parts[0].sender)

    # ---- what is in flight

    @property
    def in_flight(self) -> bool:
        """Whether rows have begun and have not left."""
        return bool(self._begun)

    @property
    def waits(self) -> bool:
        """Whether there is nothing to do before a call ends."""
        return bool(self._begun) and not (self._can_leave or self._over)

    @property
    def _can_leave(self) -> bool:
        return next(iter(self._begun)).is_over if self._in_turn else bool(self._ready)

    @property
    def wants(self) -> bool:
        """Whether further rows could begin at once."""
        return self._left < self._awaiting.concurrency and self._retried is None

    @property
    def parts(self) -> int:
        """Number of frames in hand; those that came first end first."""
        return len(self._parts)

    def rewind(self) -> None:
        """Give up what has begun and has not left; the rows have not begun."""
        calls = self._instance.calls
        assert calls is not None, "it has begun calls there"
        for call in self._begun:
            if not call.is_over:
                calls.cancel(call)
        for part in self._parts:
            begun = [call.place.index for call, of in self._begun.items() if of is part]
            part.waiting = deque(sorted([*begun, *part.waiting]))
        self._begun.clear()
        self._ready.clear()
        self._busy.clear()

    def _in_order(self) -> Iterator[_Place]:
        """The rows that have not left, those first that leave next."""
        first = [] if self._retried is None else [self._retried]
        known = dict.fromkeys([*self._ready, *self._begun])
        places = ((self._begun[call], call.place.index) for call in known)
        later = ((part, index) for part in self._parts for index in part.waiting)
        yield from first
        for place in (*places, *later):
            if place != self._retried:
                yield place

    # ---- rows that leave

    def _leaving(self, quota: int) -> list[Call]:
        """The calls of the rows that leave next, of one frame."""
        over = takewhile(lambda call: call.is_over, self._begun) if self._in_turn else iter(self._ready)
        found = list(islice(over, quota))
        return list(takewhile(lambda call: self._begun[call] is self._begun[found[0]], found))

    def _leave(self, calls: Sequence[Call]) -> int:
        """Pass rows through the operator's step; returns how many have left.

        Raises:
            OperatorError: the function has failed on the row behind them, which is the first to begin again.
        """
        if not calls:
            return 0
        part, indices = self._begun[calls[0]], [call.place.index for call in calls]
        self._inner.load(part.sender, part.batch.take(pa.array(indices)))
        self._instance.returned.clear()
        self._instance.returned.update(enumerate(calls))
        try:
            taken = self._inner.advance(len(calls))
        except OperatorError:
            taken = len(calls) - self._inner.remaining
            self._gone(part, calls[:taken])
            self.rewind()
            self._retried = part, indices[taken]
            raise
        self._gone(part, calls[:taken])
        return taken

    def _gone(self, part: _Part, calls: Sequence[Call]) -> None:
        for call in calls:
            del self._begun[call]
            self._busy.discard(call.key)
            if not self._in_turn:
                self._ready.popleft()
            if self._retried == (part, call.place.index):
                self._retried = None
        part.left -= len(calls)
        self._left -= len(calls)
        self._end_parts()

    def _end_parts(self) -> None:
        while self._parts and not self._parts[0].left:
            self._parts.popleft()

    # ---- rows that begin

    def _begin(self) -> None:
        room = self._awaiting.concurrency - len(self._begun)
        if self._retried is not None:
            part, index = self._retried
            if not self._begun:
                part.waiting.remove(index)
                self._call(part, index)
        elif self._in_turn:
            self._begin_in_order(room)
        else:
            self._begin_any(room)

    def _begin_in_order(self, room: int) -> None:
        for part in self._parts:
            while part.waiting:
                if not room or self._key(part, part.waiting[0]) in self._busy:
                    return
                self._call(part, part.waiting.popleft())
                room -= 1

    def _begin_any(self, room: int) -> None:
        """Begin rows whose keys are not in flight; those of a key that is passed over wait, in order."""
        passed, ahead = set[Any](), LOOKAHEAD * self._awaiting.concurrency
        for part in self._parts:
            kept = list[int]()
            while part.waiting and room and ahead:
                index = part.waiting.popleft()
                key = self._key(part, index)
                if key is not None and (key in self._busy or key in passed):
                    passed.add(key)
                    kept.append(index)
                    ahead -= 1
                else:
                    self._call(part, index)
                    room -= 1
            is_searched = not part.waiting
            part.waiting.extendleft(reversed(kept))
            if not is_searched:  # rows behind it may be of keys of which it has some that have not been looked at
                return

    def _key(self, part: _Part, index: int) -> tuple[Any] | None:
        """The key of a row, by which calls exclude each other; ``None`` if it has none, or none that is valid."""
        names = self._instance.operator.key
        if not names:
            return None
        try:
            return (canonical_key(self._read_key({name: part.columns[name][index] for name in names})),)
        except Exception:  # noqa: BLE001 (a call that needs it fails on it as well, and says why)
            return None

    def _call(self, part: _Part, index: int) -> None:
        """Begin the call of a row; one that cannot begin has failed."""
        version, key = self._version(part, index), self._key(part, index)
        function = version.function
        process: Callable[..., Any] = function.process if shape_of(function) is Shape.KEYED else function
        call = Call(RowPlace(part.batch, index), process, key, self._awaiting.timeout_s)
        call.ended = self._over.append
        self._begun[call] = part
        if key is not None:
            self._busy.add(key)
        try:
            if takes_state(function):
                call.state = _state(version, self._read_key(call.row))
        except FAILURES as error:
            call.fail(error)
        else:
            assert self._instance.calls is not None, "it has a place for its calls"
            self._instance.calls.begin(call)

    def _version(self, part: _Part, index: int) -> Instance:
        """The operator with the function that runs for a row."""
        if len(self._versions) == 1:
            return self._versions[0]
        if part.versions is None:
            part.versions = versions_of(self._instance.earlier, part.batch).tolist()
        return self._versions[part.versions[index]]


def _state(instance: Instance, key: Any) -> Any:
    """A copy of the state of a key, or its initial one."""
    copy = instance.state.copy_of(key)
    return instance.state.initial() if copy is None else copy.revive(canonical_key(key))
