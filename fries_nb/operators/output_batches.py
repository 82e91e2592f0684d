"""Rows become a batch again: what was written as new columns, all else as the columns that came.

>>> from fries_nb.operators.rows import Reads
>>> columns = Columns(pa.RecordBatch.from_pydict({"amount": [3, 4], "shop": ["a", "b"]}), Reads())
>>> rows = [row | {"double": 2 * row["amount"]} for row in columns.rows()]
>>> assemble(rows[1:], columns, {}).to_pydict()
{'amount': [4], 'shop': ['b'], 'double': [8]}
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from fries_nb.messages import HIDDEN
from fries_nb.operators.conversion import to_arrow
from fries_nb.operators.rows import Columns, Row, WholeRow

Results = list[tuple[int, pa.RecordBatch]]
"""Batches that a chain produced, each with the number of the branch that it leaves by."""


def assemble(rows: Sequence[Row], columns: Columns, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """The rows (at least one) that a chain produced from ``columns`` as one batch, hidden columns carried along.

    ``types`` remembers the types of written columns from batch to batch, so that a column that starts with nulls or
    whole numbers does not change its type without need.

    Raises:
        ValueError, TypeError, OverflowError, pyarrow.ArrowException: a column has no Arrow type, or no proper name.
    """
    origin = _origin(rows, columns.batch)
    whole = WholeRow in set(map(type, rows))
    if not whole and not columns.written:
        return origin
    values = _all_values(rows) if whole else {name: _values(rows, name) for name in columns.written}
    names = [name for name in (values if whole else dict.fromkeys((*columns.names, *values))) if name not in HIDDEN]
    arrays: list[pa.Array] = []
    for name in names:
        if name not in values:
            arrays.append(origin.column(name))
        else:
            known = types.get(name) or (columns.batch.schema.field(name).type if name in columns.names else None)
            arrays.append(to_arrow(values[name], known))
            types[name] = arrays[-1].type
    arrays.extend([origin.column(name) for name in columns.hidden])
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *columns.hidden])


def _origin(rows: Sequence[Row], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The input rows that these rows come from: a slice where none was dropped or multiplied."""
    indices = list(map(attrgetter("index"), rows))
    first, count = indices[0], len(indices)
    if indices[-1] - first + 1 == count and indices == list(range(first, first + count)):
        return batch if count == batch.num_rows else batch.slice(first, count)
    return batch.take(pa.array(indices, type=pa.int64()))


def _all_values(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """All columns' values, where some row may have a column that others do not.

    Mostly none has: then all have those of the first one, and no more in number.
    """
    try:
        found = {name: list(map(itemgetter(name), rows)) for name in rows[0]}
    except KeyError:
        found = {}
    if sum(map(len, rows)) == len(found) * len(rows):
        return found
    return {name: _values(rows, name) for name in dict.fromkeys(chain.from_iterable(rows))}


def _values(rows: Sequence[Row], name: str) -> list[Any]:
    """A column's values; null in the rows that do not have it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]
