"""The form of a change alone: what it takes of the page, and when."""

from __future__ import annotations

import html
import pickle
import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, told
from patience import PATIENCE_S

from fries_nb.notebook.form import ChangeForm, TypedFunctions
from fries_nb.notebook.widgets import words_html

pytestmark = pytest.mark.usefixtures("with_fraud")


@pytest.fixture
def run(shell: InteractiveShell, stand_ins: list[StandIn]) -> StandIn:
    """A stand-in that runs."""
    told(shell, "%fries_run")
    return stand_ins[0]


@pytest.fixture
def form(run: StandIn) -> ChangeForm:
    """A form with an entry for FM."""
    form = ChangeForm(run, TypedFunctions(run.graph, {"Proxy": Proxy}), lambda plan: None)  # type: ignore[arg-type]
    form.choose(["FM"])
    form.functions["FM"].value = "dict"
    return form


def until_applied() -> None:
    """Wait for the threads that apply changes."""
    for thread in threading.enumerate():
        if thread.name == "fries-apply":
            thread.join(PATIENCE_S)


@pytest.mark.parametrize("wrong", ["soon", "", "-1", "nan", "inf", "86401"])
def test_a_guard_is_a_number_of_seconds(form: ChangeForm, run: StandIn, wrong: str) -> None:
    """Another text is refused by its words and stays; nothing changes. Zero is no guard."""
    form.guard.value = wrong
    form.apply.click()
    assert html.escape(f"Guard (s): got {wrong!r}; expected a number of seconds from 0 to 86,400") in form.result.value
    assert run.changes == ()
    for text, guard in (("0", None), (" 2.5 ", 2.5)):
        form.guard.value = text
        form.functions["FM"].value = f"lambda row: {guard}"
        form.apply.click()
        until_applied()
        assert run.guard == guard


def test_a_change_that_is_doubted_is_made_by_a_second_click(form: ChangeForm, run: StandIn) -> None:
    """Of the same entries; another entry is doubted anew."""
    run.doubt = "new FM drops every row; nothing changed, and force=True makes the change all the same"

    def click() -> str:
        form.apply.click()
        until_applied()
        return form.result.value

    assert f"FM by fries aborted: {run.doubt}, as does a second click" in click()
    assert not form.apply.disabled
    assert "done by fries" in click()
    assert click() == words_html("Nothing changed: the text of FM is what runs already.")
    form.functions["FM"].value = "lambda row: None"
    assert "a second click" in click()
    form.scheduler.value = "epoch"
    assert "a second click" in click()
    assert "done by epoch" in click()


def test_a_plan_with_functions_shows_examples_until_it_is_out_of_date(form: ChangeForm, run: StandIn) -> None:
    """Nothing is changed by that; why there are none is said in their place."""

    def planned() -> str:
        form.plan.click()
        for thread in threading.enumerate():
            if thread.name == "fries-examples":
                thread.join(PATIENCE_S)
        return form.examples.value

    assert "<mark>0.25</mark>" in planned()
    assert run.changes == ()
    form.scheduler.value = "epoch"
    assert form.examples.value == ""
    run.no_examples = "not rehearsed within 30 s"
    assert "No examples: not rehearsed within 30 s" in planned()
    form.functions["FM"].value = ""
    assert planned() == ""


class Proxy:
    """A model that is loaded when it is used."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"not loaded: {name}")

    def __call__(self, row: object) -> object:
        return row


class Unpickled:
    """Ends the process that would send it."""

    def __reduce__(self) -> str:
        raise KeyboardInterrupt

    def __call__(self, row: object) -> object:
        return row


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("__import__('sys').exit('bye')", "FM, line 1: SystemExit: bye"),
        ("Proxy()", "RuntimeError: not loaded: __fries_batched__"),
    ],
)
@pytest.mark.parametrize("button", ["plan", "apply"])
def test_whatever_an_expression_raises_is_said(
    form: ChangeForm, run: StandIn, expression: str, said: str, button: str
) -> None:
    """In place of "under way"."""
    form.functions["FM"].value = expression
    getattr(form, button).click()
    until_applied()
    assert html.escape(said) in form.result.value
    assert run.changes == ()
    assert not form.apply.disabled


def test_whatever_a_change_raises_is_said(form: ChangeForm, run: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is pickled by the user's own code."""
    monkeypatch.setattr(run, "reconfigure", lambda change, **how: pickle.dumps(Unpickled()))
    form.apply.click()
    until_applied()
    assert "KeyboardInterrupt: " in form.result.value
    assert not form.apply.disabled


def test_a_click_applies_what_the_form_showed_then(form: ChangeForm, run: StandIn) -> None:
    """Not what is entered while the change is being applied; a page that sends an unknown scheduler is told so."""
    form.scheduler.value = "epoch"
    form.apply.click()
    form.scheduler.value = "<b>"
    until_applied()
    assert run.changes[0].plan.scheduler == "epoch"
    form.plan.click()
    assert "&lt;b&gt;" in form.result.value
    assert "<b>" not in form.result.value
