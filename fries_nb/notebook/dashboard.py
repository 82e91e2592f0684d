"""The live view of a run: its dataflow, latency and throughput, and below them a drawer with tabs for all other panels.

A panel is a widget and a function that shows a moment of the run in it. One thread updates the panels that are shown a
few times per second, and those in the other tabs in turn; it ends with the run, or when the view is closed. Panels
always receive a complete state, so a lost message or a view that opens late needs no recovery, not even the message
that says which tab is shown; and a panel that fails says so in its own place, while the others go on.

The top of the live view: the status of the run, which knows when the kernel has fallen silent, and a stop button.

A kernel that has ended cannot say so. The status line therefore carries a counter that grows about once a second; when
it stops to grow, the page says since when, in place of a state that is not known any more. A kernel that is held up by
a function in native code is silent as well, and the line returns when it is heard again.
"""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from fries_nb.notebook.canvas_menu import CanvasMenu
from fries_nb.notebook.change_line import ChangeLine
from fries_nb.notebook.change_panel import ChangePanel
from fries_nb.notebook.difference_panel import DifferenceBar
from fries_nb.notebook.drawer import FUNCTION, ROWS, STATE, Drawer, hosts_line
from fries_nb.notebook.form import ChangeForm, FunctionSource
from fries_nb.notebook.look_panels import LookThread, RowsPanel, StatePanel
from fries_nb.notebook.panels import DagPanel, OperatorPanel, PanelFrame, ProgressPanel, RunMoment, SavePanel
from fries_nb.notebook.plots import LatencyPanel
from fries_nb.notebook.remedy_panels import ConstraintPanel, HostLoadTable, HostPanel, HostProposalRow, ProposalList
from fries_nb.notebook.source_panel import SourcePanel
from fries_nb.notebook.static_pictures import LIVE
from fries_nb.notebook.statuses import status_line
from fries_nb.notebook.waits import Ending
from fries_nb.notebook.widgets import answer_in_subshell
from fries_nb.run import Run

STOP, STOP_NOW = "Stop", "Stop now"
_HERE = Path(__file__).parent
PATIENCE_S = 6.0
"""Seconds of silence after which the page says so, unless the view is updated less often."""
NEWS_S = 1.0
"""Seconds between two signs of life."""


class StatusLine(anywidget.AnyWidget):
    """The status of a run in one line of HTML, ``value``."""

    _esm = (_HERE / "status.js").read_text("utf8")
    _css = (_HERE / "status.css").read_text("utf8")
    value = traitlets.Unicode().tag(sync=True)
    news = traitlets.Int().tag(sync=True)
    patience_ms = traitlets.Int(int(PATIENCE_S * 1000)).tag(sync=True)
    over = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent_s = clock()
        super().__init__()
        self.layout.flex = "1 1 auto"

    def live(self, period_s: float) -> None:
        """Send a sign of life if the last one is old enough; may be called as often as the view is updated."""
        self.patience_ms = int(max(PATIENCE_S, 3 * period_s) * 1000)
        now_s = self._clock()
        if now_s - self._sent_s >= NEWS_S:
            self._sent_s = now_s
            self.news += 1

    def __repr__(self) -> str:
        return f"StatusLine({self.value!r})"


class StatusBar(ipywidgets.HBox):
    """The status of a run and, if the page may end it, a button that drains it; a second click ends it at once."""

    def __init__(self, run: Run, period_s: Callable[[], float], stops: bool = True) -> None:
        self._run = run
        self._period_s = period_s
        self._ending: Ending | None = None
        self._stops_now = False
        self.status = StatusLine()
        self.stop = ipywidgets.Button(description=STOP, tooltip="Commit all that was read, then end; Spark stays")
        self.stop.layout.flex = "0 0 80px"
        if stops:
            self.stop.on_click(self._stopped)
        super().__init__([self.status, self.stop] if stops else [self.status])

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        trouble = self._ending.trouble if self._ending is not None and not moment.over else ""
        line = html.escape(" · ".join(filter(None, [status_line(self._run, moment.last), trouble])))
        text = f'<div role="status">{line}</div>'
        if text != self.status.value:
            self.status.value = text
        self.status.live(self._period_s())
        if moment.over:
            self.stop.disabled = self.status.over = True
        elif self._ending is not None and not self._stops_now and self.stop.disabled:
            self.stop.description, self.stop.tooltip = STOP_NOW, "End at once, without the tuples that still wait"
            self.stop.disabled = False

    def _stopped(self, _: object) -> None:
        """End the run with a drain, or at once if the button says so by the time of the click."""
        self._stops_now = self.stop.description == STOP_NOW
        self.stop.disabled = True
        self._ending = Ending(self._run, now=self._stops_now)


PERIOD_S = 0.2
"""Default number of seconds between two updates."""
REPORT_S = 0.25
"""Seconds for which measurements are not read again: hosts report about four times a second."""
SHARE = 0.02
"""Share of a processor that showing measurements may take; those of very wide dataflows are shown less often."""
SELDOM_S = 1.0
"""Most seconds for which measurements are not read again, however long showing them takes."""


class RunView(ipywidgets.VBox):
    """The live view of one run.

    Its widgets are ``status``, ``stop``, ``last_change``, ``difference``, ``menu``, ``dag``, ``latency``,
    ``hosts_line``, ``source`` and ``drawer``. In the drawer are ``proposals`` and ``host_proposal`` and, in ``tabs``,
    ``form``, ``rows``, ``states``, ``changes``, ``constraints`` and the page of details: ``operators``, ``hosts``,
    ``host_loads``, ``progress`` and ``save``.

    It does not show what operators print; the cell that started the run does (``cells.CellEcho``). ``renew``
    updates the static picture; it is called in a thread when a change, a rescale or the run has ended, before the view
    shows that. ``period_s`` is called before each update.
    """

    def __init__(
        self,
        run: Run,
        source: FunctionSource,
        renew: Callable[[Run], None] = lambda run: None,
        period_s: Callable[[], float] = lambda: PERIOD_S,
    ) -> None:
        self._run, self._renew, self._period_s = run, renew, period_s
        self._closed, self._looks = threading.Event(), LookThread()
        self._ended, self._due_s, self._moment = 0, 0.0, RunMoment(run)
        self._bar = StatusBar(run, period_s, stops=not source.reads_only)
        self.status, self.stop = self._bar.status, self._bar.stop
        self._pictures, plots = DagPanel(run), LatencyPanel()
        self.dag, self.latency, self.menu = self._pictures.view, plots.plot, CanvasMenu(run)
        self.form = ChangeForm(run, source, self._pictures.show_plan, self.dag.look_at)
        self.dag.observe(lambda change: self._choose(change["new"]), names="selected")
        self.proposals, self.host_proposal = ProposalList(self._pictures.show_plan), HostProposalRow(run)
        self.rows, self.states = RowsPanel(run, self._looks), StatePanel(run, self._looks)
        self.changes = ChangePanel(run, self._pictures, source.has, source.shows_values)
        self.last_change, self.difference = ChangeLine(run, source.has), DifferenceBar(self._pictures)
        self.progress, self.constraints, self.save = ProgressPanel(), ConstraintPanel(), SavePanel(run)
        self.hosts, self.host_loads, self.operators = HostPanel(), HostLoadTable(), OperatorPanel()
        self.hosts_line, self.source = ipywidgets.HTML(), SourcePanel(run, reads_only=not source.shows_values)
        offers = [] if source.reads_only else self._offers()
        self.drawer = Drawer(self._in_tabs(source.shows_values), offers, source.shows_values)
        self.tabs = self.drawer.tabs
        kept = PanelFrame("The static picture", ipywidgets.VBox(), self._keep)
        bar = PanelFrame("The status", self._bar, self._bar.update)
        dag = PanelFrame("The dataflow", ipywidgets.VBox([self.menu, self.dag]), self._draw, "0 1 auto")
        plot = PanelFrame("The plot", self.latency, plots.update, "1 1 240px")
        line = PanelFrame("The last change", self.last_change, self.last_change.update)
        difference = PanelFrame("The difference", self.difference, self.difference.update)
        hosts = PanelFrame("The load of hosts", self.hosts_line, self._tell_hosts)
        of_source = PanelFrame("The source", self.source, self.source.update)
        # kept is there before a view shows the end, and the picture of now before a difference to it
        self._shown = (kept, bar, line, dag, difference, plot, hosts, of_source, *offers)
        side_by_side = _side_by_side(dag, plot)
        super().__init__([bar, line, difference, side_by_side, hosts, of_source, self.changes.bar, self.drawer, kept])
        self._begin()

    def _begin(self) -> None:
        """Show the run as it is now, and then as it goes on."""
        self.add_class(LIVE)
        answer_in_subshell(self)
        self._update()
        self._due_s = 0.0  # since the first update takes longer than others
        threading.Thread(target=self._publish, name="fries-view", daemon=True).start()

    def _offers(self) -> list[PanelFrame]:
        return [
            PanelFrame("The proposals", self.proposals, self.proposals.update),
            PanelFrame("The proposed number of hosts", self.host_proposal, self.host_proposal.update),
        ]

    def _in_tabs(self, shows_values: bool) -> dict[str, list[PanelFrame]]:
        rows = {ROWS: [PanelFrame(ROWS, self.rows, self.rows.update)]}
        states = {STATE: [PanelFrame(STATE, self.states, self.states.update)]}
        return {
            FUNCTION: [PanelFrame(FUNCTION, self.form, self._update_form, while_hidden=True)],
            **(rows | states if shows_values else {}),
            # Also while it is hidden: a new change ends a replay, which is shown beside the picture.
            "Changes": [PanelFrame("Changes", self.changes, self.changes.update, while_hidden=True)],
            "Constraints": [PanelFrame("Constraints", self.constraints, self.constraints.update)],
            "Details": [
                PanelFrame("Operators", self.operators, self.operators.update),
                PanelFrame("Hosts", ipywidgets.VBox([self.hosts, self.host_loads]), self._update_hosts),
                PanelFrame("Times and loops", self.progress, self.progress.update),
                PanelFrame("Save", self.save, lambda moment: None),
            ],
        }

    def _choose(self, operators: Sequence[str]) -> None:
        for panel in (self.form, self.rows, self.states, self.source, self.drawer, self.menu):
            panel.choose(operators)

    def _draw(self, moment: RunMoment) -> None:
        self._pictures.update(moment)
        self.menu.update(moment)

    def _tell_hosts(self, moment: RunMoment) -> None:
        self.hosts_line.value = html.escape(hosts_line(moment.host_loads))

    def _update_form(self, moment: RunMoment) -> None:
        self.form.update()
        if moment.over:
            self.form.end()

    def _update_hosts(self, moment: RunMoment) -> None:
        self.hosts.update(moment)
        self.host_loads.update(moment)

    @property
    def is_open(self) -> bool:
        """Whether the view has not been closed."""
        return not self._closed.is_set()

    @property
    def frames(self) -> Sequence[PanelFrame]:
        """The frames of all panels."""
        return (*self._shown, *self.drawer.frames)

    def mime_bundle(self) -> dict[str, Any]:
        """The MIME bundle of the view alone; the static picture is a separate output."""
        return {"application/vnd.jupyter.widget-view+json": self.get_view_spec()}

    def close(self) -> None:
        """Stop publishing and remove the view from the pages that show it."""
        self._closed.set()
        self._looks.close()
        super().close()

    def _publish(self) -> None:
        over, began_s = False, time.monotonic()
        while not over and not self._closed.wait(pause_s(self._period_s(), time.monotonic() - began_s)):
            began_s = time.monotonic()
            over = self._update()

    def _update(self) -> bool:
        """Update the panels that are due; returns whether the run has ended."""
        now_s, began_s, moment = time.monotonic(), time.thread_time(), RunMoment(self._run, self._moment)
        measures = moment.over or now_s >= self._due_s
        self._moment = moment = RunMoment(self._run) if measures else moment
        for frame in self._shown:
            frame.update(moment)
        self.drawer.update(moment, measures)
        if measures:
            self._due_s = now_s + rest_s(time.thread_time() - began_s)
        return moment.over

    def _keep(self, moment: RunMoment) -> None:
        """Renew the static picture if a change or a rescale has ended, or the run has."""
        ended = sum(change.done for change in moment.changes) + len(moment.run.history.hosts)
        if moment.over or ended > self._ended:
            self._ended = ended
            self._renew(self._run)


def _side_by_side(dag: PanelFrame, plot: PanelFrame) -> ipywidgets.HBox:
    """The picture and the plot, which is below the picture on narrow pages (see ``dag.css``)."""
    return ipywidgets.HBox([dag, plot], layout=ipywidgets.Layout(flex_flow="row wrap"))


def pause_s(period_s: float, took_s: float) -> float:
    """Seconds until the next update, which begins a period after the last began, if that was not too long.

    >>> pause_s(1.0, took_s=0.25), pause_s(1.0, took_s=0.75), pause_s(1.0, took_s=5.0)
    (0.75, 0.5, 0.5)
    """
    return max(period_s - took_s, period_s / 2)


def rest_s(spent_s: float) -> float:
    """Seconds from one reading of measurements to the next, by the processor time that showing them has taken.

    >>> rest_s(0.002), rest_s(0.01), rest_s(0.3)
    (0.25, 0.5, 1.0)
    """
    return min(max(REPORT_S, spent_s / SHARE), SELDOM_S)
