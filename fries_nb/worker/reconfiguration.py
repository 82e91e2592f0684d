"""Prepare: everything that can fail about a change, done off the data path (DESIGN, section 6).

The new function is unpickled and opened, the state transformation is tried on a copy of some keys, and where the
worker offered a recent tuple the new function is rehearsed on it, with a transformed copy of a state; what the
rehearsal writes tells whether the neighbours can still read it. The shells run ``prepare`` beside the worker; it
touches nothing of the worker's own.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.dataflow.updates import Update
>>> import cloudpickle
>>> order = Rehearse("u1", WorkerId("FD", 0), cloudpickle.dumps(Update(lambda row: row | {"p": 0.5})), Operator("FD"),
...                  lambda row: row, (), Recent(pa.RecordBatch.from_pydict({"amount": [3]})))
>>> prepared = prepare(order)
>>> prepared.answer.error, prepared.answer.writes
('', {'amount': 'int64', 'p': 'double'})
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.graph import Emits, Kind, Operator
from fries_nb.dataflow.operators import Shape, emits_of, shape_of
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update
from fries_nb.errors import FriesError, ReconfigurationError
from fries_nb.messages import HIDDEN, Prepare, Prepared, WorkerId
from fries_nb.planning.expansion import NO_CALL
from fries_nb.worker.instance import Instance, Ready
from fries_nb.worker.recent import Recent
from fries_nb.worker.rows import Row, assemble
from fries_nb.worker.state import StateCopy, transformed
from fries_nb.worker.steps import compile_chain, joined_columns, joined_types, user_traceback

SAMPLE_KEYS = 3
"""Number of keys whose state the transformation is tried on."""


@dataclass(frozen=True, slots=True)
class Rehearse:
    """An instruction to the shell: run :func:`prepare` on this, beside the worker, and hand back the result.

    ``payload`` is a cloudpickled ``Update``; ``states`` are copies of some keys' states; ``recent`` is a recent input
    tuple, or ``None`` where there is to be no rehearsal.
    """

    change: str
    worker: WorkerId
    payload: bytes
    operator: Operator
    present: Any
    states: tuple[StateCopy, ...]
    recent: Recent | None


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What :func:`prepare` found: something ready to be switched to, or an answer that says why not."""

    answer: Prepared
    ready: Ready | None


@dataclass(frozen=True, slots=True)
class Offer:
    """What the trial of a change needs to know of an operator at a worker, as it was between two tuples."""

    worker: WorkerId
    operator: Operator
    present: Any
    states: tuple[StateCopy, ...]
    recent: Recent | None


def offer_of(instance: Instance, recent: Recent | None, before: str = "") -> Offer:
    """The operator as it is now; ``before`` is a change that is ordered behind the one to be tried.

    Raises:
        Exception: whatever pickling raises, where a state cannot be copied for a trial.
    """
    return Offer(instance.worker, instance.operator, instance.function, instance.copies(SAMPLE_KEYS, before), recent)


def rehearsal(order: Prepare, offer: Offer) -> Rehearse:
    """What the shell has to run."""
    recent = offer.recent if order.rehearse else None
    return Rehearse(order.change, offer.worker, order.payload, offer.operator, offer.present, offer.states, recent)


def prepare(order: Rehearse) -> Rehearsed:
    """Unpickle, open, try the transformation, rehearse. Never raises: a failure is the answer's ``error``."""
    name = order.worker.operator
    stage = "cannot be unpickled here"
    try:
        update: Update = pickle.loads(order.payload)
        stage = "does not fit"
        _refuse_other_family(order.operator, order.present, update.function)
        stage = "failed in open()"
        open_function(update.function)
        stage = "failed in the state transformation"
        transforms = (update.state,) if update.state else ()
        states = [transformed(copy.revive(), transforms) for copy in order.states]
        stage = "failed in a rehearsal on a recent tuple"
        writes = _rehearse(order, _trial_copy(order), states)
    except BaseException as error:  # noqa: BLE001 (a user's code may raise anything, sys.exit() too: it is the answer)
        return refused(order.change, order.worker, f"new {name} {stage}", error)
    return Rehearsed(Prepared(order.change, order.worker, writes=writes), Ready(update.function, update.state))


def refused(change: str, worker: WorkerId, what: str, error: BaseException) -> Rehearsed:
    """The answer of a worker that cannot get ready, with the user's traceback."""
    reason = str(error) if isinstance(error, FriesError) else f"{type(error).__name__}: {error}"
    return Rehearsed(Prepared(change, worker, f"{what}: {reason}", user_traceback(error)), None)


def open_function(function: Any) -> None:
    """Call the function's ``open()`` if it has one: models are loaded there, never on the data path."""
    opener = getattr(function, "open", None)
    if callable(opener):
        opener()


def _trial_copy(order: Rehearse) -> Any:
    """A function of its own for the rehearsal: what one row leaves in an object's attributes must not stay there."""
    if order.recent is None:
        return None
    function = pickle.loads(order.payload).function
    open_function(function)
    return function


def _refuse_other_family(operator: Operator, present: Any, new: Any) -> None:
    if operator.kind is Kind.UNNEST:
        if not isinstance(new, str):
            raise ReconfigurationError(f"got {type(new).__name__}; an unnest is changed to another column's name")
        return
    if operator.kind is Kind.JOIN:
        if not isinstance(new, JoinTable):
            raise ReconfigurationError(f"got {type(new).__name__}; a join is changed to another table")
        return
    if not callable(new) and not hasattr(new, "process"):
        raise ReconfigurationError(f"got {type(new).__name__}; expected a function, or an object with process()")
    was, now = shape_of(present), shape_of(new)
    if (was is Shape.BATCH) is not (now is Shape.BATCH):
        raise ReconfigurationError(f"it works by {now}, the running one by {was}; a change keeps rows or batches")
    if operator.emits is Emits.ONE_TO_ONE and emits_of(operator.kind, new) is Emits.ONE_TO_MANY:
        raise ReconfigurationError(f"it is {Emits.ONE_TO_MANY}, the operator was planned as {operator.emits}")


def _rehearse(order: Rehearse, function: Any, states: list[Any]) -> dict[str, str]:
    """Run the function once on a copy of a recent tuple; what it writes, as column to Arrow type name."""
    if order.recent is None or order.operator.kind is Kind.SELF_JOIN:
        return {}
    if order.operator.kind not in NO_CALL and shape_of(function) is Shape.BATCH:
        out = function(order.recent.batch)
        return types_of(out.schema) if isinstance(out, pa.RecordBatch) else {}
    instance = Instance(order.worker, order.operator, function, audit=False)
    if states:
        instance.state.initial = lambda: states[0]
    branches: list[list[Row]] = [[] for _ in range(order.operator.branches)]
    row = order.recent.row()
    columns = row.columns
    compile_chain([instance], branches, lambda: "left")(row)
    rows = [row for branch in branches for row in branch]
    known = joined_types(joined_columns([instance]), columns.names)
    return types_of(assemble(rows, columns, known).schema) if rows else {}


def types_of(schema: pa.Schema) -> dict[str, str]:
    """The user's columns and their Arrow type names."""
    return {field.name: str(field.type) for field in schema if field.name not in HIDDEN}
