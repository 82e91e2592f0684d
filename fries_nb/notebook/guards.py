"""A change's guard in a notebook: the cell that asked for the change says so if it is rolled back."""

from __future__ import annotations

import threading
import uuid

from IPython.core.interactiveshell import InteractiveShell

from fries_nb.changes import Change

DEFAULT_S = 5.0
"""How long changes are under guard, in seconds, where nothing else is said."""


class GuardNotice:
    """An output of the cell that is executed now, empty unless the change is rolled back by its guard.

    Without a kernel nothing can be written from behind; there ``%fries_status`` and ``change.settled()`` say it.

    Args:
        shell: whose cell.
        change: that may be rolled back.
    """

    def __init__(self, shell: InteractiveShell, change: Change) -> None:
        self._shell = shell
        self._change = change
        self._id = f"fries-{uuid.uuid4().hex}"
        if change.guard and getattr(shell, "kernel", None) is not None:
            self._publish("", update=False)
            threading.Thread(target=self._follow, name="fries-guard", daemon=True).start()

    def _follow(self) -> None:
        result = self._change.settled()
        if result.outcome == "rolled_back":
            self._publish(f"{self._change.label}: {result.error}", update=True)

    def _publish(self, text: str, update: bool) -> None:
        self._shell.display_pub.publish({"text/plain": text}, transient={"display_id": self._id}, update=update)
