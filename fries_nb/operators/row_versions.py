"""Several functions of one operator side by side, of which the identity of each row chooses one (see ``rollout``).

From the first step of a change on, an operator runs the new function for rows that are new, and keeps the *earlier* one
for the others. Another change may follow before that is dropped; then the last change for which a row is new decides.
All of them share the operator's dead letters, counts and states. If a change transforms the state, the versions before
and after it have it in forms of their own, and a key is transformed, there or back, when a row of the other one comes.

>>> from fries_nb.dataflow.graph import Operator
>>> from fries_nb.operators.instance import Instance, Ready
>>> from fries_nb.protocol.messages import WorkerId
>>> instance = Instance(WorkerId("FM", 0), Operator("FM"), str.lower, audit=False)
>>> for change, function, cut in (("u1", str.upper, 4), ("u2", str.title, 6)):
...     instance.prepared[change] = Ready(function, None)
...     instance.decide_rows(change, (RolloutStep({0: cut}),))
>>> batch = pa.RecordBatch.from_pydict({"_fries_transaction": range(4, 9)})
>>> versions_of(instance.earlier, batch).tolist()
[0, 1, 1, 2, 2]
>>> [one.function("aB") for one in side_by_side(instance)]
['ab', 'AB', 'Ab']
>>> instance.settle("u1")
True
>>> versions_of(instance.earlier, batch).tolist(), len(side_by_side(instance))
([0, 0, 0, 1, 1], 2)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fries_nb.dataflow.keys import initial_state
from fries_nb.operators.arms import TIMED, Arms
from fries_nb.operators.rows import Columns, Row
from fries_nb.operators.state import KeyedState
from fries_nb.protocol.rollout import RolloutStep, are_new

if TYPE_CHECKING:
    from fries_nb.operators.instance import Instance

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an operator ran before a change that is decided row by row, and runs for rows that are not new for it."""

    change: str  # id of the change
    steps: tuple[RolloutStep, ...]  # all of its steps so far
    function: Any  # the function before it
    recreate: Callable[[], Any] | None  # makes another instance of it
    identity: str  # id of the change that installed it; empty for the initial one
    states: KeyedState  # the states as it has them


def versions_of(earlier: Sequence[Earlier], batch: pa.RecordBatch) -> Numbers:
    """For each row the number of its version: of the earlier ones from 0 on, then the present one."""
    numbers = np.zeros(batch.num_rows, np.int64)
    for number, one in enumerate(earlier, 1):
        numbers[are_new(one.steps, batch)] = number
    return numbers


def side_by_side(instance: Instance) -> list[Instance]:
    """The operator with each of its functions, in the order of ``versions_of``; they share all but forms of state."""
    if not instance.earlier:
        return [instance]
    present = Earlier("", (), instance.function, instance.recreate, instance.identity, instance.newest)
    return [_with(instance, one) for one in (*instance.earlier, present)]


def _with(instance: Instance, version: Earlier) -> Instance:
    other = copy.copy(instance)
    other.earlier = ()
    other.recreate = version.recreate
    other.install(version.function, version.identity)
    other.state = version.states.begun_with(partial(initial_state, instance.worker.operator, version.function))
    return other


def declared(instance: Instance) -> Instance:
    """The operator with the function that has states in the form in which they are kept; see ``is_declared``."""
    places = [place for place, one in enumerate(instance.earlier, 1) if is_declared(one.steps)]
    return side_by_side(instance)[places[-1] if places else 0]


def is_declared(steps: Sequence[RolloutStep]) -> bool:
    """Whether states are kept, shown and moved in the form after a change with these steps: a canary is not yet."""
    return steps[-1].share == 1


def version_of(instance: Instance, batch: pa.RecordBatch, index: int) -> Instance:
    """The operator with the function that runs for this row of a batch."""
    if not instance.earlier:
        return instance
    return side_by_side(instance)[int(versions_of(instance.earlier, batch.slice(index, 1))[0])]


def chooser(instance: Instance) -> Callable[[Row], int]:
    """A function that returns the number of a row's version."""
    earlier = instance.earlier
    known: Columns | None = None
    numbers: list[int] = []

    def choose(row: Row) -> int:
        nonlocal known, numbers
        if row.columns is not known or row.index >= len(numbers):  # those of pairs grow
            known = row.columns
            numbers = versions_of(earlier, known.batch).tolist()
        return numbers[row.index]

    return choose


def chosen_step(instance: Instance, steps: Sequence[Callable[[Row], None]]) -> Callable[[Row], None]:
    """The step that passes each row to that of its version."""
    choose = chooser(instance)

    def step(row: Row) -> None:
        steps[choose(row)](row)

    return step if instance.arms is None else _counted_step(instance.arms, choose, steps, instance.clock)


def _counted_step(
    arms: Arms, choose: Callable[[Row], int], steps: Sequence[Callable[[Row], None]], clock: Callable[[], int]
) -> Callable[[Row], None]:
    """The same in a canary, which counts the rows of each arm, and times some."""
    each = arms.each(len(steps) - 1)

    def step(row: Row) -> None:
        number = choose(row)
        arm = each[number]
        arm.taken += 1
        if arm.taken % TIMED:
            steps[number](row)
            return
        began_ns = clock()
        steps[number](row)
        arm.timed_ns.append(clock() - began_ns)

    return step


def runs_of(earlier: Sequence[Earlier], batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch in pieces of consecutive rows of one version, each with its number; in order, since state counts."""
    if not earlier or not batch.num_rows:
        yield 0, batch
        return
    numbers = versions_of(earlier, batch)
    ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), batch.num_rows]
    for start, end in zip([0, *ends], ends, strict=False):
        yield int(numbers[start]), batch.slice(start, end - start)


def old_for(earlier: Sequence[Earlier], batch: pa.RecordBatch | None) -> str:
    """The first change for which the first row of a batch is old; empty if there is none."""
    if not earlier or batch is None:
        return ""
    [number] = versions_of(earlier, batch.slice(0, 1))
    return earlier[number].change if number < len(earlier) else ""


def with_fix(
    earlier: Sequence[Earlier], before: str, function: Any, recreate: Callable[[], Any] | None, fix: str
) -> tuple[Earlier, ...]:
    """The earlier versions, of which the one that runs for rows that are old for a change is fixed by another."""
    fixed = {"function": function, "recreate": recreate, "identity": fix}
    return tuple([replace(one, **fixed) if one.change == before else one for one in earlier])


def with_steps(earlier: Sequence[Earlier], change: str, steps: tuple[RolloutStep, ...]) -> tuple[Earlier, ...]:
    """The earlier versions, with the steps that a change has now."""
    return tuple([replace(one, steps=steps) if one.change == change else one for one in earlier])


def settled(earlier: Sequence[Earlier], change: str) -> tuple[tuple[Earlier, ...], Earlier | None]:
    """What is left when no row is old any more for a change, or none is new, if its last share is 0.

    Returns:
        The earlier versions; and the one to which the operator returns if its present one is not needed, else ``None``.
    """
    place = next((place for place, one in enumerate(earlier) if one.change == change), None)
    if place is None:
        return tuple(earlier), None
    if earlier[place].steps[-1].share:
        return tuple(earlier[place + 1 :]), None
    if place + 1 == len(earlier):
        return tuple(earlier[:place]), earlier[place]
    kept = replace(earlier[place + 1], **{name: getattr(earlier[place], name) for name in _RAN})
    return (*earlier[:place], kept, *earlier[place + 2 :]), None


_RAN = ("function", "recreate", "identity", "states")
