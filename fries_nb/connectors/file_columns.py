"""The columns that all files of a directory have: given, or those of the first file.

>>> columns = FileColumns(pa.schema({"a": pa.int64(), "b": pa.string()}), "the first file, a.csv")
>>> columns.fit(pa.record_batch({"a": [1]}), "b.csv").to_pylist()
[{'a': 1, 'b': None}]
>>> columns.fit(pa.record_batch({"a": ["x"]}), "c.csv")
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: column 'a' of c.csv is string, and int64 in the first file, a.csv; expected one type, ...
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import SourceError


@dataclass(frozen=True)
class FileColumns:
    """The columns of a directory's rows.

    A file may lack columns, which are null in its rows. If the columns are given, others are not read and values are
    converted if none is lost; otherwise another column, or another type, is refused.

    Attributes:
        schema: names and types.
        origin: where they are from, for the messages of errors.
        is_given: whether the user has given them.
    """

    schema: pa.Schema
    origin: str
    is_given: bool = False

    def fit(self, batch: pa.RecordBatch, file: str) -> pa.RecordBatch:
        """Rows of a file with these columns.

        Args:
            batch: the rows.
            file: name of the file, for the message of an error.

        Raises:
            SourceError: the file has other columns, or of another type.
        """
        if batch.schema == self.schema:
            return batch
        if not self.is_given and (more := [name for name in batch.schema.names if name not in self.schema.names]):
            raise SourceError(
                f"{file} has a column {more[0]!r}, which {self.origin} lacks; expected the same columns in all files, "
                "or schema= with every column, of which a file may lack some"
            )
        _check_names(batch.schema, file)
        columns = [self._column(batch, field, file) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, batch: pa.RecordBatch, field: pa.Field, file: str) -> pa.Array:
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        column = batch.column(field.name)
        if column.type == field.type:
            return column
        try:
            if self.is_given or column.type == pa.null():
                return column.cast(field.type)
            why = ""
        except pa.ArrowException as error:
            why = f" ({error})"
        raise SourceError(
            f"column {field.name!r} of {file} is {column.type}, and {field.type} in {self.origin}; expected one type, "
            f"or schema= with a type that holds the values of all files{why}"
        )


def usable(schema: pa.Schema, file: str) -> pa.Schema:
    """The columns of a first file, as others are to have them: a column without a value holds text.

    Args:
        schema: the columns.
        file: name of the file, for the message of an error.

    Raises:
        SourceError: a row cannot have such columns.
    """
    _check_names(schema, file)
    kinds = {field.name: pa.string() if field.type == pa.null() else field.type for field in schema}
    return pa.schema([pa.field(name, kind) for name, kind in kinds.items()])


def _check_names(schema: pa.Schema, file: str) -> None:
    for name, count in Counter(schema.names).items():
        if name in HIDDEN:
            raise SourceError(f"{file} has a column {name}, a name that fries_nb keeps for itself; rename or drop it")
        if count > 1:
            raise SourceError(f"{file} has several columns {name!r}; a row is a dict, with one value a name")
