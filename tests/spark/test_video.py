"""The video pipeline on real Spark: the rows of the plain loop, and a change of two tasks while frames flow."""

from __future__ import annotations

from typing import Any

from patience import PATIENCE_S
from run_setting import ended_runs, until

import fries_nb as fn
from fries_nb.workloads.video import GROUP, Encoder, Marquee, Overlay, VideoFeed, video_flow, video_reference

FEED = VideoFeed(streams=8, height=48, width=64)
NEWS = (Marquee("BREAKING NEWS", colour=(255, 0, 0)),)


def by_frame(rows: Any) -> dict[tuple[int, int], dict[str, int]]:
    """Group and number to the row, which there is one of."""
    found = {(row["group"], row["number"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_frames_are_those_of_the_plain_loop_wholly_old_or_wholly_new(spark: Any) -> None:
    """Marquee and compression are changed together on the way; pictures pass between two hosts; no frame is lost."""
    with ended_runs() as runs:
        run = video_flow(FEED.source(40), fn.memory()).run(spark, hosts=2, workers=2, audit=True)
        runs.append(run)
        until(lambda: run.metrics().operators["Server"].processed > 0, run)
        assert run.reconfigure({"Overlay": Overlay(NEWS), "Encoder": Encoder(1)}).result(PATIENCE_S).outcome == "done"
        changed_at = run.metrics().operators["Src"].processed
        until(lambda: run.metrics().operators["Server"].processed * GROUP > changed_at + 2 * FEED.streams, run)
        run.stop(timeout=PATIENCE_S)
        assert run.audit().serializable
        found = by_frame([row.asDict() for row in run.output().collect()])
        packets = run.metrics().operators["Src"].processed
    frames = packets // FEED.streams + 1
    old = by_frame(list(video_reference(FEED, frames)))
    new = by_frame(list(video_reference(FEED, frames, NEWS, level=1)))
    # A frame is complete with the packet of the last stream of its group.
    assert found.keys() == {
        (group, number) for group, number in old if number * FEED.streams + (group + 1) * GROUP <= packets
    }
    assert all(row in (old[frame], new[frame]) for frame, row in found.items())
    assert {row == new[frame] for frame, row in found.items()} == {True, False}
