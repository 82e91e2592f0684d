"""The form below a run's picture: choose an operator, give it a function, see the plan, apply it.

What a click starts goes on in a thread, since a click is heard only while the kernel does nothing else.
"""

from __future__ import annotations

import html
import threading
from collections.abc import Callable
from typing import Any

import ipywidgets
from IPython.core.error import UsageError

from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import FriesError
from fries_nb.notebook import plans, summaries
from fries_nb.notebook.assignments import evaluate, split_line
from fries_nb.notebook.summaries import changeable
from fries_nb.run import Run
from fries_nb.scheduling import SCHEDULERS, Plan, schedule

_PLACEHOLDER = "a Python expression, as in MerchantModel(window=10)"
_LABELS = {"description_width": "70px"}


class ChangeForm(ipywidgets.VBox):
    """Widgets ``operator``, ``function``, ``scheduler``, ``plan``, ``apply`` and ``result``.

    Args:
        run: what is changed.
        names: the user's; expressions are evaluated with them.
        show_plan: told each plan that the user asks for.
    """

    def __init__(self, run: Run, names: dict[str, Any], show_plan: Callable[[Plan], None]) -> None:
        self._run = run
        self._names = names
        self._show_plan = show_plan
        operators = changeable(run.graph)
        self.operator = ipywidgets.Dropdown(options=operators, description="Operator", style=_LABELS)
        self.operator.layout.width = "220px"
        self.function = ipywidgets.Text(placeholder=_PLACEHOLDER, description="Function", style=_LABELS)
        self.function.layout.flex = "1 1 200px"
        self.function.layout.min_width = "200px"  # or it would not give way, and Apply stand in a line of its own
        self.scheduler = ipywidgets.Dropdown(options=list(SCHEDULERS), description="Scheduler", style=_LABELS)
        self.scheduler.layout.width = "190px"
        self.plan = ipywidgets.Button(description="Plan", tooltip="Show what the change would synchronise")
        self.apply = ipywidgets.Button(description="Apply", button_style="primary", tooltip="Change it now")
        for button, clicked in ((self.plan, self._planned), (self.apply, self._applied)):
            button.layout.width = "80px"
            button.disabled = not operators
            button.on_click(clicked)
        self.result = ipywidgets.HTML()
        row = ipywidgets.HBox([self.operator, self.function, self.scheduler, self.plan, self.apply])
        row.layout.flex_flow = "row wrap"
        super().__init__([row, self.result])

    def choose(self, operator: str) -> None:
        """Choose an operator, if it is one that can change."""
        if operator in self.operator.options:
            self.operator.value = operator

    def end(self) -> None:
        """The run is over: nothing can change any more."""
        self.plan.disabled = self.apply.disabled = True

    def _planned(self, _: object) -> None:
        try:
            updates = self._updates() if self.function.value.strip() else {}
            check_updates(self._run.graph, as_updates(updates) if updates else {})
            plan = schedule(self.scheduler.value, self._run.graph, updates or [self.operator.value])
        except (UsageError, FriesError) as error:
            self._say(str(error), failed=True)
        else:
            self._show_plan(plan)
            self._say(plans.of_plan(self._run.graph, plan).text)

    def _applied(self, _: object) -> None:
        self.apply.disabled = True
        self._say("under way ...")
        threading.Thread(target=self._apply, name="fries-apply", daemon=True).start()

    def _apply(self) -> None:
        try:
            change = self._run.reconfigure(self._updates(), scheduler=self.scheduler.value)
            result = change.result()
        except (UsageError, FriesError) as error:
            self._say(str(error), failed=True)
        else:
            if result.outcome == "done":
                self._say(repr(summaries.of_change(result)))
            else:
                self._say(f"{change.label} {result.outcome}: {result.error}", failed=True)
        finally:
            self.apply.disabled = self.plan.disabled

    def _updates(self) -> dict[str, Any]:
        """What the form says; further assignments may follow the first, as in the line of a magic."""
        line = f"{self.operator.value!r}={self.function.value}"
        return evaluate(split_line(line, ()).expressions, self._names)

    def _say(self, text: str, failed: bool = False) -> None:
        colour = "color: var(--jp-error-color1, #b3261e); " if failed else ""
        role = "alert" if failed else "status"
        shown = html.escape(text)
        self.result.value = f'<pre role="{role}" style="{colour}margin: 4px 0; white-space: pre-wrap">{shown}</pre>'
