"""The columns that a source of files has, and those that it refuses.

Columns of Spark that Arrow would read from Parquet as something else, such as the bytes of a VARIANT.

Spark writes its own schema, as JSON, into the footers of its files; a DataFrame has it before it is written.

>>> fields = [{"name": "n", "type": "long"}, {"name": "v", "type": {"type": "array", "elementType": "variant"}}]
>>> misread(json.dumps({"type": "struct", "fields": fields}))
"column 'v' is a VARIANT, which a stream cannot hold; convert it with to_json(v)"

The columns that all files of a directory have: given, or those of the files that were there first.

>>> columns = FileColumns(pa.schema({"a": pa.int64(), "b": pa.string()}), "the first file, a.csv")
>>> columns.fit(pa.record_batch({"a": [1]}), "b.csv").to_pylist()
[{'a': 1, 'b': None}]
>>> columns.fit(pa.record_batch({"a": [2], "c": [True]}), "d.csv").to_pylist()
[{'a': 2, 'b': None, 'c': True}]
>>> columns.fit(pa.record_batch({"a": ["x"]}), "c.csv")
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: column 'a' of c.csv is string, and int64 in the first file, a.csv, or a later one; ...
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fries_nb.connectors.inferred_types import NO_VALUE
from fries_nb.dataflow.columns import HIDDEN, alike
from fries_nb.errors import SourceError

_FOOTER = b"org.apache.spark.sql.parquet.row.metadata"
_PLAIN = (
    "string", "char(", "varchar(", "binary", "boolean", "byte", "short", "integer", "long", "float", "double",
    "decimal", "date", "timestamp", "timestamp_ntz", "time(",
)  # fmt: skip
"""How the JSON of types that Arrow reads as Spark does begins."""
_OTHERS = (
    ("variant", "a VARIANT", "convert it with to_json({})"),
    ("interval", "an INTERVAL", "convert it to a number, or with CAST({} AS STRING)"),
    ("void", "of type VOID", "give it a type, as CAST({} AS STRING)"),
    ("udt", "of a user-defined type", "select its parts, as vector_to_array({}) of a vector"),
    ("", "of a type of its own", "convert it with CAST({} AS STRING)"),
)


def misread(schema: str) -> str:
    """Why the first column that Arrow would read otherwise is refused, as a sentence; empty if there is none."""
    for field in json.loads(schema)["fields"]:
        for kind in _leaves(field["type"]):
            if not kind.startswith(_PLAIN):
                what, remedy = next((what, remedy) for name, what, remedy in _OTHERS if kind.startswith(name))
                name = field["name"]
                return f"column {name!r} is {what}, which a stream cannot hold; {remedy.format(name)}"
    return ""


def misread_in(metadata: pq.FileMetaData) -> str:
    """See ``misread``, of a file; empty if Spark has not written it."""
    return misread((metadata.metadata or {}).get(_FOOTER, b'{"fields": []}').decode())


def _leaves(kind: Any) -> Iterator[str]:
    """The types within a type, without the containers."""
    if isinstance(kind, str):
        yield kind
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            yield from _leaves(field["type"])
    elif kind["type"] in ("array", "map"):
        for part in ("elementType", "keyType", "valueType"):
            yield from _leaves(kind[part]) if part in kind else ()
    else:
        yield kind["type"]


_LATER = ", or a later one"
"""What the origin of columns has at its end, once files have added some."""
ADVICE = "expected one type, or schema= with a type that holds the values of all files"


@dataclass
class FileColumns:
    """The columns of a directory's rows.

    A file may lack columns, which are null in its rows. If the columns are given, others are not read and values are
    converted if none is lost. Otherwise a type widens to one that holds its values and those before, and another column
    is added behind those before or refused. A type of another family, and a name that differs from another one by case
    only, which Spark's tables would not tell apart, are always refused.
    """

    schema: pa.Schema  # names and types, as of the rows so far
    origin: str  # where they are from, for the messages of errors
    is_given: bool = False  # whether the user has given them
    adds: bool = True  # whether a file may add columns; without effect on given ones

    def fit(self, batch: pa.RecordBatch, file: str, partition: Mapping[str, str] = {}) -> pa.RecordBatch:
        """Rows of a file with these columns."""
        fitted = self._fitted(batch, file)
        for name, value in partition.items():
            fitted = self._filled(fitted, name, value, file)
        return fitted

    def _filled(self, batch: pa.RecordBatch, name: str, value: str, file: str) -> pa.RecordBatch:
        at = batch.schema.get_field_index(name)
        if at < 0:
            if self.is_given:
                return batch
            raise SourceError(
                f"{file} is in a partition by {name!r}, and {self.origin} in none; expected the same partitions for "
                "all files, or schema= with every column"
            )
        if value == NO_VALUE or not batch.column(at).null_count:
            return batch
        kind = batch.schema.field(at).type
        try:
            filler = pa.scalar(value).cast(kind)
        except pa.ArrowException:
            raise SourceError(f"{file} is in the partition {name}={value}, which is no {kind}; {ADVICE}") from None
        return batch.set_column(at, batch.schema.field(at), pc.fill_null(batch.column(at), filler))

    def _fitted(self, batch: pa.RecordBatch, file: str) -> pa.RecordBatch:
        if batch.schema == self.schema:
            return batch
        check_names(batch.schema.names, file)
        if not self.is_given:
            self.add({name: batch.schema.field(name).type for name in self.missing(batch.schema.names)}, file)
            self.widen({field.name: field.type for field in batch.schema}, file)
        columns = [self._column(batch, field, file) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of a file's columns that are not among these."""
        return [name for name in names if name not in self.schema.names]

    def add(self, types: Mapping[str, pa.DataType], file: str) -> None:
        """Add the columns that a file has in addition, behind those before, or refuse them."""
        if not types:
            return
        if not self.adds:
            raise SourceError(
                f"{file} has a column {next(iter(types))!r}, which {self.origin} lacks; expected the same columns in "
                "all files by new_columns='refuse': say new_columns='add', or schema= with the columns to read"
            )
        if twins := alike([*self.schema.names, *types]):
            raise SourceError(
                f"{file} has a column {twins[1]!r}, which differs from {twins[0]!r} of {self.origin} only by case; "
                "Spark does not tell them apart: rename one, or say schema= with the one to read"
            )
        self.schema = pa.schema([*self.schema, *(pa.field(name, plain(kind)) for name, kind in types.items())])
        self.origin = self.origin.removesuffix(_LATER) + _LATER

    def widen(self, types: dict[str, pa.DataType], file: str) -> None:
        """Widen the types of columns for those of a file."""
        for at, field in enumerate(self.schema):
            new = types.get(field.name, field.type)
            if new == field.type:
                continue
            whole = joined(field.type, new)
            if whole is None:
                raise SourceError(
                    f"column {field.name!r} of {file} is {new}, and {field.type} in {self.origin}; {ADVICE}"
                )
            if whole != field.type:
                self.schema = self.schema.set(at, pa.field(field.name, whole))

    def _column(self, batch: pa.RecordBatch, field: pa.Field, file: str) -> pa.Array:
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        column = batch.column(field.name)
        if column.type == field.type:
            return column
        try:
            return column.cast(field.type)
        except pa.ArrowException as error:
            raise SourceError(
                f"column {field.name!r} of {file} is {column.type}, and {field.type} in {self.origin}; {ADVICE} "
                f"({error})"
            ) from error


def usable(schema: pa.Schema, file: str) -> pa.Schema:
    """The columns of a first file, as others are to have them: each of one encoding of its type."""
    check_names(schema.names, file)
    return pa.schema([pa.field(field.name, plain(field.type)) for field in schema])


def check_names(names: list[str], file: str) -> None:
    """Refuse names that the columns of a row cannot have."""
    for name, count in Counter(names).items():
        if name in HIDDEN:
            raise SourceError(f"{file} has a column {name}, a name that fries_nb keeps for itself; rename or drop it")
        if count > 1:
            raise SourceError(f"{file} has several columns {name!r}; a row is a dict, with one value a name")


def plain(kind: pa.DataType) -> pa.DataType:
    """The usual encoding of a type: ``string`` for ``large_string`` and views, values for dictionaries.

    >>> str(plain(pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))))
    'list<item: string>'
    """
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if any(is_one(kind) for is_one in _LISTS):
        return pa.list_(kind.value_field.with_type(plain(kind.value_type)).with_name("item"))
    return next((usual for is_one, usual in _USUAL if is_one(kind)), kind)


_LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_list_view, pa.types.is_large_list_view,
)  # fmt: skip
_USUAL: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_large_string, pa.string()), (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()), (pa.types.is_binary_view, pa.binary()),
)  # fmt: skip
_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, pa.types.is_time,
    pa.types.is_duration,
)  # fmt: skip


def joined(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """The type for the values of two types of one family; ``None`` if there is none.

    >>> str(joined(pa.int32(), pa.int64())), joined(pa.int64(), pa.float64())
    ('int64', None)
    """
    known, new = plain(known), plain(new)
    if known == new or pa.types.is_null(new):
        return known
    if pa.types.is_null(known):
        return new
    if pa.types.is_timestamp(known) and pa.types.is_timestamp(new):
        unit = max(known.unit, new.unit, key=("s", "ms", "us", "ns").index)
        return pa.timestamp(unit, known.tz) if (known.tz is None) == (new.tz is None) else None
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return _joined_structs(known, new)
    if pa.types.is_list(known) and pa.types.is_list(new):
        item = joined(known.value_type, new.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_map(known) and pa.types.is_map(new):
        key, item = joined(known.key_type, new.key_type), joined(known.item_type, new.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if any(is_one(known) and is_one(new) for is_one in _FAMILIES):
        return _unified(known, new)
    return None


def _joined_structs(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    types = {field.name: field.type for field in known}
    for one in new:
        whole = joined(types[one.name], one.type) if one.name in types else plain(one.type)
        if whole is None:
            return None
        types[one.name] = whole
    return pa.struct([pa.field(name, kind) for name, kind in types.items()])


def _unified(known: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    try:
        whole = pa.unify_schemas([pa.schema([("x", known)]), pa.schema([("x", new)])], promote_options="permissive")
    except pa.ArrowException:
        return None
    return whole.field("x").type
