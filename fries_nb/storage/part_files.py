"""Names of part files, which identify their writer, so that a commit can refuse files of others and of older attempts.

>>> name = PartName("r1", "scored", 0, incarnation=2, serial=7, columns="c0ffee00")
>>> str(name)
'part-r1-scored-00000-0002-000007-c0ffee00.parquet'
>>> PartName.read("/out/_fries/pending/" + str(name)) == name
True
>>> str(name._replace(epoch=5))
'part-r1-scored-00000-0002-e5-000007-c0ffee00.parquet'

Unification of schemas that differ between batches: columns may be added, removed and widened, but not change kind.

>>> import pyarrow as pa
>>> merged = unified(pa.schema({"a": pa.int64(), "b": pa.null()}), pa.schema({"a": pa.float64(), "c": pa.string()}))
>>> merged.names, str(merged.field("a").type)
(['a', 'b', 'c'], 'double')
>>> unified(pa.schema({"a": pa.float64()}), pa.schema({"a": pa.string()}))
Traceback (most recent call last):
fries_nb.errors.ColumnError: column 'a' was double and is now string; a column keeps its type, ...
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from fries_nb.dataflow.columns import clash, united
from fries_nb.errors import ColumnError, SinkError
from fries_nb.storage.durable import join, name_at

_NAME = re.compile(r"part-(\w+)-(\w+)-(\d{5})-(\d{4,})(?:-e(\d+))?-(\d{6,})-([0-9a-f]{8})\.parquet")


_LONGEST = 80
"""Maximum length of a user-defined name within a file name, which is limited to 255 bytes."""


class PartName(NamedTuple):
    """A part written in ``run`` by worker ``worker`` of ``sink``; ``columns`` is the fingerprint of its schema.

    ``epoch`` is that of the topology in which the worker was added.
    """

    run: str
    sink: str
    worker: int
    incarnation: int
    serial: int
    columns: str
    epoch: int = 1

    def __str__(self) -> str:
        epoch = f"-e{self.epoch}" if self.epoch > 1 else ""
        return (
            f"part-{word(self.run)}-{word(self.sink)}-{self.worker:05d}-{self.incarnation:04d}{epoch}-{self.serial:06d}"
            f"-{self.columns}.parquet"
        )

    @staticmethod
    def read(file: str) -> PartName:
        """Parse the name of a file in any directory."""
        found = _NAME.fullmatch(name_at(file))
        if found is None:
            raise SinkError(f"{file!r} is not the name of a part file; a commit takes what sinks have closed")
        run, sink, worker, incarnation, epoch, serial, columns = found.groups()
        return PartName(run, sink, int(worker), int(incarnation), int(serial), columns, int(epoch or 1))


def word(name: str) -> str:
    """The name for use in a file name: characters except letters, digits and underscores replaced, cut to length."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)[:_LONGEST]


def fingerprint(schema: pa.Schema) -> str:
    """Eight hexadecimal digits that identify a schema."""
    return hashlib.sha256(str(schema.remove_metadata()).encode()).hexdigest()[:8]


def pending(path: str) -> str:
    """The directory of uncommitted files in a target; Spark ignores directories that begin with an underscore."""
    return join(path, "_fries", "pending")


def unified(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The narrowest schema that holds rows of both: the old columns in their order, then the new ones."""
    # Integers and floats widen; a column of nulls takes any type.
    try:
        return united(old.remove_metadata(), new.remove_metadata())
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        refused = clash(old, new)
        if refused is None:
            raise
        column, was, now = refused
        raise ColumnError(
            f"column {column!r} was {was} and is now {now}; a column keeps its type, so convert it in the operator",
            column,
            old.serialize().to_pybytes(),
        ) from None


def first_come(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all schemas, each with a type that holds all values, or with its first type if there is none.

    >>> str(first_come([pa.schema({"a": pa.int64()}), pa.schema({"a": pa.string()})]).field("a").type)
    'int64'
    """
    known = pa.schema([])
    for field in (field for schema in schemas for field in schema):
        with contextlib.suppress(pa.ArrowTypeError, pa.ArrowInvalid):
            known = united(known, pa.schema([field]))
    return known


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's rows under a schema that holds them; missing columns are null."""
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(batch.column(index).cast(field.type))
        except pa.ArrowInvalid as error:
            raise SinkError(f"column {field.name!r} is {field.type} and a value does not fit: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)
