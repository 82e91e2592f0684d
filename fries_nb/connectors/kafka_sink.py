"""A Kafka topic as a sink: rows are encoded by the workers, wait in files, and are sent at the commit.

See ``kafka_commits`` for why that is exactly-once. The files are Parquet with the columns ``key`` and ``value``.
"""

from __future__ import annotations

import datetime
import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from fries_nb.connectors.kafka_client import KafkaCluster
from fries_nb.connectors.kafka_commits import TransactionalTopic
from fries_nb.connectors.part_writer import PartWriter
from fries_nb.connectors.sink import ClaimedSink, WrittenColumns, of_user
from fries_nb.dataflow.held_types import HeldBy, NotHeldError, converted_batch, held_columns
from fries_nb.errors import SinkError, exception_text
from fries_nb.messages import WorkerId
from fries_nb.storage import manifest
from fries_nb.storage.durable import see_durable
from fries_nb.storage.locations import locate
from fries_nb.storage.part_files import PartName, pending

Encode = Callable[[dict[str, Any]], bytes]
MESSAGE = pa.schema({"key": pa.binary(), "value": pa.binary()})
"""Columns of the files in which messages wait."""


class KafkaSink(ClaimedSink):
    """The messages of a topic; see ``Sink``.

    Args:
        name: name of the sink.
        cluster: the cluster.
        topic: name of the topic.
        path: the directory in which messages wait, local or a URI that the driver and all hosts reach.
        key: the column with the keys of messages; ``None`` for no keys.
        encode: from a row to its message; ``None`` for JSON.
    """

    def __init__(
        self,
        name: str,
        cluster: KafkaCluster,
        topic: str,
        path: str,
        key: str | None = None,
        encode: Encode | None = None,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._topic = topic
        self._path = path
        self._encoder = MessageEncoder(name, key, encode)
        self._run = ""  # until it is claimed
        self._target: TransactionalTopic | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_target": None}  # hosts do not commit

    def claim(self, flow: str, run: str) -> None:
        """Take over the commits of this run from its earlier processes; see ``Sink``."""
        self._run = run
        self._target = TransactionalTopic(self._cluster, self._topic, f"{flow}/{run}/{self._name}")

    def open(self, worker: WorkerId, incarnation: int, epoch: int = 1) -> KafkaWriter:
        """Open a writer of files with messages; see ``Sink``."""
        return KafkaWriter(PartWriter(self._path, worker, incarnation, self._run, epoch), self._encoder)

    def prepare(self, parts: Sequence[str]) -> None:
        """Check that the messages are on disk; see ``Sink``."""
        self._see_there([part for part in map(PartName.read, parts) if not self._claimed.record.holds(part)])

    def commit(self, number: int, parts: Sequence[str]) -> None:
        """Send the messages in one transaction, then delete the files; see ``Sink``."""
        if not parts:
            return
        named = [PartName.read(part) for part in parts]
        record = self._claimed.record
        if number > record.number:
            self._check_new(named)
            self._see_there(named)
            self._claimed.commit(record.after(number, named), lambda: self._messages(named))
        elif not all(map(record.holds, named)):
            raise SinkError(f"epoch {number} of run {self._run} is committed in topic {self._topic!r} with other files")
        self._delete(named)

    def recover(self, number: int, parts: Sequence[str]) -> None:
        """Commit what the checkpoint records; see ``Sink``. Messages cannot be taken back."""
        if (last := self._claimed.record.number) > number:
            raise SinkError(
                f"the topic {self._topic!r} has the messages of epoch {last} of run {self._run}, whose checkpoint is "
                f"damaged; going on from epoch {number} would add them again, and Kafka takes no message back: start a "
                "new run behind them, with start= a time"
            )
        self.commit(number, parts)

    def discard(self, incarnation: int, spared: Collection[str]) -> None:
        """Delete the messages of the run that were not committed; see ``Sink``."""
        manifest.sweep(self._path, self._run, incarnation, frozenset(spared))

    @property
    def _claimed(self) -> TransactionalTopic:
        assert self._target is not None, "a sink is claimed before it commits"
        return self._target

    def _check_new(self, parts: Sequence[PartName]) -> None:
        record = self._claimed.record
        granted = max(record.incarnation, *(part.incarnation for part in parts))
        for part in parts:
            if part.incarnation < granted:
                raise SinkError(
                    f"{part} is of incarnation {part.incarnation}, and topic {self._topic!r} is at {granted}: "
                    "a host of an attempt that is over handed it in"
                )
            if record.holds(part):
                raise SinkError(f"{part} is committed in topic {self._topic!r} by epoch {record.number} or before")

    def _file(self, part: PartName) -> tuple[fs.FileSystem, str]:
        filesystem, directory = locate(pending(self._path))
        return filesystem, posixpath.join(directory, str(part))

    def _see_there(self, parts: Sequence[PartName]) -> None:
        """Check that parts are on disk, durably."""
        for part in parts:
            filesystem, file = self._file(part)
            if filesystem.get_file_info(file).type != fs.FileType.File:
                raise SinkError(f"the part {file} has gone; its messages cannot be sent")
            see_durable(filesystem, file)
        if parts:
            see_durable(filesystem, posixpath.dirname(file))

    def _messages(self, parts: Sequence[PartName]) -> Iterator[tuple[bytes | None, bytes]]:
        for part in parts:
            filesystem, file = self._file(part)
            with filesystem.open_input_file(file) as stream:
                for batch in pq.ParquetFile(stream).iter_batches():
                    yield from zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)

    def _delete(self, parts: Sequence[PartName]) -> None:
        for filesystem, file in map(self._file, parts):
            if filesystem.get_file_info(file).type == fs.FileType.File:
                filesystem.delete_file(file)


class MessageEncoder:
    """Encodes rows.

    Args:
        name: name of the sink, for the message of an error.
        key: the column with the keys; ``None`` for no keys.
        encode: from a row to its message; ``None`` for JSON.
    """

    def __init__(self, name: str, key: str | None, encode: Encode | None) -> None:
        self._name = name
        self._key = key
        self._encode = encode

    def encoded(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of rows.

        Raises:
            SinkError: a row cannot be encoded, or lacks the column of keys.
        """
        if self._key is not None and self._key not in rows.schema.names:
            raise SinkError(f"sink {self._name!r} has key={self._key!r}, and rows have {', '.join(rows.schema.names)}")
        keys: list[bytes | None] = [None] * rows.num_rows
        encode, values = self._encode or msgspec.json.Encoder(enc_hook=_plain).encode, []
        try:
            if self._encode is None:
                rows = converted_batch(rows, held_columns(rows.schema, HeldBy.MESSAGES))
            if self._key is not None:
                keys = [_key(value) for value in rows.column(self._key).to_pylist()]
            came = rows.to_pylist()
        except NotHeldError as error:
            raise SinkError(f"sink {self._name!r} got {error} in an operator") from None
        except (pa.ArrowException, ValueError, OverflowError) as error:  # as a time behind the year 9999
            raise SinkError(f"sink {self._name!r} got rows without Python values: {exception_text(error)}") from error
        for row in came:
            try:
                values.append(encode(row))
            except Exception as error:
                raise SinkError(
                    f"sink {self._name!r} cannot encode {str(row)[:200]}: {exception_text(error)}"
                ) from error
        if others := [value for value in values if not isinstance(value, bytes)]:
            raise SinkError(f"encode= of sink {self._name!r} gave {others[0]!r}; expected bytes")
        return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=MESSAGE)


class KafkaWriter:
    """Writes the messages of one worker to files; see ``SinkWriter``.

    Args:
        parts: writes the files.
        encoder: encodes rows.
    """

    def __init__(self, parts: PartWriter, encoder: MessageEncoder) -> None:
        self._columns = WrittenColumns()
        self._parts = parts
        self._encoder = encoder

    @property
    def columns(self) -> pa.Schema:
        """All columns of rows written so far."""
        return self._columns.schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the messages of rows to the current part."""
        if not batch.num_rows:
            return
        batch = of_user(batch)
        self._columns.note(batch.schema)
        self._parts.write(self._encoder.encoded(batch))

    def close_part(self) -> tuple[str, ...]:
        """Close the parts with all messages since the last call."""
        return self._parts.close_part()


def _key(value: Any) -> bytes | None:
    """The key of a message: bytes and text as they are, other values as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """A value that JSON has no form for."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
