"""Reproductions of the papers' figures and tables, one module each, run on fries_nb; they return data.

``EXPERIMENTS`` lists them by name; ``experiment(name, scale)`` runs one and returns a ``Result``. Nothing is drawn
here. Fries and Epoch run on the same runtime, so results differ by the scheduler only.

>>> experiment("table7", "test").rows[1]["all"]
68
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from fries_nb.displays import progress_of
from fries_nb.errors import FriesError, close_match
from fries_nb.experiments.fries import figure13, figure14, figure15, figure16, figure17, table4, table5, table6, table7
from fries_nb.experiments.measuring import ExperimentScale, Result, scale_of
from fries_nb.experiments.nephele import nephele2, nephele7
from fries_nb.experiments.nexmark_runs import nexmark
from fries_nb.experiments.rescaling import rescaling
from fries_nb.workloads.nexmark_sql import QUERIES

__all__ = ["EXPERIMENTS", "Experiment", "Result", "ExperimentScale", "experiment"]


@dataclass(frozen=True)
class Experiment:
    """A figure or table. ``measure`` runs it; ``minute`` and ``test`` are the scales for a minute and for seconds."""

    measure: Callable[[ExperimentScale], Result]
    minute: float
    test: float
    parts: Mapping[str, Callable[[ExperimentScale], Result]] = field(default_factory=dict)  # those that run alone

    @property
    def title(self) -> str:
        """The title, in one line."""
        return (self.measure.__doc__ or "").splitlines()[0]


EXPERIMENTS: Mapping[str, Experiment] = {
    "figure13": Experiment(figure13, minute=0.1, test=0.01),
    "figure14": Experiment(figure14, minute=0.1, test=0.01),
    "figure15": Experiment(figure15, minute=0.06, test=0.005),
    "figure16": Experiment(figure16, minute=0.6, test=0.02),
    "figure17": Experiment(figure17, minute=0.1, test=0.01),
    "nephele2": Experiment(nephele2, minute=0.05, test=0.004),
    "nephele7": Experiment(nephele7, minute=0.08, test=0.004),
    "nexmark": Experiment(
        nexmark, minute=0.02, test=0.002, parts={one: partial(nexmark, queries=(one,)) for one in QUERIES}
    ),
    "rescaling": Experiment(rescaling, minute=0.05, test=0.005),
    "table4": Experiment(table4, minute=0.05, test=0.0005),
    "table5": Experiment(table5, minute=0.05, test=0.0008),
    "table6": Experiment(table6, minute=0.02, test=0.0025),
    "table7": Experiment(table7, minute=1.0, test=1.0),
}


def experiment(name: str, scale: str = "minute", part: str | None = None) -> Result:
    """Run an experiment.

    Args:
        name: a key of ``EXPERIMENTS``.
        scale: ``test``, ``minute``, ``paper``, or a number above 0 up to 1, the paper's size.
        part: a part of it, such as a query of Nexmark; ``None`` for all of it.

    Raises:
        FriesError: unknown name, part or scale; or the experiment failed.
    """
    if name not in EXPERIMENTS:
        raise FriesError(
            f"no experiment {name!r}; expected one of {', '.join(EXPERIMENTS)}{close_match(name, EXPERIMENTS)}"
        )
    one = EXPERIMENTS[name]
    if part is not None and part not in one.parts:
        parts = f"one of {', '.join(one.parts)}{close_match(part, one.parts)}"
        expected = parts if one.parts else "none, since it has no parts"
        raise FriesError(f"experiment {name!r} has no part {part!r}; expected {expected}")
    measure = one.measure if part is None else one.parts[part]
    size = scale_of(scale, {"minute": one.minute, "test": one.test})
    with progress_of(f"experiment {name} at scale {scale}: {one.title}"):
        return measure(size)
