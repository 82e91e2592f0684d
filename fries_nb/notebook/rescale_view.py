"""What the cell of ``%fries_rescale`` shows: how far the rescale is, with a button that cancels it, and its outcome.

Where there is a kernel, one output of the cell is a small widget until the rescale has ended, and then its outcome as
text, which a saved notebook keeps. Elsewhere the cell has the outcome alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.controller.states import RescalePhase
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.durations import duration
from fries_nb.notebook.cell_outputs import CellOutput
from fries_nb.report.host_rows import bytes_of
from fries_nb.report.markup import counted
from fries_nb.run import Run
from fries_nb.running.rescales import Rescale, RescaleResult

if TYPE_CHECKING:
    import ipywidgets

_WIDGET = "application/vnd.jupyter.widget-view+json"
_PHASES: Mapping[str, str] = {
    RescalePhase.IDLE: "it waits for its turn",
    RescalePhase.REQUESTED: "it begins when tuples flow",
    RescalePhase.STARTING: "Spark starts the new hosts",
    RescalePhase.JOINING: "the new hosts get channels",
    RescalePhase.WIDENING: "rows are being routed to the new hosts",
    RescalePhase.BALANCING: "bins move to the new hosts",
    RescalePhase.RETRACTING: "the new hosts are being removed",
    RescalePhase.CLEARING: "bins move off the hosts that leave",
    RescalePhase.NARROWING: "rows are no longer routed to the hosts that leave",
    RescalePhase.LEAVING: "their workers end",
}


def progress_line(rescale: Rescale, status: TopologyStatus) -> str:
    """How far a rescale is that is under way, in one line.

    >>> status = TopologyStatus((0,), 3, "balancing", {}, {}, {}, bins_left=600, moved_bytes=2048)
    >>> progress_line(Rescale("r1", 3, None), status)
    'to 3 hosts: bins move to the new hosts, 600 bins left, 2 KiB moved'
    """
    facts = [_PHASES[status.phase]]
    if status.wanted != rescale.hosts and not status.is_idle:
        return f"to {counted(rescale.hosts, 'host')}: it waits for the rescale to {counted(status.wanted, 'host')}"
    if status.bins_left:
        facts += [f"{counted(status.bins_left, 'bin')} left", f"{bytes_of(status.moved_bytes)} moved"]
    return f"to {counted(rescale.hosts, 'host')}: {', '.join(facts)}"


def outcome_line(result: RescaleResult, status: TopologyStatus) -> str:
    """The outcome of a rescale in one line.

    >>> status = TopologyStatus((0,), 3, "idle", {"A": (0, 0, 1)}, {}, {}, moved_bytes=2048)
    >>> outcome_line(RescaleResult("done", 2, delay_ms=1_250.0), status)
    '2 hosts after 1.2 s: 3 workers, 2 KiB of state moved'
    >>> outcome_line(RescaleResult("aborted", 2, "it was cancelled; nothing changed"), status)
    'aborted: it was cancelled; nothing changed (2 hosts)'
    """
    hosts = counted(result.hosts, "host")
    if result.outcome != "done":
        return f"{result.outcome}: {result.error} ({hosts})"
    workers = counted(sum(map(len, status.workers.values())), "worker")
    moved = f", {bytes_of(status.moved_bytes)} of state moved" if status.moved_bytes else ""
    return f"{hosts} after {duration(result.delay_ms / 1_000)}: {workers}{moved}"


class RescaleView:
    """The live output of a cell for one rescale, which ends as text. Needs a kernel.

    Args:
        shell: the shell that executes the cell.
        run: the run that is rescaled.
        rescale: the rescale.
        period_s: returns the number of seconds between two updates.

    Attributes:
        widget: the progress and the button, until the rescale has ended.
    """

    def __init__(
        self, shell: InteractiveShell, run: Run, rescale: Rescale, period_s: Callable[[], float]
    ) -> None:
        import ipywidgets

        from fries_nb.notebook.widgets import answer_in_subshell

        self._run = run
        self._rescale = rescale
        self._period_s = period_s
        self._output = CellOutput(shell)
        self._line = ipywidgets.HTML()
        self._line.layout.flex = "1 1 auto"
        self.cancel = ipywidgets.Button(description="Cancel", tooltip="Go back, if no row goes to new hosts yet")
        self.cancel.layout.flex = "0 0 80px"
        self.cancel.on_click(self._cancelled)
        self.widget: ipywidgets.Widget = ipywidgets.HBox([self._line, self.cancel])
        answer_in_subshell(self.widget)
        self._show()
        text = progress_line(rescale, run.topology())
        self._output.create({_WIDGET: self.widget.get_view_spec(), "text/plain": text})
        self._follower = threading.Thread(target=self._follow, name="fries-rescale", daemon=True)
        self._follower.start()

    def wait(self) -> None:
        """Wait until the outcome of a rescale that has ended is shown."""
        self._follower.join()

    def _follow(self) -> None:
        """Show how far it is until it has ended, and then the outcome in place of the widget."""
        while True:
            try:
                result = self._rescale.result(timeout=self._period_s())
            except TimeoutError:
                self._show()
            else:
                break
        self._output.replace({"text/plain": outcome_line(result, self._run.topology())})
        self.widget.close()

    def _show(self) -> None:
        from fries_nb.notebook.widgets import said

        text = said(progress_line(self._rescale, self._run.topology()))
        if text != self._line.value:
            self._line.value = text

    def _cancelled(self, _: object) -> None:
        self.cancel.disabled = True
        self.cancel.description = "Cancelling"
        self._rescale.cancel()
