"""The last change of a run in one large line: how long it took, what it was spared, how many rows it mixed, and Undo.

*40 ms, instead of 22.7 s by epochs · 0 of 5,812 rows mixed*

The time by epochs is a prediction (``planning.prediction``), made from the queues when the change is first seen here, a
fraction of a second after its request: afterwards they are not what it had to overtake. How many rows were processed by
both configurations is known in runs with an audit, which judges the whole trace: once for each change, in a thread, and
not in long runs, where that would occupy the kernel for seconds.
"""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable

import ipywidgets

from fries_nb.changes.change import Change
from fries_nb.errors import FriesError, RunError, TraceError
from fries_nb.notebook.panels import RunMoment
from fries_nb.run import Run
from fries_nb.words import milliseconds

_LARGE = "font-size: 20px; font-weight: 600; line-height: 1.5"
_UNDO = "Undo"
FRESH_S = 2.0
"""Seconds from a request for which the queues that are seen here stand for those of the request."""
MOST_JUDGED = 5_000_000
"""Number of tuples at all operators up to which a trace is judged here, which then takes about a second."""


class ChangeLine(ipywidgets.HBox):
    """The last change, in ``words``, and ``undo``, a button that takes it back; empty before the first one.

    Args:
        run: the run.
        changes: whether the page may change an operator.
    """

    def __init__(self, run: Run, changes: Callable[[str], bool] = lambda operator: True) -> None:
        self._run, self._changes = run, changes
        self._change: Change | None = None
        self._by_epoch_ms: float | None = None
        self._is_judged = False
        self._mixed = self._trouble = ""
        self.words = ipywidgets.HTML()
        self.words.layout.flex = "0 1 auto"
        self.undo = ipywidgets.Button(description=_UNDO, tooltip="Change its operators back, while the dataflow runs")
        self.undo.layout.width = "80px"
        self.undo.on_click(lambda _: self._undone())
        super().__init__([])
        self.add_class("fries-last-change")
        self.layout.flex_flow, self.layout.align_items = "row wrap", "center"

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        change = moment.changes[-1] if moment.changes else None
        if change is None:
            return
        if change is not self._change:
            self._begin(change)
        tuples = sum(one.processed for one in moment.last.operators.values())
        if change.done and not self._is_judged and tuples <= MOST_JUDGED:
            self._is_judged = True
            threading.Thread(target=self._judge, args=[change], name="fries-judge", daemon=True).start()
        text = self._text(change)
        if text != self.words.value:
            self.words.value = text
        self.undo.disabled = bool(self._refusal(change, moment.over))
        self.undo.tooltip = self._refusal(change, moment.over) or "Change its operators back, while the dataflow runs"

    def _begin(self, change: Change) -> None:
        self._change, self._by_epoch_ms = change, None
        self._is_judged, self._mixed, self._trouble = False, "", ""
        self.children = [self.words, self.undo]  # first, since planning fails in a run that has just ended
        targets = change.plan.targets
        # One that is done within milliseconds leaves the queues as they were.
        is_new = not change.done or time.time() - change.requested_s < FRESH_S
        if is_new and change.plan.scheduler != "epoch" and targets == change.updates.keys():  # no other shape
            prediction = self._run.plan(targets, change.plan.scheduler).prediction
            self._by_epoch_ms = None if prediction is None else prediction.epoch_ms

    def _text(self, change: Change) -> str:
        if not change.done:
            instead = f"; by epochs it would take {milliseconds(self._by_epoch_ms)}" if self._by_epoch_ms else ""
            return _line("under way", f"{change.label}{instead}")
        result = change.result(0)
        if result.outcome != "done":
            parts = [change.label, result.error, self._trouble]
            return _line(result.outcome.replace("_", " "), " · ".join(filter(None, parts)))
        spared = self._by_epoch_ms if self._by_epoch_ms and self._by_epoch_ms > result.delay_ms else None
        instead = f", instead of {milliseconds(spared)} by epochs" if spared else ""
        parts = [f"{change.label}{instead}", self._mixed, self._trouble]
        return _line(milliseconds(result.delay_ms), " · ".join(filter(None, parts)))

    def _judge(self, change: Change) -> None:
        """Count the rows that a change has mixed, where the run is audited."""
        if change.result().outcome != "done":
            return
        try:
            verdict = self._run.audit()
        except RunError:  # it was not asked for
            return
        except TraceError as error:
            said = f"not audited: {error}"
        else:
            mixed = len({one.transaction for one in verdict.mixed if one.update == change.id})
            said = f"{mixed:,} of {verdict.transactions:,} rows mixed"
        if change is self._change:
            self._mixed = said

    def _refusal(self, change: Change, over: bool) -> str:
        """Why the change cannot be undone here now; empty if it can."""
        if over:
            return "the run has ended"
        if not change.done:
            return "it is under way"
        fixed = [name for name in sorted(change.plan.targets) if not self._changes(name)]
        return f"this page does not change {', '.join(fixed)}" if fixed else change.blocked_by() or ""

    def _undone(self) -> None:
        change = self._change
        if change is not None and not self._refusal(change, over=False):
            self.undo.disabled = True
            threading.Thread(target=self._undo, args=[change], name="fries-undo", daemon=True).start()

    def _undo(self, change: Change) -> None:
        try:
            self._run.rollback(change)
        except FriesError as error:
            self._trouble = str(error)


def _line(large: str, rest: str) -> str:
    """The line as HTML, which is read aloud when it changes."""
    return f'<div role="status"><span style="{_LARGE}">{html.escape(large)}</span> {html.escape(rest)}</div>'
