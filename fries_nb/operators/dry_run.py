"""What a new function is tried on, recent tuples and copies of states, and its dry run.

Recent input tuples are those that the current function has processed successfully, since a tuple that became a dead
letter may fail with any function. Only for a paused worker it is the tuple that failed, which the fix has to process.
The input of the first operator of a chain, and that of batched operators, are rows of the last batch, which is in
memory anyway, and if it has few, of light ones before it. Between row functions rows are not kept, so one row of each
slice is copied, or a few of a long one, which bounds the cost.

>>> came = Recent(pa.RecordBatch.from_pydict({"n": [1], "text": ["x"]})).row()
>>> recent_row(came | {"words": ["x"]}).row()
{'n': 1, 'text': 'x', 'words': ['x']}
>>> passed(4, refused={2})
[3, 1, 0]

Dry run of a new function, off the data path: the checks of a change that concern one function (DESIGN, section 6).

The new function is unpickled and opened, and the state transformation is applied to copies of some keys' states. The
interaction with other new functions and with downstream operators is tested later, when all are prepared (see
``rehearsal``); the answer includes recent tuples for that. The shells call ``prepare`` in another thread than the
worker's; it does not access the worker.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.dataflow.updates import Update, configured
>>> import cloudpickle
>>> order = DryRun("u1", WorkerId("FD", 0), cloudpickle.dumps(Update(lambda row: row | {"p": 0.5})),
...                     Operator("FD"), lambda row: row, (), ())
>>> prepared = prepare(order)
>>> prepared.answer.error, prepared.ready.function({"n": 1})
('', {'n': 1, 'p': 0.5})
"""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import cloudpickle
import pyarrow as pa

from fries_nb.dataflow.columns import HIDDEN, TIME
from fries_nb.dataflow.graph import Emits, Operator
from fries_nb.dataflow.operators import Shape, emits_of, is_awaited, shape_of, takes_time
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update, configured
from fries_nb.dataflow.windowing import WindowFunction, check_merging, following
from fries_nb.errors import FriesError, ReconfigurationError, exception_text
from fries_nb.operators.awaited_calls import CallLoop
from fries_nb.operators.column_types import as_value
from fries_nb.operators.instance import Instance, Ready, user_traceback
from fries_nb.operators.pickled_states import Recipe, gathered, renewed
from fries_nb.operators.rows import Columns, Reads, Row, WholeRow, derived
from fries_nb.operators.state import StateCopy, transformed
from fries_nb.operators.timed_calls import is_firing, shown_firing
from fries_nb.operators.window_steps import EachWindow
from fries_nb.progress.progress_graph import ChangeBatch
from fries_nb.progress.tokens import TokenBook
from fries_nb.protocol.messages import Prepare, Prepared, WorkerId

SAMPLES = 8
"""Maximum number of recent tuples that a worker provides for a trial, unless more examples are asked for."""

LIGHT = 1 << 16
"""Size in bytes above which of a batch, no rows before it are kept: each refers to the whole of its batch."""
_COPIED = 1024
"""One row of so many is copied between the functions of a chain, and at least one of each slice."""


class PassedRows(NamedTuple):
    """A batch and the numbers of those of its rows that the operator processed last."""

    batch: pa.RecordBatch
    rows: Sequence[int]
    sender: str = ""  # the operator that it came from, if that matters

Noted = dict[Instance, deque[Row]]
"""Operator to its last copied input rows, for all operators but the first of a chain."""


@dataclass(frozen=True, slots=True)
class Recent:
    """A copy of an input tuple, which functions may change."""

    batch: pa.RecordBatch  # one row, with the user's columns as they entered the chain
    # the values that earlier operators of the chain have written to it
    written: dict[str, Any] = field(default_factory=dict)
    whole: bool = False  # whether ``written`` is the whole row
    facing: bool = False  # whether the operator is paused on this tuple
    worker: int = 0  # index of the worker that has taken it
    place: int = 0  # its place among the tuples of its operator in a rehearsal
    sender: str = ""  # the operator that it came from, if that matters
    # the row, or the batch and the place in it, that it is a copy of
    origin: tuple[Any, int] = field(default=(None, 0), compare=False, repr=False)
    # its hidden columns: its time, its identity and cohort, and when its source's row was due
    hidden: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def compact(self) -> Recent:
        """The same tuple, without the rest of the batch that it was cut from."""
        return replace(self, batch=self.batch.take(pa.array([0])), origin=(None, 0), hidden={})

    def row(self) -> Row:
        """The tuple as a row function gets it."""
        came = next(Columns(self.batch, Reads()).rows())
        return derived(self.written, came) if self.whole else came | self.written


    def with_hidden(self) -> dict[str, Any]:
        """The tuple with its hidden columns, to be looked at."""
        return {**self.row(), **self.hidden}


def one_row(batch: pa.RecordBatch, index: int) -> pa.RecordBatch:
    """A row of a batch, without hidden columns, except for its time, by which timed operators work."""
    dropped = [name for name in HIDDEN if name != TIME and name in batch.schema.names]
    return batch.slice(index, 1).drop_columns(dropped)


def shown_tuple(batch: pa.RecordBatch) -> dict[str, Any]:
    """The tuple of a batch of one row, for a message: the user's columns, or key and time of a firing."""
    row = next(Columns(batch, Reads()).rows())
    return shown_firing(row) if is_firing(batch) else dict(row)


def passed(end: int, refused: Collection[int], count: int = SAMPLES) -> list[int]:
    """The indices of the last rows before ``end``, in descending order."""
    if not refused:
        return list(range(end - 1, max(end - count, 0) - 1, -1))
    found: list[int] = []
    index = end - 1
    while index >= 0 and len(found) < count:
        if index not in refused:
            found.append(index)
        index -= 1
    return found


def recent_rows(parts: Iterable[PassedRows], count: int) -> list[Recent]:
    """A tuple for each of the rows, but no more than so many."""
    rows = ((batch, index, sender) for batch, indices, sender in parts for index in indices)
    return [
        Recent(one_row(batch, index), origin=(batch, index), hidden=_hidden(batch, index), sender=sender)
        for batch, index, sender in islice(rows, count)
    ]


def _hidden(batch: pa.RecordBatch, index: int) -> dict[str, Any]:
    return {name: batch.column(name)[index].as_py() for name in HIDDEN if name in batch.schema.names}


def newest_rows(parts: Iterable[PassedRows], count: int) -> list[pa.RecordBatch]:
    """Copies of the rows, of which the newest come first, but no more than so many; with hidden columns."""
    found = list[pa.RecordBatch]()
    for batch, indices, _ in parts:
        if count <= 0:
            break
        if taken := list(indices[:count]):
            found.append(batch.take(pa.array(taken)))
            count -= len(taken)
    return found


def recorded(quota: int) -> int:
    """The number of rows that are copied between the functions of a chain in a slice of so many.

    >>> recorded(64), recorded(4096), recorded(16_384)
    (1, 4, 8)
    """
    return max(1, min(SAMPLES, quota // _COPIED))


def recent_row(row: Row) -> Recent | None:
    """A copy of a row; ``None`` if a value in it cannot be copied."""
    written = {name: value for name, value in dict.items(row) if isinstance(name, str)}
    try:
        batch, index = row.columns.batch, row.index
        came, hidden = one_row(batch, index), _hidden(batch, index)
        return Recent(came, copy.deepcopy(written), isinstance(row, WholeRow), origin=(row, 0), hidden=hidden)
    except Exception:  # noqa: BLE001 (an object of the user's; without a copy there is no rehearsal)
        return None


def noting(noted: Noted) -> Callable[[int, Instance, Callable[[Row], None]], Callable[[Row], None]]:
    """Extends steps, except those of a first operator, to copy each row to ``noted`` before it is processed."""

    def around(position: int, instance: Instance, step: Callable[[Row], None]) -> Callable[[Row], None]:
        def keep(row: Row) -> None:
            came = as_value(row.copy(), instance.worker.operator)
            step(row)
            if row.index not in instance.refused:
                noted.setdefault(instance, deque(maxlen=SAMPLES)).append(came)

        return keep if position else step

    return around


SAMPLE_KEYS = 3
"""Number of keys on whose state the transformation is tried."""
LARGEST_FIRST = 4 << 20
"""Maximum size in bytes of the first recent tuple."""
LARGEST_TUPLE = 64 << 10
"""Maximum size in bytes of further recent tuples."""
LARGEST_TOGETHER = 256 << 10
"""Maximum size in bytes of all recent tuples of a worker, if they are more than ``SAMPLES``."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """An instruction to the shell: call :func:`prepare` with this outside the worker's thread, and deliver the result.

    ``payload`` is a cloudpickled ``Update``; ``states`` are copies of some keys' states; ``recent`` are recent input
    tuples, if requested; ``guard`` is the id of the rollback to keep ready, or empty; ``calls`` is where calls run.
    """

    change: str
    worker: WorkerId
    payload: bytes
    operator: Operator
    present: Any
    states: tuple[StateCopy, ...]
    recent: tuple[Recent, ...]
    guard: str = ""
    calls: CallLoop | None = None


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The result of :func:`prepare`: a configuration to switch to, or an answer with the error."""

    answer: Prepared
    ready: Ready | None


@dataclass(frozen=True, slots=True)
class Offer:
    """The input of a dry run of one operator at one worker, copied between two tuples."""

    worker: WorkerId
    operator: Operator
    present: Any
    states: tuple[StateCopy, ...]
    recent: tuple[Recent, ...]
    calls: CallLoop | None = None


def offer_of(instance: Instance, recent: tuple[Recent, ...], before: str = "") -> Offer:
    """Copy the input of a dry run."""
    states = instance.copies(SAMPLE_KEYS, before)
    return Offer(instance.worker, instance.operator, instance.function, states, recent, instance.calls)


def dry_run(order: Prepare, offer: Offer) -> DryRun:
    """The instruction for the shell."""
    recent = offer.recent if order.rehearse else ()
    return DryRun(
        order.change, offer.worker, order.payload, offer.operator, offer.present, offer.states, recent, order.guard,
        offer.calls,
    )  # fmt: skip


def prepare(order: DryRun) -> DryRunResult:
    """Unpickle and open the function, and try the transformation. Never raises: an error is part of the answer."""
    name = order.worker.operator
    if not order.payload:
        return DryRunResult(Prepared(order.change, order.worker, samples=_packed(order)), None)
    stage = "cannot be unpickled here"
    try:
        with gathered() as definitions:
            update = loaded_update(order.payload, order.operator)
        stage = "does not fit"
        _refuse_other_family(order.operator, order.present, update.function)
        stage = "failed in open()"
        open_function(update.function, order.calls)
        stage = f"failed in the {_TRANSFORMATIONS[0]}"
        there_and_back = [one for one in (update.state, update.back) if one is not None]
        with TokenBook(order.operator.name, ChangeBatch(), trial=True).bound():
            states = [copy.revive() for copy in order.states]
            for what, transform in zip(_TRANSFORMATIONS, there_and_back, strict=False):
                stage = f"failed in the {what}"
                states = [transformed(state, (transform,)) for state in states]
    except BaseException as error:  # noqa: BLE001 (users' code may raise anything, also SystemExit: it is the answer)
        return refused(order.change, order.worker, f"new {name} {stage}", error)
    answer = Prepared(order.change, order.worker, samples=_packed(order))
    recreate = Recipe(partial(new_function, order.payload, order.operator), definitions)
    ready = Ready(update.function, update.state, recreate, order.states, update.back, order.guard)
    return DryRunResult(answer, ready)


_TRANSFORMATIONS = ("state transformation", "transformation back")


def refused(change: str, worker: WorkerId, what: str, error: BaseException) -> DryRunResult:
    """The answer of a worker that cannot prepare a change, with the user's traceback."""
    reason = str(error) if isinstance(error, FriesError) else exception_text(error)
    return DryRunResult(Prepared(change, worker, f"{what}: {reason}", user_traceback(error)), None)


def loaded_update(payload: bytes, operator: Operator) -> Update:
    """A change's update as the operator applies it; its function is a new instance, not opened."""
    # A window's function has its windows, and transformations apply to each open window. State of classes that the
    # update defines anew is transformed to them first.
    with gathered() as definitions:
        update: Update = pickle.loads(payload)
    if isinstance(operator.function, WindowFunction):
        state, back = (None if one is None else EachWindow(one) for one in (update.state, update.back))
        update = replace(update, state=state, back=back)
    update = replace(update, function=configured(operator, update))
    return replace(update, state=renewed(definitions, update.state))


def new_function(payload: bytes, operator: Operator) -> Any:
    """A new instance of a change's function; not opened."""
    return loaded_update(payload, operator).function


def open_function(function: Any, calls: CallLoop | None = None) -> None:
    """Call the function's ``open()``, if it has one; models are loaded there, off the data path.

    One that is a coroutine runs where the function's calls do, so that what it connects to is of their event loop.
    """
    if has_open(function):
        if calls is not None and inspect.iscoroutinefunction(function.open):
            calls.wait(function.open, None)
        else:
            function.open()


def has_open(function: Any) -> bool:
    """Whether the function has an ``open()``."""
    return callable(getattr(function, "open", None))


def _packed(order: DryRun) -> tuple[bytes, ...]:
    """Recent tuples as bytes, without those that cannot be pickled, or are large (except the first)."""
    packed: list[bytes] = []
    for one in order.recent:
        try:
            tuple_ = _dumped(replace(one.compact(), worker=order.worker.index))
        except Exception:  # noqa: BLE001, S112 (a user's object that cannot be pickled: other tuples are rehearsed)
            continue
        if len(packed) >= SAMPLES and len(tuple_) + sum(map(len, packed)) > LARGEST_TOGETHER:
            break
        if len(tuple_) <= (LARGEST_TUPLE if packed else LARGEST_FIRST):
            packed.append(tuple_)
    return tuple(packed)


def _dumped(recent: Recent) -> bytes:
    """A tuple as bytes; a user's classes, which only cloudpickle pickles by value, may be in what was written to it."""
    own_types = any(isinstance(one, pa.BaseExtensionType) for one in recent.batch.schema.types)
    packed: bytes = cloudpickle.dumps(recent) if recent.written or own_types else pickle.dumps(recent)
    return packed


_TIMED = {True: "is timed", False: "is not timed"}
_AWAITED = {True: "is a coroutine", False: "is a plain one"}
_CALLED = {Shape.ROW: "works row by row", Shape.KEYED: "works row by row", Shape.BATCH: "is batched"}


def _refuse_other_family(operator: Operator, present: Any, new: Any) -> None:
    if operator.traits.holds is Holds.TABLE:
        if not isinstance(new, JoinTable):
            raise ReconfigurationError(f"got {type(new).__name__}; a join is changed to another table")
        return
    check_merging(operator.name, following(present, new))
    if not callable(new) and not hasattr(new, "process"):
        raise ReconfigurationError(f"got {type(new).__name__}; expected a function, or an object with process()")
    if takes_time(present) is not takes_time(new):
        now_timed, was_timed = _TIMED[takes_time(new)], _TIMED[takes_time(present)]
        raise ReconfigurationError(f"the new function {now_timed}, the running one {was_timed}; a change keeps it so")
    if is_awaited(present) is not is_awaited(new):
        now_awaited, was_awaited = _AWAITED[is_awaited(new)], _AWAITED[is_awaited(present)]
        what = f"the new function {now_awaited}, the running one {was_awaited}; a change keeps it so"
        raise ReconfigurationError(what)
    was, now = shape_of(present), shape_of(new)
    if (was is Shape.BATCH) is not (now is Shape.BATCH):
        raise ReconfigurationError(
            f"the new function {_CALLED[now]}, the running one {_CALLED[was]}; a change keeps rows or batches"
        )
    if operator.emits is Emits.ONE_TO_ONE and emits_of(operator.kind, new) is Emits.ONE_TO_MANY:
        raise ReconfigurationError(f"it is {Emits.ONE_TO_MANY}, the operator was planned as {operator.emits}")


def types_of(schema: pa.Schema) -> dict[str, str]:
    """The user's columns and their Arrow type names."""
    return {field.name: str(field.type) for field in schema if field.name not in HIDDEN}
