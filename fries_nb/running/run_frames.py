"""What a run has recorded, as DataFrames: latency at its sinks and queues over time, and its changes.

>>> history_frame([Point(0.25, 4.0, 9.0, 2_000.0)]).reset_index().to_dict("records")
[{'at': Timestamp('1970-01-01 00:00:00.250000+0000', tz='UTC'), 'p50_ms': 4.0, 'p99_ms': 9.0, 'rate': 2000.0}]
>>> queues_frame([QueuePoint(0.25, "FM", 3, 96, 2_000.0)]).iloc[0].to_dict()
{'operator': 'FM', 'queued': 3, 'queued_bytes': 96, 'rate': 2000.0}
>>> history_frame([]).columns.tolist(), changes_frame([]).columns.tolist()[:4]
(['p50_ms', 'p99_ms', 'rate'], ['change', 'targets', 'scheduler', 'origin'])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

from fries_nb.changes import Change
from fries_nb.controller.history import Point
from fries_nb.controller.queue_history import QueuePoint

_RESULT = ("outcome", "delay_ms", "plan_ms", "prepare_ms", "commit_ms", "old_tuples", "error")
CHANGE_COLUMNS = ("change", "targets", "scheduler", "origin", *_RESULT)


def history_frame(points: Iterable[Point]) -> Any:
    """The points of a run, by the end of their intervals.

    Args:
        points: the points, oldest first.

    Returns:
        A pandas DataFrame with ``p50_ms``, ``p99_ms`` and ``rate``, by ``at`` in UTC.
    """
    return _by_time(points, Point)


def queues_frame(points: Iterable[QueuePoint]) -> Any:
    """The queues and rates of operators, by the end of their intervals.

    Args:
        points: the points, oldest first.

    Returns:
        A pandas DataFrame with ``operator``, ``queued``, ``queued_bytes`` and ``rate``, by ``at`` in UTC.
    """
    return _by_time(points, QueuePoint)


def _by_time(points: Iterable[Point] | Iterable[QueuePoint], kind: type[Point | QueuePoint]) -> Any:
    from pandas import DataFrame, to_datetime  # takes longer to import than all of fries_nb's own modules

    frame = DataFrame(map(asdict, points), columns=[field.name for field in fields(kind)])
    at = to_datetime(frame.pop("at_s"), unit="s", utc=True).rename("at")
    return frame.set_index(at)


def changes_frame(changes: Iterable[Change]) -> Any:
    """Changes with their results, those under way without one.

    Args:
        changes: the changes, in order of request.

    Returns:
        A pandas DataFrame with a row for each and the columns ``CHANGE_COLUMNS``; times are in milliseconds.
    """
    from pandas import DataFrame

    return DataFrame(map(_row, changes), columns=CHANGE_COLUMNS)


def _row(change: Change) -> dict[str, Any]:
    plan = change.plan
    targets = ", ".join(sorted(plan.targets))
    row = {"change": change.id, "targets": targets, "scheduler": plan.scheduler, "origin": change.origin}
    if not change.done:
        return row | {"outcome": "under way"}
    result = change.result(0)
    return row | {name: getattr(result, name) for name in _RESULT}
