"""The panel of hosts in the live view: hosts, bins of keyed operators, how far a rescale is, and a proposed number.

Accepting a proposal works in a thread, since the kernel handles further messages only when the handler has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

import ipywidgets
import traitlets

from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.errors import FriesError
from fries_nb.notebook.panels import DrawnPanel
from fries_nb.notebook.rescale_view import outcome_line
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.table_view import TableView
from fries_nb.notebook.widgets import answer_in_subshell, said
from fries_nb.report.host_rows import before_now, bytes_of, hosts_svg, read_aloud
from fries_nb.report.markup import counted
from fries_nb.run import Run
from fries_nb.running.host_advice import HostProposal
from fries_nb.running.worker_table import HostLoad


class HostPanel(DrawnPanel):
    """The hosts of a run with their rates, and the owners of each keyed operator's bins."""

    kind = traitlets.Unicode("fries-hosts").tag(sync=True)

    def show(
        self,
        status: TopologyStatus,
        rates: Mapping[int, float],
        topologies: Sequence[tuple[float, TopologyStatus]] = (),
    ) -> None:
        """Show hosts and bins; may be called from any thread.

        Args:
            status: the topology.
            rates: host to tuples per second; empty once the run has ended.
            topologies: the topologies before the first rescale and after each one, with their times.
        """
        rounded = {host: two_digits(rate) for host, rate in rates.items()}
        before = before_now(topologies) if status.is_idle else []
        self.draw((status, rounded, len(topologies)), partial(_drawn, status, rounded, before))

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        self.show(moment.topology, moment.host_rates, moment.run.topology_history())

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
    """The proposed number of hosts with a button that requests it, and the outcome; empty without a proposal.

    Args:
        run: the run.
    """

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
            self._words.value = said(f"Proposed: {proposal}")
            self.accept.description = f"Rescale to {counted(proposal.hosts, 'host')}"
            self.accept.disabled = False
        self.children = [self.result] if proposal is None else [self._row, self.result]

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run; once it has ended, nothing is proposed."""
        self.show(None if moment.over else moment.run.host_proposal())

    def _accepted(self, _: object) -> None:
        proposal = self._proposal
        if proposal is not None:
            self.accept.disabled = True
            self.result.value = said("under way ...")
            threading.Thread(target=self._accept, args=[proposal], name="fries-accept", daemon=True).start()

    def _accept(self, proposal: HostProposal) -> None:
        try:
            result = proposal.accept().result()
        except FriesError as error:
            self.result.value = said(str(error), failed=True)
        else:
            self.result.value = said(outcome_line(result, self._run.topology()), failed=result.outcome != "done")


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
