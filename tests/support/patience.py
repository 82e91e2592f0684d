"""How long a test waits for what is bound to happen: only a failure takes as long, so a busy machine has its time."""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_S = 900.0
LOOK_S = 0.02


def until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Wait until a condition holds that another thread or process brings about.

    Raises:
        AssertionError: it does not hold in time; names ``what``.
    """
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if condition():
            return
        pause.wait(LOOK_S)
    raise AssertionError(f"{what} did not come true within {PATIENCE_S:g} s")
