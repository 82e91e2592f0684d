"""Figures 7 to 9 of the Nephele paper: the latency of the video pipeline, element by element, under a constraint.

Four streams at a time are decoded, merged, overlaid and encoded again (see ``workloads.video``). Packets are small, so
buffers of 32 KB that are sent only when they are full take seconds to fill. In every mode the same constraint is
measured; the modes differ in what is done about it:

none                    nothing: the paper's Figure 7
flush                   nothing; buffers are sent when a host would wait, as by default
buffers                 the sizes of buffers are adapted: Figure 8
buffers and chaining    and Merger, Overlay and Encoder may be chained as well: Figure 9

Beside them, ``outside`` is the same pipeline in Structured Streaming. Latencies of a mode are means over the span in
which the constraint was met for good, or over its last half if it was not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import fries_nb as fn
from fries_nb.constraints.judgements import ConstraintState
from fries_nb.constraints.reactions import ConstraintStatus
from fries_nb.experiments.measuring import HOSTS, ExperimentScale, Result, Row, pause, running, session
from fries_nb.run import with_buffers
from fries_nb.workloads.video import VideoFeed, video_flow

BUFFER_BYTES = 32 << 10
MODES: Mapping[str, Mapping[str, Any]] = {
    "none": {"buffer_bytes": BUFFER_BYTES, "adapt": False},
    "flush": {"adapt": False},
    "buffers": {"buffer_bytes": BUFFER_BYTES},
    "buffers and chaining": {"buffer_bytes": BUFFER_BYTES},
}
"""Mode to its arguments of ``with_buffers``."""
CHAINING = "buffers and chaining"
"""The mode in which operators may be chained."""
PAPER_MS: Mapping[str, tuple[float, float]] = {
    "none": (4_500.0, 5_500.0),
    "buffers": (340.0, 380.0),
    "buffers and chaining": (270.0, 320.0),
}
"""Mode to the paper's mean and worst latency; without optimisations the mean fluctuates between 3.5 and 5.5 s."""
STREAMS, FRAMES_PER_S, WORKERS = 16, 4.0, 4
LIMIT_MS, PAPER_WINDOW_S, LEAST_WINDOW_S = 300.0, 15.0, 2.0
PAPER_S, SHORTEST_S = 900.0, 4.0
"""Duration of each mode in seconds; in the paper buffers converge after nine minutes."""
CAUSES = ("task ms", "buffer ms", "transport ms")
LOOK_S = 0.5
OUTSIDE = "outside: Structured Streaming"


@dataclass(frozen=True)
class Measured:
    """One mode: the constraint at the end, when it was met for good, and the throughput at the end.

    Attributes:
        state: the state of the constraint at the end.
        mean_ms, worst_ms: means over all looks of the settled span; ``None`` if nothing was judged in it.
        converged_s: seconds until it was met for good; ``None`` if it was not met at the end.
        frames_per_s: merged frames per second in the last half.
    """

    state: ConstraintState
    mean_ms: float | None
    worst_ms: float | None
    converged_s: float | None
    frames_per_s: float


def nephele7(scale: ExperimentScale) -> Result:
    """Nephele 7: latency of the video pipeline under a constraint, by element and remedy (Figures 7 to 9)."""
    seconds = scale.seconds(PAPER_S, SHORTEST_S)
    window_s = min(PAPER_WINDOW_S, max(LEAST_WINDOW_S, seconds / 10))
    rows: list[Row] = []
    with session() as spark:
        for mode, options in MODES.items():
            flow = with_buffers(constrained_flow(window_s, chain=mode == CHAINING), **options)
            rows += rows_of(mode, _measured(spark, flow, seconds))
        rows.append(_outside(spark, seconds))
    parameters = {
        "hosts": HOSTS, "streams": STREAMS, "frames/s each": FRAMES_PER_S, "workers": WORKERS, "limit ms": LIMIT_MS,
        "window s": window_s, "seconds": seconds, "merged frames/s offered": STREAMS / 4 * FRAMES_PER_S,
    }  # fmt: skip
    title = "latency of the video pipeline under a constraint of 300 ms"
    return Result("nephele7", title, scale.of_paper, parameters, tuple(rows))


def constrained_flow(window_s: float, chain: bool = True) -> fn.Dataflow:
    """The pipeline with the paper's constraint, up to the Server's input.

    In the paper it begins behind the Partitioner, which is the source there. Here the source is an operator of its own,
    and its buffers would delay the streams of a group by different times, so they are part of the sequence.
    """
    flow = video_flow(VideoFeed(STREAMS).source(FRAMES_PER_S), fn.memory(), WORKERS, chain=chain)
    tasks = ["Partitioner", "Decoder", "Merger", "Overlay", "Encoder"]
    sequence = [fn.edge("Src", "Partitioner"), *tasks, fn.edge("Encoder", "Server")]
    flow.constrain(sequence, latency_ms=LIMIT_MS, window_s=window_s)
    return flow


def _measured(spark: Any, flow: fn.Dataflow, seconds: float) -> Measured:
    # Without commits, since the marker of a commit sends whatever is buffered in front of it.
    with running(flow, spark, workers=WORKERS, commit_interval_s=None) as run:
        began_s, states = time.time(), list[tuple[float, ConstraintState]]()
        half, processed = began_s + seconds / 2, 0
        while (now_s := time.time()) < began_s + seconds:
            [state] = run.constraints()
            states.append((now_s - began_s, state))
            if now_s < half:
                processed, half_s = run.metrics().operators["Server"].processed, now_s
            pause(LOOK_S)
        [state] = run.constraints()
        frames_per_s = (run.metrics().operators["Server"].processed - processed) / (time.time() - half_s)
        met_s = converged([(at_s, one.status) for at_s, one in states])
        since_s = seconds / 2 if met_s is None else met_s
        settled = [one for at_s, one in states if at_s >= since_s]
        mean_ms, worst_ms = mean_of([one.mean_ms for one in settled]), mean_of([one.worst_ms for one in settled])
        return Measured(state, mean_ms, worst_ms, met_s, frames_per_s)


def _outside(spark: Any, seconds: float) -> Row:
    """The row of Structured Streaming; its latencies are of merged frames, the worst is the mean of a group."""
    from fries_nb.experiments.rivals.streaming_jobs import latencies

    found = latencies(spark, STREAMS, FRAMES_PER_S, WORKERS, seconds)
    return {
        "mode": OUTSIDE, "element": "sequence", "mean ms": float(found["ms"].mean()),
        "worst ms": float(found.groupby("group")["ms"].mean().max()), "frames/s": len(found) / (seconds / 2),
    }  # fmt: skip


def mean_of(looks: Sequence[float | None]) -> float | None:
    """The mean over those looks at which there was a value; ``None`` if there was none.

    >>> mean_of([10.0, None, 20.0]), mean_of([None])
    (15.0, None)
    """
    known = [value for value in looks if value is not None]
    return mean(known) if known else None


def converged(states: Sequence[tuple[float, ConstraintStatus]]) -> float | None:
    """The time from which on a constraint was met until the end; ``None`` if it was not met at the end.

    >>> from fries_nb.constraints.reactions import ConstraintStatus as Is
    >>> converged([(0, Is.NOT_YET_JUDGED), (1, Is.MET), (2, Is.VIOLATED), (3, Is.MET), (4, Is.MET)])
    3
    >>> converged([(0, Is.MET), (1, Is.VIOLATED)])
    """
    since = None
    for at, status in states:
        if status is not ConstraintStatus.MET:
            since = None
        elif since is None:
            since = at
    return since


def rows_of(mode: str, measured: Measured) -> list[Row]:
    """A row for each element, then one for the sequence."""
    rows: list[Row] = []
    tasks = set(measured.state.constraint.tasks)
    for part in measured.state.parts:
        causes = {"buffer ms": part.buffer_ms, "transport ms": part.transport_ms}
        causes = {"task ms": part.task_ms} if part.element in tasks else causes
        rows.append({"mode": mode, "element": part.element, **dict.fromkeys(CAUSES), **causes})
    mean_ms, worst_ms = PAPER_MS.get(mode, (None, None))
    rows.append({
        "mode": mode, "element": "sequence", "mean ms": measured.mean_ms, "worst ms": measured.worst_ms,
        "status": str(measured.state.status), "met after s": measured.converged_s,
        "frames/s": measured.frames_per_s, "paper mean ms": mean_ms, "paper worst ms": worst_ms,
    })  # fmt: skip
    return rows
