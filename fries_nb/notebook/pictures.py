r"""Static pictures of a run, for saved notebooks and exports: they need no kernel, script or network.

>>> both = stacked('<svg width="20" height="5"/>', '<svg width="7" height="4.5"/>')
>>> print(both.replace("><", ">\n<"))
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 20 9.5" width="20" height="9.5">
<svg y="0" width="20" height="5"/>
<svg y="5" width="7" height="4.5"/>
</svg>
"""

from __future__ import annotations

import re

from fries_nb.notebook.static import dag_svg, latency_svg, plan_svg
from fries_nb.run import Run

LIVE = "fries-live"
"""CSS class of the live view."""
# A live view hides the picture before it; and where its kernel is gone, it is text alone ("Loading widget...", or an
# error) in a panel that holds no element, which is hidden behind the picture. An <img> asks the page for its scheme.
ONE_OF_TWO = f"""<style>
.jp-OutputArea-child:has(> .jp-RenderedSVG):has(+ .jp-OutputArea-child .{LIVE}) {{ display: none; }}
.jp-OutputArea-child:has(> .jp-RenderedSVG) + .jp-OutputArea-child > .jp-OutputArea-output.lm-Panel:not(:has(*)) {{
  display: none; }}
[data-jp-theme-light="true"] .jp-RenderedSVG img {{ color-scheme: light; }}
[data-jp-theme-light="false"] .jp-RenderedSVG img {{ color-scheme: dark; }}
</style>"""
"""HTML by which a page shows the picture of a run or the live view behind it, whichever is there."""
_SIZE = re.compile(r'<svg\b[^>]*?\swidth="([\d.]+)" height="([\d.]+)"')


def of_run(run: Run) -> str:
    """The dataflow with its last change, and below it latency and throughput so far, as one SVG."""
    dataflow = plan_svg(run.graph, run.changes[-1].plan) if run.changes else dag_svg(run.graph)
    return stacked(dataflow, latency_svg(run.history(), run.marks()))


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
