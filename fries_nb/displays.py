"""What shows the values that a run answers. A run stands below the rooms that draw, so it only asks here.

``fries_nb`` registers at import what draws; the drawing itself is imported when something is shown for the first time,
since hosts import ``fries_nb`` too.

>>> class Answer(Displayed):
...     pass
>>> before = use(Displays(lambda value: {"text/html": "<b>42</b>"}, lambda path, story: path))
>>> Answer()._repr_html_()
'<b>42</b>'
>>> use(before).report("page.html", None)
'page.html'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any


@dataclass(frozen=True)
class Displays:
    """How values are shown.

    Attributes:
        bundle: from a value to its display in a notebook, by media type.
        report: writes the page on a run, a ``Story``, to a file; returns the path.
    """

    bundle: Callable[[Any], dict[str, str]]
    report: Callable[[str | PathLike[str], Any], str]


_used: Displays | None = None


def use(displays: Displays) -> Displays | None:
    """Show values by these displays from now on; returns those before."""
    global _used
    before, _used = _used, displays
    return before


def used() -> Displays:
    """The displays in use."""
    assert _used is not None, "fries_nb registers its displays when it is imported"
    return _used


class Displayed:
    """A value that notebooks show as the displays in use draw it."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return used().bundle(self)

    def _repr_html_(self) -> str:
        return used().bundle(self)["text/html"]
