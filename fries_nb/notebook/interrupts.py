"""An interrupt of a cell that only waits: the cell ends, "Run All" stops there, and one line says what goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Interrupted(KeyboardInterrupt):
    """The user's interrupt; IPython shows its words without the stack of what was waited in."""

    def _render_traceback_(self) -> list[str]:
        """IPython's hook."""
        return [f"KeyboardInterrupt: {self}"]


@contextlib.contextmanager
def told_when_interrupted(words: str) -> Iterator[None]:
    """Say these words if the block is interrupted.

    >>> try:
    ...     with told_when_interrupted("the change goes on"):
    ...         raise KeyboardInterrupt
    ... except Interrupted as interrupt:
    ...     print(interrupt)
    the change goes on
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(words) from None
