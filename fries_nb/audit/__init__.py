"""The audit: checks from a trace that every source tuple was processed wholly by the old or the new configuration.

It reads a trace only, and shares no code with the runtime that it judges.
"""

from __future__ import annotations

from fries_nb.audit.completeness import Stale, StatedCounts, read_trace
from fries_nb.audit.conservation import Astray
from fries_nb.audit.judge import Met, Mixed, Verdict, judge

__all__ = ["Astray", "StatedCounts", "Met", "Mixed", "Stale", "Verdict", "judge", "read_trace"]
