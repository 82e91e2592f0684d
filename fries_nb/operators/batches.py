"""Batched functions: their calls, and the executor of chains of them.

The hidden columns are carried past the function, and its result is a value from then on (see ``values``). If a function
fails on a slice, and its operator writes dead letters, it is called for each row of the slice separately: the results
of successful calls are emitted, and the other rows become dead letters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from fries_nb.dataflow.hidden_columns import HIDDEN
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.audit_log import log_batch
from fries_nb.operators.batch_results import mapped
from fries_nb.operators.conversion import NOT_ARROW, to_python
from fries_nb.operators.error_policy import is_watched
from fries_nb.operators.failures import FAILURES, failure, set_aside
from fries_nb.operators.instance import Instance
from fries_nb.operators.kinds import CALLS
from fries_nb.operators.outputs import Results
from fries_nb.operators.recent import LIGHT, SAMPLES, Passed, Recent, one_row, passed, recent_rows
from fries_nb.operators.retry import is_retried, rewound

Call = Callable[[pa.RecordBatch], pa.RecordBatch]


def call_of_batch(instance: Instance) -> Call:
    """The current batched function, extended to carry hidden columns, and to write dead letters for rows that fail.

    Raises (the call):
        OperatorError: it failed, and the operator has no dead-letter sink.
    """
    whole, written = _whole(instance), instance.written
    if not is_watched(instance):
        return whole

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        out = whole(batch)
        written.check_batch(out, batch)
        return out

    def row_by_row(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return call(batch)
        except OperatorError:
            if not instance.has_dead_letters or instance.guarded:
                raise
        made = [batch.slice(0, 0)]
        for number, row in enumerate(one_by_one(batch)):
            try:
                made.append(call(row))
            except OperatorError as error:
                shown = row.drop_columns([name for name in HIDDEN if name in row.schema.names])
                tuple_ = {name: to_python(shown.column(name))[0] for name in shown.schema.names}
                set_aside(instance, tuple_, error, number)
        return _joined(made)

    return row_by_row


def one_by_one(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, each as a batch."""
    return (batch.slice(position, 1) for position in range(batch.num_rows))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Concatenates batches that have rows, or returns the first without; a column of nulls takes any type."""
    made = [batch for batch in batches if batch.num_rows] or [batches[0]]
    table = pa.concat_tables(map(pa.table, made), promote_options="permissive").combine_chunks()
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def _whole(instance: Instance) -> Call:
    """The function on the user's columns of a batch, with the hidden columns carried past it."""
    function, name = instance.function, instance.worker.operator
    fit = CALLS[instance.operator.kind].fit
    if fit is None:
        raise DeclarationError(f"{name} ({instance.operator.kind}) runs a function of a row; got one of a batch", name)

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.schema.names
        hidden = [column for column in HIDDEN if column in names]
        given = batch.drop_columns(hidden)
        try:
            out = function(given)
        except FAILURES as error:
            raise failure(instance, error) from error
        if out is given and fit is mapped:
            return batch
        try:
            made = fit(out, batch, hidden)
            instance.written.require(made)
            return made
        except NOT_ARROW as error:
            got = f"{out.num_rows} rows" if isinstance(out, pa.RecordBatch) else type(out).__name__
            raise DeclarationError(
                f"{name} returned {got} for a batch of {batch.num_rows} rows ({error}); a batched map returns a "
                "RecordBatch of as many rows, a filter a mask, a flat_map (RecordBatch, indices of parent rows)",
                name,
            ) from error

    return call


class BatchExecutor:
    """Runs a chain of batched functions, slice by slice."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = instances
        self._pauses = instances[0].operator.on_error == "pause"
        self._calls: list[Call] = []
        self._ran: list[list[int]] = []
        self._batch: pa.RecordBatch | None = None
        self._position = 0
        self._passed: dict[int, deque[Passed]] = {}
        self._results: Results = []
        self.rebuild()

    def rebuild(self) -> None:
        for instance in self._instances:
            instance.written.forget()
        self._calls = [call_of_batch(instance) for instance in self._instances]
        self._ran = [instance.log.runs_by(instance.identity) for instance in self._instances]

    reads: Sequence[str] = ()

    def samples(self, position: int) -> Sequence[Recent]:
        return recent_rows(self._passed.get(position, ()))

    def facing(self) -> pa.RecordBatch | None:
        return None if self._batch is None or not self.remaining else one_row(self._batch, self._position)

    def load(self, sender: str, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._position = 0

    def keep_types(self, other: object) -> None:
        """Nothing to do: a batched function writes columns with their types."""

    @property
    def unread(self) -> pa.RecordBatch | None:
        return None if self._batch is None or not self.remaining else self._batch.slice(self._position)

    @property
    def remaining(self) -> int:
        batch = self._batch  # read once: also asked by another thread
        return 0 if batch is None else batch.num_rows - self._position

    def advance(self, quota: int) -> int:
        if self._batch is None:
            return 0
        batch = self._batch.slice(self._position, quota)
        try:
            return self._pass(batch)
        except OperatorError:
            if not (self._pauses or is_retried(self._instances)) or batch.num_rows <= 1:
                raise
        return sum(self._pass(row) for row in one_by_one(batch))  # up to the row that fails

    def _pass(self, batch: pa.RecordBatch) -> int:
        """Process a slice with the whole chain; a slice that fails does not count as taken."""
        if not is_retried(self._instances):
            return self._through(batch)
        with rewound(self._instances):
            return self._through(batch)

    def _through(self, batch: pa.RecordBatch) -> int:
        taken: int = batch.num_rows
        for position, (instance, call, ran) in enumerate(zip(self._instances, self._calls, self._ran, strict=True)):
            instance.refused.clear()
            out = call(batch)
            if rows := passed(batch.num_rows, instance.refused):
                kept = self._passed.setdefault(position, deque(maxlen=SAMPLES))
                if batch.get_total_buffer_size() > LIGHT:
                    kept.clear()
                kept.appendleft((batch, rows))
            instance.processed += batch.num_rows
            if instance.audit:
                log_batch(instance, ran, batch, out)
            batch = out
            if not batch.num_rows:
                break
        else:
            self._results.append((0, batch))
        self._position += taken
        return taken

    def results(self) -> Results:
        taken, self._results = self._results, []
        return taken
