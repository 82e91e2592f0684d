"""The form below a run's picture: a line for each operator that was chosen there, to plan its change and to apply it.

All operators that are chosen change together. What a click starts goes on in a thread, since a click is heard only
while the kernel does nothing else.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets
from IPython.core.error import UsageError

from fries_nb.dataflow.graph import Graph
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import FriesError
from fries_nb.notebook import summaries
from fries_nb.notebook.assignments import evaluate
from fries_nb.notebook.statuses import in_the_way
from fries_nb.notebook.summaries import changeable
from fries_nb.report.planned import in_words
from fries_nb.run import Run
from fries_nb.scheduling import SCHEDULERS, Plan

HINT = "To change operators, click them in the picture; all that you choose change together."
_EXAMPLE = "the new function, as in MerchantModel(window=10)"


class ChangeForm(ipywidgets.VBox):
    """Widgets ``functions`` (by operator, once it was chosen), ``scheduler``, ``plan``, ``apply`` and ``result``.

    Args:
        run: what is changed.
        names: the user's; expressions are evaluated with them.
        show_plan: told each plan that the user asks for.
    """

    def __init__(self, run: Run, names: dict[str, Any], show_plan: Callable[[Plan], None]) -> None:
        self._run = run
        self._names = names
        self._show_plan = show_plan
        self._chosen: tuple[str, ...] = ()
        self._over = False
        self.functions: dict[str, ipywidgets.Text] = {}
        self._rows = ipywidgets.VBox()
        self._hint = ipywidgets.HTML()
        self.scheduler = ipywidgets.Dropdown(options=list(SCHEDULERS), description="Scheduler")
        self.scheduler.style.description_width = "90px"
        self.scheduler.layout.width = "210px"
        self.plan = ipywidgets.Button(description="Plan", tooltip="Show what the change would synchronise")
        self.apply = ipywidgets.Button(description="Apply", button_style="primary", tooltip="Change it now")
        for button, clicked in ((self.plan, self._planned), (self.apply, self._applied)):
            button.layout.width = "80px"
            button.on_click(clicked)
        self.result = ipywidgets.HTML()
        row = ipywidgets.HBox([self.scheduler, self.plan, self.apply])
        row.layout.flex_flow = "row wrap"
        super().__init__([self._hint, self._rows, row, self.result])
        self.choose(())

    def choose(self, operators: Sequence[str]) -> None:
        """Change these operators, as far as they run a function; what was typed for others is kept for later."""
        known = changeable(self._run.graph)
        self._chosen = tuple(name for name in operators if name in known)
        for name in self._chosen:
            if name not in self.functions:
                self.functions[name] = _function(name)
        self._rows.children = [self.functions[name] for name in self._chosen]
        self._hint.value = f"<span>{html.escape(_hint(self._run.graph, operators, known))}</span>"
        self._enable()

    def end(self) -> None:
        """The run is over: nothing can change any more."""
        self._over = True
        self._enable()

    def _enable(self) -> None:
        self.plan.disabled = self.apply.disabled = self._over or not self._chosen

    def _planned(self, _: object) -> None:
        graph = self._run.graph
        try:
            updates = evaluate(typed, self._names) if (typed := self._typed()) else {}
            check_updates(graph, as_updates(updates) if updates else {})
            plan = self._run.plan(self._chosen, self.scheduler.value)
        except (UsageError, FriesError) as error:
            self._say(str(error), failed=True)
        else:
            self._show_plan(plan)
            self._say("\n".join([f"Plan by {plan.scheduler}, nothing has changed yet.", *in_words(graph, plan)]))

    def _applied(self, _: object) -> None:
        typed = self._typed()
        if missing := [name for name in self._chosen if name not in typed]:
            self._say(f"{missing[0]} has no new function; type {_EXAMPLE}, or click {missing[0]} again", failed=True)
            return
        self.apply.disabled = True
        first = next(iter(in_the_way(self._run, self._chosen)), "")
        waits = f" It waits for a change of {first} alone, which stands in front of a tuple." if first else ""
        self._say(f"under way ...{waits}")
        threading.Thread(target=self._apply, args=[typed], name="fries-apply", daemon=True).start()

    def _apply(self, typed: dict[str, str]) -> None:
        try:
            change = self._run.reconfigure(evaluate(typed, self._names), scheduler=self.scheduler.value)
            result = change.result()
        except (UsageError, FriesError) as error:
            self._say(str(error), failed=True)
        else:
            if result.outcome == "done":
                self._say(repr(summaries.of_change(result)))
            else:
                self._say(f"{change.label} {result.outcome}: {result.error}", failed=True)
        finally:
            self._enable()

    def _typed(self) -> dict[str, str]:
        """The expressions of the operators that were chosen, without those that are still empty."""
        lines = {name: self.functions[name].value.strip() for name in self._chosen}
        return {name: line for name, line in lines.items() if line}

    def _say(self, text: str, failed: bool = False) -> None:
        colour = "color: var(--jp-error-color1, #b3261e); " if failed else ""
        role = "alert" if failed else "status"
        shown = html.escape(text)
        self.result.value = (
            f'<div role="{role}" style="{colour}margin: 4px 0; line-height: 1.5; white-space: pre-wrap">{shown}</div>'
        )


def _function(operator: str) -> ipywidgets.Text:
    """Where the new function of an operator is typed."""
    line = ipywidgets.Text(description=operator, placeholder=_EXAMPLE, tooltip=f"new function of {operator}")
    line.style.description_width = "90px"
    line.layout.width = "auto"
    return line


def _hint(graph: Graph, chosen: Sequence[str], known: Sequence[str]) -> str:
    """What to do next, or why a choice has no effect."""
    if not known:
        return "No operator here runs a function that could change."
    fixed = [f"{name} is a {graph.by_name[name].kind}, which has no function to change" for name in chosen
             if name not in known]  # fmt: skip
    return "; ".join(fixed) if chosen else HINT
