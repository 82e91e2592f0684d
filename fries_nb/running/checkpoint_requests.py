"""Checkpoints that users ask for and wait for.

>>> requests = CheckpointRequests()
>>> request = requests.new()
>>> requests.answer([request], "no space left on device")
>>> requests.wait(request, timeout=1.0)
'no space left on device'
"""

from __future__ import annotations

import threading
from collections.abc import Iterable


class CheckpointRequests:
    """The requests of a run for checkpoints, with the answer to each; any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: dict[str, threading.Event] = {}
        self._reasons: dict[str, str] = {}

    def new(self) -> str:
        """A request that nobody has answered yet; returns its id."""
        with self._lock:
            request = f"k{len(self._answered) + 1}"
            self._answered[request] = threading.Event()
        return request

    def answer(self, requests: Iterable[str], reason: str) -> None:
        """These checkpoints are complete, or have come to nothing for a reason; only the first answer counts."""
        with self._lock:
            for request in requests:
                self._reasons.setdefault(request, reason)
                self._answered[request].set()

    def refuse(self, reason: str) -> None:
        """None of those that are still open will be taken."""
        self.answer(list(self._answered), reason)

    def wait(self, request: str, timeout: float) -> str:
        """Wait for the answer: why there is no checkpoint, empty if there is one.

        Args:
            request: its id.
            timeout: seconds to wait.

        Raises:
            TimeoutError: there is no answer by then.
        """
        if not self._answered[request].wait(timeout):
            raise TimeoutError(f"request {request} has no answer after {timeout:g} s")
        return self._reasons[request]
