"""Outputs are values: a row leaves an operator as it was when its function returned (or yielded it).

A function may include a reference to its state in a row, ``row | {"last": state["last"]}``, and change the state with
the next tuple before the row has become part of a column; and the next operator of the chain may change, or keep, what
it gets. So mutable values, which Python shows by being unhashable, are copied between two operators and at the end of
the chain.

Checking every row would cost a row function a tenth of its time. At the end of a chain rows are checked until the
written columns have *settled*: their Arrow types hold only immutable values, and a column keeps its type.
``Columns.plain`` tells whether a batch has reached that state, or whether nothing in it was written at all.

>>> from fries_nb.operators.rows import Columns, Reads
>>> import pyarrow as pa
>>> came = next(Columns(pa.RecordBatch.from_pydict({"n": [1]}), Reads()).rows())
>>> last = [1]
>>> out = as_value(came | {"p": 0.5, "last": last}, "FM")
>>> last.append(2)
>>> out
{'n': 1, 'p': 0.5, 'last': [1]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from fries_nb.errors import DeclarationError, exception_text
from fries_nb.operators.rows import NestedRow, Row

all_hashable: Callable[[Iterable[object]], bool] = frozenset[object]().isdisjoint
"""Hash each of these values; raises what hashing raises."""

_values = dict.values
_IMMUTABLE = frozenset(
    kind.id for kind in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(),
        pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("us"), pa.duration("us"),
        pa.decimal128(1), pa.decimal256(1),
    )
)  # fmt: skip
"""Ids of the column types whose Python values are immutable."""


def as_value(row: Row, operator: str) -> Row:
    """Replace mutable values of a row that an operator emits by copies; returns the row.

    Raises:
        DeclarationError: a value cannot be copied.
    """
    try:
        if type(row) is NestedRow:
            row.drop_unchanged()
        all_hashable(_values(row))
    except Exception:  # noqa: BLE001 (not hashable, or by the user's own __hash__)
        try:
            row.copy_values()
        except Exception as error:
            raise DeclarationError(
                f"{operator} emitted a row of which a value cannot be copied ({exception_text(error)}); "
                "expected values that a column can hold, such as numbers, text, and lists of them",
                operator,
            ) from error
    return row


class SettledColumns:
    """The columns that have settled in each output of a chain that has had rows.

    The first rows of another output are checked in any case (see ``chain_compiler``).

    Attributes:
        names: the columns.
        of_output: index of each output that has had rows to the columns that have settled there.
    """

    def __init__(self) -> None:
        self.of_output: dict[int, frozenset[str]] = {}
        self.names: frozenset[str] = frozenset()

    def forget(self) -> None:
        """Forget all columns, since others may come or be written."""
        self.of_output.clear()
        self.names = frozenset()

    def learn(self, output: int, written: Iterable[str], types: Mapping[str, pa.DataType], operator: str) -> None:
        """Learn from a batch that was emitted.

        Args:
            output: index of the output.
            written: the columns that were written.
            types: the types of the batch's columns.
            operator: the name of the operator, for the message.

        Raises:
            DeclarationError: a column that had settled there now has mutable values, which may have changed.
        """
        names, before = list(written), self.of_output.get(output, frozenset())
        plain = frozenset(name for name in names if name in types and types[name].id in _IMMUTABLE)
        if lost := [name for name in names if name in before & self.names and name not in plain]:
            raise DeclarationError(
                f"{operator} wrote {types[lost[0]]} values to the column {lost[0]!r}, which took others before; "
                "a column keeps its type until the operator is changed",
                operator,
            )
        self.of_output[output] = before.difference(names) | plain
        self.names = frozenset.intersection(*self.of_output.values())
