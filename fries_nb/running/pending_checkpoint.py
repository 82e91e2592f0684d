"""Checkpoints that somebody waits for."""

from __future__ import annotations

import threading


class PendingCheckpoint:
    """A checkpoint that somebody waits for."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.reason = ""

    def answer(self, reason: str) -> None:
        """It is complete, or has come to nothing for a reason; only the first answer counts."""
        if not self.over.is_set():
            self.reason = reason
            self.over.set()
