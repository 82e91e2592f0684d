"""Descriptions of what Spark's catalogue holds: a table, as source or sink, and a query, as source.

>>> table("shop.payments", rate=1_000)
CatalogTable(name='shop.payments', rate=1000.0)
>>> str(sql("SELECT * FROM payments   WHERE amount > 10"))
'SELECT * FROM payments WHERE amount > 10'
"""

from __future__ import annotations

from dataclasses import dataclass

from fries_nb.dataflow.arguments import at_rate, checked_rate
from fries_nb.errors import SourceError

SHOWN = 80
"""Characters of a query that are shown."""


@dataclass(frozen=True)
class CatalogTable:
    """A table of Spark's catalogue; made by ``table``.

    Attributes:
        name: its name, with catalogue and database if it has them.
        rate: for a source, rows per second; ``None`` for as fast as the dataflow takes them.
    """

    name: str
    rate: float | None = None

    def __str__(self) -> str:
        return f"the table {self.name}{at_rate(self.rate)}"


@dataclass(frozen=True)
class Query:
    """A query in Spark SQL; made by ``sql``.

    Attributes:
        text: the query.
        rate: rows per second; ``None`` for as fast as the dataflow takes them.
    """

    text: str
    rate: float | None = None

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
