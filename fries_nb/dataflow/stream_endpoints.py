"""Descriptions of the endpoints that grow while they are read; ``connectors`` reads and writes what they describe.

A directory to which files are added, read by ``connectors.files``:

>>> files("in", "csv", until="_SUCCESS").until
'_SUCCESS'
>>> files("in", "cvs")
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: files got format='cvs'; expected parquet, csv or json (a row a line); did you mean 'csv'?

A Kafka topic, as a source or as a sink:

>>> kafka("broker:9092", "payments").topic
'payments'
>>> kafka("broker:9092", "payments", start="lastest")
Traceback (most recent call last):
    ...
fries_nb.errors.SourceError: kafka got start='lastest'; expected 'earliest', 'latest' or a datetime; did ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from fries_nb.dataflow.arguments import at_rate, checked_rate
from fries_nb.errors import DataflowError, SinkError, SourceError, close_match, unknown

FILE_FORMATS = ("parquet", "csv", "json")
FILE_ORDERS = ("name", "time")
BAD_ROWS = ("fail", "skip")
NEW_COLUMNS = ("add", "refuse")
CSV_OPTIONS: dict[str, tuple[str, ...]] = {
    "read": ("column_names", "encoding", "skip_rows", "skip_rows_after_names"),
    "parse": ("delimiter", "quote_char", "double_quote", "escape_char", "ignore_empty_lines"),
    "convert": (
        "null_values", "strings_can_be_null", "quoted_strings_can_be_null", "true_values", "false_values",
        "decimal_point", "timestamp_parsers",
    ),
}  # fmt: skip
"""The options of ``pyarrow.csv`` that say how files are written, by its classes of options."""


@dataclass(frozen=True)
class GrowingFiles:
    """The rows of the files of a directory; made by ``files``.

    Attributes:
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
    """

    path: str  # the directory or its URI, or a glob below one
    format: str  # ``parquet``, ``csv`` or ``json``
    rate: float | None = None
    schema: pa.Schema | None = None  # the columns; ``None`` for those of the files that are there first
    order: str = "name"  # ``name`` or ``time``
    until: str | None = None  # name of the file that says that no other comes any more
    quiet_s: float = 1.0  # seconds for which a file of text must not have changed before it counts as complete
    csv: Mapping[str, Any] = field(default_factory=dict, hash=False)  # options of ``pyarrow.csv``, by name
    encoding: str | None = None  # encoding of text; ``None`` for UTF-8
    bad_rows: Any = "fail"  # ``fail``, ``skip``, or the sink that receives lines that are no rows
    new_columns: str = "add"  # ``add`` or ``refuse``: what becomes of columns that the first files lack

    @property
    def on_error(self) -> Any:
        """The error policy of the source: ``fail``, or the sink of its dead letters."""
        return "fail" if self.bad_rows in ("fail", "skip") else self.bad_rows

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
    csv: Mapping[str, Any] | None = None,
    encoding: str | None = None,
    bad_rows: Any = "fail",
    new_columns: str = "add",
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

    Types of CSV and JSON are inferred from all files that are complete when the run begins, up to 32 MiB of them:
    integers, floats, true and false, dates, times (of ``Z`` or an offset in UTC), objects and lists of JSON, else text.
    A number is never cut: integers of more than 64 bits are decimals, and a column with leading zeros, or with
    fractions of more digits than a float has, is text in CSV. A column of both times with an offset and times without
    is refused. A column of empty cells is text, a file without rows decides nothing, and a column may be missing in a
    file. A later file may widen a type (integers to floats, nulls to anything, further fields of objects); what has no
    type with the rows before is refused by file, line and column. The first Parquet file decides columns and their
    types; later ones may have wider types of the same family (int32 and int64, ``string`` and ``large_string``).
    Further columns in a later file are added behind the others, or end the run with ``new_columns="refuse"``. With
    ``schema=`` values are converted to its types if nothing is lost, and further columns are not read. If a run begins
    with an empty directory, each host decides by the files that it finds first.

    Directories of partitions, as ``day=2024-01-02/``, give their files a column, whose type is inferred from all names;
    where a file has the column itself, its own values count.

    A file that cannot be read ends the run by its name, with the line if it is text: bytes that are not of the
    encoding, a quote that is not closed, another number of cells, JSON that is none, a value of another type. With
    ``bad_rows=`` such lines are left out, and the others are read. A Parquet file without its end is waited for, which
    ``run.explain()`` says; once the file of ``until=`` is there and it has not grown for 3 s, it cannot be read.

    A checkpoint keeps 18 bytes for each file in the directory that was read, and for the last 10,000 of each split that
    have left it, or have another name now; older ones of these would be read again if they came back.

    Args:
        path: the directory, which may be empty, or its URI; subdirectories count. Or a glob, as in ``in/**/*.csv``. All
            hosts must reach it. In a URI ``?`` begins the query, as in ``s3://bucket/in?region=eu-west-1``.
        format: ``parquet``, ``csv`` or ``json``.
        rate: rows per second over all workers of the source; ``None`` for as fast as the dataflow takes them.
        schema: the columns; ``None`` for those of the files that are there first.
        order: ``name``, or ``time`` for that of the last modification.
        until: name of a file in the directory, as ``_SUCCESS``: once it is there no other file comes, and the source
            ends when all are read. ``None`` for an endless source.
        quiet_s: seconds for which a file of CSV or JSON must not have changed before it counts as complete.
        csv: how files of CSV are written, by the names of options of ``pyarrow.csv``, as ``{"delimiter": ";",
            "quote_char": "'", "column_names": ["n", "name"], "null_values": ["NA"]}``. With ``column_names`` the first
            line is a row; ``skip_rows`` leaves out lines in front of it; text may be null with ``strings_can_be_null``.
        encoding: encoding of CSV and JSON by Python's name, as ``latin-1`` or ``utf-16``; ``None`` for UTF-8.
        bad_rows: what becomes of a line that is no row, or of the rest of a file that cannot be read: ``fail`` ends the
            run, ``skip`` leaves it out, counts it and says so in ``run.explain()``; a sink such as ``fn.memory()`` also
            receives it, once, as a dead letter with ``file``, ``line``, ``text`` and ``reason``; see
            ``run.dead_letters``.
        new_columns: what becomes of a column of a later file that those before lack: ``add`` adds it to the rows from
            then on, ``refuse`` ends the run, by file and column, before a row with it comes out. With ``schema=`` it is
            not read.

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
    options = _checked_csv(csv or {}, format)
    if encoding is not None:
        _check_encoding(encoding, format, options)
    if isinstance(bad_rows, str) and bad_rows not in BAD_ROWS:
        likely = close_match(bad_rows, BAD_ROWS)
        raise SourceError(
            f"files got bad_rows={bad_rows!r}; expected 'fail', 'skip', or a sink such as fn.memory(){likely}"
        )
    return GrowingFiles(
        os.fspath(path), format, checked_rate(rate), schema, order, until, float(quiet_s), options, encoding, bad_rows,
        _checked_new_columns("files", new_columns, schema),
    )  # fmt: skip


def _checked_new_columns(what: str, new_columns: object, schema: pa.Schema | None) -> str:
    """What becomes of new columns, which given ones exclude."""
    if new_columns not in NEW_COLUMNS:
        likely = close_match(new_columns, NEW_COLUMNS) if isinstance(new_columns, str) else ""
        raise SourceError(f"{what} got new_columns={new_columns!r}; expected 'add' or 'refuse'{likely}")
    if schema is not None and new_columns == "refuse":
        raise SourceError(
            f"{what} got schema= and new_columns='refuse'; columns beside those of a schema are not read, so expected "
            "one of them"
        )
    return str(new_columns)


def _check_encoding(encoding: object, format: str, csv: Mapping[str, Any]) -> None:
    if format == "parquet":
        raise SourceError("files got encoding= for format='parquet', which is no text; leave it out")
    try:
        "".encode(encoding)  # type: ignore[arg-type]
    except (LookupError, TypeError):
        raise SourceError(f"files got encoding={encoding!r}; expected one that Python knows, as 'latin-1'") from None
    if csv.get("encoding", encoding) != encoding:
        raise SourceError(f"files got encoding={encoding!r} and another one in csv=; leave one out")


def _checked_csv(given: Mapping[str, Any], format: str) -> dict[str, Any]:
    if given and format != "csv":
        raise SourceError(f"files got csv= for format={format!r}; leave it out")
    known = [name for names in CSV_OPTIONS.values() for name in names]
    if others := [name for name in given if name not in known]:
        raise SourceError(f"files got {unknown('option of csv=', others[0], known)}")
    try:
        csv_options(given)
    except (TypeError, ValueError) as error:
        raise SourceError(f"files got csv={dict(given)!r}, which pyarrow.csv does not take: {error}") from error
    return dict(given)


def csv_options(given: Mapping[str, Any]) -> tuple[pc.ReadOptions, pc.ParseOptions, pc.ConvertOptions]:
    """The options of ``pyarrow.csv``, of which the given ones are set.

    Args:
        given: values by the names of ``CSV_OPTIONS``.

    Raises:
        TypeError: a value is not of the option's type.
        ValueError: it is not a value of the option.
    """
    read, parse, convert = ({name: given[name] for name in names if name in given} for names in CSV_OPTIONS.values())
    return pc.ReadOptions(**read), pc.ParseOptions(**parse), pc.ConvertOptions(**convert)


STARTS = ("earliest", "latest")
OF_SOURCES = ("start", "until", "schema", "decode", "metadata", "on_error", "new_columns")
OF_SINKS = ("key", "encode")
OURS = {
    "group.id", "isolation.level", "enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof",
    "auto.offset.reset", "transactional.id", "enable.idempotence", "bootstrap.servers",
}  # fmt: skip
"""Settings of librdkafka on which exactly-once depends."""


@dataclass(frozen=True)
class Kafka:
    """A Kafka topic; made by ``kafka``.

    Attributes:
        start: where a new run begins to read: ``earliest``, ``latest``, or milliseconds since the Unix epoch.
        until: ``latest`` to end at what the topic holds when the run starts; ``None`` for an endless source.
        decode: from the bytes of a message to a row; ``None`` for JSON.
        metadata: whether rows get columns with the key, the partition, the offset and the time of their message.
        config: further settings of librdkafka.
    """

    servers: str  # addresses of brokers, ``host:port``, separated by commas
    topic: str  # name of the topic
    start: str | int = "earliest"
    until: str | None = None
    schema: pa.Schema | None = None  # the columns of the messages; ``None`` to infer them
    decode: Callable[[bytes], Mapping[str, Any]] | None = None
    metadata: bool = False
    on_error: Any = "fail"  # ``fail``, or the sink that receives messages that do not decode
    key: str | None = None  # the column with the key of a row's message; ``None`` for no key
    encode: Callable[[dict[str, Any]], bytes] | None = None  # from a row to the bytes of its message; ``None`` for JSON
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)  # may hold a password
    new_columns: str = "add"  # ``add`` or ``refuse``: what becomes of columns that the first messages lack

    def __str__(self) -> str:
        return f"topic {self.topic!r} of {self.servers}"

    def starting(self, start: datetime) -> Kafka:
        """The same topic, read from the messages of a time on, as with ``kafka(..., start=<datetime>)``."""
        return replace(self, start=_checked_start(start))


def kafka(
    servers: str,
    topic: str,
    *,
    start: str | datetime = "earliest",
    until: str | None = None,
    schema: pa.Schema | None = None,
    decode: Callable[[bytes], Mapping[str, Any]] | None = None,
    metadata: bool = False,
    on_error: Any = "fail",
    key: str | None = None,
    encode: Callable[[dict[str, Any]], bytes] | None = None,
    config: Mapping[str, Any] | None = None,
    new_columns: str = "add",
) -> Kafka:
    """A Kafka topic as a source or as a sink (extra ``kafka``).

    As a source: each partition is a split, so a topic needs at least as many partitions as the source has workers. Only
    committed messages are read. A run's first start decides where it begins; from then on checkpoints hold the offsets,
    and no consumer group is used. Partitions that are added to the topic later are found within a minute, and read from
    their first message on.

    As a sink: the rows of a checkpoint become messages in one transaction, which also writes the number of the commit
    to the compacted topic ``fries-commits``, so that consumers with ``isolation.level=read_committed`` get each row
    exactly once, whatever dies when. Rows wait in files beside the checkpoint until they are committed; without
    checkpoints that is at each ``commit_interval_s``.

    Args:
        servers: addresses of brokers, ``host:port``, separated by commas.
        topic: name of the topic, which must exist.
        start: of a source, where a new run begins: ``earliest``, ``latest``, or a time, from whose first message on. A
            datetime without a time zone is in UTC.
        until: of a source, ``latest`` to end with the last message that the topic holds when the run starts; by default
            it is endless.
        schema: of a source, the columns of the messages; others are ignored, and missing ones are null. By default
            columns are inferred from up to 1,000 messages, and further columns and integers that become floats are
            accepted as they come. Text remains text, so columns of times need a schema.
        decode: of a source, a function from the bytes of a message to a row (a dict), for Avro, Protobuf and others;
            by default a message is a JSON object.
        metadata: of a source, whether each row also gets ``kafka_key`` (bytes), ``kafka_partition``, ``kafka_offset``
            and ``kafka_timestamp`` (to the millisecond, in UTC), which may be the ``time=`` of the source.
        on_error: of a source, what happens if a message does not decode: ``fail``, or a sink such as ``fn.memory()``
            that receives it as a dead letter; see ``run.dead_letters``.
        key: of a sink, the column whose values become the keys of messages; rows of one key go to one partition, the
            one that Java's clients choose, too. By default partitions are chosen at random.
        encode: of a sink, a function from a row (a dict) to the bytes of its message; by default JSON.
        config: further settings of librdkafka by name, as ``{"security.protocol": "SASL_SSL", ...}``.
        new_columns: of a source, what becomes of a message with a column that those from which columns were inferred
            lack: ``add`` adds it to the rows from then on, ``refuse`` treats the message as one that does not decode.

    Returns:
        A description for ``Dataflow.source`` or ``Stream.sink``.

    Raises:
        SourceError: an argument of a source is not of its kind.
        SinkError: an argument of a sink is not of its kind.
    """
    for name, value in (("servers", servers), ("topic", topic)):
        if not isinstance(value, str) or not value.strip():
            raise SourceError(f"kafka got {name}={value!r}; expected kafka('host:9092', 'topic')")
    if until not in (None, "latest"):
        raise SourceError(f"kafka got until={until!r}; expected 'latest', or None for an endless source")
    if schema is not None and not isinstance(schema, pa.Schema):
        raise SourceError(f"kafka got schema={schema!r}; expected a pyarrow.Schema")
    if decode is not None and not callable(decode):
        raise SourceError(f"kafka got decode={decode!r}; expected a function from the bytes of a message to a dict")
    if key is not None and (not isinstance(key, str) or not key):
        raise SinkError(f"kafka got key={key!r}; expected the name of one column")
    if encode is not None and not callable(encode):
        raise SinkError(f"kafka got encode={encode!r}; expected a function from a row to the bytes of its message")
    return Kafka(
        servers, topic, _checked_start(start), until, schema, decode, bool(metadata), on_error, key, encode,
        _checked_config(config or {}), _checked_new_columns("kafka", new_columns, schema),
    )  # fmt: skip


def check_role(what: str, given: Kafka, role: str) -> None:
    """Refuse arguments that are of the other role.

    Args:
        what: where it was given, the beginning of the message of an error.
        given: the description.
        role: ``source`` or ``sink``.

    Raises:
        DataflowError: an argument is set that has no effect there.
    """
    others, other = (OF_SINKS, "sink") if role == "source" else (OF_SOURCES, "source")
    plain = Kafka(given.servers, given.topic)
    for argument in others:
        if getattr(given, argument) != getattr(plain, argument):
            raise DataflowError(f"{what}kafka(..., {argument}=...), which is for a {other}; leave it out")


def _checked_start(start: object) -> str | int:
    """``earliest``, ``latest``, or milliseconds since the Unix epoch."""
    if isinstance(start, datetime):
        return round((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() * 1_000)
    if isinstance(start, str) and start in STARTS:
        return start
    likely = close_match(start, STARTS) if isinstance(start, str) else ""
    raise SourceError(f"kafka got start={start!r}; expected 'earliest', 'latest' or a datetime{likely}")


def _checked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    if ours := sorted(OURS & config.keys()):
        raise SourceError(f"kafka got config={{{ours[0]!r}: ...}}, which fries_nb sets itself; leave it out")
    return dict(config)
