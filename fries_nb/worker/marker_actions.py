"""The effect of a marker's action on the operators of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import pyarrow as pa

from fries_nb.checkpoints import Position
from fries_nb.errors import ColumnError, FriesError, OperatorError
from fries_nb.messages import (
    ApplyDeferred,
    Attempt,
    Commit,
    Done,
    Failed,
    Hold,
    Marker,
    MoveSplits,
    Reconfigure,
    Release,
    WorkerId,
)
from fries_nb.operators.failures import row_as_json
from fries_nb.operators.instance import Instance
from fries_nb.operators.recent import shown_tuple
from fries_nb.worker.events import ClosePart, Instruction, TellController

SHOWN_CHARS = 2_000
"""Maximum length of a tuple in the details of an error."""


def effect_of(marker: Marker, instance: Instance, ended: bool, busy: bool) -> Done:
    """Carry out the marker's action at this operator, and return the acknowledgement.

    Args:
        marker: a marker that is complete at this worker.
        instance: an operator in the marker's scope.
        ended: whether the worker has ended; a change then has no effect.
        busy: whether the worker holds tuples.
    """
    action, worker = marker.action, instance.worker
    if ended:
        if isinstance(action, Reconfigure):
            instance.skip_change(action.change)
        return Done(marker.id, worker, ended=True)
    if isinstance(action, Commit):
        read = instance.processed if instance.operator.traits.is_source else 0
        return Done(marker.id, worker, read=read)
    if isinstance(action, Attempt):
        return Done(marker.id, worker, busy=busy)
    if isinstance(action, ApplyDeferred):
        return Done(marker.id, worker, switched=_apply_deferred(instance))
    if isinstance(action, MoveSplits) and worker.operator == action.source:
        return Done(marker.id, worker, positions=_given_up(instance, action))
    if not isinstance(action, Reconfigure) or worker.operator not in action.targets:
        return Done(marker.id, worker)
    if action.before in instance.applied:
        instance.supersede_change(action.change)
        return Done(marker.id, worker)
    old_tuples = instance.old_tuples(action.change)
    return Done(marker.id, worker, switched=instance.switch(action.change, action.before), old_tuples=old_tuples)


def _given_up(instance: Instance, action: MoveSplits) -> dict[int, Position | None]:
    """The positions of splits that another worker is to read, which are not the instance's any more."""
    leaving = [split for split, (before, _) in action.splits.items() if before == instance.worker.index]
    return {split: instance.positions.pop(split, Position()) for split in leaving}


def _apply_deferred(instance: Instance) -> bool:
    apply, instance.deferred = instance.deferred, None
    if apply is not None:
        apply()
    return apply is not None


@dataclass(frozen=True, slots=True)
class MarkerEffects:
    """The effects of a marker on the operators of a chain.

    Attributes:
        answers: the instructions that acknowledge it, one for each operator in its scope.
        switched: whether an operator runs another function from now on.
        leaves: whether all operators are in its scope, so that it is sent on.
        holds: whether the worker, of a source, stops (true) or continues; ``None`` if neither.
        given_up: the splits that a source's worker has given up, if any.
    """

    answers: tuple[Instruction, ...]
    switched: bool
    leaves: bool
    holds: bool | None
    given_up: tuple[tuple[int, ...], ...] = ()


def effects_of(marker: Marker, instances: Sequence[Instance], ended: bool, busy: bool) -> MarkerEffects:
    """Carry out the marker's action at the first of these operators, up to one that is not in its scope.

    The acknowledgement of a commit's marker names the parts that the operator has written, so the current part is
    closed first.

    Args:
        marker: see ``effect_of``.
        instances: operators of a chain, in its order.
        ended: see ``effect_of``.
        busy: see ``effect_of``.
    """
    inside = list(takewhile(lambda instance: instance.worker.operator in marker.scope, instances))
    done = [effect_of(marker, instance, ended, busy) for instance in inside]
    answer = ClosePart if isinstance(marker.action, Commit) and not ended else TellController
    reads = not ended and any(instance.operator.traits.is_source for instance in inside)
    held = isinstance(marker.action, Hold) if reads and isinstance(marker.action, Hold | Release) else None
    switched = any(one.switched for one in done)
    given_up = tuple(tuple(one.positions) for one in done if one.positions)
    return MarkerEffects(tuple(map(answer, done)), switched, len(inside) == len(instances), held, given_up)


def failed_answer(error: FriesError, worker: WorkerId, row: pa.RecordBatch | None = None) -> Failed:
    """The answer of a worker that has stopped.

    Args:
        error: why.
        worker: its first operator's worker, which the error may not name.
        row: the tuple in hand, as it came to that operator, which the details of a user's error show.
    """
    operator, details = (error.operator, error.details) if isinstance(error, OperatorError) else ("", "")
    if details and row is not None:
        shown = row_as_json(shown_tuple(row))
        shown = shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}..."
        details = f"{details.rstrip()}\nIn hand, as it came to {worker.operator}: {shown}\n"
    column, before = (error.column, error.before) if isinstance(error, ColumnError) else ("", b"")
    return Failed(WorkerId(operator or worker.operator, worker.index), str(error), details, column, before)
