"""How a worker calls the operators of each kind: the second half of ``dataflow.traits.TRAITS``.

There is an entry for each kind whose ``execution`` is ``CALL``. All that these calls share (error policies, guards,
the audit, written types, trials) is put around them by ``chain_compiler`` and ``batches``, for every kind alike.
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
        step: makes the function that treats one row after another.
        fit: makes a batch of what a function of a batch returned; ``None`` where the kind takes no such function.
    """

    step: Callable[[Instance, Behind], Step]
    fit: Fit | None = None


CALLS: Mapping[Kind, OperatorCall] = {
    Kind.MAP: OperatorCall(map_step, mapped),
    Kind.FILTER: OperatorCall(filter_step, filtered),
    Kind.FLAT_MAP: OperatorCall(flat_map_step, multiplied),
    Kind.SPLIT: OperatorCall(split_step),
    Kind.UNNEST: OperatorCall(unnest_step),
    Kind.SELF_JOIN: OperatorCall(self_join_step),
    Kind.JOIN: OperatorCall(join_step),
    Kind.DEDUP: OperatorCall(dedup_step),
}
