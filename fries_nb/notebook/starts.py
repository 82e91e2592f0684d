"""The start of a run, in a thread of its own: Spark may have to be started first, which takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fries_nb.run import Run


class Start:
    """A run that is on its way. It begins at once.

    Args:
        flow: name of the dataflow.
        launch: starts the run; called in the thread.
        ready: told the run, in the thread, as soon as it is there; not if the start was cancelled meanwhile.

    Attributes:
        error: why there is no run; ``None`` while there may yet be one.
    """

    def __init__(self, flow: str, launch: Callable[[], Run], ready: Callable[[Run], None]) -> None:
        self.flow = flow
        self.error: Exception | None = None
        self._launch = launch
        self._ready = ready
        self._run: Run | None = None
        self._cancelled = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._go, name="fries-start", daemon=True)
        self._thread.start()

    @property
    def under_way(self) -> bool:
        """Whether it is not decided yet; a cancelled start is, though it may go on for a moment."""
        return self._thread.is_alive() and not self._cancelled

    def run(self, timeout: float | None = None) -> Run:
        """Wait for the run.

        Raises:
            TimeoutError: it is still on its way.
            Exception: why it did not start.
        """
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        if self._run is None:
            raise TimeoutError(f"{self.flow!r} is still starting")
        return self._run

    def cancel(self) -> None:
        """Want it no more; if it comes nevertheless, it is stopped."""
        with self._lock:
            self._cancelled = True
            run = self._run
        if run is not None:
            run.request_stop()
            run.wait()

    def _go(self) -> None:
        try:
            run = self._launch()
        except Exception as error:  # noqa: BLE001 - raised again in the cell, or shown by %fries_status
            self.error = error
            return
        with self._lock:
            wanted = not self._cancelled
            if wanted:
                self._run = run
                self._ready(run)
        if not wanted:
            run.request_stop()
            run.wait()
