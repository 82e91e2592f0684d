"""The panel of latency constraints: status and latency by cause of each one, buffers, and the changes they propose.

Drawings are made in Python for several widths, and the page shows the widest that fits; so the panel without a kernel
is the same drawing. Nothing is sent while nothing changes. A proposal has buttons to show its plan and to accept it;
accepting works in a thread, since the kernel handles further messages only when the handler has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from fries_nb.constraints.judgements import BufferSize, ConstraintPoint, ConstraintState
from fries_nb.errors import FriesError
from fries_nb.notebook.static_pictures import stacked
from fries_nb.notebook.summaries import of_change
from fries_nb.notebook.widgets import answer_in_subshell, said
from fries_nb.report.buffer_steps import buffers_svg
from fries_nb.report.constraint_bars import constraint_svg, in_figures
from fries_nb.report.plan_section import foretold
from fries_nb.running.proposals import OPEN, UNDER_WAY, Proposal
from fries_nb.scheduling import Plan
from fries_nb.topology.running_chains import ChainChange

WIDTHS = (360.0, 540.0, 760.0)
"""Widths of the drawings in pixels."""
_HERE = Path(__file__).parent


class ConstraintPanel(anywidget.AnyWidget):
    """The latency constraints of a run; empty without any.

    ``drawings`` holds the drawings by width, as text since keys of JSON are; one for each constraint, and one of the
    output buffers over time once they are measured.
    """

    _esm = (_HERE / "constraints.js").read_text("utf8")
    _css = (_HERE / "constraints.css").read_text("utf8")
    drawings = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._states: Sequence[ConstraintState] = ()
        self._draw_buffers: Callable[[float], list[str]] = lambda width: []
        super().__init__()
        self.layout.width = "100%"

    def show(
        self,
        states: Sequence[ConstraintState],
        sizes: Sequence[BufferSize] = (),
        chains: Sequence[ChainChange] = (),
        judged: Sequence[ConstraintPoint] = (),
    ) -> None:
        """Show constraints; may be called from any thread.

        Args:
            states: the states of all constraints of the run.
            sizes: the sizes of output buffers over time.
            chains: the changes of chains.
            judged: the constraints over time, which give the drawing of buffers its time axis.
        """
        with self._one_at_a_time:
            if states != self._states:
                self._states = states
                self._draw_buffers = partial(_buffers, sizes, chains, judged)
                self.drawings = {f"{width:g}": self._drawn(width) for width in WIDTHS}

    def _drawn(self, width: float) -> list[str]:
        return [constraint_svg(one, width) for one in self._states] + self._draw_buffers(width)

    def __repr__(self) -> str:
        return f"ConstraintPanel({'; '.join(f'{one.constraint.sequence} {in_figures(one)}' for one in self._states)})"

    def _repr_mimebundle_(self, **asked: Any) -> Any:
        """The widget and, for front ends without a kernel, a static picture."""
        bundle = super()._repr_mimebundle_(**asked)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        picture = stacked(*self._drawn(WIDTHS[-1]))
        return {**data, "image/svg+xml": picture, "text/plain": repr(self)}, metadata


def _buffers(
    sizes: Sequence[BufferSize], chains: Sequence[ChainChange], judged: Sequence[ConstraintPoint], width: float
) -> list[str]:
    """The drawing of output buffers over time, if any was measured."""
    return [buffers_svg(sizes, chains, judged[0].at_s, judged[-1].at_s, width)] if sizes and judged else []


class ProposalList(ipywidgets.VBox):
    """The proposals of a run, and the result of the one that was accepted last.

    An open one has the buttons ``Plan`` and ``Accept``, or ``Go back`` if the original functions would return. An
    accepted one says what became of it.

    Args:
        show_plan: called with the plan of a proposal when the user wants to see it.
    """

    def __init__(self, show_plan: Callable[[Plan], None]) -> None:
        self._show_plan = show_plan
        self._shown: list[tuple[int, str]] = []
        self._proposals: tuple[Proposal, ...] = ()
        self._rows = ipywidgets.VBox()
        self.result = ipywidgets.HTML()
        super().__init__([self._rows, self.result])

    def show(self, proposals: Sequence[Proposal]) -> None:
        """Show proposals; may be called from any thread.

        Args:
            proposals: the proposals, as ``Run.proposals`` returns them.
        """
        # One that is proposed again after it was withdrawn is another one, though it may be equal.
        shown = [(id(one), one.outcome) for one in proposals]
        if shown != self._shown:
            self._shown, self._proposals = shown, tuple(proposals)  # kept, so that no id is used again
            self._rows.children = [self._row(one) if one.outcome == OPEN else _accepted_row(one) for one in proposals]

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
