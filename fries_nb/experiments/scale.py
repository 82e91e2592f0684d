"""How large an experiment is, as a part of the paper's: 1.0 has its workers, rates and times.

Workers, and rates with them, and times shrink in proportion; what one tuple costs does not. So each worker has as much
to do as in the paper, and a queue of a part of the paper's time is that part of the paper's queue.

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
"""Of scales: ``test`` takes seconds, ``minute`` about that long on two cores; each experiment says how large."""


@dataclass(frozen=True)
class ExperimentScale:
    """A part of the paper's size, above 0 and at most 1."""

    of_paper: float

    def seconds(self, paper: float, least: float = 0.0) -> float:
        """So much of the paper's time, but no less than ``least``."""
        return max(least, paper * self.of_paper)

    def workers(self, least: int = 2) -> int:
        """So many of the paper's 40 workers."""
        return max(least, round(PAPER_WORKERS * self.of_paper))


def per_workers(rate: float, workers: int) -> float:
    """A rate for so many workers, of one for the paper's 40."""
    return rate * workers / PAPER_WORKERS


def scale_of(text: str, named: Mapping[str, float]) -> ExperimentScale:
    """The scale of that name, or the number; ``named`` says how large ``test`` and ``minute`` are.

    Raises:
        FriesError: it is neither.
    """
    known = {"paper": 1.0, **named}
    try:
        of_paper = known[text] if text in known else float(text)
    except ValueError:
        of_paper = 0.0
    if not 0 < of_paper <= 1:
        raise FriesError(f"scale {text!r}; expected {', '.join(NAMES)} or a part of the paper's size, above 0 to 1")
    return ExperimentScale(of_paper)
