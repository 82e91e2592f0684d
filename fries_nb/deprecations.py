"""Names that were renamed: each works for one more version, with a warning that says the new one.

A package that showed such a name asks ``renamed`` from its ``__getattr__``, which Python calls for what it lacks.

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
"""For each package, the old name of what it shows to the new one."""


def renamed(package: str, name: str) -> Any:
    """What a package shows under an old name.

    Args:
        package: the package's dotted name; it is imported.
        name: what was asked of it, and is no attribute of it.

    Returns:
        The attribute under its new name, with a ``FutureWarning`` at the line that asked.

    Raises:
        AttributeError: the package never had such a name.
    """
    new = RENAMED.get(package, {}).get(name)
    if new is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    warnings.warn(
        f"{package}.{name} is now called {new}; the old name goes in the next version", FutureWarning, stacklevel=3
    )
    return getattr(sys.modules[package], new)
