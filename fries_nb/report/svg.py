"""The two pictures of a run, as SVG that needs no library, no script and no network to be seen."""

from __future__ import annotations

from fries_nb.report.dag import dag_png, dag_svg
from fries_nb.report.latency import latency_svg

__all__ = ["dag_png", "dag_svg", "latency_svg"]
