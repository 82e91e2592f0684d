"""The panel from which a run's data and pictures are saved: buttons that make the browser download a file.

A file is made when its button is clicked, in a thread, and sent through the kernel's own channel, so that it works
wherever the view does; nothing is written on the kernel's disk. A picture becomes PNG in the browser.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from fries_nb.errors import exception_text
from fries_nb.notebook.static_pictures import dag_svg, latency_svg, run_svg
from fries_nb.report.latency_bands import bands_of
from fries_nb.report.plan_section import plan_svg
from fries_nb.run import Run

_HERE = Path(__file__).parent
FRAMES: Mapping[str, Callable[[Run], Any]] = {
    "latency and rate": lambda run: run.history_frame(),
    "queues": lambda run: run.queues_frame(),
    "operators": lambda run: run.metrics().to_pandas().reset_index(),
    "changes": lambda run: run.changes_frame(),
    "constraints": lambda run: run.constraints_frame(),
}
"""Name to the DataFrame of a run."""
PICTURES: Mapping[str, Callable[[Run], str]] = {
    "dataflow": lambda run: plan_svg(run.graph, run.changes[-1].plan) if run.changes else dag_svg(run.graph),
    "latency": lambda run: latency_svg(run.history(), run.marks(), bands_of(run.constraint_history())),
    "whole view": run_svg,
}
"""Name to the picture of a run, as SVG."""
FORMATS = ("csv", "parquet")
_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet", "svg": "image/svg+xml", "png": "image/png"}


class SavePanel(anywidget.AnyWidget):
    """Buttons that save the data of a run as CSV and Parquet, and its pictures as SVG and PNG.

    Args:
        run: the run.
    """

    _esm = (_HERE / "save.js").read_text("utf8")
    _css = (_HERE / "save.css").read_text("utf8")
    choices: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def __init__(self, run: Run) -> None:
        self._run = run
        frames = [[name, list(FORMATS)] for name in FRAMES]
        super().__init__(choices=[*frames, *([name, ["svg", "png"]] for name in PICTURES)])
        self.on_msg(self._asked)

    def _asked(self, _: object, content: Any, __: object) -> None:
        """Start to make the file that a button of the page asks for."""
        if isinstance(content, dict) and content.get("event") == "save":
            order = (str(content.get("what")), str(content.get("kind")))
            threading.Thread(target=self._serve, args=order, name="fries-save", daemon=True).start()

    def _serve(self, what: str, kind: str) -> None:
        try:
            data, content = file_of(self._run, what, kind), _TYPES[kind]
        except Exception as error:  # noqa: BLE001 - shown beside the button
            self.send({"event": "failed", "what": what, "error": exception_text(error)})
            return
        name = f"{self._run.graph.name} {what}.{kind}"
        # A browser makes PNG of SVG itself; Graphviz, which could, is not on every machine.
        self.send({"event": "file", "what": what, "name": name, "type": content}, buffers=[data])


def file_of(run: Run, what: str, kind: str) -> bytes:
    """The content of a file.

    Args:
        run: the run.
        what: a key of ``FRAMES`` or ``PICTURES``.
        kind: ``csv`` or ``parquet`` for data, ``svg`` or ``png`` for a picture, which is SVG in both cases.

    Raises:
        KeyError: there is no such file.
    """
    if kind not in FORMATS:
        return PICTURES[what](run).encode()
    frame, held = FRAMES[what](run), BytesIO()
    if frame.index.name is not None:
        frame = frame.reset_index()
    if kind == "csv":
        frame.to_csv(held, index=False)
    else:
        frame.to_parquet(held, index=False)
    return held.getvalue()
