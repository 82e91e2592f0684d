"""How long a test waits for what is bound to happen: only a failure takes as long, so a busy machine has its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

PATIENCE_S = 600.0
LOOK_S, LONGEST_PAUSE_S = 0.02, 2.0


def looks() -> Iterator[None]:
    """One for each look at what is waited for, until patience ends; a look that takes long is repeated less often.

    Within reason: the first query of a Spark takes seconds, and twice as long would be spent in waiting for nothing.
    """
    pause, over_s = threading.Event(), time.monotonic() + PATIENCE_S
    while (began_s := time.monotonic()) < over_s:
        yield
        pause.wait(min(max(LOOK_S, 2 * (time.monotonic() - began_s)), LONGEST_PAUSE_S))


def until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Wait until a condition holds that another thread or process brings about.

    Raises:
        AssertionError: it does not hold in time; names ``what``.
    """
    for _ in looks():
        if condition():
            return
    raise AssertionError(f"{what} did not come true within {PATIENCE_S:g} s")
