"""The judge: was every source tuple processed wholly by the old or wholly by the new configuration?

It reads a trace and nothing else, and shares no code with what it judges.
"""

from __future__ import annotations

from fries_nb.audit.judge import Mixed, Verdict, judge
from fries_nb.audit.reading import read_trace

__all__ = ["Mixed", "Verdict", "judge", "read_trace"]
