"""The reasons of verdicts, in one sentence with the numbers.

>>> from fries_nb.constraints.reactions import ConstraintStatus, ElementLatency
>>> verdict = ConstraintVerdict("FC -> FM", 300.0, 15.0, 0, 0, ConstraintStatus.VIOLATED, "", worst_ms=402.5,
...     worst=(WorkerId("FC", 0), WorkerId("FM", 1)),
...     elements=(ElementLatency("FC", 2.0, 2.5), ElementLatency("FC -> FM", 380.0, 400.0, buffer_ms=350.0)))
>>> violated_because(verdict)
'FC[0] -> FM[1] takes 402.5 ms, at most 300 ms: 400 ms of it at FC -> FM (buffers: 350 ms)'
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from fries_nb.constraints.reactions import ConstraintVerdict
from fries_nb.durations import duration
from fries_nb.messages import WorkerId


def milliseconds(value: float) -> str:
    """A time as text: ``402.5 ms``; ``no end`` if rows are stalled."""
    return duration(value / 1_000)


def path_of(workers: Sequence[WorkerId]) -> str:
    """The workers of a sequence as text."""
    return " -> ".join(map(str, workers))


def met_because(verdict: ConstraintVerdict) -> str:
    """Why a constraint is met.

    Args:
        verdict: the values.
    """
    takes = milliseconds(verdict.worst_ms or 0.0)
    return f"the worst sequence, {path_of(verdict.worst)}, takes {takes}, at most {milliseconds(verdict.limit_ms)}"


def violated_because(verdict: ConstraintVerdict) -> str:
    """Why a constraint is violated: the element with the largest share of the worst sequence.

    Args:
        verdict: the values.
    """
    latency = verdict.worst_ms or 0.0
    takes = f"{'has' if latency == inf else 'takes'} {milliseconds(latency)}"
    summary = f"{path_of(verdict.worst)} {takes}, at most {milliseconds(verdict.limit_ms)}"
    cause = max(verdict.elements, key=lambda one: one.worst_ms)
    if cause.worst_ms == inf:
        return f"{summary}: rows wait at {cause.element}, and none is taken"
    buffers = f" (buffers: {milliseconds(cause.buffer_ms)})" if cause.buffer_ms else ""
    return f"{summary}: {milliseconds(cause.worst_ms)} of it at {cause.element}{buffers}"


def settling_because(channels: int) -> str:
    """Why a violation still stands.

    Args:
        channels: number of channels with a smaller buffer than when they were last measured.
    """
    return f"it was violated, and the latency of {channels} channels with smaller buffers is not known yet"


def below_tasks_because(verdict: ConstraintVerdict, tasks: Sequence[tuple[str, float]]) -> str:
    """Why no buffer and no chain can keep a constraint: the tasks of a sequence alone take longer.

    Args:
        verdict: the values.
        tasks: the operators of that sequence and their latencies.
    """
    parts = " + ".join(f"{name} {milliseconds(latency)}" for name, latency in tasks)
    limit, total = milliseconds(verdict.limit_ms), milliseconds(verdict.tasks_ms)
    return f"the limit of {limit} is below the task latencies: {parts} = {total}"


def clocks_because(error_ms: float, limit_ms: float) -> str:
    """Why clocks prevent a judgement.

    Args:
        error_ms: sum of the errors along the sequence; infinite if it is not known.
        limit_ms: the limit.
    """
    if error_ms == inf:
        return "its hosts are on several machines, and it is not known by how much their clocks differ"
    return (
        f"the clocks of the hosts differ by up to {milliseconds(error_ms)} along the sequence, "
        f"more than a tenth of the limit of {milliseconds(limit_ms)}"
    )


def unmeasured_because(elements: Sequence[str]) -> str:
    """Why nothing can be judged yet.

    Args:
        elements: elements without any sample or queue.
    """
    return f"no sample yet of {', '.join(elements)}" if elements else "no sequence has samples of all its elements yet"
