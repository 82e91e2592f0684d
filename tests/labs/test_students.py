"""The students' versions that are made without nbgrader: no solution is left, and what a student has done is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fries_nb.errors import LabError
from fries_nb.labs.students import TEXT, student_version, without_solution, write_versions

LABS = Path(__file__).parents[2] / "notebooks" / "labs"


def test_no_solution_is_left_and_all_else_is_there(tmp_path: Path) -> None:
    """Of every lab; a cell without a solution is the same."""
    written = write_versions(LABS, tmp_path / "labs")
    assert [path.name for path in written] == sorted(path.name for path in LABS.glob("*.ipynb"))
    for path in written:
        before = json.loads((LABS / path.name).read_text())["cells"]
        after = json.loads(path.read_text())["cells"]
        assert "SOLUTION" not in path.read_text()
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            is_solution = one["metadata"].get("nbgrader", {}).get("solution")
            assert is_solution or (one["cell_type"], one["source"]) == (other["cell_type"], other["source"])
            assert one["source"] != other["source"] or not is_solution


def test_what_a_student_has_done_is_kept(tmp_path: Path) -> None:
    """Only what is missing is written."""
    write_versions(LABS, tmp_path)
    mine = tmp_path / "2_naive.ipynb"
    mine.write_text("my answers")
    (tmp_path / "3_covering.ipynb").unlink()
    assert [path.name for path in write_versions(LABS, tmp_path)] == ["3_covering.ipynb"]
    assert mine.read_text() == "my answers"


def test_a_solution_keeps_its_place_and_a_mark_needs_a_partner() -> None:
    """Inside of a function, and several in one cell; an answer in words is a whole cell."""
    cell = "def f(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION"
    assert without_solution(f"{cell}\n\n\n{cell}") == "def f(x):\n    # your answer\n\n\ndef f(x):\n    # your answer"
    for broken in ("### BEGIN SOLUTION\nx", "x\n### END SOLUTION"):
        with pytest.raises(LabError, match="no partner"):
            without_solution(broken)
    words = {"cell_type": "markdown", "metadata": {"nbgrader": {"solution": True}}, "source": ["Because."]}
    assert student_version({"cells": [words]})["cells"][0]["source"] == [TEXT]


def test_a_directory_without_labs_is_refused(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(LabError, match="expected the directory of the labs"):
        write_versions(tmp_path, tmp_path / "to")


WITHOUT_NBGRADER = """
import runpy, sys
sys.modules["nbgrader"] = None
sys.argv = ["students", *sys.argv[1:]]
runpy.run_module("fries_nb.labs.students", run_name="__main__")
"""


def test_make_opens_the_students_versions_without_nbgrader(tmp_path: Path) -> None:
    """Solutions are opened only by the target that is named so: one that would open them says what to call."""

    def make(*arguments: str) -> subprocess.CompletedProcess[str]:
        call = ["make", "--dry-run", "--no-print-directory", "SHELL=/bin/sh", *arguments]
        return subprocess.run(call, cwd=LABS.parents[1], capture_output=True, text=True, check=False)

    assert "students notebooks/labs build/labs\n" in make("labs").stdout
    assert make("labs", "LAB=3_covering.ipynb").stdout.rstrip().endswith(" build/labs/3_covering.ipynb")
    assert make("solutions", "LAB=3_covering.ipynb").stdout.rstrip().endswith(" notebooks/labs/3_covering.ipynb")
    refused = make("notebook", "NOTEBOOK=labs/3_covering.ipynb").stdout
    assert 0 < refused.index("make labs LAB=3_covering.ipynb") < refused.index("exit 1") < refused.index("jupyter lab")
    assert "exit 1" not in make("notebook").stdout
    subprocess.run([sys.executable, "-c", WITHOUT_NBGRADER, LABS, tmp_path], check=True)
    assert len(list(tmp_path.glob("*.ipynb"))) == 8
