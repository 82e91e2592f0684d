r"""The records of a file of CSV: where they begin and end, in blocks, and which of them are none.

>>> dialect = Dialect()
>>> [bytes(chunk) for chunk in dialect.chunks(iter([b'n,s\n1,"a\n', b'b"\n2', b',c']))]
[b'n,s\n', b'1,"a\nb"\n', b'2,c']
>>> records = list(dialect.records(b'1,x\n2,"cut\n3,y\n'))
>>> [(one.start, one.end, one.cells, one.reason) for one in records]
[(0, 4, 2, ''), (4, 15, 0, 'a quote is not closed')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

MOST_BYTES = 1 << 28
"""Number of bytes of a record that is read; a longer one is one whose quote is not closed."""


class Record(NamedTuple):
    """A record in a text.

    Attributes:
        start: where it begins.
        end: where the next one begins.
        cells: number of its cells.
        reason: why it is none; empty for one that is.
    """

    start: int
    end: int
    cells: int
    reason: str = ""


@dataclass(frozen=True)
class Dialect:
    """How records of CSV are written.

    Attributes:
        delimiter: between two cells.
        quote: around a cell that has a delimiter or the end of a line in it; ``None`` for no quotes.
        is_doubled: whether a quote within quotes is written twice.
        escape: in front of a character that is meant as such; ``None`` for none.
        skips_blank: whether blank lines are no records.
    """

    delimiter: bytes = b","
    quote: bytes | None = b'"'
    is_doubled: bool = True
    escape: bytes | None = None
    skips_blank: bool = True

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
