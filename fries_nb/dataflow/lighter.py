"""Lighter functions: the last remedy of a latency constraint, when neither buffers nor chains can keep it.

The functions are checked and pickled on declaration, so that a mistake is found then and not when the load is highest.
Output columns that do not fit are found by the rehearsal of the change.

>>> lighter({"FM": str.upper})
Lighter(FM)
>>> lighter({"FM": Update(str.upper, state=len)})
Traceback (most recent call last):
...
fries_nb.errors.PlanError: lighter functions are replaced again by the original ones, and the state of FM is ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

from fries_nb.dataflow.constraints import LatencyConstraint, OnViolation
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.tables import JoinTable, is_table
from fries_nb.dataflow.updates import Update, as_updates, check_updates
from fries_nb.errors import DataflowError, PlanError, exception_text


@dataclass(frozen=True, repr=False)
class Lighter:
    """A change to lighter functions, made by ``lighter``.

    Attributes:
        updates: operator to its update.
    """

    updates: Mapping[str, Update]

    def __repr__(self) -> str:
        return f"Lighter({self.operators})"

    @property
    def operators(self) -> str:
        """The names of the operators, as text."""
        return ", ".join(sorted(self.updates))


NONE_LIGHTER = Lighter({})
"""That of a constraint whose policy changes nothing."""


def lighter(change: Mapping[str, Any]) -> Lighter:
    """Lighter functions for ``flow.constrain(..., on_violation="apply", lighter=...)``.

    Args:
        change: operator to its lighter function, or to an ``fn.Update`` that transforms its state there and back.

    Returns:
        The lighter functions.

    Raises:
        PlanError: the change is empty, or an update transforms the state without ``back=``.
        DataflowError: a function is not callable or cannot be pickled; names the operator.
    """
    updates = as_updates(change)
    for name, update in updates.items():
        if update.state is not None and update.back is None:
            raise PlanError(
                f"lighter functions are replaced again by the original ones, and the state of {name} is transformed "
                "without a way back; expected Update(..., state=..., back=...)"
            )
        _check_pickling(name, update)
    return Lighter(updates)


def check_lighter(graph: Graph, constraint: LatencyConstraint, given: object) -> Lighter:
    """Check the lighter functions of a constraint.

    Args:
        graph: the dataflow.
        constraint: the constraint.
        given: its lighter functions; ``None`` without any.

    Returns:
        The lighter functions; ``NONE_LIGHTER`` by the policy ``tell``.

    Raises:
        DataflowError: they are missing, or have no effect by the constraint's policy; they are no ``fn.lighter(...)``;
            they change no operator of the sequence, or an operator cannot run its function.
        PlanError: an operator runs no user function, such as a source.
    """
    policy = constraint.on_violation
    if policy is OnViolation.TELL:
        if given is not None:
            raise DataflowError(
                f"on_violation='{policy}' changes no function, and got lighter={given!r}; "
                "expected on_violation='propose' or 'apply' with it"
            )
        return NONE_LIGHTER
    if not isinstance(given, Lighter):
        raise DataflowError(
            f"on_violation='{policy}' got lighter={given!r}; expected fn.lighter({{...}}), as in "
            f"lighter=fn.lighter({{{constraint.tasks[0] if constraint.tasks else 'FM'!r}: LighterModel()}})"
        )
    check_updates(graph, given.updates)
    if given.updates.keys().isdisjoint(constraint.tasks):
        known = ", ".join(constraint.tasks) or "none, since it has edges only"
        raise DataflowError(
            f"{given.operators} does not count in {constraint.sequence}, so its effect there is not measured; expected "
            f"a lighter function of at least one operator that does: {known}"
        )
    return given


def check_exclusive(lighters: Mapping[LatencyConstraint, Lighter]) -> None:
    """Refuse two constraints that have lighter functions for the same operator.

    Args:
        lighters: constraint to its lighter functions.

    Raises:
        DataflowError: two of them change the same operator; names it and both sequences.
    """
    owners: dict[str, str] = {}
    for constraint, one in lighters.items():
        for name in one.updates:
            if name in owners:
                raise DataflowError(
                    f"{name} has lighter functions in two constraints, on {owners[name]} and on {constraint.sequence}, "
                    "which would replace each other's; expected them in one"
                )
            owners[name] = constraint.sequence


def _check_pickling(name: str, update: Update) -> None:
    if isinstance(update.function, JoinTable) or is_table(update.function):
        return  # read by Spark when the change is requested
    try:
        cloudpickle.dumps(update)
    except Exception as error:
        raise DataflowError(
            f"the lighter function of {name} cannot be pickled: {exception_text(error)}; "
            "open files, sockets and locks belong into open(), which runs on the host"
        ) from error
