"""How hard the property tests try: FRIES_SOAK multiplies their seeds (1, and always the same, in `make test`)."""

from __future__ import annotations

import os

SOAK = int(os.environ.get("FRIES_SOAK", "1"))
