r"""A file of text as blocks of UTF-8, whatever its encoding, and what a line of it is if it is no row.

>>> import os, tempfile
>>> with tempfile.TemporaryDirectory() as path:
...     _ = open(f"{path}/a.csv", "wb").write("größe\n".encode("latin-1"))
...     [block.decode() for block in blocks(fs.LocalFileSystem(), f"{path}/a.csv", "latin-1")]
['größe\n']
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from pyarrow import fs

BLOCK_BYTES = 1 << 20
"""Number of bytes of a text file that are parsed at a time; more for a longer row."""

SHOWN_BYTES = 1 << 20
"""Number of bytes of a line that is no row that are kept."""

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
"""What a text begins with, and in which encoding."""


class BadRow(NamedTuple):
    r"""A line that is no row, or the rest of a file that cannot be read."""

    line: int  # number of the line in its file, from 1; 0 if it is not known
    text: str  # the line, of which bytes that are no text are shown as ``\xf6``
    reason: str  # why it is none


class UnreadableError(Exception):
    """A file cannot be read from a line on."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line:,}: {reason}" if line else reason)
        self.line = line  # number of the line, from 1; 0 if it is not known
        self.reason = reason


def blocks(filesystem: fs.FileSystem, path: str, encoding: str) -> Iterator[bytes]:
    """The text as UTF-8, without its byte order mark; not all of what is to be UTF-8 needs to be."""
    is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig", "ascii")
    decoder = codecs.getincrementaldecoder(encoding)()
    line, is_first = 1, True
    with filesystem.open_input_stream(path) as stream:
        while True:
            data = stream.read(BLOCK_BYTES)
            given = data
            if not is_utf8:
                data = _decoded(decoder, data, line).encode("utf-8", "surrogatepass")
                line += data.count(b"\n")
            if is_first and data:
                if is_utf8 and (mark := next((mark for mark in _MARKS if data.startswith(mark)), None)):
                    known = _MARKS[mark]
                    raise UnreadableError(1, f"it begins as a text in {known.upper()}; say encoding={known!r}")
                data, is_first = data.removeprefix(codecs.BOM_UTF8), False
            if data:
                yield data
            if not given:
                return


def _decoded(decoder: codecs.IncrementalDecoder, data: bytes, line: int) -> str:
    try:
        return decoder.decode(data, final=not data)
    except UnicodeError as error:
        before = getattr(error, "object", b"")[: getattr(error, "start", 0)]
        raise UnreadableError(line + before.count(b"\n"), f"it is not of the given encoding ({error})") from error


def shown(data: bytes) -> str:
    r"""A line as text.

    >>> shown("Köln\n".encode("latin-1"))
    'K\\xf6ln'
    """
    return data[:SHOWN_BYTES].rstrip(b"\r\n").decode(errors="backslashreplace")


def no_text(data: bytes) -> str:
    """Why a line is no text of UTF-8; empty if it is one.

    >>> no_text("Köln".encode("latin-1"))
    "it is not UTF-8 (byte 0xf6); say encoding='latin-1' or as it was written"
    """
    if b"\0" in data:
        return "it has a NUL byte, as a text in UTF-16 has (encoding='utf-16'), or a file that was cut"
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 (byte 0x{data[error.start]:02x}); say encoding='latin-1' or as it was written"
    return ""
