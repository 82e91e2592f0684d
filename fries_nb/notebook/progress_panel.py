"""The panel of progress: the frontier of each operator and what holds it back, and how loops go round.

It is empty without times and loops. Drawings are made as those of latency constraints, by the same script.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from fries_nb.controller.frontiers import OperatorFrontier
from fries_nb.controller.loop_states import LoopState
from fries_nb.notebook.constraint_panel import WIDTHS
from fries_nb.notebook.static_pictures import stacked
from fries_nb.report.frontier_rows import frontier_row, progress_svgs

_HERE = Path(__file__).parent


class ProgressPanel(anywidget.AnyWidget):
    """The frontiers and loops of a run; empty without any. ``drawings`` holds the drawings by width."""

    _esm = (_HERE / "constraints.js").read_text("utf8")
    _css = (_HERE / "constraints.css").read_text("utf8")
    drawings = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._frontiers: Sequence[OperatorFrontier] = ()
        self._loops: Sequence[LoopState] = ()
        super().__init__()
        self.layout.width = "100%"

    def show(self, frontiers: Sequence[OperatorFrontier], loops: Sequence[LoopState]) -> None:
        """Show frontiers and loops; may be called from any thread. Nothing is sent while nothing changes."""
        with self._one_at_a_time:
            if (frontiers, loops) != (self._frontiers, self._loops):
                self._frontiers, self._loops = frontiers, loops
                self.drawings = {f"{width:g}": progress_svgs(frontiers, loops, width) for width in WIDTHS}

    def __repr__(self) -> str:
        rows = [" ".join(frontier_row(one)[:2]) for one in self._frontiers]
        rows += [f"{one.name} {one.phase}, {one.rounds}" for one in self._loops]
        return f"ProgressPanel({'; '.join(rows)})"

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        picture = stacked(*progress_svgs(self._frontiers, self._loops, WIDTHS[-1]))
        return {**data, "image/svg+xml": picture, "text/plain": repr(self)}, metadata
