"""Executors process frames with a chain of operators: row by row, slice by slice, or passing them on unchanged.

All have one interface: ``load`` a frame, ``advance`` by at most a quota of tuples, take the ``results``. An executor
returns early when the interrupt flag is raised: between two tuples, or between two slices of vectorised operators. No
tuple is then inside the chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from fries_nb.dataflow.columns import TRANSACTION
from fries_nb.dataflow.operators import Shape, shape_of
from fries_nb.dataflow.traits import Emits, Execution
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.batches import BatchExecutor
from fries_nb.operators.column_types import SettledColumns, culprit
from fries_nb.operators.conversion import NOT_ARROW
from fries_nb.operators.dry_run import (
    LIGHT,
    SAMPLES,
    Noted,
    PassedRows,
    Recent,
    newest_rows,
    noting,
    one_row,
    passed,
    recent_row,
    recent_rows,
    recorded,
)
from fries_nb.operators.error_policy import is_guarded
from fries_nb.operators.inner_loop import LEAST, InnerLoop, can_loop
from fries_nb.operators.instance import Instance
from fries_nb.operators.kinds import compile_chain, has_due, joined_columns, joined_types
from fries_nb.operators.rows import Columns, Reads, Row
from fries_nb.operators.steps import ManyOutputs, Output, Results, Step, Types, assemble, check_names, weakly
from fries_nb.operators.timed_calls import FIRED, note_columns
from fries_nb.operators.timed_joins import note_side, side_types


class InterruptFlag:
    """Makes a worker return to its events after the tuple in hand; raised by any thread.

    Attributes:
        raised: whether it is raised; read before each tuple, but by inner loops.
        ahead: a list that the running inner loop takes an element of before each tuple, so that none is left when it
            is raised: to look at an attribute would take a loop a twentieth of its time.
    """

    __slots__ = ("ahead", "raised")

    def __init__(self) -> None:
        self.raised = False
        self.ahead: list[Any] = []

    def set(self) -> None:
        """Raise it."""
        self.raised = True  # first: a loop that begins looks at it when it has put its list here
        self.ahead.clear()

    def clear(self) -> None:
        """Take it back."""
        self.raised = False

    def watch(self, ahead: list[Any]) -> None:
        """Have this list emptied when the flag is raised, also if it was."""
        self.ahead = ahead
        if self.raised:
            ahead.clear()


class ChainExecutor(Protocol):
    """Processes one frame after another with one chain of operators."""

    def load(self, sender: str, batch: pa.RecordBatch) -> None:
        """Begin a frame from operator ``sender``; the previous frame must be finished."""

    def advance(self, quota: int) -> int:
        """Process at most ``quota`` tuples; returns how many were taken from the frame."""

    def results(self) -> Results:
        """Batches produced since the last call, as (branch, batch)."""

    def rebuild(self) -> None:
        """Compile the chain anew, after a function of it was replaced."""

    def samples(self, position: int, count: int = SAMPLES) -> Sequence[Recent]:
        """Recent input tuples of the operator at this position of the chain, but no more than so many.

        Empty if none are in memory. Inside a chain of row functions there are no more than ``SAMPLES``.
        """

    def newest(self, position: int, count: int) -> list[pa.RecordBatch]:
        """Copies of the last tuples that this operator has taken, the newest first, with hidden columns.

        Empty inside a chain of row functions, between which tuples are no batches; see ``samples``.
        """

    def facing(self) -> pa.RecordBatch | None:
        """The next tuple, as a batch of one row without hidden columns; ``None`` if there is none."""

    def keep_types(self, other: ChainExecutor) -> None:
        """Continue with the column types of another executor, whose last operator is the same."""

    @property
    def unread(self) -> pa.RecordBatch | None:
        """The tuples of the frame not yet taken; ``None`` if there are none."""

    @property
    def reads(self) -> Sequence[str]:
        """Input columns that the chain's row functions have read; empty for other executors."""

    @property
    def remaining(self) -> int:
        """Tuples of the frame not yet taken; may be asked by any thread."""


class RowExecutor:
    """Runs a chain of row functions, tuple by tuple and depth first."""

    def __init__(self, instances: Sequence[Instance], interrupt: InterruptFlag, branches: int, left: str) -> None:
        self._instances = instances
        self._interrupt = interrupt
        many = instances[0].agenda is not None or any(one.operator.emits is Emits.ONE_TO_MANY for one in instances)
        output, assembled, learn = ManyOutputs if many else Output, weakly(self._assembled), weakly(self._learn)
        self._outputs = [output(assembled, partial(learn, branch)) for branch in range(branches)]
        self._left = left
        self._sender = ""
        self._columns: Columns | None = None
        self._position = 0
        self._failed = False
        self._reads = Reads()
        self._first: Step
        self._first_recording: Step
        self._inner: InnerLoop | None = None
        self._due: tuple[Step, Step] | None = None
        self._noted: Noted = {}
        self._passed = deque[PassedRows](maxlen=SAMPLES)
        self._refused = [instance.refused for instance in instances if is_guarded(instance.operator)]
        self._joined: list[tuple[pa.Field, str]] = []
        self._settled = SettledColumns()
        self._names: list[str] = []
        self.rebuild()

    def rebuild(self) -> None:
        for instance in self._instances:
            instance.written.forget()
        self._noted.clear()
        self._forget_settled()
        self._forget_emitted()
        if self._columns is not None:
            self._columns.settle(self._settled.names)
        self._first = self._first_recording = compile_chain(self._instances, self._outputs, self._side)
        if len(self._instances) > 1:
            self._first_recording = compile_chain(self._instances, self._outputs, self._side, noting(self._noted))
        if self._instances[0].agenda is not None and has_due(self._instances[0]):
            chain = self._instances, self._outputs, self._side
            self._due = compile_chain(*chain, noting(self._noted), fired=True), compile_chain(*chain, fired=True)
        self._inner = None
        if can_loop(self._instances, self._outputs):
            known = self._settled.of_output
            self._inner = InnerLoop(self._instances, self._outputs, known, self._first, self._interrupt)
        self._reads.forget()
        self._joined = joined_columns(self._instances)

    @property
    def reads(self) -> Sequence[str]:
        return self._reads.names

    def keep_types(self, other: ChainExecutor) -> None:
        if isinstance(other, RowExecutor):
            for own, known in zip(self._outputs, other._outputs, strict=True):
                own.types = dict(known.types)

    def _side(self) -> str:
        return "left" if self._sender == self._left else "right"

    def load(self, sender: str, batch: pa.RecordBatch) -> None:
        if self._columns is not None:
            self._keep_last(self._columns)
        self._sender = sender
        if self._instances[0].agenda is not None:
            note_columns(self._instances[0], sender, batch.schema)
        if self._instances[0].operator.traits.pairs and sender != FIRED:
            self._note_side(batch.schema)
        for refused in self._refused:
            refused.clear()
        if self._columns is None or batch.schema != self._columns.batch.schema:
            self._forget_settled()
        before, self._columns = self._columns, Columns(batch, self._reads)
        if before is not None and not set(before.names) <= set(self._columns.names):
            self._forget_emitted()
        self._columns.settle(self._settled.names)
        if self._joined:
            self._learn_types(self._columns.names)
        self._position = 0
        self._failed = False

    def _note_side(self, schema: pa.Schema) -> None:
        """Note the columns of a side of a join of two streams, of which the other side's rows may have nulls."""
        note_side(self._instances[0], self._sender == self._left, schema)
        for name, kind in side_types(self._instances[0]).items():
            self._outputs[0].types.setdefault(name, kind)

    def _keep_last(self, last: Columns) -> None:
        """Keep the last rows of a batch for rehearsals, and those before it unless the batch is large."""
        rows = passed(self._position, self._instances[0].refused)
        if not rows or self._sender == FIRED:
            return
        if last.batch.get_total_buffer_size() > LIGHT:
            self._passed.clear()
            for instance, noted in self._noted.items():
                self._noted[instance] = deque([row for row in noted if row.columns is last], SAMPLES)
        self._passed.appendleft(PassedRows(last.batch, rows, self._sender))

    def _forget_settled(self) -> None:
        self._settled.forget()
        for output in self._outputs:
            output.is_known = False

    def _forget_emitted(self) -> None:
        """Forget the columns that rows have had, since other functions run, or rows have lost columns."""
        for output in self._outputs:
            output.emitted.clear()
        for instance in self._instances:
            instance.written.emitted.clear()

    def _learn_types(self, names: Sequence[str]) -> None:
        self._reads.joined = joined_types(self._joined, names)
        self._reads.forms.clear()
        for name, kind in self._reads.joined.items():
            for output in self._outputs:
                output.types.setdefault(name, kind)
        self._joined = []

    @property
    def remaining(self) -> int:
        columns = self._columns  # read once: also asked by another thread
        return 0 if columns is None else columns.batch.num_rows - self._position

    @property
    def unread(self) -> pa.RecordBatch | None:
        return None if self._columns is None or not self.remaining else self._columns.batch.slice(self._position)

    def advance(self, quota: int) -> int:
        if self._failed and self._columns is not None:
            self.load(self._sender, self._columns.batch.slice(self._position))  # no function has changed these columns
        if self._columns is None:
            return 0
        columns, inner, start = self._columns, self._inner, self._position
        end = min(start + quota, columns.batch.num_rows)
        common = self._steps(quota)
        if inner is None or end - start <= LEAST or columns.nested or not inner.is_due():
            return self._take_up_to(self._advance_by_rows(common, columns, start))
        position = self._advance_by_rows(common[:1], columns, start)
        if not self._interrupt.raised:
            position = self._advance_by_loop(inner, columns, position, end)
        if position < end and not self._interrupt.raised:
            position = self._advance_by_rows(((self._first, end - position),), columns, position)
        return self._take_up_to(position)

    def _steps(self, quota: int) -> tuple[tuple[Step, int], ...]:
        """The steps for the next rows, each with the number of rows that it is for."""
        if self._sender != FIRED:
            few = recorded(quota)
            return (self._first_recording, few), (self._first, quota - few)
        if self._due is None:
            name = self._instances[0].worker.operator
            what = f"{name} has entries that are due, and its function has no due(key, time, state)"
            raise DeclarationError(what, name)
        return (self._due[0], 1), (self._due[1], quota - 1)

    def _advance_by_rows(self, steps: Sequence[tuple[Step, int]], columns: Columns, start: int) -> int:
        """Process rows by the common path, so many with each step; returns the position after the last one."""
        interrupt, rows = self._interrupt, columns.rows(start)
        row: Row | None = None
        try:
            with self._instances[0].bound():
                for step, count in steps:
                    for row in islice(rows, count):
                        step(row)
                        if interrupt.raised:
                            break
                    if interrupt.raised:
                        break
        except OperatorError:
            if row is not None:
                self._take_up_to(row.index)
            self._failed = True
            raise
        return start if row is None else row.index + 1

    def _advance_by_loop(self, inner: InnerLoop, columns: Columns, start: int, end: int) -> int:
        """Process rows by the inner loop, as far as it can; returns the position after the last one."""
        try:
            return inner.run(columns, start, end)
        except OperatorError:
            self._take_up_to(inner.reached)
            self._failed = True
            raise

    def _take_up_to(self, position: int) -> int:
        taken = position - self._position
        self._position = position
        if self._sender != FIRED:
            self._instances[0].processed += taken
        return taken

    def results(self) -> Results:
        for output in self._outputs:
            output.pack()
        return [(branch, batch) for branch, output in enumerate(self._outputs) for batch in output.take()]

    def _assembled(self, output: Output, types: Types) -> pa.RecordBatch:
        """Make a batch of rows."""
        columns = output[0].columns if output else output.captured[0][1].columns
        try:
            batch = assemble(output, columns, types, output.captured, output.emitted)
            self._check_names(columns, batch.schema.names)
            return batch
        except NOT_ARROW as error:
            raise self._culprit(output.rows(), error) from error

    def _learn(self, branch: int, types: Types) -> None:
        """Record which columns have settled, by the types of an emitted batch (see ``column_types``)."""
        if self._columns is not None:
            names = " or ".join(instance.operator.name for instance in self._instances)
            self._settled.learn(branch, self._columns.written, types, names)
            self._outputs[branch].is_known = True
            self._columns.settle(self._settled.names)

    def _check_names(self, columns: Columns, names: list[str]) -> None:
        if names != self._names:
            check_names(tuple([name for name in names if name not in columns.hidden]), columns.names)
            self._names = names

    def _culprit(self, rows: Sequence[Row], error: Exception) -> DeclarationError:
        """The error for rows that cannot become columns; names the value and the operator."""
        # Operators with an error policy have checked their rows, so the cause is one of the others.
        others = [instance.operator.name for instance in self._instances if not is_guarded(instance.operator)]
        return culprit(others or [self._instances[-1].operator.name], rows, error)

    def samples(self, position: int, count: int = SAMPLES) -> Sequence[Recent]:
        if position:
            noted = reversed(self._noted.get(self._instances[position], ()))
            return [recent for recent in map(recent_row, noted) if recent is not None]
        rows = passed(self._position, self._instances[0].refused, count)
        if self._columns is None or self._sender == FIRED:
            return recent_rows(self._passed, count)
        return recent_rows([PassedRows(self._columns.batch, rows, self._sender), *self._passed], count)

    def newest(self, position: int, count: int) -> list[pa.RecordBatch]:
        if position:
            return []
        if self._columns is None or self._sender == FIRED:
            return newest_rows(self._passed, count)
        rows = passed(self._position, self._instances[0].refused, count)
        return newest_rows([PassedRows(self._columns.batch, rows, self._sender), *self._passed], count)

    def facing(self) -> pa.RecordBatch | None:
        return None if self._columns is None or not self.remaining else one_row(self._columns.batch, self._position)


class PassExecutor:
    """Passes batches on: sources, unions, replicates, heads of loops, sinks. A slice is the whole frame."""

    def __init__(self, instance: Instance, returned: frozenset[str] = frozenset()) -> None:
        self._instance = instance
        self._returned = returned  # the operators whose batches leave by the second output
        self._branch = 0
        self._batch: pa.RecordBatch | None = None
        self._last: pa.RecordBatch | None = None
        self._results: Results = []

    def rebuild(self) -> None:
        """Nothing to do: no function is called."""

    reads: Sequence[str] = ()

    def samples(self, position: int, count: int = SAMPLES) -> Sequence[Recent]:
        if self._last is None:
            return ()
        return recent_rows([PassedRows(self._last, passed(self._last.num_rows, (), count))], count)

    def newest(self, position: int, count: int) -> list[pa.RecordBatch]:
        last = self._last
        return [] if last is None else newest_rows([PassedRows(last, passed(last.num_rows, (), count))], count)

    def facing(self) -> pa.RecordBatch | None:
        return None

    def keep_types(self, other: ChainExecutor) -> None:
        """Nothing to do: no column is written."""

    def load(self, sender: str, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._branch = int(sender in self._returned)

    @property
    def unread(self) -> pa.RecordBatch | None:
        return self._batch

    @property
    def remaining(self) -> int:
        batch = self._batch  # read once: also asked by another thread
        return 0 if batch is None else batch.num_rows

    def advance(self, quota: int) -> int:
        if self._batch is None:
            return 0
        self._last = batch = self._batch
        self._batch = None
        self._instance.processed += batch.num_rows
        if self._instance.audit:
            self._log(batch.column(TRANSACTION).to_pylist())
        self._results.append((self._branch, batch))
        return int(batch.num_rows)

    def _log(self, transactions: list[int]) -> None:
        self._instance.log.runs_by(None).extend(transactions)
        for transaction in transactions if self._branch else ():
            self._instance.log.emitted(transaction, -1)
            self._instance.log.emitted(transaction, 1, self._branch)

    def results(self) -> Results:
        taken, self._results = self._results, []
        return taken


def executor_of(
    instances: Sequence[Instance],
    interrupt: InterruptFlag,
    branches: int,
    left: str,
    feedback: frozenset[str] = frozenset(),
) -> ChainExecutor:
    """The executor of a chain."""
    operator = instances[0].operator
    execution = operator.traits.execution
    if execution in (Execution.READ, Execution.PASS, Execution.WRITE):
        return PassExecutor(instances[0], feedback if branches > 1 else frozenset())
    if execution is Execution.SPARK:
        raise DeclarationError(f"{operator.name} ({operator.kind}) blocks; Spark SQL runs it between two regions")
    if operator.traits.runs_user_code and shape_of(instances[0].function) is Shape.BATCH:
        return BatchExecutor(instances)
    return RowExecutor(instances, interrupt, branches, left)
