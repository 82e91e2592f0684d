"""The size of an experiment relative to the paper's: 1.0 has its workers, rates and durations.

Workers, with them rates, and durations shrink in proportion; the cost of a tuple does not. So each worker has the same
load as in the paper, and queues shrink with the duration.

>>> scale = ExperimentScale(0.1)
>>> scale.workers(), scale.seconds(300), per_workers(1_600, 4)
(4, 30.0, 160.0)
>>> scale_of("minute", {"minute": 0.02}), scale_of("paper", {}), scale_of("0.5", {})
(ExperimentScale(of_paper=0.02), ExperimentScale(of_paper=1.0), ExperimentScale(of_paper=0.5))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fries_nb.errors import FriesError

PAPER_WORKERS = 40
NAMES = ("test", "minute", "paper")
"""Named scales: ``test`` takes seconds, ``minute`` about a minute on two cores; each experiment sets their sizes."""


@dataclass(frozen=True)
class ExperimentScale:
    """A size relative to the paper's, above 0 and at most 1."""

    of_paper: float

    def seconds(self, paper: float, least: float = 0.0) -> float:
        """A duration of the paper in proportion, but no less than ``least``."""
        return max(least, paper * self.of_paper)

    def workers(self, least: int = 2) -> int:
        """The paper's 40 workers in proportion."""
        return max(least, round(PAPER_WORKERS * self.of_paper))


def per_workers(rate: float, workers: int) -> float:
    """A rate of the paper's 40 workers, for this number of workers."""
    return rate * workers / PAPER_WORKERS


def scale_of(text: str, named: Mapping[str, float]) -> ExperimentScale:
    """Parse a scale.

    Args:
        text: ``test``, ``minute``, ``paper`` or a number.
        named: the sizes of ``test`` and ``minute``.

    Raises:
        FriesError: the text is neither.
    """
    known = {"paper": 1.0, **named}
    try:
        of_paper = known[text] if text in known else float(text)
    except ValueError:
        of_paper = 0.0
    if not 0 < of_paper <= 1:
        raise FriesError(f"scale {text!r}; expected {', '.join(NAMES)} or a part of the paper's size, above 0 to 1")
    return ExperimentScale(of_paper)
