"""How hard the property tests try: FRIES_SOAK multiplies their seeds (1, and always the same, in `make test`)."""

from __future__ import annotations

import os

SOAK = int(os.environ.get("FRIES_SOAK", "1"))


def first_tried(seed: int, count: int) -> tuple[int, ...]:
    """Seeds 0 to ``count``, preceded by one that is known to show a defect; as good without, but slower."""
    return seed, *range(count)
