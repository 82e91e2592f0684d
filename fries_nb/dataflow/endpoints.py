"""Descriptions of sources and sinks; ``connectors`` reads and writes what they describe.

>>> replay("payments.parquet", rate=1_000)
Replay(data='payments.parquet', rate=1000.0, may_be_empty=False)
>>> rate(500, count=10_000).count
10000
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from fries_nb.dataflow.arguments import at_rate, checked_rate
from fries_nb.dataflow.catalog_endpoints import CatalogTable, Query
from fries_nb.dataflow.file_endpoints import GrowingFiles
from fries_nb.dataflow.given_tables import plain_table
from fries_nb.dataflow.kafka_endpoint import Kafka, check_role
from fries_nb.dataflow.own_endpoints import OwnSink, OwnSource, misfit_of
from fries_nb.errors import DataflowError, SinkError, SourceError, close_match

POLICIES = ("fail", "pause")


@dataclass(frozen=True)
class Replay:
    """The rows of a data set, in order; made by ``replay``.

    Attributes:
        data: a Parquet path, an Arrow table or a Spark DataFrame.
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
        may_be_empty: whether it may have no rows: a DataFrame or table may, a path without rows is taken for a mistake.
    """

    data: Any
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
        count: number of rows after which the source ends; ``None`` for an endless source.
        row: function from ``value`` to further columns.
    """

    rate: float | None
    count: int | None = None
    row: Callable[[int], Mapping[str, Any]] | None = None

    def __str__(self) -> str:
        return f"{'generated' if self.count is None else f'{self.count:,} generated'} rows{at_rate(self.rate)}"


@dataclass(frozen=True)
class Memory:
    """Keeps rows until ``run.output()`` reads them."""


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files in a directory, each visible once it is committed.

    Attributes:
        path: the directory or its URI.
    """

    path: str


@dataclass(frozen=True)
class DeltaTable:
    """A Delta Lake table; each commit is one transaction of its log.

    Attributes:
        path: the table's directory or URI.
        partition_by: the columns by which it is partitioned.
    """

    path: str
    partition_by: tuple[str, ...] = ()


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
