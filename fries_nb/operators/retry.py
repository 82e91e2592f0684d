"""Atomic processing of tuples by a chain with a change under guard.

A guard may have to restore the old configuration for the very tuple on which the new one failed. That tuple has passed
the operators before the failing one, and some of its rows perhaps those after it. So under guard every operator of the
chain copies its key's state beforehand; if any fails, all states, counts, trace records and rows of the tuple are
restored, and its dead letters, which are withheld, are dropped.

The state of an unchanged operator may be impossible to copy. Tuples are then processed as without a guard, and a
failing one cannot be retried: the run fails, or goes back to its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fries_nb.errors import OperatorError
from fries_nb.messages import WorkerId
from fries_nb.operators.error_policy import Step, Undo, is_watched, remembering
from fries_nb.operators.instance import Instance
from fries_nb.operators.outputs import Apart
from fries_nb.operators.rows import Row, key_reader
from fries_nb.operators.state import keeps_state, same_key


def is_retried(instances: Sequence[Instance]) -> bool:
    """Whether a change of an operator of the chain is under guard."""
    return any(instance.guarded for instance in instances)


class NotUndoneError(OperatorError):
    """A tuple failed under guard and has changed a state that could not be copied."""


Undos = dict[tuple[WorkerId, Any], Undo | None]
"""Functions that restore the states of a tuple's keys, by operator and key; ``None`` for one that was not copied."""


def undoable(instance: Instance, undos: Undos, step: Step) -> Step:
    """The operator's step, extended to copy each key's state before a tuple."""
    worker, operator = instance.worker, instance.operator
    if not keeps_state(operator, instance.function):
        return step
    remembered, read = remembering(instance), key_reader(operator.key)

    def kept(row: Row) -> None:
        try:
            met = (worker, same_key(read(row)))
            is_new = met not in undos
        except Exception:  # noqa: BLE001 - the function's own look at its state fails alike, and that is told
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
    """The chain's first step, made atomic for the whole chain.

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
