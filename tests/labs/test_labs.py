"""The labs, solved and unsolved: solutions pass every check; without them each check says what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_shell import ipython
from patience import PATIENCE_S
from quick_start import quickly

from fries_nb.errors import LabError

LABS = Path(__file__).parents[2] / "notebooks" / "labs"
NAMES = sorted(path.stem for path in LABS.glob("*.ipynb"))


@dataclass(frozen=True)
class CellRun:
    """A cell that was run: its id, whether it is a check, and the error that it raised."""

    id: str
    is_check: bool
    error: BaseException | None


def nbgrader(directory: Path, *arguments: str) -> str:
    """What nbgrader prints on a call in a directory."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it calls alembic by its name
    made = subprocess.run(
        [*quickly("nbgrader.apps.nbgraderapp"), *arguments], cwd=directory, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout + made.stderr


def cells(path: Path) -> Iterator[nbformat.NotebookNode]:
    """The code cells of a notebook."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def run(shell: InteractiveShell, cell: nbformat.NotebookNode) -> CellRun:
    """Run a cell in the shell's namespace."""
    result = shell.run_cell(cell.source)
    error = result.error_before_exec or result.error_in_exec
    return CellRun(cell.id, bool(cell.metadata.get("nbgrader", {}).get("grade")), error)


# ---- the tests


ON_SPARK = {"1_latency", "5_schedulers", "6_failure", "8_constraints"}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    with ipython(tmp_path) as shell:
        yield shell


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the students' versions, made by nbgrader from a course whose one assignment are the labs."""
    course = tmp_path_factory.mktemp("course")
    shutil.copytree(LABS, course / "source" / "labs")
    shutil.copy(LABS / "nbgrader_config.py", course)
    nbgrader(course, "generate_assignment", "labs")
    return course / "release" / "labs"


def test_there_are_labs() -> None:
    """The tests below are not empty."""
    assert [int(name[0]) for name in NAMES] == list(range(1, 9))


@pytest.mark.parametrize("name", NAMES)
def test_a_lab_is_kept_without_outputs_and_has_all_its_parts(name: str) -> None:
    """Answers with solutions, each followed by a check; a hint that unfolds; the time that it takes."""
    notebook = nbformat.read(LABS / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    graded = [cell.metadata["nbgrader"] for cell in notebook.cells if "nbgrader" in cell.metadata]
    answers = [one for one in graded if one["solution"] and not one["grade"]]
    checks = [one for one in graded if one["grade"] and not one["solution"]]
    assert len(checks) >= 4
    assert len(answers) >= 4
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert re.search(r"^# Lab \d: .+\n\nAbout (30|40|45|50|60) minutes", texts)
    assert texts.count("<details><summary>") == texts.count("</details>") >= 2


@pytest.mark.parametrize("name", NAMES)
def test_a_solved_lab_passes_its_checks(name: str, shell: InteractiveShell, request: pytest.FixtureRequest) -> None:
    """From top to bottom; those that run on Spark share one."""
    if name in ON_SPARK:
        request.getfixturevalue("spark")
    for cell in cells(LABS / f"{name}.ipynb"):
        assert run(shell, cell).error is None, cell.source


def test_nbgrader_validates_a_lab(tmp_path: Path, release: Path) -> None:
    """As a teacher would, in a kernel of its own; a student who calls it before the work is done gets the sentences."""
    told = nbgrader(tmp_path, "validate", str(LABS / "3_covering.ipynb"), str(release / "3_covering.ipynb"))
    solved, unsolved = told.split("VALIDATION FAILED")
    assert "Success!" in solved
    assert "LabError: there is no answer yet; write it in the cell above as a list of sets" in unsolved


@pytest.mark.parametrize("name", NAMES)
def test_an_unsolved_lab_fails_each_check_with_a_sentence(name: str, shell: InteractiveShell, release: Path) -> None:
    """So does what goes on from an answer; nothing else fails, and no solution is left."""
    path = release / f"{name}.ipynb"
    assert "SOLUTION" not in path.read_text()
    done = [run(shell, cell) for cell in cells(path)]
    for one in done:
        assert one.error is None or is_sentence(one.error), one
        assert one.error is not None or not one.is_check, one


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_that_is_run_out_of_order_says_what_to_run_first(
    name: str, shell: InteractiveShell, release: Path
) -> None:
    """Each cell of the students' version, alone after a restart; an answer by itself may pass."""
    present = set(shell.user_ns)
    for cell in cells(release / f"{name}.ipynb"):
        for made in shell.user_ns.keys() - present:
            del shell.user_ns[made]  # ``reset`` looks for garbage in all that the tests have imported
        one = run(shell, cell)
        assert one.error is None or is_sentence(one.error), one
        if one.is_check:
            assert re.search(r"is not defined yet; run the cells of .+ first", str(one.error)), one


def is_sentence(error: BaseException) -> bool:
    """Whether an error is that of a lab, in one line that says something."""
    return isinstance(error, LabError) and len(str(error).splitlines()) == 1 and len(str(error)) > 30
