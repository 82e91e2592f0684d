"""Calls of coroutine functions: what one is given, where it runs, and how its result becomes that of a row.

A call runs in an event loop outside of the worker's thread (see ``CallLoop``), so it shares nothing with the worker: it
gets a row of its own batch of one, and a copy of its key's state. When it has ended, the row passes the operator's
common step, in whose place of the function stands ``returned_call``: that returns or raises what the call did, and
keeps its state. So error policies, guards, the audit, dead letters and versions side by side see a plain function that
takes no time, and a call that is given up has had no effect.

>>> import pyarrow as pa
>>> batch = pa.RecordBatch.from_pydict({"amount": [3, 4], "shop": ["a", "b"]})
>>> call = Call(RowPlace(batch, 1), lambda row: row | {"double": 2 * row["amount"]}, key=None)
>>> call.succeed(call.function(call.row))
>>> came = list(Columns(batch, Reads()).rows())[1]
>>> call.result(came), came.columns.written
({'amount': 4, 'shop': 'b', 'double': 8}, {'double': None})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from fries_nb.errors import OperatorError
from fries_nb.operators.rows import Columns, NestedRow, Reads, Row, WholeRow, derived

if TYPE_CHECKING:
    from fries_nb.operators.instance import Instance


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A row of a batch."""

    batch: pa.RecordBatch
    index: int

    def own_row(self) -> Row:
        """The row, of a batch of its own, which another thread may read."""
        return next(Columns(self.batch.slice(self.index, 1), Reads()).rows())


class Call:
    """One call of a coroutine function, from when it begins until its row leaves; compared by identity.

    Args:
        place: the row.
        function: makes the coroutine, given the row, and the state if there is one.
        key: the key of its row, of which no other call is in flight, in a tuple; ``None`` if there is none.
        timeout_s: seconds after which it has failed; ``None`` for no limit.

    Attributes:
        row: the row that the function gets.
        state: a copy of its key's state, which the function gets; ``None`` if it takes none.
        is_over: whether it has ended; set last by the thread in which it did.
        ended: called when it has, by that thread; set by the one that begins it.
    """

    __slots__ = ("_error", "_made", "ended", "function", "is_over", "key", "place", "row", "state", "timeout_s")

    def __init__(
        self, place: RowPlace, function: Callable[..., Any], key: tuple[Any] | None, timeout_s: float | None = None
    ) -> None:
        self.place, self.function, self.key, self.timeout_s = place, function, key, timeout_s
        self.row = place.own_row()
        self.state: Any = None
        self.is_over = False
        self.ended: Callable[[Call], None] = lambda call: None
        self._made: Any = None
        self._error: BaseException | None = None

    def coroutine(self) -> Any:
        """A coroutine of it, to be run once."""
        return self.function(self.row) if self.state is None else self.function(self.row, self.state)

    def succeed(self, made: Any) -> None:
        """It has returned this."""
        self._made = made
        self._end()

    def fail(self, error: BaseException) -> None:
        """It has raised this."""
        self._error = error
        self._end()

    def time_out(self) -> None:
        """It has taken longer than it may."""
        self.fail(OperatorError(
            f"its call gave no answer within {self.timeout_s:g} s, which is its timeout=; expected a service that "
            "answers sooner, a longer timeout=, or an on_error= that takes such rows"
        ))  # fmt: skip

    def _end(self) -> None:
        self.is_over = True
        self.ended(self)

    def result(self, row: Row) -> Any:
        """What the function has returned, of this row, which is that of the call; raises what it has raised."""
        if self._error is not None:
            raise self._error
        made = self._made
        if isinstance(made, dict):
            return self._of(made, row)
        if made is None or isinstance(made, (bool, int, str)) or not isinstance(made, Iterable):
            return made
        return self._each(made, row)

    def _each(self, made: Iterable[Any], row: Row) -> Iterator[Any]:
        for one in made:
            yield self._of(one, row)

    def _of(self, made: Any, row: Row) -> Any:
        """A row that was derived from the call's own one, as one that derives from that of the batch."""
        if not isinstance(made, Row) or made.columns is not self.row.columns:
            return made
        if isinstance(made, WholeRow):
            return derived(dict(dict.items(made)), row)
        if isinstance(made, NestedRow):
            made.drop_unchanged()
        new, held = row.copy(), dict(dict.items(made))
        new.update({name: held[name] for name in made.columns.written if name in held})
        return new


class CallLoop(Protocol):
    """Where the calls of one worker run: an event loop of asyncio, or a seeded one.

    Attributes:
        wake: called by the loop's thread when a call has ended.
    """

    wake: Callable[[], None]

    def begin(self, call: Call) -> None:
        """Run a call, which is told how it has ended."""

    def cancel(self, call: Call) -> None:
        """Give up a call; how it ends matters no more."""

    def wait(self, make: Callable[[], Any], timeout_s: float | None) -> Any:
        """Run a coroutine to its end, in the place of the caller, and return what it returns.

        Raises:
            TimeoutError: it has taken longer than so many seconds.
        """

    def close(self) -> None:
        """Cancel all calls, and run none any more."""


def returned_call(instance: Instance, blocking: Callable[[Row], Any]) -> Callable[[Row], Any]:
    """In the place of a coroutine function, a function of a row whose call has ended, or of one in a trial.

    Args:
        instance: the operator.
        blocking: calls the coroutine and waits for it, where no call was made in advance.
    """
    returned, states = instance.returned, instance.state

    def call(row: Row) -> Any:
        ended = returned.pop(row.index, None)
        if ended is None:
            return blocking(row)
        made = ended.result(row)
        if ended.state is not None and ended.key is not None:
            states.put(ended.key[0], ended.state)
        return made

    return call


def waited_for(instance: Instance, function: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function as a plain one, which waits until it has ended."""
    calls, awaiting = instance.calls, instance.operator.awaiting
    timeout_s = None if awaiting is None else awaiting.timeout_s

    def called(*given: Any) -> Any:
        if calls is None:
            raise OperatorError(f"{instance.worker} has no event loop for its calls", instance.worker.operator)
        return calls.wait(lambda: function(*given), timeout_s)

    return called
