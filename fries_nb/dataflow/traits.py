"""The traits of operator kinds, in one table on which all other packages depend.

A new kind is a member of ``Kind`` and an entry in ``TRAITS``, and, if workers call a function row by row or batch by
batch, an entry in ``operators/kinds.py``. No other module names kinds, except to declare operators (the builder, the
regions, shadows).

>>> TRAITS[Kind.MAP].runs_user_code, TRAITS[Kind.JOIN].runs_user_code, TRAITS[Kind.JOIN].is_changeable
(True, False, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kind of an operator, which determines how the runtime executes it."""

    SOURCE = "source"
    MAP = "map"
    FILTER = "filter"
    FLAT_MAP = "flat_map"
    SPLIT = "split"
    UNION = "union"
    REPLICATE = "replicate"
    LOOP = "loop"
    WINDOW = "window"
    REDUCE = "reduce"
    COUNT_WINDOW = "count_window"
    UNNEST = "unnest"
    SELF_JOIN = "self_join"
    JOIN = "join"
    JOIN_WITHIN = "join_within"
    JOIN_LATEST = "join_latest"
    JOIN_WINDOW = "join_window"
    DEDUP = "dedup"
    DEDUP_WITHIN = "dedup_within"
    COMPARISON = "comparison"
    AGGREGATE = "aggregate"
    SORT = "sort"
    SINK = "sink"


class Emits(StrEnum):
    """How many (tuple, receiver) pairs one input tuple may cause (Fries, definitions 5.1 and 5.2)."""

    ONE_TO_ONE = "one_to_one"
    ONE_TO_MANY = "one_to_many"


class Execution(StrEnum):
    """How a worker processes a batch."""

    READ = "read"
    """The batch comes from a reader, and is passed on unchanged."""
    PASS = "pass"
    """The batch is passed on unchanged."""
    CALL = "call"
    """A function is called with its rows, or with slices of it (see ``operators.kinds``)."""
    WRITE = "write"
    """The batch is written to a sink."""
    SPARK = "spark"
    """The operator has no worker; Spark SQL runs it between two regions."""


class Holds(StrEnum):
    """The type of an operator's ``function``."""

    FUNCTION = "function"
    """The user's code."""
    TABLE = "table"
    """A ``JoinTable``."""
    COLUMN = "column"
    """The name of a column."""
    SUFFIX = "suffix"
    """The suffix for names of columns that both sides have."""
    ENDPOINT = "endpoint"
    """The description of a source or a sink."""
    QUERY = "query"
    """The query for Spark SQL."""
    DURATION = "duration"
    """A number: seconds, or units of the times of rows if these are integers."""
    NOTHING = "nothing"
    """``None``."""


class Returns(StrEnum):
    """What the user's function returns for a row; a batched one returns the same for a batch."""

    ROW = "row"
    """A row, or ``None``; a generator yields several."""
    ROWS = "rows"
    """An iterable of rows, or a generator."""
    ANSWER = "answer"
    """A value about the row, such as a truth value; a generator is refused."""


class ColumnsOut(StrEnum):
    """The relation of the output columns to the input columns."""

    SAME = "same"
    """The same columns."""
    MORE = "more"
    """All input columns, and further ones."""
    OWN = "own"
    """Any columns, chosen by the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTraits:
    """The traits of all operators of a kind."""

    execution: Execution  # how a worker processes a batch
    holds: Holds  # the type of ``Operator.function``
    # what the user's function returns for a row; significant if ``holds`` is ``FUNCTION``
    returns: Returns = Returns.ROWS
    emits: Emits = Emits.ONE_TO_ONE  # ``ONE_TO_MANY`` if one row may become many, whatever the function or table
    columns: ColumnsOut = ColumnsOut.OWN  # the relation of the output columns to the input columns
    batched: bool = False  # whether the user's function may be vectorised
    awaits: bool = False  # whether the user's function may be a coroutine, of which calls overlap
    chained: bool = False  # whether it can share a worker with its neighbours
    # whether the operator itself keeps state by key. (A user function may keep state if there is a key.)
    keeps_state: bool = False
    routes: bool = False  # whether it sends each row to one of several branches, which are separate streams (``SP[1]``)
    copies: bool = False  # whether it sends each row along all of its out-edges
    two_sided: bool = False  # whether it distinguishes rows of its first input, the left side, from those of the others
    heads_loop: bool = False  # whether it is the head of a loop, which rows enter and come back to
    timed: bool = False  # whether its state is by the time of rows, and it emits when a time can no longer arrive

    @property
    def is_source(self) -> bool:
        """Whether rows enter the dataflow here."""
        return self.execution is Execution.READ

    @property
    def is_sink(self) -> bool:
        """Whether rows leave the dataflow here."""
        return self.execution is Execution.WRITE

    @property
    def pairs(self) -> bool:
        """Whether it joins two streams in time: it keeps rows of both as long as they may find partners."""
        return self.two_sided and self.timed

    @property
    def runs_user_code(self) -> bool:
        """Whether a worker calls a user function."""
        return self.holds is Holds.FUNCTION

    @property
    def keeps_columns(self) -> bool:
        """Whether the output has all input columns."""
        return self.columns is not ColumnsOut.OWN

    @property
    def is_changeable(self) -> bool:
        """Whether its function or table can be changed while the dataflow runs."""
        return self.holds in (Holds.FUNCTION, Holds.TABLE)


_PAIRING = OperatorTraits(
    execution=Execution.CALL, holds=Holds.FUNCTION, emits=Emits.ONE_TO_MANY, chained=True, keeps_state=True,
    two_sided=True, timed=True,
)  # fmt: skip

TRAITS: Mapping[Kind, OperatorTraits] = {
    Kind.SOURCE: OperatorTraits(execution=Execution.READ, holds=Holds.ENDPOINT),
    Kind.MAP: OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, returns=Returns.ROW, batched=True, awaits=True,
        chained=True,
    ),
    Kind.FILTER: OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, returns=Returns.ANSWER, columns=ColumnsOut.SAME,
        batched=True, awaits=True, chained=True,
    ),
    Kind.FLAT_MAP: OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, emits=Emits.ONE_TO_MANY, batched=True, awaits=True,
        chained=True,
    ),
    Kind.SPLIT: OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, returns=Returns.ANSWER, columns=ColumnsOut.SAME,
        chained=True, routes=True,
    ),
    Kind.UNION: OperatorTraits(execution=Execution.PASS, holds=Holds.NOTHING, columns=ColumnsOut.SAME),
    Kind.REPLICATE: OperatorTraits(
        execution=Execution.PASS, holds=Holds.NOTHING, emits=Emits.ONE_TO_MANY, columns=ColumnsOut.SAME, copies=True
    ),
    Kind.LOOP: OperatorTraits(
        execution=Execution.PASS, holds=Holds.NOTHING, columns=ColumnsOut.SAME, heads_loop=True
    ),
    Kind.UNNEST: OperatorTraits(
        execution=Execution.CALL, holds=Holds.COLUMN, emits=Emits.ONE_TO_MANY, chained=True
    ),
    Kind.SELF_JOIN: OperatorTraits(
        execution=Execution.CALL, holds=Holds.SUFFIX, columns=ColumnsOut.MORE, keeps_state=True, two_sided=True
    ),
    Kind.JOIN: OperatorTraits(
        execution=Execution.CALL, holds=Holds.TABLE, columns=ColumnsOut.MORE, chained=True
    ),
    Kind.DEDUP: OperatorTraits(
        execution=Execution.CALL, holds=Holds.NOTHING, columns=ColumnsOut.SAME, chained=True, keeps_state=True
    ),
    Kind.DEDUP_WITHIN: OperatorTraits(
        execution=Execution.CALL, holds=Holds.DURATION, columns=ColumnsOut.SAME, chained=True, keeps_state=True,
        timed=True,
    ),
    Kind.COMPARISON: OperatorTraits(
        execution=Execution.CALL, holds=Holds.NOTHING, columns=ColumnsOut.SAME, keeps_state=True, two_sided=True
    ),
    Kind.WINDOW: OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, emits=Emits.ONE_TO_MANY, chained=True, timed=True
    ),
    Kind.REDUCE: OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, emits=Emits.ONE_TO_MANY, chained=True, timed=True
    ),
    Kind.JOIN_WITHIN: _PAIRING,
    Kind.JOIN_LATEST: _PAIRING,
    Kind.JOIN_WINDOW: _PAIRING,
    Kind.COUNT_WINDOW: OperatorTraits(
        execution=Execution.CALL, holds=Holds.FUNCTION, emits=Emits.ONE_TO_MANY, chained=True, keeps_state=True
    ),
    Kind.AGGREGATE: OperatorTraits(execution=Execution.SPARK, holds=Holds.QUERY),
    Kind.SORT: OperatorTraits(execution=Execution.SPARK, holds=Holds.QUERY),
    Kind.SINK: OperatorTraits(execution=Execution.WRITE, holds=Holds.ENDPOINT),
}  # fmt: skip
