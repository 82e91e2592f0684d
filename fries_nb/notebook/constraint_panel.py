"""The panel of latency constraints: for each one its status, the reason, and the latency of its sequence by cause.

Drawings are made in Python for two widths, and the page shows the wider one that fits; so the panel without a kernel
is the same drawing. Nothing is sent while nothing changes.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from fries_nb.constraints.judgements import ConstraintState
from fries_nb.notebook.static_pictures import stacked
from fries_nb.report.constraint_bars import constraint_svg, in_figures

WIDTHS = (440.0, 760.0)
"""Widths of the drawings in pixels."""
_HERE = Path(__file__).parent


class ConstraintPanel(anywidget.AnyWidget):
    """The latency constraints of a run; empty without any.

    ``drawings`` holds the drawings by width, as text since keys of JSON are; one for each constraint.
    """

    _esm = (_HERE / "constraints.js").read_text("utf8")
    _css = (_HERE / "constraints.css").read_text("utf8")
    drawings = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._states: Sequence[ConstraintState] = ()
        super().__init__()
        self.layout.width = "100%"

    def show(self, states: Sequence[ConstraintState]) -> None:
        """Show constraints; may be called from any thread.

        Args:
            states: the states of all constraints of the run.
        """
        with self._one_at_a_time:
            if states != self._states:
                self._states = states
                self.drawings = {f"{width:g}": [constraint_svg(one, width) for one in states] for width in WIDTHS}

    def __repr__(self) -> str:
        return f"ConstraintPanel({'; '.join(f'{one.constraint.sequence} {in_figures(one)}' for one in self._states)})"

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        picture = stacked(*(constraint_svg(one) for one in self._states))
        return {**data, "image/svg+xml": picture, "text/plain": repr(self)}, metadata
