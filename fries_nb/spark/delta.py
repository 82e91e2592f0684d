"""Delta Lake tables: an epoch's files become rows of the table in one transaction of its log.

The files lie in the table's directory, where nobody sees them until the log names them. A transaction carries the run
and the epoch, and the log remembers the last epoch of each run, so that an epoch is added once, however often it is
tried. The log is read and written by the package ``deltalake``; Spark needs no further jar.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from functools import reduce
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.dataflow.columns import clash
from fries_nb.errors import ColumnError, SinkError, SourceError
from fries_nb.spark.schemas import unified
from fries_nb.spark.storage import join, locate


def check_usable(path: str) -> None:
    """Refuse a table that could not be added to, before anything runs.

    Raises:
        SinkError: the package is missing, the log cannot be read, or the table is partitioned.
    """
    table = _opened(path)
    partitions = [] if table is None else table.metadata().partition_columns
    if partitions:
        raise SinkError(f"the Delta table {path} is partitioned by {', '.join(partitions)}; expected one that is not")


def check_fits(path: str, files: Sequence[str]) -> None:
    """Refuse Parquet files whose columns the table could not take.

    Raises:
        ColumnError: a column has another type in the table; names it.
        SinkError: a column has a type that no Delta table has.
    """
    table, schema = _opened(path), _schema_of(files)
    _columns_to_add(path, table, schema)
    if table is None and not schema.names:
        raise SinkError(f"the Delta table {path} cannot begin with rows of nothing but nulls; give a column a type")


def add(path: str, run: str, epoch: int, names: Sequence[str]) -> None:
    """Add these files of the table's directory to the table, as one epoch of a run. Repeating it is harmless.

    Raises:
        SinkError: the table cannot take them, or its log cannot be written.
    """
    deltalake = _package()
    schema = _schema_of([join(path, name) for name in names])
    table = _opened(path)
    new = _columns_to_add(path, table, schema)
    try:
        if table is None:
            table = deltalake.DeltaTable.create(path, new, mode="ignore")
        elif _last_epoch(table, run) >= epoch:
            return
        elif new.fields:
            table.alter.add_columns(new.fields)
            table = deltalake.DeltaTable(path)
        done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(_application(run), epoch)])
        actions = [_action(path, name) for name in names]
        table.create_write_transaction(actions, "append", table.schema(), commit_properties=done)
    except (_errors(), OSError, ValueError) as error:
        if last_epoch(path, run) >= epoch:  # another process completed the commit at the same time
            return
        raise SinkError(f"cannot add epoch {epoch} to the Delta table {path}: {_first_line(error)}") from error


def last_epoch(path: str, run: str) -> int:
    """The last epoch of a run that is in the table, -1 for none.

    Raises:
        SinkError: the log cannot be read.
    """
    table = _opened(path)
    return -1 if table is None else _last_epoch(table, run)


def names(path: str) -> set[str]:
    """The files in the table's directory that its log names.

    Raises:
        SinkError: the log cannot be read.
    """
    table = _opened(path)
    return set() if table is None else {posixpath.basename(unquote(uri)) for uri in table.file_uris()}


def is_table(path: str) -> bool:
    """Whether there is a log."""
    filesystem, root = locate(path)
    found = filesystem.get_file_info(f"{root}/_delta_log").type
    return bool(found == fs.FileType.Directory)


def refuse_delta(path: str, remedy: str) -> None:
    """Refuse a Delta table where plain Parquet files are read: rows that were deleted or replaced are in them, too.

    Raises:
        SourceError: it is one.
    """
    if is_table(path):
        raise SourceError(
            f"{path} is a Delta table, whose files hold deleted and replaced rows, too; expected Parquet files. "
            f"What the table holds now is {remedy}"
        )


def _package() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise SinkError("delta(path) needs the package deltalake: pip install 'fries_nb[delta]'") from error
    return deltalake


def _errors() -> type[Exception]:
    return _package().exceptions.DeltaError  # type: ignore[no-any-return]


def _opened(path: str) -> Any:
    """The table as it is now, ``None`` if there is none yet."""
    deltalake = _package()
    if not is_table(path):
        return None
    try:
        return deltalake.DeltaTable(path)
    except (_errors(), OSError, ValueError) as error:
        raise SinkError(f"cannot read the Delta table {path}: {_first_line(error)}") from error


def _last_epoch(table: Any, run: str) -> int:
    version = table.transaction_version(_application(run))
    return -1 if version is None else int(version)


def _application(run: str) -> str:
    return f"fries-{run}"


def _schema_of(files: Sequence[str]) -> pa.Schema:
    """The narrowest schema that holds the files' rows, without columns that are all null: Delta has no such type."""
    schema = reduce(unified, [_read_schema(file) for file in files])
    return pa.schema([field for field in schema if field.type != pa.null()])


def _read_schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    return pq.read_schema(path, filesystem=filesystem).remove_metadata()


def _columns_to_add(path: str, table: Any, schema: pa.Schema) -> Any:
    """The columns that the table does not have yet, as a schema of Delta's."""
    deltalake = _package()
    known = pa.schema([]) if table is None else pa.schema(table.schema().to_arrow())
    for field in schema:
        if field.name in known.names:
            _check_type(path, known.field(field.name), field)
    try:
        return deltalake.Schema.from_arrow(pa.schema([field for field in schema if field.name not in known.names]))
    except (_errors(), ValueError) as error:
        raise SinkError(f"the Delta table {path} cannot take {schema.names}: {_first_line(error)}") from error


def _check_type(path: str, known: pa.Field, new: pa.Field) -> None:
    """A table's column keeps its type; it takes narrower numbers."""
    table = pa.schema([known])
    if clash(table, pa.schema([new]), fixed=True):
        raise ColumnError(
            f"column {new.name!r} is {known.type} in the Delta table {path} and now {new.type}; a column keeps its "
            "type, so convert it in the operator",
            new.name,
            table.serialize().to_pybytes(),
        )


def _action(path: str, name: str) -> Any:
    from deltalake.transaction import AddAction

    filesystem, file = locate(join(path, name))
    info = filesystem.get_file_info(file)
    rows = pq.read_metadata(file, filesystem=filesystem).num_rows
    modified = int(info.mtime_ns or 0) // 1_000_000
    return AddAction(quote(name), info.size, {}, modified, True, json.dumps({"numRecords": rows}))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
