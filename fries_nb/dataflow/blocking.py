"""Blocking operators, which need all of their input before they emit: Spark SQL executes them between regions.

Only the query is declared here; it reads a view of the rows of the region above.

>>> print(Aggregation(("shop",), (("total", "sum(amount)"),)).sql("rows"))
SELECT `shop`, sum(amount) AS `total` FROM `rows` GROUP BY `shop`
>>> print(Ordering((("amount", True), ("shop", False))).sql("rows"))
SELECT * FROM `rows` ORDER BY `amount` DESC, `shop`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fries_nb.errors import DataflowError


@dataclass(frozen=True)
class Aggregation:
    """One row for each group of equal values in ``by`` (one in all if it is empty), with named SQL expressions."""

    by: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    def sql(self, view: str) -> str:
        """The query over a view of that name."""
        given = [f"{expression} AS {quoted(name)}" for name, expression in self.columns]
        groups = [quoted(name) for name in self.by]
        query = f"SELECT {', '.join([*groups, *given])} FROM {quoted(view)}"
        return f"{query} GROUP BY {', '.join(groups)}" if groups else query


@dataclass(frozen=True)
class Ordering:
    """All rows in the order of these columns, each with a flag for descending order."""

    by: tuple[tuple[str, bool], ...]

    def sql(self, view: str) -> str:
        """The query over a view of that name."""
        terms = [quoted(name) + (" DESC" if descends else "") for name, descends in self.by]
        return f"SELECT * FROM {quoted(view)} ORDER BY {', '.join(terms)}"


def quoted(name: str) -> str:
    """A column name as a quoted identifier of SQL."""
    return "`" + name.replace("`", "``") + "`"


def aggregation(operator: str, by: tuple[str, ...], columns: object) -> Aggregation:
    """The validated arguments of ``aggregate``, as far as they can be checked without Spark.

    Raises:
        DataflowError: no columns, a name or an expression that is not a string, or a name twice.
    """
    if not isinstance(columns, Mapping) or not columns:
        raise DataflowError(f"aggregate {operator!r} got {columns!r}; expected {{'total': 'sum(amount)'}} or the like")
    for name, expression in columns.items():
        if not all(isinstance(word, str) and word.strip() for word in (name, expression)):
            raise DataflowError(
                f"aggregate {operator!r} has the column {name!r}: {expression!r}; expected a name and a SQL expression"
            )
        if name in by:
            raise DataflowError(f"aggregate {operator!r} has the column {name!r} twice; it groups by it already")
    return Aggregation(by, tuple(columns.items()))


def ordering(operator: str, by: Sequence[str], descending: object) -> Ordering:
    """The validated arguments of ``sort``.

    Raises:
        DataflowError: no column to sort by, or ``descending`` is not a flag.
    """
    if not by:
        raise DataflowError(f"sort {operator!r} needs the columns to sort by; got none")
    if not isinstance(descending, bool):
        raise DataflowError(f"sort {operator!r} has descending={descending!r}; expected True or False")
    return Ordering(tuple((name, descending) for name in by))
