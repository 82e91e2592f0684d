"""Seeded runs whose dataflow changes its shape while they run.

Hosts have the cores and the topologies of production (``threaded_hosts``), and the driver is production's. What is
asked for is a whole dataflow, as ``Run.apply`` takes it; functions count as changed if they are other objects.

>>> import fries_nb as fn
>>> def declared(*names):
...     flow = fn.Dataflow("g")
...     stream = flow.source("S", fn.rate(None, count=4))
...     for name in names:
...         stream = stream.map(name, lambda row, name=name: row | {"way": row["way"] + name})
...     stream.sink("out", fn.memory())
...     return flow.graph(workers=2)
>>> rows = {"S": [{"value": v, "way": ""} for v in range(60)]}
>>> cluster = ReshapingCluster(declared("A", "B"), rows, hosts=2, seed=3)
>>> change = cluster.reshape(declared("A", "N", "B"))
>>> cluster.run()
>>> cluster.outcomes[change].outcome, {row["way"] for row in cluster.rows("out")} <= {"AB", "ANB"}
('done', True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cloudpickle
from msgspec import structs

from fries_nb.changes.queue_entries import rehearsed
from fries_nb.controller import events
from fries_nb.dataflow.graph import Graph, resized
from fries_nb.dataflow.traits import Holds
from fries_nb.dataflow.updates import Update
from fries_nb.host.region_spec import Additions
from fries_nb.planning.shape import shape_plan
from fries_nb.protocol.trace import Record, TraceFlow, flow_of, traced_of
from fries_nb.simulation.threaded_hosts import JoiningThreads


class ReshapingCluster(JoiningThreads):
    """A cluster whose shape is changed on request; the arguments are those of ``Cluster``.

    The rows of sources that are added later are given from the start.
    """

    often = 0.0

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.shapes: dict[str, Graph] = {}  # id of each change of the shape to the dataflow after it
        super().__init__(*args, **settings)
        self._first = self.graph

    def reshape(
        self, after: Graph, order: bool = True, returns: bool = False, guarded: bool = False,
        given: Mapping[str, Mapping[Any, Any]] | None = None,
    ) -> str:  # fmt: skip
        """Request that the dataflow becomes another one; returns the id of the change, a key of ``outcomes``.

        Args:
            after: the dataflow after the change.
            order: see ``shape_plan``.
            returns: whether it is the dataflow before the last change of the shape, which is rolled back.
            guarded: whether it is rolled back if the new dataflow fails, however late.
            given: added operator to the states by key with which it begins.

        Raises:
            PlanError: there is no plan for it.
        """
        before = self.graph
        both = [name for name in after if name in before]
        found = {name: after.operator(name).function for name in both}
        changed = {name: one for name, one in found.items() if one is not before.operator(name).function}
        changed = {name: one for name, one in changed.items() if not _is_endpoint(after, name)}
        planned = shape_plan(before, after, list(changed), order)
        added = {name: after.operator(name).function for name in after if name not in before}
        functions = {
            name: cloudpickle.dumps(one) for name, one in added.items() if one and not _is_endpoint(after, name)
        }
        sinks = {sink: self.store.sinks[sink] for sink in added if after.operator(sink).traits.is_sink}
        packed = cloudpickle.dumps(Additions(functions, {}, {}))  # hosts have the ports of sinks by themselves
        additions = Additions(functions, {}, sinks, packed)
        name = f"s{len(self.shapes) + 1}"
        self.shapes[name], self.shapes[f"{name}.back"] = after, before
        payloads = {target: cloudpickle.dumps(Update(one)) for target, one in changed.items()}
        states = {operator: cloudpickle.dumps(states) for operator, states in (given or {}).items()}
        shape = events.ShapeChange(after, additions, name.encode(), returns=returns, given=states)
        guard = None
        if guarded:
            plan = replace(planned.plan, targets=frozenset(one for one in planned.plan.targets if one in after))
            guard = events.Guard(plan, True, shape=events.ShapeChange(before, fingerprint=f"{name}.back".encode()))
        fair = rehearsed(planned.plan.targets, before, after)
        self._say(events.ChangeRequested(name, planned.plan, payloads, fair, guard=guard, force=True, shape=shape))
        return name

    def records(self) -> list[Record]:
        """The trace so far, with the first dataflow and each that was made of it."""
        _, *records = super().records()
        workers = {(one.operator, one.worker) for one in records if not isinstance(one, TraceFlow)}
        workers |= {(name, index) for name, count in self.graph.sizes.items() for index in range(count)}
        traced = Counter(operator for operator, _ in workers)
        made = [one.change for one in self.journal if one.shape]
        flows = [("", self._first), *((change, self.shapes[change]) for change in made)]
        over = self.state == "finished"
        described = [flow_of(graph, finished=over, shape=change) for change, graph in flows]
        return [*(structs.replace(flow, workers=traced_of(flow, traced)) for flow in described), *records]

    def _see(self, instruction: events.Instruction) -> None:
        declared = self._plan.graph
        super()._see(instruction)
        match instruction:
            case events.ChangeTopology():
                self._plan = replace(self._plan, graph=declared)
            case events.TopologyChanged(topology) if topology.after is not None:
                self._plan = replace(self._plan, graph=declared)
                self.graph = declared
            case events.ShapeDecided() | events.ShapeUndone():
                self._decided()

    def _decided(self) -> None:
        """Whatever starts again from now on has the dataflow after the last change that is decided."""
        decided = [one.change for one in self.journal if one.shape]
        if decided:
            self.graph = resized(self.shapes[decided[-1]], self._plan.graph.sizes)
            self._plan = replace(self._plan, graph=self.graph)

    def _start_again(self, *args: Any) -> None:
        self.store.leave_all_but(self.graph.by_name)
        super()._start_again(*args)

    def kill_driver(self) -> None:
        """Kill the driver with all hosts; the run is resumed with the dataflow that was decided last."""
        self._decided()
        super().kill_driver()


def _is_endpoint(graph: Graph, name: str) -> bool:
    return graph.operator(name).traits.holds is Holds.ENDPOINT
