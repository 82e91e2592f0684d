"""The panel of changes: all changes of a run, and of the selected one where its time went, what it changed, its replay.

Buttons work in threads, since the kernel handles further messages only when the handler has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import ipywidgets

from fries_nb.changes import Change
from fries_nb.errors import FriesError
from fries_nb.notebook import summaries
from fries_nb.notebook.change_lines import COLUMNS, change_row, why_waits
from fries_nb.notebook.dag_panel import DagPanel
from fries_nb.notebook.replay_bar import ReplayBar
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.table_view import TableView
from fries_nb.notebook.widgets import said
from fries_nb.report.change_rows import function_parts, time_parts
from fries_nb.report.markup import Html, joined
from fries_nb.run import Run

EMPTY = "No change was requested yet: select an operator in the picture, or use %fries_reconfigure."

class ChangePanel(ipywidgets.VBox):
    """The changes of a run, the newest first, and the selected one.

    Its parts are the attributes ``table``, ``details``, ``revert``, ``cancel``, ``replay`` and ``result``, and
    ``bar``, which controls a replay and belongs beside the picture. A change is selected when it is requested.

    Args:
        run: the run.
        pictures: the panel of the dataflow, in which a change is replayed.
        changes: whether the page may change an operator; it reverts and cancels no change of others.
    """

    def __init__(
        self, run: Run, pictures: DagPanel, changes: Callable[[str], bool] = lambda operator: True
    ) -> None:
        self._run, self._changes = run, changes
        self._known: Mapping[str, Change] = {}
        self._shown: tuple[object, ...] = ()
        self._one_at_a_time = threading.Lock()  # the user selects in one thread, a new change is shown in another
        self.table = TableView("Changes", COLUMNS, selectable=True, empty=EMPTY)
        self.details, self.result = ipywidgets.HTML(), ipywidgets.HTML()
        self.revert = self._button("Revert", "Change its operators back, while the dataflow runs", self._reverted)
        self.cancel = self._button("Cancel", "Abort it, if it was not decided yet", self._cancelled)
        self.replay = self._button("Replay", "Show its message and markers in the picture once more", self._replayed)
        self.bar = ReplayBar(pictures.view, lambda: pictures.show_plan(None))
        self._buttons = ipywidgets.HBox([self.revert, self.cancel, self.replay])
        self._buttons.layout.flex_flow = "row wrap"
        self.table.observe(lambda _: self._select(RunMoment(self._run)), names="selected")
        super().__init__([self.table])

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        known = {change.id: change for change in moment.changes}
        if known.keys() != self._known.keys():
            self._known = known
            self.bar.end()
            self.table.selected = moment.changes[-1].id
        self.table.fill({change.id: change_row(change) for change in reversed(moment.changes)})
        self._select(moment)

    def _select(self, moment: RunMoment) -> None:
        """Show the selected change, if it or what can be done with it has changed."""
        with self._one_at_a_time:
            self._show(moment)

    def _show(self, moment: RunMoment) -> None:
        change = self._known.get(self.table.selected)
        if change is None:
            self._shown, self.children = (), [self.table]
            return
        waits = "" if change.done else why_waits(moment, change)
        fixed = self._fixed(change)
        refused = fixed or (self._run.revertible(change) if change.done and not moment.over else "the run has ended")
        outcome = change.result(0).outcome if change.done else ""
        shown = (change, outcome, waits, refused)
        if shown == self._shown:
            return
        self.revert.disabled, self.revert.tooltip = bool(refused), refused or "Change its operators back"
        self.cancel.disabled, self.replay.disabled = change.done or bool(fixed), outcome != "done"
        self.details.value = said(f"{change.id}: {waits}") if waits else self._facts(change)
        self.children = [self.table, self._buttons, self.result, self.details]
        self._shown = shown  # not before, since an update that failed is made again

    def _fixed(self, change: Change) -> str:
        """Why the page may not undo a change, as a message; empty if it may."""
        fixed = [name for name in sorted(change.plan.targets) if not self._changes(name)]
        return f"this page does not change {', '.join(fixed)}" if fixed else ""

    def _facts(self, change: Change) -> str:
        """Where the time of a change went, or why it had no effect; and the differences of its functions."""
        result = change.result(0)
        head = time_parts(result) if result.outcome == "done" else said(result.error, failed=True)
        return joined([Html(head), *function_parts(change, self._run.graph.order)])

    def _button(self, words: str, tooltip: str, clicked: Callable[[Change], None]) -> ipywidgets.Button:
        button = ipywidgets.Button(description=words, tooltip=tooltip, disabled=True)
        button.layout.width = "90px"
        button.on_click(lambda _: self._do(clicked))
        return button

    def _do(self, clicked: Callable[[Change], None]) -> None:
        if (change := self._known.get(self.table.selected)) is not None:
            clicked(change)

    def _reverted(self, change: Change) -> None:
        if fixed := self._fixed(change):  # a button that is disabled in the page is no protection
            self.result.value = said(fixed, failed=True)
            return
        self.revert.disabled = True
        self.result.value = said("under way ...")
        threading.Thread(target=self._revert, args=[change], name="fries-revert", daemon=True).start()

    def _revert(self, change: Change) -> None:
        try:
            result = self._run.rollback(change=change).result()
        except FriesError as error:
            self.result.value = said(str(error), failed=True)
        else:
            failed = result.outcome != "done"
            self.result.value = said(result.error if failed else repr(summaries.of_change(result)), failed)
        self._shown = ()

    def _cancelled(self, change: Change) -> None:
        if fixed := self._fixed(change):
            self.result.value = said(fixed, failed=True)
            return
        change.cancel()
        self.result.value = said(f"change {change.id}: it is cancelled, unless it was decided already")

    def _replayed(self, change: Change) -> None:
        self.bar.begin(self._run.replay(change))
