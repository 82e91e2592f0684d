"""How long a test waits for what is bound to happen: only a failure takes as long, so a busy machine has its time."""

from __future__ import annotations

PATIENCE_S = 900.0
