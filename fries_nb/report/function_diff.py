r"""The difference between two functions: of their sources, and of the attributes of objects.

Sources are those of Python's line cache: of files, of notebook cells, and of expressions of a magic. A class is found
there by its methods, since Python looks classes up in files only, and a notebook's cells are none.

>>> print(function_diff(Threshold(5), Threshold(10)))
limit: 5 -> 10
>>> print(function_diff(Threshold(5), len) or "nothing to tell")
nothing to tell
>>> text = function_diff(joined, counted)
>>> text.splitlines()[:2], "-def joined(children: Iterable[str]) -> Html:" in text
(['--- joined', '+++ counted'], True)
>>> diff_html("limit: 5 -> 10\n-old\n+new").count('<span class="')
2
"""

from __future__ import annotations

import difflib
import functools
import inspect
import linecache
import re
import reprlib
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from fries_nb.dataflow.operators import BatchFunction
from fries_nb.dataflow.windowing import WindowFunction
from fries_nb.report import theme
from fries_nb.report.markup import Html, counted, joined, tag
from fries_nb.report.theme import BLUE, ORANGE, SKY, themed

MOST_LINES = 1_000
"""Lines of a function that are compared; comparing takes time that grows faster than their number."""
MOST_SHOWN = 400
"""Lines of a difference that are shown."""
MOST_CHARS = 240
"""Letters of a line that are shown."""
_MOST_ATTRIBUTES = 100
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")

_LIGHT = {
    "": f"margin: 4px 0; padding: 8px; overflow-x: auto; font-size: 12.5px; line-height: 1.4; color: {theme.INK}; "
    f"background: {theme.BAND}; border: 1px solid {theme.LINE}; border-radius: 6px; white-space: pre",
    "span": "display: inline-block; min-width: 100%; padding-left: 4px; margin-left: -7px",
    ".added": f"background: #fdf0d2; border-left: 3px solid {ORANGE}",
    ".removed": f"background: #dcedf9; border-left: 3px solid {BLUE}",
    ".place": f"color: {theme.SOFT}; border-left: 3px solid transparent",
}
_DARK = {
    "": f"color: {theme.NIGHT_INK}; background: {theme.NIGHT_BAND}; border-color: {theme.NIGHT_LINE}",
    ".added": f"background: #4a3a10; border-left-color: {ORANGE}",
    ".removed": f"background: #173a52; border-left-color: {SKY}",
    ".place": f"color: {theme.NIGHT_SOFT}",
}
_CSS = themed(".fries-diff", _LIGHT, _DARK)
_CLASSES = {"+": "added", "-": "removed", "@": "place", " ": ""}


@dataclass(frozen=True)
class Threshold:
    """An object as an operator may run it, for the examples."""

    limit: int

    def __call__(self, row: dict[str, Any]) -> bool:
        """Whether a row's value is below the limit."""
        return bool(row["value"] < self.limit)


def function_diff(before: Any, after: Any) -> str:
    """The difference between two functions, as text of at most ``MOST_SHOWN`` lines.

    Args:
        before: the earlier function, object or table of an operator.
        after: the later one.

    Returns:
        The unified diff of their sources, if both have one; then a line ``window: 5 -> 10`` for each public attribute
        that differs between objects of the same class. Empty if neither differs, or nothing can be told.
    """
    lines = [*_sources_differ(_inner(before), _inner(after)), *_attributes_differ(before, after)]
    if len(lines) > MOST_SHOWN:
        lines[MOST_SHOWN:] = [f"... and {counted(len(lines) - MOST_SHOWN, 'more line')}"]
    return "\n".join(line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 3]}..." for line in lines)


def diff_html(text: str) -> Html:
    """A difference as markup. Colour only repeats what the letters ``+`` and ``-`` say.

    Args:
        text: what ``function_diff`` returns.
    """
    rows = [
        tag("span", line or " ", class_=kind) if (kind := _CLASSES.get(line[:1], "")) else joined([line])
        for line in text.split("\n")
    ]
    shown = [joined([row, "\n"]) for row in rows]
    return joined([Html(f"<style>{_CSS}</style>"), tag("pre", *shown, class_="fries-diff", tabindex="0")])


def _inner(value: Any) -> Any:
    """The user's function inside of what an operator runs."""
    while isinstance(value, (BatchFunction, WindowFunction, functools.partial)):
        value = value.func if isinstance(value, functools.partial) else value.function
    return value


def _sources_differ(before: Any, after: Any) -> list[str]:
    was, now = _source(before), _source(after)
    if was is None or now is None or was == now:
        return []
    cut = max(len(was), len(now)) > MOST_LINES
    found = difflib.unified_diff(was[:MOST_LINES], now[:MOST_LINES], _name(before), _name(after), lineterm="")
    return [*found, *([f"... of which the first {MOST_LINES:,} lines are compared"] if cut else [])]


def _source(value: Any) -> list[str] | None:
    """The lines of a function, or of the class of an object, without their common indentation; ``None`` without any."""
    place = _place(value)
    if place is None:
        return None
    file, first = place
    lines = linecache.getlines(file)[first : first + 2 * MOST_LINES]
    if not lines:
        return None
    try:
        block = inspect.getblock(lines)
    except (SyntaxError, tokenize.TokenError):  # a part of an expression, such as a lambda, or cut off in a string
        block = lines if len(lines) == 2 * MOST_LINES else lines[:1]
    indent = len(lines[0]) - len(lines[0].lstrip())
    return [line.rstrip()[indent if not line[:indent].strip() else 0 :] for line in block]


def _place(value: Any) -> tuple[str, int] | None:
    """The file of a source, as the line cache knows it, and the index of its first line."""
    code = getattr(inspect.unwrap(value), "__code__", None) if inspect.isroutine(value) else None
    if isinstance(code, CodeType):
        return code.co_filename, code.co_firstlineno - 1
    kind = value if isinstance(value, type) else type(value)
    codes = [inner for one in vars(kind).values() if (inner := _code_of(one)) is not None]
    for code in sorted(codes, key=lambda one: one.co_firstlineno):
        lines = linecache.getlines(code.co_filename)[: code.co_firstlineno]
        head = re.compile(rf"\s*class {re.escape(kind.__name__)}\b")
        first = next((index for index in reversed(range(len(lines))) if head.match(lines[index])), None)
        if first is not None:
            return code.co_filename, first
    return None


def _code_of(member: Any) -> CodeType | None:
    """The code of a method, where it is written in Python; that which a decorator has made is in no file."""
    function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) and linecache.getlines(code.co_filename) else None


def _attributes_differ(before: Any, after: Any) -> Iterator[str]:
    was, now = _attributes(before), _attributes(after)
    if was is None or now is None or _name(_inner(before)) != _name(_inner(after)):
        return
    for name in [*was, *(name for name in now if name not in was)][:_MOST_ATTRIBUTES]:
        old, new = (_shown(values[name]) if name in values else "(none)" for values in (was, now))
        if old != new:
            yield f"{name}: {old} -> {new}"


def _attributes(value: Any) -> Mapping[str, Any] | None:
    """The public attributes of an object, and of the one inside of it; ``None`` for functions and classes."""
    if isinstance(value, functools.partial):
        return {"args": value.args, "keywords": value.keywords}
    if isinstance(value, (BatchFunction, WindowFunction)):
        own = {name: one for name, one in vars(value).items() if name != "function" and not name.startswith("_")}
        return own | dict(_attributes(value.function) or {})
    if inspect.isroutine(value) or isinstance(value, type):
        return None
    slots = (name for kind in type(value).__mro__ for name in _names(kind.__dict__.get("__slots__", ())))
    found = {name: getattr(value, name) for name in slots if not name.startswith("_") and hasattr(value, name)}
    own = getattr(value, "__dict__", {})
    return found | {name: one for name, one in own.items() if not name.startswith("_")}


def _names(slots: str | Sequence[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _shown(value: Any) -> str:
    """A value in one short line; without addresses, which differ between processes."""
    if type(value).__module__.startswith("pyspark"):
        return type(value).__name__  # its repr may run a query
    built_in = type(value).__module__ == "builtins"
    text = _REPR.repr(value) if built_in else _REPR.repr_instance(value, 1)  # of a repr that raises the class is shown
    return _ADDRESS.sub("", " ".join(text.split()))


def _name(value: Any) -> str:
    named = value if inspect.isroutine(value) or isinstance(value, type) else type(value)
    return str(getattr(named, "__qualname__", type(value).__qualname__))


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80
_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = 12
