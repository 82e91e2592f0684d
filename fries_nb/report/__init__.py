"""Reports: one HTML page of a run, or of a comparison of schedulers. Pure functions from values to text."""

from __future__ import annotations

from fries_nb.report.audit_section import judged
from fries_nb.report.change_rows import MOST_REPLAYS
from fries_nb.report.comparison import SETTLED_MS, Comparison, ComparisonRow, SchedulerTrial, comparison_page
from fries_nb.report.page import Place, writable, write_page
from fries_nb.report.runs import Story, run_page

__all__ = [
    "MOST_REPLAYS", "SETTLED_MS", "Comparison", "Place", "ComparisonRow", "Story", "SchedulerTrial",
    "comparison_page", "judged", "run_page", "writable", "write_page",
]  # fmt: skip
