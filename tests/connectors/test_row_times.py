"""Times of rows: the hidden column, and exact lower bounds of the times of what was not read yet."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from timed_sources import play


@given(st.randoms(use_true_random=False))
def test_bounds_of_a_replay_are_exact_and_each_row_is_read_once(chance: random.Random) -> None:
    """For any files, workers and order of reading, and after others have taken over."""
    play(chance)
