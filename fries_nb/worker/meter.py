"""Latency measurement at a sink: end-to-end latencies in geometric buckets of one percent.

>>> meter = LatencyMeter()
>>> meter.add([1.005, 1.006, 251.0])
>>> [(round(ms, -1) or round(ms), count) for ms, count in meter.take()], meter.take()
([(1, 2), (250.0, 1)], ())
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

_GAMMA = 1.02
_FLOOR_MS = 1e-3


class LatencyMeter:
    """Counts latencies in geometric buckets, whole columns at a time; the buckets are merged into a DDSketch."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, latencies_ms: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Count latencies in milliseconds; values below a microsecond count as one."""
        clipped = np.maximum(np.asarray(latencies_ms, dtype=np.float64), _FLOOR_MS)
        buckets, counts = np.unique(np.ceil(np.log(clipped) / math.log(_GAMMA)).astype(np.int64), return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            self._counts[bucket] += count

    def take(self) -> tuple[tuple[float, int], ...]:
        """(milliseconds, count) of each non-empty bucket in ascending order; resets the counts."""
        taken = tuple((2 * _GAMMA**bucket / (_GAMMA + 1), count) for bucket, count in sorted(self._counts.items()))
        self._counts.clear()
        return taken
