"""The judge: was every source tuple processed wholly by the old or wholly by the new configuration?

It reads a trace and nothing else, and shares no code with what it judges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fries_nb.audit.completeness import StatedCounts
from fries_nb.audit.conservation import Astray
from fries_nb.audit.executed import Stale
from fries_nb.audit.judge import Mixed, Verdict, judge
from fries_nb.audit.trace_files import read_trace
from fries_nb.deprecations import renamed

__all__ = ["Astray", "StatedCounts", "Mixed", "Stale", "Verdict", "judge", "read_trace"]


if not TYPE_CHECKING:  # a type checker is to miss what is missing

    def __getattr__(name: str) -> object:
        """Names that were renamed work for one more version."""
        return renamed(__name__, name)
