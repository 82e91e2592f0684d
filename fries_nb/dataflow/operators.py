"""The shape of user functions, determined by inspecting them.

An operator runs a function of a row, a function of an Arrow batch (marked with ``batched``), or an object whose
``process`` is called with each row and, if it has a second parameter, the state of the row's key. With a third one it
is *timed*: it gets what it needs to work by the time of rows. This determines how it is called (``Shape``) and how many
tuples it may emit (``Emits``).

>>> def double(row):
...     return row | {"amount": row["amount"] * 2}
>>> def words(row):
...     yield from ({"word": word} for word in row["text"].split())
>>> print(shape_of(double), emits_of(Kind.MAP, double), emits_of(Kind.MAP, words))
row one_to_one one_to_many
>>> print(shape_of(batched(lambda batch: batch)))
batch
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from fries_nb.dataflow.expiring import Expiring
from fries_nb.dataflow.join_bounds import StreamJoin
from fries_nb.dataflow.keys import why_unchangeable
from fries_nb.dataflow.traits import TRAITS, Emits, Kind, OperatorTraits, Returns
from fries_nb.dataflow.windowing import ConfiguredFunction, WindowFunction, check_merging
from fries_nb.errors import DataflowError

if TYPE_CHECKING:
    from fries_nb.dataflow.graph import Operator

BATCHED = "__fries_batched__"
"""Attribute that marks a function of an Arrow batch."""


class Shape(StrEnum):
    """How a function is called: with a row, with an Arrow batch, or by ``process`` with a row and its key's state."""

    ROW = "row"
    BATCH = "batch"
    KEYED = "keyed"


class BatchFunction:
    """A plain function that is marked as vectorised.

    The mark is a wrapper, because an attribute of the function would be lost: a function that a host can import is
    pickled by its name.
    """

    __fries_batched__ = True

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the marked function."""
        return self.function(*given, **named)

    def __get__(self, instance: object, owner: type | None = None) -> BatchFunction:
        """Bind a marked method; the bound method remains marked."""
        return self if instance is None else BatchFunction(types.MethodType(self.function, instance))


def batched(function: Any) -> Any:
    """Mark a function as vectorised: it takes an Arrow record batch and returns one, instead of a row.

    Args:
        function: a function, a callable object, or a class whose instances are callable.

    Returns:
        The same object, marked; a plain function is wrapped.

    Raises:
        DataflowError: ``function`` is not callable.
    """
    if not callable(function):
        raise DataflowError(f"@batched marks a function of an Arrow batch; got {function!r}")
    if inspect.isroutine(function) or isinstance(function, functools.partial):
        return BatchFunction(function)
    setattr(function, BATCHED, True)
    return function


def shape_of(function: object) -> Shape:
    """How a function is called."""
    if function is None:
        raise DataflowError("no function was given; expected one of a row, or an object with process(row, state)")
    if inspect.isclass(function) and _is_called_by_instance(function):
        raise DataflowError(f"got the class {function.__name__}; expected an instance of it, {function.__name__}(...)")
    if _is_batched(function) and callable(function):
        return Shape.BATCH
    if callable(getattr(function, "process", None)):
        return Shape.KEYED
    if callable(function):
        return Shape.ROW
    raise DataflowError(
        f"got {_shown(function)}, which cannot be called; expected a function of a row, or an object with "
        "process(row, state)"
    )


def takes_state(function: object) -> bool:
    """Whether it is an object whose ``process`` takes the state of the row's key, as ``process(row, state)``."""
    if shape_of(function) is not Shape.KEYED:
        return False
    parameters = _parameters(_called(function))
    return parameters is None or _most_positional(parameters) >= 2


def takes_time(function: object) -> bool:
    """Whether its ``process`` takes what works by time, as ``process(row, state, at)``, or its keys end by time."""
    if isinstance(function, Expiring):
        return True
    if shape_of(function) is not Shape.KEYED:
        return False
    third = _positional(_parameters(_called(function)) or [])[2:3]
    return bool(third) and (third[0].default is inspect.Parameter.empty or third[0].name == "at")


def is_timed(operator: Operator) -> bool:
    """Whether the operator works by the time of rows: by its kind, or since its function takes ``at``."""
    traits = operator.traits
    return traits.timed or (traits.runs_user_code and operator.function is not None and takes_time(operator.function))


TIMED_NUMBERS = 1 << 12
"""The number of numbers of timed operators; see ``timed_number``."""


def timed_number(operator: str) -> int:
    """The number of a timed operator in its origins, by its name, so that no change of the shape alters it."""
    return int.from_bytes(blake2b(operator.encode(), digest_size=2).digest(), "big") % TIMED_NUMBERS


def same_origins(timed: Iterable[str]) -> str:
    """Why these operators cannot be in one dataflow, since two of them have the same number; empty if they can.

    >>> same_origins(["W", "M"]), same_origins(f"W{number}" for number in range(200)).partition(" have")[0]
    ('', 'W46 and W81')
    """
    found: dict[int, str] = {}
    for name in timed:
        if (other := found.setdefault(timed_number(name), name)) != name:
            return f"{other} and {name} have one number, by their names, in the identities of what time brings out"
    return ""


def emits_of(kind: Kind, function: object) -> Emits:
    """How many tuples an operator of this kind with this function may emit for one tuple."""
    # A generator function is one-to-many in a map as well. Otherwise the kind determines it, and the worker reports an
    # operator that violates it.
    traits = TRAITS[kind]
    is_many = traits.runs_user_code and traits.returns is Returns.ROW and is_generator(function)
    return Emits.ONE_TO_MANY if is_many else traits.emits


def is_generator(function: object) -> bool:
    """Whether calling it yields rows instead of returning one."""
    return inspect.isgeneratorfunction(_called(function))


def check_function(name: str, function: object, key: tuple[str, ...], kind: Kind = Kind.MAP) -> None:
    """Refuse a function that operator ``name`` cannot run."""
    traits = TRAITS[kind]
    if isinstance(function, StreamJoin):
        _check_pair_function(name, function.function)
        return
    try:
        shape = shape_of(_user_object(function))
    except DataflowError as error:
        raise DataflowError(f"operator {name!r}: {error}") from None
    _check_initial_state(name, _user_object(function))
    if traits.timed or isinstance(function, WindowFunction):
        _check_window_function(name, function, kind)
        check_merging(name, function)
        return
    if isinstance(function, Expiring):
        function = function.function
        _check_expiring(name, function)
    _check_awaited(name, function, kind)
    if takes_state(function) and not key:
        raise DataflowError(
            f"operator {name!r} keeps state per key, since its process takes (row, state), but has no key; "
            "expected key=<column>"
        )
    if traits.returns is Returns.ANSWER and is_generator(function):
        raise DataflowError(f"{kind} {name!r} got a generator function; expected one that returns its answer")
    if shape is Shape.BATCH and not traits.batched:
        one = "router" if traits.routes else "function"
        raise DataflowError(f"{kind} {name!r} got a function of a batch; expected a {one} of one row")
    given = 3 if takes_time(function) else 2 if takes_state(function) else 1
    if given == 3:
        _check_timed_methods(name, function, traits)
    parameters = _parameters(_called(function))
    if parameters is not None and not _accepts(parameters, given):
        what = {
            Shape.ROW: "(row)", Shape.BATCH: "(batch)", Shape.KEYED: "(row), (row, state) or (row, state, at)"
        }[shape]  # fmt: skip
        raise DataflowError(
            f"operator {name!r}: its function takes {len(parameters)} parameters; expected one to be called with {what}"
        )


def _check_initial_state(name: str, given: object) -> None:
    """Refuse an object with a state in place of what makes one, which all keys would share, or whose states are fixed.

    It is called once, to try it. One that fails is tried again for the first key: it may need what ``open`` loads.
    """
    made = getattr(given, "initial_state", None)
    if made is not None and not callable(made):
        raise DataflowError(
            f"operator {name!r}: its initial_state is {made!r}; expected a method that makes a state, as in "
            "def initial_state(self)"
        )
    if made is None or not takes_state(given):
        return
    try:
        why = why_unchangeable(made())
    except (Exception, SystemExit):  # noqa: BLE001 (the user's code, which is called again when it must succeed)
        return
    if why:
        raise DataflowError(f"operator {name!r}: its initial_state() returns {why}")


def _check_window_function(name: str, function: Any, kind: Kind) -> None:
    """Refuse a function that a window or a reduce cannot run."""
    given = _user_object(function)
    expected = "expected an object with process(row, state) and close(key, time, state)"
    if shape_of(given) is not Shape.KEYED:
        what = "a function of a batch" if shape_of(given) is Shape.BATCH else "a function of a row"
        raise DataflowError(f"{kind} {name!r} got {what}; {expected}")
    _check_method(name, given, "process", "(row, state)")
    if not callable(getattr(given, "close", None)):
        raise DataflowError(f"{kind} {name!r} got a {type(given).__name__}, which has no close(); {expected}")
    _check_method(name, given, "close", "(key, time, state)")
    if callable(getattr(given, "merge", None)):
        _check_method(name, given, "merge", "(state, other)")
    if is_generator(given) and not getattr(function, "early", False):
        raise DataflowError(
            f"{kind} {name!r}: its process is a generator, which yields rows before the result; expected one that "
            "returns None, or a window with early=True"
        )


def _check_pair_function(name: str, function: Any) -> None:
    """Refuse a function that a join of two streams cannot call with the two rows of a pair; it may have none."""
    expected = "expected a function of the two rows of a pair, as in lambda left, right: {**left, **right}"
    if function is None:
        return
    if inspect.isclass(function) or not callable(function):
        raise DataflowError(f"operator {name!r} got {_shown(function)} as its function; {expected}")
    if _is_batched(function) or is_awaited(function) or callable(getattr(function, "process", None)):
        what = "a function of a batch" if _is_batched(function) else "an object with process()"
        what = "an async function" if is_awaited(function) else what
        raise DataflowError(f"operator {name!r} got {what} as its function; {expected}")
    parameters = _parameters(_called(function))
    if parameters is not None and not _accepts(parameters, 2):
        raise DataflowError(f"operator {name!r}: its function takes {len(parameters)} parameters; {expected}")


def _check_timed_methods(name: str, function: Any, traits: OperatorTraits) -> None:
    """Refuse a timed function whose ``due`` or ``reached`` cannot be called, or at a kind that has no timed ones."""
    if traits.returns is Returns.ANSWER:
        raise DataflowError(f"operator {name!r} got a timed function, with process(row, state, at); expected map")
    for method, what in (("due", "(key, time, state)"), ("reached", "(frontier, state, out)")):
        found = getattr(function, method, None)
        if found is not None and not callable(found):
            raise DataflowError(f"operator {name!r}: its {method} is {found!r}; expected a method {method}{what}")
        if found is not None:
            _check_method(name, function, method, what)
        if inspect.isgeneratorfunction(found) and method == "reached":
            raise DataflowError(
                f"operator {name!r}: its reached is a generator, and its rows would be lost; expected one that sends "
                "them with out.give(token, rows)"
            )


def _check_expiring(name: str, function: Any) -> None:
    """Refuse a function without a state that could end, or one that would have to wait or works by time itself."""
    expected = "expected an object with process(row, state)"
    if not takes_state(function):
        raise DataflowError(
            f"operator {name!r} has ttl=, after which the state of a key is forgotten, and its function keeps none; "
            f"{expected}"
        )
    if takes_time(function):
        raise DataflowError(
            f"operator {name!r} has ttl= and a timed function, which can end its keys itself with at.call(); {expected}"
        )
    if is_awaited(function):
        raise DataflowError(
            f"operator {name!r} has ttl= and an async process, but time would pass while it waits; {expected}, behind "
            "a map that awaits the service"
        )
    ended = getattr(function, "on_expire", None)
    if ended is not None and not callable(ended):
        raise DataflowError(f"operator {name!r}: its on_expire is {ended!r}; expected a method on_expire(key, state)")
    if ended is not None:
        _check_method(name, function, "on_expire", "(key, state)")


def _check_method(name: str, function: Any, method: str, what: str) -> None:
    """Refuse a method that cannot be called with these parameters, or is awaited."""
    called = getattr(function, method)
    parameters, given = _parameters(called), what.count(",") + 1
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise DataflowError(f"operator {name!r}: its {method} is async, which nothing awaits; expected a plain one")
    if parameters is not None and not _accepts(parameters, given):
        raise DataflowError(
            f"operator {name!r}: its {method} takes {len(parameters)} parameters; expected one to be called with {what}"
        )


def _user_object(function: Any) -> Any:
    return function.function if isinstance(function, ConfiguredFunction) else function


def _is_called_by_instance(given: type) -> bool:
    """Whether instances of the class are callable (unlike those of ``dict`` or ``bool``, which convert a row)."""
    return callable(getattr(given, "process", None)) or any("__call__" in vars(base) for base in given.__mro__)


def _is_batched(function: object) -> bool:
    """Whether it is marked, or the function of a partial is."""
    while isinstance(function, functools.partial):
        function = function.func
    return bool(getattr(function, BATCHED, False))


def is_awaited(function: object) -> bool:
    """Whether it is a coroutine function, or an object whose ``process`` is one, so that its calls may overlap."""
    given = None if function is None else _user_object(function)  # a join of two streams may have none
    return given is not None and inspect.iscoroutinefunction(_called(given))


def _check_awaited(name: str, function: Any, kind: Kind) -> None:
    """Refuse a coroutine where none is awaited, and an asynchronous generator, whose rows have no end to wait for."""
    if inspect.isasyncgenfunction(_called(function)):
        raise DataflowError(
            f"operator {name!r} got an async generator, which nothing iterates over; expected a coroutine that returns "
            "its rows, as in flat_map with async def process(self, row): return rows"
        )
    if not is_awaited(function):
        if inspect.iscoroutinefunction(getattr(function, "open", None)):
            raise DataflowError(
                f"operator {name!r}: its open is async and its process is not, so nothing awaits it; expected both "
                "async, or both plain"
            )
        return
    if shape_of(function) is Shape.BATCH:
        raise DataflowError(
            f"operator {name!r} got an async function of a batch, which nothing awaits; expected a coroutine of one "
            "row, of which many are in flight with concurrency="
        )
    if not TRAITS[kind].awaits:
        raise DataflowError(
            f"{kind} {name!r} got an async function, which nothing awaits; expected a plain one, behind a map that "
            "awaits the service"
        )
    if takes_time(function):
        raise DataflowError(
            f"operator {name!r} got an async process(row, state, at), but time would pass while it waits; expected "
            "process(row) or process(row, state)"
        )


def _called(function: Any) -> Any:
    """The function or method that is called for a row or a batch."""
    if isinstance(function, BatchFunction):
        return function.function
    if shape_of(function) is Shape.KEYED:
        return function.process
    is_plain = inspect.isroutine(function) or inspect.isclass(function) or isinstance(function, functools.partial)
    return function if is_plain else function.__call__


def _parameters(function: Any) -> list[inspect.Parameter] | None:
    """The parameters, or ``None`` if Python does not know them (some built-in functions)."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _positional(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in parameters if parameter.kind in kinds]


def _most_positional(parameters: list[inspect.Parameter]) -> int:
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return max(2, len(_positional(parameters)))
    return len(_positional(parameters))


def _accepts(parameters: list[inspect.Parameter], given: int) -> bool:
    needed = sum(parameter.default is inspect.Parameter.empty for parameter in _positional(parameters))
    keyword_only = any(
        parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is inspect.Parameter.empty
        for parameter in parameters
    )
    return needed <= given <= _most_positional(parameters) and not keyword_only


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
