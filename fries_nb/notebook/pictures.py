"""Pictures that are seen without a kernel, a script or a network: in saved notebooks and in exports.

>>> both = stacked('<svg width="20" height="5"/>', '<svg width="7" height="4.5"/>')
>>> print(both.replace("><", ">\\n<"))
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 9.5" width="20" height="9.5">
<svg y="0" width="20" height="5"/>
<svg y="5" width="7" height="4.5"/>
</svg>
"""

from __future__ import annotations

import html
import re

from fries_nb.notebook.static import dag_svg, latency_svg, plan_svg
from fries_nb.run import Run

LIVE, _STILL = "fries-live", "fries-still"
"""CSS classes of the live view, and of the picture beside it."""
# A view whose kernel is gone is text alone ("Loading widget...", or an error), in a panel that holds no element.
_ONE_OF_TWO = f"""<style>
.jp-OutputArea:has(.{LIVE}) > .jp-OutputArea-child:has(.{_STILL}) {{ display: none; }}
.jp-OutputArea:has(.{_STILL}) > .jp-OutputArea-child > .jp-OutputArea-output.lm-Panel:not(:has(*)) {{ display: none; }}
</style>"""
_SIZE = re.compile(r'<svg\b[^>]*?\swidth="([\d.]+)" height="([\d.]+)"')


def of_run(run: Run) -> str:
    """The dataflow with its last change, and below it latency and throughput so far, as one SVG."""
    dataflow = plan_svg(run.graph, run.changes[-1].plan) if run.changes else dag_svg(run.graph)
    return stacked(dataflow, latency_svg(run.history(), run.marks()))


def beside_view(words: str, picture: str) -> str:
    """A line of text and an SVG element as HTML that is seen only where the live view of the same cell is not."""
    return f'{_ONE_OF_TWO}<div class="{_STILL}"><p>{html.escape(words)}</p>{picture}</div>'


def stacked(*drawings: str) -> str:
    """Several SVG elements, which say their width and height, as one: each below the one before."""
    width = height = 0.0
    parts = []
    for drawing in drawings:
        size = _SIZE.match(drawing)
        assert size is not None, drawing[:200]
        parts.append(drawing.replace("<svg ", f'<svg y="{height:g}" ', 1))
        width, height = max(width, float(size[1])), height + float(size[2])
    extent = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {extent}>{"".join(parts)}</svg>'
