"""Workers that are made for a running dataflow: with its current functions, and with its changes in their log."""

from __future__ import annotations

import cloudpickle

import fries_nb as fn
from fries_nb.dataflow.graph import Edge, Graph, Kind, Operator, Partitioning
from fries_nb.host.host_workers import Assembly
from fries_nb.protocol.checkpoints import CommittedChange, Configuration, Restoration, without_superseded
from fries_nb.protocol.topology import Topology, wire
from fries_nb.protocol.trace import Updated
from fries_nb.worker.events import Traced

GRAPH = Graph(
    "example",
    (Operator("A", kind=Kind.SOURCE), Operator("M", workers=2), Operator("Z", kind=Kind.SINK)),
    (Edge("A", "M", Partitioning.HASH, ("k",)), Edge("M", "Z")),
)
APPLIED = ("u1", "u2", "u3", "u4")


def replacing(change: str) -> CommittedChange:
    """A change of M."""
    update = fn.Update(lambda row: {**row, "by": change})
    return CommittedChange(change, "fries", (("M",),), {"M": cloudpickle.dumps(update)})


def test_a_worker_that_is_added_has_made_all_switches_even_those_whose_functions_are_kept_no_more():
    """A checkpoint includes four changes of M, and the driver keeps the functions of the last two."""
    decided = without_superseded([replacing(change) for change in APPLIED], APPLIED)
    assert [bool(change.payloads) for change in decided] == [True, True]
    payloads = {"M": cloudpickle.dumps(lambda row: row)}
    assembly = Assembly(Restoration(None), {}, payloads, [], 1 << 20, lambda: 0, audit=True)
    wiring = wire(Topology.dealt(GRAPH, 1), ("M",), 1)
    worker = assembly.newcomer(wiring, {"M": Configuration(APPLIED)}, decided, 7)
    records = [record for one in worker.take() if isinstance(one, Traced) for record in one.records]
    assert [record.id for record in records if isinstance(record, Updated)] == list(APPLIED)
