"""How hard the property tests try: FRIES_SOAK multiplies their seeds (1, and always the same, in `make test`)."""

from __future__ import annotations

import os

from hypothesis import settings

SOAK = int(os.environ.get("FRIES_SOAK", "1"))

settings.register_profile("fries", max_examples=100 * SOAK, derandomize=SOAK == 1, deadline=None, print_blob=True)
settings.load_profile("fries")
