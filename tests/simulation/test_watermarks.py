"""Watermarks in seeded runs: safe over all rows, monotone, windows exact, through changes and failures."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from progress_laws import WatermarkLaw
from timed_draws import Sum, draw_rows, marked, play_timed

import fries_nb as fn
from fries_nb.protocol.messages import Watermark
from fries_nb.protocol.progress_locations import Watermarks
from fries_nb.simulation.cluster import Cluster
from fries_nb.worker import watermarks
from fries_nb.worker.events import FrontierAdvanced
from fries_nb.worker.outbox import Outbox
from fries_nb.worker.versions import Versions
from fries_nb.worker.worker import Worker

EACH_BATCH = Watermarks()


@pytest.mark.parametrize(("first", "interval_ns"), [(0, 0), (20, 20_000)])
def test_no_watermark_passes_a_row(first: int, interval_ns: int) -> None:
    """Whatever the interleaving, the changes and the failures; some seeds have each of them."""
    laws = [play_timed(seed, Watermarks(interval_ns)) for seed in range(first, first + 10)]
    assert sum(law.checked for law in laws) > 1_000
    assert any(law.cluster.recoveries for law in laws)
    assert any(outcome.outcome == "done" for law in laws for outcome in law.cluster.outcomes.values())


def _play_all(play: Callable[[int], object], seeds: int) -> None:
    for seed in range(seeds):
        play(seed)


def _overtakes(outbox: Outbox, watermark: Any) -> None:
    for channel in outbox._channels.values():
        channel.cuts += 1
        channel.queue.append(watermark)
        outbox._pending.queued[channel] = None


def _most(times: Any) -> int | None:
    known = [times._watermarks.get(channel, watermarks.EARLIEST) for channel in times._open]
    most = max(known, default=watermarks.LAST)
    if most <= times.reached:
        return None
    times.reached = most
    return int(most)


def _latest(times: Any, version: int, splits: Any, bounds: Any, least: Any) -> None:
    times._bound = max(bounds.values(), default=times._bound)


def _first(worker: Any) -> None:
    if (watermark := worker._times.risen()) is not None:
        worker._reach(FrontierAdvanced(worker.instances[0].worker.operator, watermarks.frontier_at(watermark)))
    if not worker.ended and (watermark := worker._times.passed_on(())) is not None:
        worker.outbox.broadcast(Watermark(watermark))


BROKEN: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "a watermark overtakes a buffer": (Outbox, "broadcast", _overtakes),
    "the latest channel's watermark": (watermarks.ChannelTimes, "risen", _most),
    "a watermark overtakes what it brings out": (Worker, "_pass_watermark", _first),
    "the latest split's bound": (watermarks.SourceTimes, "take_rows", _latest),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_watermark_is_caught(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The law catches each mutant."""
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises(AssertionError, match="watermark"):
        _play_all(lambda seed: play_timed(seed, EACH_BATCH), 200)


def play_tagged(seed: int) -> WatermarkLaw:
    """A window is replaced by multi-version; the operator in front of it passes new rows ahead of its marker."""
    chance = random.Random(seed)
    flow = fn.Dataflow("tagged")
    source = flow.source("S", fn.rate(None), time="at", workers=3)
    passed = source.map("B", marked(0), workers=2)
    passed.window("W", Sum(0), fn.tumbling(7), key="k", workers=2).sink("out", fn.memory(), workers=1)
    rows = {"S": draw_rows(chance)}
    cluster = Cluster(flow.graph(), rows, seed=seed, hosts=2, notifications=EACH_BATCH)
    law = WatermarkLaw(cluster)
    law.run_until(lambda: cluster.supply.read >= 0.3 * cluster.supply.total)
    cluster.request({"W": Sum(1)}, "multiversion")
    law.run_until(lambda: False, every=1)
    law.check_end()
    return law


def test_a_watermark_waits_behind_rows_that_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """New rows wait for old ones at an operator with state, and so does what has come behind them."""
    waited = []
    delays = Versions.delays
    monkeypatch.setattr(Versions, "delays", lambda *given: waited.append(delays(*given)) or waited[-1])
    assert sum(play_tagged(seed).checked for seed in range(12)) > 500
    assert sum(waited) >= 3


def test_a_watermark_that_overtakes_rows_set_aside_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law catches the mutant."""
    monkeypatch.setattr(Versions, "delays", lambda versions, channel, watermark: False)
    with pytest.raises(AssertionError, match="watermark"):
        _play_all(play_tagged, 60)
