"""How workers call the operators of each kind: the counterpart of ``dataflow.traits.TRAITS``.

There is an entry for each kind whose ``execution`` is ``CALL``. ``chain_compiler`` and ``batches`` add what all kinds
share: error policies, guards, the audit, column types, trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fries_nb.dataflow.traits import Kind
from fries_nb.operators.batch_results import Fit, filtered, mapped, multiplied
from fries_nb.operators.instance import Instance
from fries_nb.operators.steps import (
    Behind,
    Step,
    dedup_step,
    filter_step,
    flat_map_step,
    join_step,
    map_step,
    self_join_step,
    split_step,
    unnest_step,
)
from fries_nb.operators.timed_calls import due_step
from fries_nb.operators.window_steps import close_step, retire_step, window_step


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """How the operators of a kind are called.

    Attributes:
        step: makes the function that processes single rows.
        fit: makes a batch of the result of a vectorised function; ``None`` if the kind has no vectorised functions.
        loops: whether the inner loop can call its functions (see ``inner_loop``): they return the row, a truth value or
            the number of a branch.
        due: makes the function that processes the rows of a firing (see ``firing``); ``None`` if the kind has no timed
            functions.
        retire: makes the function that is called when a row of a firing has been processed, or set aside.
    """

    step: Callable[[Instance, Behind], Step]
    fit: Fit | None = None
    loops: bool = False
    due: Callable[[Instance, Behind], Step] | None = None
    retire: Callable[[Instance], Step] | None = None


CALLS: Mapping[Kind, OperatorCall] = {
    Kind.MAP: OperatorCall(map_step, mapped, loops=True, due=due_step),
    Kind.FILTER: OperatorCall(filter_step, filtered, loops=True),
    Kind.FLAT_MAP: OperatorCall(flat_map_step, multiplied, due=due_step),
    Kind.SPLIT: OperatorCall(split_step, loops=True),
    Kind.UNNEST: OperatorCall(unnest_step),
    Kind.SELF_JOIN: OperatorCall(self_join_step),
    Kind.JOIN: OperatorCall(join_step),
    Kind.DEDUP: OperatorCall(dedup_step),
    Kind.WINDOW: OperatorCall(window_step, due=close_step, retire=retire_step),
    Kind.REDUCE: OperatorCall(window_step, due=close_step, retire=retire_step),
}
