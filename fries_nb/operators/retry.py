"""Atomic processing of tuples by a chain with a change under guard.

A guard retries the tuple on which the new configuration failed with the old one. That tuple has been processed by the
operators before the failing one, and some of its rows perhaps by those after it. So under guard every operator of the
chain copies its key's state beforehand; if any fails, all states, counts, trace records and rows of the tuple are
restored, and its withheld dead letters are dropped.

If the state of an unchanged operator cannot be copied, tuples are processed as without a guard, and a failing one
cannot be retried: the run fails, or restarts from its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fries_nb.dataflow.keys import canonical_key
from fries_nb.errors import OperatorError
from fries_nb.messages import WorkerId
from fries_nb.operators.error_policy import Step, Undo, is_watched, remembering
from fries_nb.operators.instance import Instance
from fries_nb.operators.outputs import Apart
from fries_nb.operators.rows import Row
from fries_nb.operators.state import keeps_state, key_reader


def is_retried(instances: Sequence[Instance]) -> bool:
    """Whether a change of an operator of the chain is under guard."""
    return any(instance.guarded for instance in instances)


class NotUndoneError(OperatorError):
    """A tuple failed under guard and has changed a state that could not be copied."""


Undos = dict[tuple[WorkerId, Any], Undo | None]
"""Operator and key to a function that restores the key's state; ``None`` for a state that was not copied."""


def undoable(instance: Instance, undos: Undos, step: Step) -> Step:
    """The operator's step, extended to copy each key's state before a tuple."""
    worker, operator = instance.worker, instance.operator
    if not keeps_state(operator, instance.function):
        return step
    remembered, read = remembering(instance), key_reader(operator.key)

    def kept(row: Row) -> None:
        try:
            met = (worker, canonical_key(read(row)))
            is_new = met not in undos
        except Exception:  # noqa: BLE001 - the function's own access to its state fails as well, and is reported
            is_new = False
        if is_new:
            try:
                undos[met] = remembered(row)
            except OperatorError:
                if is_watched(instance):
                    raise
                undos[met] = None
        step(row)

    return kept


def whole(instances: Sequence[Instance], outputs: Sequence[Apart], undos: Undos, step: Step) -> Step:
    """Make the chain's first step atomic for the whole chain.

    Args:
        instances: the operators, in the chain's order.
        outputs: the chain's outputs.
        undos: filled by the steps of ``undoable``.
        step: the chain's first step.

    Raises (the step):
        OperatorError: an operator has failed; a ``NotUndoneError`` if the tuple cannot be retried.
    """

    def tried(row: Row) -> None:
        undos.clear()
        for output in outputs:
            output.begin()
        try:
            with rewound(instances):
                step(row.copy())
                for output in outputs:
                    output.join()
        except OperatorError as error:
            for output in outputs:
                output.drop()
            if None in undos.values():
                why = f"{error} (no rollback in place: the state of another operator cannot be copied)"
                raise NotUndoneError(why, error.operator, error.details) from error
            for undo in undos.values():
                assert undo is not None
                undo()
            row.columns.clear()  # lists and dicts in it may have been changed in place
            raise

    return tried


@contextmanager
def rewound(instances: Sequence[Instance]) -> Iterator[None]:
    """Withholds dead letters within the block; if an operator fails, they are dropped and counts are restored."""
    marks = [instance.mark() for instance in instances]
    for instance in instances:
        instance.withheld = []
    try:
        yield
    except OperatorError:
        for instance, mark in zip(instances, marks, strict=True):
            instance.withheld = None
            instance.rewind(mark)
        raise
    for instance in instances:
        letters, instance.withheld = instance.withheld or [], None
        for letter in letters:
            instance.write_letter(letter)
