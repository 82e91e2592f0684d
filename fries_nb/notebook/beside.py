"""Where the live view of a run is shown: in a panel beside the notebook, or in its cell.

A view in a cell scrolls away just when the next cell is executed, whose effect is to be seen in it. JupyterLab can
divide its page (the package ``sidecar``), and the panel stays. Notebook 7, Voila and other front ends cannot, nor can a
narrow page; there the view is in the cell, as it is until a page has said that it has room.

The kernel does not know which front end shows a cell, nor whether that has the extension for panels: its server may
have an environment of its own. So the page says so each time it draws the cell, also after a reload, which draws the
panel anew as well, since the panel's content is part of its state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets
from sidecar import Sidecar

from fries_nb.notebook.dashboard import RunView
from fries_nb.notebook.static_pictures import LIVE
from fries_nb.notebook.widgets import answer_in_subshell

_HERE = Path(__file__).parent
_SIDE = "split-right"


class PlaceLine(anywidget.AnyWidget):
    """A line that says where a view is shown, with buttons to move it; sends ``{"event": "shown", "room": ...}``."""

    _esm = (_HERE / "beside.js").read_text("utf8")
    _css = (_HERE / "beside.css").read_text("utf8")
    title = traitlets.Unicode().tag(sync=True)
    is_beside = traitlets.Bool(default_value=False).tag(sync=True)


class Panels:
    """The panels of a kernel: one for each dataflow, which shows the newest of its runs that were shown.

    ``room`` is whether the page that answered last has room, so that the next view need not move from its cell.
    """

    def __init__(self) -> None:
        self.room = False
        self._panels: dict[str, Sidecar] = {}

    def open(self, name: str, view: RunView, anew: bool = False) -> None:
        """Show a view in the panel of its dataflow; ``anew`` in a new one, since no page tells that it was closed."""
        if anew:
            self.close(name)
        panel = self._panels.get(name)
        output = {"output_type": "display_data", "data": view.mime_bundle(), "metadata": {}}
        if panel is None:
            self._panels[name] = Sidecar(title=name, anchor=_SIDE, outputs=(output,))
        elif panel.outputs != (output,):
            panel.outputs = (output,)

    def close(self, name: str) -> None:
        """Close the panel of a dataflow, if there is one."""
        if (panel := self._panels.pop(name, None)) is not None:
            panel.close()


class ViewPlace(ipywidgets.VBox):
    """What a cell shows of a run: its view, or a line that says that it is beside the notebook.

    It moves beside by itself in the first page that has room; afterwards where the user has put it.
    """

    def __init__(self, view: RunView, name: str, panels: Panels) -> None:
        self._view, self._name, self._panels = view, name, panels
        self._is_moved = False  # by the user
        self.line = PlaceLine(title=name)
        self.line.add_class(LIVE)
        self.line.on_msg(self._heard)
        super().__init__([self.line, view])
        answer_in_subshell(self)
        if panels.room:
            self._beside()

    def mime_bundle(self) -> dict[str, Any]:
        """The MIME bundle of the place alone; the static picture is a separate output."""
        return {"application/vnd.jupyter.widget-view+json": self.get_view_spec()}

    def _heard(self, _: object, content: Any, __: object) -> None:
        match content:
            case {"event": "shown", "room": bool(room)}:
                self._panels.room = room
                if not self._is_moved and room != self.line.is_beside:
                    (self._beside if room else self._here)()
            case {"event": "beside"}:
                self._is_moved = True
                self._beside(anew=True)
            case {"event": "here"}:
                self._is_moved = True
                self._here()

    def _beside(self, anew: bool = False) -> None:
        self._panels.open(self._name, self._view, anew)
        self.line.is_beside, self.children = True, [self.line]

    def _here(self) -> None:
        self._panels.close(self._name)
        self.line.is_beside, self.children = False, [self.line, self._view]
