"""Which function each operator runs, by which change, and since when.

>>> from fries_nb.dataflow.graph import Graph, Operator
>>> versions = FunctionVersions(Graph("one", (Operator("FM", function=len),), ()), {"FM": len}, {}, since_s=100.0)
>>> versions.install("u1", {"FM": max}, at_s=160.0)
>>> versions.running()["FM"]
RunningFunction(operator='FM', function='max', version='u1', since_s=160.0)
>>> versions.restore("u1", ["FM"], at_s=163.0)
>>> versions.running()["FM"]
RunningFunction(operator='FM', function='len', version='', since_s=163.0)

Functions of replaced changes, stored on disk for later rollbacks.

A run keeps the functions of its last two changes in memory. Those of earlier changes may be models of any size, which
only a rollback, or a question about the change, needs again.

>>> updates = Shelf().put({"FM": pickle.dumps(Update(len))})
>>> list(updates), updates["FM"].function("abc")
(['FM'], 3)
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import reprlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import IO, Any

from fries_nb.dataflow.endpoints import CatalogTable, Query
from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.join_bounds import StreamJoin, described
from fries_nb.dataflow.operators import BatchFunction
from fries_nb.dataflow.tables import JoinTable
from fries_nb.dataflow.updates import Update
from fries_nb.dataflow.windowing import ConfiguredFunction
from fries_nb.protocol.checkpoints import CommittedChange

PER_FILE = 100
"""Number of changes whose functions share a file."""


class Shelf:
    """Temporary files of pickled updates. They have no name; each is deleted when no change of its is kept any more."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._room = 0

    def put(self, payloads: Mapping[str, bytes]) -> Shelved:
        """Store updates."""
        self._room -= 1
        if self._file is None or self._room < 0:
            self._room = PER_FILE - 1
            self._file = tempfile.TemporaryFile(prefix="fries-functions-")  # noqa: SIM115 - as long as the run
        places: dict[str, tuple[int, int]] = {}
        for name, payload in payloads.items():
            places[name] = (self._file.seek(0, os.SEEK_END), self._file.write(payload))
        self._file.flush()
        return Shelved(self._file, places)


class Shelved(Mapping[str, Update]):
    """Updates by operator, each unpickled on access."""

    def __init__(self, file: IO[bytes], places: Mapping[str, tuple[int, int]]) -> None:
        self._file = file
        self._places = dict(places)

    def __getitem__(self, name: str) -> Update:
        offset, length = self._places[name]
        update: Update = pickle.loads(os.pread(self._file.fileno(), length, offset))
        return update

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


VERSIONS_KEPT = 1_000
"""Number of functions of an operator that are remembered, for rollbacks by guards."""
TEXT_LENGTH = 80
"""Maximum length of the text of a function."""
_PLAIN = (bool, int, float, str, bytes, list, tuple, set, frozenset, dict, type(None))


@dataclass(frozen=True, slots=True)
class RunningFunction:
    """What an operator runs.

    Attributes:
        operator: name of the operator.
        function: its function or table as a short text, such as ``MerchantModel(window=10)`` or a function's name.
        version: id of the change that installed it; empty for the function with which the dataflow was declared. A
            rollback by ``Run.rollback`` is a change with an id; a guard restores the function of an earlier change.
        since_s: time at which the last target worker switched to it, in seconds since the Unix epoch; if that was
            before this run began, or was resumed, the beginning of the run.
    """

    operator: str
    function: str
    version: str
    since_s: float


class FunctionVersions:
    """The functions of a run's operators that can be changed; not thread-safe.

    Args:
        graph: the whole dataflow.
        ran: operator to what it runs in the beginning.
        versions: operator to the change that installed this, if any; see ``versions_of``.
        since_s: time of the beginning, in seconds since the Unix epoch.
    """

    def __init__(self, graph: Graph, ran: Mapping[str, Any], versions: Mapping[str, str], since_s: float) -> None:
        self._stacks = {
            name: [RunningFunction(name, function_text(ran[name]), versions.get(name, ""), since_s)]
            for name, operator in graph.by_name.items()
            if operator.traits.is_changeable
        }

    def go_on(self, graph: Graph, change: str, at_s: float) -> None:
        """Go on with the dataflow after a change of its shape, whose added operators run from a time on."""
        changeable = [name for name, operator in graph.by_name.items() if operator.traits.is_changeable]
        fresh = {name: function_text(graph.operator(name).function) for name in changeable if name not in self._stacks}
        added = {name: [RunningFunction(name, text, change, at_s)] for name, text in fresh.items()}
        self._stacks = {name: added.get(name) or self._stacks[name] for name in changeable}

    def install(self, change: str, functions: Mapping[str, Any], at_s: float) -> None:
        """Record that a change is done."""
        for name, function in functions.items():
            stack = self._stacks[name]
            stack.append(RunningFunction(name, function_text(function), change, at_s))
            del stack[:-VERSIONS_KEPT]

    def restore(self, change: str, operators: Iterable[str], at_s: float) -> None:
        """Record that the guard of a change has restored what these operators ran before it; see ``install``."""
        for name in operators:
            stack = self._stacks[name]
            now = stack[-1]
            stack[:] = [one for one in stack if one.version != change]
            if now.version == change:
                stack[-1] = replace(stack[-1], since_s=at_s)

    def running(self) -> dict[str, RunningFunction]:
        """Operator to what it runs now, in the order of declaration."""
        return {name: stack[-1] for name, stack in self._stacks.items()}


def versions_of(decided: Iterable[CommittedChange]) -> dict[str, str]:
    """Operator to the change whose function it runs after these changes, in order; those without one are omitted.

    >>> first = CommittedChange("u1", "fries", (), {"FM": b"code", "FC": b"code"})
    >>> second = CommittedChange("u2", "fries", (), {"FM": b"code"})
    >>> versions_of([first, second])
    {'FC': 'u1', 'FM': 'u2'}
    >>> versions_of([first, second, CommittedChange("u2.back", "fries", (), {}, undoes="u2")])
    {'FC': 'u1', 'FM': 'u1'}
    """
    versions: dict[str, str] = {}
    before: dict[str, dict[str, str]] = {}
    for one in decided:
        before[one.change] = {name: versions.get(name, "") for name in one.targets}
        versions |= dict.fromkeys(sorted(one.targets), one.change) | before.get(one.undoes, {})
    return {name: change for name, change in versions.items() if change}


def function_text(function: Any) -> str:
    """A function, object or table as a short text, as a user would recognise it.

    A function is its name, an object its class with the constructor's arguments as far as they are known, or its
    ``repr``, and otherwise its class; a table is its path, name or query, or its class.

    >>> from fractions import Fraction
    >>> function_text(len), function_text(lambda row: row), function_text(functools.partial(max, 3))
    ('len', 'lambda', 'partial of max')
    >>> function_text(Fraction(1, 3)), function_text(object())
    ('Fraction(1, 3)', 'object')
    """
    try:
        return _bounded(_text(function))
    except Exception:  # noqa: BLE001 - whatever attributes and repr of the user's object raise must not end the run
        return _bounded(type(function).__name__)


def _text(function: Any) -> str:
    if isinstance(function, StreamJoin):
        combines = "" if function.function is None else f"{_text(function.function)}, "
        return combines + described(function.windowing)
    if isinstance(function, ConfiguredFunction | BatchFunction):
        return _text(function.function)
    if isinstance(function, functools.partial):
        return f"partial of {_text(function.func)}"
    if isinstance(function, JoinTable):
        return _text(function.data)
    if isinstance(function, str | CatalogTable | Query):
        return str(function)
    if inspect.isroutine(function):
        return function.__name__.strip("<>")
    return _object_text(function)


def _object_text(given: Any) -> str:
    kind: Any = type(given)
    if is_dataclass(given):
        return _called(kind.__name__, {one.name: getattr(given, one.name, None) for one in fields(given) if one.init})
    if kind.__repr__ is not object.__repr__ and not hasattr(given, "columns"):  # a table's repr shows its rows
        return repr(given)
    code, values = getattr(kind.__init__, "__code__", None), getattr(given, "__dict__", {})
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount] if code is not None else ()
    known = {name: values[name] for name in names if name in values}
    return _called(kind.__name__, known) if known else kind.__name__


def _called(name: str, arguments: Mapping[str, Any]) -> str:
    """A call with these arguments, of which only plain values are shown."""
    shown = {one: reprlib.repr(value) if isinstance(value, _PLAIN) else "..." for one, value in arguments.items()}
    return f"{name}({', '.join(f'{one}={value}' for one, value in shown.items())})"


def _bounded(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TEXT_LENGTH else f"{text[: TEXT_LENGTH - 3]}..."
