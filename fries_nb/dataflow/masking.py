"""Values that are not to be shown: those of the columns that ``run(..., hide=["CARD_NO"])`` names.

They are masked wherever the package shows values: in tables, in the rows that errors and pauses name, in reports and
notebooks, which are made of these. What functions get, what sinks write, and what a method returns has them.

>>> masked({"CARD_NO": 4000123, "amount": 7, "last": [{"CARD_NO": 4000123}]}, {"CARD_NO"})
{'CARD_NO': '•••', 'amount': 7, 'last': [{'CARD_NO': '•••'}]}
>>> masked_text("no card '4000-1' of row 4000", {"CARD_NO": "4000-1", "amount": 7}, {"CARD_NO"})
'no card ••• of row 4000'
>>> checked_hide("CARD_NO")
Traceback (most recent call last):
...
fries_nb.errors.DataflowError: hide='CARD_NO'; expected names of columns in a list, as in hide=['CARD_NO']
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from fries_nb.errors import DataflowError

MASK = "•••"
"""In place of a value that is not to be shown."""


def checked_hide(hide: Iterable[str]) -> frozenset[str]:
    """The columns that are not to be shown. Whether any operator has them is not known before its rows are.

    Raises:
        DataflowError: they are no names in a list.
    """
    if isinstance(hide, str) or not isinstance(hide, Iterable):
        example = hide if isinstance(hide, str) else "CARD_NO"
        raise DataflowError(f"hide={hide!r}; expected names of columns in a list, as in hide=[{example!r}]")
    names = [*hide]
    for name in names:
        if not isinstance(name, str) or not name:
            raise DataflowError(f"hide= has {name!r}; expected names of columns, as in hide=['CARD_NO']")
    return frozenset(names)


def masked(value: Any, hide: Collection[str]) -> Any:
    """A value with a mask in place of what is named so in it, at any depth; the same object if nothing is hidden."""
    if not hide:
        return value
    if (fields := _named(value)) is not None:
        return {name: _masked_field(name, inner, hide) for name, inner in fields.items()}
    if isinstance(value, list | tuple):
        inside = [masked(inner, hide) for inner in value]
        return inside if isinstance(value, list) else tuple(inside)
    return value


def masked_text(text: str, values: Mapping[str, Any], hide: Collection[str]) -> str:
    """A text with a mask in place of each hidden one of these values that it mentions, as a word of its own."""
    for value in _hidden(values, hide):
        for form in sorted({repr(value), str(value)} - {""}, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    return text


def _masked_field(name: Any, value: Any, hide: Collection[str]) -> Any:
    return MASK if name in hide and value is not None else masked(value, hide)


def _hidden(value: Any, hide: Collection[str]) -> Iterator[Any]:
    """The hidden values in a value."""
    if (fields := _named(value)) is not None:
        for name, inner in fields.items():
            if name not in hide:
                yield from _hidden(inner, hide)
            elif inner is not None:
                yield inner
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _hidden(inner, hide)


def _named(value: Any) -> Mapping[Any, Any] | None:
    """The parts of a value that have names."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else None
