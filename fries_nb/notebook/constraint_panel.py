"""The panel of latency constraints: status and latency by cause of each one, buffers, and the changes they propose.

A proposal has buttons to show its plan and to accept it; accepting works in a thread, since the kernel handles further
messages only when the handler has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import ipywidgets
import traitlets

from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState
from fries_nb.errors import FriesError
from fries_nb.notebook.panels import DrawnPanel
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.summaries import of_change
from fries_nb.notebook.widgets import answer_in_subshell, said
from fries_nb.planning.schedulers import Plan
from fries_nb.protocol.topology import ChainChange
from fries_nb.report.constraint_bars import buffers_svg, constraint_svg, in_figures
from fries_nb.report.plan_section import foretold
from fries_nb.running.remedies import OPEN, UNDER_WAY, Proposal


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
        self.draw(states, lambda width: _drawn(states, sizes, chains, judged, width))

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        run = moment.run
        self.show(run.constraints(), run.history.buffers, run.history.chains, run.history.constraints)

    def __repr__(self) -> str:
        states = (f"{state.constraint.sequence} {in_figures(state)}" for state in self._facts)
        return f"ConstraintPanel({'; '.join(states)})"


def _drawn(
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
        words = ipywidgets.HTML(said("\n".join([heading, f"since {proposal.reason}", *foretold(proposal.plan)])))
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
        self.result.value = said("under way ...")
        threading.Thread(target=self._accept, args=[proposal], name="fries-accept", daemon=True).start()

    def _accept(self, proposal: Proposal) -> None:
        try:
            change = proposal.accept()
            result = change.result()
        except FriesError as error:
            self.result.value = said(str(error), failed=True)
            return
        # A change that was not made is told by the proposal, in all views.
        self.result.value = said(repr(of_change(result))) if result.outcome == "done" else ""


def _accepted_row(proposal: Proposal) -> ipywidgets.Widget:
    """What became of a proposal that was accepted."""
    heading = f"Accepted for {proposal.constraint.sequence}: {proposal.what}"
    if proposal.outcome == UNDER_WAY:
        return ipywidgets.HTML(said(f"{heading}; under way ..."))
    change = proposal.change.id if proposal.change is not None else ""
    return ipywidgets.HTML(said(f"{heading}\nchange {change} {proposal.outcome}: {proposal.error}", failed=True))
