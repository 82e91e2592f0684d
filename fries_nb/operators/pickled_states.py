"""Classes and functions of the user's own modules in state, which is pickled with their names instead of their code.

Such a definition (of ``__main__``, as a script's or a notebook's, or of a module that is not installed) cannot be
imported on a host; it is shipped by value with each function that uses it. State that outlives the process is pickled
with module and qualified name, and unpickled with the definitions that were shipped with the function that will use it.
So an ``Enum`` member in state is a member of the function's class, and a method that was corrected before ``resume``
takes effect. Definitions without such a name (in a function, or a lambda) are pickled by value.

A cell with a class that is run again makes another class of the same name. State of the earlier class is converted when
a function that uses the later one meets it first (``renewed``), as a transformation of state is applied.

>>> class Total: pass
>>> class Corrected: pass
>>> note({("__main__", "Total"): Total}, [])
>>> pickled, names = dumps(Total())
>>> names, type(loads(pickled, {("__main__", "Total"): Corrected})) is Corrected
({('__main__', 'Total')}, True)

States are kept outside of a process as *parts*: each holds entries, in order, of a key and its state, both pickled
alone, so that one key can be written without the others. Of several parts the last entry of a key counts; without a
state the key has gone.

>>> first, names = part_of_states({"c7": [1], "c8": [2]})
>>> then = part_of([(key, None) for key, _ in entries_of(first)[:1]])
>>> loaded_states([first], {}), loaded_states([first, then], {})
({'c7': [1], 'c8': [2]}, {'c8': [2]})
"""

from __future__ import annotations

import enum
import importlib
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary, ref

import cloudpickle
import msgspec

from fries_nb.dataflow.keys import canonical_key
from fries_nb.errors import OperatorError, TokenError
from fries_nb.progress.tokens import Token

Name = tuple[str, str]
"""The module of a definition and its qualified name."""
Definitions = Mapping[Name, Any]
Entry = tuple[bytes, bytes | None]
"""A pickled key and its pickled state; ``None`` for a key that has gone."""

_names: WeakKeyDictionary[Any, Name] = WeakKeyDictionary()
_known: dict[Name, dict[int, ref[Any]]] = {}
_latest: WeakValueDictionary[Name, Any] = WeakValueDictionary()
_definitions: ContextVar[Definitions] = ContextVar("definitions", default={})  # noqa: B039 (never changed)
_shipped: ContextVar[dict[Name, Any] | None] = ContextVar("shipped", default=None)


def note(shipped: Definitions, former: Iterable[tuple[Name, Any]]) -> None:
    """Note the definitions that came with a function."""
    for name, value in (*former, *shipped.items()):
        if value.__qualname__ == name[1]:  # not what is found under another name, as for a class that was renamed
            _names[value] = name
        _known.setdefault(name, {})[id(value)] = ref(value)
    _latest.update(shipped)
    if (gathering := _shipped.get()) is not None:
        gathering.update(shipped)


@contextmanager
def gathered() -> Iterator[dict[Name, Any]]:
    """A block in which functions are unpickled; gives the definitions that come with them."""
    before, shipped = _shipped.get(), dict[Name, Any]()
    token = _shipped.set(shipped)
    try:
        yield shipped
    finally:
        _shipped.reset(token)
        if before is not None:
            before.update(shipped)


@dataclass(frozen=True, eq=False)
class Recipe:
    """Makes instances of a function."""

    load: Callable[[], Any]  # unpickles the function, each time a new one
    definitions: Definitions  # the definitions that came with it

    def __call__(self) -> Any:
        """A new instance of the function, not opened; raises whatever unpickling raises."""
        return self.load()


def definitions_of(recipe: object) -> Definitions:
    """The definitions that came with a function; none for one that was not shipped."""
    return recipe.definitions if isinstance(recipe, Recipe) else {}


class _ByValue(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle's pickler, which can pickle all enumerations."""

    def reducer_override(self, value: Any) -> Any:
        return with_aliases(value, super().reducer_override(value))


class _ByName(_ByValue):
    """Writes the names of definitions that came with a function."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.names: set[Name] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType) and (name := _names.get(value)) is not None:
            self._note(name, value)
            return _found, name
        return super().reducer_override(value)

    def _note(self, name: Name, value: Any) -> None:
        self.names.add(name)


class NameClash(Exception):
    """A definition has the name of another one that was pickled before."""


class _ByExactName(_ByName):
    """Notes the definitions with their names; raises a ``NameClash`` for another one of a name.

    A token is refused, since one that no state in memory refers to counts as lost.
    """

    def __init__(self, file: io.BytesIO, definitions: dict[Name, Any]) -> None:
        super().__init__(file)
        self._definitions = definitions

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Token):
            raise TokenError("it holds a token")
        return super().reducer_override(value)

    def _note(self, name: Name, value: Any) -> None:
        if self._definitions.setdefault(name, value) is not value:
            raise NameClash(name)


def with_aliases(value: Any, reduced: Any) -> Any:
    """How cloudpickle pickles a value, but an ``Enum`` with its aliases, without which 3.1 cannot unpickle it."""
    if not isinstance(value, enum.EnumMeta) or not isinstance(reduced, tuple) or len(reduced) != 6:
        return reduced
    make, (bases, name, qualified, _, *rest), (held, slots), *end = reduced
    named: Mapping[str, enum.Enum] = value.__members__
    members = {one: member.value for one, member in named.items()}
    kept = {attribute: content for attribute, content in held.items() if attribute not in members}
    return (make, (bases, name, qualified, members, *rest), (kept, slots), *end)


def dumps(state: Any) -> tuple[bytes, set[Name]]:
    """Pickle state for ``loads`` in any process; also returns the definitions that it needs."""
    file = io.BytesIO()
    pickler = _ByName(file)
    pickler.dump(state)
    return file.getvalue(), pickler.names


class Pickles:
    """Values that are pickled one after the other, as by ``dumps``; for ``loads`` of each.

    Attributes:
        ends: where each of them ends.
    """

    def __init__(self) -> None:
        self.ends: list[int] = []
        self._file = io.BytesIO()
        self._pickler = self._pickler_of(self._file)

    def _pickler_of(self, file: io.BytesIO) -> _ByName:
        return _ByName(file)

    def __len__(self) -> int:
        return self._file.tell()

    def add(self, value: Any) -> None:
        """Pickle a value; raises whatever pickling raises, and is as before then."""
        start = len(self)
        try:
            self._pickler.dump(value)
        except BaseException:
            self._file.truncate(self._file.seek(start))
            raise
        finally:
            self._pickler.clear_memo()
        self.ends.append(len(self))

    def take(self, value: Any) -> bytes:
        """Pickle a value, which is not added, by itself; raises whatever pickling raises."""
        start = len(self)
        try:
            self._pickler.dump(value)
            self._file.seek(start)
            return self._file.read()
        finally:
            self._file.truncate(self._file.seek(start))
            self._pickler.clear_memo()

    @property
    def names(self) -> set[Name]:
        """The definitions that they need."""
        return self._pickler.names

    @property
    def content(self) -> bytes:
        """All of them."""
        return self._file.getvalue()


class ExactPickles(Pickles):
    """Values that are pickled for this process, to have the very definitions that they have now.

    Args:
        definitions: the definitions that they need; those that are needed are added.
    """

    def __init__(self, definitions: dict[Name, Any]) -> None:
        self._definitions = definitions
        super().__init__()

    def _pickler_of(self, file: io.BytesIO) -> _ByName:
        return _ByExactName(file, self._definitions)


def copied(state: Any) -> bytes:
    """Pickle state for ``pickle.loads`` on the hosts of this run, which know its definitions."""
    file = io.BytesIO()
    _ByValue(file).dump(state)
    return file.getvalue()


def loads(pickled: bytes, definitions: Definitions) -> Any:
    """Unpickle state."""
    token = _definitions.set(definitions)
    try:
        return pickle.loads(pickled)
    finally:
        _definitions.reset(token)


_entries = msgspec.msgpack.Decoder(list[Entry])
_SHORT_ARRAY = 0x90
_ARRAYS = {0xDC: 2, 0xDD: 4}
"""How longer arrays begin in msgpack, and the number of bytes of their length."""


def part_of(entries: Sequence[tuple[bytes | None, bytes | None]]) -> bytes:
    """These entries as a part."""
    return msgspec.msgpack.encode(entries)


def entries_of(part: bytes) -> list[Entry]:
    """The entries of a part; raises a ``msgspec.MsgspecError`` if it is none."""
    return _entries.decode(part)


def entry_count(part: bytes) -> int:
    """The number of entries of a part, from its first bytes; raises a ``ValueError`` if it is none."""
    first = part[0] if part else 0
    if first & 0xF0 == _SHORT_ARRAY:
        return first & 0x0F
    if first not in _ARRAYS:
        raise ValueError("it is no part of states")
    return int.from_bytes(part[1 : 1 + _ARRAYS[first]], "big")


def merged_parts(parts: Iterable[bytes], with_gone: bool) -> tuple[bytes, int]:
    """These parts, the oldest first, as one in which each key is once, without those that have gone if so wanted.

    States stay pickled; keys, which are plain values, are unpickled, since equal ones may be pickled differently. Also
    returns the number of entries.
    """
    last: dict[Any, Entry] = {}
    for part in parts:
        for entry in entries_of(part):
            last[canonical_key(pickle.loads(entry[0]))] = entry
    entries = [entry for entry in last.values() if with_gone or entry[1] is not None]
    return part_of(entries), len(entries)


def part_of_states(states: Mapping[Any, Any]) -> tuple[bytes, set[Name]]:
    """States by key as a part; also returns the definitions that they need."""
    pickles = Pickles()
    entries = [(pickles.take(key), pickles.take(state)) for key, state in states.items()]
    return part_of(entries), pickles.names


def loaded_states(parts: Iterable[bytes], definitions: Definitions) -> dict[Any, Any]:
    """The states by canonical key that these parts hold together, the oldest first; raises what unpickling raises."""
    token, states = _definitions.set(definitions), dict[Any, Any]()
    try:
        for part in parts:
            for pickled, state in entries_of(part):
                key = canonical_key(pickle.loads(pickled))
                if state is None:
                    states.pop(key, None)
                else:
                    states[key] = pickle.loads(state)
    finally:
        _definitions.reset(token)
    return states


def _found(module: str, qualified: str) -> Any:
    name = (module, qualified)
    for definitions in (_definitions.get(), _latest):
        if name in definitions:
            return definitions[name]
    if (found := imported(name)) is None:
        raise OperatorError(f"it holds {gone(name)}")
    return found


def gone(name: Name) -> str:
    """The words for a definition that is not there any more."""
    module, qualified = name
    return (
        f"{qualified} of {module}, which is not defined there any more; define it under this name "
        "(its methods may be corrected)"
    )


def imported(name: Name) -> Any:
    """The class or function with this name in this process; ``None`` if there is none."""
    module, qualified = name
    try:
        found = reduce(getattr, qualified.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError):
        return None
    return found if isinstance(found, type | FunctionType) else None


@dataclass(frozen=True, eq=False)
class Renewed:
    """A transformation of state: to these definitions of its classes, and then by the user's transformation."""

    definitions: Definitions
    then: Callable[[Any], Any] | None

    def __call__(self, state: Any) -> Any:
        """The transformed state."""
        state = loads(dumps(state)[0], self.definitions)
        return state if self.then is None else self.then(state)


def renewed(definitions: Definitions, then: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """A transformation to these definitions if there have been others of the same names, followed by the user's."""
    for name, value in definitions.items():
        if any(one() not in (None, value) for one in list(_known.get(name, {}).values())):
            return Renewed(definitions, then)
    return then
