"""Trace files: one JSON object per line; ``fries_nb.protocol.trace`` defines the format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike

from fries_nb.errors import TraceError
from fries_nb.protocol.trace import Record, from_line


@dataclass(frozen=True)
class TraceFile:
    """The records of a trace file in the order of its lines; each iteration reads the file. Blank lines are skipped.

    Iteration raises ``TraceError``, with the file and the line number, if the file cannot be read or a line is no
    record.
    """

    path: str | PathLike[str]

    def __iter__(self) -> Iterator[Record]:
        try:
            with open(self.path, "rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if not line.isspace():
                        yield _record(self.path, number, line)
        except OSError as error:
            raise TraceError(f"cannot read trace {str(self.path)!r}: {error.strerror or error}") from None


def read_trace(path: str | PathLike[str]) -> TraceFile:
    """The records of a trace file; see ``TraceFile``."""
    return TraceFile(path)


def _record(path: str | PathLike[str], number: int, line: bytes) -> Record:
    try:
        return from_line(line)
    except TraceError as error:
        raise TraceError(f"{path}, line {number}: {error}") from None
    except (RecursionError, UnicodeDecodeError) as error:
        # The JSON decoder also raises RecursionError for deeply nested brackets, and UnicodeDecodeError.
        raise TraceError(f"{path}, line {number}: not a trace record: {error}") from None
