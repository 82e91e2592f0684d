"""The display of a run as a cell's value: a static picture and, where there is a kernel, the live view.

The two are separate outputs of the cell. A front end chooses among the MIME types of one bundle without regard to the
kernel: from a bundle that contains a view it would show the view, and an error once the kernel is gone, instead of the
picture. As separate outputs, a style rule hides the picture while the view is alive, and hides the error when it is
not. A saved notebook keeps the picture, which is updated whenever a change or a rescale has ended, and when the run
has. (As HTML the picture would lose its shapes and keep its text wherever a notebook is not trusted.)
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.notebook.cell_outputs import CellOutput
from fries_nb.notebook.form import Offer, functions_for
from fries_nb.notebook.static_pictures import ONE_OF_TWO, dag_png, run_svg
from fries_nb.notebook.statuses import status_line
from fries_nb.run import Run

if TYPE_CHECKING:
    from fries_nb.notebook.dashboard import RunView


class RunDisplay:
    """Shows runs; a run that is shown several times has one live view, updated every ``period_s()`` seconds."""

    def __init__(self, shell: InteractiveShell, period_s: Callable[[], float]) -> None:
        self._shell = shell
        self._period_s = period_s
        self._views: dict[Run, RunView] = {}
        self._outputs: dict[Run, list[CellOutput]] = {}

    def show(self, run: Run, offer: Offer | None = None) -> None:
        """Publish the picture and the live view in the cell that is being executed; needs a kernel.

        With an offer (operator to label to function) the form offers these functions only, in a new view.

        Raises:
            FriesError: an operator cannot run a function that is offered for it.
        """
        view = self._view(run) if offer is None else self._new_view(run, offer)
        output = CellOutput(self._shell)
        self._outputs.setdefault(run, []).append(output)
        self._shell.display_pub.publish({"text/html": ONE_OF_TWO})
        output.create(self(run))
        self._shell.display_pub.publish(view.mime_bundle())

    def __call__(self, run: Run) -> dict[str, Any]:
        """The static picture as a MIME bundle: text and SVG, and PNG where Graphviz is installed."""
        text = f"{status_line(run, run.metrics())}\nNext: %fries_plan, %fries_reconfigure, %fries_status"
        bundle = {"text/plain": text, "image/svg+xml": run_svg(run)}
        if png := dag_png(run.graph):  # for front ends without SVG, such as export to PDF
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
            output.replace(self(run))
