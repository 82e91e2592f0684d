"""What shows values and long calls. A run stands below the rooms that draw, so it only asks here.

``fries_nb`` registers at import what draws; the drawing itself is imported when something is shown for the first time,
since hosts import ``fries_nb`` too.

>>> class Answer(Displayed):
...     pass
>>> before = use(Displays(lambda value: {"text/html": "<b>42</b>"}, lambda path, story: path))
>>> Answer()._repr_html_()
'<b>42</b>'
>>> use(before).report("page.html", None)
'page.html'

Calls that take many seconds say what they do; a notebook shows that while they last, other programs show nothing.

The library knows no notebook: its extension registers a display here. Of calls within calls the outermost is shown.

>>> from contextlib import contextmanager
>>> @contextmanager
... def printed(what):
...     print(what)
...     yield lambda step: print(f"{what}: {step}")
>>> show_with(printed)
>>> with progress_of("comparing 2 schedulers") as say:
...     with progress_of("a call inside of it"):
...         say("epoch: surge")
comparing 2 schedulers
comparing 2 schedulers: epoch: surge
>>> show_with(None)
>>> with progress_of("comparing 2 schedulers") as say:
...     say("epoch: surge")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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


Say = Callable[[str], object]
"""Shows what a long call does now, in place of what it did before."""
Display = Callable[[str], AbstractContextManager[Say]]
_displays: list[Display] = []
_shown: list[str] = []
"""The call that is shown, outermost; calls inside of it are parts of it and are not shown."""


def show_with(display: Display | None) -> None:
    """Show long calls from now on; called by the notebook's extension.

    Args:
        display: shows one call, whose name it is given; ``None`` for no display.
    """
    _displays[:] = [] if display is None else [display]


@contextmanager
def progress_of(what: str) -> Iterator[Say]:
    """Show a long call while the block is executed, if there is a display.

    Args:
        what: the call in a few words, as in "comparing 2 schedulers".

    Yields:
        A function that is called with each step.
    """
    # A cell is executed by the main thread; calls in other threads are part of something that is shown already.
    if not _displays or _shown or threading.current_thread() is not threading.main_thread():
        yield lambda step: None
        return
    _shown.append(what)
    try:
        with _displays[0](what) as say:
            yield say
    finally:
        _shown.clear()
