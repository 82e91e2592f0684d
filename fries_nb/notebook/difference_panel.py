"""The difference of a cell that was run again, and the button that applies it: below the cell, and on the canvas.

They are the same button: its widget stands in both places, so that a click in one is seen in the other.

The button belongs to one difference: it applies that one, or says in a sentence why not. It does not apply what was
declared later, since that is not what its reader looks at; nor the difference to a run that has changed since, or has
ended. Where states would be lost, it asks first, and names the operators.

While the notebook is open, the output is a small widget; as soon as its outcome is known, it is text, which a saved
notebook keeps. Programs that execute notebooks, and shells without a kernel, get the difference alone.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import ipywidgets
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from fries_nb.changes.change import Change
from fries_nb.controller.events import Outcome
from fries_nb.errors import FriesError, exception_text
from fries_nb.notebook import summaries
from fries_nb.notebook.cells import CellOutput
from fries_nb.notebook.known import OVER
from fries_nb.notebook.panels import DagPanel, RunMoment
from fries_nb.notebook.remedy_panels import outcome_line, progress_line
from fries_nb.notebook.summaries import Summary
from fries_nb.notebook.waits import GLANCE_S, change_progress
from fries_nb.notebook.widgets import answer_in_subshell, words_html
from fries_nb.planning.difference import Difference
from fries_nb.planning.shape import PlannedDifference
from fries_nb.run import Dataflow, Run
from fries_nb.running.rescales import Rescale

WIDGET = "application/vnd.jupyter.widget-view+json"
# Without its kernel the panel is only text ("Loading widget..." or an error) in a panel without elements.
WITHOUT_KERNEL = """<style>
.jp-OutputArea-child:has(.fries-difference) + .jp-OutputArea-child > .jp-OutputArea-output.lm-Panel:not(:has(*)) {
  display: none; }
</style>"""
_AGAIN = "run the cell again to see the present one"
_NAMED = 3
"""Number of operators and edges up to which a line names them."""


class DifferencePanel:
    """The button Apply of a difference, as a widget that can stand in several places. Needs a kernel.

    Its parts are the attributes ``apply``, ``look`` (which shows examples, if only functions differ), ``dismiss``,
    ``confirm`` and ``keep`` (the answers to what it asks), ``words`` and ``examples``. ``ended`` is how it ended, in
    words; empty as long as it is offered. ``run``, ``shown`` and ``cell``, the number of the cell, say what it is of.

    Args:
        shell: the shell whose cell is being executed.
        run: the run.
        flow: the dataflow that was declared, of which ``shown`` is the difference.
        shown: the difference that stands above.
        is_current: whether a dataflow is the one declared last under its name.
        guard_s: the guard of the change, in seconds; 0 for none.
    """

    def __init__(
        self, shell: InteractiveShell, run: Run, flow: Dataflow, shown: PlannedDifference,
        is_current: Callable[[Dataflow], bool], guard_s: Callable[[], float],
    ) -> None:  # fmt: skip
        self.run, self.shown, self._flow = run, shown, flow
        self.cell = len(shell.user_ns.get("In", ())) - 1
        self.ended = ""
        self._leave: Callable[[], None] = lambda: None
        self._is_current, self._guard_s = is_current, guard_s
        self._confirmed: Callable[[], None] = lambda: None
        self._busy = False  # from a click on until its outcome: a second click of the same button does nothing
        self._output = CellOutput(shell)
        self.words = ipywidgets.HTML()
        self.apply = _button("Apply", "Change the run to what the cell declares", "primary", self._applied)
        self.confirm = _button("", "", "danger", lambda: self._confirmed())
        self.keep = _button("Keep it", "Change nothing", "", self._kept)
        tooltip = "Show what recent rows become with the change, and as it is; nothing is changed"
        self.look = _button("Examples", tooltip, "", self._looked)
        self.dismiss = _button("Dismiss", "Leave the run as it is", "", self._dismissed)
        self.examples = ipywidgets.HTML()
        self.widget = ipywidgets.HBox(self._offered)
        self.widget.layout.flex_flow = "row wrap"
        self.widget.layout.align_items = "center"
        answer_in_subshell(self.widget, self.confirm, self.keep)

    def show(self) -> None:
        """Add the panel to the cell that is being executed."""
        self._output.create({WIDGET: self.widget.get_view_spec(), "text/plain": ""})

    def on_end(self, leave: Callable[[], None]) -> None:
        """Call this in the thread in which it ends, before its widget is closed."""
        self._leave = leave

    @property
    def is_last(self) -> bool:
        """Whether its dataflow is the one declared last."""
        return self._is_current(self._flow)

    def check(self) -> None:
        """End it if it is not the difference to apply any more, unless it is being applied."""
        if not self._busy and (outdated := self._outdated()) and not self._busy:
            self._end(outdated)

    # ---- clicks

    def _applied(self) -> None:
        if self._busy:
            return
        if lost := self.shown.lost:
            words = f"{', '.join(lost)}: the state is lost. Apply all the same?"
            self._ask(words, f"Drop {', '.join(lost)}", partial(self._begin, drop=lost))
        else:
            self._begin()

    def _dismissed(self) -> None:
        self._end(f"dismissed: {self.run.graph.name!r} runs as before; %fries_apply applies what the cell declares")

    def _kept(self) -> None:
        self._offer("nothing changed")

    def _ask(self, words: str, answer: str, confirmed: Callable[[], None]) -> None:
        self._busy, self._confirmed, self.confirm.description = False, confirmed, answer
        self.words.value = words_html(words)
        self.widget.children = [self.words, self.confirm, self.keep]

    def _offer(self, words: str, failed: bool = False) -> None:
        """Say something, and offer to apply it."""
        self._busy = False
        self.words.value = words_html(words, failed)
        self.widget.children = self._offered

    @property
    def _offered(self) -> list[ipywidgets.Widget]:
        """What is there as long as nothing is under way."""
        look = [self.look] if self.shown.functions and not self.shown.has_new_shape else []
        return [self.apply, *look, self.dismiss, self.words, self.examples]

    def _end(self, words: str) -> None:
        """Say something in place of the buttons, for good."""
        self.ended = words
        self._leave()
        self._output.replace({"text/plain": words})
        self.widget.close()

    # ---- the change, in a thread, since the kernel handles further messages only when the handler has returned

    def _begin(self, drop: Sequence[str] = (), force: bool = False) -> None:
        if self._busy:
            return
        self._busy = True
        self.words.value = words_html("under way ...")
        self.widget.children = [self.words]
        threading.Thread(target=self._change, args=[drop, force], name="fries-apply", daemon=True).start()

    def _change(self, drop: Sequence[str], force: bool) -> None:
        try:
            if outdated := self._outdated():
                self._end(outdated)
                return
            applied = self.run.apply(self._flow, guard=self._guard_s() or None, force=force, drop=drop)
            if isinstance(applied, Rescale):
                self._rescaled(applied)
                return
            result = self._result(applied)
        except Exception as error:  # noqa: BLE001 - it pickles the user's objects, and the thread ends here
            known = isinstance(error, FriesError | UsageError)
            self._offer(str(error) if known else exception_text(error), failed=True)
        else:
            self._tell(applied, result, drop)

    def _looked(self) -> None:
        """Show examples, in a thread as well."""
        if self._busy:
            return
        self._busy = True
        self.words.value = words_html("rehearsed on recent rows ...")
        threading.Thread(target=self._show_examples, name="fries-examples", daemon=True).start()

    def _show_examples(self) -> None:
        try:
            found = self.run.examples(self._flow)
        except Exception as error:  # noqa: BLE001 - it pickles the user's objects, and the thread ends here
            known = isinstance(error, FriesError | UsageError | TimeoutError)
            self._offer(str(error) if known else exception_text(error), failed=True)
        else:
            self.examples.value = found._repr_html_()
            self._offer("")

    def _outdated(self) -> str:
        """Why the difference that is shown is not the one to apply any more, in a sentence; empty if it is."""
        run = self.run
        if run.state in OVER:
            return f"{run.graph.name!r} has {run.state}; a difference is applied to a dataflow that runs"
        if not self.is_last:
            return "this difference is outdated, since the dataflow was declared again; the newest one has the button"
        now = run.diff(self._flow)
        if not now:
            return f"{run.graph.name!r} runs as it is declared"
        if (now.summary, now.lines) != (self.shown.summary, self.shown.lines):
            return f"this difference is outdated, since the run has changed meanwhile; {_AGAIN}"
        return ""

    def _result(self, change: Change) -> Outcome:
        """Wait for the end of a change, and say meanwhile what it waits for."""
        while True:
            try:
                return change.result(timeout=GLANCE_S)
            except TimeoutError:
                self.words.value = words_html(change_progress(self.run, change))

    def _rescaled(self, rescale: Rescale, before: str = "") -> None:
        """Wait for the end of a rescale, say meanwhile how far it is, and then how it went."""
        while True:
            try:
                result = rescale.result(timeout=GLANCE_S)
            except TimeoutError:
                self.words.value = words_html(progress_line(rescale, self.run.topology()))
            else:
                self._end(f"{before}{outcome_line(result, self.run.topology())}")
                return

    def _tell(self, change: Change, result: Outcome, drop: Sequence[str]) -> None:
        """Say how it went; a change that was rolled back by its guard later is told in the same place."""
        if result.outcome == "done":
            followed = self.run.rescaling if self.shown.workers else None
            if followed is None:
                self._end(repr(summaries.of_change(result)))
            else:
                self._rescaled(followed, f"{summaries.of_change(result)!r}\n")
            settled = change.settled()
            if settled.outcome == "rolled_back":
                self._output.replace({"text/plain": f"{change.label}: {settled.error}"})
        elif result.needs_force:
            words = f"{change.label} {result.outcome}: {result.error}"
            self._ask(words, "Apply all the same", partial(self._begin, drop=drop, force=True))
        else:
            self._offer(f"{change.label} {result.outcome}: {result.error}", failed=True)


class DifferenceBar(ipywidgets.VBox):
    """The difference that a live view shows: a line, and the panel's widget. Empty without one.

    Args:
        pictures: draws it.
    """

    def __init__(self, pictures: DagPanel) -> None:
        self._pictures = pictures
        self._offered: DifferencePanel | None = None
        self._drawn: DifferencePanel | None = None
        self._seen: tuple[object, ...] = ()
        self._one_at_a_time = threading.Lock()  # no widget is put here that is being closed
        self.line = ipywidgets.HTML()
        super().__init__([])

    def offer(self, panel: DifferencePanel) -> None:
        """Show a difference from the next update on; may be called from any thread."""
        panel.on_end(self._clear)
        self._offered = panel

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run; a difference that has ended, or is outdated, vanishes."""
        panel = self._offered
        if panel is not None and not panel.ended:
            run = moment.run
            seen = (panel, moment.over, panel.is_last, run.graph, run.functions(), moment.topology.epoch)
            if seen != self._seen:  # only then, since functions are pickled to be compared
                panel.check()
                self._seen = seen
        panel = None if panel is None or panel.ended else panel
        if panel is not self._drawn:
            self._pictures.show_difference(None if panel is None else panel.shown)
            self._put(panel)
            self._drawn = panel

    def _put(self, panel: DifferencePanel | None) -> None:
        with self._one_at_a_time:
            if panel is not None and not panel.ended:
                self.line.value = f"<b>Difference of cell [{panel.cell}]:</b> {html.escape(in_short(panel.shown))}"
                self.children = [self.line, panel.widget]

    def _clear(self) -> None:
        with self._one_at_a_time:
            self.children = []


def in_short(difference: Difference) -> str:
    """What differs, in a line: a few operators and edges by name, more of them by number.

    >>> from fries_nb.dataflow.graph import Edge, Graph, Operator
    >>> s, a, b, t = map(Operator, "SABT")
    >>> before = Graph("f", (s, a, t), (Edge("S", "A"), Edge("A", "T")))
    >>> in_short(Difference.of(before, Graph("f", (s, a, b, t), (Edge("S", "A"), Edge("A", "B"), Edge("B", "T")))))
    'B added; A -> T removed'
    """
    kept = {*difference.before} & {*difference.after}

    def between(edges: Iterable[tuple[str, str]]) -> list[str]:
        return [f"{source} -> {to}" for source, to in edges if {source, to} <= kept]

    groups = {
        "added": [*difference.added, *between(difference.edges_added)],
        "removed": [*difference.removed, *between(difference.edges_removed)],
        "changed": [*(one.name for one in difference.changed), *between(difference.edges_changed)],
    }
    named = {words: ", ".join(found) if len(found) <= _NAMED else f"{len(found):,}" for words, found in groups.items()}
    return "; ".join(f"{found} {words}" for words, found in named.items() if found)


def show_with_button(shell: InteractiveShell, summary: Summary, panel: DifferencePanel) -> None:
    """Show a difference and, below it, the panel that applies it, in the cell that is being executed."""
    bundle = summary._repr_mimebundle_()
    shown = f'<div class="fries-difference">{WITHOUT_KERNEL}{bundle["text/html"]}</div>'
    shell.display_pub.publish({**bundle, "text/html": shown})
    panel.show()


def _button(words: str, tooltip: str, style: str, clicked: Callable[[], None]) -> ipywidgets.Button:
    button = ipywidgets.Button(description=words, tooltip=tooltip, button_style=style)
    button.layout.width = "auto"
    button.on_click(lambda _: clicked())
    return button
