"""The verdict on a constraint as a whole, from the verdicts of all hosts that judge a part of it.

>>> verdicts = [
...     ConstraintVerdict("FC -> FM", 300.0, 15.0, host, 0, status, why, mean_ms=mean, worst_ms=worst, rows=rows)
...     for host, status, why, mean, worst, rows in (
...         (0, ConstraintStatus.MET, "it takes 90 ms", 80.0, 90.0, 30.0),
...         (1, ConstraintStatus.VIOLATED, "it takes 400 ms", 380.0, 400.0, 10.0),
...         (2, ConstraintStatus.NOT_YET_JUDGED, "no sample yet of FC", None, None, 0.0))]
>>> whole = combined_verdict(verdicts)
>>> whole.status.value, whole.mean_ms, whole.worst_ms, whole.host
('violated', 155.0, 400.0, 1)
>>> whole.reason
'it takes 400 ms; not yet judged by host 2: no sample yet of FC'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from fries_nb.constraints.reactions import ConstraintStatus, ConstraintVerdict, ElementLatency


def combined_verdict(verdicts: Sequence[ConstraintVerdict]) -> ConstraintVerdict:
    """The verdict on all runtime constraints of one constraint.

    It is violated if a host finds it so, and met if those hosts that can judge find it so; the reason names those that
    cannot, whose workers may just get no rows.

    Args:
        verdicts: the newest verdict of each host on this constraint, at least one.

    Returns:
        The verdict: worst sequence and reason of the host on which it is worst, means weighted by rows.
    """
    newest = max(one.time_ns for one in verdicts)
    judged = [one for one in verdicts if one.status is not ConstraintStatus.NOT_YET_JUDGED]
    if not judged:
        return replace(verdicts[0], time_ns=newest)
    violated = [one for one in judged if one.status is ConstraintStatus.VIOLATED]
    worst = max(violated or judged, key=lambda one: -1.0 if one.worst_ms is None else one.worst_ms)
    measured = [one for one in judged if one.mean_ms is not None]
    return replace(
        worst,
        time_ns=newest,
        reason="; ".join([worst.reason, *(_unjudged(one) for one in verdicts if one not in judged)]),
        mean_ms=_mean(measured, lambda one: one.mean_ms or 0.0) if measured else None,
        elements=tuple(_element(measured, place, one) for place, one in enumerate(worst.elements)),
        rows=sum(one.rows for one in measured),
        tasks_ms=max(one.tasks_ms for one in judged),
        violated_windows=max(one.violated_windows for one in judged),
        exhausted=bool(violated) and all(one.exhausted for one in violated),
    )


def _unjudged(verdict: ConstraintVerdict) -> str:
    return f"{ConstraintStatus.NOT_YET_JUDGED.value} by host {verdict.host}: {verdict.reason}"


def _element(measured: Sequence[ConstraintVerdict], place: int, worst: ElementLatency) -> ElementLatency:
    sizes = [one.elements[place] for one in measured if one.elements[place].largest_bytes]
    return replace(
        worst,
        mean_ms=_mean(measured, lambda one: one.elements[place].mean_ms),
        buffer_ms=_mean(measured, lambda one: one.elements[place].buffer_ms),
        row_ms=_mean(measured, lambda one: one.elements[place].row_ms),
        smallest_bytes=min((one.smallest_bytes for one in sizes), default=0),
        largest_bytes=max((one.largest_bytes for one in sizes), default=0),
    )


def _mean(measured: Sequence[ConstraintVerdict], value: Callable[[ConstraintVerdict], float]) -> float:
    """The mean weighted by rows; if no host has counted any, all count alike."""
    rows = [one.rows for one in measured]
    weights = rows if any(rows) else [1.0] * len(measured)
    pairs = zip(measured, weights, strict=True)
    return sum(value(one) * weight for one, weight in pairs if weight) / sum(weights)
