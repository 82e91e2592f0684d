"""Descriptions of sources and sinks; ``connectors`` reads and writes what they describe.

>>> replay("payments.parquet", rate=1_000)
Replay(data='payments.parquet', rate=1000.0, may_be_empty=False)
>>> rate(500, count=10_000).count
10000

Tables that users give, of pandas, Arrow and what has the Arrow stream interface, as Arrow tables of plain columns.

Encodings become the values that they stand for: dictionaries, runs, views, sparse and half-precision numbers. A column
whose values have no plain type, such as a pandas ``Period``, is refused by name, since it would be read as something
else: the number of months since 1970.

>>> import pandas
>>> plain_table(pandas.DataFrame({"c": pandas.Categorical(["a", "b", "a"])})).schema.field("c").type
DataType(string)
>>> plain_table(pandas.DataFrame({"m": pandas.period_range("2024-01", periods=1, freq="M")}))
Traceback (most recent call last):
fries_nb.errors.SourceError: column 'm' of the DataFrame holds period[M], which no column type of a stream holds; ...

Sources and sinks that the user has written: what is known of them here, by their methods alone.

``connectors.source.Source`` and ``connectors.sink.Sink`` (``fn.Source``, ``fn.Sink``) say what the methods do.

>>> class Half:
...     def splits(self, count):
...         return []
>>> misfit_of(Half(), OwnSource), misfit_of(Half, OwnSource)
('a Half without open()', 'the class Half; an instance of it is meant, as in Half()')
>>> described(Half())
'<...Half object>'

Descriptions of what Spark's catalogue holds: a table, as source or sink, and a query, as source.

>>> table("shop.payments", rate=1_000)
CatalogTable(name='shop.payments', rate=1000.0)
>>> str(sql("SELECT * FROM payments   WHERE amount > 10"))
'SELECT * FROM payments WHERE amount > 10'
"""

from __future__ import annotations

import datetime
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard, runtime_checkable

import pyarrow as pa

from fries_nb.dataflow.arguments import at_rate, checked_rate
from fries_nb.dataflow.columns import HeldBy, NotHeldError, converted, held
from fries_nb.dataflow.stream_endpoints import GrowingFiles, Kafka, check_role
from fries_nb.errors import DataflowError, SinkError, SourceError, close_match, exception_text

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


@runtime_checkable
class OwnSource(Protocol):
    """A source that the user has written. An attribute ``rate`` limits it, as that of ``Replay`` does."""

    def splits(self, count: int) -> Any:
        """See ``connectors.source.Source``."""

    def open(self, split: Any, position: Any) -> Any:
        """See ``connectors.source.Source``."""


@runtime_checkable
class OwnSink(Protocol):
    """A sink that the user has written."""

    def claim(self, flow: str, run: str) -> None:
        """See ``connectors.sink.Sink``."""

    def open(self, worker: Any, incarnation: int, epoch: int = 1) -> Any:
        """See ``connectors.sink.Sink``."""

    def prepare(self, parts: Any) -> None:
        """See ``connectors.sink.Sink``."""

    def commit(self, number: int, parts: Any) -> None:
        """See ``connectors.sink.Sink``."""


METHODS: dict[type, tuple[str, ...]] = {OwnSource: ("splits", "open"), OwnSink: ("claim", "open", "prepare", "commit")}
"""The methods that each of them must have."""


def misfit_of(given: object, kind: type) -> str:
    """What an object is that is no source or sink, for the message of an error.

    Args:
        given: the object.
        kind: ``OwnSource`` or ``OwnSink``.
    """
    named = [name for name in METHODS[kind] if callable(getattr(given, name, None))]
    if isinstance(given, type) and named:
        return f"the class {given.__name__}; an instance of it is meant, as in {given.__name__}()"
    lacking = ", ".join(f"{name}()" for name in METHODS[kind] if name not in named)
    return f"a {type(given).__name__} without {lacking}" if named else repr(given)


def described(given: object) -> str:
    """The ``repr`` of an object, without addresses of memory, so that it is the same in another process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(given))


def check_readable(name: str, target: object) -> None:
    """Check that the rows of a sink can be read.

    Args:
        name: name of the sink, or of the operator with dead letters.
        target: its target.

    Raises:
        DataflowError: it is a topic, or the user's own.
    """
    if isinstance(target, Kafka):
        raise DataflowError(
            f"the rows of {name!r} are messages of {target}, where consumers read them; expected a sink with memory(), "
            "parquet(path) or delta(path)"
        )
    if isinstance(target, OwnSink):
        raise DataflowError(
            f"the rows of {name!r} are in {described(target)}, a sink of your own, which only you can read; expected "
            "a sink with memory(), parquet(path) or delta(path)"
        )


SHOWN = 80
"""Characters of a query that are shown."""


@dataclass(frozen=True)
class CatalogTable:
    """A table of Spark's catalogue; made by ``table``."""

    name: str  # its name, with catalogue and database if it has them
    rate: float | None = None  # for a source, rows per second; ``None`` for as fast as the dataflow takes them

    def __str__(self) -> str:
        return f"the table {self.name}{at_rate(self.rate)}"


@dataclass(frozen=True)
class Query:
    """A query in Spark SQL; made by ``sql``."""

    text: str  # the query
    rate: float | None = None  # rows per second; ``None`` for as fast as the dataflow takes them

    def __str__(self) -> str:
        text = " ".join(self.text.split())
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
        return f"{shown}{at_rate(self.rate)}"


def table(name: str, rate: float | None = None) -> CatalogTable:
    """A table of Spark's catalogue: as a source the rows that it has when the run starts, as a sink a target for rows.

    A sink appends to a table of Parquet files or a Delta Lake table, which exists already, and has no partitions. The
    rows of a commit become visible together. One dataflow at a time appends to a table.

    Args:
        name: the table's name, as in ``SELECT * FROM name``; a view may be a source, too.
        rate: for a source, rows per second over all of its workers; ``None`` for as fast as the dataflow takes them.

    Returns:
        A description for ``Dataflow.source``, ``Stream.sink``, ``on_error=`` or the table of a ``join``.

    Raises:
        SourceError: ``name`` is no text, or ``rate`` is not positive.
    """
    return CatalogTable(_text("table", "the name of a table", name), checked_rate(rate))


def sql(query: str, rate: float | None = None) -> Query:
    """A query in Spark SQL over Spark's catalogue, as a source: its result when the run starts.

    Args:
        query: the query, as ``spark.sql`` takes it.
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.

    Returns:
        A description for ``Dataflow.source``, or the table of a ``join``.

    Raises:
        SourceError: ``query`` is no text, or ``rate`` is not positive.
    """
    return Query(_text("sql", "a query, as SELECT * FROM payments", query), checked_rate(rate))


def _text(function: str, expected: str, given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise SourceError(f"{function} takes {expected}; got {given!r}")
    return given.strip()


POLICIES = ("fail", "pause")


@dataclass(frozen=True)
class Replay:
    """The rows of a data set, in order; made by ``replay``.

    Attributes:
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
        may_be_empty: whether it may have no rows: a DataFrame or table may, a path without rows is taken for a
            mistake.
    """

    data: Any  # a Parquet path, an Arrow table or a Spark DataFrame
    rate: float | None = None
    may_be_empty: bool = False

    def __str__(self) -> str:
        what = self.data if isinstance(self.data, str) else f"a {type(self.data).__name__}"
        return f"{what}{at_rate(self.rate)}"


@dataclass(frozen=True)
class Rate:
    """Generated rows; made by ``rate``.

    Each row has the columns ``value`` (int64: 0, 1, 2, ...) and ``timestamp`` (int64: when the row was due, in
    nanoseconds since the Unix epoch), and those that ``row`` returns.

    Attributes:
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
    """

    rate: float | None
    count: int | None = None  # number of rows after which the source ends; ``None`` for an endless source
    row: Callable[[int], Mapping[str, Any]] | None = None  # function from ``value`` to further columns

    def __str__(self) -> str:
        return f"{'generated' if self.count is None else f'{self.count:,} generated'} rows{at_rate(self.rate)}"


@dataclass(frozen=True)
class Memory:
    """Keeps rows until ``run.output()`` reads them."""


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files in a directory, each visible once it is committed."""

    path: str  # the directory or its URI


@dataclass(frozen=True)
class DeltaTable:
    """A Delta Lake table; each commit is one transaction of its log."""

    path: str  # the table's directory or URI
    partition_by: tuple[str, ...] = ()  # the columns by which it is partitioned


DataSet = Replay | CatalogTable | Query
"""A source that knows all of its rows when the run starts."""
Source = DataSet | Rate | GrowingFiles | Kafka | OwnSource
Sink = Memory | ParquetFiles | DeltaTable | CatalogTable | Kafka | OwnSink
OnError = str | Sink
"""The error policy of an operator: ``fail``, ``pause``, or the sink that receives failed tuples as dead letters."""


def replay(data: Any, rate: float | None = None) -> Replay:
    """A source that replays the rows of a data set, in order.

    Args:
        data: a Parquet path, a Spark or pandas DataFrame, or Arrow data: a table, a record batch, or an object with the
            Arrow stream interface. A named pandas index becomes a column. One without rows is an empty stream.
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.

    Returns:
        A description for ``Dataflow.source``.

    Raises:
        SourceError: ``data`` is none of these or has a column that Arrow cannot represent, or ``rate`` is not positive.
    """
    if isinstance(data, (str, os.PathLike)):
        data = os.fspath(data)
        if not data:
            raise SourceError("replay got an empty path; expected a Parquet file or directory, or a DataFrame")
        return Replay(data, checked_rate(rate))
    if is_spark_frame(data):
        return Replay(data, checked_rate(rate), may_be_empty=True)
    if (table := plain_table(data)) is None:
        raise SourceError(
            f"replay got a {type(data).__name__}; expected the path of a Parquet file or directory, an Arrow table, or "
            "a Spark or pandas DataFrame"
        )
    return Replay(table, checked_rate(rate), may_be_empty=True)


def is_spark_frame(data: object) -> bool:
    """Whether an object is a DataFrame of Spark or of Spark Connect, by its attributes ``schema`` and ``write``.

    Raises:
        SourceError: it is a streaming DataFrame.
    """
    kind = type(data)
    if not (hasattr(kind, "schema") and hasattr(kind, "write")):
        return False
    if getattr(data, "isStreaming", False) is True:
        raise SourceError("a streaming DataFrame cannot be replayed; expected a batch one, or fn.rate for endless rows")
    return True


def rate(
    rate: float | None, count: int | None = None, row: Callable[[int], Mapping[str, Any]] | None = None
) -> Rate:
    """A source that generates rows with the columns ``value`` (0, 1, 2, ...) and ``timestamp``; see ``Rate``.

    ``timestamp`` is when a row was due: an integer, of nanoseconds since 1970. With ``time="timestamp"`` durations are
    nanoseconds as well; a window of a minute is ``fn.tumbling(60 * 10**9)``.

    Args:
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
        count: number of rows after which the source ends; ``None`` for an endless source.
        row: function from ``value`` to a mapping of further columns.

    Returns:
        A description for ``Dataflow.source``.

    Raises:
        SourceError: ``rate`` is not positive, ``count`` is not a positive integer, or ``row`` is not callable.
    """
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
        raise SourceError(f"count is a number of rows, 1 or more; got {count!r}")
    if row is not None and not callable(row):
        raise SourceError(f"row is a function from a row's number to its further columns; got {row!r}")
    return Rate(checked_rate(rate), count, row)


def memory() -> Memory:
    """A sink that keeps rows until ``run.output()`` reads them.

    Returns:
        A description for ``Stream.sink`` or ``on_error=``.
    """
    return Memory()


def parquet(path: str | os.PathLike[str]) -> ParquetFiles:
    """A sink that writes Parquet files into a directory.

    Args:
        path: the directory, or the URI of one that the driver and all hosts reach.

    Returns:
        A description for ``Stream.sink`` or ``on_error=``.

    Raises:
        SinkError: ``path`` is not a path.
    """
    return ParquetFiles(_directory("parquet", path))


def delta(path: str | os.PathLike[str], partition_by: Sequence[str] = ()) -> DeltaTable:
    """A sink that appends rows to a Delta Lake table (extra ``delta``).

    New columns are added to the table. A column keeps its type: narrower numbers are widened to it, and wider ones are
    refused, since the package ``deltalake`` widens no column. Unsigned integers become the next wider signed type,
    those of 64 bits ``decimal(20, 0)``. A table that is partitioned otherwise, or has constraints, invariants or
    generated columns, is refused when the run starts.

    Args:
        path: the table's directory or URI; the table is created if there is none.
        partition_by: the columns by which the table is partitioned, of text, integers, booleans, dates or times; each
            part of a commit has rows of one partition.

    Returns:
        A description for ``Stream.sink`` or ``on_error=``.

    Raises:
        SinkError: ``path`` is not a path, or ``partition_by`` no list of different names.
    """
    by = [partition_by] if isinstance(partition_by, str) else partition_by
    are_names = isinstance(by, Sequence) and all(isinstance(name, str) and name for name in by)
    if not are_names or len(set(by)) < len(by):
        raise SinkError(f"delta got partition_by={partition_by!r}; expected names of different columns, as ['day']")
    return DeltaTable(_directory("delta", path), tuple(by))


def _directory(sink: str, path: object) -> str:
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise SinkError(f"{sink} takes the path of a directory; got {path!r}")
    return str(os.fspath(path))


def checked_source(name: str, given: object) -> Source:
    """The validated description of a source.

    Raises:
        DataflowError: it is none.
        SourceError: the ``rate`` of the user's own source is not positive.
    """
    if not _is_one(given, Source):
        raise DataflowError(
            f"source {name!r} got {misfit_of(given, OwnSource)}; expected replay(path or DataFrame), rate(n), "
            "files(directory, format), table(name), sql(query), kafka(servers, topic), or an fn.Source of yours with "
            "splits() and open()"
        )
    source: Source = given
    if isinstance(source, Kafka):
        check_role(f"source {name!r} got ", source, "source")
        if source.on_error != "fail":
            checked_sink(f"source {name!r} has on_error=", source.on_error)
    if isinstance(source, GrowingFiles) and source.on_error != "fail":
        checked_sink(f"source {name!r} has bad_rows=", source.on_error)
    rate_of(source)
    return source


def columns_of_source(source: Source) -> tuple[str, ...] | None:
    """The columns of a source's rows, if its description tells them, as that of a table does; ``None`` if not.

    >>> columns_of_source(Replay(pa.table({"a": [1]}))), columns_of_source(Replay("a/path"))
    (('a',), None)
    """
    if isinstance(source, Kafka | GrowingFiles) and source.schema is not None:
        return None if getattr(source, "metadata", False) else tuple(source.schema.names)
    data = source.data if isinstance(source, Replay) else None
    names = data.column_names if isinstance(data, pa.Table) else getattr(data, "columns", None)
    return None if names is None else tuple(names)


def schema_of_source(source: Source) -> pa.Schema | None:
    """The columns of a source's rows with their types, as far as its description tells them; the type null for any.

    >>> schema_of_source(Replay(pa.table({"a": [1]}))).types, schema_of_source(Replay("a/path"))
    ([DataType(int64)], None)
    """
    names = columns_of_source(source)
    if names is None:
        return None
    data = source.data if isinstance(source, Replay) else None
    known = data.schema if isinstance(data, pa.Table) else getattr(source, "schema", None)
    types = {one.name: one.type for one in known} if isinstance(known, pa.Schema) else {}
    return pa.schema([(name, types.get(name, pa.null())) for name in names])


def rate_of(source: Source) -> float | None:
    """The declared rate of a source, in rows per second over all of its workers; ``None`` without one.

    Raises:
        SourceError: that of the user's own source is not positive.
    """
    return checked_rate(getattr(source, "rate", None))


def checked_sink(what: str, given: object) -> Sink:
    """The validated description of a sink.

    Args:
        what: where it was given, the beginning of the message of an error.
        given: the description.

    Raises:
        DataflowError: it is none.
    """
    if not _is_one(given, Sink):
        raise DataflowError(
            f"{what}{misfit_of(given, OwnSink)}; expected a sink: memory(), parquet(path), delta(path), table(name), "
            "kafka(servers, topic), or an fn.Sink of yours with claim(), open(), prepare() and commit()"
        )
    sink: Sink = given
    if isinstance(sink, Kafka):
        check_role(what, sink, "sink")
    return sink


def _is_one(given: object, kinds: Any) -> TypeGuard[Any]:
    """Whether an object is of one of these kinds; a class is none, though it has the methods of its instances."""
    return isinstance(given, kinds) and not isinstance(given, type)


def checked_policy(operator: str, given: object) -> OnError:
    """The validated value of an operator's ``on_error=``.

    Raises:
        DataflowError: the value is no error policy.
    """
    if _is_one(given, Sink) or (isinstance(given, str) and given in POLICIES):
        return given
    likely = close_match(given, POLICIES) if isinstance(given, str) else ""
    raise DataflowError(
        f"operator {operator!r} has on_error={given!r}; expected 'fail', 'pause', or where dead letters go: memory(), "
        f"parquet(path), delta(path), table(name) or an fn.Sink of yours{likely}"
    )
