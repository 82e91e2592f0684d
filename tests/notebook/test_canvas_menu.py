"""The menu of the canvas: which line it writes behind an operator, and where."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import FRAUD, StandIn, told

from fries_nb.notebook.canvas_menu import CanvasMenu, branches
from fries_nb.notebook.cells import DeclaringCell
from fries_nb.notebook.extension import RunDisplay
from fries_nb.notebook.magics import Run
from fries_nb.notebook.panels import RunMoment

BODY = FRAUD.partition("\n")[2].rstrip()
OTHERS = """numbers = flow.source("numbers", fn.rate(10))
for name in ("A", "B C"):
    numbers.map(name, lambda row: row).sink(f"{name} out", fn.memory())
low, _ = numbers.split("SP", lambda row: row["value"] % 2, 2)
low.sink("low", fn.memory())
_.sink("high", fn.memory())
def body(rows):
    step = rows.map("step", lambda row: row)
    return step.filter("again", lambda row: False), step.filter("enough", lambda row: True)
low.iterate("L", body).sink("looped", fn.memory())"""


def cell_of(shell: InteractiveShell, name: str) -> DeclaringCell:
    """What is known of the cell of a dataflow."""
    cell = shell.magics_manager.registry["FriesMagics"]._known.cell(name)
    assert isinstance(cell, DeclaringCell)
    return cell


@pytest.fixture
def menu(shell: InteractiveShell, run: StandIn) -> tuple[CanvasMenu, list[str]]:
    """That of a run, and the texts that it has put into new cells."""
    menu, texts = CanvasMenu(run), list[str]()  # type: ignore[arg-type]
    menu.write_into(lambda name: cell_of(shell, name), texts.append)
    return menu, texts


def test_a_line_stands_behind_the_stream_by_its_variable(menu: tuple[CanvasMenu, list[str]]) -> None:
    """Of the operator that was selected last, or clicked with the right button."""
    one, _ = menu
    assert (one.operator, one.lines) == ("", {})
    one.choose(["MC", "FM"])
    assert (one.operator, one.cell) == ("FM", BODY)
    assert one.lines == {
        "Filter": 'merchants.filter("FM_filter", lambda row: True).sink("FM_filtered", fn.memory())',
        "Map": 'merchants.map("FM_map", lambda row: row).sink("FM_mapped", fn.memory())',
        "Sink": 'merchants.sink("FM_rows", fn.memory())',
    }
    one._receive(None, {"event": "about", "operator": "MC"}, None)
    assert one.lines["Sink"] == 'scored.sink("MC_rows", fn.memory())'
    one.choose(["MC", "out"])
    assert (one.lines, one.note) == ({}, "out is a sink: nothing follows it")
    one.choose([])
    assert (one.operator, one.lines, one.note) == ("", {}, "")


@pytest.mark.parametrize(
    ("operator", "begins"),
    [("A", 'flow.stream("A").'), ("B C", 'flow.stream("B C").'), ("SP", "low."), ("numbers", "numbers."),
     ("Replicate(numbers)", "numbers."), ("L", 'flow.stream("L").')],
)  # fmt: skip
def test_every_line_makes_a_cell_that_declares_a_branch(shell: InteractiveShell, operator: str, begins: str) -> None:
    """Also behind streams without a variable, branches of a split, and a loop as a whole."""
    told(shell, f"%%fries_dataflow others\n{OTHERS}")
    cell = cell_of(shell, "others")
    graph = cell.flow.graph()
    for line in branches(graph, cell, operator).values():
        assert line.startswith(begins)
        told(shell, f"%%fries_dataflow others\n{cell.text}\n{line}")
        assert len([*cell_of(shell, "others").flow.graph()]) > len([*graph])


def test_a_dataflow_that_the_cell_makes_itself_has_its_own_name(shell: InteractiveShell) -> None:
    """And streams without a variable are found by it."""
    told(shell, '%%fries_dataflow\nmine = fn.Dataflow("own")\nmine.source("S", fn.rate(1)).sink("out", fn.memory())')
    cell = cell_of(shell, "own")
    assert branches(cell.flow.graph(), cell, "S")["Sink"] == 'mine.stream("S").sink("S_rows", fn.memory())'


def test_why_nothing_can_be_added_is_said(shell: InteractiveShell, menu: tuple[CanvasMenu, list[str]]) -> None:
    """In a sentence, which names the operator."""
    told(shell, f"%%fries_dataflow others\n{OTHERS}")
    cell = cell_of(shell, "others")
    for operator, given, words in (
        ("step", cell, "step is inside of a loop, where no operators are added while a dataflow runs"),
        ("A", None, "no %%fries_dataflow cell has declared 'others', so a line has no place"),
        ("A", cell_of(shell, "fraud"), "A is not in the cell of 'others' as it was run last"),
    ):
        with pytest.raises(UsageError) as error:
            branches(cell.flow.graph(), given, operator)
        assert str(error.value) == words


def test_a_line_that_was_written_has_its_names(menu: tuple[CanvasMenu, list[str]]) -> None:
    """The next one has others, though the cell was not run yet; where the page has no such cell, a new one comes."""
    one, texts = menu
    one.choose(["FM"])
    line = one.lines["Sink"]
    one._receive(None, {"event": "add", "line": line, "put": True}, None)
    assert (one.lines["Sink"], texts) == ('merchants.sink("FM_rows_2", fn.memory())', [])
    assert one.note.startswith("The line is in the cell")
    second = one.lines["Sink"]
    for odd in ({}, {"event": "add", "line": line, "put": False}, {"event": "about", "operator": "nobody"}):
        one._receive(None, odd, None)
    one._receive(None, {"event": "add", "line": second, "put": False}, None)
    assert texts == [f"%%fries_dataflow fraud\n{BODY}\n{second}"]
    assert one.note.startswith("No cell in sight")


def test_a_cell_that_is_run_again_is_written_behind(
    shell: InteractiveShell, run: StandIn, menu: tuple[CanvasMenu, list[str]]
) -> None:
    """With what was edited in it; an operator that has gone has no lines."""
    one, _ = menu
    one.choose(["MC"])
    told(shell, f"{FRAUD}# edited")
    one.update(RunMoment(run))  # type: ignore[arg-type]
    assert (one.operator, one.cell, one.note) == ("MC", f"{BODY}\n# edited", "")
    run.graph = cell_of(shell, "fraud").flow.graph()
    told(shell, FRAUD.replace('"MC"', '"MD"'))
    run.graph = cell_of(shell, "fraud").flow.graph()
    one.update(RunMoment(run))  # type: ignore[arg-type]
    assert (one.operator, one.lines) == ("", {})


def test_only_pages_that_may_run_any_code_have_the_menu(shell: InteractiveShell, run: StandIn) -> None:
    """Not those for other readers, of functions that are offered, or for looking only."""
    display: Any = shell.display_formatter.mimebundle_formatter.lookup_by_type(Run)
    assert isinstance(display, RunDisplay)
    for offer, shown in ((None, True), ({}, False), ({"FM": {"other": dict}}, False)):
        view = display._new_view(run, offer)  # type: ignore[arg-type]
        assert view.menu.shown == shown
        view.menu._receive(None, {"event": "about", "operator": "FM"}, None)
        assert bool(view.menu.lines) == shown
        view.close()
