"""The latency meter: no latency is lost, and each is told within one percent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fries_nb.worker.meters import LatencyMeter


@given(st.lists(st.lists(st.floats(1e-3, 1e6) | st.sampled_from([2.0, 5e3])), max_size=5))
def test_every_latency_is_counted_within_one_percent(batches: list[list[float]]) -> None:
    """Every latency is counted within one percent."""
    meter = LatencyMeter()
    for batch in batches:
        meter.add(batch)
    taken = meter.take()
    told = sorted(ms for ms, count in taken for _ in range(count))
    assert told == pytest.approx(sorted(ms for batch in batches for ms in batch), rel=0.0101)
    assert meter.take() == ()


def test_what_is_below_a_microsecond_counts_as_one() -> None:
    """What is below a microsecond counts as one."""
    meter = LatencyMeter()
    meter.add([-5.0, 0.0])
    assert [(pytest.approx(1e-3, rel=0.02), 2)] == list(meter.take())
