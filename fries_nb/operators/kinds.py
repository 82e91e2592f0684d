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


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """How the operators of a kind are called.

    Attributes:
        step: makes the function that processes single rows.
        fit: makes a batch of the result of a vectorised function; ``None`` if the kind has no vectorised functions.
        loops: whether the inner loop can call its functions (see ``inner_loop``): they return the row or a truth value.
    """

    step: Callable[[Instance, Behind], Step]
    fit: Fit | None = None
    loops: bool = False


CALLS: Mapping[Kind, OperatorCall] = {
    Kind.MAP: OperatorCall(map_step, mapped, loops=True),
    Kind.FILTER: OperatorCall(filter_step, filtered, loops=True),
    Kind.FLAT_MAP: OperatorCall(flat_map_step, multiplied),
    Kind.SPLIT: OperatorCall(split_step),
    Kind.UNNEST: OperatorCall(unnest_step),
    Kind.SELF_JOIN: OperatorCall(self_join_step),
    Kind.JOIN: OperatorCall(join_step),
    Kind.DEDUP: OperatorCall(dedup_step),
}
