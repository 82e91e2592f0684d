r"""CSV above ``pyarrow.csv``: chunks of whole records, which pyarrow parses to columns of known types.

Chunks in which pyarrow would see other values than the text has (numbers with leading zeros, quotes that are not
closed), or that do not fit the types, are parsed record by record, so that what is no row has its line and its reason.

The records of a file of CSV: where they begin and end, in blocks, and which of them are none.

>>> dialect = Dialect()
>>> [bytes(chunk) for chunk in dialect.chunks(iter([b'n,s\n1,"a\n', b'b"\n2', b',c']))]
[b'n,s\n', b'1,"a\nb"\n', b'2,c']
>>> records = list(dialect.records(b'1,x\n2,"cut\n3,y\n'))
>>> [(one.start, one.end, one.cells, one.reason) for one in records]
[(0, 4, 2, ''), (4, 15, 0, 'a quote is not closed')]
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
from pyarrow import fs

from fries_nb.connectors.file_columns import ADVICE, FileColumns, check_names
from fries_nb.connectors.inferred_types import (
    NOTHING,
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
from fries_nb.dataflow.stream_endpoints import csv_options
from fries_nb.errors import SourceError
from fries_nb.storage.durable import name_at

MOST_BYTES = 1 << 28
"""Number of bytes of a record that is read; a longer one is one whose quote is not closed."""


class Record(NamedTuple):
    """A record in a text."""

    start: int  # where it begins
    end: int  # where the next one begins
    cells: int  # number of its cells
    reason: str = ""  # why it is none; empty for one that is


@dataclass(frozen=True)
class Dialect:
    """How records of CSV are written."""

    delimiter: bytes = b","  # between two cells
    quote: bytes | None = b'"'  # around a cell that has a delimiter or the end of a line in it; ``None`` for no quotes
    is_doubled: bool = True  # whether a quote within quotes is written twice
    escape: bytes | None = None  # in front of a character that is meant as such; ``None`` for none
    skips_blank: bool = True  # whether blank lines are no records

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Dialect:
        """That of options of ``pyarrow.csv``."""
        quote, escape = options.get("quote_char", '"'), options.get("escape_char", False)
        return cls(
            options.get("delimiter", ",").encode(),
            quote.encode() if quote else None,
            bool(options.get("double_quote", True)),
            escape.encode() if escape else None,
            bool(options.get("ignore_empty_lines", True)),
        )

    def chunks(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Blocks as chunks of whole records; the first is the first record, with what is blank in front of it."""
        rest, wanted, has_begun = bytearray(), 0, False
        for block in blocks:
            rest += block
            if len(rest) < wanted:
                continue
            data = bytes(rest)
            if not has_begun and (first := self._first_end(data)):
                has_begun = True
                yield data[:first]
                data = data[first:]
                rest = bytearray(data)
            end = self._last_end(data) if has_begun else 0
            if end:
                yield data[:end]
                rest = bytearray(data[end:])
            wanted = 2 * len(rest)
            if wanted > 2 * MOST_BYTES:
                yield bytes(rest)  # no record: its reader refuses it
                rest = bytearray()
        data = bytes(rest)
        if not has_begun and (first := self._first_end(data)):
            yield data[:first]
            data = data[first:]
        if data:
            yield data

    def _first_end(self, data: bytes) -> int:
        """Where the first record that is not blank ends, if it does."""
        for record in self.records(data):
            if record.end < len(data) and not record.reason:
                return record.end
            return 0
        return 0

    def _last_end(self, data: bytes) -> int:
        """Where the last complete record ends."""
        if self.quote is None and self.escape is None:
            return _line_end(data)
        if self.escape is None and (self.quote is None or self.quote not in data):
            return _line_end(data)
        outside = self._line_ends_outside(data)
        if outside is not None:
            return outside
        end = 0
        for record in self.records(data):
            if record.reason == UNCLOSED or (record.end == len(data) and not data.endswith((b"\n", b"\r"))):
                break
            end = record.end
        return end

    def _line_ends_outside(self, data: bytes) -> int | None:
        """Where the last line ends that no quotes are around; ``None`` if quotes are elsewhere than around cells."""
        if self.escape is not None or not self.is_doubled:
            return None
        codes = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(codes == self._quote_code)
        opening, closing = quotes[::2], quotes[1::2]
        around = np.concatenate(([10], codes, [10])).astype(np.uint8)
        edge = np.zeros(256, np.bool_)
        edge[[10, 13, self.delimiter[0]]] = True
        begins = edge[around[opening]]
        begins[1:] |= opening[1:] == closing[: len(opening) - 1] + 1
        ends = edge[around[closing + 2]]
        ends[: len(opening) - 1] |= opening[1:] == closing[: len(opening) - 1] + 1
        if len(self.delimiter) > 1 or not begins.all() or not ends.all():
            return None
        limit = len(data)
        while (end := _line_end(data[:limit])) and np.searchsorted(quotes, end - 1) % 2:
            limit = int(quotes[np.searchsorted(quotes, end - 1) - 1])
        return end

    @property
    def _quote_code(self) -> int:
        assert self.quote is not None
        return self.quote[0]

    def is_regular(self, data: bytes) -> bool:
        """Whether quotes are only around cells, and closed, so that all readers of CSV see the same records."""
        if self.quote is None or self.quote not in data:
            return self.escape is None or self.escape not in data
        if self.escape is not None or not self.is_doubled:
            return not any(record.reason for record in self.records(data))
        return data.count(self.quote) % 2 == 0 and self._line_ends_outside(data) is not None

    def records(self, data: bytes) -> Iterator[Record]:
        """The records of a text, whole or not."""
        at = 0
        while at < len(data):
            if self.skips_blank and data[at : at + 1] in (b"\n", b"\r"):
                at += 1
                continue
            found = self._record.match(data, at)
            record = Record(at, found.end(), self._cells(data, at, found.end())) if found else self._broken(data, at)
            if record.end - record.start > MOST_BYTES:
                record = Record(record.start, record.end, 0, f"it is longer than {MOST_BYTES >> 20} MiB")
            yield record
            at = record.end

    def _broken(self, data: bytes, start: int) -> Record:
        """What begins as no record does: a quote is not closed, or has text behind it."""
        fields = self._fields.match(data, start)
        at = fields.end() if fields else start
        closed = self._quoted.match(data, at)
        if closed is None:
            return Record(start, len(data), 0, UNCLOSED)
        line = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)").match(data, closed.end())
        assert line is not None
        return Record(start, line.end(), 0, "there is text behind a closing quote")

    def _cells(self, data: bytes, start: int, end: int) -> int:
        text = data[start:end]
        if self.escape is None and (self.quote is None or self.quote not in text):
            return text.count(self.delimiter) + 1
        count, at = 1, 0
        while (found := self._cell.match(text, at)) and text.startswith(self.delimiter, found.end()):
            count, at = count + 1, found.end() + len(self.delimiter)
        return count

    @cached_property
    def _parts(self) -> tuple[bytes, bytes]:
        """Patterns of a cell in quotes, and of one without."""
        delimiter, escape = re.escape(self.delimiter), b"" if self.escape is None else re.escape(self.escape)
        escaped = b"|" + escape + b"(?s:.)" if escape else b""
        plain = b"(?:[^\r\n" + delimiter + escape + b"]" + escaped + b")*+"
        if self.quote is None:
            return b"(?!)", plain
        quote = re.escape(self.quote)
        doubled = b"|" + quote * 2 if self.is_doubled else b""
        quoted = quote + b"(?:[^" + quote + escape + b"]" + doubled + escaped + b")*+" + quote
        return quoted, b"(?!" + quote + b")" + plain

    @cached_property
    def _record(self) -> re.Pattern[bytes]:
        cell, delimiter = b"(?:%b|%b)" % self._parts, re.escape(self.delimiter)
        return re.compile(cell + b"(?:" + delimiter + cell + b")*+(?:\r\n|\n|\r|\\Z)")

    @cached_property
    def _fields(self) -> re.Pattern[bytes]:
        return re.compile(b"(?:(?:%b|%b)" % self._parts + re.escape(self.delimiter) + b")*+")

    @cached_property
    def _quoted(self) -> re.Pattern[bytes]:
        return re.compile(self._parts[0])

    @cached_property
    def _cell(self) -> re.Pattern[bytes]:
        return re.compile(b"(?:%b|%b)" % self._parts)


UNCLOSED = "a quote is not closed"


def _line_end(data: bytes) -> int:
    """Where the last line ends, if one does: lines end as in Unix, Windows or, without either, old Macs."""
    end = data.rfind(b"\n") + 1
    return end or data.rfind(b"\r", 0, len(data) - 1) + 1


def lines_in(data: bytes) -> int:
    r"""Number of lines that end in a text.

    >>> lines_in(b"a\nb\r\nc\rd")
    3
    """
    return data.count(b"\n") + (data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0)


OTHER_DELIMITERS = (";", "\t", "|")
"""What divides columns of CSV, beside the comma."""

BOOLEANS = {"true_values": ["true", "True", "TRUE"], "false_values": ["false", "False", "FALSE"]}
"""Without 1 and 0, which pyarrow would take in a column of booleans only."""

Chunk = tuple[int, bytes]
"""Whole records, and the number of their first line."""


class CsvText:
    """How files of CSV are parsed."""

    is_json = False

    def __init__(self, options: Mapping[str, Any], encoding: str = "utf-8") -> None:
        # options of ``pyarrow.csv`` by name
        self._options = BOOLEANS | dict(options)
        self._encoding = encoding
        self._dialect = Dialect.of(options)
        parsers = options.get("timestamp_parsers") or ()
        formats = tuple(parser for parser in parsers if isinstance(parser, str))
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
            if columns.adds and not columns.is_given and (new := columns.missing(names)):
                check_names(names, name_at(path))
                columns.add(self._types(filesystem, path, new), name_at(path))
            batch = self._at_once(data, names, columns)
            yield (batch, {}) if batch is not None else self._by_records(line, data, names, columns)

    def _types(self, filesystem: fs.FileSystem, path: str, new: list[str]) -> dict[str, pa.DataType]:
        """The types of some columns by all that a file has in them: rows that are taken keep their type."""
        known = dict.fromkeys(new, NOTHING)
        for _, facts in self.facts(filesystem, path):
            known = {name: known[name] | facts.get(name, NOTHING) for name in new}
        types = {}
        for name, found in known.items():
            try:
                types[name] = type_of(found, self.is_json)
            except NoTypeError as error:
                raise SourceError(f"the new column {name!r} of {name_at(path)} {error}; {ADVICE}") from None
        return types

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
        reason = no_text(header) or next((record.reason for record in self._dialect.records(header)), "")
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
        """Whether pyarrow takes a cell that is no number as written, or has more digits than its type keeps."""
        numbers = {field.name: field.type for field in columns.schema if field.name in names and _is_number(field.type)}
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
    return b"".join(data[record.start : record.end].rstrip(b"\r\n") + b"\n" for record in records)


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
