"""The build side of a join: a table whose rows are looked up by key.

Declaring a join makes a ``JoinTable`` of the given table. Before a run its rows are stored where every host can read
them; ``open()`` reads them and builds an index; ``find`` looks up a tuple. Keys compare as in Spark: null equals
nothing, NaN equals NaN; all else is said in ``dataflow.keys``.

>>> table = JoinTable("J1", pa.table({"shop": [7, 8], "city": ["Rome", "Oslo"]}), {"SHOP_ID": "shop"})
>>> table.open()
>>> table.find(8), table.find(9)
([{'city': 'Oslo'}], [])
>>> JoinTable("J2", pa.table({"shop": [7, 7]}), {"shop": "shop"}).open()
Traceback (most recent call last):
fries_nb.errors.DeclarationError: 1 key comes more than once in the table of J2, e.g. 7; expected one row a key, ...
"""

from __future__ import annotations

import datetime
import functools
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fries_nb.dataflow.endpoints import CatalogTable, Query, is_spark_frame
from fries_nb.dataflow.keys import canonical_key, refuse_as_key
from fries_nb.errors import DataflowError, DeclarationError, KeyTypeError, unknown

_FAMILIES = {
    numbers.Number: "a number", str: "a string", bytes: "bytes", datetime.datetime: "a time", datetime.date: "a date",
    datetime.time: "a time of day", datetime.timedelta: "a duration",
}  # fmt: skip
"""Families of types: values of two families are never equal. The first match counts: a datetime is a date as well."""


class Index:
    """The rows of a table by key. The rows do not include the key's columns, which the tuple has."""

    def __init__(self, table: pa.Table, key: Sequence[str]) -> None:
        given = [table.column(name).to_pylist() for name in key]
        keys = given[0] if len(key) == 1 else list(zip(*given, strict=True))
        # ``repeated``: keys that occur more than once
        self._positions, self.repeated = _positions(list(map(canonical_key, keys)))
        self._families = [_family(next((value for value in values if value is not None), None)) for values in given]
        rest = table.drop_columns(list(key))
        self.schema: pa.Schema = rest.schema  # schema of the rows
        self._columns = [(name, rest.column(name).to_pylist()) for name in rest.schema.names]

    def find(self, key: Any) -> list[dict[str, Any]]:
        """The rows of a key (a tuple of values if it has several columns), as new dicts."""
        try:
            positions = self._positions.get(key)
        except TypeError:  # not hashable; ``canonical_key`` says what it is
            positions = None
        if not positions:
            key = canonical_key(key)
            positions = self._positions.get(key, ())
        if not positions:
            self._refuse_other_families(key)
        return [{name: values[position] for name, values in self._columns} for position in positions]

    def _refuse_other_families(self, key: Any) -> None:
        for value, family in zip(key if isinstance(key, tuple) else (key,), self._families, strict=True):
            if family and value is not None and (own := _family(value)) and own != family:
                raise TypeError(f"the key {value!r} is {own}, and in the table it is {family}; none can ever be equal")


def _positions(keys: list[Any]) -> tuple[dict[Any, Sequence[int]], list[Any]]:
    """The positions of the rows of each key, and the keys that occur more than once; keys with a null are excluded."""
    positions: dict[Any, Sequence[int]] = {}
    repeated: list[Any] = []
    for position, key in enumerate(keys):
        if key is None or (isinstance(key, tuple) and None in key):
            continue
        there = positions.get(key)
        if there is None:
            positions[key] = (position,)
        elif isinstance(there, list):
            there.append(position)
        else:
            positions[key] = [*there, position]
            repeated.append(key)
    return positions, repeated


def _family(value: Any) -> str:
    """The family of types whose values can equal this value, in words; empty for lists and the like."""
    type_: type = type(value)
    family = _family_of_type(type_)
    return f"{family} with a time zone" if getattr(value, "tzinfo", None) is not None else family


@functools.cache  # a key without a partner is looked at, and checks of abstract types take longer than the search
def _family_of_type(type_: type) -> str:
    return next((words for kind, words in _FAMILIES.items() if issubclass(type_, kind)), "")


class JoinTable:
    """The function of a join: its table, and how it is looked up.

    Raises:
        DataflowError: data, columns or ``how`` are invalid; names a column that the table lacks.
    """

    def __init__(
        self, operator: str, data: Any, on: Mapping[str, str], how: str = "inner", one_to_many: bool = False,
        suffix: str = "_right",
    ) -> None:
        if not is_table(data):
            raise DataflowError(
                f"join {operator!r} got a {type(data).__name__} as its table; expected a Spark DataFrame, an Arrow "
                "table, the path of a Parquet file or directory, table(name) or sql(query)"
            )
        if how not in ("inner", "left"):
            raise DataflowError(f"join {operator!r} has how={how!r}; expected 'inner' or 'left'")
        if not isinstance(one_to_many, bool):
            raise DataflowError(f"join {operator!r} has one_to_many={one_to_many!r}; expected True or False")
        self.operator = operator
        # a Spark DataFrame, an Arrow table, the path of a Parquet file or directory, or a table or query of Spark's
        # catalogue
        self.data = os.fspath(data) if isinstance(data, os.PathLike) else data
        self.on = dict(on)
        self.how = how  # ``inner`` drops a tuple without a partner, ``left`` keeps it with nulls
        self.one_to_many = one_to_many  # whether a key may have several rows, each of which makes a tuple
        self.suffix = suffix  # appended to the name of a column that the stream has as well
        self._index: Index | None = None
        if (known := column_names(self.data)) is not None:
            self.check_columns(known)
        if isinstance(self.data, pa.Table):
            self._check_types(self.data.schema)

    def __repr__(self) -> str:
        return f"JoinTable({self.operator!r}, a {type(self.data).__name__}, on={self.on!r}, how={self.how!r})"

    def __getstate__(self) -> dict[str, Any]:
        """The index is not pickled; hosts build it themselves."""
        return self.__dict__ | {"_index": None}

    @property
    def key(self) -> tuple[str, ...]:
        """The stream's columns, in the order of the values that ``find`` takes."""
        return tuple(self.on)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows that ``find`` returns."""
        return self._opened().schema

    def of(self, data: Any) -> JoinTable:
        """The same join with another table."""
        return JoinTable(self.operator, data, self.on, self.how, self.one_to_many, self.suffix)

    def check_columns(self, known: Iterable[str]) -> None:
        """Refuse a table with these columns if the join cannot use it."""
        names = list(known)
        for column in self.on.values():
            if column not in names:
                raise DataflowError(f"the table of join {self.operator!r}: {unknown('column', column, names)}")

    def _check_types(self, schema: pa.Schema) -> None:
        try:
            refuse_as_key((name, schema.field(name)) for name in self.on.values())
        except KeyTypeError as error:
            raise DataflowError(f"the table of join {self.operator!r}: {error}") from error

    def open(self) -> None:
        """Read the table and build the index."""
        index = self.load()
        if index.repeated and not self.one_to_many:
            count = len(index.repeated)
            raise DeclarationError(
                f"{count} {'key comes' if count == 1 else 'keys come'} more than once in the table of {self.operator}, "
                f"e.g. {index.repeated[0]!r}; expected one row a key, or one_to_many=True",
                self.operator,
            )
        self._index = index

    def load(self) -> Index:
        """The index; raises as ``open`` does. Workers of a host share it."""
        table = pq.read_table(self.data) if isinstance(self.data, str) else self.data
        self.check_columns(table.column_names)
        self._check_types(table.schema)
        return Index(table, tuple(self.on.values()))

    def find(self, key: Any) -> list[dict[str, Any]]:
        """The rows of a key (a tuple of values if it has several columns), without the key's columns."""
        return self._opened().find(key)

    def _opened(self) -> Index:
        if self._index is None:
            raise DeclarationError(f"the table of {self.operator} was not opened", self.operator)
        return self._index


def is_table(data: object) -> bool:
    """Whether an object can be the table of a join."""
    is_path = isinstance(data, (str, os.PathLike)) and bool(os.fspath(data))
    return is_path or isinstance(data, pa.Table | CatalogTable | Query) or is_spark_frame(data)


def column_names(data: Any) -> list[str] | None:
    """The columns of a table; ``None`` if a file must be read, or a query be run, for them."""
    return None if isinstance(data, str | CatalogTable | Query) else list(data.schema.names)


def join_columns(operator: str, on: object) -> dict[str, str]:
    """The argument ``on``, a column, several, or a mapping, as a mapping from the stream's columns to the table's.

    >>> join_columns("J1", "SHOP_ID"), join_columns("J1", {"SHOP_ID": "shop"})
    ({'SHOP_ID': 'SHOP_ID'}, {'SHOP_ID': 'shop'})
    """
    if isinstance(on, Mapping):
        pairs = list(on.items())
    else:
        columns = [on] if isinstance(on, str) else list(on) if isinstance(on, Iterable) else []
        pairs = [(column, column) for column in columns]
    names = [name for pair in pairs for name in pair]
    doubled = any(len(set(side)) < len(pairs) for side in zip(*pairs, strict=True))
    if not pairs or not all(isinstance(name, str) and name for name in names) or doubled:
        raise DataflowError(
            f"join {operator!r} has on={on!r}; expected a column, several or {{stream column: table column}}, once each"
        )
    return dict(pairs)
