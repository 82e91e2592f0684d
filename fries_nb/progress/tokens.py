"""Tokens: the right to produce output at a time or later, held by an operator for as long as it likes.

>>> from fries_nb.progress.progress_graph import FlowEdge, ProgressGraph
>>> from fries_nb.progress.exchange import WorkerCounts
>>> flow = ProgressGraph({"W": (), "Out": ()}, (FlowEdge("W", "Out"),))
>>> counts = WorkerCounts(flow)
>>> book = TokenBook("W", counts.changes)
>>> with book.bound():                       # while the operator's function runs
...     token = book.keep(bin=3, time=(0, 4))
...     token.downgrade(6)
...     later = token.delayed(9)
...     later.drop()
>>> token.time, [(change.time, change.delta) for change in counts.hand_over()]
(6, [((0, 6), 1)])

A token is spent when it is dropped, and it belongs to the function that its worker runs, and to its thread:

>>> with book.bound():
...     token.downgrade(5)
Traceback (most recent call last):
fries_nb.errors.TokenError: W: a token of time 6 cannot be downgraded to 5; only to the same time or a later one
>>> with book.bound():
...     later.downgrade(10)
Traceback (most recent call last):
fries_nb.errors.TokenError: W: this token was dropped; keep a new one with at.keep(), or drop it later
>>> token.drop()
Traceback (most recent call last):
fries_nb.errors.TokenError: W: a token was used outside of its function, or in another thread; ...

A tuple that fails undoes what it did to tokens. A handle that is lost, here by deleting it, counts as dropped.

>>> with book.bound():
...     mark = book.mark()
...     token.drop()
...     book.undo(mark)
>>> token.time
6
>>> del token
>>> book.take_lost(), [(change.time, change.delta) for change in counts.hand_over()]
([Lost(operator='W', time=6)], [((0, 6), -1)])

A handle, as users' functions have it, is a name for an entry of its operator's ``TokenBook``. So a copy of it, in a
copied or pickled state, is the same token, and a handle that is lost leaves an entry behind.

>>> import copy, pickle
>>> from fries_nb.progress.progress_graph import ChangeBatch
>>> from fries_nb.progress.tokens import TokenBook
>>> book = TokenBook("W", ChangeBatch())
>>> with book.bound():
...     token = book.keep(bin=3, time=(0, 4))
...     pickle.loads(pickle.dumps(token)) is copy.deepcopy(token) is token
True
>>> token
<token of W, time 4>

They have times as users see them, by the units of the book.

The keys of an operator that hold tokens, whose function is called whenever the frontier has advanced.

>>> from fries_nb.progress.progress_graph import ChangeBatch
>>> book = TokenBook("W", ChangeBatch())
>>> keepers = TokenKeepers(book)
>>> mark = book.mark()
>>> with book.bound():
...     token, other = book.keep(bin=3, time=(0, 4)), book.keep(bin=3, time=(0, 6))
>>> keepers.add("c7", mark)
>>> keepers.advance()
>>> keepers.take(), keepers.is_due                  # once for a key, with the right to its earliest token
(((0, 4), 'c7'), False)
>>> with book.bound():
...     token.drop()
...     other.drop()
>>> keepers.advance()
>>> keepers.is_due
False
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import msgspec

from fries_nb.errors import ProtocolError, TokenError
from fries_nb.progress.progress_graph import (
    ChangeBatch,
    CountChange,
    CountChanges,
    GraphLocation,
    moving,
)
from fries_nb.progress.times import Time, moment, postponed, rounds

TRIAL_NUMBERS = 2**62
"""The first number of a trial's own tokens, apart from those of copies that it will adopt."""


class Lost(NamedTuple):
    """A token whose handle was lost, for a warning; its time as users see it."""

    operator: str
    time: Any


class SavedTokens(msgspec.Struct, frozen=True):
    """The tokens of one bin, in a checkpoint or on the way to another worker."""

    times: dict[int, Time]  # number of the token to its time
    next: int  # the number of the bin's next token


class TokenBook:
    """The tokens of one operator at one worker, in bins like its state."""

    def __init__(self, operator: str, changes: ChangeBatch, trial: bool = False) -> None:
        self.operator = operator
        self.times: dict[TokenId, Time] = {}  # the live tokens
        self.units: TimeUnits | None = None  # how users see times; ``None`` for numbers
        # ``trial``: whether functions run on copies of states, as in a dry run, so that tokens in them are copies as
        # well. Give it ``changes`` of its own, which nothing reads.
        # ``changes``: where tokens are counted; see ``WorkerCounts``
        self._changes, self._trial = changes, trial
        self._location = GraphLocation(operator)
        self._handles: WeakValueDictionary[TokenId, Token] = WeakValueDictionary()
        self._next: dict[int, int] = {}
        self._journal: list[tuple[TokenId, Time | None]] = []
        self._lost: deque[TokenId] = deque()

    def track(self, changes: ChangeBatch) -> None:
        """Count here from now on, as the book of a running operator and not of a trial."""
        self._changes, self._trial = changes, False

    @contextmanager
    def bound(self) -> Iterator[None]:
        """The block runs the operator's functions, or unpickles its states; only there can its tokens be used."""
        before = BOUND.set(self)
        try:
            yield
        finally:
            BOUND.reset(before)

    # ---- the life of a token

    def keep(self, bin: int, time: Time) -> Token:
        """Make a token."""
        self.check_bound()
        number = self._next.get(bin, TRIAL_NUMBERS if self._trial else 0)
        self._next[bin] = number + 1
        id = TokenId(bin, number)
        self._set(id, time)
        return self._handle(id)

    def move(self, token: Token, time: Time) -> None:
        """Give a token a later time."""
        self._set(self._usable(token), time)

    def drop(self, token: Token) -> None:
        """End a token."""
        self._set(self._usable(token), None)

    def later(self, token: Token, time: Any, round: int | None) -> Time:
        """The time of a token with another ``t``, given as users see it, and round; see ``postponed``."""
        present = self.times[self._usable(token)]
        if self.units is not None and time is not None:
            time = self.units.ticks_from(time, moment(present))
        return postponed(self.operator, present, time, round, self.shown)

    def shown(self, t: int) -> Any:
        """A ``t`` as users see it."""
        return t if self.units is None else self.units.shown(t)

    def time_of(self, token: Token) -> Time:
        """The time of a token that is still held, for rows that are sent with it."""
        if token._book is not self:
            raise TokenError(f"{self.operator}: this token belongs to {token._book.operator}; only there has it a use")
        time = self.times.get(token._id)
        if time is None:
            raise TokenError(
                f"{self.operator}: this token was dropped; keep a new one with at.keep(), or drop it later"
            )
        return time

    def has(self, token: Token) -> bool:
        """Whether a token of this book is still held."""
        return token._id in self.times

    def _usable(self, token: Token) -> TokenId:
        self.check_bound()
        self.time_of(token)
        return token._id

    def check_bound(self, what: str = "a token") -> None:
        """Refuse a use outside of the operator's functions, or in another thread."""
        if BOUND.get() is not self:
            raise TokenError(
                f"{self.operator}: {what} was used outside of its function, or in another thread; "
                "use it while process, due or reached runs"
            )

    def _set(self, id: TokenId, time: Time | None) -> None:
        before = self.times.get(id)
        self._journal.append((id, before))
        self._write(id, before, time)

    def _write(self, id: TokenId, before: Time | None, time: Time | None) -> None:
        if before is not None:
            self._changes.update(self._location, before, -1)
        if time is None:
            self.times.pop(id, None)
        else:
            self._changes.update(self._location, time, +1)
            self.times[id] = time

    def _handle(self, id: TokenId) -> Token:
        handle = self._handles.get(id)
        if handle is None:
            handle = self._handles[id] = Token(self, id)
        return handle

    # ---- undoing, copies, and lost handles

    def mark(self) -> int:
        """A point to which ``undo`` can return, until the slice ends."""
        return len(self._journal)

    def made_since(self, mark: int) -> list[TokenId]:
        """The tokens that were made since the mark."""
        return [id for id, before in self._journal[mark:] if before is None]

    def undo(self, mark: int) -> None:
        """Undo all that was done to tokens since the mark. Undo states afterwards: they refer to tokens."""
        while len(self._journal) > mark:
            id, time = self._journal.pop()
            self._write(id, self.times.get(id), time)

    def find(self, id: TokenId, time: Time | None = None) -> Token:
        """The handle of a token, for a state that was copied; one that was dropped stays so. A trial adopts copies."""
        id = TokenId(*id)
        if self._trial and time is not None and id not in self.times and id not in self._handles:
            self.times[id] = tuple(time)
        return self._handle(id)

    def lost(self, id: TokenId) -> None:
        """A handle has ended. Called in any thread, so it is only noted."""
        self._lost.append(id)

    def take_lost(self) -> list[Lost]:
        """End the slice: drop the tokens whose handles are lost, and return them; call it before ``hand_over``."""
        self._journal.clear()
        found: list[Lost] = []
        for _ in range(len(self._lost)):
            id = self._lost.popleft()
            time = self.times.get(id)
            if time is not None and id not in self._handles:
                self._write(id, time, None)
                found.append(Lost(self.operator, self.shown(moment(time))))
        return found

    def end(self) -> None:
        """Drop all tokens, since the operator has processed all of its input."""
        for id in list(self.times):
            self._write(id, self.times[id], None)

    # ---- checkpoints, and bins that move

    def saved(self) -> dict[int, SavedTokens]:
        """The tokens by bin, at the end of a slice."""
        bins: dict[int, dict[int, Time]] = {bin: {} for bin in self._next}
        for id, time in self.times.items():
            bins[id.bin][id.number] = time
        return {bin: SavedTokens(times, self._next[bin]) for bin, times in bins.items()}

    def load(self, bins: Mapping[int, SavedTokens]) -> None:
        """Take over bins, whose tokens are counted already."""
        # Then unpickle their states, in the same slice: a token that no state refers to counts as lost.
        for bin, saved in bins.items():
            if bin in self._next:
                raise ProtocolError(f"the tokens of bin {bin} of {self.operator} came to a worker that has that bin")
            self._next[bin] = saved.next
            loaded = {TokenId(bin, number): tuple(time) for number, time in saved.times.items()}
            self.times.update(loaded)
            self._lost.extend(loaded)

    def release(self, bins: Iterable[int]) -> dict[int, SavedTokens]:
        """Give bins up to another worker; until it has received them, their tokens count as on their way."""
        # First pickle their states, which refer to the tokens.
        saved = self.saved()
        released = {bin: saved[bin] for bin in bins if bin in saved}
        for bin, tokens in released.items():
            del self._next[bin]
            for number, time in tokens.times.items():
                self._write(TokenId(bin, number), time, None)
                self._changes.update(moving(self.operator), time, +1)
        return released

    def receive(self, bins: Mapping[int, SavedTokens]) -> None:
        """Take over bins that another worker has released, as ``load`` does."""
        self.load(bins)
        for saved in bins.values():
            for time in map(tuple, saved.times.values()):
                self._changes.update(moving(self.operator), time, -1)
                self._changes.update(self._location, time, +1)


def token_counts(operator: str, bins: Iterable[SavedTokens]) -> CountChanges:
    """The counts of saved tokens; the same however the bins are divided among workers."""
    batch = ChangeBatch()
    for saved in bins:
        batch.extend(CountChange(GraphLocation(operator), tuple(time), 1) for time in saved.times.values())
    return batch.take()


BOUND: ContextVar[TokenBook | None] = ContextVar("token book of the function that this thread runs", default=None)
"""The book whose operator's function this thread runs."""


class TimeUnits(Protocol):
    """Times as users see them."""

    def shown(self, ticks: int) -> Any:
        """A time as users see it."""

    def ticks_from(self, value: Any, earliest: int) -> int:
        """The number of a time that a user gives; one that is shown like ``earliest`` is that."""


class TokenId(NamedTuple):
    """The identity of a token at its operator: unique within its bin, so it stays the same when the bin moves."""

    bin: int
    number: int


class Token:
    """The right to produce output at ``time`` or later. Only ``at.keep()`` makes one, or ``delayed``.

    As a context manager it is dropped at the end of the block.
    """

    __slots__ = ("__weakref__", "_book", "_id")

    def __init__(self, book: TokenBook, id: TokenId) -> None:
        self._book, self._id = book, id

    @property
    def time(self) -> Any:
        """Its time: a ``datetime`` if the source's times are timestamps, otherwise an integer."""
        return self._book.shown(moment(self._book.time_of(self)))

    @property
    def round(self) -> int:
        """Its round in the innermost loop."""
        found = rounds(self._book.time_of(self))
        if not found:
            raise TokenError(f"{self._book.operator}: a token outside of loops has no round")
        return found[-1]

    def downgrade(self, time: Any = None, round: int | None = None) -> None:
        """Give up the right to what is earlier."""
        self._book.move(self, self._book.later(self, time, round))

    def delayed(self, time: Any = None, round: int | None = None) -> Token:
        """Another token, of a later time; this one stays as it is."""
        return self._book.keep(self._id.bin, self._book.later(self, time, round))

    def drop(self) -> None:
        """Give up the right altogether."""
        self._book.drop(self)

    def __enter__(self) -> Token:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._book.has(self):
            self.drop()

    def __repr__(self) -> str:
        time = self._book.times.get(self._id)
        shown = "dropped" if time is None else f"time {self._book.shown(moment(time))}"
        return f"<token of {self._book.operator}, {shown}>"

    def __copy__(self) -> Token:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Token:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return found_token, (self._id, self._book.times.get(self._id))

    def __del__(self) -> None:  # in any thread, at any moment: the book looks at it later
        self._book.lost(self._id)


def found_token(id: TokenId, time: Time | None) -> Token:
    """The token that a pickled handle stands for, in the function that this thread runs."""
    book = BOUND.get()
    if book is None:
        raise TokenError("a state that holds a token was unpickled outside of its operator; there the token has no use")
    return book.find(id, time)


SavedKeepers = dict[int, list[tuple[Any, int]]]
"""Bin to its keys, each with the number of a token."""


class TokenKeepers:
    """The keys that hold tokens of one operator at one worker."""

    def __init__(self, book: TokenBook) -> None:
        self._book = book
        self._tokens: dict[Any, dict[TokenId, None]] = {}
        self._due: list[tuple[Time, Any]] = []

    def add(self, key: Any, mark: int) -> None:
        """Record that a key holds the tokens made since a mark; those dropped, or undone, are forgotten later."""
        made = self._book.made_since(mark)
        if made:
            self._tokens.setdefault(key, {}).update(dict.fromkeys(made))

    def advance(self) -> None:
        """The frontier has advanced: every key that holds tokens is due, once for those of the same rounds."""
        self._due = []
        self._make_due(list(self._tokens))

    def _make_due(self, keys: Iterable[Any]) -> None:
        for key in keys:
            times = {id: self._book.times[id] for id in self._tokens[key] if id in self._book.times}
            if not times:
                del self._tokens[key]
                continue
            self._tokens[key] = dict.fromkeys(times)
            least: dict[tuple[int, ...], Time] = {}
            for time in times.values():
                known = least.get(rounds(time), time)
                least[rounds(time)] = (max(known[0], time[0]), min(moment(known), moment(time)), *rounds(time))
            self._due += [(time, key) for time in least.values()]
        self._due.sort(key=lambda due: due[0], reverse=True)

    @property
    def is_due(self) -> bool:
        """Whether a key is due."""
        return bool(self._due)

    def take(self) -> tuple[Time, Any]:
        """The next key that is due, with a time at which rows can be sent with any of its tokens, of these rounds."""
        return self._due.pop()

    def saved(self) -> SavedKeepers:
        """The keys that hold tokens, by bin."""
        found: SavedKeepers = {}
        for key, tokens in self._tokens.items():
            for id in tokens:
                if id in self._book.times:
                    found.setdefault(id.bin, []).append((key, id.number))
        return found

    def load(self, bin: int, keys: Iterable[tuple[Any, int]]) -> None:
        """Add the saved keys of a bin."""
        for key, number in keys:
            self._tokens.setdefault(key, {})[TokenId(bin, number)] = None

    # ---- bins that move

    def release(self, saved: SavedKeepers) -> bool:
        """Forget these keys, whose bins move; returns whether one of them was due."""
        keys = {key for some in saved.values() for key, _ in some}
        was_due = any(key in keys for _, key in self._due)
        self._due = [due for due in self._due if due[1] not in keys]
        for key in keys:
            self._tokens.pop(key, None)
        return was_due

    def receive(self, saved: SavedKeepers, are_due: bool) -> None:
        """Add the keys of bins that have moved here, which are due at once or when the frontier advances."""
        for bin, keys in saved.items():
            self.load(bin, keys)
        if are_due:
            self._make_due({key: None for keys in saved.values() for key, _ in keys})
