"""The notebooks run from top to bottom on real Spark, and say what their text promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from notebook_files import NOTEBOOKS, executed, said, stored

NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


def test_there_are_notebooks():
    """The tests below are not empty."""
    assert NAMES[:2] == ["00_quickstart.ipynb", "01_hot_replace.ipynb"]


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_kept_without_what_they_showed(name: str):
    """No outputs, counts or widget state: they would be old, and make viewers ask the network."""
    notebook = stored(name)
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert any(cell.cell_type == "markdown" for cell in notebook.cells[:1])


def test_the_quickstart_replaces_an_operator(tmp_path: Path):
    """Declared, run, planned, changed, audited, stopped."""
    notebook = executed("00_quickstart.ipynb", tmp_path)
    assert "FM" in said(notebook, "%fries_plan")
    assert said(notebook, "%%fries_reconfigure").startswith("done by fries in ")
    assert "'fraud' is serializable" in said(notebook, "%fries_audit")
    assert "'fraud' has finished; what it has read is in its output" in said(notebook, "%fries_stop")


def test_the_hot_replacement_goes_as_told(tmp_path: Path):
    """Fries is serializable and the latency falls; naive mixes versions, and the sink shows the wrong scores."""
    notebook = executed("01_hot_replace.ipynb", tmp_path)
    aucs = [float(auc) for auc in re.findall(r"payments: (0\.\d+)", said(notebook, "for learner"))]
    assert len(aucs) == 3
    assert min(aucs) > 0.7
    assert said(notebook, "%%fries_reconfigure surge --wait 60\n").startswith("done by fries in ")
    assert "half of the payments take less than" in said(notebook, "while run.metrics()")
    fries, naive = said(notebook, "%fries_audit").split("\n'surge' is ")
    assert fries.startswith("'surge' is serializable")
    assert naive.startswith("not serializable")
    wrong = re.search(r"([\d,]+) payments were scored wrongly", said(notebook, "wrong = "))
    assert wrong
    assert int(wrong[1].replace(",", "")) > 0
