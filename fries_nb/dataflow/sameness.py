"""Whether two functions do the same: by code, closure, defaults, attributes and the globals that they name.

A cell that is run again makes new objects of the same code, so identity says nothing. Two values are the same if
nothing that can be looked at tells them apart. What cannot be looked at counts as another, and says so.

>>> def scaled(factor):
...     return lambda row: row["amount"] * factor
>>> unlike(scaled(2), scaled(2)), unlike(scaled(2), scaled(3))
(None, 'closure factor: 2 -> 3')
>>> class Model:
...     def __init__(self, window):
...         self.window = window
>>> unlike(Model(5), Model(5)), unlike(Model(5), Model(10)), unlike(Model(5), len)
(None, 'window: 5 -> 10', 'Model -> len')
>>> unlike([1, {"a": 2}], [1, {"a": 2.0}]), unlike({"a": 1}, {"b": 1}), unlike(float("nan"), float("nan"))
("item 1: 'a': 2 -> 2.0", 'keys: a -> b', None)
>>> import threading
>>> unlike(threading.Lock(), threading.Lock())
'a lock, which cannot be compared'

A function of a notebook names globals that are shipped with it, so these count, as its code does:

>>> import types
>>> here, there = {"__name__": "__main__", "LIMIT": 1}, {"__name__": "__main__", "LIMIT": 2}
>>> code = compile("lambda row: row < LIMIT", "cell", "eval").co_consts[0]
>>> unlike(types.FunctionType(code, here), types.FunctionType(code, there))
'global LIMIT: 1 -> 2'
"""

from __future__ import annotations

import functools
import math
import reprlib
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 40
_CODE = ("co_code", "co_names", "co_varnames", "co_freevars", "co_argcount", "co_kwonlyargcount", "co_posonlyargcount",
         "co_flags", "co_exceptiontable")  # fmt: skip
"""What two compiled functions are compared by, besides their constants; where they were written does not count."""
_OF_EACH_CLASS = frozenset((
    "__dict__", "__weakref__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__", "_abc_impl",
    "__abstractmethods__", "__slotnames__", "__annotations__",
))  # fmt: skip
_WITH_EQUALS = frozenset(("pandas", "pyarrow", "polars"))
"""Packages whose tables and columns tell themselves whether they are equal."""
_ELSEWHERE = frozenset(("pyspark", "py4j"))
"""Packages whose objects stand for something in another process."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def unlike(before: Any, after: Any) -> str | None:
    """The first difference between two functions, objects or tables, in words.

    Returns where they differ and how, as ``window: 5 -> 10``; ``None`` if they are the same.
    """
    try:
        return _Comparison().unlike(before, after)
    except Exception as error:  # noqa: BLE001 - whatever attributes of the user's object raise, or nested too deeply
        return f"{_incomparable(after)} ({type(error).__name__})"


def shown(value: Any) -> str:
    """A value in a few letters: the name of what has one, and otherwise its repr."""
    if isinstance(value, type):
        return value.__name__
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__).strip("<>")
    try:
        return _SHOWN.repr(value) if isinstance(value, (*_PLAIN, list, tuple, dict, set)) else type(value).__name__
    except Exception:  # noqa: BLE001 - whatever the user's repr raises, the difference is told
        return type(value).__name__


class _Comparison:
    """One comparison, which follows references that go in circles once."""

    def __init__(self) -> None:
        self._met: set[tuple[int, int]] = set()
        self._kept: list[object] = []  # so that no id is given to another object meanwhile

    def unlike(self, a: Any, b: Any) -> str | None:
        """The first difference; a pair that is being compared already counts as the same."""
        if a is b:
            return None
        pair = (id(a), id(b))
        if pair in self._met:
            return None
        self._met.add(pair)
        self._kept += (a, b)
        if isinstance(a, type) and isinstance(b, type):
            return self._classes(a, b)
        if type(a) is not type(b):
            return self._kinds(a, b)
        return self._alike(a, b)

    def _kinds(self, a: Any, b: Any) -> str | None:
        """Two values of two types, perhaps of a class that was defined twice."""
        if _PLAIN.count(type(a)) or _PLAIN.count(type(b)) or not _is_again(type(a), type(b)):
            return f"{shown(a)} -> {shown(b)}"
        return self.unlike(type(a), type(b)) or self._objects(a, b)

    def _alike(self, a: Any, b: Any) -> str | None:
        """Two values of one type."""
        match a:
            case float() if math.isnan(a) and math.isnan(b):
                return None
            case _ if isinstance(a, _PLAIN):
                return None if a == b and repr(a) == repr(b) else f"{shown(a)} -> {shown(b)}"  # 0.0 and -0.0 are two
            case FunctionType():
                return self._functions(a, b)
            case MethodType():
                return self.unlike(a.__func__, b.__func__) or self.unlike(a.__self__, b.__self__)
            case functools.partial():
                parts = {"": (a.func, b.func), "arguments": (a.args, b.args), "keywords": (a.keywords, b.keywords)}
                return self._first(parts)
            case CodeType():
                return None if self._same_code(a, b) else "its code"
            case CellType():
                return self.unlike(_held(a), _held(b))
            case dict() | list() | tuple():
                return self._containers(a, b)
            case set() | frozenset() | range() | slice():
                return None if a == b else f"{shown(a)} -> {shown(b)}"
            case ModuleType() | BuiltinFunctionType():
                same = a.__name__ == b.__name__ and getattr(a, "__self__", None) is getattr(b, "__self__", None)
                return None if same else f"{a.__name__} -> {b.__name__}"
        return self._objects(a, b)

    def _first(self, pairs: Mapping[str, tuple[Any, Any]]) -> str | None:
        """The first difference of some named pairs."""
        for name, (a, b) in pairs.items():
            if (words := self.unlike(a, b)) is not None:
                return f"{name}: {words}" if name else words
        return None

    def _functions(self, a: FunctionType, b: FunctionType) -> str | None:
        if not self._same_code(a.__code__, b.__code__):
            return "its code" if a.__name__ == b.__name__ else f"{shown(a)} -> {shown(b)}"
        cells = zip(a.__code__.co_freevars, a.__closure__ or (), b.__closure__ or (), strict=True)
        parts = {f"closure {name}": pair for name, *pair in cells} | {
            "defaults": (a.__defaults__, b.__defaults__),
            "keyword defaults": (a.__kwdefaults__, b.__kwdefaults__),
            "attributes": (a.__dict__, b.__dict__),
        }
        if _is_shipped_whole(a):
            for name in sorted(_names_of(a.__code__)):
                if name in a.__globals__ or name in b.__globals__:
                    parts[f"global {name}"] = (a.__globals__.get(name), b.__globals__.get(name))
        return self._first({name: (was, now) for name, (was, now) in parts.items()})

    def _same_code(self, a: CodeType, b: CodeType) -> bool:
        """Whether two compiled functions have the same instructions and constants."""
        if any(getattr(a, name) != getattr(b, name) for name in _CODE) or len(a.co_consts) != len(b.co_consts):
            return False
        return all(
            self._same_code(one, other) if isinstance(one, CodeType) and isinstance(other, CodeType)
            else type(one) is type(other) and self.unlike(one, other) is None
            for one, other in zip(a.co_consts, b.co_consts, strict=True)
        )  # fmt: skip

    def _classes(self, a: type, b: type) -> str | None:
        if not _is_again(a, b):
            return f"{a.__name__} -> {b.__name__}"
        own = {name for kind in (a, b) for name in vars(kind)} - _OF_EACH_CLASS
        members = {name: (vars(a).get(name), vars(b).get(name)) for name in sorted(own)}
        return self._first({"": (a.__bases__, b.__bases__)} | members)

    def _containers(self, a: Any, b: Any) -> str | None:
        if isinstance(a, dict):
            if a.keys() != b.keys():
                return f"keys: {', '.join(map(str, a.keys() - b.keys()))} -> {', '.join(map(str, b.keys() - a.keys()))}"
            return self._first({repr(key): (value, b[key]) for key, value in a.items()})
        if len(a) != len(b):
            return f"{len(a):,} -> {len(b):,} items"
        return self._first({f"item {number}": pair for number, pair in enumerate(zip(a, b, strict=True))})

    def _objects(self, a: Any, b: Any) -> str | None:
        """Objects by their attributes, tables and arrays by their values; others cannot be compared."""
        room = type(a).__module__.partition(".")[0]
        if room in _ELSEWHERE:
            return _incomparable(a)
        if room in _WITH_EQUALS and hasattr(a, "equals"):
            return None if a.equals(b) else f"another {type(a).__name__}"
        if room == "numpy" and hasattr(a, "tobytes"):
            if (a.dtype, a.shape) != (b.dtype, b.shape):
                return f"another {type(a).__name__}"
            same = a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
            return None if same else f"another {type(a).__name__}"
        attributes = {name: (_of(a, name), _of(b, name)) for name in sorted({*_attributes(a), *_attributes(b)})}
        if attributes or hasattr(a, "__dict__"):
            return self._first(attributes)
        return self._pickled(a, b)

    def _pickled(self, a: Any, b: Any) -> str | None:
        """Objects without attributes, as those of compiled modules, by what they are pickled as."""
        try:
            was, now = a.__reduce_ex__(4), b.__reduce_ex__(4)
        except Exception:  # noqa: BLE001 - a lock, a file, a connection: whatever it raises, it cannot be told
            return _incomparable(a)
        if isinstance(was, str) or isinstance(now, str):
            return None if was == now else f"{was} -> {now}"
        return self.unlike(was[1:3], now[1:3])


def _incomparable(value: Any) -> str:
    return f"a {type(value).__name__}, which cannot be compared"


_ABSENT = object()


def _of(value: Any, name: str) -> Any:
    """An attribute that an object itself holds, past properties of its class."""
    return vars(value)[name] if name in getattr(value, "__dict__", ()) else getattr(value, name, _ABSENT)


def _attributes(value: Any) -> Iterator[str]:
    """The names of what an object itself holds."""
    yield from getattr(value, "__dict__", ())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        yield from (name for name in names if name not in ("__dict__", "__weakref__") and hasattr(value, name))


def _held(cell: CellType) -> Any:
    """What a closure's cell holds; it may be empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _is_again(a: type, b: type) -> bool:
    """Whether two classes are one that was defined again, as by a cell that was run again."""
    return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def _is_shipped_whole(function: FunctionType) -> bool:
    """Whether hosts cannot import it, so that the globals that it names are shipped with it."""
    module = sys.modules.get(function.__module__ or "__main__")
    return module is None or function.__module__ == "__main__" or function.__globals__ is not vars(module)


def _names_of(code: CodeType) -> set[str]:
    """The names that a function and those inside of it look up."""
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*map(_names_of, inner))
