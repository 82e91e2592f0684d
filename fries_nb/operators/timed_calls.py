"""Calls of timed functions: ``process(row, state, at)`` for a row, ``due(key, time, state)`` when a time has passed.

``at`` is borrowed: there is one for an operator, which stands for the row whose function runs, and for none afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fries_nb.dataflow.hidden_columns import TIME
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.operators import is_generator
from fries_nb.errors import DeclarationError, TokenError
from fries_nb.operators.failures import FAILURES, failure
from fries_nb.operators.firing import TimeValues, due_emitter, is_reached, rows_of, time_values
from fries_nb.operators.instance import Instance
from fries_nb.operators.rows import Columns, Row
from fries_nb.operators.state import key_reader
from fries_nb.progress.agenda import Agenda
from fries_nb.progress.tokens import Token
from fries_nb.protocol.partitioning import bins_of_keys

if TYPE_CHECKING:
    from fries_nb.operators.steps import Behind


class At:
    """The time of the row that a function processes, and what it can do by it. Of use while the function runs."""

    __slots__ = ("_columns", "_index", "_instance", "_key")

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._columns: Columns | None = None
        self._index, self._key = 0, None

    def begin(self, row: Row, key: Any) -> None:
        """Stand for a row; for the runtime, as is ``end``."""
        self._columns, self._index, self._key = row.columns, row.index, key

    def end(self) -> None:
        """Stand for no row."""
        self._columns = None

    @property
    def _ticks(self) -> int:
        return self._row().times()[self._index]

    @property
    def _values(self) -> TimeValues:
        return time_values(self._row().batch.schema.field(TIME).type)

    def _row(self) -> Columns:
        if self._columns is None:
            raise TokenError(
                f"{self._instance.worker.operator}: at was used outside of the function that got it; take what is "
                "needed from it while the function runs, or a token with at.keep()"
            )
        return self._columns

    @property
    def time(self) -> Any:
        """The time of the row: a ``datetime`` if the source's times are timestamps, otherwise an integer."""
        return self._values.shown(self._ticks)

    @property
    def round(self) -> int:
        """The row's round in the innermost loop."""
        self._row()
        rounds = self._instance.agenda.stamp[2:] if self._instance.agenda is not None else ()
        if not rounds:
            raise TokenError(f"{self._instance.worker.operator}: a row outside of loops has no round")
        return rounds[-1]

    def call(self, time: Any) -> None:
        """Have ``due(key, time, state)`` called for the row's key, when no row of this time can still arrive.

        Calls for one time and key count once. If that time has passed, since the row came late, ``due`` is called as
        soon as it can be, with the time of then.
        """
        ticks, name = self._values.ticks_from(time, self._ticks), self._instance.worker.operator
        book = self._instance.tokens
        assert book is not None, "the operator is timed"
        book.check_bound("at")
        if not callable(getattr(self._instance.function, "due", None)):
            raise TokenError(f"{name}: at.call() needs a function with due(key, time, state), and there is none")
        if ticks < self._ticks:
            raise TokenError(f"{name}: at.call({time!r}) is for a time before that of the row, {self.time!r}")
        agenda = self._instance.agenda
        assert agenda is not None, "the operator is timed"
        agenda.call(max(ticks, agenda.stamp[1]), canonical_key(self._key))

    def keep(self) -> Token:
        """A token of the row's time: the right to produce output at that time, or later, until it is dropped.

        That of a row that came late has the least time at which rows can still be produced.
        """
        book, agenda = self._instance.tokens, self._instance.agenda
        assert book is not None, "the operator is timed"
        assert agenda is not None, "the operator is timed"
        version, right, *rounds = agenda.stamp
        return book.keep(int(bins_of_keys([canonical_key(self._key)])[0]), (version, max(self._ticks, right), *rounds))


def timed_call(instance: Instance) -> Callable[[Row], Any]:
    """The current function, a timed one, as a function of a row."""
    process, read, at = instance.function.process, key_reader(instance.operator.key), At(instance)
    find, touch = instance.state.find, instance.state.touch

    @contextmanager
    def begun(row: Row) -> Iterator[Any]:
        """The state of the row's key, while ``at`` stands for the row."""
        key = read(row)
        try:
            state = find(key)
        except TypeError:  # not hashable; ``touch`` says what it is
            state = None
        at.begin(row, key)
        try:
            with _keeping(instance, key):
                yield touch(key) if state is None else state
        finally:
            at.end()

    def call(row: Row) -> Any:
        with begun(row) as state:
            return process(row, state, at)

    def drawn(row: Row) -> Iterator[Any]:
        with begun(row) as state:
            yield from process(row, state, at)

    return drawn if is_generator(instance.function) else call


@contextmanager
def _keeping(instance: Instance, key: Any) -> Iterator[None]:
    """Records that the key holds the tokens that are made within the block, if they matter to its function."""
    book, agenda = instance.tokens, instance.agenda
    assert book is not None, "the operator is timed"
    assert agenda is not None, "the operator is timed"
    mark = book.mark()
    yield
    if agenda.keepers is not None and hasattr(instance.function, "reached"):
        agenda.keepers.add(canonical_key(key), mark)


class TokenOutput:
    """What ``reached`` sends rows with: ``out.give(token, rows)``. Of use while the function runs."""

    def __init__(self, instance: Instance, values: TimeValues) -> None:
        self._instance, self._values = instance, values
        self.given: list[tuple[int, dict[str, Any]]] = []

    @property
    def round(self) -> int:
        """The round in the innermost loop for which ``reached`` runs; it is called once for each."""
        rounds = self._agenda.stamp[2:]
        if not rounds:
            raise TokenError(f"{self._instance.worker.operator}: reached has no round outside of loops")
        return rounds[-1]

    @property
    def _agenda(self) -> Agenda:
        assert self._instance.agenda is not None, "the operator is timed"
        return self._instance.agenda

    def give(self, token: Token, rows: Any) -> None:
        """Send rows at the time of a token, in transactions of their own."""
        book, stamp, name = self._instance.tokens, self._agenda.stamp, self._instance.worker.operator
        assert book is not None, "the operator is timed"
        if not isinstance(token, Token):
            raise TokenError(f"{name}: out.give() got {token!r}; expected a token of at.keep(), and the rows after it")
        time = book.time_of(token)
        if time[2:] != stamp[2:]:
            raise TokenError(
                f"{name}: a token of round {time[-1]} was given rows while reached runs for round {stamp[-1]}; give "
                "rows with the tokens whose round is out.round, since reached is called once for each"
            )
        if time[1] < stamp[1]:
            shown = self._values.shown(time[1])
            raise TokenError(
                f"{name}: a token of time {shown!r} is not one of the key for which reached runs; give rows with those"
            )
        self.given += [(time[1], row) for row in rows_of(self._instance, rows)]


def _reached(instance: Instance, row: Row) -> list[tuple[int, dict[str, Any]]]:
    """What ``reached`` sends for a key, each row with its time."""
    agenda, key, columns = instance.agenda, key_reader(instance.operator.key)(row), row.columns
    assert agenda is not None, "the operator is timed"
    values = time_values(columns.batch.schema.field(TIME).type)
    out, elements = TokenOutput(instance, values), agenda.frontier.elements if agenda.frontier is not None else ()
    least = min((time[1] for time in elements), default=None)
    try:
        with _keeping(instance, key):
            shown = None if least is None else values.shown(least)
            result = instance.function.reached(shown, instance.state.touch(key), out)
    except FAILURES as error:
        raise failure(instance, error) from error
    if result is not None:
        name = instance.worker.operator
        raise DeclarationError(
            f"{name} returned {type(result).__name__} from reached; rows are sent with out.give(token, rows), by a "
            "function that is no generator",
            name,
        )
    return out.given


def due_step(instance: Instance, behind: Behind) -> Callable[[Row], None]:
    """Emits what ``due`` makes for a key whose time has passed."""
    emit_all = due_emitter(instance, behind.valued(instance)[0])
    due = getattr(instance.function, "due", None)
    read, touch = key_reader(instance.operator.key), instance.state.touch

    def step(row: Row) -> None:
        if is_reached(row.columns.batch):
            emit_all(row, _reached(instance, row))
            return
        key, columns = read(row), row.columns
        if due is None:
            raise TokenError(f"{instance.worker.operator} has entries that are due, and its function has no due()")
        shown = time_values(columns.batch.schema.field(TIME).type).shown
        try:
            result = due(key, shown(columns.times()[row.index]), touch(key))
        except FAILURES as error:
            raise failure(instance, error) from error
        t = columns.times()[row.index]
        emit_all(row, ((t, out) for out in rows_of(instance, result)))

    return step
