"""Handles of tokens, as users' functions have them. A handle is a name for an entry of its operator's ``TokenBook``.

So a copy of it, in a copied or pickled state, is the same token, and a handle that is lost leaves an entry behind.

>>> import copy, pickle
>>> from fries_nb.progress.change_batch import ChangeBatch
>>> from fries_nb.progress.tokens import TokenBook
>>> book = TokenBook("W", ChangeBatch())
>>> with book.bound():
...     token = book.keep(bin=3, time=(0, 4))
...     pickle.loads(pickle.dumps(token)) is copy.deepcopy(token) is token
True
>>> token
<token of W, time 4>

They have times as users see them, by the units of the book.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from fries_nb.errors import TokenError
from fries_nb.progress.times import Time, moment, rounds

if TYPE_CHECKING:
    from fries_nb.progress.tokens import TokenBook

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
        """Its round in the innermost loop.

        Raises:
            TokenError: the operator is not inside a loop.
        """
        found = rounds(self._book.time_of(self))
        if not found:
            raise TokenError(f"{self._book.operator}: a token outside of loops has no round")
        return found[-1]

    def downgrade(self, time: Any = None, round: int | None = None) -> None:
        """Give up the right to what is earlier.

        Args:
            time: the new time; by default the present one.
            round: the new round in the innermost loop; by default the present one.

        Raises:
            TokenError: a time or round that is earlier than the present one, or the token was dropped.
        """
        self._book.move(self, self._book.later(self, time, round))

    def delayed(self, time: Any = None, round: int | None = None) -> Token:
        """Another token, of a later time; this one stays as it is.

        Args:
            time: the time of the other token; by default that of this one.
            round: its round in the innermost loop; by default that of this one.

        Returns:
            The other token.

        Raises:
            TokenError: see ``downgrade``.
        """
        return self._book.keep(self._id.bin, self._book.later(self, time, round))

    def drop(self) -> None:
        """Give up the right altogether.

        Raises:
            TokenError: it was dropped already.
        """
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
