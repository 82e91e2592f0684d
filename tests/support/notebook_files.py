"""The notebooks of the repository, and running one headless."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient
from patience import PATIENCE_S

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
"""For one cell, on busy cores; no notebook takes as long in all."""


def stored(name: str) -> nbformat.NotebookNode:
    """A notebook as it is in the repository.

    Raises:
        nbformat.ValidationError: it is not a notebook that every Jupyter can open.
    """
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    return notebook


def executed(name: str, directory: Path, behind: str = "") -> nbformat.NotebookNode:
    """The notebook after "Run All" in a kernel of its own, with its outputs.

    Args:
        directory: it is run in.
        behind: code of one more cell, at its end.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = stored(name)
    if behind:
        notebook.cells.append(nbformat.v4.new_code_cell(behind))
    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3", resources=resources).execute()
    return notebook


def said(notebook: nbformat.NotebookNode, beginning: str) -> str:
    """All text that the cells beginning so have shown or printed, in order."""
    outputs = [
        output for cell in notebook.cells if cell.source.startswith(beginning) for output in cell.get("outputs", [])
    ]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join(filter(None, texts))
