"""A tuple whose function fails leaves nothing behind: no rows, no state, no change to the tuple itself.

An operator that pauses, or sets such tuples aside as dead letters, must not count half of a tuple, and must be able to
try it again. So its outputs wait until the function has returned, it works on a copy of the row, and its key's state is
copied beforehand and put back if it raises. A row that cannot become columns counts as a failure: at the end of the
chain, where that would show, the tuples behind have met the state already (see ``written``). Operators that fail the
run at once do none of this, and pay for none.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from fries_nb.dataflow.graph import Kind, Operator
from fries_nb.errors import OperatorError
from fries_nb.planning.expansion import NO_CALL
from fries_nb.worker.instance import Instance
from fries_nb.worker.rows import UNWRITTEN, Row, key_reader
from fries_nb.worker.shown import row_as_json
from fries_nb.worker.state import keeps_state, same_key
from fries_nb.worker.values import as_value

Step = Callable[[Row], None]
Undo = Callable[[], None]
LETTER = pa.schema(
    {
        "operator": pa.string(), "worker": pa.int64(), "error": pa.string(), "traceback": pa.string(),
        "tuple": pa.string(),
    }
)  # fmt: skip
"""The columns of a dead letter; ``tuple`` is JSON."""


def is_guarded(operator: Operator) -> bool:
    """Whether it does not simply fail the run."""
    return bool(operator.on_error != "fail")


def is_watched(instance: Instance) -> bool:
    """Whether a tuple that it fails on must leave nothing behind: for its own policy, or a change under guard."""
    return is_guarded(instance.operator) or bool(instance.guarded)


def guarded(instance: Instance, make: Callable[[Sequence[Step]], Step], emits: Sequence[Step], first: bool) -> Step:
    """The step that ``make`` makes, which takes effect as a whole or not at all.

    ``first``: its rows are those of a batch, to which nothing was written yet.

    Raises (the step):
        OperatorError: the function failed, and there is no place for dead letters.
    """
    held: list[tuple[Step, Row]] = []
    operator, audit = instance.operator.name, instance.audit
    inner = make([_holder(held, emit, operator) for emit in emits])
    remembered, check = remembering(instance), instance.written.check
    asks = instance.operator.kind not in NO_CALL  # what tables and lists hold was in columns

    def step(row: Row) -> None:
        held.clear()
        if audit:
            instance.log.begin_tuple()
        undo = remembered(row)
        own = row.copy()
        try:
            inner(own if first and type(own) is Row else as_value(own, operator))
            if asks:
                for _, out in held:
                    check(out, row)
        except OperatorError as error:
            undo()
            row.columns.clear()  # lists and dicts in it may have been changed in place
            instance.log.take_back()
            set_aside(instance, dict(row), error, row.index)
            if audit:
                instance.log.dropped.append(row.columns.transactions()[row.index])
            return
        for emit, out in held:
            emit(out)

    return step


def set_aside(instance: Instance, row: dict[str, Any], error: OperatorError, number: int) -> None:
    """Write a dead letter for a row, which has this number in the batch in hand.

    Raises:
        OperatorError: this very error, if there is no place for dead letters, or a rollback is to be tried first.
    """
    if instance.dead_letters is None or instance.guarded:
        raise error
    instance.refused.add(number)
    letter = {
        "operator": [instance.worker.operator],
        "worker": [instance.worker.index],
        "error": [str(error)],
        "traceback": [error.details],
        "tuple": [row_as_json(row)],
    }
    instance.write_letter(pa.RecordBatch.from_pydict(letter, schema=LETTER))


def _holder(held: list[tuple[Step, Row]], emit: Step, operator: str) -> Step:
    return lambda row: held.append((emit, as_value(row, operator) if row.columns.plain < UNWRITTEN else row))


def _nothing() -> None:
    """There was no state."""


def remembering(instance: Instance) -> Callable[[Row], Undo]:
    """The function that copies the state of a row's key, and returns how to put it back."""
    operator = instance.operator
    if not keeps_state(operator.kind, instance.function):
        return lambda row: _nothing
    read, state = key_reader(operator.key), instance.state
    if operator.kind in (Kind.SELF_JOIN, Kind.DEDUP):
        return lambda row: _as_found(operator.name, state.live, read(row))

    def remembered(row: Row) -> Undo:
        try:
            key, known = same_key(read(row)), len(state)
            present = state.touch(key)
        except Exception:  # noqa: BLE001 - the function's own look at its state fails alike, and that is told
            return _nothing
        if len(state) > known:
            return lambda: state.live.pop(key, None) and None
        kept = _copied(operator.name, present)
        return lambda: state.live.update({key: kept()})

    return remembered


def _as_found(operator: str, live: dict[Any, Any], key: Any) -> Undo:
    """How to bring back what there is under the key, which may be nothing."""
    if key not in live:
        return lambda: live.pop(key, None) and None
    kept = _copied(operator, live[key])
    return lambda: live.update({key: kept()})


def _copied(operator: str, state: Any) -> Callable[[], Any]:
    """A function that gives a copy of the state, as it is now, once."""
    try:
        pickled = pickle.dumps(state)
        return lambda: pickle.loads(pickled)
    except (pickle.PicklingError, AttributeError, TypeError):  # a class or function of a notebook's own
        pass
    try:
        twin = copy.deepcopy(state)
        return lambda: twin
    except Exception as error:
        raise OperatorError(
            f"the state of {operator} cannot be copied, which on_error needs: {type(error).__name__}: {error}", operator
        ) from error
