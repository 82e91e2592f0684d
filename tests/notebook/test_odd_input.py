"""What people type that is no mistake, and what is one that no other test has: names, quotes, paths, order of cells."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, refused, told

from fries_nb.errors import RunError
from fries_nb.notebook import known
from fries_nb.notebook.form import ChangeForm, TypedFunctions

NAMES = ("a'b", 'say "hi"', "Kunde ä", "客户", "A=B", "--wait", "class")
ODD = f"""%%fries_dataflow "it's mine"
stream = flow.source("s", fn.rate(1))
for name in {NAMES!r}:
    stream = stream.map(name, dict)
stream.sink("o", fn.memory())
"""


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_of_any_name_is_planned_and_changed_as_the_cell_says(
    shell: InteractiveShell, stand_ins: list[StandIn], name: str
) -> None:
    """What a plan says to type next can be typed, whatever quotes, signs and letters are in the name."""
    told(shell, ODD)
    told(shell, """%fries_run "it's mine" """)
    quote = "'" if '"' in name else '"'
    plan = told(shell, f"%fries_plan {quote}{name}{quote}")
    assert plan.startswith(f"change of {name} in dataflow ")
    told(shell, plan.splitlines()[-1].removeprefix("Next: ").replace("new_function", "list"))
    assert stand_ins[0].asked == {name: list}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%fries_reconfigure class=dict", """for a change of the operator: "class"=new_function"""),
        ("%fries_reconfigure Kunde ä=dict", """for a change of the operator: "Kunde ä"=new_function"""),
        ("%fries_reconfigure 客户=new_function", "replace new_function with your own, as in MerchantModel("),
        ("%fries_reconfigure 客户=dict, B=dict", "客户=dict, ends in a comma; separate changes with spaces"),
        ("%fries_reconfigure 客户: dict", "for a change of the operator: "),
        ("%fries_reconfigure 客户 -> dict", "unrecognized arguments: "),
        ("%fries_reconfigure a'b=dict", "a quote is not closed in: a'b=dict"),
        ("%fries_run it's mine", "unrecognized arguments: mine, a name with spaces has quotes"),
        ("%fries_status now", "unrecognized arguments: now; it takes none"),
        ("%fries_run --replace --checkpoint ''", "--checkpoint is empty; expected a path"),
        ("%fries_report ''", "the path of the file is empty; expected a path"),
    ],
)
def test_an_odd_line_is_told_what_was_likely_meant(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """In one line; nothing changes, and nothing is stopped."""
    told(shell, ODD)
    told(shell, """%fries_run "it's mine" """)
    error = refused(shell, line, capsys)
    assert type(error) is UsageError
    assert said in str(error)
    assert stand_ins[0].asked == {}
    assert [run.state for run in stand_ins] == ["running"]


@pytest.mark.parametrize(
    ("cell", "marked"),
    [
        ("%fries_reconfigure A=1 客户=Model(x y) --wait 1", ("Model(x y)", "      ^")),
        ("%fries_reconfigure 客户=Model(window=10 --wait 1", ("客户=Model(window=10 --wait 1", "          ^")),
        ("%fries_reconfigure 客户=Model(1))", ("客户=Model(1))", "             ^")),
        ("%fries_plan 客户=Model('x)", ("客户=Model('x)", "           ^")),
        ("%%fries_reconfigure\nif True:\n    客户 = = dict", ("客户 = = dict", "       ^")),
        (f"%fries_reconfigure 客户={'x + ' * 90}= {'+ x' * 90}", ("... x + ", "... x + ")),
    ],
)
def test_an_error_of_syntax_is_marked_at_its_column(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str], cell: str,
    marked: tuple[str, str],
) -> None:  # fmt: skip
    """Below the line, in which letters of double width have two columns; of a long line the part around it is shown."""
    told(shell, ODD)
    told(shell, """%fries_run "it's mine" """)
    first, line, mark = str(refused(shell, cell, capsys)).split("\n")
    if "..." in marked[0]:
        assert line.startswith(f"    {marked[0]}")
        assert line.endswith(" ...")
        assert (len(line), line[len(mark) - 1]) == (4 + 4 + 120 + 4, "=")
    else:
        assert (line, mark) == (f"    {marked[0]}", f"    {marked[1]}")
    assert len(first) < 400


def test_the_form_marks_an_error_of_syntax_in_a_font_of_one_width(
    shell: InteractiveShell, stand_ins: list[StandIn]
) -> None:
    """Markup in it is only text."""
    told(shell, FRAUD)
    told(shell, "%fries_run")
    form = ChangeForm(stand_ins[0], TypedFunctions(stand_ins[0].graph, {}), lambda plan: None)  # type: ignore[arg-type]
    form.choose(["FM"])
    form.functions["FM"].value = "dict(<b>)"
    form.plan.click()
    words, mark = form.result.value.split("<pre")
    assert "FM, line 1: invalid syntax" in words
    assert mark.endswith(">    dict(&lt;b&gt;)\n         ^</pre>")
    assert "<b>" not in form.result.value


def test_a_path_may_begin_at_home(
    shell: InteractiveShell, stand_ins: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a terminal; a directory named ~ is never meant."""
    monkeypatch.setenv("HOME", str(tmp_path))
    told(shell, FRAUD)
    told(shell, "%fries_run --checkpoint ~/kept")
    assert stand_ins[0].options["checkpoint"] == str(tmp_path / "kept")
    told(shell, "%fries_report '~/my report.html'")
    assert (tmp_path / "my report.html").exists()


def test_flows_of_one_name_are_told_apart_by_their_variables(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can say which one is meant by the name; one that a magic has made goes before those in variables."""
    for variable in ("left", "right"):
        shell.run_cell(
            f"import fries_nb as fn\n{variable} = fn.Dataflow('x')\n"
            f"{variable}.source('{variable}', fn.rate(1)).sink('o', fn.memory());"
        ).raise_error()
    assert str(refused(shell, "%fries_run x", capsys)) == "left, right are all named 'x'; name the variable instead"
    told(shell, "%fries_run right")
    assert "right" in stand_ins[0].graph.by_name
    shell.run_cell("again = right").raise_error()
    shell.run_cell("del left").raise_error()
    told(shell, "%fries_run x --replace")
    assert "right" in stand_ins[1].graph.by_name
    shell.run_cell("left = fn.Dataflow('x')").raise_error()
    told(shell, "%%fries_dataflow x --replace\nflow.source('made', fn.rate(1)).sink('o', fn.memory())")
    shell.run_cell("flow = None").raise_error()
    told(shell, "%fries_run x")
    assert "made" in stand_ins[2].graph.by_name


def test_cells_out_of_order_say_what_is_missing(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str]
) -> None:
    """Run before a declaration, change before a run; a variable that holds something else by now is no hindrance."""
    assert "begin with a cell %%fries_dataflow NAME" in str(refused(shell, "%fries_run", capsys))
    assert "begin with a cell %%fries_dataflow NAME" in str(refused(shell, "%fries_plan FM", capsys))
    told(shell, FRAUD)
    assert "start one with %fries_run" in str(refused(shell, "%fries_rollback", capsys))
    told(shell, "%fries_run")
    shell.run_cell("run = flow = 5").raise_error()
    told(shell, "%fries_reconfigure FM=dict")
    assert stand_ins[0].asked == {"FM": dict}
    assert told(shell, "%fries_plan FM").startswith("change of FM in dataflow 'fraud'")
    told(shell, "%fries_stop")
    assert told(shell, "%fries_stop") == "'fraud' has finished before"
    assert told(shell, "%fries_plan FM").startswith("change of FM in dataflow 'fraud'")


def test_unloading_leaves_a_run_alone_and_loading_finds_it(
    shell: InteractiveShell, stand_ins: list[StandIn], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By the variable that holds it."""
    monkeypatch.setattr(known, "Run", StandIn)  # it passes for a run in a variable
    told(shell, FRAUD)
    told(shell, "%fries_run -o mine")
    [run] = stand_ins
    shell.run_line_magic("unload_ext", "fries_nb")
    assert run.state == "running"
    assert "not found" in str(refused(shell, "%fries_status", capsys))
    shell.run_line_magic("load_ext", "fries_nb")
    assert told(shell, "%fries_status").splitlines()[1].split()[:2] == ["fraud", "running"]
    assert type(refused(shell, "%fries_audit", capsys)) is RunError
    assert told(shell, "%fries_stop --of fraud").startswith("'fraud' has finished")
    assert run.state == "finished"
