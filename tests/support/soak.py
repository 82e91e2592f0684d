"""How hard the property tests try: FRIES_SOAK multiplies their seeds (1, and always the same, in `make test`).

Tests of mutants try the seed first that is known to show them, and others only where it does so no longer.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from fries_nb.errors import FriesError

SOAK = int(os.environ.get("FRIES_SOAK", "1"))

SHOWN_BY = (AssertionError, FriesError, KeyError, IndexError, ValueError)
"""How a run in which a rule is broken may fail."""


def first_tried(seed: int, count: int) -> tuple[int, ...]:
    """Seeds 0 to ``count``, preceded by one that is known to show a defect; as good without, but slower."""
    return seed, *range(count)


def caught(
    seeds: Iterable[int], attempt: Callable[[int], Any],
    by: type[Exception] | tuple[type[Exception], ...] = (AssertionError, FriesError),
) -> int | None:  # fmt: skip
    """The first of these seeds for which the checks fail, ``None`` if they hold for all; warns if it comes late."""
    for others, seed in enumerate(seeds):
        try:
            attempt(seed)
        except by:
            if others > 3:
                warnings.warn(f"seed {seed} shows it after {others} others: try it first", stacklevel=2)
            return seed
    return None
