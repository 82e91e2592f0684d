"""Dead letters: rows on which an operator has failed, and their way back.

A dead letter is a row of the operator's sink of dead letters. It has the row twice: as JSON, to be read, and whole, to
be processed again. A requeue gives rows back to the operator, and the letter then is *requeued*: another row of the
sink says so. That row is written where the row is taken, in front of all that the operator makes of it, and is
committed with it. So a letter is requeued if and only if what became of its row is in the output, whatever failed in
between; and the sink of dead letters is all that needs to be read to know which letters are open.

A row that comes back is a transaction of its own, of the version that processes it. If the operator fails again, it
writes another letter, which counts the tries.

>>> from fries_nb.dataflow.graph import Operator
>>> instance = Instance(WorkerId("FM", 0), Operator("FM"), dict, audit=False)
>>> came = pa.RecordBatch.from_pydict({"id": [7], "amount": [1.5]})
>>> [letter] = dead_letter(instance, FailedRow({"id": 7, "amount": 1.5}, came), "no score", "").to_pylist()
>>> letter["letter"], letter["tuple"], letter["version"], letter["tries"], letter["requeued"]
('FM[0]..1', '{"id": 7, "amount": 1.5}', '', 1, None)
>>> again = requeued_row(letter, Binning(["id"]))
>>> [returned] = returned_rows([again])
>>> returned.rows.equals(came), returned.tries
(True, 1)
>>> requeued_letters(instance.worker, "requeue-1", [again]).select(["letter", "requeued"]).to_pylist()[0] == {
...     "letter": letter["letter"], "requeued": "requeue-1"}
True
"""

from __future__ import annotations

import base64
import itertools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.columns import COHORT, DUE, HIDDEN, TRANSACTION
from fries_nb.errors import DataflowError, OperatorError, exception_text
from fries_nb.operators.conversion import NOT_ARROW, to_python
from fries_nb.operators.instance import Instance, row_as_json
from fries_nb.operators.rows import Row
from fries_nb.operators.steps import assemble
from fries_nb.protocol.messages import RequeuedRow, WorkerId
from fries_nb.protocol.partitioning import BINS, Binning

LETTER = pa.schema(
    {
        "operator": pa.string(), "worker": pa.int64(), "error": pa.string(), "traceback": pa.string(),
        "tuple": pa.string(), "version": pa.string(), "tries": pa.int64(), "letter": pa.string(), "row": pa.string(),
        "requeued": pa.string(),
    }
)  # fmt: skip
"""The columns of a dead letter.

``tuple`` is JSON, and ``row`` the same row as an Arrow IPC stream, in base64; null if it is none that can come back.
``version`` is the change whose function failed, empty for the first one; ``tries`` how often the operator has failed on
the row. ``letter`` is an id: the worker, the incarnation and the epoch of the topology in which it began, and a number.
``requeued`` is null, except in a row which says that this letter was requeued, and by which request.
"""


@dataclass(frozen=True)
class FailedRow:
    """A row on which an operator has failed.

    Attributes:
        shown: its values.
        came: the row as a batch, as it came to the operator; ``None`` if there is none that could come back, as for
            what time brings out, or a line that is no row.
        index: its number in the batch in hand.
    """

    shown: Mapping[str, Any]
    came: pa.RecordBatch | None = None
    index: int = 0

    @staticmethod
    def of_row(row: Row) -> FailedRow:
        """A row, whose values are those that came."""
        shown = dict(row)
        try:
            # Without the columns that the function has written to other rows of the batch.
            came = assemble([row.copy()], row.columns, {})
            came = came.select([*shown, *(name for name in row.columns.hidden if name == COHORT)])
        except NOT_ARROW:  # an earlier operator of the chain has written a value that no column holds
            came = None
        return FailedRow(shown, came, row.index)

    @staticmethod
    def of_batch(batch: pa.RecordBatch, index: int) -> FailedRow:
        """The row of a batch of one row."""
        rows = _of_user(batch)
        return FailedRow({name: to_python(rows.column(name))[0] for name in rows.schema.names}, batch, index)


def set_aside(instance: Instance, refused: FailedRow, error: OperatorError) -> None:
    """Write a dead letter for a row; of that of a shadow nothing is left but a count.

    Raises:
        OperatorError: the error itself, if the operator writes none, or the failure is that of a change under guard.
    """
    others = error.operator not in ("", instance.operator.name)
    if not instance.has_dead_letters or instance.guarded or others:
        raise error
    instance.refused.add(refused.index)
    if instance.arms is not None:
        instance.arms.failed(instance.identity)
    if instance.operator.shadow is not None:  # its rows are of no concern to anyone
        instance.failed += 1
        return
    instance.write_letter(dead_letter(instance, refused, str(error), error.details))


def dead_letter(instance: Instance, refused: FailedRow, error: str, details: str) -> pa.RecordBatch:
    """A dead letter of an operator."""
    row = None if refused.came is None else base64.b64encode(_packed(refused.came)).decode()
    letter = {
        "operator": instance.worker.operator, "worker": instance.worker.index, "error": error, "traceback": details,
        "tuple": row_as_json(dict(refused.shown)), "version": instance.identity, "tries": instance.failing.tries + 1,
        "letter": instance.failing.next_letter(instance.worker), "row": row,
    }  # fmt: skip
    return pa.RecordBatch.from_pylist([letter], schema=LETTER)


def requeued_letters(worker: WorkerId, requeue: str, rows: Iterable[RequeuedRow]) -> pa.RecordBatch:
    """What the sink of dead letters gets for letters whose rows come back."""
    told = [
        {
            "operator": worker.operator, "worker": worker.index, "tries": row.tries, "letter": row.letter,
            "requeued": requeue,
        }
        for row in rows
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(told, schema=LETTER)


@dataclass(frozen=True)
class ReturnedRows:
    """Rows of dead letters that wait for the operator that failed on them.

    Attributes:
        rows: the rows, without hidden columns but their cohorts, if they have some.
        letters: the id of the letter of each.
        tries: how often the operator has failed on each of them.
    """

    rows: pa.RecordBatch
    letters: tuple[str, ...]
    tries: int

    def behind(self, count: int) -> ReturnedRows:
        """Those behind the first ones."""
        return ReturnedRows(self.rows.slice(count), self.letters[count:], self.tries)

    def with_hidden(self, due_ns: int, identities: bool) -> pa.RecordBatch:
        """The rows as a batch that an executor takes, due now; with identities as transactions of their own."""
        rows = self.rows if identities else _of_user(self.rows)
        batch = rows.append_column(DUE, pa.array([due_ns] * rows.num_rows, pa.int64()))
        return batch.append_column(TRANSACTION, pa.array(self.transactions, pa.int64())) if identities else batch

    @property
    def transactions(self) -> list[int]:
        """The identities of the rows: negative numbers, since those of sources are not, which a restart repeats."""
        return [_identity(letter) for letter in self.letters]


def requeued_row(letter: Mapping[str, Any], binning: Binning | None) -> RequeuedRow:
    """The row of a dead letter that is to go back to its operator.

    Args:
        letter: the letter, with the columns of ``LETTER``.
        binning: finds the bin of the operator's key; ``None`` if it has none.

    Raises:
        DataflowError: the letter has no row that could go back, or was damaged.
    """
    if letter["row"] is None:
        what = "it is of a line that is no row, of what time brought out, or has a value that no column holds"
        raise DataflowError(f"dead letter {letter['letter']} has no row that could go back: {what}")
    try:
        packed = base64.b64decode(letter["row"], validate=True)
        row = _unpacked(packed)
        bin_ = zlib.crc32(letter["letter"].encode()) % BINS if binning is None else int(binning.of(row)[0])
    except (ValueError, KeyError, pa.ArrowException) as error:
        raise DataflowError(f"dead letter {letter['letter']} was damaged: {exception_text(error)}") from error
    return RequeuedRow(letter["letter"], bin_, letter["tries"], packed)


def unpacked_row(letter: Mapping[str, Any]) -> pa.RecordBatch:
    """The row of a dead letter that has one, as a batch of one row; raises as ``requeued_row`` does."""
    return _of_user(_unpacked(requeued_row(letter, None).row))


def returned_rows(rows: Iterable[RequeuedRow]) -> list[ReturnedRows]:
    """The rows, in order, those together that have the same columns and tries and follow each other."""
    unpacked = [(row, _unpacked(row.row)) for row in rows]
    alike = itertools.groupby(unpacked, key=lambda one: (one[1].schema, one[0].tries))
    return [_together(list(some), tries) for (_, tries), some in alike]


def return_rows(instance: Instance, requeue: str, rows: Sequence[RequeuedRow]) -> None:
    """Let an operator process rows of its dead letters next; their letters are requeued."""
    returned = returned_rows(rows)
    instance.failing.returned += returned
    if instance.audit:
        instance.log.requeued([identity for some in returned for identity in some.transactions])
    instance.write_letter(requeued_letters(instance.worker, requeue, rows))


def _together(some: Sequence[tuple[RequeuedRow, pa.RecordBatch]], tries: int) -> ReturnedRows:
    table = pa.Table.from_batches([batch for _, batch in some]).combine_chunks()
    return ReturnedRows(table.to_batches()[0], tuple(row.letter for row, _ in some), tries)


def _identity(letter: str) -> int:
    return -1 - (1 << 62) - int.from_bytes(blake2b(letter.encode(), digest_size=8).digest()) // 4


def _of_user(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns([name for name in HIDDEN if name in batch.schema.names])


def _packed(row: pa.RecordBatch) -> bytes:
    dropped = [name for name in HIDDEN if name != COHORT and name in row.schema.names]
    stream, alone = pa.BufferOutputStream(), row.drop_columns(dropped).take(pa.array([0]))
    with pa.ipc.new_stream(stream, alone.schema) as writer:
        writer.write_batch(alone)
    return bytes(stream.getvalue())


def _unpacked(row: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(row) as reader:
        return reader.read_next_batch()
