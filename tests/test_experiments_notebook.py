"""The notebook of the paper's experiments, from top to bottom; it takes minutes, so it has a file of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from notebook_files import executed, said


@pytest.mark.timeout(1_200)  # nine experiments, on busy cores
def test_the_papers_experiments_are_drawn(tmp_path: Path):
    """Each figure and table is run at its fastest, and a table is shown for each."""
    notebook = executed("02_paper_experiments.ipynb", tmp_path)
    shown = [said(notebook, beginning) for beginning in ("surges", "vain", "rates", "table(costs)", "joins", "many")]
    assert all("fries" in one for one in shown)
    assert "unpruned ms" in said(notebook, "pruning")
    assert "epoch ms" in said(notebook, "workers")
    assert "6440" in said(notebook, "opened.close()")
