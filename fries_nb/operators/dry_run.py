"""Prepare: what can fail about a new function by itself, done off the data path (DESIGN, section 6).

The new function is unpickled and opened, and the state transformation is tried on copies of some keys. How it gets on
with the other new functions and with what is below them is rehearsed when all are prepared (see ``rehearsal``); recent
tuples for that go along with the answer. The shells run ``prepare`` beside the worker; it touches nothing of the
worker's own.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.dataflow.updates import Update
>>> import cloudpickle
>>> order = DryRun("u1", WorkerId("FD", 0), cloudpickle.dumps(Update(lambda row: row | {"p": 0.5})),
...                     Operator("FD"), lambda row: row, (), ())
>>> prepared = prepare(order)
>>> prepared.answer.error, prepared.ready.function({"n": 1})
('', {'n': 1, 'p': 0.5})
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cloudpickle
import pyarrow as pa

from fries_nb.dataflow.graph import Emits, Operator
from fries_nb.dataflow.operators import Shape, emits_of, shape_of
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update
from fries_nb.errors import FriesError, ReconfigurationError
from fries_nb.messages import HIDDEN, Prepare, Prepared, WorkerId
from fries_nb.operators.failures import user_traceback
from fries_nb.operators.instance import Instance, Ready
from fries_nb.operators.recent import Recent
from fries_nb.operators.state import StateCopy, transformed

SAMPLE_KEYS = 3
"""Number of keys whose state the transformation is tried on."""
LARGEST_FIRST = 4 << 20
"""Bytes of a recent tuple beyond which it is not handed over."""
LARGEST_TUPLE = 64 << 10
"""Likewise of those behind the first one."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """An instruction to the shell: run :func:`prepare` on this, beside the worker, and hand back the result.

    ``payload`` is a cloudpickled ``Update``; ``states`` are copies of some keys' states; ``recent`` are recent input
    tuples, if they are asked for; ``guard`` is the id of the rollback that is to be kept ready, or empty.
    """

    change: str
    worker: WorkerId
    payload: bytes
    operator: Operator
    present: Any
    states: tuple[StateCopy, ...]
    recent: tuple[Recent, ...]
    guard: str = ""


@dataclass(frozen=True, slots=True)
class DryRunResult:
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
    recent: tuple[Recent, ...]


def offer_of(instance: Instance, recent: tuple[Recent, ...], before: str = "") -> Offer:
    """The operator as it is now; ``before`` is a change that is ordered behind the one to be tried.

    Raises:
        Exception: whatever pickling raises, where a state cannot be copied for a trial.
    """
    return Offer(instance.worker, instance.operator, instance.function, instance.copies(SAMPLE_KEYS, before), recent)


def dry_run(order: Prepare, offer: Offer) -> DryRun:
    """What the shell has to run."""
    recent = offer.recent if order.rehearse else ()
    return DryRun(
        order.change, offer.worker, order.payload, offer.operator, offer.present, offer.states, recent, order.guard
    )


def prepare(order: DryRun) -> DryRunResult:
    """Unpickle, open, try the transformation. Never raises: a failure is the answer's ``error``."""
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
        for copy in order.states:
            transformed(copy.revive(), transforms)
    except BaseException as error:  # noqa: BLE001 (a user's code may raise anything, sys.exit() too: it is the answer)
        return refused(order.change, order.worker, f"new {name} {stage}", error)
    answer = Prepared(order.change, order.worker, samples=_packed(order.recent))
    recreate = partial(new_function, order.payload)
    ready = Ready(update.function, update.state, recreate, order.states, update.back, order.guard)
    return DryRunResult(answer, ready)


def refused(change: str, worker: WorkerId, what: str, error: BaseException) -> DryRunResult:
    """The answer of a worker that cannot get ready, with the user's traceback."""
    reason = str(error) if isinstance(error, FriesError) else f"{type(error).__name__}: {error}"
    return DryRunResult(Prepared(change, worker, f"{what}: {reason}", user_traceback(error)), None)


def new_function(payload: bytes) -> Any:
    """Another new function, of a change's payload; not opened."""
    return pickle.loads(payload).function


def open_function(function: Any) -> None:
    """Call the function's ``open()`` if it has one: models are loaded there, never on the data path."""
    if has_open(function):
        function.open()


def has_open(function: Any) -> bool:
    """Whether there is something to call before the first tuple."""
    return callable(getattr(function, "open", None))


def _packed(recent: Sequence[Recent]) -> tuple[bytes, ...]:
    """Recent tuples as bytes; those are left out that cannot be pickled, or are large (but for the first)."""
    packed: list[bytes] = []
    for one in recent:
        try:
            tuple_ = cloudpickle.dumps(one.compact())
        except Exception:  # noqa: BLE001, S112 (an object of the user's; without bytes of it others are rehearsed on)
            continue
        if len(tuple_) <= (LARGEST_TUPLE if packed else LARGEST_FIRST):
            packed.append(tuple_)
    return tuple(packed)


def _refuse_other_family(operator: Operator, present: Any, new: Any) -> None:
    if operator.traits.holds is Holds.TABLE:
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


def types_of(schema: pa.Schema) -> dict[str, str]:
    """The user's columns and their Arrow type names."""
    return {field.name: str(field.type) for field in schema if field.name not in HIDDEN}
