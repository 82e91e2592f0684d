"""The form below a run's picture: an editor for each selected operator, to plan their change and to apply it.

All selected operators change together. Clicks start their work in a thread, since the kernel handles further messages
only when the handler has returned.

A line of a form, to type in or to choose from, whose content arrives before the clicks that follow it.

A front end holds the state of a widget back while the kernel is at work on the last one, and clicks are not held back.
So with ``ipywidgets.Text`` or ``Dropdown`` a kernel that is busy for half a second could see "Apply" before the last
characters of the function that is to be applied. Custom messages are never held back, and arrive in order.

Sources of new functions for the form: expressions that the user types, or functions that the author offers.

Text typed in a notebook is evaluated as a cell would be, since the kernel is the user's own. Under Voila the kernel
belongs to the author while visitors may be anybody: there, and wherever functions are offered, nothing that the page
sends is evaluated. The page sends the label of an offered function.
"""

from __future__ import annotations

import html
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Protocol

import anywidget
import ipywidgets
import traitlets
from IPython.core.error import UsageError

from fries_nb.dataflow.graph import Graph, Operator
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import as_updates, check_updates
from fries_nb.errors import FriesError, PlanError, exception_text
from fries_nb.notebook import summaries
from fries_nb.notebook.cells import DEFAULT_S
from fries_nb.notebook.editor import FunctionEditor, names_of
from fries_nb.notebook.function_text import running_text, value_of
from fries_nb.notebook.preview import Preview, PreviewShown
from fries_nb.notebook.statuses import in_the_way
from fries_nb.notebook.summaries import changeable
from fries_nb.notebook.widgets import answer_in_subshell, words_html
from fries_nb.planning.schedulers import CHOICES, Plan
from fries_nb.report.change_rows import users_function
from fries_nb.report.plan_section import in_words
from fries_nb.run import Run

_HERE = Path(__file__).parent


class EntryField(anywidget.AnyWidget):
    """A line for text, or a list to choose from if there are ``options``; ``value`` is what it shows.

    Enter in a line for text sends the message ``{"event": "submit"}``, as in ``ipywidgets.Text``. What a page sends is
    not checked against the options. A list without a ``placeholder`` cannot be empty; a page sends no text of a line of
    ``kind`` "number" for what is no number.
    """

    _esm = (_HERE / "entry_field.js").read_text("utf8")
    _css = (_HERE / "entry_field.css").read_text("utf8")
    description = traitlets.Unicode().tag(sync=True)
    placeholder = traitlets.Unicode().tag(sync=True)
    options = traitlets.List(traitlets.Unicode()).tag(sync=True)
    value = traitlets.Unicode().tag(sync=True)
    tooltip = traitlets.Unicode().tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        description: str,
        placeholder: str = "",
        options: Sequence[str] = (),
        value: str = "",
        tooltip: str = "",
        kind: str = "text",
    ) -> None:
        first = options[0] if options and not placeholder else ""
        super().__init__(
            description=description,
            placeholder=placeholder,
            options=list(options),
            value=value or first,
            tooltip=tooltip,
            kind=kind,
        )
        self.on_msg(self._receive)

    def _receive(self, _: object, content: Any, __: object) -> None:
        match content:
            case {"event": "entered", "text": str(text)}:
                self.value = text


Field = EntryField | FunctionEditor
"""What the form has for an operator: ``value`` is its text."""
Offer = Mapping[str, Mapping[str, Any]]
"""Operator name to label to the function, or ``fn.Update``, of that label."""
HINT = "To change operators, click them in the picture; all whose text you edit change together."
_NOTHING = "choose ..."
_FREE_TEXT_IS_OFF = "Functions are chosen from what the author of this page offers; typing others is off."


class FunctionSource(Protocol):
    """A source of new functions for the form."""

    hint: str  # text shown while no operator is selected
    reads_only: bool  # whether the page is for looking only: it changes nothing, and does not end the run
    shows_values: bool  # whether the page is that of its author, and shows rows and states

    def has(self, operator: str) -> bool:
        """Whether this source has functions for the operator."""

    def refusal(self, operator: Operator) -> str:
        """The reason why it has none."""

    def field(self, operator: str, run: Run) -> Field:
        """A new field of the form for the operator."""

    def read(self, operator: str, field: Field) -> str:
        """The value of the field; empty if nothing was entered."""

    def missing(self, operators: Sequence[str], entries: Mapping[str, str], fields: Mapping[str, Field]) -> str:
        """Why these operators are not changed to what was entered, as a message; empty if they are."""

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """Operator name to the function, or update, of each entry."""

    def follow(self, operator: str, field: Field, run: Run) -> None:
        """Another function runs now: show it in the field, if that shows what runs."""


class TypedFunctions:
    """Texts in editors, which begin with what the operators run now; they run in a copy of the user's namespace."""

    def __init__(
        self, graph: Graph, names: dict[str, Any], put_next: Callable[[str], object] = lambda text: None
    ) -> None:  # fmt: skip
        self.hint = HINT if changeable(graph) else "No operator here runs a function that could change."
        self.reads_only, self.shows_values = False, True
        self._graph, self._names, self._put_next = graph, names, put_next

    def has(self, operator: str) -> bool:
        """Whether the operator runs a user function."""
        return operator in changeable(self._graph)

    def refusal(self, operator: Operator) -> str:
        """The reason why the operator cannot be changed."""
        return f"{operator.name} is a {operator.kind}, which has no function to change"

    def field(self, operator: str, run: Run) -> FunctionEditor:
        """An editor with the text of what the operator runs now."""
        running = running_text(run, operator, self._names)
        names = partial(names_of, self._names)
        return FunctionEditor(operator, running, names, _wanted(run.graph.operator(operator)), self._put_next)

    def read(self, operator: str, field: Field) -> str:
        """The text, if it is another one than that of what runs now."""
        assert isinstance(field, FunctionEditor)
        return field.value.strip() if field.is_changed else ""

    def missing(self, operators: Sequence[str], entries: Mapping[str, str], fields: Mapping[str, Field]) -> str:
        """That an editor is empty."""
        name = next((name for name in operators if not fields[name].value.strip()), "")
        wanted = _wanted(self._graph.operator(name)) if name else ""
        return f"{name} has no new function; type {wanted}, or click {name} again" if name else ""

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """The values of the texts."""
        return {name: value_of(name, text, self._names) for name, text in entries.items()}

    def follow(self, operator: str, field: Field, run: Run) -> None:
        """Put the text of what runs now into the editor, unless it was edited."""
        assert isinstance(field, FunctionEditor)
        field.show_running(running_text(run, operator, self._names), run.functions()[operator].version)


class OfferedFunctions:
    """A fixed choice of functions, offered by the author. The page selects one by its label; nothing is evaluated.

    Raises:
        PlanError: the offer is not a mapping of mappings, or an operator cannot run a function that is offered for it.
        DataflowError: as PlanError, or the offer names an unknown operator.
    """

    def __init__(self, graph: Graph, offer: Offer) -> None:
        self._offer = {operator: dict(_labelled(operator, given)) for operator, given in _mapping(offer).items()}
        for operator, functions in self._offer.items():
            for function in functions.values():
                check_updates(graph, as_updates({operator: function}))
        names = ", ".join(name for name in graph if self._offer.get(name))
        self.reads_only, self.shows_values = not names, False
        self.hint = (
            f"To change {names}, click them in the picture. {_FREE_TEXT_IS_OFF}"
            if names
            else f"{_FREE_TEXT_IS_OFF} None is offered here; the author can, by fn.show(run, offer={{...}})."
        )

    def has(self, operator: str) -> bool:
        """Whether functions are offered for the operator."""
        return bool(self._offer.get(operator))

    def refusal(self, operator: Operator) -> str:
        """The message that nothing is offered for the operator."""
        return f"no function is offered for {operator.name}"

    def field(self, operator: str, run: Run) -> EntryField:
        """A drop-down list of the labels."""
        return EntryField(operator, _NOTHING, tuple(self._offer[operator]), tooltip=f"new function of {operator}")

    def read(self, operator: str, field: Field) -> str:
        """The selected label; empty for any other text, since the page could send one."""
        return field.value if field.value in self._offer[operator] else ""

    def missing(self, operators: Sequence[str], entries: Mapping[str, str], fields: Mapping[str, Field]) -> str:
        """That nothing is selected."""
        name = next((name for name in operators if name not in entries), "")
        return f"{name} has no new function; choose one, or click {name} again" if name else ""

    def functions(self, entries: Mapping[str, str]) -> dict[str, Any]:
        """The functions of the selected labels."""
        if not entries:
            raise UsageError("nothing to change; choose a function first")
        return {operator: self._offer[operator][label] for operator, label in entries.items()}

    def follow(self, operator: str, field: Field, run: Run) -> None:
        """A list shows what was chosen, whatever runs."""


def functions_for(
    graph: Graph, names: dict[str, Any], offer: Offer | None, put_next: Callable[[str], object] = lambda text: None
) -> FunctionSource:  # fmt: skip
    """The function source of a run's form: editors, unless functions are offered or under Voila.

    Args:
        graph: the dataflow.
        names: the user's namespace.
        offer: the offered functions; ``None`` for editors.
        put_next: puts a text into a new cell.
    """
    if offer is not None or under_voila(os.environ):
        return OfferedFunctions(graph, offer or {})
    return TypedFunctions(graph, names, put_next)


def under_voila(environment: Mapping[str, str]) -> bool:
    """Whether Voila started this kernel, by the environment variables that Voila sets.

    >>> under_voila({"SERVER_SOFTWARE": "voila/0.5.13"}), under_voila({"VOILA_PREHEAT": "True"}), under_voila({})
    (True, True, False)
    """
    is_voila = environment.get("SERVER_SOFTWARE", "").startswith("voila")
    return is_voila or any(name.startswith("VOILA_") for name in environment)


def _wanted(operator: Operator) -> str:
    """What an operator's field is to have, after the function that was declared."""
    if operator.traits.holds is Holds.TABLE:
        return f"the new table of {operator.name}, as in spark.table(...)"
    function = users_function(operator.function)
    if isinstance(function, FunctionType) and function.__name__ == "<lambda>":
        example = "lambda row: ..."
    elif isinstance(function, FunctionType | type):
        example = function.__name__
    else:
        example = getattr(function, "__name__", "") or f"{type(function).__name__}(...)"
    return f"the new function of {operator.name}, as in {example}"


def _mapping(offer: Any) -> Offer:
    if not isinstance(offer, Mapping):
        raise PlanError(_expected(f"offer={offer!r}"))
    return offer


def _labelled(operator: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not given or not all(isinstance(label, str) and label for label in given):
        raise PlanError(_expected(f"{given!r} for operator {operator!r}"))
    return given


def _expected(got: str) -> str:
    return f"{got}: expected operator to label to function, as in offer={{'FM': {{'lighter': LightModel()}}}}"


_GUARD = "A change that fails within so many seconds is rolled back by itself; 0: it is not"
_LONGEST_S = 86_400.0


class ChangeForm(ipywidgets.VBox):
    """The form in which a user plans and applies a change of the selected operators.

    Its parts are the attributes ``functions`` (by operator, once it was selected), ``scheduler``, ``guard``, ``plan``,
    ``apply``, ``result`` and ``examples``, which shows what edited functions make of recent rows. ``show_plan`` gets
    each plan that is requested, and ``None`` when it is out of date; ``look`` has the page look at the picture, in
    which a change is seen.
    """

    def __init__(
        self, run: Run, source: FunctionSource, show_plan: Callable[[Plan | None], None],
        look: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._run = run
        self._source = source
        self._show_plan, self._look = show_plan, look
        self._chosen: tuple[str, ...] = ()
        self._over = False
        self._says_plan = self._draws_plan = False
        self._doubted: tuple[dict[str, str], str] | None = None
        self._one_at_a_time = threading.Lock()  # the view's thread follows what runs, the user selects in another
        self._versions: dict[str, str] = {}  # operator to the change whose function its editor knows as running
        self._preview = Preview(run, source.functions, self._show_preview)
        self.functions: dict[str, Field] = {}
        self._rows = ipywidgets.VBox()
        self._hint = ipywidgets.HTML()
        self.scheduler = EntryField("Scheduler", options=tuple(CHOICES))
        self.scheduler.layout.width = "160px"
        self.guard = EntryField("Guard (s)", value=f"{DEFAULT_S:g}", tooltip=_GUARD, kind="number")
        self.guard.layout.width = "130px"
        self.plan = ipywidgets.Button(description="Plan", tooltip="Show what the change would synchronise")
        self.apply = ipywidgets.Button(description="Apply", button_style="primary", tooltip="Change it now")
        for button, clicked in ((self.plan, self._planned), (self.apply, self._applied)):
            button.layout.width = "68px"
            button.on_click(clicked)
        self.scheduler.observe(lambda _: self._forget_plan(), names="value")
        self.result, self.examples = ipywidgets.HTML(), ipywidgets.HTML()
        row = ipywidgets.HBox([self.scheduler, self.guard, self.plan, self.apply])
        row.layout.flex_flow = "row wrap"
        super().__init__([self._hint, self._rows, row, self.result, self.examples])
        self.choose(())

    def choose(self, operators: Sequence[str]) -> None:
        """Select operators, except those without a function source; text entered for an operator is kept."""
        graph = self._run.graph
        self._chosen = tuple(name for name in operators if name in graph and self._source.has(name))
        with self._one_at_a_time:
            self.functions |= {name: self._field(name) for name in self._chosen if name not in self.functions}
        self._rows.children = [self.functions[name] for name in self._chosen]
        self._hint.value = f"<span>{html.escape(self._hint_for(operators))}</span>"
        self._forget_plan()
        self._ask(at_once=True)
        self._enable()

    def update(self) -> None:
        """Show in editors what their operators run now, where that has changed; may be called by any thread."""
        with self._one_at_a_time:
            running = self._run.functions() if self.functions else {}
            for name, field in self.functions.items():
                now = running[name].version if name in running else self._versions[name]
                if now != self._versions[name]:
                    self._source.follow(name, field, self._run)
                    self._versions[name] = now

    def end(self) -> None:
        """Disable the form, since the run has ended."""
        self._over = True
        self._preview.end()
        for field in self.functions.values():
            self._close(field)
        self._enable()

    def _close(self, field: Field) -> None:
        if isinstance(field, FunctionEditor) and not field.read_only:
            field.end(f"The run is {self._run.state}: the text can be read, and changes nothing any more.")

    def _enable(self) -> None:
        self.plan.disabled = self.apply.disabled = self._over or not self._chosen

    def _field(self, operator: str) -> Field:
        running = self._run.functions().get(operator)
        field = self._source.field(operator, self._run)
        self._versions[operator] = running.version if running is not None else ""
        field.on_msg(self._heard)
        if isinstance(field, FunctionEditor):
            field.observe(lambda _: self._edited(), names="value")
        if self._over:
            self._close(field)
        answer_in_subshell(field)
        return field

    def _heard(self, _: object, content: Any, __: object) -> None:
        """Handle messages of fields: Enter, in an editor with Ctrl or Cmd, plans the change, as the button does."""
        if content == {"event": "submit"} and not self.plan.disabled:
            self._planned(None)

    def _edited(self) -> None:
        """Ask what the texts in the editors make of recent rows."""
        self._ask(at_once=False)

    def _ask(self, at_once: bool) -> None:
        entries = self._entries()
        self._preview.ask(entries, at_once)
        if not entries:
            self._show_preview(PreviewShown(""))

    def _show_preview(self, shown: PreviewShown) -> None:
        self.examples.value = shown.html
        for name in self._chosen:
            if isinstance(field := self.functions[name], FunctionEditor):
                field.mark(shown.marks.get(name, []))
                field.columns = shown.columns.get(name, field.columns)

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
            plan = self._run.plan(list(updates) or self._chosen, self.scheduler.value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (it runs the user's code)
            self._say(_words(error), failed=True)
        else:
            self._show_plan(plan)
            others = [name for name in self._chosen if updates and name not in updates]
            kept = [f"{name} keeps its function, whose text is the same." for name in others]
            head = f"Plan by {plan.scheduler}, nothing has changed yet."
            self._say("\n".join([head, *in_words(graph, plan), *kept]))
            self._says_plan = self._draws_plan = True
            self._ask(at_once=True)

    def _applied(self, _: object) -> None:
        entries, scheduler = self._entries(), self.scheduler.value
        if missing := self._source.missing(self._chosen, entries, self.functions):
            self._say(missing, failed=True)
            return
        if not entries:
            self._say(f"Nothing changed: the text of {', '.join(self._chosen)} is what runs already.")
            return
        try:
            guard_s = _seconds(self.guard.value)
        except UsageError as error:
            self._say(str(error), failed=True)
            return
        self.apply.disabled = True
        self._preview.forget()
        first = next(iter(in_the_way(self._run, list(entries))), "")
        waits = f" It waits for a change of {first} alone, which is paused on a tuple." if first else ""
        self._say(f"under way ...{waits}")
        self._look()
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
                self.update()
                for name, text in entries.items():
                    if isinstance(field := self.functions[name], FunctionEditor):
                        field.applied(text)
                self._edited()
            elif result.needs_force:
                self._doubted = (entries, scheduler)
                self._say(f"{change.label} {result.outcome}: {result.error}, as does a second click", failed=True)
            else:
                self._say(f"{change.label} {result.outcome}: {result.error}", failed=True)
            self._enable()
            settled = change.settled()
            if settled.outcome == "rolled_back" and result.outcome == "done":
                self._say(f"{change.label}: {settled.error}", failed=True)
                self.update()
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
        self.result.value = words_html(words, failed) + mark


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, (UsageError, FriesError)) else exception_text(error)


def _seconds(text: str) -> float | None:
    """The seconds of a guard; ``None`` for 0.

    >>> _seconds("2.5"), _seconds("0")
    (2.5, None)
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LONGEST_S:
        raise UsageError(f"Guard (s): got {text!r}; expected a number of seconds from 0 to {_LONGEST_S:,.0f}")
    return seconds or None
