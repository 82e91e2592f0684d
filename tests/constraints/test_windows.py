"""Running means against a list of all samples, on a manual clock."""

from __future__ import annotations

import random

import numpy as np
import pytest
from soak import SOAK

from fries_nb.constraints.sequences import RunningMeans, WindowedSums

WINDOW = 100
SIZE = 4


class Listed:
    """All samples in a list, with the time from which those of each element are valid."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int, float, int]] = []
        self.valid = [0] * SIZE

    def mean(self, position: int, now: int) -> float:
        """The weighted mean of an element."""
        own = [
            (value, weight)
            for time, place, value, weight in self.samples
            if place == position and time > now - WINDOW and time >= self.valid[position]
        ]
        weights = sum(weight for _, weight in own)
        return sum(value * weight for value, weight in own) / weights if weights else float("nan")


def unweighted(means, time, positions, values, weights, add=RunningMeans.add):
    """Each sample counts once, whatever number of rows it stands for."""
    add(means, time, positions, values, [1] * len(weights))


def never_evicted(means, now):
    """Samples stay for ever."""


def never_forgotten(means, positions, before):
    """Samples of an older size stay."""


def forgotten_for_now(sums, positions, before, forget=WindowedSums.forget):
    """What was forgotten is taken away again when the window has passed it."""
    valid = sums._valid_from.copy()
    forget(sums, positions, before)
    sums._valid_from = valid


def played(seed: int) -> bool:
    """Whether samples, late ones too, sizes that change, and a clock that goes on leave the means of the list."""
    draws, means, listed, now = random.Random(seed), RunningMeans(SIZE, WINDOW), Listed(), 1_000
    for _ in range(60):
        now += draws.randint(0, 30)
        if draws.random() < 0.2:
            position, before = draws.randrange(SIZE), now - draws.randint(-10, WINDOW)
            means.forget([position], before)
            listed.valid[position] = max(listed.valid[position], before)
        else:
            time = now - draws.randint(0, 20)
            positions = draws.sample(range(SIZE), draws.randint(1, SIZE))
            samples = [(draws.randint(0, 99), draws.randint(1, 50)) for _ in positions]
            means.add(time, positions, *zip(*samples, strict=True))
            listed.samples += [(time, place, *one) for place, one in zip(positions, samples, strict=True)]
        means.evict(now)
        expected = [listed.mean(position, now) for position in range(SIZE)]
        if not np.allclose(means.values, expected, rtol=1e-12, atol=0, equal_nan=True):
            return False
    return True


SEEDS = range(20 * SOAK)


def test_means_are_those_of_the_list():
    """Weighted, within the window, of valid samples only."""
    assert all(map(played, SEEDS))


@pytest.mark.parametrize(
    ("of", "name", "mutant"),
    [
        (RunningMeans, "add", unweighted),
        (RunningMeans, "evict", never_evicted),
        (RunningMeans, "forget", never_forgotten),
        (WindowedSums, "forget", forgotten_for_now),
    ],
)
def test_a_broken_window_is_caught(monkeypatch, of, name, mutant):
    """By most seeds."""
    monkeypatch.setattr(of, name, mutant)
    assert sum(map(played, SEEDS)) < len(SEEDS) / 2


def test_a_year_leaves_no_rounding_error():
    """Amounts are added and removed as whole numbers, so an idle element is exactly empty."""
    means = RunningMeans(1, WINDOW)
    for step in range(2_000):
        means.add(step * 10, [0], [0.1 + step / 7], [3])
        means.evict(step * 10)
    means.evict(10**9)
    assert means._totals.values.tolist() == [0.0]
    assert np.isnan(means.values).all()


def test_an_empty_window_has_no_mean():
    """Not 0."""
    assert np.isnan(RunningMeans(2, WINDOW).values).all()
