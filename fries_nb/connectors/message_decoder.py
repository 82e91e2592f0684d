"""Decodes messages to rows with columns of stable types, and says which messages are no rows.

JSON is parsed by Arrow as long as messages have the known columns. A batch with a new column, a wider value or a broken
message is parsed object by object; if it cannot be made into columns it is halved, until the broken ones are alone.

>>> decoder = MessageDecoder()
>>> batch, failures = decoder.batch([b'{"n": 1}', b'{"n": ', b'{"n": 2.5, "name": "x"}'])
>>> batch.to_pylist()
[{'n': 1.0, 'name': None}, {'n': 2.5, 'name': 'x'}]
>>> failures
{1: 'Input data was truncated'}
>>> decoder.batch([b'{"n": 3}', b'{"n": "many"}'])[1]
{1: "column 'n' was double and is now string; a column keeps its type, ..."}
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import json as arrow_json

from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import ColumnError, exception_text
from fries_nb.operators.conversion import NOT_ARROW, to_arrow
from fries_nb.storage.schemas import unified

Decode = Callable[[bytes], Mapping[str, Any]]
Failures = dict[int, str]
"""Index of a message to why it is no row."""


_SHORT = 6
"""Shorter ones may be objects without fields, which Arrow would make rows of nulls."""


class UndecodedError(Exception):
    """A message is no row, or several have no common columns."""


class MessageDecoder:
    """Decodes messages.

    Args:
        decode: from a message to its row; ``None`` for JSON.
        schema: the columns of all rows; ``None`` to infer them.

    Attributes:
        columns: the columns so far; with ``schema`` these.
    """

    def __init__(self, decode: Decode | None = None, schema: pa.Schema | None = None) -> None:
        self.columns = pa.schema([]) if schema is None else schema
        self._decode = decode
        self._is_fixed = schema is not None

    def batch(self, values: Sequence[bytes | None]) -> tuple[pa.RecordBatch, Failures]:
        """Decode messages.

        Args:
            values: the messages; ``None`` for one without a value.

        Returns:
            The rows, and why the other messages are none.
        """
        failures: Failures = {}
        batches = self._halved(values, 0, failures)
        if len(batches) == 1:
            return batches[0], failures
        table = pa.concat_tables(
            [pa.Table.from_batches([batch]) for batch in batches] or [self.columns.empty_table()],
            promote_options="permissive",
        )
        return table.combine_chunks().to_batches()[0] if table.num_rows else _empty(self.columns), failures

    def _halved(self, values: Sequence[bytes | None], first: int, failures: Failures) -> list[pa.RecordBatch]:
        if not values:
            return []
        try:
            return [self._rows(values)]
        except UndecodedError as error:
            if len(values) == 1:
                failures[first] = str(error)
                return []
        half = len(values) // 2
        return self._halved(values[:half], first, failures) + self._halved(values[half:], first + half, failures)

    def _rows(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """All messages as rows.

        Raises:
            UndecodedError: one of them is none.
        """
        if None in values:
            raise UndecodedError("it has no value")
        if self._decode is None and self.columns.names and (parsed := self._parsed(values)) is not None:  # type: ignore[arg-type]
            return parsed
        rows = [self._row(value) for value in values]  # type: ignore[arg-type]
        if self._is_fixed and self._decode is None:
            parsed = self._parsed([msgspec.json.encode(row) for row in rows])
            if parsed is None:
                raise UndecodedError(self._misfit(rows))
            return parsed
        return self._with_columns(rows)

    def _parsed(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        """The rows of JSON objects with known columns, by Arrow; ``None`` if they are something else.

        Each begins an object, so there are as many rows as messages only if each has one.
        """
        text = b"\n".join(values)
        if any(value[:1] != b"{" or len(value) < _SHORT for value in values):
            return None
        others = "ignore" if self._is_fixed else "error"
        parse = arrow_json.ParseOptions(explicit_schema=self.columns, unexpected_field_behavior=others)
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = arrow_json.read_json(io.BytesIO(text), read, parse)
        except NOT_ARROW:
            return None
        if table.num_rows != len(values):
            return None
        return table.combine_chunks().to_batches()[0]

    def _row(self, value: bytes) -> dict[str, Any]:
        try:
            row = (self._decode or msgspec.json.decode)(value)
        except msgspec.DecodeError as error:
            raise UndecodedError(str(error)) from error
        except Exception as error:
            raise UndecodedError(exception_text(error)) from error
        if not isinstance(row, Mapping):
            what = "is JSON, but not an object" if self._decode is None else "was decoded, but not to a dict"
            raise UndecodedError(f"it {what}: {str(row)[:80]}")
        if not self._is_fixed and not row:
            raise UndecodedError("it has no columns")
        if reserved := row.keys() & set(HIDDEN):
            raise UndecodedError(f"it has a column {min(reserved)!r}, a name of the runtime's own")
        return dict(row)

    def _with_columns(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        """Rows as columns of the known types, or of wider ones if these are inferred."""
        known = {field.name: field.type for field in self.columns}
        try:
            if self._is_fixed:
                return pa.record_batch(
                    {name: pa.array([row.get(name) for row in rows], kind) for name, kind in known.items()},
                    schema=self.columns,
                )
            names = known | dict.fromkeys(chain.from_iterable(rows))
            arrays = {name: to_arrow([row.get(name) for row in rows], known.get(name)) for name in names}
            batch = pa.record_batch(arrays)
            wider = unified(self.columns, batch.schema)
            batch = pa.record_batch([batch.column(field.name).cast(field.type) for field in wider], schema=wider)
        except ColumnError as error:
            raise UndecodedError(str(error)) from error
        except NOT_ARROW as error:
            raise UndecodedError(str(error).splitlines()[0]) from error
        self.columns = wider
        return batch

    def _misfit(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Why an object has not the columns of the schema."""
        for field in self.columns:
            for row in rows:
                alone = MessageDecoder(None, pa.schema([field]))
                if field.name in row and alone._parsed([msgspec.json.encode({field.name: row[field.name]})]) is None:
                    return f"its {field.name!r} is {row[field.name]!r}; expected {field.type}"
        return f"it does not fit the schema {self.columns}"


def _empty(columns: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=columns)
