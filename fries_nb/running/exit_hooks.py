"""The runs of this interpreter that have not ended: they are stopped when it exits, so that no host outlives it."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Stoppable(Protocol):
    """A run, as far as its end is concerned."""

    def stop(self) -> None:
        """End it, and wait until nothing of it is left."""


live: weakref.WeakSet[Stoppable] = weakref.WeakSet()
"""A run adds itself when it starts, and discards itself when it has ended."""


@atexit.register
def _stop_all() -> None:
    for one in list(live):
        one.stop()
