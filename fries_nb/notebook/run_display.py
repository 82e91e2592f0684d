"""What a cell shows whose value is a run: a picture that stays, and where there is a kernel the live view.

They are two outputs of one cell, because front ends decide by a bundle's kinds alone: one that holds a view shows the
view, and where the kernel is gone an error in its place, though a picture stands beside it. So the picture is an output
of its own. Where the view is alive a rule of style hides the picture, and where it is dead it hides the error. A saved
notebook keeps the picture; it is renewed, out of sight, whenever a change has ended and when the run has. (As HTML it
would lose its drawing, and keep its letters, wherever a notebook is not trusted.)
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.notebook.function_sources import Offer, functions_for
from fries_nb.notebook.static_pictures import ONE_OF_TWO, dag_png, run_svg
from fries_nb.notebook.statuses import status_line
from fries_nb.run import Run

if TYPE_CHECKING:
    from fries_nb.notebook.dashboard import RunView


class RunDisplay:
    """Shows runs; a run that is shown again is shown in its one view.

    Args:
        shell: where they are shown.
        period_s: asked by views for the seconds until their next update.
    """

    def __init__(self, shell: InteractiveShell, period_s: Callable[[], float]) -> None:
        self._shell = shell
        self._period_s = period_s
        self._views: dict[Run, RunView] = {}
        self._outputs: dict[Run, list[str]] = {}

    def show(self, run: Run, offer: Offer | None = None) -> None:
        """Show the picture and the live view, in a shell with a kernel.

        Args:
            run: the run to show.
            offer: operator to label to function. With it the form offers these functions only, in a new view.

        Raises:
            FriesError: an operator could not run what is offered for it.
        """
        view = self._view(run) if offer is None else self._new_view(run, offer)
        output = f"fries-{uuid.uuid4().hex}"
        self._outputs.setdefault(run, []).append(output)
        self._shell.display_pub.publish({"text/html": ONE_OF_TWO})
        self._publish(run, output, update=False)
        self._shell.display_pub.publish(view.mime_bundle())

    def __call__(self, run: Run) -> dict[str, Any]:
        """The picture as a MIME bundle: text and SVG always, PNG where Graphviz can draw it."""
        text = f"{status_line(run, run.metrics())}\nNext: %fries_plan, %fries_reconfigure, %fries_status"
        bundle = {"text/plain": text, "image/svg+xml": run_svg(run)}
        if png := dag_png(run.graph):  # for what cannot draw SVG, such as an export to PDF
            bundle["image/png"] = base64.b64encode(png).decode()
        return bundle

    def _view(self, run: Run) -> RunView:
        view = self._views.get(run)
        if view is None or not view.is_open:
            view = self._views[run] = self._new_view(run, None)
        return view

    def _new_view(self, run: Run, offer: Offer | None) -> RunView:
        from fries_nb.notebook.dashboard import RunView

        source = functions_for(run.graph, self._shell.user_ns, offer)
        return RunView(run, source, self._renew, self._period_s)

    def _renew(self, run: Run) -> None:
        for output in self._outputs.get(run, ()):
            self._publish(run, output, update=True)

    def _publish(self, run: Run, output: str, update: bool) -> None:
        self._shell.display_pub.publish(self(run), transient={"display_id": output}, update=update)
