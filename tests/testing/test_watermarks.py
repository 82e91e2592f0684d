"""Watermarks in seeded runs: safe over all rows, monotone, through changes and failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from timed_draws import play_timed

from fries_nb.topology.progress_locations import Watermarks
from fries_nb.worker import watermarks
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.versions import Versions

EACH_BATCH = Watermarks()


@pytest.mark.parametrize(("first", "interval_ns"), [(0, 0), (20, 20_000)])
def test_no_watermark_passes_a_row(first: int, interval_ns: int) -> None:
    """Whatever the interleaving, the changes and the failures; some seeds have each of them."""
    laws = [play_timed(seed, Watermarks(interval_ns)) for seed in range(first, first + 20)]
    assert sum(law.checked for law in laws) > 1_000
    assert any(law.cluster.recoveries for law in laws)
    assert any(outcome.outcome == "done" for law in laws for outcome in law.cluster.outcomes.values())


def _overtakes(outbox: Outbox, watermark: Any) -> None:
    for channel in outbox._channels.values():
        channel.cuts += 1
        channel.queue.append(watermark)
        outbox._pending.queued[channel] = None


def _most(times: Any) -> int | None:
    most = max((times._watermarks.get(channel, watermarks.EARLIEST) for channel in times._open), default=watermarks.LAST)
    if most <= times.reached:
        return None
    times.reached = most
    return int(most)


def _latest(times: Any, version: int, splits: Any, bounds: Any) -> None:
    times._bound = max(bounds.values(), default=times._bound)


BROKEN: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "a watermark overtakes a buffer": (Outbox, "broadcast", _overtakes),
    "the latest channel's watermark": (watermarks.ChannelTimes, "risen", _most),
    "the latest split's bound": (watermarks.SourceTimes, "take_rows", _latest),
    "tuples set aside are overtaken": (Versions, "delays", lambda versions, channel, watermark: False),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_watermark_is_caught(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The law catches each mutant."""
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises(AssertionError, match="watermark"):
        for seed in range(200):
            play_timed(seed, EACH_BATCH)
