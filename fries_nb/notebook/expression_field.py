"""A line of text whose content arrives before the clicks that follow it.

A front end holds the state of a widget back while the kernel is at work on the last one, and clicks are not held back.
So with ``ipywidgets.Text`` a kernel that is busy for half a second could see "Apply" before the last characters of the
function that is to be applied. Custom messages are never held back, and arrive in order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

_HERE = Path(__file__).parent


class ExpressionField(anywidget.AnyWidget):
    """A line for an expression; ``value`` is its text.

    Enter sends the message ``{"event": "submit"}``, as in ``ipywidgets.Text``.

    Args:
        description: the label beside it.
        placeholder: shown while it is empty.
    """

    _esm = (_HERE / "expression_field.js").read_text("utf8")
    _css = (_HERE / "expression_field.css").read_text("utf8")
    description = traitlets.Unicode().tag(sync=True)
    placeholder = traitlets.Unicode().tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)

    def __init__(self, description: str, placeholder: str = "") -> None:
        super().__init__(description=description, placeholder=placeholder)
        self.on_msg(self._receive)

    def _receive(self, _: object, content: Any, __: object) -> None:
        match content:
            case {"event": "typed", "text": str(text)}:
                self.value = text
