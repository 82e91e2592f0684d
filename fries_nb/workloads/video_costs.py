"""The processor time of each task of the video pipeline on this machine, from which rates are chosen.

Only the tasks' functions are measured, one after the other in one thread; the runtime's own cost comes on top, for the
most part that of copying pictures into and out of columns.

>>> print(TaskCosts(8, {"Decoder": 100.0, "Encoder": 600.0}, {"Decoder": 4, "Encoder": 1}))
task     us a tuple  tuples a merged frame  share
Decoder         100                      4    40%
Encoder         600                      1    60%
8 streams: 1,000 us for the frames of a group; one core keeps up with 500 frames/s a stream
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fries_nb.workloads.video import (
    CLIP,
    COMPRESSION,
    FEEDS,
    GROUP,
    Decoder,
    Encoder,
    Merger,
    Overlay,
    Partitioner,
    Row,
    Server,
    VideoFeed,
)

Task = Callable[[Row], Row | None]


@dataclass(frozen=True)
class TaskCosts:
    """Processor time by task.

    Attributes:
        streams: number of streams.
        us: task to the mean duration of one tuple in microseconds.
        tuples: task to the number of tuples that it processes for one merged frame.
    """

    streams: int
    us: Mapping[str, float]
    tuples: Mapping[str, int]

    @property
    def us_a_merged_frame(self) -> float:
        """Microseconds for the four frames of a group with one number, over all tasks."""
        return sum(cost * self.tuples[task] for task, cost in self.us.items())

    def frames_per_s(self, cores: float) -> float:
        """The frames per second of each stream with which so many cores keep up, if the runtime cost nothing."""
        return cores * 1e6 / self.us_a_merged_frame / (self.streams / GROUP)

    def __str__(self) -> str:
        width = max(map(len, self.us))
        lines = [f"{'task':<{width}}  us a tuple  tuples a merged frame  share"]
        for task, cost in self.us.items():
            share = cost * self.tuples[task] / self.us_a_merged_frame
            lines.append(f"{task:<{width}}  {cost:>10,.0f}  {self.tuples[task]:>21}  {share:>5.0%}")
        lines.append(
            f"{self.streams} streams: {self.us_a_merged_frame:,.0f} us for the frames of a group; one core "
            f"keeps up with {self.frames_per_s(1):,.0f} frames/s a stream"
        )
        return "\n".join(lines)


def task_costs(
    feed: VideoFeed, frames: int = CLIP, level: int = COMPRESSION, clock: Callable[[], int] = time.perf_counter_ns
) -> TaskCosts:
    """Measure the tasks over the first frames of the streams of one group; print the result to read it.

    Args:
        feed: the streams, whose number and size count.
        frames: number of frames of each stream.
        level: compression level of the Encoder.
        clock: the time in nanoseconds.

    Returns:
        The costs.
    """
    decoder, merger, decoded, waiting = Decoder(), Merger(), Decoder().initial_state(), Merger().initial_state()
    tasks: dict[str, Task] = {
        "Partitioner": Partitioner(),
        "Decoder": lambda row: decoder.process(row, decoded),
        "Merger": lambda row: merger.process(row, waiting),
        "Overlay": Overlay(FEEDS),
        "Encoder": Encoder(level),
        "Server": Server(),
    }
    rows: list[Any] = [feed(number * feed.streams + place) for number in range(frames) for place in range(GROUP)]
    us, tuples = dict[str, float](), dict[str, int]()
    for name, task in tasks.items():
        began = clock()
        made = [task(row) for row in rows]
        us[name], tuples[name] = (clock() - began) / 1000 / len(rows), len(rows) // frames
        rows = [row for row in made if row is not None]
    return TaskCosts(feed.streams, us, tuples)
