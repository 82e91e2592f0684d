"""What a cell shows whose value is a run: the live view; besides, for who has no kernel or no widgets, a picture.

A saved notebook keeps the picture and not the view. So, where there is a kernel, a run is shown in an output that can
be updated, and gets the picture of its end when it has come to it. Before, the picture is that of the moment of
display: each update draws the live view anew, which would flicker.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.notebook import pictures
from fries_nb.notebook.static import dag_png
from fries_nb.notebook.statuses import status_line
from fries_nb.run import Run

if TYPE_CHECKING:
    from fries_nb.notebook.dashboard import RunView


class RunDisplay:
    """Makes MIME bundles of runs; a run that is shown again is shown in its one view.

    Args:
        shell: where they are shown.
        period_s: asked by views for the seconds until their next update.
    """

    def __init__(self, shell: InteractiveShell, period_s: Callable[[], float]) -> None:
        self._shell = shell
        self._period_s = period_s
        self._views: dict[Run, RunView] = {}
        self._outputs: dict[Run, list[str]] = {}

    def show(self, run: Run) -> None:
        """In an output of its own, whose picture is renewed when the run ends; for a shell with a kernel."""
        output = f"fries-{uuid.uuid4().hex}"
        self._outputs.setdefault(run, []).append(output)
        self._publish(run, output, update=False)

    def __call__(self, run: Run) -> dict[str, Any]:
        """Text and SVG always, PNG where Graphviz can draw it; the view where a kernel can feed one."""
        text = f"{status_line(run, run.metrics())}\nNext: %fries_plan, %fries_reconfigure, %fries_status"
        bundle = {"text/plain": text, "image/svg+xml": pictures.of_run(run)}
        if png := dag_png(run.graph):  # for what cannot draw SVG, such as an export to PDF
            bundle["image/png"] = base64.b64encode(png).decode()
        if getattr(self._shell, "kernel", None) is not None:
            bundle = {**self._view(run)._repr_mimebundle_(), **bundle}
        return bundle

    def _view(self, run: Run) -> RunView:
        from fries_nb.notebook.dashboard import RunView

        view = self._views.get(run)
        if view is None or not view.is_open:
            view = self._views[run] = RunView(run, self._shell.user_ns, self._renew, self._period_s)
        return view

    def _renew(self, run: Run) -> None:
        for output in self._outputs.get(run, ()):
            self._publish(run, output, update=True)

    def _publish(self, run: Run, output: str, update: bool) -> None:
        self._shell.display_pub.publish(self(run), transient={"display_id": output}, update=update)
