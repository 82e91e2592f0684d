"""Batched functions: their calls, and the executor of chains of them.

The hidden columns are carried past the function, and its result is a value from then on (see ``column_types``). If a
function fails on a slice, and its operator writes dead letters, it is called for each row of the slice separately: the
results of successful calls are emitted, and the other rows become dead letters.

Adaptive batch size: the number of tuples that a worker processes in about two milliseconds.

Between slices a worker checks its events and its output buffers, so a slice must be short. The fixed cost of a slice,
of cutting and assembling columns or of calling a vectorised function, does not shrink with the number of tuples. A
linear regression over slices of several sizes separates it from the cost of a tuple, and the tuples are given at least
as much time as it takes, so that little more than half of the time is overhead, however wide the rows are. A slice
that is much slower than expected is ignored, since other threads may have used the processor; three in a row indicate
another function or other input. One that is much faster is believed at once: nothing makes a slice faster by chance.

>>> slices = AdaptiveBatchSize()
>>> slices.learn(100_000, 64), slices.quota       # fast: twice as many next time
(None, 128)
>>> for _ in range(3): slices.learn(9_000_000, 128)
>>> slices.quota                                  # slow, and not by chance: half as many
64
>>> slices.learn(8_900_000, 64), slices.quota     # that was no faster: the slice costs, not its tuples
(None, 128)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN
from fries_nb.errors import DeclarationError, OperatorError
from fries_nb.operators.audit_log import log_batch
from fries_nb.operators.conversion import NOT_ARROW
from fries_nb.operators.dead_letters import FailedRow, set_aside
from fries_nb.operators.dry_run import LIGHT, SAMPLES, PassedRows, Recent, newest_rows, one_row, passed, recent_rows
from fries_nb.operators.error_policy import is_retried, is_watched, rewound
from fries_nb.operators.instance import FAILURES, Instance, failure
from fries_nb.operators.kinds import CALLS, mapped
from fries_nb.operators.row_versions import runs_of, side_by_side
from fries_nb.operators.steps import Results

SLICE_NS = 2_000_000
"""Target duration of a slice's tuples in nanoseconds."""
MOST_PER_SLICE = 16_384
_KEPT = 0.8
"""Weight of earlier slices, reduced at each slice."""
BELIEVED = 3
"""Number of slices in a row that are much slower than expected, from which on they tell what is to be expected."""
_SPREAD = 0.01
"""Minimum variance of sizes, relative to the square of their mean, at which the costs can be separated."""


class AdaptiveBatchSize:
    """The size of the next slice, in tuples."""

    __slots__ = ("_fixed", "_slow", "_sums", "_tuple", "quota")

    def __init__(self) -> None:
        self.quota = 64
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._fixed = self._tuple = 0.0
        self._slow: list[tuple[int, int]] = []  # durations and sizes of the last slices, if they were much slower

    def learn(self, took_ns: int, taken: int) -> None:
        """Update the size of the next slice from the duration of this one."""
        if not taken or self._is_by_chance(took_ns, taken):
            return
        if not self._fit(took_ns, taken):  # another size will tell
            shorter, longer = took_ns > 2 * SLICE_NS, took_ns <= 2 * SLICE_NS
        else:
            aim, spent = max(SLICE_NS, self._fixed), self._tuple * taken
            shorter, longer = spent > 2 * aim, spent < aim / 2
        if shorter:
            self.quota = max(self.quota // 2, 1)
        elif longer and taken == self.quota:
            self.quota = min(self.quota * 2, MOST_PER_SLICE)

    def _is_by_chance(self, took_ns: int, taken: int) -> bool:
        """Whether a slice is to be ignored; forgets all slices before it if it shows that these say nothing."""
        expected = self._fixed + self._tuple * taken
        if not self._sums[0]:
            return False
        if took_ns > expected * 4 + SLICE_NS:
            self._slow.append((took_ns, taken))
            if len(self._slow) < BELIEVED:
                return True
            self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
            for slow in self._slow[:-1]:
                self._add(*slow)
        elif took_ns < expected / 4:
            self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._slow.clear()
        return False

    def _fit(self, took_ns: int, taken: int) -> bool:
        """Fit the costs of a slice and of a tuple; returns whether the sizes vary enough to separate them."""
        self._add(took_ns, taken)
        weight, x, y, xx, xy = self._sums
        mean = x / weight
        variance = xx / weight - mean * mean
        told_apart = variance >= _SPREAD * mean * mean
        if told_apart:
            self._tuple = min(max((xy / weight - mean * y / weight) / variance, 0.0), y / x)
            self._fixed = y / weight - self._tuple * mean
        else:
            self._tuple, self._fixed = y / x, 0.0
        return told_apart

    def _add(self, took_ns: int, taken: int) -> None:
        weight, x, y, xx, xy = (_KEPT * kept for kept in self._sums)
        self._sums = (weight + 1, x + taken, y + took_ns, xx + taken * taken, xy + taken * took_ns)


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
                set_aside(instance, FailedRow.of_batch(row, number), error)
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


def _counted(instance: Instance, version: int, call: Call, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The result of a version for these rows in a canary, counted and timed."""
    assert instance.arms is not None, "it is a canary"
    arm, began_ns = instance.arms.each(len(instance.earlier))[version], instance.clock()
    out = call(rows)
    arm.taken += rows.num_rows
    arm.timed_ns.append((instance.clock() - began_ns) // rows.num_rows)
    return out


class BatchExecutor:
    """Runs a chain of batched functions, slice by slice."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        self._instances = instances
        self._pauses = instances[0].operator.on_error == "pause"
        self._calls: list[list[tuple[Call, list[int]]]] = []  # of each operator, for each of its versions
        self._batch: pa.RecordBatch | None = None
        self._position = 0
        self._passed: dict[int, deque[PassedRows]] = {}
        self._results: Results = []
        self.rebuild()

    def rebuild(self) -> None:
        for instance in self._instances:
            instance.written.forget()
        self._passed = {position: kept for position, kept in self._passed.items() if not position}  # as they came
        self._calls = [
            [(call_of_batch(one), one.log.runs_by(one.identity)) for one in side_by_side(instance)]
            for instance in self._instances
        ]

    reads: Sequence[str] = ()

    def samples(self, position: int, count: int = SAMPLES) -> Sequence[Recent]:
        return recent_rows(self._passed.get(position, ()), count)

    def newest(self, position: int, count: int) -> list[pa.RecordBatch]:
        return newest_rows(self._passed.get(position, ()), count)

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
        for position, (instance, calls) in enumerate(zip(self._instances, self._calls, strict=True)):
            instance.refused.clear()
            out = self._called(instance, calls, batch)
            if rows := passed(batch.num_rows, instance.refused):
                kept = self._passed.setdefault(position, deque(maxlen=SAMPLES))
                if batch.get_total_buffer_size() > LIGHT:
                    kept.clear()
                kept.appendleft(PassedRows(batch, rows))
            instance.processed += batch.num_rows
            batch = out
            if not batch.num_rows:
                break
        else:
            self._results.append((0, batch))
        self._position += taken
        return taken

    def _called(
        self, instance: Instance, calls: Sequence[tuple[Call, list[int]]], batch: pa.RecordBatch
    ) -> pa.RecordBatch:
        """The result of an operator's function, or of several, each for the rows of its version."""
        made: list[pa.RecordBatch] = []
        taken, refused = 0, set[int]()
        for version, rows in runs_of(instance.earlier, batch):
            call, ran = calls[version]
            made.append(out := call(rows) if instance.arms is None else _counted(instance, version, call, rows))
            if instance.audit:
                log_batch(instance, ran, rows, out)
            refused |= {taken + place for place in instance.refused}
            instance.refused.clear()
            taken += rows.num_rows
        instance.refused |= refused
        return made[0] if len(made) == 1 else _joined(made)

    def results(self) -> Results:
        taken, self._results = self._results, []
        return taken
