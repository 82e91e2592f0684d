"""Runs that go on: an interpreter that ends takes them along, so that no host outlives it."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Stoppable(Protocol):
    """A run, as far as its end is concerned."""

    def stop(self) -> None:
        """End it, and wait until nothing of it is left."""


live: weakref.WeakSet[Stoppable] = weakref.WeakSet()
"""Who begins adds itself; who has ended discards itself."""


@atexit.register
def _stop_all() -> None:
    for one in list(live):
        one.stop()
