r"""CSV above ``pyarrow.csv``: chunks of whole records, which pyarrow parses to columns of known types.

Chunks in which pyarrow would see other values than the text has (numbers with leading zeros, quotes that are not
closed), or that do not fit the types, are parsed record by record, so that what is no row has its line and its reason.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
from pyarrow import fs

from fries_nb.connectors.csv_records import Dialect, Record, lines_in
from fries_nb.connectors.file_columns import ADVICE, FileColumns
from fries_nb.connectors.inferred_types import (
    CellFormat,
    Facts,
    NoTypeError,
    facts_of_cells,
    has_huge_float,
    has_long_fraction,
    is_digit,
    type_of,
    widened,
)
from fries_nb.connectors.text_blocks import BadRow, UnreadableError, blocks, no_text, shown
from fries_nb.dataflow.file_endpoints import csv_options

OTHER_DELIMITERS = (";", "\t", "|")
"""What divides columns of CSV, beside the comma."""

BOOLEANS = {"true_values": ["true", "True", "TRUE"], "false_values": ["false", "False", "FALSE"]}
"""Without 1 and 0, which pyarrow would take in a column of booleans only."""

Chunk = tuple[int, bytes]
"""Whole records, and the number of their first line."""


class CsvText:
    """How files of CSV are parsed.

    Args:
        options: options of ``pyarrow.csv`` by name.
        encoding: encoding of the text.
    """

    is_json = False

    def __init__(self, options: Mapping[str, Any], encoding: str = "utf-8") -> None:
        self._options = BOOLEANS | dict(options)
        self._encoding = encoding
        self._dialect = Dialect.of(options)
        parsers = options.get("timestamp_parsers") or ()
        formats = tuple(one for one in parsers if isinstance(one, str))
        self._cells = CellFormat(
            options.get("decimal_point", "."),
            (*self._options["true_values"], *self._options["false_values"]),
            formats,
            len(formats) == len(parsers) == 0 or len(formats) < len(parsers),
        )

    def facts(self, filesystem: fs.FileSystem, path: str) -> Iterator[tuple[int, Mapping[str, Facts]]]:
        """What is known of the columns by further chunks; records that are no rows do not count."""
        names, chunks = self._opened(filesystem, path)
        self._check_delimiter(names)
        yield 0, {name: Facts() for name in names}
        texts = set[str]()
        for line, data in chunks:
            if self._dialect.is_regular(data) and not no_text(data):
                try:
                    found = self._strings(data, names)
                except pa.ArrowException:
                    found = self._strings_of_records(line, data, names)
            else:
                found = self._strings_of_records(line, data, names)
            known = {
                name: facts_of_cells(column, self._cells)
                for name, column in zip(found.schema.names, found.columns, strict=True)
                if name not in texts
            }
            texts |= {name for name, facts in known.items() if "text" in facts.kinds}
            yield len(data), known

    def _strings_of_records(self, line: int, data: bytes, names: list[str]) -> pa.RecordBatch:
        whole, _ = self._records(line, data, len(names))
        return self._strings(_joined(data, [record for _, record in whole]), names)

    def pieces(
        self, filesystem: fs.FileSystem, path: str, columns: FileColumns
    ) -> Iterator[tuple[pa.RecordBatch, Mapping[int, BadRow]]]:
        """All records of a file: the rows of each chunk, and by their index what is none."""
        names, chunks = self._opened(filesystem, path)
        for line, data in chunks:
            batch = self._at_once(data, names, columns)
            yield (batch, {}) if batch is not None else self._by_records(line, data, names, columns)

    def _at_once(self, data: bytes, names: list[str], columns: FileColumns) -> pa.RecordBatch | None:
        """The rows of a chunk, if all of it are rows as pyarrow reads them."""
        if b"\0" in data or not self._dialect.is_regular(data):
            return None
        try:
            if not columns.is_given and self._is_doubtful(data, names, columns):
                return None
            batch = self._parsed(data, names, columns)
        except pa.ArrowException:
            return None  # its records are parsed one by one, and have the reason
        return None if not columns.is_given and has_huge_float(batch) else batch

    # ---- the text of a file

    def _opened(self, filesystem: fs.FileSystem, path: str) -> tuple[list[str], Iterator[Chunk]]:
        """The names of the columns, and the chunks behind them."""
        chunks = self._chunks(filesystem, path)
        given = self._options.get("column_names")
        if given:
            return list(given), chunks
        line, header = next(chunks, (1, b""))
        if not header.strip():
            return [], iter(())
        reason = no_text(header) or next((one.reason for one in self._dialect.records(header)), "")
        if reason:
            raise UnreadableError(line, f"its header is none: {reason}")
        _, parse, _ = csv_options(self._options)
        names = pc.read_csv(pa.BufferReader(header), parse_options=parse).schema.names
        return names, self._behind(chunks, self._options.get("skip_rows_after_names", 0))

    def _chunks(self, filesystem: fs.FileSystem, path: str) -> Iterator[Chunk]:
        skipped = self._options.get("skip_rows", 0)
        line = 1 + skipped
        for chunk in self._dialect.chunks(_behind_lines(blocks(filesystem, path, self._encoding), skipped)):
            yield line, chunk
            line += lines_in(chunk)

    def _behind(self, chunks: Iterator[Chunk], skip: int) -> Iterator[Chunk]:
        """Without the first records."""
        for line, data in chunks:
            if skip:
                for record in self._dialect.records(data):
                    if not skip:
                        line, data = line + lines_in(data[: record.start]), data[record.start :]
                        break
                    skip -= 1
                else:
                    continue
            yield line, data

    def _check_delimiter(self, names: list[str]) -> None:
        """Refuse one column that looks like several, unless the delimiter is given."""
        likely = [mark for mark in OTHER_DELIMITERS if mark in names[0]] if len(names) == 1 else []
        if likely and "delimiter" not in self._options:
            raise pa.ArrowInvalid(f"its only column is {names[0]!r}; likely csv={{'delimiter': {likely[0]!r}}}")

    # ---- the records of a chunk

    def _parsed(self, data: bytes, names: list[str], columns: FileColumns) -> pa.RecordBatch:
        """The rows, by pyarrow. Raises an ArrowException."""
        types = {field.name: field.type for field in columns.schema}
        if columns.is_given:
            return self._read(data, names, types, include_columns=[name for name in names if name in types])
        return self._read(data, names, {name: types.get(name, pa.string()) for name in names})

    def _strings(self, data: bytes, names: list[str], **more: Any) -> pa.RecordBatch:
        """The cells as text, empty ones and other nulls as nulls. Raises an ArrowException."""
        return self._read(data, names, dict.fromkeys(names, pa.string()), strings_can_be_null=True, **more)

    def _read(self, data: bytes, names: list[str], types: dict[str, pa.DataType], **more: Any) -> pa.RecordBatch:
        read, parse, convert = csv_options({**self._options, **more, "column_names": names})
        read.skip_rows = read.skip_rows_after_names = 0
        read.use_threads, read.block_size, parse.newlines_in_values = False, len(data) + 1, True
        convert.column_types = types
        if not data.strip(b"\r\n"):
            wanted = convert.include_columns or names
            return pa.RecordBatch.from_pylist([], pa.schema([(name, types[name]) for name in wanted]))
        table = pc.read_csv(pa.BufferReader(data), read, parse, convert).combine_chunks()
        [batch] = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        return batch

    def _records(self, line: int, data: bytes, cells: int) -> tuple[list[tuple[int, Record]], dict[int, BadRow]]:
        """The records with their numbers, and by its number each that is none."""
        whole, bad = [], {}
        is_text, at = not no_text(data), 0
        for number, record in enumerate(self._dialect.records(data)):
            reason = record.reason or ("" if is_text else no_text(data[record.start : record.end]))
            if not reason and record.cells != cells:
                reason = f"it has {record.cells} cell{'s' * (record.cells != 1)}, and the header {cells}"
            if reason:
                line, at = line + lines_in(data[at : record.start]), record.start
                bad[number] = BadRow(line, shown(data[record.start : record.end]), reason)
            else:
                whole.append((number, record))
        return whole, bad

    def _by_records(
        self, line: int, data: bytes, names: list[str], columns: FileColumns
    ) -> tuple[pa.RecordBatch, dict[int, BadRow]]:
        """The rows of a chunk that pyarrow does not parse as it is, and what is none."""
        whole, bad = self._records(line, data, len(names))
        reasons: dict[int, str] = {}
        if not columns.is_given:
            self._widen(data, [record for _, record in whole], names, columns, reasons)
        self._misfits(data, [one for at, one in enumerate(whole) if at not in reasons], names, columns, reasons, whole)
        for at, reason in reasons.items():
            number, record = whole[at]
            where = line + lines_in(data[: record.start])
            bad[number] = BadRow(where, shown(data[record.start : record.end]), reason)
        rows = [record for at, (_, record) in enumerate(whole) if at not in reasons]
        return self._parsed(_joined(data, rows), names, columns), dict(sorted(bad.items()))

    def _widen(
        self, data: bytes, records: list[Record], names: list[str], columns: FileColumns, reasons: dict[int, str]
    ) -> None:
        """Widen the types of columns to those of records; a record that does not fit has its reason."""
        strings, schema = self._strings(_joined(data, records), names), columns.schema
        for at, field in enumerate(schema):
            if field.name in names:
                column = strings.column(names.index(field.name))
                kind = self._wide_enough(column, 0, field, field.type, reasons)
                schema = schema.set(at, pa.field(field.name, kind))
        columns.schema = schema

    def _wide_enough(
        self, values: pa.Array, first: int, field: pa.Field, known: pa.DataType, reasons: dict[int, str]
    ) -> pa.DataType:
        """The type for cells in turn; those that none holds are found by halving."""
        if pa.types.is_string(known) or values.null_count == len(values):
            return known
        try:
            new = type_of(facts_of_cells(values, self._cells))
            wider = widened(known, new)
        except NoTypeError:
            wider = None
        if wider is not None:
            return wider
        if len(values) == 1:
            what = "text" if pa.types.is_string(new) else new
            reasons.setdefault(
                first, f"its {field.name!r}, {reprlib.repr(values[0].as_py())}, is {what}, and {known} so far; {ADVICE}"
            )
            return known
        half = len(values) // 2
        known = self._wide_enough(values.slice(0, half), first, field, known, reasons)
        return self._wide_enough(values.slice(half), first + half, field, known, reasons)

    def _misfits(
        self, data: bytes, some: list[tuple[int, Record]], names: list[str], columns: FileColumns,
        reasons: dict[int, str], whole: list[tuple[int, Record]],
    ) -> None:  # fmt: skip
        """What pyarrow does not convert, found by halving."""
        try:
            self._parsed(_joined(data, [record for _, record in some]), names, columns)
        except pa.ArrowException as error:
            if len(some) == 1:
                reasons[whole.index(some[0])] = f"{_behind_place(str(error))}; {ADVICE}"
                return
            half = len(some) // 2
            self._misfits(data, some[:half], names, columns, reasons, whole)
            self._misfits(data, some[half:], names, columns, reasons, whole)

    # ---- what pyarrow would read otherwise

    def _is_doubtful(self, data: bytes, names: list[str], columns: FileColumns) -> bool:
        """Whether a cell is no number as it is written, or has more digits than its type keeps, and pyarrow takes it.

        Raises:
            pyarrow.ArrowException: a record is none.
        """
        numbers = {one.name: one.type for one in columns.schema if one.name in names and _is_number(one.type)}
        if not numbers or not self._may_be_doubtful(data, set(numbers.values())):
            return False
        found = self._strings(data, names, include_columns=list(numbers))
        for name, kind in numbers.items():
            cells = found.column(name)
            if widened(kind, type_of(facts_of_cells(cells, self._cells))) != kind:
                return True
        return False

    def _may_be_doubtful(self, data: bytes, kinds: set[pa.DataType]) -> bool:
        is_known = kinds <= {pa.int64(), pa.float64()}
        odd = not is_known or b"0x" in data or b"0X" in data or self._has_odd_number(data)
        return odd or (pa.float64() in kinds and has_long_fraction(data))

    def _has_odd_number(self, data: bytes) -> bool:
        """Whether a cell begins with a zero and another digit, a plus or a blank."""
        codes = np.frombuffer(b"\n" + data + b"\n\n", np.uint8)
        edge = (codes == 10) | (codes == self._dialect.delimiter[0])
        for mark in (b"\r", self._dialect.quote):
            if mark is not None and mark in data:
                edge |= codes == mark[0]
        at = np.flatnonzero(edge[:-3]) + 1
        first, second, third = codes[at], codes[at + 1], codes[at + 2]
        zero = (first == ord("0")) & is_digit(second)
        minus_zero = (first == ord("-")) & (second == ord("0")) & is_digit(third)
        return bool((zero | minus_zero | (first == ord("+")) | (first == ord(" ")) | (first == ord("\t"))).any())


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _joined(data: bytes, records: list[Record]) -> bytes:
    """The text of some records."""
    return b"".join(data[one.start : one.end].rstrip(b"\r\n") + b"\n" for one in records)


def _behind_lines(some: Iterator[bytes], skip: int) -> Iterator[bytes]:
    for block in some:
        while skip and block:
            _, newline, rest = block.partition(b"\n")
            skip -= bool(newline)
            block = rest
        if block:
            yield block


def _behind_place(message: str) -> str:
    """An error of pyarrow without its row, which counts in a chunk."""
    return message.splitlines()[0].partition("Row #")[2].partition(": ")[2] or message.splitlines()[0]
