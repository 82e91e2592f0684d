"""Reports: one HTML page of a run, or of a comparison of schedulers. Pure functions from values to text."""

from __future__ import annotations

from fries_nb.report.comparison import SETTLED_MS, Comparison, ComparisonRow, SchedulerTrial, comparison_page
from fries_nb.report.markup import writable, write_page
from fries_nb.report.runs import display, run_page

__all__ = [
    "SETTLED_MS", "Comparison", "ComparisonRow", "SchedulerTrial", "comparison_page", "display", "run_page", "writable",
    "write_page",
]  # fmt: skip
