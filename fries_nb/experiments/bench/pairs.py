"""Paired measurements: A B A B ..., so that other load on the machine affects both sides alike.

The result is the ratio of each pair. The median of ratios is more stable than a ratio of medians when the machine
drifts, and the minimum and maximum show how far to trust it.

>>> figures = iter([10.0, 5.0, 12.0, 4.0, 11.0, 5.0])
>>> result = pairs(Side("ours", lambda: next(figures)), Side("theirs", lambda: next(figures)), 3, unit="rows/s")
>>> result.ratio_median, result.ratio_min, result.ratio_max
(2.2, 2.0, 3.0)
>>> print(result)
ours 11 rows/s, theirs 5 rows/s: ratio 2.20 (2.00 to 3.00, 3 pairs)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Side:
    """One of two sides that are compared: ``measure`` runs it once and returns its figure."""

    name: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class PairedResult:
    """The figures of both sides in the order of measurement, in ``unit``."""

    a: str
    b: str
    unit: str
    a_figures: tuple[float, ...]
    b_figures: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """``a`` over ``b`` for each pair.

        Raises:
            ValueError: a figure of ``b`` is 0.
        """
        if 0 in self.b_figures:
            raise ValueError(f"{self.b}: got 0 {self.unit}, expected more; measure for longer (a larger scale)")
        return tuple(ours / theirs for ours, theirs in zip(self.a_figures, self.b_figures, strict=True))

    @property
    def a_median(self) -> float:
        """The median figure of ``a``."""
        return median(self.a_figures)

    @property
    def b_median(self) -> float:
        """The median figure of ``b``."""
        return median(self.b_figures)

    @property
    def ratio_median(self) -> float:
        """The median of the ratios."""
        return median(self.ratios)

    @property
    def ratio_min(self) -> float:
        """The least ratio of a pair."""
        return min(self.ratios)

    @property
    def ratio_max(self) -> float:
        """The greatest ratio of a pair."""
        return max(self.ratios)

    def as_json(self) -> dict[str, Any]:
        """All fields and statistics as JSON values."""
        return {
            "a": {"name": self.a, "figures": self.a_figures, "median": self.a_median},
            "b": {"name": self.b, "figures": self.b_figures, "median": self.b_median},
            "unit": self.unit,
            "ratio": {"median": self.ratio_median, "min": self.ratio_min, "max": self.ratio_max},
        }

    def __str__(self) -> str:
        return (
            f"{self.a} {figure(self.a_median)} {self.unit}, {self.b} {figure(self.b_median)} {self.unit}: "
            f"ratio {self.ratio_median:.2f} ({self.ratio_min:.2f} to {self.ratio_max:.2f}, {len(self.ratios)} pairs)"
        )


def pairs(a: Side, b: Side, n: int, unit: str) -> PairedResult:
    """Measure both sides in turn.

    Args:
        a: the first side.
        b: the second side.
        n: number of pairs.
        unit: unit of the figures.

    Returns:
        The figures, with ratios ``a`` over ``b``.

    Raises:
        ValueError: ``n`` is less than 1.
    """
    if n < 1:
        raise ValueError(f"pairs: got n={n}, expected at least one pair")
    figures = [(a.measure(), b.measure()) for _ in range(n)]
    ours, theirs = zip(*figures, strict=True)
    return PairedResult(a.name, b.name, unit, tuple(ours), tuple(theirs))


def figure(value: float) -> str:
    """A figure as text: three significant digits, or thousands separators if it is large.

    >>> figure(1234567.8), figure(3.14159), figure(0.00123)
    ('1,234,568', '3.14', '0.00123')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
