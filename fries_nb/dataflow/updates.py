"""Updates: the new function of an operator, and the transformation of its state. A join is updated with another table.

>>> updates = as_updates({"MC": str.upper, "FM": Update(str.lower, state=lambda old: old[-5:])})
>>> sorted(updates), updates["MC"].state is None
(['FM', 'MC'], True)

Lighter functions: the last remedy of a latency constraint, when neither buffers nor chains can keep it.

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

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from fries_nb.dataflow.constraints import LatencyConstraint, OnViolation
from fries_nb.dataflow.expiring import Expiring, checked_ttl
from fries_nb.dataflow.graph import Emits, Graph, Operator
from fries_nb.dataflow.join_bounds import Bounds, StreamJoin, checked_bounds
from fries_nb.dataflow.keys import canonical_key
from fries_nb.dataflow.operators import Shape, check_function, emits_of, is_awaited, shape_of, takes_time
from fries_nb.dataflow.tables import JoinTable, is_table
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.windowing import (
    EACH_TIME,
    AnyWindowing,
    ConfiguredFunction,
    CountWindowing,
    WindowFunction,
    checked_windowing,
)
from fries_nb.errors import DataflowError, PlanError, exception_text


@dataclass(frozen=True)
class Update:
    """The new configuration of an operator.

    Attributes:
        function: the new function or object, of any shape that ``map`` accepts; for a join the new table.
        state: function from the old state of a key to its new state. It is called once for each key, when the first
            tuple of the key is processed after the switch. ``None`` keeps the state unchanged.
        back: the inverse of ``state``; a rollback requires it.
        windows: for a window, its new windows; ``None`` keeps them. Windows that are open keep their bounds, and rows
            in them are still counted in them. A session that is open keeps its end; each row brings the gap with which
            it comes, and may extend it by that. ``state`` and ``back`` get the state of one window of a key. For a join
            of two streams its new bounds, ``fn.within(before, after)``, ``fn.latest(tolerance)`` or windows; the
            function may then be ``None``, for a join that merges the columns of both rows.
        ttl: for an operator with ``ttl=``, its new one; ``None`` keeps it. It holds for a key from its next row on, and
            does not shorten the time that earlier rows have given to a key.

    Raises:
        DataflowError: the function is not callable, and no table either.
        PlanError: ``state`` or ``back`` is not callable, or ``back`` is given without ``state``.
    """

    function: Any
    state: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None
    windows: Bounds | AnyWindowing | None = None
    ttl: float | None = None

    @property
    def setting(self) -> Any:
        """What replaces the setting of the operator, whichever it has; ``None`` to keep it."""
        return self.ttl if self.windows is None else self.windows

    def __post_init__(self) -> None:
        merges = self.function is None and self.windows is not None
        if not (merges or isinstance(self.function, JoinTable) or is_table(self.function)):
            shape_of(self.function)
        for name, transformation in (("state", self.state), ("back", self.back)):
            if transformation is not None and not callable(transformation):
                raise PlanError(f"Update(..., {name}=...) is a function old state -> new state; got {transformation!r}")
        if self.back is not None and self.state is None:
            raise PlanError("Update(..., back=...) without state=...: there is no transformation to undo")


@dataclass(frozen=True)
class Edits:
    """A transformation of state that sets those of some keys, and leaves the others; for ``Run.set_state``.

    >>> edits = Edits({7: [1, 2]})
    >>> edits.of(7, [0]), edits.of(8, [0])
    ([1, 2], [0])
    >>> import pickle
    >>> pickle.loads(pickle.dumps(Edits({float("nan"): [1]}))).of(canonical_key(float("nan")), [0])
    [1]

    Attributes:
        states: key to its state.
    """

    states: Mapping[Any, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", {canonical_key(key): state for key, state in self.states.items()})

    def __reduce__(self) -> tuple[type[Edits], tuple[Mapping[Any, Any]]]:
        return Edits, (self.states,)  # a NaN that was pickled is another one, which stands for no key

    def of(self, key: Any, state: Any) -> Any:
        """The state of a key behind it."""
        return deepcopy(self.states[key]) if key in self.states else state

    def __call__(self, state: Any) -> Any:
        """That of a key which is not told, as in a trial: the state as it is."""
        return state


def returning(ran: Any, state: Callable[[Any], Any] | None, back: Callable[[Any], Any] | None) -> Update:
    """The update to what an operator has run before; windows, or a ``ttl``, return with the function."""
    if isinstance(ran, Expiring):
        return Update(ran.function, state, back, ttl=ran.ttl)
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
        _check_ttl(operator, update)
        check_function(name, configured(operator, update), operator.key, operator.kind)
        if not operator.traits.pairs:
            _check_kept_kind(operator, update)
        elif update.state is not None:
            raise PlanError(
                f"{name!r} ({operator.kind}) keeps rows of both sides, and no state of its function; expected an "
                "update without state=..."
            )


def _check_kept_kind(operator: Operator, update: Update) -> None:
    """Refuse a function that is called in another way than the one before, or would make more rows."""
    name, new = operator.name, configured(operator, update)
    if takes_time(operator.function) is not takes_time(new):
        raise PlanError(
            f"{name!r} runs {_timing(operator.function)} and would change to {_timing(new)}; expected "
            f"{_timing(operator.function)}, since chains are formed by it"
        )
    if is_awaited(operator.function) is not is_awaited(update.function):
        was, now = ("a coroutine" if is_awaited(one) else "a plain function" for one in (
            operator.function, update.function
        ))  # fmt: skip
        raise PlanError(
            f"{name!r} runs {was} and would change to {now}; expected {was}, since workers are made for one or the "
            "other"
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
    """The new function as the operator runs it: with the update's windows or ``ttl``, if it has any."""
    if isinstance(operator.function, ConfiguredFunction):
        return replace(operator.function, function=update.function).with_setting(update.setting)
    return update.function


def _check_ttl(operator: Operator, update: Update) -> None:
    if update.ttl is None:
        return
    if not isinstance(operator.function, Expiring):
        raise PlanError(
            f"{operator.name!r} ({operator.kind}) was declared without ttl=, so the times of its keys are not known; "
            "expected an update without ttl=..."
        )
    checked_ttl(operator.name, update.ttl)


def _check_windows(operator: Operator, update: Update) -> None:
    if update.windows is None:
        return
    if isinstance(operator.function, StreamJoin):
        bounds: Bounds = operator.function.windowing
        checked_bounds(operator.name, update.windows, type(bounds))
        return
    if not isinstance(operator.function, WindowFunction) or operator.function.windowing == EACH_TIME:
        raise PlanError(f"{operator.name!r} ({operator.kind}) has no windows; expected an update without windows=...")
    checked_windowing(operator.name, update.windows)
    if isinstance(update.windows, CountWindowing) is operator.traits.timed:
        was, now = ("time", "count") if operator.traits.timed else ("count", "time")
        raise PlanError(
            f"{operator.name!r} has windows by {was} and would change to windows by {now}; expected windows by {was}, "
            "since what is below depends on when they are closed"
        )


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


@dataclass(frozen=True, repr=False)
class Lighter:
    """A change to lighter functions, made by ``lighter``."""

    updates: Mapping[str, Update]  # operator to its update

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
    """The lighter functions of a constraint, checked; ``NONE_LIGHTER`` by the policy ``tell``.

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
