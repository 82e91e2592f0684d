"""A line of a form, to type in or to choose from, whose content arrives before the clicks that follow it.

A front end holds the state of a widget back while the kernel is at work on the last one, and clicks are not held back.
So with ``ipywidgets.Text`` or ``Dropdown`` a kernel that is busy for half a second could see "Apply" before the last
characters of the function that is to be applied. Custom messages are never held back, and arrive in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

_HERE = Path(__file__).parent


class EntryField(anywidget.AnyWidget):
    """A line for text, or a list to choose from; ``value`` is what it shows.

    Enter in a line for text sends the message ``{"event": "submit"}``, as in ``ipywidgets.Text``. What a page sends is
    not checked against the options.

    Args:
        description: the label beside it.
        placeholder: shown while it is empty; a list without one cannot be empty.
        options: what can be chosen; none for a line of text.
        value: what it shows at first; by default nothing, or the first option.
        tooltip: shown while the pointer is over it.
        kind: type of a line in HTML: "text", or "number", with arrows; a page sends no text for what is no number.
    """

    _esm = (_HERE / "entry_field.js").read_text("utf8")
    _css = (_HERE / "entry_field.css").read_text("utf8")
    description = traitlets.Unicode().tag(sync=True)
    placeholder = traitlets.Unicode().tag(sync=True)
    options = traitlets.List(traitlets.Unicode()).tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)
    tooltip = traitlets.Unicode().tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        description: str,
        placeholder: str = "",
        options: Sequence[str] = (),
        value: str = "",
        tooltip: str = "",
        kind: str = "text",
    ) -> None:
        first = options[0] if options and not placeholder else ""
        super().__init__(
            description=description,
            placeholder=placeholder,
            options=list(options),
            value=value or first,
            tooltip=tooltip,
            kind=kind,
        )
        self.on_msg(self._receive)

    def _receive(self, _: object, content: Any, __: object) -> None:
        match content:
            case {"event": "entered", "text": str(text)}:
                self.value = text
