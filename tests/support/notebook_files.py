"""The notebooks of the repository, and running them headless."""

from __future__ import annotations

import hashlib
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from patience import PATIENCE_S

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CLIENT_OPTIONS = {"timeout": PATIENCE_S, "iopub_timeout": int(PATIENCE_S), "coalesce_streams": True}
"""For one cell, on busy cores; no notebook takes as long in all. The second one is for the outputs of a cell that has
answered: by default those are given up that come four seconds later, and the cell seems to have shown nothing. The last
one puts together what a cell prints, as a notebook shows it: a kernel sends it in parts, and on a busy machine it may
cut within a line."""
VIEWED = """
import threading
for thread in threading.enumerate():
    if thread.name == "fries-view":
        thread.join(20)
"""
"""A cell that waits for the last picture of a run, which a busy machine may draw after all other cells are over."""


def stored(name: str) -> nbformat.NotebookNode:
    """A notebook as it is in the repository.

    Raises:
        nbformat.ValidationError: it is not a notebook that every Jupyter can open.
    """
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_digest(notebook: nbformat.NotebookNode) -> str:
    """Of the code of all cells, in their order: an output depends on all cells in front of it."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


def bare(name: str) -> nbformat.NotebookNode:
    """A notebook of the repository without its outputs, as one that was not run yet."""
    notebook = stored(name)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def executed(name: str, directory: Path, behind: str = "", before: str = "") -> nbformat.NotebookNode:
    """The notebook after "Run All" in a kernel of its own, with its outputs.

    Args:
        directory: it is run in.
        behind: code of one more cell, at its end.
        before: likewise, at its beginning.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = stored(name)
    if before:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(before))
    if behind:
        notebook.cells.append(nbformat.v4.new_code_cell(behind))
    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(notebook, kernel_name="python3", resources=resources, **CLIENT_OPTIONS).execute()
    return notebook


LEASE = """
from fries_nb.spark.session import start_or_find
get_ipython().lease = start_or_find(3)
"""
ANEW = """
%reset -f
%unload_ext fries_nb
import os
os.chdir({directory!r})
"""


class SharedKernel:
    """A kernel in which notebooks are run one after the other, so that Python and Spark are started once for all."""

    def __init__(self, directory: Path) -> None:
        resources = {"metadata": {"path": str(directory)}}
        self._client = NotebookClient(_of(LEASE), kernel_name="python3", resources=resources, **CLIENT_OPTIONS)
        self._client.execute(cleanup_kc=False)

    def executed(self, name: str, directory: Path) -> nbformat.NotebookNode:
        """The notebook with its outputs after "Run All", as in a fresh kernel but for what is imported already.

        Raises:
            nbclient.exceptions.CellExecutionError: a cell failed.
        """
        self._execute(_of(ANEW.format(directory=str(directory))))
        return self._execute(stored(name))

    def close(self) -> None:
        """End the kernel, and Spark with it."""
        self._execute(_of("get_ipython().lease.release()"), cleanup_kc=True)

    def _execute(self, notebook: nbformat.NotebookNode, cleanup_kc: bool = False) -> nbformat.NotebookNode:
        """Run a notebook's cells; ``cleanup_kc`` ends the kernel afterwards."""
        client = NotebookClient(notebook, km=self._client.km, **CLIENT_OPTIONS)
        client.kc = self._client.kc
        client.execute(cleanup_kc=cleanup_kc)
        return notebook


def _of(source: str) -> nbformat.NotebookNode:
    """A notebook of one cell."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])


def said(notebook: nbformat.NotebookNode, beginning: str) -> str:
    """All text that the cells beginning so have shown or printed, in order."""
    outputs = [
        output for cell in notebook.cells if cell.source.startswith(beginning) for output in cell.get("outputs", [])
    ]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join(filter(None, texts))
