"""The user's own code in a real kernel: a module beside the notebook, and what operators print and log on hosts."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

PATIENCE_S = 240
MODULE = """
import logging

class Doubler:
    def open(self):
        print("opened")

    def process(self, row):
        if row["value"] == 3:
            print("three", "is", row["value"])
            logging.getLogger(__name__).warning("logged")
        return row | {"value": 2 * row["value"]}
"""
DECLARATION = """%%fries_dataflow beside
numbers = flow.source("numbers", fn.rate(100))
numbers.map("D", Doubler()).sink("out", fn.memory())"""
WAITING = """while len(run.printed()) < 3:
    assert run.state in ("joining", "running"), run.error
    Event().wait(0.05)"""
CELLS = (
    "%load_ext fries_nb\nfrom threading import Event\nfrom mymodel import Doubler",
    DECLARATION,
    "%fries_run --workers 1",
    WAITING,
    "for line in run.printed():\n    print(line.worker, line.text)",
    "%fries_stop",
)


def test_a_module_beside_the_notebook_runs_on_hosts_and_is_heard(tmp_path: Path) -> None:
    """It is imported as in any notebook; the lines of its prints and its log come back with their worker."""
    (tmp_path / "mymodel.py").write_text(MODULE)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook, timeout=PATIENCE_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "".join(output["text"] for output in notebook.cells[4].outputs if output["output_type"] == "stream")
    lines = said.splitlines()
    assert any(line.endswith(" opened") for line in lines)
    assert "D[0] three is 3" in lines
    assert "D[0] logged" in lines
