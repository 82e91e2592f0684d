"""JSON lines above ``pyarrow.json``: blocks of whole lines, which pyarrow parses to columns of known types.

Times are parsed from strings, as those of CSV are. Blocks in which pyarrow would see other values than the text has
(numbers with many digits), or that do not fit the types, are parsed line by line, so that what is no row has its line
and its reason.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
from pyarrow import fs

from fries_nb.connectors.csv_text import lines_in
from fries_nb.connectors.file_columns import ADVICE, FileColumns
from fries_nb.connectors.inferred_types import (
    LONG,
    Facts,
    NoTypeError,
    facts_of_array,
    facts_of_values,
    has_huge_float,
    has_long_fraction,
    type_of,
    widened,
)
from fries_nb.connectors.text_blocks import BadRow, blocks, no_text, shown

Row = dict[str, Any]


class NoRowError(ValueError):
    """A line is no row; the message is the reason."""


class JsonText:
    """How files of JSON lines are parsed."""

    is_json = True

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def facts(self, filesystem: fs.FileSystem, path: str) -> Iterator[tuple[int, Mapping[str, Facts]]]:
        """What is known of the columns by further blocks; lines that are no rows do not count."""
        for _, data in self._blocks(filesystem, path):
            yield len(data), _facts_at_once(data) or _facts_of_lines(data)

    def pieces(
        self, filesystem: fs.FileSystem, path: str, columns: FileColumns
    ) -> Iterator[tuple[pa.RecordBatch, Mapping[int, BadRow]]]:
        """All lines of a file: the rows of each block, and by their index what is none."""
        for line, data in self._blocks(filesystem, path):
            batch = _at_once(data, columns)
            yield (batch, {}) if batch is not None else _by_lines(line, data, columns)

    def _blocks(self, filesystem: fs.FileSystem, path: str) -> Iterator[tuple[int, bytes]]:
        """The text in blocks of whole lines, each with the number of its first one; blank lines are no rows."""
        line, rest = 1, bytearray()
        for block in blocks(filesystem, path, self._encoding):
            end = block.rfind(b"\n") + 1
            if not end:
                rest += block
                continue
            data, rest = bytes(rest) + block[:end], bytearray(block[end:])
            if data.strip():
                yield line, data
            line += lines_in(data)
        if rest.strip():
            yield line, bytes(rest)


# ---- types

def _of_text(kind: pa.DataType) -> pa.DataType:
    """The type as which pyarrow parses values of a type from JSON: it would read a time in any zone as one in UTC."""
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_of_text(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_of_text(kind.value_type)))
    return kind


def _text_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, _of_text(field.type)) for field in schema])


def _has(schema: pa.Schema, wanted: pa.DataType) -> bool:
    """Whether a column, or a value in one, has a type."""
    return any(_is_in(kind, wanted) for kind in schema.types)


def _is_in(kind: pa.DataType, wanted: pa.DataType) -> bool:
    return kind == wanted or any(_is_in(kind.field(at).type, wanted) for at in range(kind.num_fields))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With times in the place of their text. Raises an ArrowException."""
    if batch.schema == schema:
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# ---- all lines of a block at once, by pyarrow

def _read(data: bytes, schema: pa.Schema | None, others: str) -> pa.RecordBatch | None:
    """The rows, if there is one a line. Raises an ArrowException."""
    read = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    table = pj.read_json(pa.BufferReader(data), read, parse).combine_chunks()
    lines = data.strip()
    if table.num_rows != lines.count(b"}\n{") + lines.count(b"}\r\n{") + 1:
        return None
    [batch] = table.to_batches()
    return batch


def _is_text(data: bytes) -> bool:
    return b"\0" not in data and (data.isascii() or not no_text(data))


def _at_once(data: bytes, columns: FileColumns) -> pa.RecordBatch | None:
    schema = columns.schema
    if not _is_text(data) or not schema.names:
        return None
    if not columns.is_given and (_has(schema, LONG) or (_has(schema, pa.float64()) and has_long_fraction(data))):
        return None
    try:
        batch = _read(data, _text_schema(schema), "ignore" if columns.is_given else "error")
        if batch is None or (not columns.is_given and has_huge_float(batch)):
            return None
        return _cast(batch, schema)
    except pa.ArrowException:
        return None  # its lines are parsed one by one, and have the reason


def _facts_at_once(data: bytes) -> dict[str, Facts] | None:
    if not _is_text(data):
        return None
    try:
        batch = _read(data, None, "infer")
        if batch is None or has_huge_float(batch) or (_has(batch.schema, pa.float64()) and has_long_fraction(data)):
            return None
        text = _text_schema(batch.schema)
        if text != batch.schema:
            batch = _read(data, text, "error")
    except pa.ArrowException:
        return None
    if batch is None:
        return None
    return {name: facts_of_array(batch.column(name)) for name in batch.schema.names}


# ---- line by line

def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Those that are not blank, and how many are in front of each."""
    for number, line in enumerate(data.split(b"\n")):
        if line.strip():
            yield number, line


def _row(line: bytes) -> Row:
    """The row of a line."""
    if reason := no_text(line):
        raise NoRowError(reason)
    try:
        row = json.loads(line, parse_float=Decimal, object_pairs_hook=_unique)
    except NoRowError:
        raise
    except json.JSONDecodeError as error:
        raise NoRowError(f"it is no JSON: {error.msg} at character {error.colno:,}") from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise NoRowError(f"it is no JSON that can be read: {str(error).splitlines()[0]}") from None
    if not isinstance(row, dict):
        raise NoRowError("it is JSON, but no object; expected a row a line, as {\"n\": 1}")
    return row


def _unique(pairs: Sequence[tuple[str, Any]]) -> Row:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise NoRowError(f"it has the name {next(name for name in names if names.count(name) > 1)!r} twice")
    for name, value in pairs:
        for text in (name, value):
            if isinstance(text, str) and not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError:
                    raise NoRowError("it has half of a pair of surrogates, which is no character") from None
    return row


def _facts_of_lines(data: bytes) -> dict[str, Facts]:
    rows = []
    for _, line in _lines(data):
        try:
            rows.append(_row(line))
        except NoRowError:
            continue  # it is told when the file is read
    return dict(facts_of_values(rows).fields)


def _by_lines(line: int, data: bytes, columns: FileColumns) -> tuple[pa.RecordBatch, dict[int, BadRow]]:
    """The rows of a block that pyarrow does not parse as it is, and what is none."""
    rows: list[tuple[int, Row]] = []
    bad: dict[int, BadRow] = {}
    lines = list(_lines(data))
    for number, (_, text) in enumerate(lines):
        try:
            rows.append((number, _row(text)))
        except NoRowError as error:
            bad[number] = _bad(line, lines[number], str(error))
    reasons: dict[int, str] = {}
    schema = columns.schema
    if not columns.is_given:
        schema = _wide_enough(rows, columns.schema, reasons)
        columns.schema = pa.schema([schema.field(name) for name in columns.schema.names])
    batches = _built([row for row in rows if row[0] not in reasons], schema, columns.is_given, reasons)
    for number, reason in reasons.items():
        bad[number] = _bad(line, lines[number], f"{reason}; {ADVICE}")
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    [batch] = table.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
    return batch, dict(sorted(bad.items()))


def _bad(first: int, line: tuple[int, bytes], reason: str) -> BadRow:
    return BadRow(first + line[0], shown(line[1]), reason)


def _wide_enough(rows: list[tuple[int, Row]], known: pa.Schema, reasons: dict[int, str]) -> pa.Schema:
    """The types for rows in turn; those that none holds are found by halving."""
    if not rows:
        return known
    facts = facts_of_values([row for _, row in rows]).fields
    types, misfit = {field.name: field.type for field in known}, ""
    for name, found in facts.items():
        before = types.get(name, pa.null())
        try:
            new = type_of(found, is_json=True)
            wider = widened(before, new)
            why = f"is {new}, and {before} so far"
        except NoTypeError as error:
            wider, why = None, str(error)
        if wider is None:
            shown_value = reprlib.repr(rows[0][1].get(name))
            misfit = misfit or f"its {name!r}, {shown_value}, {why}"
        else:
            types[name] = wider
    if not misfit:
        return pa.schema(list(types.items()))
    if len(rows) == 1:
        reasons[rows[0][0]] = misfit
        return known
    half = len(rows) // 2
    return _wide_enough(rows[half:], _wide_enough(rows[:half], known, reasons), reasons)


def _built(
    rows: list[tuple[int, Row]], schema: pa.Schema, is_given: bool, reasons: dict[int, str]
) -> list[pa.RecordBatch]:
    """Rows as batches of these columns; those that do not fit are found by halving."""
    if not rows:
        return []
    text = _text_schema(schema)
    try:
        arrays = [
            pa.array([_as_type(row.get(field.name), field.type, is_given) for _, row in rows], field.type)
            for field in text
        ]
        return [_cast(pa.RecordBatch.from_arrays(arrays, schema=text), schema)]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if len(rows) == 1:
            reasons[rows[0][0]] = str(error).splitlines()[0]
            return []
    half = len(rows) // 2
    return _built(rows[:half], schema, is_given, reasons) + _built(rows[half:], schema, is_given, reasons)


def _as_type(value: Any, kind: pa.DataType, is_given: bool) -> Any:
    """A value of JSON as Arrow makes one of the type of it."""
    if value is None:
        return None
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    if pa.types.is_floating(kind) and number:
        return float(value)
    if pa.types.is_string(kind) and is_given and not isinstance(value, str | dict | list):
        return json.dumps(value) if isinstance(value, bool) else str(value)
    if pa.types.is_integer(kind) and is_given and number and value == int(value):
        return int(value)
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _as_type(value.get(field.name), field.type, is_given) for field in kind}
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(name, _as_type(inner, kind.item_type, is_given)) for name, inner in value.items()]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_as_type(inner, kind.value_type, is_given) for inner in value]
    fits = (
        (pa.types.is_boolean(kind) and isinstance(value, bool))
        or (pa.types.is_integer(kind) and isinstance(value, int) and not isinstance(value, bool))
        or (pa.types.is_decimal(kind) and number)
        or (isinstance(value, str) and any(is_one(kind) for is_one in (pa.types.is_string, pa.types.is_large_string)))
        or (isinstance(value, str) and pa.types.is_binary(kind))
    )
    if not fits:
        raise ValueError(f"{reprlib.repr(value)} is no {kind}")
    return value.encode() if pa.types.is_binary(kind) else value
