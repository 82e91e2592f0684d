"""Updates: the new function of an operator, and the transformation of its state. A join is updated with another table.

>>> updates = as_updates({"MC": str.upper, "FM": Update(str.lower, state=lambda old: old[-5:])})
>>> sorted(updates), updates["MC"].state is None
(['FM', 'MC'], True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fries_nb.dataflow.graph import Emits, Graph, Operator
from fries_nb.dataflow.operators import Shape, check_function, emits_of, shape_of, takes_time
from fries_nb.dataflow.tables import JoinTable, is_table
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.windowing import EACH_TIME, WindowFunction, Windowing, checked_windowing
from fries_nb.errors import DataflowError, PlanError


@dataclass(frozen=True)
class Update:
    """The new configuration of an operator.

    Attributes:
        function: the new function or object, of any shape that ``map`` accepts; for a join the new table.
        state: function from the old state of a key to its new state. It is called once for each key, when the first
            tuple of the key is processed after the switch. ``None`` keeps the state unchanged.
        back: the inverse of ``state``; a rollback requires it.
        windows: for a window, its new windows; ``None`` keeps them. Windows that are open keep their bounds, and rows
            in them are still counted in them. ``state`` and ``back`` get the state of one window of a key.

    Raises:
        DataflowError: the function is not callable, and no table either.
        PlanError: ``state`` or ``back`` is not callable, or ``back`` is given without ``state``.
    """

    function: Any
    state: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None
    windows: Windowing | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.function, JoinTable) or is_table(self.function)):
            shape_of(self.function)
        for name, transformation in (("state", self.state), ("back", self.back)):
            if transformation is not None and not callable(transformation):
                raise PlanError(f"Update(..., {name}=...) is a function old state -> new state; got {transformation!r}")
        if self.back is not None and self.state is None:
            raise PlanError("Update(..., back=...) without state=...: there is no transformation to undo")


def returning(ran: Any, state: Callable[[Any], Any] | None, back: Callable[[Any], Any] | None) -> Update:
    """The update to what an operator has run before; the windows of a window return with its function."""
    if not isinstance(ran, WindowFunction):
        return Update(ran, state, back)
    return Update(ran.function, state, back, None if ran.windowing == EACH_TIME else ran.windowing)


def as_updates(change: Mapping[str, Any]) -> dict[str, Update]:
    """The change, with every plain function wrapped in an ``Update`` that keeps the state.

    Raises:
        PlanError: the change is empty, or not a mapping from operator names.
        DataflowError: a function is not callable; names the operator.
    """
    if not isinstance(change, Mapping):
        raise PlanError(f"a change maps operator names to functions; got a {type(change).__name__}")
    if not change:
        raise PlanError("the change is empty; expected at least one operator, as in {'FM': new_function}")
    for name in change:
        if not isinstance(name, str):
            raise PlanError(f"a change maps operator names to functions; got {name!r} as a name")
    return {name: _as_update(name, given) for name, given in change.items()}


def _as_update(operator: str, given: Any) -> Update:
    try:
        return given if isinstance(given, Update) else Update(given)
    except DataflowError as error:
        raise DataflowError(f"operator {operator!r}: {error}") from None


def check_updates(graph: Graph, updates: Mapping[str, Update]) -> None:
    """Refuse updates that the operators cannot run, or that would invalidate the operator types used for planning.

    Raises:
        DataflowError: no such operator, a wrong number of parameters, or state without a key.
        PlanError: the operator runs no user function, would change between rows and batches, or was planned as
            one-to-one and would emit many.
    """
    for name, update in updates.items():
        operator = graph.operator(name)
        if not operator.traits.is_changeable:
            raise PlanError(f"operator {name!r} ({operator.kind}) runs no function that could be changed")
        if operator.traits.holds is Holds.TABLE:
            new_table(operator, update)
            continue
        _check_windows(operator, update)
        check_function(name, configured(operator, update), operator.key, operator.kind)
        if takes_time(operator.function) is not takes_time(update.function):
            raise PlanError(
                f"{name!r} runs {_timing(operator.function)} and would change to {_timing(update.function)}; expected "
                f"{_timing(operator.function)}, since chains are formed by it"
            )
        if hasattr(operator.function, "due") and not hasattr(update.function, "due"):
            raise PlanError(f"{name!r} has entries that will be due, and its new function has no due(key, time, state)")
        was, now = shape_of(operator.function), shape_of(update.function)
        if was is not now and Shape.BATCH in (was, now):
            raise PlanError(
                f"{name!r} runs a function of a {_unit(was)} and would change to one of a {_unit(now)}; "
                f"expected one of a {_unit(was)}, since chains are formed by it"
            )
        if operator.emits is Emits.ONE_TO_ONE and emits_of(operator.kind, update.function) is Emits.ONE_TO_MANY:
            raise PlanError(
                f"{name!r} emits one row at most, and its new function is a generator; "
                "declare it with flat_map to change it so"
            )


def targets_of(graph: Graph, change: Mapping[str, Any] | Iterable[str]) -> tuple[str, ...]:
    """The names of the operators that a change changes; new functions, if there are any, are checked.

    Raises:
        DataflowError: see ``check_updates``.
        PlanError: see ``check_updates``.
    """
    if isinstance(change, Mapping):
        check_updates(graph, as_updates(change))
    return (change,) if isinstance(change, str) else tuple(change)


def configured(operator: Operator, update: Update) -> Any:
    """The new function as the operator runs it: that of a window has the update's windows, if it has any."""
    if operator.traits.timed:
        return replace(operator.function, function=update.function, windowing=update.windows)
    return update.function


def _check_windows(operator: Operator, update: Update) -> None:
    if update.windows is None:
        return
    if not operator.traits.timed or operator.function.windowing == EACH_TIME:
        raise PlanError(f"{operator.name!r} ({operator.kind}) has no windows; expected an update without windows=...")
    checked_windowing(operator.name, update.windows)


def _timing(function: Any) -> str:
    return "a timed function" if takes_time(function) else "an untimed one"


def new_table(operator: Operator, update: Update) -> JoinTable:
    """The new function of a join: the new table, with the lookup of the current one.

    Raises:
        PlanError: the update has a state transformation, or a one-to-one join would emit many.
        DataflowError: it is not a table, or lacks the join's columns.
    """
    if update.state is not None:
        raise PlanError(f"{operator.name!r} is a join and keeps no state; expected an update without state=...")
    given = update.function
    table: JoinTable = given if isinstance(given, JoinTable) else operator.function.of(given)
    if table.one_to_many and operator.emits is Emits.ONE_TO_ONE:
        raise PlanError(
            f"{operator.name!r} was planned as a join that emits one row at most; declare it with one_to_many=True "
            "to give it a table with several rows a key"
        )
    return table


def _unit(shape: Shape) -> str:
    return "batch" if shape is Shape.BATCH else "row"
