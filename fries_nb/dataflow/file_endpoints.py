"""The description of a directory that grows; ``connectors.files`` reads it.

>>> files("in", "csv", until="_SUCCESS").until
'_SUCCESS'
>>> files("in", "cvs")
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: files got format='cvs'; expected parquet, csv or json (a row a line); did you mean 'csv'?
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow as pa

from fries_nb.dataflow.arguments import at_rate, checked_rate
from fries_nb.errors import SourceError, close_match

FILE_FORMATS = ("parquet", "csv", "json")
FILE_ORDERS = ("name", "time")


@dataclass(frozen=True)
class GrowingFiles:
    """The rows of the files of a directory; made by ``files``.

    Attributes:
        path: the directory or its URI, or a glob below one.
        format: ``parquet``, ``csv`` or ``json``.
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
        schema: the columns; ``None`` for those of the first file.
        order: ``name`` or ``time``.
        until: name of the file that says that no other comes any more.
        quiet_s: seconds for which a file of text must not have changed before it counts as complete.
    """

    path: str
    format: str
    rate: float | None = None
    schema: pa.Schema | None = None
    order: str = "name"
    until: str | None = None
    quiet_s: float = 1.0

    def __str__(self) -> str:
        return f"{self.format} files of {self.path}{at_rate(self.rate)}"


def files(
    path: str | os.PathLike[str],
    format: str,
    rate: float | None = None,
    schema: pa.Schema | None = None,
    order: str = "name",
    until: str | None = None,
    quiet_s: float = 1.0,
) -> GrowingFiles:
    """A source of the rows of all files in a directory, those that are there and those that come.

    Each file is read once, when it is complete. A file whose name, or a directory of which, begins with ``_`` or ``.``
    is not read. Parquet is complete when its footer is there; CSV (with a header) and JSON (a row a line) when the file
    has content and has not changed for ``quiet_s``. So the best way to add a file is to write it under a name that
    begins with ``_`` and to rename it.

    A file is known by its name: one that was read is not read again, and ends the run if it has another size later. A
    new name is a renamed file, which is not read again, if its size, time of modification and content (Parquet: the
    footer; else the first and last 64 KiB) are those of a file that a worker of the same host has read and that is no
    longer there. A file that has gone before it was begun is passed over; one of which a part was read ends the run.

    Files are dealt to workers by their names, and a worker has several at a time; within one of these shares (a split)
    they are read in order, among those that are complete. With ``time=`` at the source each worker has a single share,
    so with one worker all files are in order. ``late=`` says how much earlier than the latest row a row may be.

    The first file decides columns and their types; a column of it without a value holds text. A later file may lack
    columns, which are null then; further columns and other types end the run with the names of both files. With
    ``schema=`` values are converted to its types if nothing is lost, and further columns are not read. If a run begins
    with an empty directory, each host decides by the first file that it reads.

    A checkpoint keeps 18 bytes for each file in the directory that was read, and for the last 10,000 of each split that
    have left it, or have another name now; older ones of these would be read again if they came back.

    Args:
        path: the directory, which may be empty, or its URI; subdirectories count. Or a glob, as in ``in/**/*.csv``. All
            hosts must reach it.
        format: ``parquet``, ``csv`` or ``json``.
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
        schema: the columns; ``None`` for those of the first file.
        order: ``name``, or ``time`` for that of the last modification.
        until: name of a file in the directory, as ``_SUCCESS``: once it is there no other file comes, and the source
            ends when all are read. ``None`` for an endless source.
        quiet_s: seconds for which a file of CSV or JSON must not have changed before it counts as complete.

    Returns:
        A description for ``Dataflow.source``.

    Raises:
        SourceError: an argument is none of these.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise SourceError(f"files takes the path of a directory or a glob; got {path!r}")
    if format not in FILE_FORMATS:
        likely = close_match(format, FILE_FORMATS) if isinstance(format, str) else ""
        raise SourceError(f"files got format={format!r}; expected parquet, csv or json (a row a line){likely}")
    if order not in FILE_ORDERS:
        raise SourceError(f"files got order={order!r}; expected 'name' or 'time'")
    if schema is not None and not (isinstance(schema, pa.Schema) and schema.names):
        raise SourceError(f"files got schema={schema!r}; expected a pyarrow.Schema with a column, or None")
    if until is not None and (not isinstance(until, str) or not until):
        raise SourceError(f"files got until={until!r}; expected the name of a file, as '_SUCCESS', or None")
    if isinstance(quiet_s, bool) or not isinstance(quiet_s, int | float) or not 0 <= quiet_s < float("inf"):
        raise SourceError(f"files got quiet_s={quiet_s!r}; expected seconds, 0 or more")
    return GrowingFiles(os.fspath(path), format, checked_rate(rate), schema, order, until, float(quiet_s))
