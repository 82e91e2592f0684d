"""The workers of a run and their hosts: where they are, what they own, and what they process.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> from fries_nb.protocol.topology import Topology
>>> edge = Edge("S", "K", Partitioning.HASH, ("k",))
>>> topology = Topology.dealt(Graph("pair", (Operator("S"), Operator("K", key=("k",), workers=2)), (edge,)), hosts=2)
>>> status = TopologyStatus.of(topology, (0, 1))
>>> print(placed_workers(status, {WorkerId("K", 0): 20.0}).to_pandas().to_string(index=False))
operator  worker  host  routed  bins  rate
       S       0     0    True  <NA>   0.0
       K       0     0    True   512  20.0
       K       1     1    True   512   0.0
>>> rates_by_host(status, {WorkerId("K", 0): 20.0, WorkerId("S", 0): 30.0})
{0: 50.0, 1: 0.0}
>>> loads_by_host(status, {0: ProcessUsage(0.5, 90)}, [Report(WorkerId("K", index), 8, 300) for index in (0, 1)])
{0: HostLoad(cpu_share=0.5, rss_bytes=90, waiting_bytes=300)}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.protocol.messages import Report, WorkerId
from fries_nb.telemetry.recorded import Recorded
from fries_nb.transport.envelopes import ProcessUsage


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


@dataclass(frozen=True, slots=True)
class PlacedWorker:
    """A worker, and where it is.

    Attributes:
        operator: its operator.
        worker: its index.
        host: its host.
        routed: whether rows are routed to it.
        bins: number of bins that it owns; ``None`` (in a frame ``<NA>``) without keys.
        rate: tuples per second that it takes in.
    """

    operator: str
    worker: int
    host: int
    routed: bool
    bins: int | None
    rate: float


def placed_workers(status: TopologyStatus, rates: Mapping[WorkerId, float]) -> Recorded[PlacedWorker]:
    """The workers of a topology.

    Args:
        status: the topology.
        rates: worker to tuples per second.
    """
    found = []
    for operator, placed in status.workers.items():
        owned = status.bins(operator) if operator in status.tables else None
        for index, host in enumerate(placed):
            bins = None if owned is None else len(owned.get(index, ()))
            rate = rates.get(WorkerId(operator, index), 0.0)
            found.append(PlacedWorker(operator, index, host, index < status.routed[operator], bins, rate))
    return Recorded.of(PlacedWorker, found)


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
