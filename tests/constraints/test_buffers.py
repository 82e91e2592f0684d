"""Formulas (2) and (3) as corrected, one condition at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fries_nb.constraints.reactions import CEILING_BYTES, FLOOR_BYTES, ceilings, resized

NAN, UNKNOWN = float("nan"), float("-inf")


def new_size(
    size: int, wait: float, through: float = 400.0, sender: float = 0.0, limit: float = 300.0, window: float = 15.0
) -> int:
    """The new size of one buffer."""
    values = (np.array([one]) for one in (size, wait, sender, through))
    return int(resized(*values, limit_ms=limit, window_s=window)[0])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"size": 10_000, "wait": 10.0}, int(10_000 * 0.98**10)),
        ({"size": 10_000, "wait": 50.0}, int(10_000 * 0.98**50)),
        ({"size": 10_000, "wait": 51.0}, int(10_000 * 0.98**50)),  # the exponent is bounded
        ({"size": 10_000, "wait": 1_000.0}, int(10_000 * 0.98**50)),
        ({"size": 300, "wait": 100.0}, FLOOR_BYTES),
        ({"size": FLOOR_BYTES, "wait": 100.0}, FLOOR_BYTES),
        ({"size": 10_000, "wait": 5.0}, 10_000),  # at the threshold
        ({"size": 10_000, "wait": 5.1}, int(10_000 * 0.98**5.1)),
        ({"size": 10_000, "wait": 20.0, "sender": 20.0}, 10_000),  # the sender's task takes as long
        ({"size": 10_000, "wait": 20.1, "sender": 20.0}, int(10_000 * 0.98**20.1)),
        ({"size": 10_000, "wait": 20.0, "through": 300.0}, 10_000),  # the limit is kept
        ({"size": 10_000, "wait": NAN}, 10_000),
    ],
)
def test_a_buffer_shrinks(given, expected):
    """On a sequence above its limit, if rows wait for longer than the threshold and than in the sender's task."""
    assert new_size(**given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"size": 1_000, "wait": 0.0, "through": 240.0}, 1_100),
        ({"size": 1_000, "wait": 4.9, "through": 240.0}, 1_100),
        ({"size": 1_000, "wait": 5.0, "through": 240.0}, 1_000),  # between the formulas
        ({"size": 1_000, "wait": 0.0, "through": 240.1}, 1_000),  # less than a fifth to spare
        ({"size": 1_000, "wait": 0.0, "through": 400.0}, 1_000),
        ({"size": 1_000, "wait": 0.0, "through": UNKNOWN}, 1_000),
        ({"size": 1_000, "wait": NAN, "through": 100.0}, 1_000),
        ({"size": FLOOR_BYTES, "wait": 0.0, "through": 1.0}, 220),
        ({"size": 65_000, "wait": 0.0, "through": 1.0}, CEILING_BYTES),
        ({"size": CEILING_BYTES, "wait": 0.0, "through": 1.0}, CEILING_BYTES),
        ({"size": 1_000, "wait": 4.0, "through": 1.0, "limit": 3.0, "window": 0.01}, 1_000),  # no room in the window
    ],
)
def test_a_buffer_grows(given, expected):
    """If rows hardly wait in it, and all sequences through it have a fifth of the limit to spare."""
    assert new_size(**given) == expected


def test_no_buffer_takes_longer_than_half_a_window():
    """A buffer that takes 16 s to fill is cut to what fills in half a second at once, if the window is one."""
    assert ceilings(np.array([32_000]), np.array([8_000.0]), window_s=1.0).tolist() == [1_000.0]
    assert new_size(32_000, 8_000.0, through=8_000.0, window=1.0) == 1_000
    assert ceilings(np.array([32_000, 300]), np.array([0.0, 1e9]), 1.0).tolist() == [CEILING_BYTES, FLOOR_BYTES]


def test_growing_takes_as_long_as_the_paper_says():
    """From the floor to the start 54 looks: with a window a look, 13 minutes; with two intervals, under two."""
    size, looks = FLOOR_BYTES, 0
    while size < 32 << 10:
        size, looks = new_size(size, 0.0, through=100.0), looks + 1
    assert looks in (53, 54)
