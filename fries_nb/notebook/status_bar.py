"""The top of the live view: the status of the run, which knows when the kernel has fallen silent, and a stop button.

A kernel that has ended cannot say so. The status line therefore carries a counter that grows about once a second; when
it stops to grow, the page says since when, in place of a state that is not known any more. A kernel that is held up by
a function in native code is silent as well, and the line returns when it is heard again.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from pathlib import Path

import anywidget
import ipywidgets
import traitlets

from fries_nb.notebook.endings import Ending
from fries_nb.notebook.run_moment import RunMoment
from fries_nb.notebook.statuses import status_line
from fries_nb.run import Run

STOP, STOP_NOW = "Stop", "Stop now"
_HERE = Path(__file__).parent
PATIENCE_S = 6.0
"""Seconds of silence after which the page says so, unless the view is updated less often."""
NEWS_S = 1.0
"""Seconds between two signs of life."""


class StatusLine(anywidget.AnyWidget):
    """The status of a run in one line of HTML, ``value``.

    Args:
        clock: a monotonic clock in seconds.
    """

    _esm = (_HERE / "status.js").read_text("utf8")
    _css = (_HERE / "status.css").read_text("utf8")
    value = traitlets.Unicode().tag(sync=True)
    news = traitlets.Int().tag(sync=True)
    patience_ms = traitlets.Int(int(PATIENCE_S * 1000)).tag(sync=True)
    over = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent_s = clock()
        super().__init__()
        self.layout.flex = "1 1 auto"

    def live(self, period_s: float) -> None:
        """Send a sign of life if the last one is old enough; may be called as often as the view is updated.

        Args:
            period_s: seconds until the next call.
        """
        self.patience_ms = int(max(PATIENCE_S, 3 * period_s) * 1000)
        now_s = self._clock()
        if now_s - self._sent_s >= NEWS_S:
            self._sent_s = now_s
            self.news += 1

    def __repr__(self) -> str:
        return f"StatusLine({self.value!r})"


class StatusBar(ipywidgets.HBox):
    """The status of a run and a button that drains it; a second click ends it at once.

    Args:
        run: the run.
        period_s: returns the number of seconds until the next update.
        stops: whether the page may end the run; otherwise it has no button.
    """

    def __init__(self, run: Run, period_s: Callable[[], float], stops: bool = True) -> None:
        self._run = run
        self._period_s = period_s
        self._ending: Ending | None = None
        self._stops_now = False
        self.status = StatusLine()
        self.stop = ipywidgets.Button(description=STOP, tooltip="Commit all that was read, then end; Spark stays")
        self.stop.layout.flex = "0 0 80px"
        if stops:
            self.stop.on_click(self._stopped)
        super().__init__([self.status, self.stop] if stops else [self.status])

    def update(self, moment: RunMoment) -> None:
        """Show a moment of the run."""
        trouble = self._ending.trouble if self._ending is not None and not moment.over else ""
        line = html.escape(" · ".join(filter(None, [status_line(self._run, moment.last), trouble])))
        text = f'<div role="status">{line}</div>'
        if text != self.status.value:
            self.status.value = text
        self.status.live(self._period_s())
        if moment.over:
            self.stop.disabled = self.status.over = True
        elif self._ending is not None and not self._stops_now and self.stop.disabled:
            self.stop.description, self.stop.tooltip = STOP_NOW, "End at once, without the tuples that still wait"
            self.stop.disabled = False

    def _stopped(self, _: object) -> None:
        """End the run with a drain, or at once if the button says so by the time of the click."""
        self._stops_now = self.stop.description == STOP_NOW
        self.stop.disabled = True
        self._ending = Ending(self._run, now=self._stops_now)
