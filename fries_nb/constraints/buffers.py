"""The sizes of output buffers, from the time that rows wait in them (Nephele Streaming, section 3.5.1).

A buffer on a sequence above its limit shrinks by formula (2), size * r ** waiting time, if rows wait in it for longer
than a threshold and than in its sender's task. A buffer in which rows hardly wait, so that it costs throughput and
gains no latency, grows by formula (3), size * s. Between the two thresholds it stays as it is.

Corrections of the paper. The exponent is bounded: at a waiting time of a second, formula (2) falls to the floor in one
look, and formula (3) needs 53 looks back. Only while all sequences through a channel have a fifth of their limit to
spare does its buffer grow, or the two formulas would follow each other for ever. The waiting time is measured exactly
instead of as half the life of a buffer, which presumes that rows arrive evenly.

>>> sizes, waits, senders = np.array([32_768, 32_768, 1_000]), np.array([20.0, 900.0, 0.5]), np.zeros(3)
>>> resized(sizes, waits, senders, through=np.array([400.0, 400.0, 100.0]), limit_ms=300, window_s=15).tolist()
[21876, 11933, 1100]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fries_nb.constraints.windows import Floats

Sizes = npt.NDArray[np.int64]

START_BYTES = 32 << 10
"""Size of a buffer at first."""
FLOOR_BYTES, CEILING_BYTES = 200, 64 << 10
"""Bounds of the size; half a window's bytes are another upper one."""
SHRINKING, LONGEST_MS = 0.98, 50.0
"""Base of formula (2), and the bound of its exponent in milliseconds."""
GROWTH = 1.1
"""Factor of formula (3)."""
THRESHOLD_MS = 5.0
"""Waiting time above which a buffer may shrink, and below which it may grow."""
SPARE = 0.8
"""Share of the limit up to which buffers may grow."""


def resized(sizes: Sizes, waits: Floats, sender_ms: Floats, through: Floats, limit_ms: float, window_s: float) -> Sizes:
    """The new sizes of buffers.

    Args:
        sizes: present sizes in bytes.
        waits: mean time for which rows wait in each buffer, in milliseconds; NaN if unknown.
        sender_ms: latency of each buffer's sending task; 0 if it has none.
        through: largest latency of a sequence through each channel; minus infinity if none can be judged.
        limit_ms: the limit of these sequences.
        window_s: the window of the constraint in seconds.

    Returns:
        The new sizes; equal to the present ones where nothing is to change.
    """
    bound = ceilings(sizes, waits, window_s)
    shrinks = (through > limit_ms) & (waits > np.maximum(THRESHOLD_MS, sender_ms))
    grows = (through <= SPARE * limit_ms) & np.isfinite(through) & (waits < THRESHOLD_MS)
    smaller = np.minimum(bound, sizes * SHRINKING ** np.minimum(np.nan_to_num(waits), LONGEST_MS))
    larger = np.maximum(sizes, np.minimum(bound, sizes * GROWTH))
    found = np.where(shrinks, np.maximum(FLOOR_BYTES, smaller), np.where(grows, larger, sizes))
    return found.astype(np.int64)


def ceilings(sizes: Sizes, waits: Floats, window_s: float) -> Floats:
    """The largest sensible size of each buffer: one that is full within half a window.

    The time to fill a buffer is estimated as twice the mean waiting time.

    Args:
        sizes: present sizes in bytes.
        waits: mean time for which rows wait in each buffer, in milliseconds; NaN if unknown.
        window_s: the window of the constraint in seconds.

    Returns:
        The sizes, at least ``FLOOR_BYTES`` and at most ``CEILING_BYTES``.
    """
    filling_ms = 2 * np.nan_to_num(waits)
    fitting = np.full(sizes.shape, float(CEILING_BYTES))
    np.divide(sizes * (window_s * 500.0), filling_ms, out=fitting, where=filling_ms > 0)
    bounded: Floats = np.clip(fitting, FLOOR_BYTES, CEILING_BYTES)
    return bounded
