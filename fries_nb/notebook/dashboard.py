"""The live view of a run: status, dataflow, latency, throughput, constraints, progress, hosts; a form for changes.

Each view has one thread, which publishes the current state a few times per second and ends with the run or when the
view is closed. Widgets always receive a complete state, so a lost message or a view that opens late needs no recovery.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from typing import Any

import ipywidgets

from fries_nb.controller.metrics import MetricsSnapshot
from fries_nb.notebook.constraint_panel import ConstraintPanel, ProposalList
from fries_nb.notebook.endings import Ending
from fries_nb.notebook.form import ChangeForm
from fries_nb.notebook.function_sources import FunctionSource
from fries_nb.notebook.host_panel import HostPanel, HostProposalRow
from fries_nb.notebook.known import OVER
from fries_nb.notebook.panels import ProgressPanel
from fries_nb.notebook.plots import LatencyPlot
from fries_nb.notebook.static_pictures import LIVE
from fries_nb.notebook.statuses import status_line
from fries_nb.notebook.widgets import DagView, answer_in_subshell
from fries_nb.run import Run
from fries_nb.scheduling import Plan

STOP, STOP_NOW = "Stop", "Stop now"
PERIOD_S = 0.2
"""Default number of seconds between two updates."""


class RunView(ipywidgets.VBox):
    """The live view of one run.

    Its widgets are ``status``, ``stop``, ``dag``, ``latency``, ``progress``, ``constraints``, ``proposals``, ``hosts``,
    ``host_proposal`` and ``form``.

    It does not show what operators print; the cell that started the run does (``cell_outputs.CellEcho``).

    Args:
        run: the run to show.
        source: supplies the new functions for the form.
        renew: updates the static picture of a run; called in a thread when a change or a rescale has ended, and when
            the run has, before the view shows that.
        period_s: returns the number of seconds until the next update; called before each update.
    """

    def __init__(
        self,
        run: Run,
        source: FunctionSource,
        renew: Callable[[Run], None] = lambda run: None,
        period_s: Callable[[], float] = lambda: PERIOD_S,
    ) -> None:
        self._run = run
        self._renew = renew
        self._period_s = period_s
        self._closed = threading.Event()
        self._over = False
        self._changes_shown = self._changes_ended = 0
        self._plotted: tuple[float, int, float] | None = None
        self.status = ipywidgets.HTML()
        self.status.layout.flex = "1 1 auto"
        self.stop = ipywidgets.Button(description=STOP, tooltip="Commit all that was read, then end; Spark stays")
        self.stop.layout.flex = "0 0 80px"
        self._ending: Ending | None = None
        self._stops_now = False
        self.stop.on_click(self._stopped)
        self.dag = DagView(run.graph)
        self.latency = LatencyPlot()
        self.progress = ProgressPanel()
        self.constraints = ConstraintPanel()
        self.proposals = ProposalList(self._show_plan)
        self.hosts, self.host_proposal = HostPanel(), HostProposalRow(run)
        self.form = ChangeForm(run, source, self._show_plan)
        self.dag.observe(lambda change: self.form.choose(change["new"]), names="selected")
        pictures = ipywidgets.HBox([self.dag, self.latency])
        pictures.layout.flex_flow = "row wrap-reverse"  # side by side; on narrow pages the plot is on top
        top = ipywidgets.HBox([self.status, self.stop])
        offers = [self.proposals, self.hosts, self.host_proposal]
        super().__init__([top, pictures, self.progress, self.constraints, *offers, self.form])
        self.add_class(LIVE)
        answer_in_subshell(self)
        self._update()
        self._thread = threading.Thread(target=self._publish, name="fries-view", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the view has not been closed."""
        return not self._closed.is_set()

    def mime_bundle(self) -> dict[str, Any]:
        """The MIME bundle of the view alone; the static picture is a separate output."""
        return {"application/vnd.jupyter.widget-view+json": self.get_view_spec()}

    def close(self) -> None:
        """Stop publishing and remove the view from the pages that show it."""
        self._closed.set()
        super().close()

    def _publish(self) -> None:
        over = False
        while not over and not self._closed.wait(self._period_s()):
            over = self._run.state in OVER  # read before the update, so that the last update shows the end
            try:
                ended = sum(change.done for change in self._run.changes) + len(self._run.topology_history())
                if over or ended > self._changes_ended:
                    self._changes_ended = ended
                    self._renew(self._run)
            finally:
                self._update()

    def _update(self) -> None:
        snapshot = self._run.metrics()
        self._show_status(snapshot)
        self.dag.show_metrics(MetricsSnapshot() if self._run.state in OVER else snapshot)
        loops = self._run.loops()
        self.dag.show_rounds({loop.name: loop.rounds for loop in loops})
        self.progress.show(self._run.frontiers(), loops)
        changes = self._run.changes
        if len(changes) > self._changes_shown:
            self._changes_shown = len(changes)
            self._show_plan(None)
        rates = {} if self._run.state in OVER else self._run.host_rates()
        self.hosts.show(self._run.topology(), rates, self._run.topology_history())
        self.host_proposal.show(None if self._run.state in OVER else self._run.host_proposal())
        self.proposals.show(() if self._run.state in OVER else self._run.proposals())
        points, marks, judged = self._run.history(), self._run.marks(), self._run.constraint_history()
        sizes, chains = self._run.buffer_history(), self._run.chain_history()
        self.constraints.show(self._run.constraints(), sizes, chains, judged)
        plotted = (points[-1].at_s if points else 0.0, len(marks), judged[-1].at_s if judged else 0.0)
        if plotted != self._plotted:
            self._plotted = plotted
            self.latency.show(points, marks, judged)

    def _show_plan(self, plan: Plan | None) -> None:
        """Draw a plan that the user requested; with ``None`` the last change, if there is one."""
        changes = self._run.changes
        if plan is not None:
            self.dag.show_plan(plan)
        elif changes:
            self.dag.show_plan(changes[-1].plan)
        else:
            self.dag.clear()

    def _show_status(self, snapshot: MetricsSnapshot) -> None:
        trouble = self._ending.trouble if self._ending is not None and self._run.state not in OVER else ""
        line = html.escape(" · ".join(filter(None, [status_line(self._run, snapshot), trouble])))
        text = f'<div role="status" style="line-height: 1.4; padding: 4px 0">{line}</div>'
        if text != self.status.value:
            self.status.value = text
        if self._run.state in OVER:
            if not self._over:
                self._over = self.stop.disabled = True
                self.form.end()
        elif self._ending is not None and not self._stops_now and self.stop.disabled:
            self.stop.description, self.stop.tooltip = STOP_NOW, "End at once, without the tuples that still wait"
            self.stop.disabled = False

    def _stopped(self, _: object) -> None:
        """End the run with a drain, or at once if the button says so by the time of the click."""
        self._stops_now = self.stop.description == STOP_NOW
        self.stop.disabled = True
        self._ending = Ending(self._run, now=self._stops_now)
