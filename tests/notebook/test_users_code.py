"""The user's own code in a real kernel: modules beside the notebook, what operators print, and where they fail."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from notebook_files import CLIENT_OPTIONS

MODEL = """
import logging
import marks

class Doubler:
    def open(self):
        print("opened")

    def process(self, row):
        if row["value"] == 3:
            print("three", "is", marks.NAME, end="")
            print(" now")
            logging.getLogger(__name__).warning("logged")
        return row | {"value": 2 * row["value"]}
"""
NEXT_MODEL = """
import marks

class Doubler:
    def process(self, row):
        print("next", row["value"], marks.NAME)
        return row | {"value": 2 * row["value"]}
"""
WAITING = """
def until(condition):
    while not condition():
        assert run.state in ("joining", "running"), run.error
        threading.Event().wait(0.05)

def shown():
    for thread in threading.enumerate():
        if thread.name == "fries-echo":
            thread.join()
"""
CELLS = {
    "imports": f"%load_ext fries_nb\nimport importlib, threading, marks, mymodel\n{WAITING}",
    "declare": """%%fries_dataflow beside
numbers = flow.source("numbers", fn.rate(1_000))
numbers.map("D", mymodel.Doubler()).map("E", lambda row: row).sink("out", fn.memory())""",
    "run": "%fries_run --workers 1 --inline",
    "wait": "until(lambda: len(run.printed) >= 3)\nprinted = run.printed",
    "lines": "for line in printed:\n    print(line.worker, line.text)",
    "edit": f"""open("mymodel.py", "w").write({NEXT_MODEL!r})
open("marks.py", "w").write("NAME = 'another name'")
importlib.reload(marks)
importlib.reload(mymodel)
importlib.invalidate_caches()""",
    "change": "%fries_reconfigure D=mymodel.Doubler() --wait 900",
    "flood": "until(lambda: run.lines_printed > 200)\nprint(run.printed[-1].text)",
    "bad": """def deeper(row):
    return row["no such"]

class Bad:
    def open(self):
        self.limit = deeper({"limit": 7})

    def process(self, row):
        return row
""",
    "refused": "%fries_reconfigure E=Bad() --wait 900",
    "why": "print(change.result().details)",
    "lambda": "%fries_reconfigure D=lambda row: row | {'x': 1 / 0} --wait 900",
    "why not": "print(change.result().details)",
    "stop": "%fries_stop",
    "declare another": """%%fries_dataflow another
import os

GO = os.path.abspath("go")

class Late:
    def process(self, row):
        print("unfinished", row["value"], end="")
        while row["value"] == 1 and not os.path.exists(GO):
            threading.Event().wait(0.01)
        return deeper(row) if row["value"] == 1 else row

flow.source("numbers", fn.rate(1_000)).map("L", Late()).sink("out", fn.memory())""",
    "run another": "%fries_run --workers 1 --inline --on-error fail -o second",
    # nbclient hears only what is said while a cell runs, so it fails in this one.
    "end": "open(GO, 'w').close()\nsecond.wait(900)\nshown()",
    "status": "%fries_status",
}
FAILING = {"refused", "lambda"}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All the cells, executed in one kernel in a directory of their own."""
    directory = tmp_path_factory.mktemp("beside")
    (directory / "mymodel.py").write_text(MODEL)
    (directory / "marks.py").write_text("NAME = 'name'")
    new = [nbformat.v4.new_code_cell(cell) for cell in CELLS.values()]
    for cell, name in zip(new, CELLS, strict=True):
        cell.metadata["tags"] = ["raises-exception"] if name in FAILING else []
    notebook = nbformat.v4.new_notebook(cells=new)
    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(notebook, resources=resources, **CLIENT_OPTIONS).execute()
    return dict(zip(CELLS, notebook.cells, strict=True))


def shown(cell: Any, kind: str) -> str:
    """What a cell has of outputs of one kind, as text; a line of progress that has gone is empty."""
    outputs = [output for output in cell.outputs if output["output_type"] == kind]
    return "\n".join(filter(None, (output.get("text") or output["data"]["text/plain"] for output in outputs)))


def test_a_module_beside_the_notebook_runs_on_hosts_and_is_heard(cells: dict[str, Any]) -> None:
    """With what it imports; the lines of its prints and its log come back, each with its worker."""
    assert shown(cells["lines"], "stream").splitlines() == ["D[0] opened", "D[0] three is name now", "D[0] logged"]


def test_an_edited_module_is_another_on_the_same_hosts(cells: dict[str, Any]) -> None:
    """Reloaded in the notebook and put in by a change, with the edited module that it imports."""
    last = shown(cells["flood"], "stream")
    assert last.startswith(("next ", "... and "))
    tail = shown(cells["run"], "display_data")
    assert "another name" in tail


def test_the_cell_that_ran_the_flow_shows_the_last_lines(cells: dict[str, Any]) -> None:
    """However many were printed, its output has few, and says how many more there are, and where."""
    head, *lines = shown(cells["run"], "display_data").splitlines()
    assert head.startswith("... ")
    assert head.endswith(" more lines: run.printed")
    assert len(lines) == 20
    assert any(line.startswith("D[0]: next ") for line in lines)


def test_a_change_that_fails_is_one_line_and_the_traceback_shows_the_cells_source(cells: dict[str, Any]) -> None:
    """From the user's frame on, with lines of cells and of expressions, which are files on no host."""
    [error] = [output for output in cells["refused"].outputs if output["output_type"] == "error"]
    assert len(error["traceback"]) == 1
    assert "traceback: print(change.result().details)" in error["evalue"]
    why = shown(cells["why"], "stream")
    assert why.startswith("Traceback (from your code):")
    assert 'self.limit = deeper({"limit": 7})' in why
    assert 'return row["no such"]' in why
    assert "fries_nb" not in why
    assert "row | {'x': 1 / 0}" in shown(cells["why not"], "stream")


def test_a_run_that_fails_shows_why_in_its_cell(cells: dict[str, Any]) -> None:
    """What was printed last, even without an end; then the error, and the lines of cells under the cells' names."""
    text = shown(cells["run another"], "display_data")
    assert "L[0]: unfinished 0unfinished 1" in text
    assert "'another' has failed: L failed on a tuple: KeyError" in text
    assert "  Cell In[15], line 11, in process\n    return deeper(row) if" in text
    assert "  Cell In[9], line 2, in deeper\n    return row[" in text
    assert "traceback: print(second.details)" in shown(cells["status"], "execute_result")
