"""The workers of a run as a table: where they are, what they own, and what they process.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> from fries_nb.protocol.topology import Topology
>>> edge = Edge("S", "K", Partitioning.HASH, ("k",))
>>> topology = Topology.dealt(Graph("pair", (Operator("S"), Operator("K", key=("k",), workers=2)), (edge,)), hosts=2)
>>> status = TopologyStatus.of(topology, (0, 1))
>>> print(worker_frame(status, {WorkerId("K", 0): 20.0}).to_string(index=False))
operator  worker  host  routed  bins  rate
       S       0     0    True  <NA>   0.0
       K       0     0    True   512  20.0
       K       1     1    True   512   0.0
>>> rates_by_host(status, {WorkerId("K", 0): 20.0, WorkerId("S", 0): 30.0})
{0: 50.0, 1: 0.0}
>>> loads_by_host(status, {0: ProcessUsage(0.5, 90)}, [Report(WorkerId("K", index), 8, 300) for index in (0, 1)])
{0: HostLoad(cpu_share=0.5, rss_bytes=90, waiting_bytes=300)}

What a run has recorded, as DataFrames: latency at its sinks and queues over time, and its changes.

>>> history_frame([Point(0.25, 4.0, 9.0, 2_000.0)]).reset_index().to_dict("records")
[{'at': Timestamp('1970-01-01 00:00:00.250000+0000', tz='UTC'), 'p50_ms': 4.0, 'p99_ms': 9.0, 'rate': 2000.0}]
>>> queues_frame([QueuePoint(0.25, "FM", 3, 96, 2_000.0)]).iloc[0].to_dict()
{'operator': 'FM', 'queued': 3, 'queued_bytes': 96, 'rate': 2000.0}
>>> history_frame([]).columns.tolist(), changes_frame([]).columns.tolist()[:4]
(['p50_ms', 'p99_ms', 'rate'], ['change', 'targets', 'scheduler', 'origin'])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fries_nb.changes import Change
from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.telemetry.history import Point, QueuePoint
from fries_nb.transport.envelopes import ProcessUsage

_COLUMNS = ("operator", "worker", "host", "routed", "bins", "rate")


@dataclass(frozen=True, slots=True)
class HostLoad:
    """What a host uses, and what waits there.

    Attributes:
        cpu_share: processor time of its process per time, over about the last second; 1.0 is one core.
        rss_bytes: resident memory of its process in bytes.
        waiting_bytes: bytes of tuples in the input queues of its workers.
    """

    cpu_share: float
    rss_bytes: int
    waiting_bytes: int


def worker_frame(status: TopologyStatus, rates: Mapping[WorkerId, float]) -> Any:
    """The workers of a topology.

    Args:
        status: the topology.
        rates: worker to tuples per second.

    Returns:
        A pandas DataFrame with a row for each worker: its ``operator``, its index ``worker``, its ``host``, whether
        rows are ``routed`` to it, the number of ``bins`` that it owns (none without keys), and the tuples per second
        that it takes in as ``rate``.
    """
    from pandas import DataFrame  # takes longer to import than all of fries_nb's own modules

    rows = []
    for operator, placed in status.workers.items():
        owned = status.bins(operator) if operator in status.tables else None
        for index, host in enumerate(placed):
            bins = None if owned is None else len(owned.get(index, ()))
            rate = rates.get(WorkerId(operator, index), 0.0)
            rows.append((operator, index, host, index < status.routed[operator], bins, rate))
    return DataFrame(rows, columns=_COLUMNS).astype({"bins": "Int64"})


def rates_by_host(status: TopologyStatus, rates: Mapping[WorkerId, float]) -> dict[int, float]:
    """Host to the sum of the rates of its workers.

    Args:
        status: the topology.
        rates: worker to tuples per second, or to another measurement that can be added up.
    """
    found = dict.fromkeys(status.hosts_now, 0.0)
    for worker, rate in rates.items():
        placed = status.workers.get(worker.operator, ())
        if worker.index < len(placed):  # else it has left
            found[placed[worker.index]] += rate
    return found


def loads_by_host(
    status: TopologyStatus, usages: Mapping[int, ProcessUsage], reports: Iterable[Report]
) -> dict[int, HostLoad]:
    """Host to its load, without hosts that have not told it yet.

    Args:
        status: the topology.
        usages: host to what its process uses.
        reports: the last reports of workers.
    """
    waiting = {report.worker: float(report.queued) for report in reports}
    return {
        host: HostLoad(usages[host].cpu_share, usages[host].rss_bytes, int(queued))
        for host, queued in rates_by_host(status, waiting).items()
        if host in usages
    }


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
