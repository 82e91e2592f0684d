"""Tables that users give, of pandas, Arrow and what has the Arrow stream interface, as Arrow tables of plain columns.

Encodings become the values that they stand for: dictionaries, runs, views, sparse and half-precision numbers. A column
whose values have no plain type, such as a pandas ``Period``, is refused by name, since it would be read as something
else: the number of months since 1970.

>>> import pandas
>>> plain_table(pandas.DataFrame({"c": pandas.Categorical(["a", "b", "a"])})).schema.field("c").type
DataType(string)
>>> plain_table(pandas.DataFrame({"m": pandas.period_range("2024-01", periods=1, freq="M")}))
Traceback (most recent call last):
fries_nb.errors.SourceError: column 'm' of the DataFrame holds period[M], which no column type of a stream holds; ...
"""

from __future__ import annotations

import datetime
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.held_types import HeldBy, NotHeldError, converted, held
from fries_nb.errors import SourceError, exception_text

_FAMILIES = {
    bool: "a boolean", int: "a number", float: "a number", str: "text", bytes: "bytes",
    datetime.datetime: "a time", datetime.date: "a date", datetime.timedelta: "a duration",
}  # fmt: skip
"""Families of Python types. Arrow unites some of them, and changes values: 1 becomes True, a date a time."""


def plain_table(data: Any) -> pa.Table | None:
    """The rows of a table that a user gives; ``None`` if it is none.

    Raises:
        SourceError: a column has no plain type, or its values have none in common; or a name is not text, or used
            twice. Names the column.
    """
    what = f"the {type(data).__name__}"
    if _is_of(data, "pandas") and hasattr(data, "columns"):
        return _of_pandas(data, what)
    try:
        if isinstance(data, pa.RecordBatch):
            table = pa.Table.from_batches([data])
        elif isinstance(data, pa.Table):
            table = data
        elif hasattr(data, "__arrow_c_stream__"):
            table = pa.table(data)
        else:
            return None
    except Exception as error:
        raise SourceError(f"replay cannot make a table of this {type(data).__name__}: {_line(error)}") from error
    _refuse_names(table.column_names, what)
    columns = [_plain(column, name, what) for name, column in zip(table.column_names, table.columns, strict=True)]
    fields = [field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields))


def _of_pandas(data: Any, what: str) -> pa.Table:
    names = [*data.columns]
    _refuse_names(names, what)
    if any(name is not None for name in data.index.names):
        try:
            data = data.reset_index()
        except ValueError as error:  # a level has the name of a column
            raise SourceError(f"the index of {what} cannot become columns: {_line(error)}; rename it") from error
        _refuse_names([*data.columns], what)
        data = data[[*names, *(name for name in data.columns if name not in names)]]
    else:
        _warn_of_index(data.index)
    columns = [_of_series(data.iloc[:, number], name, what) for number, name in enumerate(data.columns)]
    return pa.table(columns, names=list(data.columns))


def _of_series(series: Any, name: str, what: str) -> pa.ChunkedArray:
    """A column of pandas as Arrow has it, copied, since the user may edit the frame."""
    kind = series.dtype
    if _is_of(kind, "pandas") and hasattr(series, "sparse"):
        series = series.sparse.to_dense()
    if str(kind) == "object":
        _refuse_mixed(series, name, what)
    try:
        column = pa.Array.from_pandas(series.copy())
    except Exception as error:
        raise SourceError(
            f"column {name!r} of {what} ({kind}) cannot be a column of a stream: {_line(error)}; convert it"
        ) from error
    whole = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    categories = getattr(kind, "categories", None)
    return _plain(whole, name, what, str(kind) if categories is None else f"categories of {categories.dtype}")


def _plain(column: pa.ChunkedArray, name: str, what: str, shown: str = "") -> pa.ChunkedArray:
    """A column in the type in which streams have it."""
    try:
        wanted = _stream_type(column.type)
        return pa.chunked_array([converted(chunk, wanted) for chunk in column.chunks], wanted)
    except NotHeldError as error:
        if error.reason:
            raise SourceError(f"column {name!r} of {what}: {error}") from error
        raise SourceError(
            f"column {name!r} of {what} holds {shown or column.type}, which no column type of a stream holds; "
            f"{'convert it with .dt.to_timestamp() or .astype(str)' if 'period' in shown else error.remedy}"
        ) from error


def _stream_type(kind: pa.DataType) -> pa.DataType:
    """The plain type for a column: of those that Parquet files keep, in which data are staged."""
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):  # Parquet has no seconds
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind) and kind.unit in ("s", "ms"):
        return pa.duration("us")
    if kind == pa.uuid() or pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_time(kind):
        return kind
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        return kind if kind.bit_width > 64 else pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_nested(kind) and not _is_encoded(kind):
        return kind
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _stream_type(kind.value_type)
    return held(kind, HeldBy.FILES)


def _is_encoded(kind: pa.DataType) -> bool:
    """Whether a nested type has, at any depth, a type that is not plain."""
    if pa.types.is_nested(kind) and not (pa.types.is_union(kind) or _has_views(kind)):
        return any(_is_encoded(kind.field(number).type) for number in range(kind.num_fields))
    try:
        return _stream_type(kind) != kind if not pa.types.is_nested(kind) else True
    except NotHeldError:
        return True


def _has_views(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind) or pa.types.is_run_end_encoded(kind)
    )


def _refuse_names(names: Iterable[Any], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise SourceError(
                f"{what} has a column named {name!r} ({type(name).__name__}); a column's name is text: set .columns"
            )
        if name in seen:
            raise SourceError(f"{what} has several columns {name!r}; a row is a dict, with one value a name")
        seen.add(name)


def _refuse_mixed(series: Any, name: str, what: str) -> None:
    """Refuse values of two families in a column of Python objects, before Arrow makes others of them."""
    found: dict[str, Any] = {}
    kinds = set(map(type, series))
    if len(kinds) == 1 and not issubclass(next(iter(kinds)), datetime.datetime):
        return
    for value in series:
        family = next((words for kind, words in _FAMILIES.items() if isinstance(value, kind)), "")
        if not family or value != value:  # NaN and NaT stand for no value
            continue
        if family == "a time":
            family = "a time with an offset" if value.tzinfo is not None else "a time without an offset"
        found.setdefault(family, value)
        if len(found) > 1:
            (one, first), (other, second) = found.items()
            raise SourceError(
                f"column {name!r} of {what} has {one} ({first!r}) beside {other} ({second!r}); "
                "expected values of one type; convert them"
            )


def _warn_of_index(index: Any) -> None:
    """Say that an index without a name is left out, unless it only numbers the rows."""
    if len(index) == 0 or str(index.dtype).startswith(("int", "uint", "Int", "UInt")):
        return
    warnings.warn(
        f"replay leaves out the index of the DataFrame ({type(index).__name__}, first {str(index[0])!r}), which has no "
        "name; frame.rename_axis('time') makes it the column 'time'",
        UserWarning,
        stacklevel=5,
    )


def _is_of(value: Any, package: str) -> bool:
    return package in sys.modules and type(value).__module__.partition(".")[0] == package


def _line(error: Exception) -> str:
    """The first line of an exception's message, without a stack."""
    text = "; ".join(str(part) for part in error.args) if isinstance(error, pa.ArrowException) else str(error)
    return (text.splitlines() or [exception_text(error)])[0]
