"""Delta Lake tables: the files of a commit become rows of the table in one transaction of its log.

The files are in the table's directory and invisible until the log lists them. A transaction records the run and the
commit number, and the log keeps the last commit number of each run, so a commit is added once however often it is
retried. The package ``deltalake`` reads and writes the log; Spark needs no additional jar.

Conversion of rows to the column types of a Delta table; columns that cannot be converted are refused.

Sinks convert incoming rows, to the columns that the table had when they began; the driver checks again before it writes
the checkpoint's record, against the table's current columns (see ``delta``).

>>> fit = TableColumns("the Delta table t", pa.schema([pa.field("n", pa.float64(), nullable=False)])).fit
>>> fit(pa.record_batch({"n": [1], "u": pa.array([200], pa.uint8())})).schema.types
[DataType(double), DataType(int16)]
>>> fit(pa.record_batch({"n": [None]}))
Traceback (most recent call last):
fries_nb.errors.ColumnError: column 'n' is NOT NULL in the Delta table t and a row has no value for it; give it one ...
"""

from __future__ import annotations

import contextlib
import datetime
import json
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.dataflow.columns import HeldBy, NotHeldError, alike, fixed, held, taken
from fries_nb.errors import ColumnError, SinkError, SourceError, close_match
from fries_nb.storage.durable import join, locate
from fries_nb.storage.part_files import unified


class TableColumns:
    """The columns of one table."""

    def __init__(self, table: str, columns: pa.Schema) -> None:
        self.table = table  # the description
        # its columns; empty if the table is to be created
        self.columns = fixed(columns)
        self._required = [field.name for field in columns if not field.nullable]
        self._came: pa.Schema | None = None
        self._goal = self.columns

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the types of the table's columns; new columns in types that Delta supports."""
        if batch.schema is not self._came and batch.schema != self._came:
            self._goal = self.joined(batch.schema)
            self._came = batch.schema
        as_it_is = self._goal == batch.schema
        if as_it_is and not self._required:
            return batch
        arrays = [self._taken(field, values) for field, values in zip(self._goal, batch.columns, strict=True)]
        return batch if as_it_is else pa.RecordBatch.from_arrays(arrays, schema=self._goal)

    def joined(self, schema: pa.Schema) -> pa.Schema:
        """These columns with their types in the table; new ones with the types that they would get."""
        new = [name for name in schema.names if name not in self.columns.names]
        if twins := alike([*self.columns.names, *new]):
            known, name = twins
            problem = f"differs from {known!r} in {self.table} only in case, which the table ignores; rename it"
            raise self.refused(name, problem)
        for name in self._required:
            if name not in schema.names:
                self._taken(self.columns.field(name), pa.nulls(1))
        return pa.schema([self._as_table(field) for field in schema])

    def _as_table(self, field: pa.Field) -> pa.Field:
        column = self.columns.field(field.name) if field.name in self.columns.names else None
        if column is not None:
            self._taken(column, pa.array([], field.type))
            return pa.field(field.name, column.type)
        try:
            return field.with_type(held(field.type, HeldBy.DELTA))
        except NotHeldError as error:
            words = f"is {field.type}, {HeldBy.DELTA.value}; {error.remedy}"
            raise self.refused(field.name, words, [pa.field(field.name, pa.null())]) from None

    def _taken(self, field: pa.Field, values: pa.Array) -> pa.Array:
        column = self.columns.field(field.name) if field.name in self.columns.names else field
        try:
            return taken(column, values, self.table)
        except ValueError as error:
            raise self.refused(field.name, str(error)) from error

    def refused(self, column: str, words: str, open_: Iterable[pa.Field] = ()) -> ColumnError:
        """The error, with the table's columns, and the other columns with unrestricted types."""
        before = fixed(pa.schema([*self.columns, *open_])).serialize().to_pybytes()
        return ColumnError(f"column {column!r} {words} in the operator", column, before)


_CHECK = "delta.constraints."
_IN_UTC = "%Y-%m-%dT%H:%M:%S.%fZ"  # as are all times with a zone in a table
_RULES = {
    "delta.invariants": "the invariant of",
    "delta.generationExpression": "the generated column",
    "delta.identity.start": "the identity column",
}
"""Metadata of columns whose values a writer of Delta tables must check or generate."""


def check_usable(path: str, partition_by: Sequence[str] = ()) -> None:
    """Refuse a table that cannot be appended to; called before anything runs."""
    table = _opened(path)
    if table is None:
        return
    with _in_words(f"cannot read the Delta table {path}"):
        metadata, schema = table.metadata(), json.loads(table.schema().to_json())
    if (found := metadata.partition_columns) != [*partition_by]:
        is_, given = (f"partitioned by {', '.join(by)}" if by else "not partitioned" for by in (found, partition_by))
        raise SinkError(f"the Delta table {path} is {is_}, and the sink is {given}; expected partition_by={found}")
    checks = [key.removeprefix(_CHECK) for key in sorted(metadata.configuration) if key.startswith(_CHECK)]
    if rules := [f"the constraint {name}" for name in checks] + list(_rules(schema)):
        raise SinkError(
            f"the Delta table {path} has {' and '.join(rules)}, which a flow does not enforce; expected a table "
            "without; enforce them in an operator and drop them from the table"
        )


def columns(path: str) -> pa.Schema:
    """The table's columns; empty if there is no table yet."""
    return _columns(path, _opened(path))


def check_fits(path: str, files: Sequence[str], partition_by: Sequence[str] = ()) -> None:
    """Refuse Parquet files whose rows the table cannot hold."""
    known, schemas = columns(path), {file: _read_schema(file) for file in files}
    new = _columns_to_add(path, known, _narrowest(schemas.values()))
    if not known.names and not new.names:
        raise SinkError(f"the Delta table {path} cannot begin with rows of nothing but nulls; give a column a type")
    with _in_words(f"the Delta table {path} cannot take {new.names}"):
        _package().Schema.from_arrow(new)
    table = pa.schema([*known, *new])
    if missing := [name for name in partition_by if name not in table.names]:
        raise SinkError(
            f"the Delta table {path} is to be partitioned by {missing[0]!r}, and no row has a value in such a column; "
            f"expected one of {', '.join(table.names)}{close_match(missing[0], table.names)}"
        )
    if set(table.names) == set(partition_by):
        raise SinkError(f"the Delta table {path} needs a column beside {', '.join(partition_by)} of its partitions")
    for file, schema in schemas.items():
        _check_rows(TableColumns(f"the Delta table {path}", table), table, file, schema)


def add(path: str, run: str, epoch: int, names: Sequence[str], partition_by: Sequence[str] = ()) -> None:
    """Append files of the table's directory to the table, as one commit of a run; idempotent."""
    deltalake = _package()
    table = _opened(path)
    new = _columns_to_add(path, _columns(path, table), _narrowest(_read_schema(join(path, name)) for name in names))
    try:
        added = deltalake.Schema.from_arrow(new)
        if table is None:
            table = deltalake.DeltaTable.create(path, added, mode="ignore", partition_by=[*partition_by])
        elif _last_epoch(table, run) >= epoch:
            return
        elif added.fields:
            table.alter.add_columns(added.fields)
            table = deltalake.DeltaTable(path)
        done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(_application(run), epoch)])
        actions = [_action(path, name, partition_by) for name in names]
        table.create_write_transaction(
            actions, "append", table.schema(), partition_by=[*partition_by], commit_properties=done
        )
    except Exception as error:  # deltalake also raises plain ``Exception``
        if last_epoch(path, run) >= epoch:  # another process completed the commit at the same time
            return
        raise SinkError(f"cannot add epoch {epoch} to the Delta table {path}: {_first_line(error)}") from error


def last_epoch(path: str, run: str) -> int:
    """The last commit number of a run in the table, -1 for none."""
    table = _opened(path)
    with _in_words(f"cannot read the Delta table {path}"):
        return -1 if table is None else _last_epoch(table, run)


def names(path: str) -> set[str]:
    """The files that the table's log lists."""
    table = _opened(path)
    with _in_words(f"cannot read the Delta table {path}"):
        return set() if table is None else {posixpath.basename(unquote(uri)) for uri in table.file_uris()}


def is_table(path: str) -> bool:
    """Whether the directory has a Delta log."""
    filesystem, root = locate(path)
    found = filesystem.get_file_info(f"{root}/_delta_log").type
    return bool(found == fs.FileType.Directory)


def refuse_delta(path: str, remedy: str) -> None:
    """Refuse a Delta table as a source of plain Parquet files, which include rows that were deleted or replaced."""
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


def _opened(path: str) -> Any:
    """The table in its current version; ``None`` if there is none yet."""
    deltalake = _package()
    if not is_table(path):
        return None
    with _in_words(f"cannot read the Delta table {path}"):
        return deltalake.DeltaTable(path)


@contextlib.contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Turns errors of deltalake, not all of which are ``DeltaError``, into one-line errors."""
    try:
        yield
    except Exception as error:
        raise SinkError(f"{what}: {_first_line(error)}") from error


def _last_epoch(table: Any, run: str) -> int:
    version = table.transaction_version(_application(run))
    return -1 if version is None else int(version)


def _application(run: str) -> str:
    return f"fries-{run}"


def _narrowest(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The narrowest schema that holds the rows of all these, without all-null columns, which Delta does not support."""
    schema = reduce(unified, schemas)
    return pa.schema([field for field in schema if field.type != pa.null()])


def _read_schema(file: str) -> pa.Schema:
    filesystem, path = locate(file)
    return pq.read_schema(path, filesystem=filesystem).remove_metadata()


def _rules(schema: Any, within: str = "") -> Iterator[str]:
    """Constraints on values at all depths of a schema in the log."""
    if isinstance(schema, list):
        for part in schema:
            yield from _rules(part, within)
    elif isinstance(schema, dict):
        name = f"{within}{schema['name']}" if "name" in schema else within
        metadata = schema.get("metadata", {})
        yield from (f"{words} {name!r}" for key, words in _RULES.items() if key in metadata)
        for key in ("fields", "type", "elementType", "keyType", "valueType"):
            yield from _rules(schema.get(key), f"{name}." if "name" in schema else within)


def _columns(path: str, table: Any) -> pa.Schema:
    with _in_words(f"cannot read the Delta table {path}"):
        return pa.schema([] if table is None else pa.schema(table.schema().to_arrow()))


def _columns_to_add(path: str, known: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """The columns that the table does not have yet, in types that Delta supports."""
    joined = TableColumns(f"the Delta table {path}", known).joined(schema)
    return pa.schema([field for field in joined if field.name not in known.names])


def _check_rows(fitting: TableColumns, table: pa.Schema, file: str, schema: pa.Schema) -> None:
    """Check the values of columns whose type alone does not guarantee that they fit."""
    fitting.joined(schema)
    known = [field for field in table if field.name in schema.names]
    doubtful = [field.name for field in known if not field.nullable or field.type != schema.field(field.name).type]
    if doubtful:
        filesystem, path = locate(file)
        with pq.ParquetFile(path, filesystem=filesystem) as part:
            for batch in part.iter_batches(columns=doubtful):
                fitting.fit(batch)


def _action(path: str, name: str, partition_by: Sequence[str]) -> Any:
    from deltalake.transaction import AddAction

    filesystem, file = locate(join(path, name))
    info = filesystem.get_file_info(file)
    modified = int(info.mtime_ns or 0) // 1_000_000
    with pq.ParquetFile(file, filesystem=filesystem) as part:
        rows = part.metadata.num_rows
        there = [column for column in partition_by if column in part.schema_arrow.names]
        [first] = next(part.iter_batches(1, columns=there)).to_pylist() if there else [{}]
    values = {column: _partition_value(first.get(column)) for column in partition_by}
    return AddAction(quote(name), info.size, values, modified, True, json.dumps({"numRecords": rows}))


def _partition_value(value: Any) -> str | None:
    """A value of a part, in the table's type, as the log has it.

    >>> [_partition_value(value) for value in (None, True, 7, datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2))]
    [None, 'true', '7', '2026-01-02', '2026-01-02 00:00:00.000000']
    """
    if isinstance(value, datetime.datetime):
        return value.strftime(_IN_UTC) if value.tzinfo is not None else value.isoformat(" ", "microseconds")
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
