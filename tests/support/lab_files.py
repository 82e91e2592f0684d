"""The labs: their sources, with solutions; what nbgrader makes of them for students; and running their cells."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from patience import PATIENCE_S

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
        [sys.executable, "-m", "nbgrader", *arguments], cwd=directory, env={**os.environ, "PATH": path},
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
