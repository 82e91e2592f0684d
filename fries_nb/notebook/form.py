"""The form below a run's picture: one line for each selected operator, to plan their change and to apply it.

All selected operators change together. Clicks start their work in a thread, since the kernel handles further messages
only when the handler has returned.
"""

from __future__ import annotations

import html
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
from IPython.core.error import UsageError

from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import FriesError, exception_text
from fries_nb.notebook import summaries
from fries_nb.notebook.cell_outputs import DEFAULT_S
from fries_nb.notebook.entry_field import EntryField
from fries_nb.notebook.function_sources import FunctionSource
from fries_nb.notebook.statuses import in_the_way
from fries_nb.notebook.widgets import answer_in_subshell, said
from fries_nb.report.plan_section import in_words
from fries_nb.run import Run
from fries_nb.scheduling import SCHEDULERS, Plan

_GUARD = "A change that fails within so many seconds is rolled back by itself; 0: it is not"
_LONGEST_S = 86_400.0


class ChangeForm(ipywidgets.VBox):
    """The form in which a user plans and applies a change of the selected operators.

    Its parts are the attributes ``functions`` (by operator, once it was selected), ``scheduler``, ``guard``, ``plan``,
    ``apply`` and ``result``.

    Args:
        run: the run to change.
        source: supplies the new functions.
        show_plan: called with each plan that the user requests, and with ``None`` when the plan is out of date.
    """

    def __init__(self, run: Run, source: FunctionSource, show_plan: Callable[[Plan | None], None]) -> None:
        self._run = run
        self._source = source
        self._show_plan = show_plan
        self._chosen: tuple[str, ...] = ()
        self._over = False
        self._says_plan = self._draws_plan = False
        self._doubted: tuple[dict[str, str], str] | None = None
        self.functions: dict[str, EntryField] = {}
        self._rows = ipywidgets.VBox()
        self._hint = ipywidgets.HTML()
        self.scheduler = EntryField("Scheduler", options=tuple(SCHEDULERS))
        self.scheduler.layout.width = "210px"
        self.guard = EntryField("Guard (s)", value=f"{DEFAULT_S:g}", tooltip=_GUARD, kind="number")
        self.guard.layout.width = "160px"
        self.plan = ipywidgets.Button(description="Plan", tooltip="Show what the change would synchronise")
        self.apply = ipywidgets.Button(description="Apply", button_style="primary", tooltip="Change it now")
        for button, clicked in ((self.plan, self._planned), (self.apply, self._applied)):
            button.layout.width = "80px"
            button.on_click(clicked)
        self.scheduler.observe(lambda _: self._forget_plan(), names="value")
        self.result = ipywidgets.HTML()
        row = ipywidgets.HBox([self.scheduler, self.guard, self.plan, self.apply])
        row.layout.flex_flow = "row wrap"
        super().__init__([self._hint, self._rows, row, self.result])
        self.choose(())

    def choose(self, operators: Sequence[str]) -> None:
        """Select operators, except those without a function source; text entered for an operator is kept."""
        graph = self._run.graph
        self._chosen = tuple(name for name in operators if name in graph and self._source.has(name))
        for name in self._chosen:
            if name not in self.functions:
                self.functions[name] = self._field(name)
        self._rows.children = [self.functions[name] for name in self._chosen]
        self._hint.value = f"<span>{html.escape(self._hint_for(operators))}</span>"
        self._forget_plan()
        self._enable()

    def end(self) -> None:
        """Disable the form, since the run has ended."""
        self._over = True
        self._enable()

    def _enable(self) -> None:
        self.plan.disabled = self.apply.disabled = self._over or not self._chosen

    def _field(self, operator: str) -> EntryField:
        field = self._source.field(operator)
        field.on_msg(self._heard)
        answer_in_subshell(field)
        return field

    def _heard(self, _: object, content: Any, __: object) -> None:
        """Handle messages of text fields: Enter plans the change, as the button does."""
        if content == {"event": "submit"} and not self.plan.disabled:
            self._planned(None)

    def _hint_for(self, operators: Sequence[str]) -> str:
        """The next step, or the reason why a selection has no effect."""
        graph = self._run.graph
        if not operators or not any(self._source.has(name) for name in graph):
            return self._source.hint
        fixed = [name for name in operators if name in graph and name not in self._chosen]
        return "; ".join(self._source.refusal(graph.by_name[name]) for name in fixed)

    def _forget_plan(self) -> None:
        """Remove the plan if its operators or its scheduler are no longer selected."""
        if self._says_plan:
            self._says_plan = False
            self.result.value = ""
        if self._draws_plan:
            self._draws_plan = False
            self._show_plan(None)

    def _planned(self, _: object) -> None:
        graph = self._run.graph
        try:
            entries = self._entries()
            updates = self._source.functions(entries) if entries else {}
            check_updates(graph, as_updates(updates) if updates else {})
            plan = self._run.plan(self._chosen, self.scheduler.value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (it runs the user's code)
            self._say(_words(error), failed=True)
        else:
            self._show_plan(plan)
            self._say("\n".join([f"Plan by {plan.scheduler}, nothing has changed yet.", *in_words(graph, plan)]))
            self._says_plan = self._draws_plan = True

    def _applied(self, _: object) -> None:
        entries, scheduler = self._entries(), self.scheduler.value
        if missing := [name for name in self._chosen if name not in entries]:
            self._say(self._source.missing(missing[0]), failed=True)
            return
        try:
            guard_s = _seconds(self.guard.value)
        except UsageError as error:
            self._say(str(error), failed=True)
            return
        self.apply.disabled = True
        first = next(iter(in_the_way(self._run, self._chosen)), "")
        waits = f" It waits for a change of {first} alone, which is paused on a tuple." if first else ""
        self._say(f"under way ...{waits}")
        forced = self._doubted == (entries, scheduler)
        self._doubted = None
        given = [entries, scheduler, guard_s, forced]
        threading.Thread(target=self._apply, args=given, name="fries-apply", daemon=True).start()

    def _apply(self, entries: dict[str, str], scheduler: str, guard_s: float | None, forced: bool) -> None:
        try:
            functions = self._source.functions(entries)
            change = self._run.reconfigure(functions, scheduler=scheduler, guard=guard_s, force=forced)
            result = change.result()
        except BaseException as error:  # noqa: BLE001 (it runs the user's code, and the thread ends here)
            self._say(_words(error), failed=True)
        else:
            if result.outcome == "done":
                self._say(repr(summaries.of_change(result)))
            elif result.needs_force:
                self._doubted = (entries, scheduler)
                self._say(f"{change.label} {result.outcome}: {result.error}, as does a second click", failed=True)
            else:
                self._say(f"{change.label} {result.outcome}: {result.error}", failed=True)
            self._enable()
            settled = change.settled()
            if settled.outcome == "rolled_back" and result.outcome == "done":
                self._say(f"{change.label}: {settled.error}", failed=True)
        finally:
            self._enable()

    def _entries(self) -> dict[str, str]:
        """The text entered for the selected operators, without empty entries."""
        entries = {name: self._source.read(name, self.functions[name]) for name in self._chosen}
        return {name: entry for name, entry in entries.items() if entry}

    def _say(self, text: str, failed: bool = False) -> None:
        self._says_plan = False
        words, indented, source = text.partition("\n    ") if failed else (text, "", "")
        mark = f'<pre style="margin: 0">{html.escape(indented[1:] + source)}</pre>' if source else ""
        self.result.value = said(words, failed) + mark


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, (UsageError, FriesError)) else exception_text(error)


def _seconds(text: str) -> float | None:
    """The seconds of a guard; ``None`` for 0.

    >>> _seconds("2.5"), _seconds("0")
    (2.5, None)

    Raises:
        UsageError: the text is no number of seconds up to a day.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST_S:
        raise UsageError(f"Guard (s): got {text!r}; expected a number of seconds from 0 to {_LONGEST_S:,.0f}")
    return seconds or None
