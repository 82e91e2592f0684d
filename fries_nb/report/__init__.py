"""Reports: one HTML page of a run, or of a comparison of schedulers. Pure functions from values to text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fries_nb.deprecations import renamed
from fries_nb.report.comparison import SETTLED_MS, Comparison, ComparisonRow, SchedulerTrial, comparison_page
from fries_nb.report.page import writable, write_page
from fries_nb.report.runs import display, run_page

__all__ = [
    "SETTLED_MS", "Comparison", "ComparisonRow", "SchedulerTrial", "comparison_page", "display", "run_page", "writable",
    "write_page",
]  # fmt: skip


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> object:
        """Resolve renamed names, which are deprecated for one version."""
        return renamed(__name__, name)
