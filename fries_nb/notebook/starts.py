"""Starts a run in a thread, since Spark may have to be started first, which takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fries_nb.report.markup import counted
from fries_nb.run import Run
from fries_nb.spark import session


class Start:
    """A run that is being started; the constructor begins at once.

    Args:
        flow: name of the dataflow.
        launch: starts the run; called in the thread.
        ready: called with the run, in the thread, as soon as it exists; not called if the start was cancelled.

    Attributes:
        error: why the start failed; ``None`` if it has not.
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
        """Whether the start has neither succeeded, failed nor been cancelled."""
        return self._thread.is_alive() and not self._cancelled

    def progress(self, hosts: int) -> str:
        """What the start is doing, in a few words.

        Args:
            hosts: the number of hosts that are to join.
        """
        what, run = f"starting {self.flow!r}", self._run
        if run is None:
            return f"{what}: {'Spark runs, the sources are prepared' if session.is_active() else 'Spark is starting'}"
        joined = len(run.host_processes)
        if joined < hosts:
            return f"{what}: {joined} of {counted(hosts, 'host')} {'has' if joined == 1 else 'have'} joined"
        return f"{what}: {'the host has' if hosts == 1 else f'all {hosts} hosts have'} joined, operators are opened"

    def run(self, timeout: float | None = None) -> Run:
        """Wait for the run.

        Args:
            timeout: seconds to wait; ``None`` waits indefinitely.

        Returns:
            The run.

        Raises:
            TimeoutError: it has not started in time.
            Exception: the error with which the start failed.
        """
        self._thread.join(timeout)
        if self.error is not None:
            raise self.error
        if self._run is None:
            raise TimeoutError(f"{self.flow!r} is still starting")
        return self._run

    def cancel(self) -> None:
        """Cancel the start; a run that comes to exist nevertheless is stopped."""
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
