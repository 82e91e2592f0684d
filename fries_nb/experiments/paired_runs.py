"""Alternating changes with Fries and with Epoch in one run: delays of the same change under the same load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from fries_nb.changes import ChangeResult
from fries_nb.experiments.measuring import changed, confidence
from fries_nb.run import Run

Change = Mapping[str, Any]


@dataclass(frozen=True)
class Delays:
    """Delays of a change with each scheduler in milliseconds, from the request to the last target worker's switch."""

    fries_ms: tuple[float, ...]
    epoch_ms: tuple[float, ...]
    components: tuple[tuple[str, ...], ...]
    old_fries: float
    old_epoch: float

    def row(self) -> dict[str, Any]:
        """Medians, their ratio, and the tuples that were still processed with the old functions."""
        fries, epoch = median(self.fries_ms), median(self.epoch_ms)
        return {
            "components": " ".join("{" + ", ".join(part) + "}" for part in self.components),
            "fries ms": fries,
            "epoch ms": epoch,
            "times": epoch / fries,
            "old tuples fries": self.old_fries,
            "old tuples epoch": self.old_epoch,
        }

    def means(self) -> dict[str, Any]:
        """Means, with half the width of their 95 % confidence intervals."""
        fries, fries_half = confidence(list(self.fries_ms))
        epoch, epoch_half = confidence(list(self.epoch_ms))
        return {"fries ms": fries, "fries +-": fries_half, "epoch ms": epoch, "epoch +-": epoch_half}


def delays(run: Run, change: Change, repeats: int, ready: Callable[[], None]) -> Delays:
    """Make a change ``repeats`` times with Fries and with Epoch, alternating.

    Args:
        run: the run.
        change: operator to new function.
        repeats: number of changes with each scheduler.
        ready: establishes the load; called before each change.

    Returns:
        The delays.
    """
    found: dict[str, list[ChangeResult]] = {"fries": [], "epoch": []}
    for _ in range(repeats):
        for scheduler, results in found.items():
            ready()
            results.append(changed(run, change, scheduler))
    fries, epoch = found["fries"], found["epoch"]
    return Delays(
        tuple(one.delay_ms for one in fries),
        tuple(one.delay_ms for one in epoch),
        fries[0].components,
        median(one.old_tuples for one in fries),
        median(one.old_tuples for one in epoch),
    )
