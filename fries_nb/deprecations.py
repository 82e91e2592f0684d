"""Renamed names: each works for one more version, with a warning that gives the new name.

A package with a renamed attribute calls ``renamed`` from its module-level ``__getattr__``.

>>> import warnings
>>> with warnings.catch_warnings(record=True) as told:
...     warnings.simplefilter("always")
...     from fries_nb.planning import Way
>>> Way.__name__, str(told[0].message)
('CriticalPath', 'fries_nb.planning.Way is now called CriticalPath; the old name goes in the next version')
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

RENAMED: Mapping[str, Mapping[str, str]] = {
    "fries_nb.audit": {"Claim": "StatedCounts"},
    "fries_nb.dataflow": {"Dataflow": "DataflowBuilder"},
    "fries_nb.experiments": {"Scale": "ExperimentScale"},
    "fries_nb.experiments.bench": {"Report": "BenchReport"},
    "fries_nb.planning": {"Way": "CriticalPath"},
    "fries_nb.report": {"Row": "ComparisonRow", "Trial": "SchedulerTrial"},
}
"""For each package, the old name of an attribute to its new name."""


def renamed(package: str, name: str) -> Any:
    """The value of a renamed attribute.

    Args:
        package: dotted name of the package, which is imported.
        name: the old name of the attribute.

    Returns:
        The attribute under its new name; warns with a ``FutureWarning`` at the caller's line.

    Raises:
        AttributeError: the package never had an attribute of this name.
    """
    new = RENAMED.get(package, {}).get(name)
    if new is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    warnings.warn(
        f"{package}.{name} is now called {new}; the old name goes in the next version", FutureWarning, stacklevel=3
    )
    return getattr(sys.modules[package], new)
