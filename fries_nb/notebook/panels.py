"""Panels of the live view: the frame of each, and those that are drawings.

A panel that cannot be updated says so in its frame, and the others go on. Drawings are made in Python for several
widths and shown by one script.

The page shows the widest drawing that fits; so the panel without a kernel is the same drawing. Nothing is sent while
nothing changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from fries_nb.controller.frontiers import OperatorFrontier
from fries_nb.controller.loop_states import LoopState
from fries_nb.errors import exception_text
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.static_pictures import stacked
from fries_nb.notebook.widgets import said
from fries_nb.report.frontier_rows import frontier_row, progress_svgs

WIDTHS = (360.0, 540.0, 760.0)
"""Widths of the drawings in pixels."""
_LOG = logging.getLogger("fries_nb")
_HERE = Path(__file__).parent


class PanelFrame(ipywidgets.VBox):
    """A panel and, below it, the error of its last update if there was one.

    The error is logged with its traceback, once, until the panel can be updated again.

    Args:
        name: name of the panel, for messages and as the title of its tab.
        panel: the widget.
        update: shows a moment of the run in it; called by one thread at a time.
        flex: its share of a row, as in CSS.
        while_hidden: whether it is updated while it is in a tab that is not shown.

    Attributes:
        error: the error, as shown; empty without one.
    """

    def __init__(
        self, name: str, panel: ipywidgets.Widget, update: Callable[[RunMoment], None], flex: str = "0 0 auto",
        while_hidden: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.while_hidden = while_hidden
        self.error = ipywidgets.HTML()
        self._panel = panel
        self._update = update
        self._one_at_a_time = threading.Lock()
        super().__init__([panel])
        self.layout.flex = flex
        self.layout.min_width = "0"

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run; may be called from any thread."""
        with self._one_at_a_time:
            try:
                self._update(moment)
            except Exception as error:  # noqa: BLE001 - shown in the panel's place, and logged
                self._fail(error)
            else:
                if self.error.value:
                    self.error.value, self.children = "", [self._panel]

    def _fail(self, error: Exception) -> None:
        text = said(f"{self.name} cannot be shown: {exception_text(error)}", failed=True)
        if text != self.error.value:
            # Not as an error: without a configured log that would be printed into the cell.
            _LOG.info("the panel %s of a live view cannot be updated", self.name, exc_info=error)
            self.error.value, self.children = text, [self._panel, self.error]


class DrawnPanel(anywidget.AnyWidget):
    """A panel of drawings, or of the words ``empty`` without any.

    ``drawings`` holds the drawings by width, as text since keys of JSON are.
    """

    _esm = (_HERE / "drawings.js").read_text("utf8")
    _css = (_HERE / "drawings.css").read_text("utf8")
    kind = traitlets.Unicode("fries-progress").tag(sync=True)  # its class in the page
    drawings = traitlets.Dict().tag(sync=True)
    empty = traitlets.Unicode().tag(sync=True)

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._facts: Any = ()
        self._draw: Callable[[float], list[str]] = lambda width: []
        super().__init__()
        self.layout.width = "100%"

    def draw(self, facts: Any, drawn: Callable[[float], list[str]]) -> None:
        """Draw anew, if the facts have changed; may be called from any thread.

        Args:
            facts: what is drawn, to compare.
            drawn: makes the drawings for a width.
        """
        with self._one_at_a_time:
            if facts != self._facts:
                self._facts, self._draw = facts, drawn
                self.drawings = {f"{width:g}": drawn(width) for width in WIDTHS}

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, "image/svg+xml": stacked(*self._draw(WIDTHS[-1])), "text/plain": repr(self)}, metadata


class ProgressPanel(DrawnPanel):
    """The frontier of each operator and what holds it back, and how loops go round."""

    empty = traitlets.Unicode(
        "No times and no loops are known: rows of this dataflow have no times (time=COLUMN of a source), or none was "
        "read yet, and no stream has iterate(...)."
    ).tag(sync=True)

    def show(self, frontiers: Sequence[OperatorFrontier], loops: Sequence[LoopState]) -> None:
        """Show frontiers and loops; may be called from any thread."""
        facts = (tuple(frontiers), tuple(loops))
        if any(facts) or any(self._facts):
            self.draw(facts, partial(progress_svgs, *facts))

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        self.show(moment.frontiers, moment.loops)

    def __repr__(self) -> str:
        frontiers, loops = self._facts or ((), ())
        rows = [" ".join(frontier_row(one)[:2]) for one in frontiers]
        rows += [f"{one.name} {one.phase}, {one.rounds}" for one in loops]
        return f"ProgressPanel({'; '.join(rows)})"
