"""The workers of a run as a table: where they are, what they own, and what they process.

>>> from fries_nb.dataflow.graph import Edge, Graph, Operator, Partitioning
>>> from fries_nb.topology.topology import Topology
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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fries_nb.controller.topology_status import TopologyStatus
from fries_nb.messages import WorkerId

_COLUMNS = ("operator", "worker", "host", "routed", "bins", "rate")


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
        rates: worker to tuples per second.
    """
    found = dict.fromkeys(status.hosts_now, 0.0)
    for operator, placed in status.workers.items():
        for index, host in enumerate(placed):
            found[host] += rates.get(WorkerId(operator, index), 0.0)
    return found
