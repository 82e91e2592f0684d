"""Output buffers that are measured: exact waiting times, tags of median rows, sizes that change by compare and set."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from fries_nb.dataflow.graph import Partitioning
from fries_nb.protocol.messages import ChannelId, Data, Tag, WorkerId
from fries_nb.protocol.topology import OutEdge
from fries_nb.worker.meters import BufferMeter
from fries_nb.worker.outbox import Outbox

CHANNEL = ChannelId(WorkerId("A", 0), WorkerId("B", 0))
SEEDS = range(50)


def batch(rows: int) -> pa.RecordBatch:
    """Rows of eight bytes."""
    return pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})


class Measured:
    """An outbox with one measured channel, and a manual clock."""

    def __init__(self, size: int, fills: bool = False) -> None:
        self.now = 0
        self.outbox = Outbox([OutEdge("B", Partitioning.FORWARD, (), 0, (CHANNEL,))])
        self.outbox.credit(CHANNEL, 1 << 20)
        self.outbox.observe({"B"}, lambda: self.now, size)
        self.outbox.fills_buffers = fills

    def frames(self) -> list[Data]:
        """The data frames to send now."""
        return [send.frame for send in self.outbox.sends() if isinstance(send.frame, Data)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_mean_waiting_time_is_that_of_a_plain_count_and_the_tag_that_of_the_median_row(seed: int) -> None:
    """Whenever rows are added and framed."""
    draws, now = random.Random(seed), 0
    meter = BufferMeter(lambda: now)
    waited: list[int] = []
    tags = 0
    for _ in range(draws.randint(1, 6)):
        added: list[int] = []
        for _ in range(draws.randint(1, 5)):
            now += draws.randint(0, 1_000)
            rows = draws.randint(1, 9)
            meter.added(rows, 8 * rows)
            added += [now] * rows
        now += draws.randint(0, 1_000)
        waited += [now - since for since in added]
        tag = meter.framed()
        tags += tag is not None
        assert tag in (None, Tag(len(added) // 2, added[len(added) // 2]))
    assert tags == 1
    found = meter.take(CHANNEL)
    assert found is not None
    assert (found.rows, found.buffer_ms) == (len(waited), pytest.approx(sum(waited) / len(waited) / 1e6))
    assert meter.take(CHANNEL) is None


def test_a_buffer_is_framed_at_its_size_in_bytes() -> None:
    """And a flush frames what is in it, unless buffers are to be filled."""
    for fills in (False, True):
        measured = Measured(80, fills)
        for _ in range(3):
            measured.outbox.add(0, batch(4))
        assert [frame.batch.num_rows for frame in measured.frames()] == [12]
        measured.outbox.add(0, batch(4))
        assert measured.outbox.buffered != fills
        assert measured.outbox.flush() == (not fills)
        assert [frame.batch.num_rows for frame in measured.frames()] == ([] if fills else [4])
        measured.outbox.end()
        assert [frame.batch.num_rows for frame in measured.frames()] == ([4] if fills else [])


def test_of_two_changes_of_a_size_from_one_version_the_first_takes_effect() -> None:
    """The same change twice has the effect of one; measurements are of one size."""
    measured = Measured(80)
    measured.outbox.add(0, batch(20))
    assert measured.outbox.resize(CHANNEL, 40, 0)
    assert not measured.outbox.resize(CHANNEL, 800, 0)
    measured.outbox.add(0, batch(5))
    [found] = measured.outbox.measured()
    assert (found.size, found.version, found.rows) == (40, 1, 5)
    assert not measured.outbox.resize(ChannelId(WorkerId("A", 0), WorkerId("C", 0)), 40, 0)


def test_a_channel_that_is_not_observed_any_more_has_no_size() -> None:
    """Its buffer is framed by the number of rows again."""
    measured = Measured(80)
    measured.outbox.observe((), lambda: measured.now, 80)
    measured.outbox.add(0, batch(20))
    assert (measured.frames(), measured.outbox.measured()) == ([], [])


def _no_version(meter: BufferMeter, size: int, version: int) -> bool:
    meter.size, meter.version = size, version + 1
    return True


def _keeps_old(meter: BufferMeter, size: int, version: int) -> bool:
    if version == meter.version:
        meter.size, meter.version = size, version + 1
        return True
    return False


@pytest.mark.parametrize("resize", [_no_version, _keeps_old])
def test_a_broken_resize_is_noticed(
    resize: Callable[[BufferMeter, int, int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the test above."""
    monkeypatch.setattr(BufferMeter, "resize", resize)
    with pytest.raises(AssertionError):
        test_of_two_changes_of_a_size_from_one_version_the_first_takes_effect()
