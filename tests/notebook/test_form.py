"""The form of a change alone: what it takes of the page, and when."""

from __future__ import annotations

import html
import pickle
import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import StandIn, told
from patience import PATIENCE_S

import fries_nb as fn
from fries_nb.notebook.editor import RESET, WRITE_BACK, FunctionEditor, definitions, names_of
from fries_nb.notebook.form import ChangeForm, TypedFunctions
from fries_nb.notebook.function_text import value_of
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


def test_edited_functions_show_examples_until_they_are_out_of_date(form: ChangeForm, run: StandIn) -> None:
    """As they are typed, and when the change is planned; nothing is changed by that, and a plan is not for ever."""

    def seen() -> str:
        for thread in threading.enumerate():
            if thread.name == "fries-examples":
                thread.join(PATIENCE_S)
        return str(form.examples.value)

    assert "<mark>0.25</mark>" in seen()
    form.choose(["MC"])
    assert seen() == ""
    form.choose(["MC", "FM"])
    assert "<mark>0.25</mark>" in seen()
    form.plan.click()
    assert "<mark>0.25</mark>" in seen()
    assert run.changes == ()
    run.no_examples = "not rehearsed within 30 s"
    typed(form, "FM", "lambda row: row['p']")
    assert "No examples: not rehearsed within 30 s" in seen()
    typed(form, "FM", "lambda row: (")
    assert "FM, line 1: " in seen()
    assert [one["line"] for one in editor_of(form).marks] == [1]
    typed(form, "FM", editor_of(form)._running.text)
    assert seen() == ""
    assert editor_of(form).marks == []
    typed(form, "FM", "dict")
    form.choose([])
    assert seen() == ""


def typed(form: ChangeForm, operator: str, text: str, number: int | None = None) -> None:
    """A page sends what is typed into an editor, of its present text or of an earlier one."""
    editor = form.functions[operator]
    assert isinstance(editor, FunctionEditor)
    number = editor.given["number"] if number is None else number
    editor._handle_custom_msg({"event": "entered", "text": text, "number": number}, [])


def applied(form: ChangeForm) -> str:
    """What the form says when a click on Apply is over."""
    form.apply.click()
    until_applied()
    return str(form.result.value)


def editor_of(form: ChangeForm, operator: str = "FM") -> FunctionEditor:
    """The editor of an operator."""
    editor = form.functions[operator]
    assert isinstance(editor, FunctionEditor)
    return editor


def test_an_editor_has_what_runs_now_and_an_undo_gives_the_former_text_back(form: ChangeForm, run: StandIn) -> None:
    """Only what was edited is changed; the same text once more changes nothing."""
    form.choose(["FM", "MC"])
    first = editor_of(form, "MC").value
    assert first == 'lambda row: row | {"after": row["version"]}'
    typed(form, "FM", editor_of(form)._running.text + "  \n")
    assert "Nothing changed: the text of FM, MC is what runs already." in applied(form)
    typed(form, "MC", "lambda row: row | {}")
    assert "done by fries" in applied(form)
    assert set(run.asked) == {"MC"}
    assert not editor_of(form, "MC").is_changed
    run.rollback(run.changes[0])
    form.update()
    assert (editor_of(form, "MC").value, editor_of(form, "MC").note) == (first, "")


def test_a_text_that_is_edited_is_kept_while_another_function_is_put_in_place(form: ChangeForm, run: StandIn) -> None:
    """The editor says so, and gives what runs now when it is asked to; keys that come later are of another text."""
    editor = editor_of(form)
    typed(form, "FM", "lambda row: 'mine'")
    run.reconfigure({"FM": value_of("FM", "lambda row: 'other'", {})})
    form.update()
    assert editor.value == "lambda row: 'mine'"
    assert editor.note == "FM runs another function by u1 now; your text is kept"
    assert editor.actions == [RESET]
    editor._handle_custom_msg({"event": "action", "name": RESET, "put": False}, [])
    assert (editor.value, editor.note, editor.actions) == ("lambda row: 'other'", "", [])
    typed(form, "FM", "lambda row: 'late'", number=0)
    assert editor.value == "lambda row: 'other'"
    for wrong in ({"text": 3, "number": 1}, {"text": "x"}, {"text": "x", "number": None}, {}):
        editor._handle_custom_msg({"event": "action"} | wrong, [])
        editor._handle_custom_msg({"event": "entered"} | wrong, [])
    assert editor.value == "lambda row: 'other'"


def test_an_editor_of_a_run_that_is_over_is_for_reading(form: ChangeForm, run: StandIn) -> None:
    """It says so; what a page sends all the same is not taken. So is an editor that is opened later."""
    run.state = "finished"
    form.end()
    form.choose(["FM", "MC"])
    for operator in ("FM", "MC"):
        editor = editor_of(form, operator)
        before = editor.value
        assert editor.read_only
        assert editor.note == "The run is finished: the text can be read, and changes nothing any more."
        typed(form, operator, "lambda row: 1")
        assert editor.value == before


def test_a_class_of_a_cell_is_written_back_into_the_cell(
    shell: InteractiveShell, run: StandIn
) -> None:  # fmt: skip
    """By the page if it finds the former text; else into a new cell, which comes when a kernel can give it."""
    put: list[str] = []
    source = TypedFunctions(run.graph, shell.user_ns, put.append)
    form = ChangeForm(run, source, lambda plan: None)  # type: ignore[arg-type]
    form.choose(["FM", "MC"])
    editor = editor_of(form)
    former = definitions(editor.value)
    assert former.startswith("class Score:")
    assert editor.actions == []
    typed(form, "FM", editor.value.replace("+ 1", "+ 2"))
    assert editor.actions == [RESET, WRITE_BACK]
    assert "done by fries" in applied(form)
    assert editor.actions == [WRITE_BACK]
    new = former.replace("+ 1", "+ 2")
    assert editor.cell == {"former": former, "new": new}
    for is_put, said in ((True, "The cell has the new text"), (False, "below the cell that you run next")):
        editor._handle_custom_msg({"event": "action", "name": WRITE_BACK, "put": is_put}, [])
        assert said in editor.note
    assert put == [new]
    typed(form, "MC", "lambda row: row")
    assert editor_of(form, "MC").actions == [RESET]


@pytest.mark.parametrize("name", ["检测器", "a" * 60, "<b>&amp;'\"x"])
def test_an_operator_may_have_any_name(shell: InteractiveShell, run: StandIn, name: str) -> None:
    """Chinese, long, or with markup: it is only text."""
    flow = fn.Dataflow("odd")
    numbers = flow.source("n", fn.rate(1)).map(name, lambda row: row)
    numbers.sink("out", fn.memory())
    run.graph = flow.graph()
    form = ChangeForm(run, TypedFunctions(run.graph, {}), lambda plan: None)  # type: ignore[arg-type]
    form.choose([name])
    typed(form, name, "lambda row: row['x']")
    assert "done by fries" in applied(form)
    typed(form, name, "lambda row: (")
    assert html.escape(f"{name}, line 1: '(' was never closed") in applied(form)


def test_names_are_offered_when_the_editor_gets_the_focus(form: ChangeForm) -> None:
    """Those of the user's namespace, not of Python and IPython."""
    editor_of(form)._handle_custom_msg({"event": "focused"}, [])
    assert editor_of(form).names == ["Proxy"]
    assert names_of({"In": [], "len": len, "Model": 1, "_i1": ""}) == ["Model", "_i1"]


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
