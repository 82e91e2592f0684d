r"""The students' versions of the labs: notebooks without the solutions, as ``make labs`` makes them, without nbgrader.

    python -m fries_nb.labs.students notebooks/labs build/labs

A version that is there already is kept, since a student may have worked in it.

>>> print(without_solution("a = None\n### BEGIN SOLUTION\na = 1\n### END SOLUTION\nb = 2"))
a = None
# your answer
b = 2
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from fries_nb.errors import LabError

CODE, TEXT = "# your answer", "Your answer."
"""What takes the place of a solution, as in ``notebooks/labs/nbgrader_config.py``."""
_SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION\n.*?^[ \t]*### END SOLUTION$", re.DOTALL | re.MULTILINE)


def without_solution(source: str) -> str:
    """The source of a cell, with a line in place of each solution between nbgrader's marks.

    Raises:
        LabError: a mark has no partner.
    """
    cleared = _SOLUTION.sub(lambda found: f"{found[1]}{CODE}", source)
    if "### BEGIN SOLUTION" in cleared or "### END SOLUTION" in cleared:
        raise LabError("a mark of a solution has no partner; expected ### BEGIN SOLUTION before ### END SOLUTION")
    return cleared


def student_version(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook as students get it: without solutions, and without outputs.

    Raises:
        LabError: a mark of a solution has no partner.
    """
    return {**notebook, "cells": [_cleared(cell) for cell in notebook["cells"]]}


def _cleared(cell: dict[str, Any]) -> dict[str, Any]:
    source = "".join(cell["source"])
    cleared = without_solution(source)
    is_code = cell["cell_type"] == "code"
    if cleared == source and cell.get("metadata", {}).get("nbgrader", {}).get("solution"):
        cleared = CODE if is_code else TEXT  # the whole cell is the solution
    emptied: dict[str, Any] = {"outputs": [], "execution_count": None} if is_code else {}
    return {**cell, **emptied, "source": cleared.splitlines(keepends=True)}


def write_versions(labs: Path, to: Path) -> list[Path]:
    """Write the students' version of each lab, unless it is there already.

    ``labs``: the directory with the labs. ``to``: the directory for the versions; it is created.

    Returns:
        The versions that were written.

    Raises:
        LabError: there is no lab, or a mark of a solution has no partner.
    """
    found = sorted(labs.glob("*.ipynb"))
    if not found:
        raise LabError(f"no notebook in {str(labs)!r}; expected the directory of the labs")
    to.mkdir(parents=True, exist_ok=True)
    written = [path for path in found if not (to / path.name).exists()]
    for path in written:
        version = student_version(json.loads(path.read_text(encoding="utf-8")))
        (to / path.name).write_text(json.dumps(version, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return [to / path.name for path in written]


if __name__ == "__main__":
    sys.stdout.writelines(f"{version}\n" for version in write_versions(Path(sys.argv[1]), Path(sys.argv[2])))
