"""Running sums and means over a window of time, for many elements at once.

Each sample counts with its weight, the number of rows that it stands for, until the window has passed it. Samples of an
element that have become invalid, since the size of its buffer has changed, are forgotten at once. Sums are kept in
whole units (microseconds times rows), so that adding and removing samples for days leaves no rounding error.

>>> means = RunningMeans(size=2, window_ns=10)
>>> means.add(1, [0], [10.0], [3])
>>> means.add(5, [0, 1], [50.0, 7.0], [1, 1])
>>> means.values.tolist()
[20.0, 7.0]
>>> means.evict(now_ns=12)
>>> means.values.tolist()
[50.0, 7.0]
>>> means.forget([0], before_ns=6)
>>> means.values.tolist()
[nan, 7.0]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

UNITS = 1_000.0
"""Units of a sum of milliseconds: microseconds."""


@dataclass(frozen=True, slots=True)
class _Entry:
    time_ns: int
    positions: Positions
    amounts: Floats


class WindowedSums:
    """The sum of amounts of each of ``size`` elements over a window.

    Args:
        window_ns: length of the window in nanoseconds.
    """

    def __init__(self, size: int, window_ns: int) -> None:
        self.values: Floats = np.zeros(size)
        self._window = window_ns
        self._entries: list[_Entry] = []
        self._valid_from: npt.NDArray[np.int64] = np.zeros(size, dtype=np.int64)

    def add(self, time_ns: int, positions: npt.ArrayLike, amounts: npt.ArrayLike) -> None:
        """Add amounts, except those of a time before which the element's amounts were forgotten."""
        entry = _Entry(time_ns, np.asarray(positions, dtype=np.intp), np.asarray(amounts, dtype=np.float64))
        self._entries.append(entry)
        self._apply(entry, 1.0)

    def forget(self, positions: npt.ArrayLike, before_ns: int) -> None:
        """Remove the amounts of these elements that are of an earlier time, and ignore those that arrive later."""
        chosen = np.zeros(self.values.size, dtype=np.bool_)
        chosen[np.asarray(positions, dtype=np.intp)] = True
        self._valid_from[chosen] = np.maximum(self._valid_from[chosen], before_ns)
        self.values[chosen] = 0.0
        for entry in self._entries:
            if entry.time_ns >= before_ns:
                again = chosen[entry.positions]
                self._apply(_Entry(entry.time_ns, entry.positions[again], entry.amounts[again]), 1.0)

    def evict(self, now_ns: int) -> None:
        """Remove the amounts that are not younger than a window."""
        kept = []
        for entry in self._entries:
            if entry.time_ns > now_ns - self._window:
                kept.append(entry)
            else:
                self._apply(entry, -1.0)
        self._entries = kept

    def _apply(self, entry: _Entry, sign: float) -> None:
        valid = entry.time_ns >= self._valid_from[entry.positions]
        np.add.at(self.values, entry.positions[valid], sign * entry.amounts[valid])


class RunningMeans:
    """The weighted mean of the samples of each of ``size`` elements over a window.

    Args:
        window_ns: length of the window in nanoseconds.
    """

    def __init__(self, size: int, window_ns: int) -> None:
        self._totals = WindowedSums(size, window_ns)
        self._weights = WindowedSums(size, window_ns)

    @property
    def values(self) -> Floats:
        """The mean of each element; NaN without a sample."""
        known = self._weights.values > 0
        means = np.full(known.size, np.nan)
        np.divide(self._totals.values, self._weights.values * UNITS, out=means, where=known)
        return means

    def mean(self) -> float:
        """The mean over all samples of all elements; 0 without a sample."""
        weights = float(self._weights.values.sum())
        return float(self._totals.values.sum()) / (weights * UNITS) if weights > 0 else 0.0

    @property
    def weights(self) -> Floats:
        """The sum of the weights of each element's samples."""
        return self._weights.values

    def add(self, time_ns: int, positions: npt.ArrayLike, values: npt.ArrayLike, weights: npt.ArrayLike) -> None:
        """Add samples, except those of a time before which the element's samples were forgotten."""
        weighing = np.asarray(weights, dtype=np.float64)
        self._totals.add(time_ns, positions, np.rint(np.asarray(values, dtype=np.float64) * UNITS * weighing))
        self._weights.add(time_ns, positions, weighing)

    def forget(self, positions: npt.ArrayLike, before_ns: int) -> None:
        """Remove the samples of these elements that are of an earlier time, and ignore those that arrive later."""
        self._totals.forget(positions, before_ns)
        self._weights.forget(positions, before_ns)

    def evict(self, now_ns: int) -> None:
        """Remove the samples that are not younger than a window."""
        self._totals.evict(now_ns)
        self._weights.evict(now_ns)
