"""The panels of hosts and of latency constraints in the live view, and the remedies that they propose.

The panel of hosts in the live view: hosts, bins of keyed operators, how far a rescale is, and a proposed number.

What the cell of ``%fries_rescale`` shows: how far the rescale is, with a button that cancels it, and its outcome.

Where there is a kernel, one output of the cell is a small widget until the rescale has ended, and then its outcome as
text, which a saved notebook keeps. Elsewhere the cell has the outcome alone.

The panel of latency constraints: status and latency by cause of each one, buffers, and the changes they propose.

A proposal has buttons to show its plan and to accept it; accepting works in a thread, since the kernel handles further
messages only when the handler has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import ipywidgets
import traitlets
from IPython.core.interactiveshell import InteractiveShell

from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState
from fries_nb.controller.states import RescalePhase
from fries_nb.controller.topology_status import HostCount, TopologyStatus
from fries_nb.errors import FriesError
from fries_nb.notebook.cells import CellOutput
from fries_nb.notebook.panels import DrawnPanel, RunMoment, TableView
from fries_nb.notebook.summaries import of_change
from fries_nb.notebook.widgets import answer_in_subshell, words_html
from fries_nb.planning.schedulers import Plan, foretold
from fries_nb.protocol.running_chains import ChainChange
from fries_nb.report.constraint_bars import buffers_svg, constraint_svg, in_figures
from fries_nb.report.host_rows import before_now, bytes_of, hosts_svg, read_aloud
from fries_nb.run import Run
from fries_nb.running.remedies import OPEN, UNDER_WAY, HostProposal, Proposal
from fries_nb.running.rescales import Rescale, RescaleResult
from fries_nb.telemetry.metrics import HostLoad
from fries_nb.words import counted, duration

if TYPE_CHECKING:
    import ipywidgets


_WIDGET = "application/vnd.jupyter.widget-view+json"
_PHASES: Mapping[str, str] = {
    RescalePhase.IDLE: "it waits for its turn",
    RescalePhase.REQUESTED: "it begins when tuples flow",
    RescalePhase.STARTING: "Spark starts the new hosts",
    RescalePhase.JOINING: "the new workers get channels",
    RescalePhase.WIDENING: "rows are being routed to the new workers",
    RescalePhase.BALANCING: "bins move to the new workers",
    RescalePhase.RETRACTING: "the new workers are being removed",
    RescalePhase.CLEARING: "bins move off the workers that leave",
    RescalePhase.NARROWING: "rows are no longer routed to the workers that leave",
    RescalePhase.LEAVING: "the workers that leave end",
}


def progress_line(rescale: Rescale, status: TopologyStatus) -> str:
    """How far a rescale is that is under way, in one line.

    >>> status = TopologyStatus((0,), 3, "balancing", {}, {}, {}, bins_left=600, moved_bytes=2048, request="r1")
    >>> progress_line(Rescale("r1", 3, None), status)
    'to 3 hosts: bins move to the new workers, 600 bins left, 2 KiB moved'
    """
    facts = [_PHASES[status.phase]]
    if status.request not in ("", rescale.id):
        return f"{rescale.aim}: it waits for the rescale before it"
    if status.bins_left:
        facts += [f"{counted(status.bins_left, 'bin')} left", f"{bytes_of(status.moved_bytes)} moved"]
    return f"{rescale.aim}: {', '.join(facts)}"


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
    """The live output of a cell for one rescale, which ends as text. Needs a kernel."""

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
        # the progress and the button, until the rescale has ended
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
        from fries_nb.notebook.widgets import words_html

        text = words_html(progress_line(self._rescale, self._run.topology()))
        if text != self._line.value:
            self._line.value = text

    def _cancelled(self, _: object) -> None:
        self.cancel.disabled = True
        self.cancel.description = "Cancelling"
        self._rescale.cancel()


class HostPanel(DrawnPanel):
    """The hosts of a run with their rates, and the owners of each keyed operator's bins."""

    kind = traitlets.Unicode("fries-hosts").tag(sync=True)

    def show(
        self,
        status: TopologyStatus,
        rates: Mapping[int, float],
        topologies: Sequence[HostCount] = (),
    ) -> None:
        """Show hosts and bins, now and in earlier topologies; may be called from any thread."""
        rounded = {host: two_digits(rate) for host, rate in rates.items()}
        before = before_now(topologies) if status.is_idle else []
        self.draw((status, rounded, len(topologies)), partial(_drawn, status, rounded, before))

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        self.show(moment.topology, moment.host_rates, moment.run.history.hosts)

    def __repr__(self) -> str:
        return f"HostPanel({read_aloud(*self._facts[:2]) if self._facts else ''})"


class HostLoadTable(TableView):
    """The load of each host: workers, rate, processor, memory, and the bytes that wait in front of its workers."""

    def __init__(self) -> None:
        super().__init__("Load of hosts", ("host", "#workers", "#tuples/s", "#CPU", "#memory", "#waiting"))

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run; once it has ended, hosts have no load."""
        placed, loads, rates = moment.topology.worker_counts, moment.host_loads, moment.host_rates
        self.fill({
            str(host): (str(host), str(placed.get(host, 0)), f"{rates.get(host, 0.0):,.0f}", *_load(loads.get(host)))
            for host in moment.topology.hosts_now
        })  # fmt: skip


class HostProposalRow(ipywidgets.VBox):
    """The proposed number of hosts with a button that requests it, and the outcome; empty without a proposal."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._proposal: HostProposal | None = None
        self._words = ipywidgets.HTML()
        self._words.layout.flex = "1 1 300px"
        self.accept = ipywidgets.Button(button_style="primary")
        self.accept.layout.width = "160px"
        self.accept.on_click(self._accepted)
        self._row = ipywidgets.HBox([self._words, self.accept])
        self._row.layout.flex_flow = "row wrap"
        self.result = ipywidgets.HTML()
        super().__init__([])
        answer_in_subshell(self._row)

    def show(self, proposal: HostProposal | None) -> None:
        """Show a proposal; may be called from any thread."""
        if proposal is self._proposal:
            return
        self._proposal = proposal
        if proposal is not None:
            self._words.value = words_html(f"Proposed: {proposal}")
            self.accept.description = f"Rescale to {counted(proposal.hosts, 'host')}"
            self.accept.disabled = False
        self.children = [self.result] if proposal is None else [self._row, self.result]

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run; once it has ended, nothing is proposed."""
        self.show(None if moment.over else moment.run.host_proposal)

    def _accepted(self, _: object) -> None:
        proposal = self._proposal
        if proposal is not None:
            self.accept.disabled = True
            self.result.value = words_html("under way ...")
            threading.Thread(target=self._accept, args=[proposal], name="fries-accept", daemon=True).start()

    def _accept(self, proposal: HostProposal) -> None:
        try:
            result = proposal.accept().result()
        except FriesError as error:
            self.result.value = words_html(str(error), failed=True)
        else:
            self.result.value = words_html(outcome_line(result, self._run.topology()), failed=result.outcome != "done")


def two_digits(rate: float) -> float:
    """A rate by its two leading digits, so that a drawing is not made anew for each tuple.

    >>> two_digits(1_234.0), two_digits(0.0), two_digits(7.4)
    (1200.0, 0.0, 7.4)
    """
    return float(f"{rate:.2g}")


def _load(load: HostLoad | None) -> tuple[str, str, str]:
    """The cells of a host's processor, memory and waiting bytes; empty before its first message."""
    if load is None:
        return "", "", ""
    return f"{100 * load.cpu_share:.0f} %", bytes_of(load.rss_bytes), bytes_of(load.waiting_bytes)


def _drawn(
    status: TopologyStatus, rates: Mapping[int, float], before: Sequence[tuple[str, TopologyStatus]], width: float
) -> list[str]:
    return [hosts_svg(status, rates, before, width)]


class ConstraintPanel(DrawnPanel):
    """The latency constraints of a run.

    One drawing for each constraint, and one of the output buffers over time once they are measured.
    """

    kind = traitlets.Unicode("fries-constraints").tag(sync=True)
    empty = traitlets.Unicode(
        "No latency constraint was declared: %fries_constrain OPERATOR OPERATOR --latency MS declares one."
    ).tag(sync=True)

    def show(
        self,
        states: Sequence[ConstraintState],
        sizes: Sequence[BufferSize] = (),
        chains: Sequence[ChainChange] = (),
        judged: Sequence[ConstraintPoint] = (),
    ) -> None:
        """Show constraints, whose history gives the drawing of buffers its time axis; from any thread."""
        self.draw(states, lambda width: _constraints_drawn(states, sizes, chains, judged, width))

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        run = moment.run
        self.show(run.constraints(), run.history.buffers, run.history.chains, run.history.constraints)

    def __repr__(self) -> str:
        states = (f"{state.constraint.sequence} {in_figures(state)}" for state in self._facts)
        return f"ConstraintPanel({'; '.join(states)})"


def _constraints_drawn(
    states: Sequence[ConstraintState], sizes: Sequence[BufferSize], chains: Sequence[ChainChange],
    judged: Sequence[ConstraintPoint], width: float,
) -> list[str]:  # fmt: skip
    """The drawings of the constraints and, if any was measured, that of output buffers over time."""
    drawings = [constraint_svg(state, width) for state in states]
    if sizes and judged:
        drawings.append(buffers_svg(sizes, chains, judged[0].at_s, judged[-1].at_s, width))
    return drawings


class ProposalList(ipywidgets.VBox):
    """The proposals of a run, and the result of the one that was accepted last.

    An open one has the buttons ``Plan`` and ``Accept``, or ``Go back`` if the original functions would return. An
    accepted one says what became of it.
    """

    def __init__(self, show_plan: Callable[[Plan], None]) -> None:
        self._show_plan = show_plan
        self._shown: list[tuple[int, str]] = []
        self._proposals: tuple[Proposal, ...] = ()
        self._rows = ipywidgets.VBox()
        self.result = ipywidgets.HTML()
        super().__init__([self._rows, self.result])

    def show(self, proposals: Sequence[Proposal]) -> None:
        """Show proposals; may be called from any thread."""
        # One that is proposed again after it was withdrawn is another one, though it may be equal.
        shown = [(id(proposal), proposal.outcome) for proposal in proposals]
        if shown != self._shown:
            self._shown, self._proposals = shown, tuple(proposals)  # kept, so that no id is used again
            self._rows.children = [
                self._row(proposal) if proposal.outcome == OPEN else _accepted_row(proposal) for proposal in proposals
            ]

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run; once it has ended, nothing is proposed."""
        self.show(() if moment.over else moment.run.proposals)

    def _row(self, proposal: Proposal) -> ipywidgets.Widget:
        heading = f"Proposed for {proposal.constraint.sequence}: {proposal.what},"
        words = ipywidgets.HTML(words_html("\n".join([heading, f"since {proposal.reason}", *foretold(proposal.plan)])))
        words.layout.flex = "1 1 300px"
        plan = ipywidgets.Button(description="Plan", tooltip="Show what the change would synchronise")
        word = "Go back" if proposal.undoes else "Accept"
        accept = ipywidgets.Button(description=word, button_style="primary", tooltip=f"Now: {proposal.what}")
        for button in (plan, accept):
            button.layout.width = "80px"
        plan.on_click(lambda _: self._show_plan(proposal.plan))
        accept.on_click(partial(self._accepted, proposal))
        row = ipywidgets.HBox([words, plan, accept])
        row.layout.flex_flow = "row wrap"
        answer_in_subshell(row)
        return row

    def _accepted(self, proposal: Proposal, button: ipywidgets.Button) -> None:
        button.disabled = True
        self.result.value = words_html("under way ...")
        threading.Thread(target=self._accept, args=[proposal], name="fries-accept", daemon=True).start()

    def _accept(self, proposal: Proposal) -> None:
        try:
            change = proposal.accept()
            result = change.result()
        except FriesError as error:
            self.result.value = words_html(str(error), failed=True)
            return
        # A change that was not made is told by the proposal, in all views.
        self.result.value = words_html(repr(of_change(result))) if result.outcome == "done" else ""


def _accepted_row(proposal: Proposal) -> ipywidgets.Widget:
    """What became of a proposal that was accepted."""
    heading = f"Accepted for {proposal.constraint.sequence}: {proposal.what}"
    if proposal.outcome == UNDER_WAY:
        return ipywidgets.HTML(words_html(f"{heading}; under way ..."))
    change = proposal.change.id if proposal.change is not None else ""
    return ipywidgets.HTML(words_html(f"{heading}\nchange {change} {proposal.outcome}: {proposal.error}", failed=True))
